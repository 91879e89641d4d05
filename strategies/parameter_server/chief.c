/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of the chief: it gives the epoch's batches to workers (pace.h), adds up what they report, and after each epoch
 * fetches the parameters from the servers, evaluates, and calls the callback. It computes no gradients.
 *
 * Threads: the handler runs in a thread for each worker; the fit itself in the caller's. Both share `chief` under its lock. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "strategies/parameter_server/task.h"

/* A step that is finished, for the callback. */
typedef struct finished_step {
    double loss, rate;
    int64_t examples;
} finished_step;

typedef struct chief {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_rpc_client **servers;
    uint64_t *incarnations; /* [n_servers] */
    /* [n_servers] With replicas: the server was lost; the copy of its shards lacks a change. Until an epoch begins with all. */
    bool *lost, *cut;
    int n_servers, n_workers;
    int64_t n_sums;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Everything from here on is under the lock. */
    strata_ps_pace *pace;
    /* [n_workers] What is known of each. */
    struct worker {
        /* Its connection; its terms are those of the chief; it was connected at some time. */
        bool connected, came, heard;
        uint64_t incarnation;
        /* Seconds of its steps, a moving mean. */
        double seconds;
        /* When its connection broke last; 0: it is there, or ended in order. */
        double lost_at;
    } * workers;
    /* All workers came and the servers have their values; the training is over. */
    bool begun, over;
    /* Why the training fails; OK: it does not. */
    strata_status status;
    char message[sizeof((strata_error *)0)->message];
    /* What a worker that failed said last. */
    char failure[sizeof((strata_error *)0)->message];
    strata_status failed;
    /* Whose gradients were left out last. */
    char refused[200];
    /* When the last worker was lost; 0: there is one. */
    double alone;
    /* The optimizer's count before the epoch; the epoch; a number that grows each time an epoch is begun, also by a chief that
     * started again, since it begins with the chief's incarnation. */
    int64_t t, epoch, serial;
    /* A worker could not reach a server. */
    bool doubted;
    /* A server was lost: nothing is leased until it has its values again. */
    bool recovering;
    /* The epoch's sums and examples; the open synchronous step's, (n_shares, n_sums) and [n_shares]. */
    double *sums;
    int64_t examples;
    float *share_sums;
    int64_t *share_examples, step_examples;
    double step_rate;
    /* Of the last synchronous step. */
    double scale;
    finished_step *finished;
    int n_finished, room;
    int64_t staleness_sum, n_staleness;
} chief;

static bool synchronous(const chief *c) {
    return c->task->pace.pace == STRATA_PACE_SYNCHRONOUS;
}

/* ---- what is told ---- */

__attribute__((format(printf, 2, 3))) static void notice(chief *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&c->task->lock);
    strata_parameter_server_notice *own = &c->task->notices[c->task->totals.notices++ % STRATA_PS_MOST_NOTICES];
    vsnprintf(own->text, sizeof own->text, format, arguments);
    pthread_mutex_unlock(&c->task->lock);
    va_end(arguments);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int count_stragglers(const chief *c) {
    double *all = calloc((size_t)c->n_workers, sizeof *all);
    int n = 0, slow = 0;
    if (!all) return 0;
    for (int w = 0; w < c->n_workers; w++)
        if (c->workers[w].came && c->workers[w].seconds > 0) all[n++] = c->workers[w].seconds;
    qsort(all, (size_t)n, sizeof *all, ascending);
    for (int i = 0; i < n; i++) slow += all[i] > 2 * all[(n - 1) / 2];
    free(all);
    return slow;
}

static void update_totals(chief *c) {
    strata_parameter_server_totals *totals = &c->task->totals;
    int n = 0;
    for (int w = 0; w < c->n_workers; w++) n += c->workers[w].came;
    pthread_mutex_lock(&c->task->lock);
    totals->present = n;
    totals->spread = strata_ps_pace_spread(c->pace);
    totals->running = strata_ps_pace_running(c->pace);
    totals->waiting = strata_ps_pace_returned(c->pace);
    totals->staleness_mean = c->n_staleness ? (double)c->staleness_sum / (double)c->n_staleness : 0;
    totals->stragglers = count_stragglers(c);
    pthread_mutex_unlock(&c->task->lock);
}

static void fail_training(chief *c, strata_status status, const char *message) {
    if (c->status) return;
    c->status = status;
    snprintf(c->message, sizeof c->message, "%s", message);
    pthread_cond_broadcast(&c->changed);
}

/* ---- workers come and go ---- */

static int worker_of(const chief *c, const char *task) {
    int index = -1, end = 0;
    if (sscanf(task, "worker:%d%n", &index, &end) != 1 || task[end] || index < 0 || index >= c->n_workers) return -1;
    return index;
}

static int n_there(const chief *c) {
    int n = 0;
    for (int w = 0; w < c->n_workers; w++) n += c->workers[w].came;
    return n;
}

static void lose(chief *c, int w, const char *why) {
    struct worker *own = &c->workers[w];
    own->connected = false;
    if (!own->came) return;
    own->came = false;
    own->seconds = 0;
    const int n = strata_ps_pace_lose(c->pace, w);
    if (!c->over) {
        c->task->totals.lost++;
        notice(c, "worker:%d was lost%s%s%s; %d batch%s that it had %s given to other workers", w, *why ? " (" : "", why,
               *why ? ")" : "", n, n == 1 ? "" : "es", n == 1 ? "is" : "are");
    }
    if (!n_there(c)) c->alone = strata_ps_seconds();
}

static void on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    chief *c = user;
    const int w = worker_of(c, task);
    if (w < 0) return;
    pthread_mutex_lock(&c->lock);
    struct worker *own = &c->workers[w];
    if (event == STRATA_RPC_CONNECTED) {
        own->connected = own->heard = true;
        own->incarnation = incarnation;
        own->lost_at = 0;
    } else if (own->incarnation == incarnation) {
        own->lost_at = event == STRATA_RPC_LEFT ? 0 : strata_ps_seconds();
        lose(c, w, event == STRATA_RPC_LEFT ? "it ended" : why);
    }
    update_totals(c);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void join(chief *c, int w) {
    if (c->workers[w].came) return;
    c->workers[w].came = true;
    c->alone = 0;
    strata_ps_pace_join(c->pace, w);
    if (!c->begun) return;
    c->task->totals.joined++;
    notice(c, "worker:%d has joined", w);
}

/* A worker's first call: it returns when all workers came, so that each learns of a difference between any two. */
static strata_status hello(chief *c, const strata_rpc_call *call, int w, strata_rpc_reply *reply, strata_error *err) {
    strata_error difference = {0};
    const strata_status differs = strata_ps_answer_hello(c->fit, call, &difference);
    pthread_mutex_lock(&c->lock);
    if (differs && !c->begun) fail_training(c, differs, difference.message);
    if (!differs) join(c, w);
    update_totals(c);
    pthread_cond_broadcast(&c->changed);
    while (!differs && !c->begun && !c->status && !strata_rpc_call_ended(call)) pthread_cond_wait(&c->changed, &c->lock);
    const strata_status status = differs     ? strata_fail(err, differs, "%s", difference.message)
                                 : c->status ? strata_fail(err, c->status, "%s", c->message)
                                             : STRATA_OK;
    const strata_ps_hello_reply own = {.route = c->fit->route};
    pthread_mutex_unlock(&c->lock);
    memcpy(reply->head, &own, status ? 0 : sizeof own);
    reply->head_bytes = status ? 0 : sizeof own;
    return status;
}

/* ---- a worker reports ---- */

static void add_finished(chief *c, double loss, double rate, int64_t examples) {
    if (c->n_finished == c->room) {
        const int room = c->room ? 2 * c->room : 64;
        finished_step *grown = realloc(c->finished, (size_t)room * sizeof *grown);
        if (!grown) {
            fail_training(c, STRATA_OUT_OF_MEMORY, "fit: no host memory for the list of finished steps");
            return;
        }
        c->finished = grown;
        c->room = room;
    }
    c->finished[c->n_finished++] = (finished_step){loss, rate, examples};
    c->examples += examples;
}

/* The shares that count, in their order, so that the bits do not depend on which came first. */
static void end_step(chief *c) {
    strata_ps_close close;
    int64_t counted = 0;
    double loss = 0;
    strata_ps_pace_closed(c->pace, &close);
    for (int w = 0; w < c->n_workers; w++) {
        if (!(close.counted[w / 8] >> (w % 8) & 1)) continue;
        for (int64_t i = 0; i < c->n_sums; i++) c->sums[i] += (double)c->share_sums[w * c->n_sums + i];
        loss += (double)c->share_sums[w * c->n_sums];
        counted += c->share_examples[w];
    }
    c->scale = counted && counted != c->step_examples ? (double)c->step_examples / (double)counted : 1;
    if (counted) add_finished(c, loss / (double)counted, c->step_rate, counted);
}

static void take_report(chief *c, int w, const strata_ps_next_ask *ask, const float *sums) {
    const bool empty = ask->refused || ask->overflow || (synchronous(c) && !ask->examples);
    const strata_ps_finished finished = strata_ps_pace_finish(c->pace, w, &ask->unit, empty);
    struct worker *own = &c->workers[w];
    own->seconds = own->seconds > 0 ? 0.8 * own->seconds + 0.2 * ask->seconds : ask->seconds;
    c->staleness_sum += ask->staleness_sum;
    c->n_staleness += ask->n_staleness;
    pthread_mutex_lock(&c->task->lock);
    if (ask->staleness_max > c->task->totals.staleness_max) c->task->totals.staleness_max = ask->staleness_max;
    c->task->totals.late += finished == STRATA_PS_TOO_LATE;
    c->task->totals.refused += ask->refused != 0;
    pthread_mutex_unlock(&c->task->lock);
    c->fit->history->n_skipped += ask->overflow != 0;
    if (ask->refused) {
        snprintf(c->refused, sizeof c->refused,
                 "the gradients of worker:%d at step %lld are not finite (%.90s) and were left out", w,
                 (long long)ask->unit.index + 1, ask->what);
        notice(c, "%s", c->refused);
    }
    if (finished == STRATA_PS_TOO_LATE) return;
    if (!synchronous(c)) {
        if (empty) return;
        for (int64_t i = 0; i < c->n_sums; i++) c->sums[i] += (double)sums[i];
        add_finished(c, ask->examples ? (double)sums[0] / (double)ask->examples : 0, ask->rate, ask->examples);
        return;
    }
    memcpy(c->share_sums + ask->unit.share * c->n_sums, sums, (size_t)c->n_sums * sizeof *sums);
    c->share_examples[ask->unit.share] = empty ? 0 : ask->examples;
    c->step_examples = ask->whole;
    c->step_rate = ask->rate;
    if (finished == STRATA_PS_ENDS_STEP) end_step(c);
}

/* What the worker may do now. With the lock. */
static void give(chief *c, int w, strata_ps_next_reply *reply) {
    *reply = (strata_ps_next_reply){.grant = STRATA_PS_TRAINING_OVER, .t = c->t, .route = c->fit->route};
    if (c->over) return;
    reply->epoch = c->epoch;
    reply->grant = c->begun && !c->recovering ? (int32_t)strata_ps_pace_ask(c->pace, w, &reply->unit) : (int32_t)STRATA_PS_WAIT;
    reply->has_close = synchronous(c) && strata_ps_pace_closed(c->pace, &reply->close);
    reply->close.scale = c->scale;
}

static strata_status next(chief *c, const strata_rpc_call *call, int w, strata_rpc_reply *reply, strata_error *err) {
    const double patience = 1; /* then the worker asks again, and so learns that the chief lives */
    strata_ps_next_ask ask;
    strata_ps_next_reply answer;
    if (call->head_bytes != sizeof ask || call->body_bytes != (size_t)c->n_sums * sizeof(float))
        return strata_fail(err, STRATA_INVALID, "parameter_server: %s sent a report of another size", call->task);
    memcpy(&ask, call->head, sizeof ask);
    if (ask.unit.index >= 0 && synchronous(c) && (ask.unit.share < 0 || ask.unit.share >= c->n_workers))
        return strata_fail(err, STRATA_INVALID, "parameter_server: %s reports share %d", call->task, (int)ask.unit.share);
    ask.what[sizeof ask.what - 1] = '\0';
    pthread_mutex_lock(&c->lock);
    join(c, w); /* a worker whose link was cut comes back with this call */
    if (ask.gives_back) {
        strata_ps_pace_join(c->pace, w);
        c->doubted = true;
        if (!c->recovering && !c->over) notice(c, "worker:%d gave its batches back: %.200s", w, ask.what);
        pthread_cond_broadcast(&c->changed);
    }
    if (ask.unit.index >= 0) {
        take_report(c, w, &ask, call->body);
        pthread_cond_broadcast(&c->changed);
    }
    const struct timespec deadline = strata_ps_deadline(patience);
    int waited = 0;
    for (;;) {
        if (c->status) break;
        give(c, w, &answer);
        if (answer.grant == STRATA_PS_GRANTED || answer.grant == STRATA_PS_TRAINING_OVER) break;
        if (!ask.waits || waited || strata_rpc_call_ended(call)) break;
        waited = pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
    }
    update_totals(c);
    const strata_status status = c->status ? strata_fail(err, c->status, "%s", c->message) : STRATA_OK;
    pthread_mutex_unlock(&c->lock);
    memcpy(reply->head, &answer, status ? 0 : sizeof answer);
    reply->head_bytes = status ? 0 : sizeof answer;
    return status;
}

static strata_status take_failure(chief *c, const strata_rpc_call *call, int w) {
    int32_t status = STRATA_INTERNAL;
    if (call->head_bytes == sizeof status) memcpy(&status, call->head, sizeof status);
    pthread_mutex_lock(&c->lock);
    snprintf(c->failure, sizeof c->failure, "worker:%d: %.*s", w, (int)(call->body_bytes < 400 ? call->body_bytes : 400),
             (const char *)call->body);
    c->failed = (strata_status)status;
    lose(c, w, c->failure);
    update_totals(c);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    chief *c = user;
    const int w = worker_of(c, call->task);
    if (w < 0)
        return strata_fail(err, STRATA_INVALID, "parameter_server: the chief expects worker:0 to worker:%d, not %s",
                           c->n_workers - 1, call->task);
    switch (call->method) {
        case STRATA_PS_HELLO:
            return hello(c, call, w, reply, err);
        case STRATA_PS_NEXT:
            return next(c, call, w, reply, err);
        case STRATA_PS_FAIL:
            return take_failure(c, call, w);
        default:
            return strata_fail(err, STRATA_INVALID, "parameter_server: the chief knows no method %u", call->method);
    }
}

/* ---- the start ---- */

/* "worker:1, worker:3": which have not come. */
static void list_absent(const chief *c, char *out, size_t room) {
    size_t used = 0;
    *out = '\0';
    for (int w = 0; w < c->n_workers && used < room; w++)
        if (!c->workers[w].came) used += (size_t)snprintf(out + used, room - used, "%sworker:%d", used ? ", " : "", w);
}

static strata_status wait_for_workers(chief *c, strata_error *err) {
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    char absent[256];
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&c->lock);
    while (!c->status && n_there(c) < c->n_workers && strata_ps_seconds() < until) {
        const struct timespec deadline = strata_ps_deadline(0.25);
        pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
    }
    if (!c->status && n_there(c) < c->n_workers) {
        list_absent(c, absent, sizeof absent);
        status =
            strata_fail(err, STRATA_TIMEOUT, "fit: %s did not come to the chief in %.0f s", absent, c->task->connect_seconds);
    }
    if (c->status) status = strata_fail(err, c->status, "%s", c->message);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Which start of each server has its values. */
static void note_servers(chief *c) {
    for (int s = 0; s < c->n_servers; s++) c->incarnations[s] = strata_rpc_client_server_incarnation(c->servers[s]);
}

/* ---- who has which shards ---- */

/* Out of which servers were lost. A group keeps the holder that it went on with, since only that one has all changes. PEER_LOST
 * when a group has none. */
static strata_status choose_holders(const chief *c, strata_ps_route *out_route, strata_error *err) {
    *out_route = (strata_ps_route){{0}};
    for (int g = 0; g < c->n_servers && c->task->replicas; g++) {
        const bool owner = !c->lost[g], copy = !c->lost[strata_ps_copy_server(g, c->n_servers)] && !c->cut[g];
        if (!owner && !copy)
            return strata_fail(err, STRATA_PEER_LOST, "ps:%d was lost, and no other server has all that its shards had", g);
        out_route->holders[g] = (uint8_t)(owner && copy ? STRATA_PS_BOTH : owner ? STRATA_PS_OWNER : STRATA_PS_COPY);
    }
    return STRATA_OK;
}

/* Tells all servers that are there, then workers with their next batch, who has which shards. A server that is lost meanwhile
 * is noted. */
static strata_status tell_route(chief *c, strata_error *err) {
    const double patience = 10;
    strata_ps_route route;
    int s = 0;
    if (!c->task->replicas) return STRATA_OK;
    STRATA_TRY(choose_holders(c, &route, err));
    while (s < c->n_servers) {
        const strata_rpc_ask ask = {
            .method = STRATA_PS_ROUTE, .head = &route, .head_bytes = sizeof route, .what = "who has which shards"};
        const strata_status status = c->lost[s] ? STRATA_OK : strata_rpc_client_call(c->servers[s], &ask, NULL, patience, err);
        if (status && status != STRATA_PEER_LOST && status != STRATA_TIMEOUT) return status;
        if (!status) {
            s++;
            continue;
        }
        c->lost[s] = true;
        STRATA_TRY(choose_holders(c, &route, err));
        s = 0;
    }
    pthread_mutex_lock(&c->lock);
    c->fit->route = route;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* All servers that are there get the model's values. */
static strata_status spread(chief *c, int64_t serial, strata_error *err) {
    STRATA_TRY(tell_route(c, err));
    STRATA_TRY(strata_ps_send_values(c->fit, c->servers, serial, err));
    note_servers(c);
    return STRATA_OK;
}

/* No server has anything to lose yet, so one that stands still is waited for as long as one that is not there. */
static strata_status begin(chief *c, strata_error *err) {
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    strata_status differs = STRATA_OK;
    strata_error difference = {0};
    for (int s = 0; s < c->n_servers; s++) {
        STRATA_TRY(strata_ps_connect(c->task, STRATA_TASK_PS, s, &c->servers[s], err));
        strata_status status;
        do status = strata_ps_say_hello(c->fit, c->servers[s], c->task->connect_seconds, NULL, differs ? NULL : &difference);
        while (status == STRATA_PEER_LOST && strata_ps_seconds() < until);
        if (!differs) differs = status;
    }
    if (differs) return strata_fail(err, differs, "%s", difference.message);
    STRATA_TRY(wait_for_workers(c, err));
    STRATA_TRY(spread(c, c->serial, err));
    pthread_mutex_lock(&c->lock);
    c->begun = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* ---- epochs ---- */

typedef struct loop {
    chief *c;
    strata_progress progress;
    bool stop, stop_now;
    double began, epoch_began;
} loop;

static strata_status tell(loop *l, strata_error *err) {
    const strata_fit_options *opts = l->c->fit->opts;
    if (!opts->on_progress) return STRATA_OK;
    if (!l->progress.epoch_end) l->progress.epoch_seconds = strata_ps_seconds() - l->epoch_began;
    return opts->on_progress(&l->progress, opts->user, err);
}

/* Calls the callback for each step that was finished since the last call. The lock is not held while it runs. */
static strata_status tell_finished(loop *l, strata_error *err) {
    chief *c = l->c;
    strata_history *h = c->fit->history;
    const int64_t together = c->fit->opts->steps_per_execution;
    pthread_mutex_lock(&c->lock);
    const int n = c->n_finished;
    finished_step *steps = n ? c->finished : NULL;
    if (n) c->finished = NULL, c->n_finished = c->room = 0;
    if (c->fit->opts->metrics_seconds > 0) {
        memcpy(c->fit->model->metrics.sums, c->sums, (size_t)c->n_sums * sizeof *c->sums);
        l->progress.metrics = strata_model_metrics(c->fit->model, c->examples ? c->examples : 1);
        if (!c->examples) l->progress.metrics.examples = 0;
    }
    pthread_mutex_unlock(&c->lock);
    strata_status status = STRATA_OK;
    for (int i = 0; i < n && !status; i++) {
        if (h->n_losses < (int)(sizeof h->losses / sizeof *h->losses)) h->losses[h->n_losses++] = (float)steps[i].loss;
        if (h->n_steps++ == 0) h->first_step_seconds = strata_ps_seconds() - l->began;
        l->progress.loss = steps[i].loss;
        l->progress.learning_rate = steps[i].rate;
        l->progress.step++;
        l->progress.total_step = h->n_steps;
        if (together > 1 && l->progress.step % together) continue;
        status = tell(l, err);
    }
    free(steps);
    return status;
}

/* Asks each server for a sign of life. PEER_LOST when shards are gone with a server that is lost, or started again; where a
 * copy has them, training goes on from it. */
static strata_status look_after_servers(chief *c, strata_error *err) {
    bool changed = false;
    for (int s = 0; s < c->n_servers; s++) {
        strata_ps_hello_reply reply = {0};
        if (c->lost[s]) continue;
        strata_status status = strata_ps_say_hello(c->fit, c->servers[s], c->task->connect_seconds, &reply, err);
        if (!status && strata_rpc_client_server_incarnation(c->servers[s]) != c->incarnations[s])
            status = strata_fail(err, STRATA_PEER_LOST, "ps:%d started again", s);
        if (status && (status != STRATA_PEER_LOST || !c->task->replicas)) return status;
        if (!status && (!reply.copy_failed || c->fit->route.holders[s] != STRATA_PS_BOTH)) continue;
        changed = true;
        if (status) {
            c->lost[s] = true;
            notice(c, "ps:%d was lost (%.200s); its shards go on from their copy on ps:%d", s, err->message,
                   strata_ps_copy_server(s, c->n_servers));
        } else {
            c->cut[s] = true;
        }
    }
    return changed ? tell_route(c, err) : STRATA_OK;
}

/* Waits until the epoch is over. */
static strata_status wait_for_epoch(loop *l, strata_error *err) {
    const double patience = 0.5;
    chief *c = l->c;
    double looked = strata_ps_seconds();
    for (;;) {
        strata_status status = STRATA_OK;
        pthread_mutex_lock(&c->lock);
        const bool doubted = c->doubted;
        c->doubted = false;
        pthread_mutex_unlock(&c->lock);
        if (doubted || strata_ps_seconds() - looked > patience) {
            STRATA_TRY(look_after_servers(c, err));
            looked = strata_ps_seconds();
        }
        pthread_mutex_lock(&c->lock);
        if (l->stop_now) strata_ps_pace_stop(c->pace);
        if (!c->n_finished && !strata_ps_pace_ended(c->pace) && !c->status) {
            const struct timespec deadline = strata_ps_deadline(0.1);
            pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
        }
        const bool ended = strata_ps_pace_ended(c->pace);
        if (!ended && c->alone > 0 && !c->status) {
            const double waited = strata_ps_seconds() - c->alone;
            if (c->failed) fail_training(c, c->failed, c->failure);
            if (waited > c->task->connect_seconds) {
                char text[160];
                snprintf(text, sizeof text, "fit: no worker is left, and none has come in %.0f s", waited);
                fail_training(c, STRATA_PEER_LOST, text);
            }
        }
        if (c->status) status = strata_fail(err, c->status, "%s", c->message);
        pthread_mutex_unlock(&c->lock);
        if (!status) status = tell_finished(l, err);
        if (status || ended) return status;
    }
}

/* The epoch's steps from `first` on, of which `examples` were seen before. sums: (n_sums) of the steps before. */
static void open_epoch(loop *l, int64_t first, int64_t examples, const double *sums) {
    chief *c = l->c;
    pthread_mutex_lock(&c->lock);
    memcpy(c->sums, sums, (size_t)c->n_sums * sizeof *c->sums);
    c->examples = examples;
    c->n_finished = 0;
    c->t = c->fit->model->optimizer_steps - first;
    c->epoch = l->progress.epoch;
    c->recovering = false;
    l->progress.step = first;
    l->progress.steps = c->fit->n_steps;
    l->progress.epoch_end = false;
    l->progress.metrics = l->progress.validation = (strata_metrics){0};
    strata_ps_pace_begin(c->pace, ++c->serial, first, c->fit->n_steps);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Waits for a server that was lost to start again, and gives all servers the values from before the epoch. */
static strata_status recover(loop *l, int64_t first, strata_status lost, strata_error *err) {
    chief *c = l->c;
    strata_history *h = c->fit->history;
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    strata_error found = {0};
    const int64_t repeated = l->progress.step - first;
    snprintf(found.message, sizeof found.message, "%s", err->message);
    pthread_mutex_lock(&c->lock);
    c->recovering = true;
    notice(c, "a server was lost (%.200s); it is waited for", found.message);
    pthread_mutex_unlock(&c->lock);
    STRATA_TRY(tell(l, err));
    for (int s = 0; s < c->n_servers; s++) {
        strata_status status = STRATA_PEER_LOST;
        while (status == STRATA_PEER_LOST && strata_ps_seconds() < until)
            status = strata_ps_say_hello(c->fit, c->servers[s], c->task->connect_seconds, NULL, &found);
        if (status == STRATA_PEER_LOST)
            return strata_fail(err, lost, "fit: ps:%d was lost and did not start again in %.0f s (%s)", s,
                               c->task->connect_seconds, found.message);
        if (status) return strata_fail(err, status, "%s", found.message);
    }
    memset(c->lost, 0, (size_t)c->n_servers * sizeof *c->lost);
    memset(c->cut, 0, (size_t)c->n_servers * sizeof *c->cut);
    STRATA_TRY(spread(c, c->serial + 1, err));
    h->n_steps -= repeated;
    if (h->n_losses > h->n_steps) h->n_losses = (int)h->n_steps;
    pthread_mutex_lock(&c->lock);
    notice(c, "the servers have the parameters of before step %lld of epoch %d again; %lld steps are repeated",
           (long long)first + 1, l->progress.epoch + 1, (long long)repeated);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* With replicas: before an epoch the servers that were lost and are there again get the model's values, and copies are whole
 * again. */
static strata_status take_back(chief *c, strata_error *err) {
    bool any = false;
    for (int s = 0; s < c->n_servers; s++) {
        any |= c->cut[s];
        c->cut[s] = false;
        if (!c->lost[s] || !strata_rpc_client_connected(c->servers[s])) continue;
        if (strata_ps_say_hello(c->fit, c->servers[s], 1, NULL, NULL)) continue;
        c->lost[s] = false;
        any = true;
        notice(c, "ps:%d is there again, and gets its shards", s);
    }
    return any ? spread(c, c->serial + 1, err) : STRATA_OK;
}

/* Brings the parameters to the model. */
static strata_status fetch(chief *c, strata_error *err) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    strata_ps_close close;
    pthread_mutex_lock(&c->lock);
    const bool closed = synchronous(c) && strata_ps_pace_closed(c->pace, &close);
    close.scale = c->scale;
    pthread_mutex_unlock(&c->lock);
    for (;;) {
        const strata_status status = strata_ps_fetch_values(c->fit, c->servers, closed ? &close : NULL, err);
        if (status != STRATA_PEER_LOST || !c->task->replicas || strata_ps_seconds() > until) return status;
        STRATA_TRY(look_after_servers(c, err));
        nanosleep(&pause, NULL);
    }
}

/* Runs the steps, and brings the parameters to the model. */
static strata_status run_steps(loop *l, int64_t first, int64_t examples, const double *sums, strata_error *err) {
    chief *c = l->c;
    for (;;) {
        l->progress.step = first;
        strata_status status = take_back(c, err);
        if (!status) {
            open_epoch(l, first, examples, sums);
            status = wait_for_epoch(l, err);
        }
        if (!status) status = fetch(c, err);
        pthread_mutex_lock(&c->lock);
        const bool lost = status == STRATA_PEER_LOST && !c->status; /* else it is the workers that are lost */
        pthread_mutex_unlock(&c->lock);
        if (!lost) return status;
        STRATA_TRY(recover(l, first, status, err));
    }
}

static strata_status run_epoch(loop *l, int64_t first, strata_error *err) {
    chief *c = l->c;
    strata_model *model = c->fit->model;
    double *sums = calloc((size_t)c->n_sums, sizeof *sums);
    if (!sums) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for the metrics' sums");
    if (first) memcpy(sums, model->metrics.sums, (size_t)c->n_sums * sizeof *sums); /* the epoch goes on after a stop */
    const int64_t before = first ? model->position.examples : 0;
    model->position = (strata_model_position){0};
    const strata_status status = run_steps(l, first, before, sums, err);
    free(sums);
    if (status) return status;
    pthread_mutex_lock(&c->lock);
    const int64_t steps = strata_ps_pace_steps(c->pace), examples = c->examples;
    memcpy(model->metrics.sums, c->sums, (size_t)c->n_sums * sizeof *c->sums);
    pthread_mutex_unlock(&c->lock);
    if (!examples && !l->stop_now)
        return strata_fail(err, STRATA_DATA, "fit: no gradients of epoch %d were finite; %s", l->progress.epoch + 1,
                           c->refused);
    STRATA_TRY(strata_model_write_sums(model, err));
    if (examples) l->progress.metrics = strata_model_metrics(model, examples);
    if (steps < c->fit->n_steps) { /* stopped within the epoch */
        model->position = (strata_model_position){steps, examples};
        c->fit->history->stopped = true;
    }
    return STRATA_OK;
}

static strata_status end_epoch(loop *l, strata_error *err) {
    chief *c = l->c;
    strata_progress *p = &l->progress;
    strata_history *h = c->fit->history;
    p->epoch_end = true;
    p->epoch_seconds = strata_ps_seconds() - l->epoch_began;
    STRATA_TRY(strata_validation_run(c->fit->model, c->fit->opts, p->epoch, &p->validation, &l->stop, err));
    h->epochs[h->n_epochs] = p->metrics;
    h->epoch_seconds[h->n_epochs] = p->epoch_seconds;
    if (h->validation) h->validation[h->n_epochs] = p->validation;
    h->n_epochs++;
    return tell(l, err);
}

static strata_status run_epochs(chief *c, strata_error *err) {
    const strata_fit_options *opts = c->fit->opts;
    loop l = {.c = c, .began = strata_ps_seconds()};
    l.progress = (strata_progress){.epochs = opts->epochs, .stop = &l.stop, .stop_now = &l.stop_now};
    int64_t first = opts->first_step;
    for (l.progress.epoch = opts->first_epoch; l.progress.epoch < opts->epochs && !l.stop; l.progress.epoch++, first = 0) {
        l.epoch_began = strata_ps_seconds();
        STRATA_TRY(run_epoch(&l, first, err));
        if (c->fit->history->stopped) return STRATA_OK;
        STRATA_TRY(end_epoch(&l, err));
    }
    c->fit->history->best_epoch = (int)c->fit->model->best.epochs - 1;
    STRATA_TRY(strata_validation_restore(c->fit->model, opts, err));
    return STRATA_OK;
}

/* ---- the whole ---- */

/* Workers fetch the parameters and leave; those that do not are not waited for longer than that. A worker whose connection
 * broke just now, perhaps as this process stood still, may come back for them. Where training does not begin each is to hear
 * why, also one that comes late. */
static void dismiss_workers(chief *c, strata_status status, const char *message) {
    const double now = strata_ps_seconds(), until = now + 10, heard_until = now + 5, back_within = 2;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    if (status) fail_training(c, status, message);
    pthread_cond_broadcast(&c->changed);
    for (;;) {
        bool any = false;
        const bool waits = !c->begun && strata_ps_seconds() < heard_until;
        for (int w = 0; w < c->n_workers; w++) {
            const struct worker *own = &c->workers[w];
            any |= own->connected || (waits && !own->heard);
            any |= own->lost_at > 0 && strata_ps_seconds() < own->lost_at + back_within;
        }
        if (!any || strata_ps_seconds() > until) break;
        const struct timespec deadline = strata_ps_deadline(0.1);
        pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
    }
    pthread_mutex_unlock(&c->lock);
}

static strata_status make(chief *c, strata_error *err) {
    c->servers = calloc((size_t)c->n_servers, sizeof(*c->servers));
    c->incarnations = calloc((size_t)c->n_servers, sizeof *c->incarnations);
    c->lost = calloc((size_t)c->n_servers, sizeof *c->lost);
    c->cut = calloc((size_t)c->n_servers, sizeof *c->cut);
    c->workers = calloc((size_t)c->n_workers, sizeof *c->workers);
    c->sums = calloc((size_t)c->n_sums, sizeof *c->sums);
    c->share_sums = calloc((size_t)(c->n_workers * c->n_sums), sizeof *c->share_sums);
    c->share_examples = calloc((size_t)c->n_workers, sizeof *c->share_examples);
    if (!c->servers || !c->incarnations || !c->lost || !c->cut || !c->workers || !c->sums || !c->share_sums ||
        !c->share_examples)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", c->n_workers);
    return strata_ps_pace_create(&c->task->pace, &c->pace, err);
}

static void finish(chief *c) {
    for (int s = 0; c->servers && s < c->n_servers; s++) strata_rpc_client_destroy(c->servers[s]);
    strata_ps_pace_destroy(c->pace);
    free(c->servers);
    free(c->incarnations);
    free(c->lost);
    free(c->cut);
    free(c->workers);
    free(c->sums);
    free(c->share_sums);
    free(c->share_examples);
    free(c->finished);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

strata_status strata_ps_fit_chief(strata_ps_fit *fit, strata_error *err) {
    chief c = {.fit = fit,
               .task = fit->task,
               .n_servers = fit->plan.n_servers,
               .n_workers = fit->task->pace.n_workers,
               .n_sums = fit->model->metrics.n_sums,
               .serial = (int64_t)fit->task->incarnation,
               .scale = 1};
    strata_rpc_server *rpc = NULL;
    strata_error own = {0};
    pthread_mutex_init(&c.lock, NULL);
    strata_ps_cond_init(&c.changed);
    strata_status status = make(&c, &own);
    if (!status && !fit->opts->first_step) fit->model->position = (strata_model_position){0};
    if (!status) status = strata_validation_begin(fit->model, fit->opts, &own);
    if (!status) status = strata_ps_listen(fit->task, handle, on_peer, &c, &rpc, &own);
    if (!status) status = begin(&c, &own);
    if (!status) status = run_epochs(&c, &own);
    if (rpc) dismiss_workers(&c, status, own.message);
    if (c.servers) strata_ps_dismiss_servers(fit, c.servers, status, own.message);
    strata_rpc_server_destroy(rpc);
    if (!status && !fit->history->stopped) strata_validation_forget(fit->model);
    finish(&c);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}
