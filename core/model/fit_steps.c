/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a fit: how one is filled, submitted, and looked at when it is done. The host gathers batch k + n_slots while
 * the devices work on batch k: each slot of the program has its own inputs and its own loss, which is read when the slot comes
 * round again, so no step waits for the host to look. With several replicas a step is finished (their gradients added up, the
 * update submitted) after the next one's inputs were gathered.
 *
 * Where devices take several steps in one call, the host prepares as many, submits them at once, and prepares the next ones
 * while the devices are at these: it has nothing to do with a step while it runs.
 *
 * Where gradients are accumulated, a step is several batches, whose programs only add to what replicas hold, and then the
 * program that applies it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/data/stage/stage.h"
#include "core/model/fit.h"

enum { STEPS_BETWEEN_SCALES = 2000 }; /* without an overflow */
static const double largest_scale = 16777216;

typedef strata_fit_flight flight;
typedef strata_fit fit;

double strata_fit_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What is left to do of the newest step. */
static strata_status finish_step(fit *f, strata_error *err) {
    const strata_model_program *program = f->unfinished;
    const strata_workers *workers = &f->model->strategy->workers;
    f->unfinished = NULL;
    if (program && strata_strategy_has_workers(f->model->strategy)) workers->at_step(workers, f->unfinished_step);
    return program ? strata_group_finish(program->group, f->unfinished_slot, program->contributes, err) : STRATA_OK;
}

/* Submits what is pending. */
static strata_status launch(fit *f, strata_error *err) {
    const int n = f->n_pending;
    f->n_pending = 0;
    STRATA_TRY(finish_step(f, err));
    if (!n) return STRATA_OK;
    const flight *first = &f->flights[f->n_flights - n];
    if (n > 1) return strata_group_run_steps(first->program->group, first->slot, n, first->t - 1, err);
    STRATA_TRY(strata_group_start(first->program->group, first->slot, first->t - 1, err));
    f->unfinished = first->program;
    f->unfinished_slot = first->slot;
    f->unfinished_step = first->t;
    return STRATA_OK;
}

/* Everything that was prepared is submitted. */
strata_status strata_fit_catch_up(fit *f, strata_error *err) {
    STRATA_TRY(launch(f, err));
    return finish_step(f, err);
}

/* Waits for what is in flight without looking, after a failure. */
void strata_fit_drain(fit *f) {
    strata_status unfinished = strata_fit_catch_up(f, NULL); /* a group that failed does no more */
    (void)unfinished;
    while (f->n_flights) {
        flight *last = &f->flights[--f->n_flights];
        strata_status ignored = strata_group_wait(last->program->group, last->slot, NULL);
        (void)ignored;
    }
}

/* The batches of this epoch from number `first` on. */
strata_batches_options strata_fit_batches_options(const fit *f, int64_t first) {
    strata_batches_options opts = {.batch = f->opts.batch,
                                   .shuffle = !f->opts.no_shuffle,
                                   .seed = f->opts.seed,
                                   .epoch = (uint64_t)f->progress.epoch,
                                   .skip = f->skipped,
                                   .first = first};
    strata_model_batch_parts(f->model, f->dataset, &f->feed, true, &opts);
    return opts;
}

/* Those that this worker read, from number `first` on, to be read again: without the others. */
static strata_status open_again(const fit *f, int64_t first, strata_dataset **out_dataset, strata_batches **out_batches,
                                strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    const bool many = strata_strategy_has_workers(f->model->strategy);
    const strata_batches_options opts = strata_fit_batches_options(f, first);
    STRATA_TRY(strata_dataset_auto_shard(f->dataset, f->opts.auto_shard, many ? workers->n : 1, many ? workers->rank : 0,
                                         out_dataset, err));
    return strata_batches_create(*out_dataset, &opts, out_batches, err);
}

static void set_first_row(int32_t rng[STRATA_RNG_WORDS], int64_t row) {
    memcpy(rng + STRATA_RNG_FIRST_ROW, &row, sizeof row);
}

/* Takes a batch of the step apart, whose first row is `row` of its examples. Of `batches`, opened again, it finds what
 * is not finite; batches NULL: of the batch that comes next, what differs when it is computed twice. OK: nothing does. */
static strata_status examine(fit *f, const flight *step, const strata_batches *batches, int64_t row, int64_t n,
                             strata_error *err) {
    int32_t rng[STRATA_RNG_WORDS];
    const strata_model *model = f->model;
    void *x[STRATA_MAX_INPUTS] = {NULL}, *y[STRATA_MAX_OUTPUTS] = {NULL};
    const strata_examined_step what = {
        .x = x, .y = y, .n = n, .byte_scale = batches ? 0 : f->form.byte_scale, .words = step->words, .rng = rng};
    strata_status status = STRATA_OK;
    bool room = true;
    char where[64];
    snprintf(where, sizeof where, "epoch %d, step %lld", f->progress.epoch + 1, (long long)step->step + 1);
    for (int i = 0; i < model->n_inputs; i++)
        room &= (x[i] = malloc((size_t)n * strata_input_bytes(&model->inputs[i]))) != NULL;
    for (int i = 0; i < model->n_outputs; i++)
        room &= (y[i] = malloc((size_t)n * strata_label_bytes(&model->outputs[i]))) != NULL;
    memcpy(rng, step->rng, sizeof rng);
    set_first_row(rng, row);
    if (room) {
        if (batches)
            strata_batches_write(batches, 0, n, x, y);
        else
            strata_worker_batches_write(f->batches, 0, n, x, y);
        for (int i = 0; i < model->n_outputs; i++)
            strata_model_convert_labels(&model->outputs[i], f->dataset, f->feed.targets[i], n, y[i]);
        status =
            batches ? strata_model_diagnose(f->model, &what, where, err) : strata_model_repeat(f->model, &what, where, err);
    }
    for (int i = 0; i < model->n_inputs; i++) free(x[i]);
    for (int i = 0; i < model->n_outputs; i++) free(y[i]);
    return status;
}

/* The step and those submitted behind it changed nothing: the optimizer counts on from before it. */
static strata_status report_not_finite(fit *f, const flight *done, strata_error *err) {
    char where[64];
    strata_fit_drain(f);
    f->model->optimizer_steps = done->t - 1;
    STRATA_TRY(strata_model_reset_sums(f->model, err));
    snprintf(where, sizeof where, "epoch %d, step %lld", f->progress.epoch + 1, (long long)done->step + 1);
    strata_dataset *dataset = NULL;
    strata_batches *batches = NULL;
    strata_status status = STRATA_OK;
    const bool opened = !open_again(f, done->first, &dataset, &batches, NULL);
    for (int64_t i = done->first, row = 0, n; opened && !status && i <= done->last; i++, row += n) {
        if (strata_batches_next(batches, &n, NULL) || !n) break;
        status = examine(f, done, batches, row, n, err);
    }
    strata_batches_destroy(batches);
    strata_dataset_destroy(dataset);
    if (status) return status;
    return strata_fail(err, STRATA_DATA, "the loss was not finite at %s, but is when it is run again", where);
}

/* The epoch's metrics so far, from the steps' own sums: nothing is read from the device. */
static void follow_sums(fit *f, const float *sums, int64_t examples) {
    const double now = strata_fit_seconds();
    if (!(f->opts.metrics_seconds > 0)) return;
    for (int64_t i = 0; i < f->model->metrics.n_sums; i++) f->model->metrics.sums[i] += (double)sums[i];
    f->n_done += examples;
    if (now - f->metrics_read < f->opts.metrics_seconds) return;
    f->progress.metrics = strata_model_metrics(f->model, f->n_done);
    f->metrics_read = now;
}

/* A callback that fails stops the fit behind the steps that were submitted, on all workers. */
void strata_fit_call(fit *f, strata_event event) {
    if (!f->model->callbacks || (f->callback_status && event != STRATA_EVENT_TRAIN_END)) return;
    const bool between = event != STRATA_EVENT_BATCH_BEGIN && event != STRATA_EVENT_BATCH_END;
    f->model->rate.locked = !between && !f->opts.wait_each_step;
    strata_error err = {0};
    const strata_status status = strata_callbacks_call(f->model, (int)event, &f->progress, &err);
    f->model->rate.locked = true;
    if (!status || f->callback_status) return;
    f->callback_status = status;
    f->callback_error = err;
    f->stop_now = true;
}

strata_status strata_fit_tell(fit *f, strata_error *err) {
    strata_fit_call(f, f->progress.epoch_end ? STRATA_EVENT_EPOCH_END : STRATA_EVENT_BATCH_END);
    if (!f->opts.on_progress) return STRATA_OK;
    if (!f->progress.epoch_end) f->progress.epoch_seconds = strata_fit_seconds() - f->epoch_began;
    f->model->rate.locked = !f->progress.epoch_end && !f->opts.wait_each_step;
    const strata_status status = f->opts.on_progress(&f->progress, f->opts.user, err);
    f->model->rate.locked = true;
    return status;
}

/* Steps behind one that overflowed were submitted with its scale: they say no more. */
static strata_status follow_scale(fit *f, const flight *done, bool finite, strata_error *err) {
    strata_model *model = f->model;
    if (!finite) f->history.n_skipped++;
    if (done->scale != model->scale.value) return STRATA_OK;
    if (!finite && done->scale <= 1)
        return strata_fail(
            err, STRATA_DATA,
            "the f16 gradients are not finite at epoch %d, step %lld, though the loss is not scaled; precision bf16 or "
            "f32 has a larger range",
            f->progress.epoch + 1, (long long)done->step + 1);
    if (finite && (++model->scale.steps < STEPS_BETWEEN_SCALES || done->scale >= largest_scale)) return STRATA_OK;
    model->scale.value *= finite ? 2 : 0.5;
    model->scale.steps = 0;
    return STRATA_OK;
}

/* Looks at the oldest step in flight. */
strata_status strata_fit_retire(fit *f, strata_error *err) {
    flight done = f->flights[0];
    memmove(f->flights, f->flights + 1, (size_t)--f->n_flights * sizeof *f->flights);
    STRATA_TRY(strata_group_wait(done.program->group, done.slot, err));
    if (done.program->kind == STRATA_PROGRAM_ACCUMULATE) return STRATA_OK; /* its update tells */
    const strata_program_part *root = &done.program->parts[strata_strategy_root(f->model->strategy)];
    const float *sums = strata_executable_output(root->executable, done.slot, 0);
    float loss = sums[0] / (float)done.examples;
    strata_history *h = &f->history;
    if (!isfinite(loss)) return report_not_finite(f, &done, err);
    if (f->model->scale.value > 0) STRATA_TRY(follow_scale(f, &done, isfinite(sums[f->model->metrics.n_sums]), err));
    if (h->n_losses < (int)(sizeof h->losses / sizeof *h->losses)) h->losses[h->n_losses++] = loss;
    if (h->n_steps++ == 0) h->first_step_seconds = strata_fit_seconds() - f->began;
    f->progress.loss = loss;
    f->progress.learning_rate = (double)done.words[STRATA_STEP_PLAIN_RATE];
    if (f->model->measures_norm)
        f->progress.gradient_norm = sqrt((double)sums[f->model->metrics.n_sums + (f->model->scale.value > 0)]);
    follow_sums(f, sums, done.examples);
    f->progress.step = done.step + 1;
    f->progress.total_step = h->n_steps;
    const int64_t together = f->opts.steps_per_execution;
    return together > 1 && f->progress.step % together ? STRATA_OK : strata_fit_tell(f, err);
}

/* The step's number counts from 0, as devices' do. */
void strata_fit_add_to_trace(fit *f, const char *what, int64_t step, double began) {
    if (f->trace) strata_trace_add_named(f->trace, STRATA_TRACE_HOST, what, step, began, strata_trace_now());
}

void strata_fit_add_epoch_to_trace(fit *f) {
    char name[32];
    if (!f->trace) return;
    snprintf(name, sizeof name, "epoch %d", f->progress.epoch + 1);
    strata_trace_add(f->trace, STRATA_TRACE_HOST, strata_trace_add_label(f->trace, name, "", 0, 0), f->model->optimizer_steps,
                     f->epoch_began, strata_trace_now());
}

/* Of the update that the flight makes or belongs to. */
static void fill_words(fit *f, flight *step) {
    strata_model *model = f->model;
    int64_t t = step->t = model->optimizer_steps + 1;
    if (step->program->kind != STRATA_PROGRAM_ACCUMULATE) model->optimizer_steps = t;
    strata_model_step_words(model, t, step->words);
    uint64_t words[] = {model->seed, (uint64_t)t, 0, 0}; /* Philox: seed, step, first row */
    memcpy(step->rng, words, sizeof step->rng);
}

/* Writes a replica's inputs: its share of the current batch, whose first row is `row` of the step's, and what it counts in the
 * step's `whole` examples. */
static void fill_part(fit *f, const flight *step, const strata_program_part *part, int64_t row, int64_t whole) {
    strata_executable *exe = part->executable;
    float words[STRATA_STEP_WORDS];
    memcpy(words, step->words, sizeof words);
    words[STRATA_STEP_SHARE] = (float)(step->scale * (double)part->n / (double)whole);
    if (part->step >= 0) memcpy(strata_executable_input(exe, step->slot, part->step), words, sizeof words);
    if (!part->n) return;
    const strata_model *model = f->model;
    void *inputs[STRATA_MAX_INPUTS], *labels[STRATA_MAX_OUTPUTS];
    strata_model_slots(model, part, step->slot, inputs, labels);
    strata_worker_batches_write(f->batches, part->first, part->n, inputs, labels);
    for (int i = 0; i < model->n_outputs; i++)
        strata_model_convert_labels(&model->outputs[i], f->dataset, f->feed.targets[i], part->n, labels[i]);
    float *weights = strata_executable_input(exe, step->slot, part->weights);
    for (int64_t i = 0; i < part->n; i++) weights[i] = (float)step->scale / (float)whole;
    if (part->example_weights >= 0) {
        weights = strata_executable_input(exe, step->slot, part->example_weights);
        strata_worker_batches_write_weights(f->batches, part->first, part->n, weights);
        if (f->opts.class_weights && labels[0])
            strata_model_weigh_classes(&model->outputs[0], f->opts.class_weights, labels[0], part->n, weights);
    }
    if (part->rng < 0) return;
    int32_t rng[STRATA_RNG_WORDS];
    memcpy(rng, step->rng, sizeof rng);
    set_first_row(rng, row + part->first);
    memcpy(strata_executable_input(exe, step->slot, part->rng), rng, sizeof rng);
}

/* A free slot of the program, as flights[n_flights], which is filled next. */
static strata_status prepare(fit *f, strata_program_kind kind, int64_t n, flight what, strata_error *err) {
    const strata_batch_form none = {.n_slots = f->form.n_slots}, form = kind == STRATA_PROGRAM_APPLY ? none : f->form;
    strata_model_program *program = NULL;
    /* Runs finish in the order of submission, so with one free place the next slot of any program is free. */
    if (f->n_flights == f->most_in_flight) STRATA_TRY(strata_fit_retire(f, err));
    const strata_model_program *newest = f->model->programs;
    const double began = f->trace ? strata_trace_now() : 0;
    STRATA_TRY(strata_model_get_program(f->model, kind, n, form, &program, err));
    if (f->model->programs != newest) strata_fit_add_to_trace(f, "compile", f->model->optimizer_steps, began);
    if (f->trace) strata_group_set_trace(program->group, f->trace, f->tracks);
    if (f->n_pending && f->flights[f->n_flights - 1].program != program) STRATA_TRY(launch(f, err));
    flight *step = &f->flights[f->n_flights];
    *step = what;
    step->program = program;
    if (!step->scale) step->scale = f->model->scale.value > 0 ? f->model->scale.value : 1;
    STRATA_TRY(strata_group_acquire(step->program->group, &step->slot, err));
    fill_words(f, step);
    step->words[STRATA_STEP_SCALE] = (float)(1 / step->scale);
    return STRATA_OK;
}

/* Submits flights[n_flights], at once or with those that follow. */
static strata_status start(fit *f, strata_error *err) {
    const int most = strata_group_most_steps(f->flights[f->n_flights].program->group);
    f->n_flights++;
    f->n_pending++;
    return f->n_pending < f->together && f->n_pending < most ? STRATA_OK : launch(f, err);
}

/* The update from what replicas hold: says what it is to be multiplied by, as batches may have been other than was thought at
 * the first. */
strata_status strata_fit_submit_held(fit *f, strata_error *err) {
    STRATA_TRY(prepare(f, STRATA_PROGRAM_APPLY, 0, f->held, err));
    flight *step = &f->flights[f->n_flights];
    step->words[STRATA_STEP_SCALE] = (float)((double)f->held_whole / (double)f->held.examples / step->scale);
    for (int r = 0; r < step->program->n_parts; r++) {
        const strata_program_part *part = &step->program->parts[r];
        const int64_t n = f->model->replicas[r].n_held;
        step->program->contributes[r] = n > 0;
        step->words[STRATA_STEP_STATE_SHARE] = n ? 1.0f / (float)n : 0;
        if (part->step >= 0)
            memcpy(strata_executable_input(part->executable, step->slot, part->step), step->words, sizeof step->words);
        f->model->replicas[r].n_held = 0;
    }
    f->n_examples += f->held.examples;
    f->held = (flight){.step = f->held.step + 1};
    return start(f, err);
}

/* Gathers and submits this worker's rows of a batch, for what is held. */
static strata_status hold(fit *f, const strata_worker_step *rows, strata_error *err) {
    STRATA_TRY(prepare(f, STRATA_PROGRAM_ACCUMULATE, rows->own, f->held, err));
    flight *step = &f->flights[f->n_flights];
    const double began = f->trace ? strata_trace_now() : 0;
    f->held.scale = step->scale; /* of all its batches */
    for (int r = 0; r < step->program->n_parts; r++) {
        fill_part(f, step, &step->program->parts[r], f->held.examples + rows->first, f->held_whole);
        f->model->replicas[r].n_held += step->program->parts[r].n > 0;
    }
    strata_fit_add_to_trace(f, "write inputs", step->t - 1, began);
    STRATA_TRY(strata_fit_check_devices(f, step, err));
    STRATA_TRY(start(f, err));
    if (!f->model->strategy->auto_split) return STRATA_OK;
    STRATA_TRY(finish_step(f, err));
    return strata_group_look(step->program->group, step->slot, err);
}

strata_status strata_fit_submit_to_hold(fit *f, const strata_worker_step *rows, strata_error *err) {
    if (!f->held.n) f->held_whole = rows->n * f->accumulate, f->held.first = rows->batch;
    STRATA_TRY(hold(f, rows, err));
    f->held.last = rows->batch;
    f->held.n++;
    f->held.examples += rows->n;
    return f->held.n < f->accumulate ? STRATA_OK : strata_fit_submit_held(f, err);
}

/* Gathers and submits this worker's rows of a batch and its update. */
strata_status strata_fit_submit(fit *f, int64_t number, const strata_worker_step *rows, strata_error *err) {
    const flight what = {.step = number, .first = rows->batch, .last = rows->batch, .n = 1, .examples = rows->n};
    if (f->opts.check_repeats) STRATA_TRY(finish_step(f, err)); /* the parameters are those that this step begins with */
    STRATA_TRY(prepare(f, STRATA_PROGRAM_TRAIN, rows->own, what, err));
    flight *step = &f->flights[f->n_flights];
    if (f->opts.check_repeats && rows->own) STRATA_TRY(examine(f, step, NULL, rows->first, rows->own, err));
    const double began = f->trace ? strata_trace_now() : 0;
    for (int r = 0; r < step->program->n_parts; r++) fill_part(f, step, &step->program->parts[r], rows->first, rows->n);
    strata_fit_add_to_trace(f, "write inputs", step->t - 1, began);
    STRATA_TRY(strata_fit_check_devices(f, step, err));
    f->n_examples += rows->n;
    return start(f, err);
}
