/* SPDX-License-Identifier: Apache-2.0
 *
 * The chief's epochs: it waits for their steps, calls the callback, fetches the parameters from the servers, and has the
 * workers evaluate the validation data. If a server was lost that had the only copy of its shards, the epoch is begun again. */
#include <time.h>

#include "core/base/alloc.h"
#include "core/base/locale.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "strategies/parameter_server/chief.h"

/* Continues the training if it was paused because the callback saved the model. */
static void go_on(strata_ps_loop *l) {
    strata_ps_chief *c = l->c;
    if (!l->paused) return;
    l->paused = false;
    c->fit->model->position = (strata_model_position){0};
    STRATA_LOCKED(&c->lock);
    c->tell.settling = false;
    strata_ps_pace_stop(c->pace, false);
    pthread_cond_broadcast(&c->changed);
}

static strata_status tell(strata_ps_loop *l, strata_error *err) {
    const strata_fit_options *opts = l->c->fit->opts;
    strata_model *model = l->c->fit->model;
    if (!opts->on_progress) return STRATA_OK;
    if (!l->progress.epoch_end) l->progress.epoch_seconds = strata_clock_seconds() - l->epoch_began;
    /* in synchronous training workers may already compute the next step; without synchronization a new rate is for later
     * batches */
    model->rate.locked = (l->c->task->pace.n_shares > 0) && !l->progress.epoch_end && !opts->wait_each_step;
    l->c->task->loop = l;
    strata_status status = opts->on_progress(&l->progress, opts->user, err);
    if (!status && l->failure.status) status = strata_fail(err, l->failure.status, "%s", l->failure.message);
    l->c->task->loop = NULL;
    model->rate.locked = false;
    go_on(l);
    STRATA_LOCKED(&l->c->lock);
    l->c->rate = model->rate.own;
    return status;
}

/* Removes the steps that were finished since the last call from the list that is shared with leases.c. */
static void take_finished(strata_ps_loop *l) {
    strata_ps_chief *c = l->c;
    STRATA_LOCKED(&c->lock);
    l->next_step = 0;
    l->n_steps = c->tell.n;
    l->steps = l->n_steps ? c->tell.steps : NULL;
    if (l->n_steps) c->tell.steps = NULL, c->tell.n = 0;
    c->tell.running |= l->n_steps > 0;
    if (c->fit->opts->metrics_seconds > 0) {
        memcpy(c->fit->model->metrics.sums, c->epoch.sums, (size_t)c->n_sums * sizeof *c->epoch.sums);
        l->progress.metrics =
            strata_model_metrics(c->fit->model, c->fit->model->metrics.sums, c->epoch.examples ? c->epoch.examples : 1, NULL);
        if (!c->epoch.examples) l->progress.metrics.examples = 0;
    }
}

/* Adds the numbers of the next step to those of the epoch. Returns whether the callback is called after it. */
static bool follow_step(strata_ps_loop *l) {
    strata_ps_chief *c = l->c;
    strata_history *h = c->fit->history;
    const strata_ps_finished_step *step = &l->steps[l->next_step++];
    const int64_t together = c->fit->opts->steps_per_execution;
    if (h->n_losses < (int)(sizeof h->losses / sizeof *h->losses)) h->losses[h->n_losses++] = (float)step->loss;
    if (h->n_steps++ == 0) h->first_step_seconds = strata_clock_seconds() - l->began;
    l->progress.loss = step->loss;
    l->progress.learning_rate = step->rate;
    l->progress.gradient_norm = step->norm;
    l->progress.step++;
    l->progress.total_step = h->n_steps;
    c->fit->model->optimizer_steps = c->epoch.t + l->progress.step;
    return together <= 1 || l->progress.step % together == 0;
}

static void forget_steps(strata_ps_loop *l) {
    free(l->steps);
    l->steps = NULL;
    l->n_steps = l->next_step = 0;
}

/* Calls the callback for each step that was finished since the last call. The lock is not held while it runs. */
static strata_status tell_finished(strata_ps_loop *l, strata_error *err) {
    strata_ps_chief *c = l->c;
    strata_status status = STRATA_OK;
    take_finished(l);
    while (l->next_step < l->n_steps && !status)
        if (follow_step(l)) status = tell(l, err);
    forget_steps(l);
    STRATA_LOCKED(&c->lock);
    c->tell.running = false;
    pthread_cond_broadcast(&c->changed);
    return status;
}

/* Called within a call of the callback: calls it for the steps that were finished since. The outer call returns its failure. */
static void tell_rest(strata_ps_loop *l) {
    const strata_fit_options *opts = l->c->fit->opts;
    do {
        while (l->next_step < l->n_steps && !l->failure.status) {
            if (!follow_step(l)) continue;
            l->progress.epoch_seconds = strata_clock_seconds() - l->epoch_began;
            const strata_status status = opts->on_progress(&l->progress, opts->user, &l->failure);
            l->failure.status = status;
        }
        forget_steps(l);
        take_finished(l);
    } while (l->n_steps && !l->failure.status);
}

/* Called while units are waited for: fails if the training cannot continue. The caller has the lock. */
static strata_status check(strata_ps_chief *c, bool ended, strata_error *err) {
    if (!ended && c->alone > 0 && !c->failure.status) {
        const double waited = strata_clock_seconds() - c->alone;
        if (c->failure.worker_status) strata_ps_chief_fail(c, c->failure.worker_status, c->failure.of_worker);
        bool all_ended = true;
        int code = 0;
        for (int w = 0; w < c->n_workers && all_ended; w++) all_ended = strata_ps_has_ended(STRATA_TASK_WORKER, w, &code);
        if (all_ended) strata_ps_chief_fail(c, STRATA_PEER_LOST, "fit: no worker is left: all have ended");
        if (waited > c->task->connect_seconds) {
            char text[160];
            strata_format(text, sizeof text, "fit: no worker is left, and none has come in %.0f s", waited);
            strata_ps_chief_fail(c, STRATA_PEER_LOST, text);
        }
    }
    return c->failure.status ? strata_fail(err, c->failure.status, "%s", c->failure.message) : STRATA_OK;
}

/* Waits a moment for units of the pace to be finished. Checks the servers twice a second, and whenever a worker doubts them.
 * *looked: when they were checked last. *out_ended: all units are finished. */
static strata_status wait_for_units(strata_ps_chief *c, const strata_ps_pace *pace, double *looked, bool *out_ended,
                                    strata_error *err) {
    const double patience = 0.5;
    pthread_mutex_lock(&c->lock);
    const bool doubted = c->doubted;
    c->doubted = false;
    pthread_mutex_unlock(&c->lock);
    if (doubted || strata_clock_seconds() - *looked > patience) {
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        *looked = strata_clock_seconds();
    }
    STRATA_LOCKED(&c->lock);
    const bool tells = c->tell.n && !c->tell.settling;
    if (!tells && !strata_ps_pace_ended(pace) && !c->failure.status) strata_wait_for(&c->changed, &c->lock, 0.1);
    *out_ended = strata_ps_pace_ended(pace);
    return check(c, *out_ended || c->visits.running, err); /* the chief can evaluate without workers */
}

static strata_status wait_for_epoch(strata_ps_loop *l, strata_error *err) {
    strata_ps_chief *c = l->c;
    double looked = strata_clock_seconds();
    for (bool ended = false; !ended;) {
        pthread_mutex_lock(&c->lock);
        if (l->stop_now) strata_ps_pace_stop(c->pace, true);
        pthread_mutex_unlock(&c->lock);
        STRATA_TRY(wait_for_units(c, c->pace, &looked, &ended, err));
        STRATA_TRY(tell_finished(l, err));
    }
    return strata_ps_watch_look(&c->watch, err); /* an epoch may be shorter than the time between two checks */
}

static void forget_epoch(strata_ps_chief *c) {
    c->load.epoch = (strata_ps_load_sums){0};
    STRATA_LOCKED(&c->task->lock);
    c->task->totals.epoch = (strata_parameter_server_load){0};
    for (int w = 0; w < c->n_workers; w++) c->task->workers[w].epoch_steps = c->task->workers[w].epoch_examples = 0;
}

/* Begins the steps of the epoch that follow those that the model already has. */
static void open_epoch(strata_ps_loop *l) {
    strata_ps_chief *c = l->c;
    const int64_t first = l->base.step;
    STRATA_LOCKED(&c->lock);
    memcpy(c->epoch.sums, l->base.sums, (size_t)c->n_sums * sizeof *c->epoch.sums);
    c->epoch.examples = l->base.examples;
    c->epoch.n_left_out = 0;
    c->tell.n = 0;
    c->epoch.t = c->fit->model->optimizer_steps - first;
    c->epoch.number = l->progress.epoch;
    c->recovering = false;
    l->progress.step = first;
    l->progress.steps = c->fit->n_steps;
    l->progress.epoch_end = false;
    l->progress.metrics = l->progress.validation = (strata_metrics){0};
    forget_epoch(c);
    strata_ps_pace_begin(c->pace, ++c->epoch.serial, first, c->fit->n_steps);
    if (l->stop_now)
        strata_ps_pace_stop(c->pace, true); /* the stop was requested between epochs: no step of this epoch is begun */
    pthread_cond_broadcast(&c->changed);
}

/* Waits for a server that was lost to start again, and gives all servers the values from before the epoch. */
static strata_status recover(strata_ps_loop *l, strata_error *err) {
    strata_ps_chief *c = l->c;
    strata_history *h = c->fit->history;
    const double until = strata_clock_seconds() + c->task->connect_seconds;
    const int64_t first = l->base.step, repeated = l->progress.step - first;
    pthread_mutex_lock(&c->lock);
    c->recovering = true;
    strata_ps_notice(c->task, "a server was lost (%.200s); it is waited for", err->message);
    pthread_mutex_unlock(&c->lock);
    strata_model *model = c->fit->model;
    model->optimizer_steps = l->base.t; /* its parameters are those of this step */
    memcpy(model->metrics.sums, l->base.sums, (size_t)c->n_sums * sizeof *l->base.sums);
    if (l->base.step) model->position = (strata_model_position){.steps = l->base.step, .examples = l->base.examples};
    l->stands = true;
    STRATA_TRY(tell(l, err));
    l->stands = false;
    model->position = (strata_model_position){0};
    STRATA_TRY(strata_ps_chief_spread_when_there(c, c->epoch.serial + 1, until, err));
    h->n_steps -= repeated;
    if (h->n_losses > h->n_steps) h->n_losses = (int)h->n_steps;
    STRATA_LOCKED(&c->lock);
    strata_ps_notice(c->task, "the servers have the parameters of before step %lld of epoch %d again; %lld steps are repeated",
                     (long long)first + 1, l->progress.epoch + 1, (long long)(repeated > 0 ? repeated : 0));
    return STRATA_OK;
}

/* The last synchronous step; NULL: there is none. */
static const strata_ps_close *last_close(strata_ps_chief *c, strata_ps_close *close) {
    STRATA_LOCKED(&c->lock);
    return strata_ps_chief_last_close(c, close) ? close : NULL;
}

/* Whether a request to the servers is repeated, because one of them was lost of which another one has the copy. */
static bool repeats(strata_ps_chief *c, double until, strata_status *status, strata_error *err) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    if (*status != STRATA_PEER_LOST || !c->task->replicas || strata_clock_seconds() > until) return false;
    *status = strata_ps_watch_look(&c->watch, err);
    if (!*status) nanosleep(&pause, NULL);
    return !*status;
}

/* A slice of the trace, on the track of the fit's thread, from `began` until now. */
static void trace_slice(const strata_ps_chief *c, const char *name, double began) {
    strata_trace_add_named(c->fit->trace, STRATA_TRACE_HOST, name, c->epoch.number, began, strata_trace_now());
}

/* Copies the parameters of the servers to the model. */
static strata_status fetch(strata_ps_chief *c, strata_error *err) {
    const double began = strata_trace_now(), until = strata_clock_seconds() + c->task->connect_seconds;
    strata_ps_close close;
    const strata_ps_close *last = last_close(c, &close);
    strata_status status;
    do status = strata_ps_fetch_values(c->fit, c->watch.clients, last, err);
    while (repeats(c, until, &status, err));
    trace_slice(c, "fetch parameters", began);
    return status;
}

/* ---- a checkpoint within an epoch: the training pauses while the callback runs ---- */

/* Waits until all leased units are finished; nothing new is leased before the callback returns. Batches are leased in their
 * order, so exactly the first steps of the epoch are finished then. At the end of an epoch this holds without waiting. tells:
 * the callback in which this is called is also called for these steps, so that the state of callbacks belongs to the same step
 * as the model. */
static strata_status pause_training(strata_ps_loop *l, bool tells, strata_error *err) {
    strata_ps_chief *c = l->c;
    double looked = strata_clock_seconds();
    bool ended = l->progress.epoch_end;
    if (ended || l->paused) return STRATA_OK;
    l->paused = true;
    pthread_mutex_lock(&c->lock);
    c->tell.settling = true;
    strata_ps_pace_stop(c->pace, true);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    while (!ended) STRATA_TRY(wait_for_units(c, c->pace, &looked, &ended, err));
    if (tells) tell_rest(l);
    strata_model *model = c->fit->model;
    pthread_mutex_lock(&c->lock);
    model->position = (strata_model_position){.steps = strata_ps_pace_steps(c->pace), .examples = c->epoch.examples};
    model->optimizer_steps = c->epoch.t + model->position.steps - c->epoch.n_left_out;
    memcpy(model->metrics.sums, c->epoch.sums, (size_t)c->n_sums * sizeof *c->epoch.sums);
    pthread_mutex_unlock(&c->lock);
    return strata_model_write_sums(model, err);
}

strata_status strata_ps_settle(strata_model *model, bool values, strata_error *err) {
    strata_ps_loop *l = strata_ps_task_of(model)->loop;
    if (!l || l->progress.epoch_end || l->stands) return STRATA_OK;
    STRATA_TRY(pause_training(l, !values, err));
    if (!values) return STRATA_OK;
    STRATA_TRY(fetch(l->c, err));
    l->base.step = model->position.steps;
    l->base.examples = model->position.examples;
    l->base.t = model->optimizer_steps;
    memcpy(l->base.sums, model->metrics.sums, (size_t)l->c->n_sums * sizeof *l->base.sums);
    return STRATA_OK;
}

strata_status strata_ps_write_parts(strata_model *model, const char *folder, strata_manifest *manifest, bool *out_written,
                                    strata_error *err) {
    strata_ps_loop *l = strata_ps_task_of(model)->loop;
    strata_ps_close close;
    strata_status status;
    *out_written = l && !l->stands;
    if (!*out_written) return STRATA_OK;
    const double until = strata_clock_seconds() + l->c->task->connect_seconds;
    const strata_ps_close *last = last_close(l->c, &close);
    for (;;) {
        status = strata_ps_save_all(&l->c->watch, last, folder, manifest, &model->optimizer_steps, err);
        if (!repeats(l->c, until, &status, err)) return status;
        strata_manifest_finish(manifest); /* the server with the copy writes the shards of the lost one */
    }
}

/* ---- epochs ---- */

/* Runs the steps of an epoch, and copies the parameters to the model. */
static strata_status run_steps(strata_ps_loop *l, strata_error *err) {
    strata_ps_chief *c = l->c;
    for (;;) {
        l->progress.step = l->base.step;
        strata_status status = strata_ps_watch_take_back(&c->watch, c->epoch.serial + 1, err);
        if (!status) {
            open_epoch(l);
            const double began = strata_trace_now();
            status = wait_for_epoch(l, err);
            trace_slice(c, "steps of an epoch", began);
        }
        if (!status) status = fetch(c, err);
        pthread_mutex_lock(&c->lock);
        /* otherwise the reason is that the workers are lost */
        const bool lost = status == STRATA_PEER_LOST && !c->failure.status;
        pthread_mutex_unlock(&c->lock);
        if (!lost) return status;
        STRATA_TRY(recover(l, err));
    }
}

static strata_status run_epoch(strata_ps_loop *l, int64_t first, strata_error *err) {
    strata_ps_chief *c = l->c;
    strata_model *model = c->fit->model;
    STRATA_FREED double *sums = NULL;
    STRATA_TRY(STRATA_NEW(sums, c->n_sums, err, "fit: no host memory for the metrics' sums"));
    /* the epoch may be continued after a stop */
    if (first) memcpy(sums, model->metrics.sums, (size_t)c->n_sums * sizeof *sums);
    l->base.step = first;
    l->base.examples = first ? model->position.examples : 0;
    l->base.t = model->optimizer_steps;
    l->base.sums = sums;
    model->position = (strata_model_position){0};
    STRATA_TRY(run_steps(l, err));
    pthread_mutex_lock(&c->lock);
    const int64_t steps = strata_ps_pace_steps(c->pace), examples = c->epoch.examples;
    memcpy(model->metrics.sums, c->epoch.sums, (size_t)c->n_sums * sizeof *c->epoch.sums);
    pthread_mutex_unlock(&c->lock);
    if (!examples && !l->stop_now)
        return strata_fail(err, STRATA_DATA, "fit: no gradients of epoch %d were finite; %s", l->progress.epoch + 1,
                           c->failure.refused);
    STRATA_TRY(strata_model_write_sums(model, err));
    if (examples) l->progress.metrics = strata_model_metrics(model, model->metrics.sums, examples, NULL);
    if (steps < c->fit->n_steps) { /* the training was stopped within the epoch */
        model->position = (strata_model_position){.steps = steps, .examples = examples};
        c->fit->history->stopped = true;
    }
    return STRATA_OK;
}

/* Waits until workers have evaluated all batches; false: they cannot, as no worker is left or a server was lost. */
static strata_status wait_for_visits(strata_ps_chief *c, bool *out_done, strata_error *err) {
    double looked = strata_clock_seconds();
    for (;;) {
        const strata_status status = wait_for_units(c, c->visits.pace, &looked, out_done, err);
        STRATA_LOCKED(&c->lock);
        if (status) return c->failure.status ? status : STRATA_OK; /* the next epoch finds out whether the training continues */
        if (*out_done || !strata_ps_chief_n_there(c)) return STRATA_OK;
    }
}

static strata_status evaluate_on_workers(strata_ps_chief *c, bool *out_done, strata_error *err) {
    pthread_mutex_lock(&c->lock);
    strata_ps_pace_begin(c->visits.pace, ++c->epoch.serial, 0, c->fit->n_visits);
    c->visits.running = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    const strata_status status = wait_for_visits(c, out_done, err);
    STRATA_LOCKED(&c->lock);
    c->visits.running = false;
    return status;
}

/* Computes the metrics of the validation data. Each batch is evaluated by one worker, and every batch counts once. The sums
 * are added in the order of the batches, so they are the same as those of one device. If the workers cannot evaluate, the
 * chief does so alone, since it has the parameters. */
static strata_status evaluate(strata_ps_chief *c, strata_metrics *out_metrics, strata_error *err) {
    strata_model *model = c->fit->model;
    const strata_fit_options *opts = c->fit->opts;
    int64_t examples = 0;
    bool done = false;
    if (c->fit->n_visits) STRATA_TRY(evaluate_on_workers(c, &done, err));
    if (!done) return strata_model_evaluate(model, opts->validation, opts->batch, out_metrics, err);
    memset(model->metrics.sums, 0, (size_t)c->n_sums * sizeof *model->metrics.sums);
    for (int64_t b = 0; b < c->fit->n_visits; b++) {
        for (int64_t i = 0; i < c->n_sums; i++) model->metrics.sums[i] += (double)c->visits.sums[b * c->n_sums + i];
        examples += c->visits.examples[b];
    }
    *out_metrics = strata_model_metrics(model, model->metrics.sums, examples, NULL);
    return STRATA_OK;
}

static strata_status validate(strata_ps_loop *l, strata_error *err) {
    const strata_fit_options *opts = l->c->fit->opts;
    strata_progress *p = &l->progress;
    if (!opts->validation) return STRATA_OK;
    STRATA_TRY(evaluate(l->c, &p->validation, err));
    return strata_validation_take(l->c->fit->model, opts, p->epoch, &p->validation, &l->stop, err);
}

static strata_status end_epoch(strata_ps_loop *l, strata_error *err) {
    strata_ps_chief *c = l->c;
    strata_progress *p = &l->progress;
    strata_history *h = c->fit->history;
    p->epoch_end = true;
    p->epoch_seconds = strata_clock_seconds() - l->epoch_began;
    const double began = strata_trace_now();
    STRATA_TRY(validate(l, err));
    if (c->fit->opts->validation) trace_slice(c, "validation", began);
    h->epochs[h->n_epochs] = p->metrics;
    h->epoch_seconds[h->n_epochs] = p->epoch_seconds;
    if (h->validation) h->validation[h->n_epochs] = p->validation;
    h->n_epochs++;
    return tell(l, err);
}

strata_status strata_ps_chief_run_epochs(strata_ps_chief *c, strata_error *err) {
    const strata_fit_options *opts = c->fit->opts;
    strata_ps_loop l = {.c = c, .began = strata_clock_seconds()};
    l.progress = (strata_progress){.model = c->fit->model, .epochs = opts->epochs, .stop = &l.stop, .stop_now = &l.stop_now};
    int64_t first = opts->first_step;
    l.stop = strata_validation_is_over(c->fit->model, opts);
    for (l.progress.epoch = opts->first_epoch; l.progress.epoch < opts->epochs && !l.stop; l.progress.epoch++, first = 0) {
        l.epoch_began = strata_clock_seconds();
        STRATA_TRY(run_epoch(&l, first, err));
        if (c->fit->history->stopped) return STRATA_OK;
        STRATA_TRY(end_epoch(&l, err));
    }
    STRATA_TRY(strata_ps_chief_keep_for_workers(c, true, err));
    c->fit->history->best_epoch = (int)c->fit->model->best.epochs - 1;
    STRATA_TRY(strata_validation_restore(c->fit->model, opts, err));
    return STRATA_OK;
}
