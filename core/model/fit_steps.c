/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a fit: writing the inputs, submitting a run, and reading its result.
 *
 * The host prepares a batch while the devices compute earlier ones. Each slot of a program has its own inputs and outputs, and
 * the loss of a run is read only when its slot is needed again, so the devices do not wait for the host. With several replicas,
 * the exchanges of a step (strata_group_finish) are performed after the inputs of the next step were written.
 *
 * If the devices can run several steps in one call, the host prepares that many, submits them at once, and prepares the next
 * ones while the devices compute.
 *
 * With accumulated gradients, a step consists of several batches, whose program only adds to variables of the replicas, and of
 * the program that makes the update. */
#include <math.h>
#include <stdio.h>

#include "core/data/stage/stage.h"
#include "core/model/data.h"
#include "core/model/fit.h"
#include "core/model/pipeline.h"

/* The steps of a fit whose time is measured, to find out whether steps are short. */
enum { FIRST_MEASURED = 8, LAST_MEASURED = 40 };
/* The longest time of a short step, in seconds. A call of a CPU's driver takes about 1e-5 seconds. */
static const double SHORT_STEP = 5e-4;

typedef strata_fit_run run;
typedef strata_fit fit;

double strata_fit_epoch_seconds(const fit *f) {
    return strata_clock_seconds() - f->epoch.began - f->epoch.compared;
}

/* Performs the exchanges of the newest submitted step, if they were not performed yet, and submits the rest of the step. */
static strata_status finish_step(fit *f, strata_error *err) {
    const run newest = f->queue.unfinished;
    const strata_workers *workers = &f->model->strategy->workers;
    f->queue.unfinished.program = NULL;
    if (!newest.program) return STRATA_OK;
    if (strata_strategy_has_workers(f->model->strategy)) workers->at_step(workers, newest.numbers.update);
    STRATA_TRY(strata_group_finish(newest.program->group, newest.slot, newest.program->contributes, err));
    if (newest.program->kind == STRATA_PROGRAM_AVERAGE) f->model->apart = false;
    return STRATA_OK;
}

/* Whether the run updates the parameters of replicas that have their own. */
static bool sets_apart(const fit *f, const run *r) {
    const bool updates = r->program->kind == STRATA_PROGRAM_TRAIN || r->program->kind == STRATA_PROGRAM_APPLY;
    return updates && strata_strategy_has_own(f->model->strategy);
}

static strata_status submit_prepared(fit *f, strata_error *err) {
    const int n = f->queue.n_unsubmitted;
    f->queue.n_unsubmitted = 0;
    STRATA_TRY(finish_step(f, err));
    if (!n) return STRATA_OK;
    const run *first = &f->queue.runs[f->queue.n - n];
    const int64_t update = first->numbers.update;
    f->model->apart |= sets_apart(f, first);
    if (n > 1) return strata_group_run_steps(first->program->group, first->slot, n, update - 1, err);
    STRATA_TRY(strata_group_start(first->program->group, first->slot, update - 1, err));
    f->queue.unfinished = *first;
    return STRATA_OK;
}

strata_status strata_fit_submit_prepared(fit *f, strata_error *err) {
    STRATA_TRY(submit_prepared(f, err));
    return finish_step(f, err);
}

void strata_fit_drain(fit *f) {
    (void)!strata_fit_submit_prepared(f, NULL); /* a group that has failed submits nothing */
    while (f->queue.n) {
        run *last = &f->queue.runs[--f->queue.n];
        (void)!strata_group_wait(last->program->group, last->slot, NULL);
    }
}

/* Opens the batches that this worker read in this epoch again, from number `first` on. Other workers are not involved. */
static strata_status reopen_batches(const fit *f, int64_t first, strata_dataset **out_dataset, strata_batches **out_batches,
                                    strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    const bool many = strata_strategy_has_workers(f->model->strategy);
    strata_batches_options opts =
        strata_fit_batches_options(f->model, f->dataset, &f->feed, &f->opts, f->progress.epoch, first);
    opts.skip = f->epoch.n_skipped;
    opts.bytes = false;
    STRATA_TRY(strata_dataset_auto_shard(f->dataset, f->opts.auto_shard, many ? workers->n : 1, many ? workers->rank : 0,
                                         out_dataset, err));
    return strata_batches_create(*out_dataset, &opts, out_batches, err);
}

/* How the examples of a batch are prepared. */
static strata_example_source source_of(const fit *f, const strata_batches *batches) {
    return (strata_example_source){
        .batches = batches, .dataset = f->dataset, .feed = &f->feed, .class_weights = f->opts.class_weights};
}

/* Computes n examples of a step again, with all intermediate values: those from `first` on in the current batch of `batches`,
 * of which the first one is number `row` in the step. twice: computes them twice and looks for the first tensor whose bits
 * differ; else looks for the first tensor that is not finite. DATA, with the tensor, if there is one; else OK. */
static strata_status diagnose_batch(fit *f, const run *step, const strata_batches *batches, int64_t first, int64_t n,
                                    int64_t row, bool twice, strata_error *err) {
    strata_examined_step what = {.source = source_of(f, batches),
                                 .first = first,
                                 .n = n,
                                 .row = row,
                                 .byte_scale = twice ? f->step.form.byte_scale : 0,
                                 .numbers = step->numbers};
    char where[64];
    snprintf(where, sizeof where, "epoch %d, step %lld", f->progress.epoch + 1, (long long)step->step + 1);
    what.numbers.scale = 1;
    return (twice ? strata_model_repeat : strata_model_diagnose)(f->model, &what, where, err);
}

/* Reports a step whose loss was not finite. That step and the steps submitted after it changed no parameters (the gate), so the
 * count of updates is reset to before it. */
static strata_status report_not_finite(fit *f, const run *done, strata_error *err) {
    char where[64];
    strata_fit_drain(f);
    f->model->optimizer_steps = done->numbers.update - 1;
    STRATA_TRY(strata_model_reset_sums(f->model, err));
    snprintf(where, sizeof where, "epoch %d, step %lld", f->progress.epoch + 1, (long long)done->step + 1);
    strata_dataset *dataset = NULL;
    strata_batches *batches = NULL;
    strata_status status = STRATA_OK;
    const bool opened = !reopen_batches(f, done->first, &dataset, &batches, NULL);
    for (int64_t i = done->first, row = 0, n; opened && !status && i <= done->last; i++, row += n) {
        if (strata_batches_next(batches, &n, NULL) || !n) break;
        status = diagnose_batch(f, done, batches, 0, n, row, false, err);
    }
    strata_batches_destroy(batches);
    strata_dataset_destroy(dataset);
    if (status) return status;
    return strata_fail(err, STRATA_DATA, "the loss was not finite at %s, but is when it is run again", where);
}

/* Updates the epoch's metrics from the sums of a step, which are outputs of its run, so nothing else is read from the device.
 * */
static void update_metrics(fit *f, const float *sums, int64_t examples) {
    const double now = strata_clock_seconds();
    if (!(f->opts.metrics_seconds > 0)) return;
    for (int64_t i = 0; i < f->model->metrics.n_sums; i++) f->epoch.sums[i] += (double)sums[i];
    f->epoch.n_measured += examples;
    if (now - f->epoch.metrics_read < f->opts.metrics_seconds) return;
    f->progress.metrics = strata_model_metrics(f->model, f->epoch.sums, f->epoch.n_measured, NULL);
    f->epoch.metrics_read = now;
}

void strata_fit_call(fit *f, strata_event event) {
    if (!f->model->callbacks.n || (f->end.of_callback.status && event != STRATA_EVENT_TRAIN_END)) return;
    const bool between = event != STRATA_EVENT_BATCH_BEGIN && event != STRATA_EVENT_BATCH_END;
    f->model->rate.locked = !between && !f->opts.wait_each_step;
    strata_error err = {0};
    const strata_status status = strata_callbacks_call(f->model, (int)event, &f->progress, &err);
    f->model->rate.locked = true;
    if (!status || f->end.of_callback.status) return;
    f->end.of_callback = err;
    f->end.wanted = true;
}

strata_status strata_fit_report(fit *f, bool call, strata_error *err) {
    if (!f->progress.epoch_end) f->progress.epoch_seconds = strata_fit_epoch_seconds(f);
    if (f->reports.wanted) f->reports.events[f->reports.n++] = f->progress;
    if (!call) return STRATA_OK;
    strata_fit_call(f, f->progress.epoch_end ? STRATA_EVENT_EPOCH_END : STRATA_EVENT_BATCH_END);
    if (!f->opts.on_progress) return STRATA_OK;
    f->model->rate.locked = !f->progress.epoch_end && !f->opts.wait_each_step;
    const strata_status status = f->opts.on_progress(&f->progress, f->opts.user, err);
    f->model->rate.locked = true;
    return status;
}

static strata_status update_loss_scale(fit *f, const run *done, bool finite, strata_error *err) {
    if (!finite) f->history.n_skipped++;
    if (strata_loss_scale_follow(f->model, done->numbers.scale, finite)) return STRATA_OK;
    return strata_fail(
        err, STRATA_DATA,
        "the f16 gradients are not finite at epoch %d, step %lld, though the loss is not scaled; precision bf16 or "
        "f32 has a larger range",
        f->progress.epoch + 1, (long long)done->step + 1);
}

/* On a CPU: submits several steps in one call of the driver from now on, if steps are so short that a call takes a considerable
 * part of them. Longer steps are submitted one by one, so that their losses are known soon. */
static void adapt_call(fit *f) {
    const int64_t n = f->history.n_steps;
    if (f->queue.per_call == f->queue.most_per_call) return;
    if (n == FIRST_MEASURED) f->queue.measured_from = strata_clock_seconds();
    if (n != LAST_MEASURED || strata_clock_seconds() - f->queue.measured_from > SHORT_STEP * (LAST_MEASURED - FIRST_MEASURED))
        return;
    f->queue.per_call = f->queue.most_per_call;
    f->queue.most = 2 * f->queue.per_call;
}

/* The output of a step: the sums and the numbers after them. Replicas with parameters of their own have each its own. */
static const float *output_of(fit *f, const run *done) {
    const strata_model_program *program = done->program;
    const strata_program_part *root = &program->parts[strata_strategy_root(f->model->strategy)];
    const int64_t n = f->model->metrics.n_sums + (f->model->scale.value > 0) + f->model->measures_norm;
    if (!strata_strategy_has_own(f->model->strategy)) return strata_executable_output(root->executable, done->slot, 0);
    memset(f->epoch.added, 0, (size_t)n * sizeof *f->epoch.added);
    for (int r = 0; r < program->n_parts; r++) {
        const strata_program_part *part = &program->parts[r];
        if (program->kind == STRATA_PROGRAM_TRAIN && !part->n) continue;
        const float *own = strata_executable_output(part->executable, done->slot, 0);
        for (int64_t i = 0; i < n; i++) f->epoch.added[i] += own[i];
    }
    return f->epoch.added;
}

strata_status strata_fit_finish_oldest(fit *f, strata_error *err) {
    if (f->queue.n == 1) STRATA_TRY(finish_step(f, err)); /* with one slot, the oldest run is the newest */
    run done = f->queue.runs[0];
    memmove(f->queue.runs, f->queue.runs + 1, (size_t)--f->queue.n * sizeof *f->queue.runs);
    STRATA_TRY(strata_group_wait(done.program->group, done.slot, err));
    for (int r = 0; r < done.program->n_parts; r++)
        STRATA_TRY(strata_scores_take(f->model, &f->epoch.scores, &done.program->parts[r], done.slot, err));
    /* The run of the update has the sums of accumulated batches; an average has none. */
    if (done.program->kind == STRATA_PROGRAM_ACCUMULATE || done.program->kind == STRATA_PROGRAM_AVERAGE) return STRATA_OK;
    const float *sums = output_of(f, &done);
    const int64_t examples = strata_strategy_has_own(f->model->strategy) ? done.own : done.examples;
    /* A worker without examples in this step does not know its loss. */
    float loss = examples ? sums[0] / (float)examples : (float)f->progress.loss;
    strata_history *h = &f->history;
    if (!isfinite(loss)) return report_not_finite(f, &done, err);
    if (f->model->scale.value > 0) STRATA_TRY(update_loss_scale(f, &done, isfinite(sums[f->model->metrics.n_sums]), err));
    if (h->n_losses < (int)(sizeof h->losses / sizeof *h->losses)) h->losses[h->n_losses++] = loss;
    if (h->n_steps++ == 0) h->first_step_seconds = strata_clock_seconds() - f->began;
    f->progress.loss = loss;
    f->progress.learning_rate = (double)done.numbers.words[STRATA_STEP_PLAIN_RATE];
    if (f->model->measures_norm)
        f->progress.gradient_norm = sqrt((double)sums[f->model->metrics.n_sums + (f->model->scale.value > 0)]);
    update_metrics(f, sums, examples);
    adapt_call(f);
    f->progress.step = done.step + 1;
    f->progress.total_step = h->n_steps;
    const int64_t together = f->opts.steps_per_execution;
    return strata_fit_report(f, together <= 1 || f->progress.step % together == 0, err);
}

void strata_fit_add_to_trace(fit *f, const char *what, int64_t step, double began) {
    if (f->tracing.now) strata_trace_add_named(f->tracing.now, STRATA_TRACE_HOST, what, step, began, strata_trace_now());
}

void strata_fit_add_epoch_to_trace(fit *f) {
    char name[32];
    if (!f->tracing.now) return;
    snprintf(name, sizeof name, "epoch %d", f->progress.epoch + 1);
    strata_trace_add(f->tracing.now, STRATA_TRACE_HOST, strata_trace_add_label(f->tracing.now, name, "", 0, 0),
                     f->model->optimizer_steps, f->epoch.began, strata_trace_now());
}

/* Writes a replica's inputs: its share of this worker's rows of a batch, and the numbers of the run. The step has
 * `step_examples` examples in all; for replicas with parameters of their own, this replica has so many. `row` is the index in
 * the step of the worker's first row. */
static void write_replica_inputs(fit *f, const run *step, const strata_worker_step *rows, const strata_program_part *part,
                                 int64_t row, int64_t step_examples) {
    const strata_example_source source = source_of(f, strata_worker_batches_batch(f->epoch.batches));
    row += step->program->divided ? 0 : part->first;
    strata_run_write_numbers(&step->numbers, part, step->slot, row, step_examples);
    strata_part_write_examples(f->model, part, step->slot, &source, rows->offset);
}

/* Gets the program for a batch of n examples. */
static strata_status get_program(fit *f, strata_program_kind kind, int64_t n, strata_model_program **out_program,
                                 strata_error *err) {
    const strata_batch_form none = {.n_slots = f->step.form.n_slots};
    const strata_batch_form form = strata_program_is_without_batch(kind) ? none : f->step.form;
    const strata_model_program *newest = f->model->programs;
    const double began = f->tracing.now ? strata_trace_now() : 0;
    STRATA_TRY(strata_model_get_program(f->model, kind, n, form, out_program, err));
    if (f->model->programs != newest) {
        strata_fit_add_to_trace(f, "compile", f->model->optimizer_steps, began);
        f->epoch.compared += (*out_program)->compared_seconds;
    }
    if (f->tracing.now) strata_group_set_trace((*out_program)->group, f->tracing.now, f->tracing.tracks);
    strata_group_set_check((*out_program)->group, f->opts.check_every);
    return STRATA_OK;
}

static strata_run_numbers numbers_of(const fit *f, int64_t update, const run *what) {
    return strata_run_numbers_of(f->model, update, what->numbers.scale > 0 ? what->numbers.scale : strata_loss_scale(f->model));
}

/* Gets the program for a batch of n examples and a free slot of it, and sets runs[n_runs], whose inputs the caller then writes.
 * `what` has the numbers of the step and of its batches. */
static strata_status acquire_run(fit *f, strata_program_kind kind, int64_t n, run what, strata_error *err) {
    strata_model_program *program = NULL;
    /* Runs end in the order of submission, so if the queue has a free place, the next slot of any program is free. */
    if (f->queue.n == f->queue.most) STRATA_TRY(strata_fit_finish_oldest(f, err));
    STRATA_TRY(get_program(f, kind, n, &program, err));
    if (f->queue.n_unsubmitted && f->queue.runs[f->queue.n - 1].program != program) STRATA_TRY(submit_prepared(f, err));
    run *step = &f->queue.runs[f->queue.n];
    *step = what;
    step->program = program;
    STRATA_TRY(strata_group_acquire(step->program->group, &step->slot, err));
    const int64_t update = f->model->optimizer_steps + (kind != STRATA_PROGRAM_AVERAGE);
    step->numbers = numbers_of(f, update, &what);
    if (kind != STRATA_PROGRAM_ACCUMULATE) f->model->optimizer_steps = update;
    return STRATA_OK;
}

/* Adds runs[n_runs] to the queue, and submits it, at once or together with the runs that follow. */
static strata_status submit(fit *f, strata_error *err) {
    const int most = strata_group_most_steps(f->queue.runs[f->queue.n].program->group);
    f->queue.n++;
    f->queue.n_unsubmitted++;
    return f->queue.n_unsubmitted < f->queue.per_call && f->queue.n_unsubmitted < most ? STRATA_OK : submit_prepared(f, err);
}

/* All workers take the smallest of their loss scales. */
static strata_status share_scale(strata_model *model, strata_error *err) {
    typedef struct scale {
        double value;
        int64_t steps;
    } scale;
    const strata_workers *workers = &model->strategy->workers;
    if (!(model->scale.value > 0) || !strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    const scale own = {model->scale.value, model->scale.steps};
    STRATA_FREED scale *all = NULL;
    STRATA_TRY(STRATA_NEW(all, workers->n, err, "model: no host memory for the parameters of %d replicas", workers->n));
    STRATA_TRY(strata_workers_gather(workers, &own, all, sizeof own, err));
    for (int w = 0; w < workers->n; w++) {
        if (all[w].value < model->scale.value) model->scale.value = all[w].value;
        if (all[w].steps < model->scale.steps) model->scale.steps = all[w].steps;
    }
    return STRATA_OK;
}

strata_status strata_fit_submit_average(fit *f, strata_error *err) {
    STRATA_TRY(share_scale(f->model, err));
    STRATA_TRY(acquire_run(f, STRATA_PROGRAM_AVERAGE, 0, (run){.step = f->step.open.step}, err));
    return submit(f, err);
}

/* With auto_split: measures a replica in the newest run, whose program has no exchange. */
static strata_status measure_newest(fit *f, strata_error *err) {
    const run *newest = &f->queue.runs[f->queue.n - 1];
    if (!f->model->strategy->auto_split) return STRATA_OK;
    STRATA_TRY(finish_step(f, err));
    return strata_group_measure(newest->program->group, newest->slot, err);
}

/* Submits the run of an update, and the average after it if one is due. */
static strata_status submit_update(fit *f, strata_error *err) {
    const strata_strategy *strategy = f->model->strategy;
    STRATA_TRY(submit(f, err));
    if (!strata_strategy_has_own(strategy)) return STRATA_OK;
    if (f->step.kind == STRATA_PROGRAM_TRAIN) STRATA_TRY(measure_newest(f, err));
    return f->model->optimizer_steps % strategy->every ? STRATA_OK : strata_fit_submit_average(f, err);
}

strata_status strata_fit_submit_accumulated(fit *f, strata_error *err) {
    const bool has_own = strata_strategy_has_own(f->model->strategy);
    STRATA_TRY(acquire_run(f, STRATA_PROGRAM_APPLY, 0, f->step.open, err));
    run *step = &f->queue.runs[f->queue.n];
    float *words = step->numbers.words;
    for (int r = 0; r < step->program->n_parts; r++) {
        strata_model_replica *replica = &f->model->replicas[r];
        /* A replica that makes an update of its own makes it from its own examples and batches. */
        const bool idle = has_own && !replica->n_accumulated;
        const double examples = (double)(has_own ? replica->accumulated_examples : f->step.open.examples);
        words[STRATA_STEP_SCALE] = idle ? 0 : (float)((double)f->step.expected_examples / examples / step->numbers.scale);
        words[STRATA_STEP_BATCHES] = idle ? 1 : (float)(has_own ? replica->n_accumulated : f->step.open.n);
        words[STRATA_STEP_SHARE] = !idle;
        strata_part_write_words(&step->program->parts[r], step->slot, words);
        step->program->contributes[r] = replica->n_accumulated > 0;
        replica->n_accumulated = replica->accumulated_examples = 0;
    }
    f->epoch.n_examples += f->step.open.examples;
    f->step.open = (run){.step = f->step.open.step + 1};
    f->step.n_submitted = 0;
    return submit_update(f, err);
}

/* Writes the inputs of a run of a batch or micro-batch. row: the index in the step of this worker's first row. */
static void write_inputs(fit *f, run *step, const strata_worker_step *rows, int64_t row) {
    const bool whole = f->step.kind == STRATA_PROGRAM_TRAIN, has_own = strata_strategy_has_own(f->model->strategy);
    const double began = f->tracing.now ? strata_trace_now() : 0;
    step->numbers.words[STRATA_STEP_STATE_SHARE] = has_own ? 1 : 1.0f / (float)rows->n_computing;
    for (int r = 0; r < step->program->n_parts; r++) {
        const strata_program_part *part = &step->program->parts[r];
        write_replica_inputs(f, step, rows, part, row, whole && has_own ? part->n : f->step.expected_examples);
        f->model->replicas[r].n_accumulated += !whole && part->n;
        f->model->replicas[r].accumulated_examples += whole ? 0 : part->n;
    }
    strata_fit_add_to_trace(f, "write inputs", step->numbers.update - 1, began);
}

/* The open step with one more batch or micro-batch. */
static run with_rows(const fit *f, const strata_worker_step *rows) {
    run what = f->step.open;
    if (!what.n) what.first = rows->batch;
    what.last = rows->batch;
    what.n++;
    what.examples += rows->n;
    what.own += rows->own;
    return what;
}

/* Submits the run of a batch or micro-batch. */
static strata_status submit_rows(fit *f, const strata_worker_step *rows, strata_error *err) {
    const strata_batches *batch = strata_worker_batches_batch(f->epoch.batches);
    const bool whole = f->step.kind == STRATA_PROGRAM_TRAIN;
    const int64_t row = f->step.open.examples + rows->first;
    run what = with_rows(f, rows);
    const bool repeats = whole && f->opts.check_repeats;
    if (repeats) STRATA_TRY(finish_step(f, err)); /* the parameters are those that this step begins with */
    STRATA_TRY(acquire_run(f, f->step.kind, rows->own, what, err));
    run *step = &f->queue.runs[f->queue.n];
    if (repeats && rows->own) STRATA_TRY(diagnose_batch(f, step, batch, rows->offset, rows->own, row, true, err));
    write_inputs(f, step, rows, row);
    what.numbers.scale = step->numbers.scale; /* all batches of the step use this scale */
    f->step.open = what;
    if (whole) {
        f->epoch.n_examples += rows->n;
        f->step.open = (run){.step = what.step + 1};
        return submit_update(f, err);
    }
    STRATA_TRY(submit(f, err));
    return measure_newest(f, err);
}

/* Micro-batches of one size that run in turns, as the schedule of the pipeline says. */
typedef struct pipeline {
    fit *f;
    const strata_worker_step *rows;
    /* The number of the first of them among those of the batch. */
    int first;
    /* The run of the micro-batch that begins. */
    run now;
} pipeline;

static strata_status begin_microbatch(void *user, int microbatch, int slot, strata_error *err) {
    pipeline *p = user;
    const strata_worker_step part = strata_worker_step_part(p->f->model->strategy, p->rows, p->first + microbatch,
                                                            strata_model_n_microbatches(p->f->model));
    (void)err;
    p->now.slot = slot;
    write_inputs(p->f, &p->now, &part, p->f->step.open.examples + part.first);
    p->f->step.open = with_rows(p->f, &part);
    return STRATA_OK;
}

static strata_status end_microbatch(void *user, int microbatch, int slot, strata_error *err) {
    const pipeline *p = user;
    (void)microbatch;
    for (int r = 0; r < p->now.program->n_parts; r++)
        STRATA_TRY(strata_scores_take(p->f->model, &p->f->epoch.scores, &p->now.program->parts[r], slot, err));
    return STRATA_OK;
}

/* Runs micro-batches [first, first + n) of the batch. */
static strata_status run_pipeline(fit *f, const strata_worker_step *rows, int first, int n, strata_error *err) {
    const strata_worker_step part =
        strata_worker_step_part(f->model->strategy, rows, first, strata_model_n_microbatches(f->model));
    const int64_t update = f->model->optimizer_steps + 1;
    pipeline p = {.f = f, .rows = rows, .first = first};
    STRATA_FINISHED(strata_model_flights) flights = {0};
    if (!n || !part.n) return STRATA_OK;
    STRATA_TRY(strata_fit_submit_prepared(f, err));
    STRATA_TRY(get_program(f, STRATA_PROGRAM_ACCUMULATE, part.own, &p.now.program, err));
    p.now.numbers = numbers_of(f, update, &f->step.open);
    STRATA_TRY(strata_model_plan_flights(f->model, p.now.program, n, &flights, err));
    flights.schedule.step = update - 1;
    flights.schedule.first = first;
    flights.schedule.begin = begin_microbatch;
    flights.schedule.end = end_microbatch;
    flights.schedule.user = &p;
    STRATA_TRY(strata_group_run_schedule(p.now.program->group, &flights.schedule, err));
    strata_model_time_stages(f->model, p.now.program);
    f->step.open.numbers.scale = p.now.numbers.scale; /* all batches of the step use this scale */
    return STRATA_OK;
}

strata_status strata_fit_submit(fit *f, const strata_worker_step *rows, strata_error *err) {
    const int m = strata_model_n_microbatches(f->model), n_larger = (int)(rows->n % m);
    if (!f->step.open.n) f->step.expected_examples = rows->n * f->step.n_batches;
    f->step.n_submitted++;
    if (strata_model_has_pipeline(f->model)) {
        STRATA_TRY(run_pipeline(f, rows, 0, n_larger, err));
        STRATA_TRY(run_pipeline(f, rows, n_larger, m - n_larger, err));
    }
    for (int k = 0; k < m && !strata_model_has_pipeline(f->model); k++) {
        const strata_worker_step part = strata_worker_step_part(f->model->strategy, rows, k, m);
        if (part.n) STRATA_TRY(submit_rows(f, &part, err));
    }
    const bool complete = f->step.kind == STRATA_PROGRAM_TRAIN || f->step.n_submitted == f->step.n_batches;
    return complete && f->step.open.n ? strata_fit_submit_accumulated(f, err) : STRATA_OK;
}
