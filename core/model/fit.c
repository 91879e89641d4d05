/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a fit over epochs and steps. It opens and closes epochs, evaluates validation data, agrees with other workers
 * whether to stop, writes checkpoints. fit_steps.c prepares and submits the steps. */
#include "core/model/fit.h"

#include <stdio.h>

#include "core/data/stage/stage.h"
#include "core/model/agree.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "core/model/pipeline.h"
#include "core/run/device.h"

static const double SECONDS_BETWEEN_POLLS = 0.25;

enum {
    SHORT_STEPS_A_CALL = 4,
    /* The most bytes of the inputs of a batch for which steps are submitted together. */
    SMALL_INPUTS = 512 << 10
};
enum { MAX_RUNS = 3, FIRST_BALANCE = 20, STEPS_BETWEEN_BALANCES = 500 }; /* in steps; MAX_RUNS: runs in the queue */

typedef strata_fit fit;

void strata_history_finish(strata_history *history) {
    if (!history) return;
    free(history->epochs);
    free(history->validation);
    free(history->epoch_seconds);
    *history = (strata_history){0};
}

/* ---- the trace ---- */

strata_status strata_model_trace_devices(strata_model *model, strata_trace *trace, const int *tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    strata_status status = STRATA_OK;
    strata_model_free_programs(model);
    for (int r = 0; r < strategy->n_devices; r++) {
        strata_device *device = strategy->devices[r];
        if (!device->api->set_trace) continue;
        strata_status own = strata_device_enter(device, err);
        if (!own) {
            own = device->api->set_trace(device, trace, trace ? tracks[r] : 0, err);
            strata_device_leave(device);
        }
        if (!status) status = own;
    }
    return status;
}

strata_status strata_model_trace_begin(strata_model *model, strata_trace *trace, int **out_tracks, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    char name[200], stage[32] = "";
    STRATA_TRY(STRATA_NEW(*out_tracks, strategy->n_devices, err, "fit: no host memory for a trace"));
    for (int r = 0; r < strategy->n_devices; r++) {
        const strata_device_info *info = strata_device_get_info(strategy->devices[r]);
        const int device = strategy->workers.first_replica + r;
        if (strata_strategy_has_mesh(strategy)) /* of a mesh without stages too: it shows that there is a mesh */
            snprintf(stage, sizeof stage, ", stage %d,", strata_mesh_coordinate(&strategy->mesh, device, STRATA_STAGE_AXIS));
        snprintf(name, sizeof name, "replica %d%s %s queue (%.100s)", r, stage, info->id, info->name);
        (*out_tracks)[r] = strata_trace_add_track(trace, name);
    }
    return strata_model_trace_devices(model, trace, *out_tracks, err);
}

/* Sends the events of each worker to rank 0, which writes the file. */
static strata_status gather_events(const fit *f, char *own, size_t bytes, char **texts, strata_error *err) {
    enum { TRACE_CHANNEL = 0x74726163 };
    const strata_workers *workers = &f->model->strategy->workers;
    const uint64_t mine = bytes;
    STRATA_FREED uint64_t *sizes = NULL;
    STRATA_TRY(STRATA_NEW(sizes, workers->n, err, "fit: no host memory for a trace"));
    STRATA_TRY(strata_workers_gather(workers, &mine, sizes, sizeof mine, err));
    if (workers->rank > 0) return workers->send(workers, 0, TRACE_CHANNEL, own, bytes, err);
    for (int w = 1; w < workers->n; w++) {
        STRATA_TRY(STRATA_NEW(texts[w], sizes[w] + 1, err, "fit: no host memory for a trace"));
        STRATA_TRY(workers->receive(workers, w, TRACE_CHANNEL, texts[w], (size_t)sizes[w], err));
    }
    return STRATA_OK;
}

/* Opens the trace, and has the devices add to it unless that begins with a later step. */
static strata_status begin_trace(fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    STRATA_TRY(strata_trace_create(f->opts.trace, workers->n > 1 ? workers->rank : 0, NULL, &f->tracing.trace, err));
    if (f->opts.trace_last) return STRATA_OK;
    f->tracing.now = f->tracing.trace;
    return strata_model_trace_begin(f->model, f->tracing.now, &f->tracing.tracks, err);
}

/* Whether tracing begins or ends before the next step. turn_trace then does this; no step may be in flight. */
static bool trace_turns(const fit *f) {
    return f->opts.trace_last && (f->n_begun + 1 == f->opts.trace_first || f->n_begun == f->opts.trace_last);
}

static strata_status turn_trace(fit *f, strata_error *err) {
    if (f->n_begun + 1 == f->opts.trace_first) {
        f->tracing.now = f->tracing.trace;
        return strata_model_trace_begin(f->model, f->tracing.now, &f->tracing.tracks, err);
    }
    f->tracing.now = NULL;
    return strata_model_trace_devices(f->model, NULL, f->tracing.tracks, err);
}

/* Writes the trace. If the training has failed, it contains only this worker. */
static strata_status end_trace(fit *f, strata_status trained, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    const bool many = strata_strategy_has_workers(f->model->strategy) && !trained;
    const int n = many && workers->rank == 0 ? workers->n : 1;
    char **texts = NULL;
    size_t bytes = 0;
    double ahead = 0;
    strata_status status =
        f->tracing.now && f->tracing.tracks ? strata_model_trace_devices(f->model, NULL, f->tracing.tracks, err) : STRATA_OK;
    if (!status) status = STRATA_NEW(texts, n, err, "fit: no host memory for a trace");
    if (!status && many) status = strata_workers_compare_clocks(workers, strata_trace_now, &ahead, err);
    strata_trace_set_ahead(f->tracing.trace, ahead);
    if (!status) status = strata_trace_events(f->tracing.trace, &texts[0], &bytes, err);
    if (!status && many) status = gather_events(f, texts[0], bytes, texts, err);
    if (!status) status = strata_trace_write(f->tracing.trace, (const char *const *)texts, n, err);
    for (int w = 0; texts && w < n; w++) free(texts[w]);
    free(texts);
    free(f->tracing.tracks);
    strata_trace_destroy(f->tracing.trace);
    return status;
}

/* ---- stopping within an epoch ---- */

/* Submits the prepared steps, and waits until all steps are done and their callbacks have returned. */
static strata_status complete(fit *f, strata_error *err) {
    STRATA_TRY(strata_fit_submit_prepared(f, err));
    while (f->queue.n) STRATA_TRY(strata_fit_finish_oldest(f, err));
    return STRATA_OK;
}

/* For a strategy with auto_split: adapts the shares of the batch to the replicas' speeds so far. If shares change, programs are
 * compiled again. */
static strata_status balance(fit *f, int64_t n, strata_error *err) {
    strata_strategy *strategy = f->model->strategy;
    strata_model_program *program = NULL;
    f->due.next_balance += STEPS_BETWEEN_BALANCES;
    STRATA_FREED double *spent = NULL;
    STRATA_TRY(STRATA_NEW(spent, strategy->n_replicas, err, "fit: no host memory for %d replicas", strategy->n_replicas));
    STRATA_TRY(strata_model_get_program(f->model, f->step.kind, n, f->step.form, &program, err));
    for (int r = 0; r < strategy->n_replicas; r++) spent[r] = strata_group_replica_seconds(program->group, r);
    if (!strata_strategy_balance(strategy, n, spent)) return STRATA_OK;
    STRATA_TRY(complete(f, err));
    strata_model_free_programs(f->model);
    return STRATA_OK;
}

/* Sets f->end.now if the fit ends before the next step. If one of several workers wants to end, all end before the same step:
 * about four times a second they exchange whether to stop, and also agree after how many steps they do so again. */
static strata_status poll_stop(fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    if (f->step.open.n) return STRATA_OK; /* the step's batches are not complete */
    if (!strata_strategy_has_workers(f->model->strategy)) {
        f->end.now = f->end.wanted;
        return STRATA_OK;
    }
    f->due.save_now = false;
    if (--f->due.steps_until_poll > 0) return STRATA_OK;
    const double now = strata_clock_seconds(), each = (now - f->due.last_poll) / (double)f->due.poll_interval;
    double steps = each > 0 && f->due.last_poll > 0 ? SECONDS_BETWEEN_POLLS / each : 1;
    if (!(steps > 1)) steps = 1;
    const bool due = f->due.checkpoints && workers->rank == 0 && strata_checkpoint_folder_due(f->due.checkpoints, false);
    int32_t sums[3] = {f->end.wanted, steps < 1e5 ? (int32_t)steps : 100000, due};
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, sums, sums, 3, err));
    f->end.now = sums[0] > 0;
    f->due.save_now = sums[2] > 0;
    f->due.steps_until_poll = f->due.poll_interval = sums[1] / workers->n;
    f->due.last_poll = now;
    return STRATA_OK;
}

static strata_status fail_short_epoch(const fit *f, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "fit: epoch %d ends before its step %lld, after which training is to go on",
                       f->progress.epoch + 1, (long long)f->model->position.steps);
}

/* How many workers read separate batches; 0: all read the same batches. */
static int64_t n_separate_readers(const fit *f) {
    const bool many = strata_strategy_has_workers(f->model->strategy);
    return many && strata_auto_shard_resolve(f->dataset, f->opts.auto_shard) != STRATA_SHARD_DATA
               ? f->model->strategy->workers.n
               : 0;
}

/* Skips the examples of this epoch that an earlier fit trained on. If all workers read the same examples and fit makes the
 * batches, begin_epoch has left these examples out when it opened the batches, so the batch size and the number of workers may
 * differ from the earlier fit. Otherwise the batches are read again up to the position. */
static strata_status skip_steps(fit *f, strata_error *err) {
    const strata_model_position *done = &f->model->position;
    strata_worker_step rows;
    int64_t examples = f->epoch.n_skipped;
    const int64_t size = strata_dataset_size(f->dataset);
    if (f->epoch.n_skipped > (size >= 0 ? size : INT64_MAX)) return fail_short_epoch(f, err);
    while (examples < done->examples) {
        STRATA_TRY(strata_worker_batches_next(f->epoch.batches, &rows, err));
        if (!rows.n) return fail_short_epoch(f, err);
        examples += rows.n;
    }
    if (examples > done->examples)
        return strata_fail(err, STRATA_DATA,
                           "fit: %lld examples of epoch %d were trained on, which is not between two batches; go on with the "
                           "batches that the training was begun with",
                           (long long)done->examples, f->progress.epoch + 1);
    f->progress.step = f->step.open.step = done->steps;
    f->epoch.n_examples = f->epoch.n_measured = done->examples;
    f->model->position = (strata_model_position){0};
    return STRATA_OK;
}

/* ---- epochs ---- */

/* Averages replicas that have made updates of their own since the last average. */
static strata_status average(fit *f, strata_error *err) {
    if (!f->model->apart) return STRATA_OK;
    STRATA_TRY(strata_fit_submit_average(f, err));
    return complete(f, err);
}

/* Sends rank 0's learning rate to all workers, all of which must call it. */
static strata_status share_rate(fit *f, strata_error *err) {
    return strata_workers_share_double(&f->model->strategy->workers, &f->model->rate.own, err);
}

static strata_status begin_epoch(fit *f, strata_error *err) {
    f->epoch.began = strata_clock_seconds();
    f->epoch.compared = 0;
    f->epoch.open = true;
    const strata_model_position *done = &f->model->position;
    const bool by_examples = !n_separate_readers(f) && !strata_dataset_element_spec(f->dataset).is_batch;
    f->epoch.n_skipped = by_examples && done->steps ? done->examples : 0;
    strata_batches_options batches = strata_fit_batches_options(f->model, f->dataset, &f->feed, &f->opts, f->progress.epoch, 0);
    batches.skip = f->epoch.n_skipped;
    STRATA_TRY(
        strata_worker_batches_create(f->model->strategy, f->dataset, f->opts.auto_shard, &batches, &f->epoch.batches, err));
    f->step.form.byte_scale = strata_batches_byte_scale(strata_worker_batches_batch(f->epoch.batches));
    int64_t n_batches = strata_worker_batches_count(f->epoch.batches);
    if (f->epoch.n_skipped && n_batches > 0)
        n_batches = done->steps * f->step.n_batches +
                    (strata_dataset_size(f->dataset) - f->epoch.n_skipped + f->opts.batch - 1) / f->opts.batch;
    f->progress.steps = strata_fit_count_steps(&f->opts, n_batches, f->step.n_batches);
    f->epoch.n_examples = f->epoch.n_measured = f->epoch.scores.n = 0;
    f->step.open = (strata_fit_run){0};
    STRATA_TRY(done->steps ? strata_model_read_sums(f->model, err) : strata_model_reset_sums(f->model, err));
    for (int64_t i = 0; i < f->model->metrics.n_sums; i++) f->epoch.sums[i] = done->steps ? f->model->metrics.sums[i] : 0;
    f->progress.step = 0;
    f->progress.epoch_end = false;
    f->progress.metrics = f->progress.validation = (strata_metrics){0};
    strata_fit_call(f, STRATA_EVENT_EPOCH_BEGIN);
    STRATA_TRY(share_rate(f, err));
    return done->steps ? skip_steps(f, err) : STRATA_OK;
}

/* Stores in the model how many steps of the epoch are done, for a checkpoint or a later fit. */
static void save_position(fit *f) {
    f->model->position = (strata_model_position){f->progress.step, f->epoch.n_examples, n_separate_readers(f)};
}

/* Writes a checkpoint after the step that was submitted last, if one is due. */
static strata_status save_if_due(fit *f, strata_error *err) {
    if (!f->due.checkpoints || f->step.open.n) return STRATA_OK;
    /* If each worker writes a part, all must make the same decision. This is so by the number of steps; by time rank 0 decides
     * (poll_stop). */
    const bool agreed = strata_checkpoint_folder_is_shared(f->due.checkpoints) && f->opts.checkpoint->every_seconds > 0;
    if (!(agreed ? f->due.save_now : strata_checkpoint_folder_due(f->due.checkpoints, false))) return STRATA_OK;
    f->due.save_now = false;
    STRATA_TRY(complete(f, err));
    save_position(f);
    const strata_status status = strata_checkpoint_folder_save(f->due.checkpoints, f->progress.epoch, err);
    f->model->position = (strata_model_position){0};
    return status;
}

/* Whether the user interrupted the compilation of the next step's program and the fit can end before that step. With several
 * workers it cannot, as the others have begun the step. */
static bool stops_before_step(const fit *f, strata_status status) {
    bool interrupted = false; /* a driver's compilation was interrupted, and not a callback that returned INTERRUPTED */
    for (int r = 0; r < f->model->strategy->n_replicas; r++)
        interrupted |= f->model->replicas[r].device->given_up.status == STRATA_INTERRUPTED;
    return status == STRATA_INTERRUPTED && interrupted && f->history.n_steps && !f->step.open.n &&
           !strata_strategy_has_workers(f->model->strategy);
}

/* Submits one more batch. *more: whether there was one; false at the end of the epoch and when the fit stops. */
static strata_status next_batch(fit *f, bool *more, strata_error *err) {
    strata_worker_step rows;
    const double began = f->tracing.now ? strata_trace_now() : 0;
    *more = false;
    STRATA_TRY(strata_worker_batches_next(f->epoch.batches, &rows, err));
    strata_fit_add_to_trace(f, "next batch", f->model->optimizer_steps, began);
    if (!rows.n) return STRATA_OK;
    STRATA_TRY(strata_model_poll(f->model, err));
    STRATA_TRY(poll_stop(f, err));
    if (f->end.now) return STRATA_OK;
    STRATA_TRY(save_if_due(f, err));
    if (f->model->strategy->auto_split && f->history.n_steps >= f->due.next_balance) STRATA_TRY(balance(f, rows.own, err));
    if (!f->step.open.n) strata_fit_call(f, STRATA_EVENT_BATCH_BEGIN);
    const strata_status status = strata_fit_submit(f, &rows, err);
    *more = !status;
    if (!stops_before_step(f, status)) return status;
    f->end.now = true;
    return STRATA_OK;
}

/* Whether the only device computes a step in the call that submits it. */
static bool runs_at_once(const fit *f) {
    return f->model->strategy->n_devices == 1 && f->model->strategy->devices[0]->runs_at_once;
}

/* Submits the batches of one step. *more: whether there was a step; false at the end of the epoch and when the fit stops. */
static strata_status next_step(fit *f, bool *more, strata_error *err) {
    *more = !f->opts.steps_per_epoch || f->step.open.step < f->opts.steps_per_epoch;
    if (*more && trace_turns(f)) {
        STRATA_TRY(complete(f, err));
        STRATA_TRY(turn_trace(f, err));
    }
    for (int64_t i = 0; i < f->step.n_batches && *more; i++) {
        STRATA_TRY(next_batch(f, more, err));
        if (!*more && f->step.open.n) STRATA_TRY(strata_fit_submit_accumulated(f, err)); /* the last step has fewer batches */
    }
    f->n_begun += *more;
    if (*more && f->opts.wait_each_step) {
        STRATA_TRY(complete(f, err));
        return share_rate(f, err); /* a callback of rank 0 may have set it */
    }
    /* The step has already been made, so the caller of strata_fit_step gets it at once. */
    const bool made = runs_at_once(f) && !strata_strategy_has_workers(f->model->strategy);
    return *more && f->reports.wanted && made ? complete(f, err) : STRATA_OK;
}

/* Waits for all steps and computes the epoch's metrics. */
static strata_status finish_steps(fit *f, strata_error *err) {
    if (!f->epoch.n_examples && !f->end.now)
        return strata_fail(err, STRATA_DATA, "fit: the data is empty in epoch %d", f->progress.epoch + 1);
    STRATA_TRY(complete(f, err));
    if (!f->end.now) STRATA_TRY(average(f, err));
    STRATA_TRY(strata_model_read_sums(f->model, err));
    /* If the fit ends within an epoch, workers may end it at different times. */
    if (!f->end.now) STRATA_TRY(strata_scores_gather(f->model, &f->epoch.scores, err));
    if (f->epoch.n_examples)
        f->progress.metrics = strata_model_metrics(f->model, f->model->metrics.sums, f->epoch.n_examples, &f->epoch.scores);
    return STRATA_OK;
}

/* Ends a complete epoch: validation, the history, callbacks, a checkpoint, and whether to stop, on which all workers agree. */
static strata_status end_epoch(fit *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    strata_progress *p = &f->progress;
    strata_history *h = &f->history;
    p->epoch_end = true;
    p->epoch_seconds = strata_fit_epoch_seconds(f);
    const double began = f->tracing.now ? strata_trace_now() : 0;
    STRATA_TRY(strata_validation_run(f->model, &f->opts, p->epoch, &p->validation, &f->end.after_epoch, err));
    if (f->opts.validation) strata_fit_add_to_trace(f, "validation", f->model->optimizer_steps, began);
    h->epochs[h->n_epochs] = p->metrics;
    h->epoch_seconds[h->n_epochs] = p->epoch_seconds;
    if (h->validation) h->validation[h->n_epochs] = p->validation;
    h->n_epochs++;
    STRATA_TRY(strata_fit_report(f, true, err));
    STRATA_TRY(share_rate(f, err));
    if (strata_strategy_has_workers(f->model->strategy)) {
        const bool due = f->due.checkpoints && workers->rank == 0 && strata_checkpoint_folder_due(f->due.checkpoints, true);
        int32_t sums[3] = {f->end.after_epoch, due, f->end.wanted};
        STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, sums, sums, 3, err));
        f->end.after_epoch = sums[0] > 0;
        f->due.save_now = sums[1] > 0;
        if (sums[2]) f->due.steps_until_poll = 1; /* all stop before the first step of the next epoch */
    } else {
        f->due.save_now = f->due.checkpoints && strata_checkpoint_folder_due(f->due.checkpoints, true);
    }
    if (!f->due.checkpoints) return STRATA_OK;
    const bool last = p->epoch + 1 == p->epochs || f->end.after_epoch;
    if (!f->due.save_now && !(last && strata_checkpoint_folder_is_new(f->due.checkpoints))) return STRATA_OK;
    return strata_checkpoint_folder_save(f->due.checkpoints, p->epoch + 1, err);
}

/* Closes the batches of an epoch that is complete or was stopped. */
static void close_epoch(fit *f) {
    if (!f->epoch.open) return;
    f->epoch.open = false;
    strata_worker_batches_destroy(f->epoch.batches);
    f->epoch.batches = NULL;
    strata_fit_add_epoch_to_trace(f);
}

/* Ends the fit within the epoch, with a checkpoint. */
static strata_status stop_here(fit *f, strata_error *err) {
    strata_model *model = f->model;
    save_position(f);
    f->history.stopped = f->end.reached = true;
    if (model->apart) {
        float *own;
        STRATA_TRY(strata_model_gather_own(model, &own, err));
        STRATA_TRY(average(f, err));
        strata_model_forget_interrupted(model);
        model->interrupted = own;
    }
    return f->due.checkpoints && strata_checkpoint_folder_is_new(f->due.checkpoints)
               ? strata_checkpoint_folder_save(f->due.checkpoints, f->progress.epoch, err)
               : STRATA_OK;
}

/* Called after the last epoch. With restore_best, it sets the parameters to those of the best epoch. */
static strata_status finish_epochs(fit *f, strata_error *err) {
    f->end.reached = true;
    f->history.best_epoch = (int)f->model->best.epochs - 1;
    STRATA_TRY(strata_model_share_stages(f->model, err));
    return strata_validation_restore(f->model, &f->opts, err);
}

/* Makes one step, or ends the epoch if there is none. */
static strata_status advance(fit *f, strata_error *err) {
    bool more;
    if (!f->end.began_callbacks) strata_fit_call(f, STRATA_EVENT_TRAIN_BEGIN);
    f->end.began_callbacks = true;
    if (!f->epoch.open && f->progress.epoch_end) f->progress.epoch++;
    if (!f->epoch.open) STRATA_TRY(begin_epoch(f, err));
    STRATA_TRY(next_step(f, &more, err));
    if (more) return STRATA_OK;
    STRATA_TRY(finish_steps(f, err));
    close_epoch(f);
    if (f->end.now) {
        STRATA_TRY(stop_here(f, err));
    } else {
        STRATA_TRY(end_epoch(f, err));
        if (f->progress.epoch + 1 < f->opts.epochs && !f->end.after_epoch) return STRATA_OK;
        STRATA_TRY(finish_epochs(f, err));
    }
    return f->end.of_callback.status ? strata_fail(err, f->end.of_callback.status, "%s", f->end.of_callback.message)
                                     : STRATA_OK;
}

/* If workers read separate batches, the examples that each of them has read depend on the number of workers, so an epoch must
 * be continued with the same number. */
static strata_status check_readers(const fit *f, strata_error *err) {
    const int64_t now = n_separate_readers(f), before = f->model->position.readers;
    if (!f->opts.first_step || now == before) return STRATA_OK;
    return strata_fail(
        err, STRATA_INVALID,
        "fit: the epoch was begun by %lld workers with batches of their own, and would go on with %lld; the rest "
        "of this epoch needs as many (0: all read the same, auto_shard DATA)",
        (long long)before, (long long)now);
}

static strata_status check_options(fit *f, strata_error *err) {
    const strata_model *model = f->model;
    const strata_dataset *dataset = f->dataset;
    const strata_fit_options *opts = &f->opts;
    STRATA_TRY(strata_model_check_dataset(model, dataset, true, "fit", &f->feed, err));
    if (opts->epochs < 0) return strata_fail(err, STRATA_INVALID, "fit: epochs is %d; it must be at least 1", opts->epochs);
    if (opts->first_epoch < 0 || opts->first_epoch > opts->epochs)
        return strata_fail(err, STRATA_INVALID, "fit: first_epoch is %d; with %d epochs it is 0 to %d", opts->first_epoch,
                           opts->epochs, opts->epochs);
    if (opts->batch < 1)
        return strata_fail(err, STRATA_INVALID, "fit: batch is %lld; it must be at least 1", (long long)opts->batch);
    if (opts->batch < strata_model_n_microbatches(model))
        return strata_fail(err, STRATA_INVALID,
                           "fit: batch is %lld, but the strategy computes each batch in %d micro-batches of at least one "
                           "example; take a larger batch, or fewer micro-batches",
                           (long long)opts->batch, strata_model_n_microbatches(model));
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
    if (strata_strategy_mesh_has_workers(model->strategy) && opts->auto_shard != STRATA_SHARD_DATA)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "fit: under strategy %s all workers read the same batches; leave auto_shard out, or give DATA",
                           model->strategy->name);
    STRATA_TRY(check_readers(f, err));
    if (opts->class_weights)
        STRATA_TRY(strata_model_check_class_weights(model, opts->class_weights, opts->n_class_weights, err));
    if (opts->steps_per_epoch && strata_dataset_size(dataset) == STRATA_SIZE_INFINITE) return STRATA_OK; /* each epoch ends */
    return strata_batches_check_size(dataset, "fit", err);
}

static strata_status make_history(fit *f, strata_error *err) {
    static const char no_memory[] = "fit: no host memory for %d epochs";
    const int n = f->opts.epochs;
    strata_history *h = &f->history;
    *h = (strata_history){.best_epoch = -1};
    STRATA_TRY(STRATA_NEW(h->epochs, n, err, no_memory, n));
    STRATA_TRY(STRATA_NEW(h->epoch_seconds, n, err, no_memory, n));
    return f->opts.validation ? STRATA_NEW(h->validation, n, err, no_memory, n) : STRATA_OK;
}

/* Whether a CPU, or cores of one that add up by themselves, gets short steps several at a time (adapt_call in fit_steps.c): the
 * memory for the inputs must be small. */
static bool may_adapt_call(const fit *f) {
    const strata_strategy *strategy = f->model->strategy;
    size_t bytes = 0;
    for (int i = 0; i < f->model->n_inputs; i++) bytes += strata_input_bytes(&f->model->inputs[i]);
    return f->opts.steps_per_execution != 1 && bytes <= SMALL_INPUTS / (size_t)f->opts.batch &&
           (strategy->n_devices == 1 || strategy->cores.n > 1) && !strata_strategy_has_workers(strategy);
}

/* Chooses how many steps devices get in one call, and allocates a queue of twice as many runs, so that the host prepares steps
 * while the devices compute others. With auto_split each step is measured, so it is one step. Workers that share cores have
 * nothing to compute ahead of, since other workers use the core while one waits. They get one slot, because the gradients and
 * sums of several slots of all workers do not fit into the cache. */
static strata_status allocate_runs(fit *f, strata_error *err) {
    const strata_strategy *strategy = f->model->strategy;
    const bool cpu = strata_device_get_info(strategy->devices[0])->device_class == STRATA_DEVICE_CPU;
    int64_t steps_per_call = cpu ? (may_adapt_call(f) ? SHORT_STEPS_A_CALL : 1) : f->opts.steps_per_execution;
    if (strategy->auto_split || f->opts.wait_each_step) steps_per_call = 1;
    if (steps_per_call > STRATA_MAX_SLOTS / 2) steps_per_call = STRATA_MAX_SLOTS / 2;
    f->queue.most_per_call = strata_strategy_steps_per_call(strategy, steps_per_call);
    f->queue.per_call = cpu ? 1 : f->queue.most_per_call;
    const bool several = f->queue.most_per_call > 1, one = !several && strategy->workers.share_cores && runs_at_once(f);
    f->queue.most = f->queue.per_call > 1 ? 2 * f->queue.per_call : one ? 1 : MAX_RUNS;
    f->step.form.n_slots = several ? 2 * f->queue.most_per_call : one;
    const size_t most_runs = several ? 2 * (size_t)f->queue.most_per_call : MAX_RUNS;
    static const char no_memory[] = "fit: no host memory for %d steps";
    STRATA_TRY(STRATA_NEW(f->queue.runs, most_runs, err, no_memory, f->queue.most_per_call));
    if (!f->reports.wanted) return STRATA_OK;
    return STRATA_NEW(f->reports.events, most_runs + 4, err, no_memory, f->queue.most_per_call);
}

/* Checks that a checkpoint is continued with its own data and options. Only rank 0 has read the checkpoint. */
static strata_status begin_training(fit *f, strata_error *err) {
    strata_model *model = f->model;
    const bool goes_on = f->opts.first_epoch || f->opts.first_step;
    free(model->training);
    model->training = NULL;
    model->fitted.dataset = f->dataset;
    model->fitted.opts = &f->opts;
    const int64_t before = strata_training_batch_before(model);
    strata_status status = goes_on && model->continued ? strata_training_compare(model, err) : STRATA_OK;
    if (!status && model->strategy->trainer && f->opts.first_step && before && before != f->opts.batch)
        status = strata_fail(err, STRATA_INVALID,
                             "fit: the epoch was begun with a batch of %lld, and would go on with %lld; strategy %s counts an "
                             "epoch's steps, which all have one batch size: give %lld, or go on at the beginning of an epoch",
                             (long long)before, (long long)f->opts.batch, model->strategy->name, (long long)before);
    if (goes_on && !model->strategy->trainer)
        status = strata_workers_share_status(&model->strategy->workers, status, err,
                                             "fit: rank 0 cannot continue its checkpoint with these data");
    char **dropped = status ? &model->training : &model->continued;
    free(*dropped);
    *dropped = NULL;
    return status;
}

/* A checkpoint may be saved after the fit, when its data may not exist any more. Only rank 0 writes the description. */
static void end_training(fit *f) {
    const char *text;
    if (f->history.n_steps && !f->model->strategy->workers.rank) (void)!strata_training_of(f->model, &text, NULL);
    f->model->fitted.dataset = NULL;
    f->model->fitted.opts = NULL;
}

static strata_status begin(fit *f, strata_error *err) {
    strata_model *model = f->model;
    STRATA_TRY(check_options(f, err));
    STRATA_TRY(strata_model_agree(model, f->dataset, &f->opts, err));
    STRATA_TRY(begin_training(f, err));
    STRATA_TRY(make_history(f, err));
    f->progress = (strata_progress){.model = model,
                                    .epoch = f->opts.first_epoch,
                                    .epochs = f->opts.epochs,
                                    .stop = &f->end.after_epoch,
                                    .stop_now = &f->end.wanted};
    if (model->strategy->trainer) return STRATA_OK;
    f->step.n_batches = strata_model_accumulates(model) / strata_model_n_microbatches(model);
    f->step.form.weighted = strata_model_weighs(f->dataset, f->opts.class_weights);
    f->step.kind = strata_model_accumulates(model) > 1 ? STRATA_PROGRAM_ACCUMULATE : STRATA_PROGRAM_TRAIN;
    int64_t size = strata_dataset_size(f->dataset), first, share;
    strata_strategy_worker_share(model->strategy, f->opts.batch, model->strategy->workers.rank, &first, &share);
    /* A batch that is not larger than the data is checked when its program is compiled. */
    const int64_t m = strata_model_n_microbatches(model), most = share / m + (share % m > 0);
    if (size >= 0 && f->opts.batch > size && share) STRATA_TRY(strata_model_check_batch(model, f->step.kind, most, err));
    STRATA_TRY(STRATA_NEW(f->epoch.sums, model->metrics.n_sums, err, "fit: no host memory for its metrics"));
    STRATA_TRY(STRATA_NEW(f->epoch.added, model->metrics.n_sums + 2, err, "fit: no host memory for its metrics"));
    f->due.steps_until_poll = f->due.poll_interval = 1;
    if (model->interrupted && f->opts.first_step) STRATA_TRY(strata_model_write_own(model, model->interrupted, err));
    strata_model_forget_interrupted(model);
    if (!f->opts.first_step) model->position = (strata_model_position){0};
    STRATA_TRY(allocate_runs(f, err));
    STRATA_TRY(strata_model_begin_stages(model, err));
    STRATA_TRY(strata_validation_begin(model, &f->opts, err));
    if (f->opts.checkpoint) STRATA_TRY(strata_checkpoint_folder_open(model, f->opts.checkpoint, &f->due.checkpoints, err));
    if (f->opts.first_epoch == f->opts.epochs || strata_validation_is_over(model, &f->opts)) STRATA_TRY(finish_epochs(f, err));
    return f->opts.trace ? begin_trace(f, err) : STRATA_OK;
}

/* Ends the fit: waits for all runs, closes the epoch, the checkpoints and the trace. Returns OK if the failure was already
 * returned by the step that failed. */
static strata_status finish(fit *f, strata_error *err) {
    strata_status status = f->end.failure;
    /* strata_fit_step has returned the failure, unless it reports older steps first. */
    const bool reported = status != STRATA_OK && !f->reports.failed.status;
    if (f->reports.failed.status) strata_fail(err, f->reports.failed.status, "%s", f->reports.failed.message);
    strata_fit_drain(f);
    close_epoch(f);
    if (f->end.began_callbacks) strata_fit_call(f, STRATA_EVENT_TRAIN_END);
    if (!f->end.failure && f->end.of_callback.status) {
        f->end.failure = status = strata_fail(err, f->end.of_callback.status, "%s", f->end.of_callback.message);
        err = NULL;
    }
    end_training(f);
    f->model->rate.locked = false;
    strata_scores_finish(&f->epoch.scores);
    f->model->fitting = false;
    if (!status && !f->history.stopped) strata_validation_forget(f->model);
    f->history.loss_scale = f->model->scale.value;
    const strata_status saved = strata_checkpoint_folder_close(f->due.checkpoints, status ? NULL : err);
    if (!status) status = saved;
    const strata_status traced = f->tracing.trace ? end_trace(f, status, status ? NULL : err) : STRATA_OK;
    if (!status) status = traced;
    return reported ? STRATA_OK : status;
}

static strata_status create(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts, bool stepped,
                            strata_fit **out_fit, strata_error *err) {
    if (model->fitting)
        return strata_fail(err, STRATA_INVALID, "fit: another fit of this model is not over (end its loop over steps first)");
    fit *f;
    STRATA_TRY(STRATA_NEW(f, 1, err, "fit: no host memory"));
    model->fitting = true;
    *f = (fit){.model = model,
               .dataset = dataset,
               .reports.wanted = stepped,
               .began = strata_clock_seconds(),
               .due.next_balance = FIRST_BALANCE};
    if (opts) f->opts = *opts;
    f->opts.epochs = f->opts.epochs == STRATA_NO_EPOCHS ? 0 : f->opts.epochs ? f->opts.epochs : 1;
    if (!f->opts.batch) f->opts.batch = 32;
    /* The workers of a mesh may have the same share of a batch. */
    if (f->opts.auto_shard == STRATA_SHARD_AUTO && strata_strategy_mesh_has_workers(model->strategy))
        f->opts.auto_shard = STRATA_SHARD_DATA;
    if (f->opts.check_repeats) f->opts.wait_each_step = true;
    f->end.failure = begin(f, err);
    *out_fit = f;
    return f->end.failure;
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
    const strata_status status = create(model, dataset, opts, true, out_fit, err);
    if (!status) return STRATA_OK;
    (void)!strata_fit_end(*out_fit, NULL, NULL); /* `status` is returned instead */
    *out_fit = NULL;
    return status;
}

strata_status strata_fit_step(strata_fit *fit, const strata_progress **out_progress, strata_error *err) {
    *out_progress = NULL;
    if (fit->end.failure && !fit->reports.failed.status)
        return strata_fail(err, STRATA_INVALID, "fit_step: the fit has failed before; strata_fit_end is left to be called");
    fit->model->rate.locked = true;
    while (!fit->reports.n && !fit->end.reached && !fit->end.failure) fit->end.failure = advance(fit, &fit->reports.failed);
    /* Steps that ended before a failure are reported before it. */
    if (fit->end.failure && (!fit->reports.n || fit->end.failure == STRATA_INTERRUPTED)) {
        const strata_error failed = fit->reports.failed;
        fit->reports.failed = (strata_error){0};
        return strata_fail(err, fit->end.failure, "%s", failed.message);
    }
    if (!fit->reports.n) return STRATA_OK;
    fit->reports.last = fit->reports.events[0];
    memmove(fit->reports.events, fit->reports.events + 1, (size_t)--fit->reports.n * sizeof *fit->reports.events);
    *out_progress = &fit->reports.last;
    /* The caller may set the rate of the next step, if that was not submitted. Workers share the rate between epochs. */
    const bool many = strata_strategy_has_workers(fit->model->strategy);
    fit->model->rate.locked = fit->queue.n > 0 || (many && !fit->reports.last.epoch_end);
    return STRATA_OK;
}

strata_status strata_fit_end(strata_fit *fit, strata_history *out_history, strata_error *err) {
    if (!fit) return STRATA_OK;
    strata_status status = STRATA_OK;
    fit->reports.wanted = false;                  /* nothing is reported any more */
    if (!fit->end.failure && !fit->end.reached) { /* the caller makes no more steps */
        fit->end.now = true;
        status = fit->end.failure = fit->epoch.open ? finish_steps(fit, err) : STRATA_OK;
        if (!status && fit->epoch.open) status = fit->end.failure = stop_here(fit, err);
        fit->history.stopped = true;
    }
    const strata_status finished = finish(fit, status ? NULL : err);
    if (out_history)
        *out_history = fit->history;
    else
        strata_history_finish(&fit->history);
    free(fit->queue.runs);
    free(fit->reports.events);
    free(fit->epoch.sums);
    free(fit->epoch.added);
    free(fit);
    return status ? status : finished;
}

/* The callback of a trainer (parameter_server): calls the model's callbacks and the caller's, and writes checkpoints on rank 0.
 * */
static strata_status on_trainer_progress(const strata_progress *progress, void *user, strata_error *err) {
    fit *f = user;
    const bool end = progress->epoch_end, last = end && (progress->epoch + 1 == progress->epochs || *progress->stop);
    STRATA_TRY(strata_callbacks_call(f->model, end ? STRATA_EVENT_EPOCH_END : STRATA_EVENT_BATCH_END, progress, err));
    if (f->users.on_progress) STRATA_TRY(f->users.on_progress(progress, f->users.user, err));
    /* Writing a checkpoint waits for steps of workers, whose ends call this function again. */
    if (!f->due.checkpoints || f->due.saving) return STRATA_OK;
    const bool due = strata_checkpoint_folder_due(f->due.checkpoints, end);
    if (!due && !(last && strata_checkpoint_folder_is_new(f->due.checkpoints))) return STRATA_OK;
    f->due.saving = true;
    const strata_status status = strata_checkpoint_folder_save(f->due.checkpoints, progress->epoch + end, err);
    f->due.saving = false;
    return status;
}

static strata_status run_trainer(fit *f, strata_error *err) {
    strata_model *model = f->model;
    f->end.reached = true;
    if (f->opts.checkpoint && model->strategy->workers.rank == 0)
        STRATA_TRY(strata_checkpoint_folder_open(model, f->opts.checkpoint, &f->due.checkpoints, err));
    if (f->due.checkpoints || model->callbacks.n) {
        f->users.on_progress = f->opts.on_progress;
        f->users.user = f->opts.user;
        f->opts.on_progress = on_trainer_progress;
        f->opts.user = f;
    }
    f->end.began_callbacks = true;
    STRATA_TRY(strata_callbacks_call(model, STRATA_EVENT_TRAIN_BEGIN, &f->progress, err));
    STRATA_TRY(model->strategy->trainer->fit(model, f->dataset, &f->opts, &f->history, err));
    if (!f->due.checkpoints || !f->history.stopped || !strata_checkpoint_folder_is_new(f->due.checkpoints)) return STRATA_OK;
    return strata_checkpoint_folder_save(f->due.checkpoints, f->opts.first_epoch + f->history.n_epochs, err);
}

strata_status strata_model_fit(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                               strata_history *out_history, strata_error *err) {
    strata_fit *fit = NULL;
    if (out_history) *out_history = (strata_history){0};
    STRATA_TRY(strata_model_check_compiled(model, "fit", err));
    strata_status status = create(model, dataset, opts, false, &fit, err);
    if (!fit) return status;
    if (!status && model->strategy->trainer) status = fit->end.failure = run_trainer(fit, err);
    while (!status && !fit->end.reached) status = fit->end.failure = advance(fit, err);
    const strata_status ended = strata_fit_end(fit, out_history, status ? NULL : err);
    return status ? status : ended;
}
