/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves a checkpoint within an epoch: the training pauses while the chief's callback runs. */
#include <string.h>
#include <time.h>

#include "core/model/metrics.h"
#include "strategies/parameter_server/chief.h"

/* Waits until all leased units are finished; nothing new is leased before the callback returns. Batches are leased in their
 * order, so exactly the first steps of the epoch are finished then. At the end of an epoch this holds without waiting. tells:
 * the callback in which this is called is also called for these steps, so that the state of callbacks belongs to the same step
 * as the model. */
static strata_status pause_training(strata_ps_loop *l, bool tells, strata_error *err) {
    const double patience = 0.5;
    strata_ps_chief *c = l->c;
    double looked = strata_clock_seconds();
    bool ended = l->progress.epoch_end;
    if (ended || l->paused) return STRATA_OK;
    l->paused = true;
    pthread_mutex_lock(&c->lock);
    c->tell.settling = true;
    strata_ps_pace_stop(c->pace);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    while (!ended) {
        pthread_mutex_lock(&c->lock);
        const struct timespec deadline = strata_clock_after(0.1);
        if (!strata_ps_pace_ended(c->pace) && !c->failure.status) pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
        ended = strata_ps_pace_ended(c->pace);
        const bool doubted = c->doubted;
        c->doubted = false;
        const strata_status status = strata_ps_chief_check(c, ended, err);
        pthread_mutex_unlock(&c->lock);
        if (status) return status;
        if (!doubted && strata_clock_seconds() - looked < patience) continue;
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        looked = strata_clock_seconds();
    }
    if (tells) strata_ps_chief_tell_rest(l);
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
    STRATA_TRY(strata_ps_chief_fetch(l->c, err));
    l->base.step = model->position.steps;
    l->base.examples = model->position.examples;
    l->base.t = model->optimizer_steps;
    memcpy(l->base.sums, model->metrics.sums, (size_t)l->c->n_sums * sizeof *l->base.sums);
    return STRATA_OK;
}

strata_status strata_ps_write_parts(strata_model *model, const char *folder, strata_manifest *manifest, bool *out_written,
                                    strata_error *err) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    strata_ps_loop *l = strata_ps_task_of(model)->loop;
    strata_ps_close close;
    *out_written = l && !l->stands;
    if (!*out_written) return STRATA_OK;
    strata_ps_chief *c = l->c;
    const double until = strata_clock_seconds() + c->task->connect_seconds;
    pthread_mutex_lock(&c->lock);
    const bool closed = strata_ps_chief_last_close(c, &close);
    pthread_mutex_unlock(&c->lock);
    for (;;) {
        const strata_status status =
            strata_ps_save_all(&c->watch, closed ? &close : NULL, folder, manifest, &model->optimizer_steps, err);
        if (status != STRATA_PEER_LOST || !c->task->replicas || strata_clock_seconds() > until) return status;
        strata_manifest_finish(manifest); /* the server with the copy writes the shards of the lost one */
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        nanosleep(&pause, NULL);
    }
}
