/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: what a fit does between its steps (fit_steps.c). It opens and closes epochs, evaluates between them, asks other
 * workers whether to stop, makes checkpoints, and has the device checked now and then. */
#include "core/model/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/data/stage/stage.h"
#include "core/run/device.h"

static const double SECONDS_BETWEEN_ASKS = 0.25;

enum { IN_FLIGHT = 3, FIRST_BALANCE = 20, STEPS_BETWEEN_BALANCES = 500 }; /* steps */

typedef strata_fit fit;

void strata_history_finish(strata_history *history) {
    if (!history) return;
    free(history->epochs);
    free(history->validation);
    free(history->epoch_seconds);
    *history = (strata_history){0};
}

/* Shares of the batch by the replicas' speeds so far, for a strategy that wants it: programs are made anew. */
static strata_status balance(fit *f, int64_t n, strata_error *err) {
    strata_strategy *strategy = f->model->strategy;
    strata_model_program *program = NULL;
    f->next_balance += STEPS_BETWEEN_BALANCES;
    double *spent = calloc((size_t)strategy->n_replicas, sizeof *spent);
    if (!spent) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d replicas", strategy->n_replicas);
    strata_status status = strata_model_get_program(f->model, f->kind, n, f->form, &program, err);
    for (int r = 0; r < strategy->n_replicas && !status; r++) spent[r] = strata_group_replica_seconds(program->group, r);
    if (!status && strata_strategy_balance(strategy, n, spent)) {
        status = strata_fit_catch_up(f, err);
        while (f->n_flights && !status) status = strata_fit_retire(f, err);
        if (!status) strata_model_free_programs(f->model);
    }
    free(spent);
    return status;
}

/* ---- stopping within an epoch ---- */

/* Whether to end before the step that is submitted next. Of several workers one that wants to ends all, before the same step:
 * about four times a second they tell each other, and how many steps that is they agree upon as well. */
static strata_status ask_to_stop(fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    if (f->held.n) return STRATA_OK; /* in the middle of a step */
    if (!strata_strategy_has_workers(f->model->strategy)) {
        f->stopped = f->stop_now;
        return STRATA_OK;
    }
    f->save_now = false;
    if (--f->ask_in > 0) return STRATA_OK;
    const double now = strata_fit_seconds(), each = (now - f->asked) / (double)f->ask_every;
    double steps = each > 0 && f->asked > 0 ? SECONDS_BETWEEN_ASKS / each : 1;
    if (!(steps > 1)) steps = 1;
    const bool due = f->checkpoints && workers->rank == 0 && strata_checkpoint_folder_due(f->checkpoints, false);
    int32_t said[3] = {f->stop_now, steps < 1e5 ? (int32_t)steps : 100000, due};
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, said, said, 3, err));
    f->stopped = said[0] > 0;
    f->save_now = said[2] > 0;
    f->ask_in = f->ask_every = said[1] / workers->n;
    f->asked = now;
    return STRATA_OK;
}

static strata_status ends_before(const fit *f, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "fit: epoch %d ends before its step %lld, after which training is to go on",
                       f->progress.epoch + 1, (long long)f->model->position.steps);
}

/* How many workers read batches of their own; 0: all read the same. */
static int64_t readers(const fit *f) {
    const bool many = strata_strategy_has_workers(f->model->strategy);
    return many && strata_auto_shard_resolve(f->dataset, f->opts.auto_shard) != STRATA_SHARD_DATA
               ? f->model->strategy->workers.n
               : 0;
}

/* Passes over the examples of this epoch that were trained on before. Where all workers read the same examples, and fit makes
 * the batches, they are left out when the batches are opened: then the batch and the workers may be others than before. Else
 * the batches are walked over again. */
static strata_status skip_steps(fit *f, strata_error *err) {
    const strata_model_position *done = &f->model->position;
    strata_worker_step rows;
    int64_t examples = f->skipped;
    const int64_t size = strata_dataset_size(f->dataset);
    if (f->skipped > (size >= 0 ? size : INT64_MAX)) return ends_before(f, err);
    while (examples < done->examples) {
        STRATA_TRY(strata_worker_batches_next(f->batches, &rows, err));
        if (!rows.n) return ends_before(f, err);
        examples += rows.n;
    }
    if (examples > done->examples)
        return strata_fail(err, STRATA_DATA,
                           "fit: %lld examples of epoch %d were trained on, which is not between two batches; go on with the "
                           "batches that the training was begun with",
                           (long long)done->examples, f->progress.epoch + 1);
    STRATA_TRY(strata_model_write_sums(f->model, err));
    f->progress.step = f->held.step = f->next_step = done->steps;
    f->n_examples = f->n_done = done->examples;
    f->model->position = (strata_model_position){0};
    return STRATA_OK;
}

/* ---- epochs ---- */

/* All steps that were submitted are done, and their callbacks have returned. */
static strata_status complete(fit *f, strata_error *err) {
    STRATA_TRY(strata_fit_catch_up(f, err));
    while (f->n_flights) STRATA_TRY(strata_fit_retire(f, err));
    return STRATA_OK;
}

/* The same, and all workers take over the rate that a callback has set. */
static strata_status settle(fit *f, strata_error *err) {
    STRATA_TRY(complete(f, err));
    return strata_model_share_rate(f->model, err);
}

static strata_status begin_epoch(fit *f, strata_error *err) {
    f->epoch_began = strata_fit_seconds();
    f->in_epoch = true;
    const strata_model_position *done = &f->model->position;
    const bool by_examples = !readers(f) && !strata_dataset_element_spec(f->dataset).is_batch;
    f->skipped = by_examples && done->steps ? done->examples : 0;
    strata_batches_options batches = strata_fit_batches_options(f, 0);
    batches.bytes = strata_model_takes_bytes(f->model);
    STRATA_TRY(strata_worker_batches_create(f->model->strategy, f->dataset, f->opts.auto_shard, &batches, &f->batches, err));
    f->form.byte_scale = strata_worker_batches_byte_scale(f->batches);
    f->progress.steps = (strata_worker_batches_count(f->batches) + f->accumulate - 1) / f->accumulate;
    if (f->skipped && f->progress.steps) {
        const int64_t each = f->opts.batch * f->accumulate;
        f->progress.steps = done->steps + (strata_dataset_size(f->dataset) - f->skipped + each - 1) / each;
    }
    const int64_t most = f->opts.steps_per_epoch;
    if (most && (!f->progress.steps || most < f->progress.steps)) f->progress.steps = most;
    f->n_examples = f->n_done = 0;
    f->held = (strata_fit_flight){0};
    if (f->model->position.steps) STRATA_TRY(strata_model_read_sums(f->model, err));
    STRATA_TRY(strata_model_reset_sums(f->model, err));
    f->progress.step = f->next_step = 0;
    f->progress.epoch_end = false;
    f->progress.metrics = f->progress.validation = (strata_metrics){0};
    strata_fit_call(f, STRATA_EVENT_EPOCH_BEGIN);
    STRATA_TRY(strata_model_share_rate(f->model, err));
    if (f->model->position.steps)
        STRATA_TRY(skip_steps(f, err));
    else
        memset(f->model->metrics.sums, 0, (size_t)f->model->metrics.n_sums * sizeof *f->model->metrics.sums);
    return STRATA_OK;
}

/* The model stands within an epoch, behind the steps that are done. */
static void note_position(fit *f) {
    f->model->position = (strata_model_position){f->progress.step, f->n_examples, readers(f)};
}

/* A checkpoint behind the step that was submitted last, if one is due. */
static strata_status save_if_due(fit *f, strata_error *err) {
    if (!f->checkpoints || f->held.n) return STRATA_OK;
    /* The answer must be the same on all workers where each writes a part. By steps it is; by time rank 0 has sent it. */
    const bool agreed = strata_checkpoint_folder_is_shared(f->checkpoints) && f->opts.checkpoint->every_seconds > 0;
    if (!(agreed ? f->save_now : strata_checkpoint_folder_due(f->checkpoints, false))) return STRATA_OK;
    f->save_now = false;
    STRATA_TRY(complete(f, err));
    note_position(f);
    const strata_status status = strata_checkpoint_folder_save(f->checkpoints, f->progress.epoch, err);
    f->model->position = (strata_model_position){0};
    return status;
}

/* Whether the user interrupted a driver that compiled the next step's program, and what was trained so far can be kept. With
 * several workers it cannot, as the others are in that step. */
static bool ends_before_step(const fit *f, strata_status status) {
    bool left = false; /* some driver, and not a callback's wish */
    for (int r = 0; r < f->model->strategy->n_replicas; r++)
        left |= f->model->replicas[r].device->given_up.status == STRATA_INTERRUPTED;
    return status == STRATA_INTERRUPTED && left && f->history.n_steps && !f->held.n &&
           !strata_strategy_has_workers(f->model->strategy);
}

/* Submits one batch more. *more: whether there was one, and training goes on. */
static strata_status next_batch(fit *f, bool *more, strata_error *err) {
    strata_worker_step rows;
    const double began = f->trace ? strata_trace_now() : 0;
    *more = false;
    STRATA_TRY(strata_worker_batches_next(f->batches, &rows, err));
    strata_fit_add_to_trace(f, "next batch", f->model->optimizer_steps, began);
    if (!rows.n) return STRATA_OK;
    STRATA_TRY(ask_to_stop(f, err));
    if (f->stopped) return STRATA_OK;
    STRATA_TRY(save_if_due(f, err));
    if (f->model->strategy->auto_split && f->history.n_steps >= f->next_balance) STRATA_TRY(balance(f, rows.own, err));
    f->check_now = strata_fit_is_check_due(f);
    if (f->check_now) STRATA_TRY(complete(f, err)); /* the parameters are those that this step begins with */
    if (!f->held.n) strata_fit_call(f, STRATA_EVENT_BATCH_BEGIN);
    const strata_status status =
        f->accumulate > 1 ? strata_fit_submit_to_hold(f, &rows, err) : strata_fit_submit(f, f->next_step, &rows, err);
    *more = !status;
    if (!ends_before_step(f, status)) return status;
    f->stopped = true;
    return STRATA_OK;
}

/* The batches of one step. *more is false where the epoch has no more, or is stopped. */
static strata_status next_step(fit *f, bool *more, strata_error *err) {
    *more = !f->opts.steps_per_epoch || f->next_step < f->opts.steps_per_epoch;
    if (*more && strata_fit_trace_turns(f)) {
        STRATA_TRY(complete(f, err));
        STRATA_TRY(strata_fit_turn_trace(f, err));
    }
    for (int64_t i = 0; i < f->accumulate && *more; i++) {
        STRATA_TRY(next_batch(f, more, err));
        if (!*more && f->held.n) STRATA_TRY(strata_fit_submit_held(f, err)); /* the last step has fewer batches */
    }
    if (*more) f->next_step++, f->n_begun++;
    if (*more && f->opts.wait_each_step) STRATA_TRY(settle(f, err));
    return STRATA_OK;
}

/* All steps are done, and the epoch's metrics are known. */
static strata_status finish_steps(fit *f, strata_error *err) {
    if (!f->n_examples && !f->stopped)
        return strata_fail(err, STRATA_DATA, "fit: the data is empty in epoch %d", f->progress.epoch + 1);
    STRATA_TRY(complete(f, err));
    STRATA_TRY(strata_model_read_sums(f->model, err));
    if (f->n_examples) f->progress.metrics = strata_model_metrics(f->model, f->n_examples);
    return STRATA_OK;
}

/* What is done between epochs: validation, the history, the callback, and whether to stop, on which workers agree. */
static strata_status end_epoch(fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    strata_progress *p = &f->progress;
    strata_history *h = &f->history;
    p->epoch_end = true;
    p->epoch_seconds = strata_fit_seconds() - f->epoch_began;
    const double began = f->trace ? strata_trace_now() : 0;
    STRATA_TRY(strata_validation_run(f->model, &f->opts, p->epoch, &p->validation, &f->stop, err));
    if (f->opts.validation) strata_fit_add_to_trace(f, "validation", f->model->optimizer_steps, began);
    h->epochs[h->n_epochs] = p->metrics;
    h->epoch_seconds[h->n_epochs] = p->epoch_seconds;
    if (h->validation) h->validation[h->n_epochs] = p->validation;
    h->n_epochs++;
    STRATA_TRY(strata_fit_tell(f, err));
    STRATA_TRY(strata_model_share_rate(f->model, err));
    if (strata_strategy_has_workers(f->model->strategy)) {
        const bool due = f->checkpoints && workers->rank == 0 && strata_checkpoint_folder_due(f->checkpoints, true);
        int32_t said[2] = {f->stop, due};
        STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, said, said, 2, err));
        f->stop = said[0] > 0;
        f->save_now = said[1] > 0;
    } else {
        f->save_now = f->checkpoints && strata_checkpoint_folder_due(f->checkpoints, true);
    }
    if (!f->checkpoints) return STRATA_OK;
    const bool last = p->epoch + 1 == p->epochs || f->stop;
    if (!f->save_now && !(last && strata_checkpoint_folder_is_new(f->checkpoints))) return STRATA_OK;
    return strata_checkpoint_folder_save(f->checkpoints, p->epoch + 1, err);
}

/* The epoch is over, or was stopped. */
static void close_epoch(fit *f) {
    if (!f->in_epoch) return;
    f->in_epoch = false;
    strata_worker_batches_destroy(f->batches);
    f->batches = NULL;
    strata_fit_add_epoch_to_trace(f);
}

/* Leaves the model within the epoch. */
static strata_status stop_here(fit *f, strata_error *err) {
    note_position(f);
    f->history.stopped = f->over = true;
    return f->checkpoints && strata_checkpoint_folder_is_new(f->checkpoints)
               ? strata_checkpoint_folder_save(f->checkpoints, f->progress.epoch, err)
               : STRATA_OK;
}

/* There are no more epochs: the model gets what the best one had learned. */
static strata_status finish_epochs(fit *f, strata_error *err) {
    f->over = true;
    f->history.best_epoch = (int)f->model->best.epochs - 1;
    return strata_validation_restore(f->model, &f->opts, err);
}

/* One step, or the end of an epoch. */
static strata_status go_on(fit *f, strata_error *err) {
    bool more;
    if (!f->told) strata_fit_call(f, STRATA_EVENT_TRAIN_BEGIN);
    f->told = true;
    if (!f->in_epoch && f->progress.epoch_end) f->progress.epoch++;
    if (!f->in_epoch) STRATA_TRY(begin_epoch(f, err));
    STRATA_TRY(next_step(f, &more, err));
    if (more) return STRATA_OK;
    STRATA_TRY(finish_steps(f, err));
    close_epoch(f);
    if (f->stopped) {
        STRATA_TRY(stop_here(f, err));
    } else {
        STRATA_TRY(end_epoch(f, err));
        if (f->progress.epoch + 1 < f->opts.epochs && !f->stop) return STRATA_OK;
        STRATA_TRY(finish_epochs(f, err));
    }
    return f->callback_status ? strata_fail(err, f->callback_status, "%s", f->callback_error.message) : STRATA_OK;
}

/* Where workers read batches of their own, who has read what depends on how many they are. */
static strata_status check_readers(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                                   strata_error *err) {
    const fit f = {.model = (strata_model *)model, .dataset = dataset, .opts = *opts};
    const int64_t now = readers(&f), before = model->position.readers;
    if (!opts->first_step || now == before) return STRATA_OK;
    return strata_fail(
        err, STRATA_INVALID,
        "fit: the epoch was begun by %lld workers with batches of their own, and would go on with %lld; the rest "
        "of this epoch needs as many (0: all read the same, auto_shard DATA)",
        (long long)before, (long long)now);
}

static strata_status check(const strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                           strata_model_feed *out_feed, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "fit", err));
    STRATA_TRY(strata_model_check_dataset(model, dataset, true, "fit", out_feed, err));
    if (opts->epochs < 1) return strata_fail(err, STRATA_INVALID, "fit: epochs is %d; it must be at least 1", opts->epochs);
    if (opts->first_epoch < 0 || opts->first_epoch >= opts->epochs)
        return strata_fail(err, STRATA_INVALID, "fit: first_epoch is %d; with %d epochs it is 0 to %d", opts->first_epoch,
                           opts->epochs, opts->epochs - 1);
    if (opts->batch < 1)
        return strata_fail(err, STRATA_INVALID, "fit: batch is %lld; it must be at least 1", (long long)opts->batch);
    if (opts->trace_last && (opts->trace_first < 1 || opts->trace_first > opts->trace_last))
        return strata_fail(err, STRATA_INVALID, "fit: steps %lld to %lld cannot be traced; they are counted from 1",
                           (long long)opts->trace_first, (long long)opts->trace_last);
    if (opts->trace_last && model->strategy->trainer)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "fit: under strategy %s a trace has all steps; leave out trace_first and "
                           "trace_last (--profile)",
                           model->strategy->name);
    if (opts->check_every < -1)
        return strata_fail(err, STRATA_INVALID, "fit: check_every is %lld; it must be -1 (never), 0 or steps",
                           (long long)opts->check_every);
    if (opts->steps_per_execution < 0)
        return strata_fail(err, STRATA_INVALID, "fit: steps_per_execution is %lld; it must be at least 1",
                           (long long)opts->steps_per_execution);
    if (opts->steps_per_epoch < 0)
        return strata_fail(err, STRATA_INVALID, "fit: steps_per_epoch is %lld; it must be at least 1, or 0 for all",
                           (long long)opts->steps_per_epoch);
    if (opts->first_step && opts->first_step != model->position.steps)
        return strata_fail(err, STRATA_INVALID,
                           "fit: first_step is %lld; the model has done %lld steps of its epoch (strata_model_epoch_steps)",
                           (long long)opts->first_step, (long long)model->position.steps);
    STRATA_TRY(check_readers(model, dataset, opts, err));
    if (opts->class_weights)
        STRATA_TRY(strata_model_check_class_weights(model, opts->class_weights, opts->n_class_weights, err));
    if (opts->steps_per_epoch && strata_dataset_size(dataset) == STRATA_SIZE_INFINITE) return STRATA_OK; /* an epoch ends */
    return strata_batches_check_size(dataset, "fit", err);
}

static strata_status make_history(fit *f, strata_error *err) {
    const size_t n = (size_t)f->opts.epochs;
    strata_history *h = &f->history;
    *h = (strata_history){.best_epoch = -1};
    h->epochs = calloc(n, sizeof *h->epochs);
    h->epoch_seconds = calloc(n, sizeof *h->epoch_seconds);
    if (f->opts.validation) h->validation = calloc(n, sizeof *h->validation);
    if (h->epochs && h->epoch_seconds && (h->validation || !f->opts.validation)) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d epochs", f->opts.epochs);
}

/* How many steps devices get in one call, and room for twice as many: while they are at some, the host prepares the others. A
 * strategy that measures its replicas looks at each step. */
static strata_status make_flights(fit *f, strata_error *err) {
    const strata_strategy *strategy = f->model->strategy;
    int64_t together = strategy->auto_split || f->opts.wait_each_step ? 1 : f->opts.steps_per_execution;
    for (int r = 0; r < strategy->n_devices; r++) {
        const int most = strata_device_most_runs(strategy->devices[r]);
        together = most < together ? most : together;
    }
    if (together > STRATA_MAX_SLOTS / 2) together = STRATA_MAX_SLOTS / 2;
    f->together = together > 1 ? (int)together : 1;
    f->most_in_flight = f->together > 1 ? 2 * f->together : IN_FLIGHT;
    f->form.n_slots = f->together > 1 ? f->most_in_flight : 0;
    f->flights = calloc((size_t)f->most_in_flight, sizeof *f->flights);
    return f->flights ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d steps", f->together);
}

static strata_status begin(fit *f, strata_error *err) {
    strata_model *model = f->model;
    STRATA_TRY(check(model, f->dataset, &f->opts, &f->feed, err));
    STRATA_TRY(strata_model_agree(model, f->dataset, &f->opts, err));
    STRATA_TRY(make_history(f, err));
    if (model->strategy->trainer) return STRATA_OK;
    f->accumulate = strata_model_accumulates(model);
    f->form.weighted = f->opts.class_weights || strata_dataset_has_weights(f->dataset);
    f->kind = f->accumulate > 1 ? STRATA_PROGRAM_ACCUMULATE : STRATA_PROGRAM_TRAIN;
    int64_t size = strata_dataset_size(f->dataset), first, share;
    strata_strategy_worker_share(model->strategy, f->opts.batch, model->strategy->workers.rank, &first, &share);
    /* A smaller one is checked when its program is made. */
    if (size >= 0 && f->opts.batch > size && share) STRATA_TRY(strata_model_check_batch(model, f->kind, share, err));
    f->progress = (strata_progress){
        .model = model, .epoch = f->opts.first_epoch, .epochs = f->opts.epochs, .stop = &f->stop, .stop_now = &f->stop_now};
    f->ask_in = f->ask_every = 1;
    if (!f->opts.first_step) model->position = (strata_model_position){0};
    STRATA_TRY(make_flights(f, err));
    STRATA_TRY(strata_validation_begin(model, &f->opts, err));
    if (f->opts.checkpoint) STRATA_TRY(strata_checkpoint_folder_open(model, f->opts.checkpoint, &f->checkpoints, err));
    if (strata_validation_is_over(model, &f->opts)) STRATA_TRY(finish_epochs(f, err));
    return f->opts.trace ? strata_fit_begin_trace(f, err) : STRATA_OK;
}

/* Of training steps in flight too: they are waited for. */
static strata_status finish(fit *f, strata_error *err) {
    strata_status status = f->failure;
    const bool reported = status != STRATA_OK; /* by the step that failed */
    strata_fit_drain(f);
    close_epoch(f);
    if (f->told) strata_fit_call(f, STRATA_EVENT_TRAIN_END);
    if (!f->failure && f->callback_status) {
        f->failure = status = strata_fail(err, f->callback_status, "%s", f->callback_error.message);
        err = NULL;
    }
    f->model->rate.locked = false;
    free(f->flights);
    f->flights = NULL;
    if (!status && !f->history.stopped) strata_validation_forget(f->model);
    f->history.loss_scale = f->model->scale.value;
    const strata_status saved = strata_checkpoint_folder_close(f->checkpoints, status ? NULL : err);
    if (!status) status = saved;
    const strata_status traced = f->traced ? strata_fit_end_trace(f, status, status ? NULL : err) : STRATA_OK;
    if (!status) status = traced;
    return reported ? STRATA_OK : status;
}

static strata_status create(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                            strata_fit **out_fit, strata_error *err) {
    fit *f = malloc(sizeof *f);
    if (!f) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory");
    *f = (fit){.model = model,
               .dataset = dataset,
               .began = strata_fit_seconds(),
               .checked = strata_fit_seconds(),
               .check_seconds = 1e-2,
               .next_balance = FIRST_BALANCE};
    if (opts) f->opts = *opts;
    if (!f->opts.epochs) f->opts.epochs = 1;
    if (!f->opts.batch) f->opts.batch = 32;
    if (f->opts.check_repeats) f->opts.wait_each_step = true;
    f->failure = begin(f, err);
    *out_fit = f;
    return f->failure;
}

strata_status strata_fit_begin(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                               strata_fit **out_fit, strata_error *err) {
    *out_fit = NULL;
    STRATA_TRY(strata_model_check_compiled(model, "fit", err));
    if (model->strategy->trainer)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "fit_begin: under strategy %s no task makes the steps of the training by itself; train with "
                           "strata_model_fit, or in closures (strata/coordinator.h)",
                           model->strategy->name);
    const strata_status status = create(model, dataset, opts, out_fit, err);
    if (!status) return STRATA_OK;
    (void)!strata_fit_end(*out_fit, NULL, NULL); /* the failure is what is returned */
    *out_fit = NULL;
    return status;
}

strata_status strata_fit_step(strata_fit *fit, const strata_progress **out_progress, strata_error *err) {
    *out_progress = NULL;
    if (fit->failure)
        return strata_fail(err, STRATA_INVALID, "fit_step: the fit has failed before; strata_fit_end is left to be called");
    if (fit->over) return STRATA_OK;
    fit->failure = go_on(fit, err);
    if (!fit->failure) *out_progress = &fit->progress;
    return fit->failure;
}

strata_status strata_fit_end(strata_fit *fit, strata_history *out_history, strata_error *err) {
    if (!fit) return STRATA_OK;
    strata_status status = STRATA_OK;
    if (!fit->failure && !fit->over) { /* the caller makes no more steps */
        fit->stopped = true;
        status = fit->failure = fit->in_epoch ? finish_steps(fit, err) : STRATA_OK;
        if (!status && fit->in_epoch) status = fit->failure = stop_here(fit, err);
        fit->history.stopped = true;
    }
    const strata_status finished = finish(fit, status ? NULL : err);
    if (out_history)
        *out_history = fit->history;
    else
        strata_history_finish(&fit->history);
    free(fit);
    return status ? status : finished;
}

/* Under a trainer callbacks learn of the ends of steps and epochs, and rank 0 makes checkpoints behind them. */
static strata_status follow_trainer(const strata_progress *progress, void *user, strata_error *err) {
    fit *f = user;
    const bool end = progress->epoch_end, last = end && (progress->epoch + 1 == progress->epochs || *progress->stop);
    STRATA_TRY(strata_callbacks_call(f->model, end ? STRATA_EVENT_EPOCH_END : STRATA_EVENT_BATCH_END, progress, err));
    if (f->callers.on_progress) STRATA_TRY(f->callers.on_progress(progress, f->callers.user, err));
    /* While a checkpoint is made, callbacks are told of steps that were under way. */
    if (!f->checkpoints || f->saving) return STRATA_OK;
    const bool due = strata_checkpoint_folder_due(f->checkpoints, end);
    if (!due && !(last && strata_checkpoint_folder_is_new(f->checkpoints))) return STRATA_OK;
    f->saving = true;
    const strata_status status = strata_checkpoint_folder_save(f->checkpoints, progress->epoch + end, err);
    f->saving = false;
    return status;
}

static strata_status run_trainer(fit *f, strata_error *err) {
    strata_model *model = f->model;
    f->over = true;
    if (f->opts.checkpoint && model->strategy->workers.rank == 0)
        STRATA_TRY(strata_checkpoint_folder_open(model, f->opts.checkpoint, &f->checkpoints, err));
    if (f->checkpoints || model->callbacks) {
        f->callers.on_progress = f->opts.on_progress;
        f->callers.user = f->opts.user;
        f->opts.on_progress = follow_trainer;
        f->opts.user = f;
    }
    f->progress = (strata_progress){
        .model = model, .epoch = f->opts.first_epoch, .epochs = f->opts.epochs, .stop = &f->stop, .stop_now = &f->stop_now};
    f->told = true;
    STRATA_TRY(strata_callbacks_call(model, STRATA_EVENT_TRAIN_BEGIN, &f->progress, err));
    STRATA_TRY(model->strategy->trainer->fit(model, f->dataset, &f->opts, &f->history, err));
    if (!f->checkpoints || !f->history.stopped || !strata_checkpoint_folder_is_new(f->checkpoints)) return STRATA_OK;
    return strata_checkpoint_folder_save(f->checkpoints, f->opts.first_epoch + f->history.n_epochs, err);
}

strata_status strata_model_fit(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                               strata_history *out_history, strata_error *err) {
    strata_fit *fit = NULL;
    const strata_progress *progress = NULL;
    if (out_history) *out_history = (strata_history){0};
    STRATA_TRY(strata_model_check_compiled(model, "fit", err));
    strata_status status = create(model, dataset, opts, &fit, err);
    if (!fit) return status;
    if (!status && model->strategy->trainer) status = fit->failure = run_trainer(fit, err);
    while (!status && !fit->over) status = strata_fit_step(fit, &progress, err);
    const strata_status ended = strata_fit_end(fit, out_history, status ? NULL : err);
    return status ? status : ended;
}
