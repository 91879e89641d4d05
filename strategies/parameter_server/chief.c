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

#include "strategies/parameter_server/load.h"
#include "strategies/parameter_server/task.h"

/* A step that is finished, for the callback. */
typedef struct finished_step {
    double loss, rate, norm;
    int64_t examples;
} finished_step;

typedef struct chief {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_ps_watch watch;
    int n_workers;
    int64_t n_sums;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Everything from here on is under the lock. */
    strata_ps_pace *pace;
    /* The validation data are evaluated: the leases of their batches, each one's sums (n_visits, n_sums) and examples
     * [n_visits]. */
    bool evaluating;
    strata_ps_pace *visits;
    float *visit_sums;
    int64_t *visit_examples;
    /* [n_workers] What is known of each. */
    struct worker {
        /* Its connection; its terms are those of the chief; it was connected at some time. */
        bool connected, came, heard;
        uint64_t incarnation;
        /* Seconds of its steps, a moving mean. */
        double seconds;
        /* When its last call was answered: since then it has been at its step. */
        double answered;
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
    /* Steps of the epoch that made no update, as their gradients were not finite. */
    int64_t n_left_out;
    float *share_sums;
    int64_t *share_examples, step_examples;
    double step_rate;
    /* Of the last synchronous step; its learning rate as in strata_ps_close. */
    double scale, closed_rate;
    /* The learning rate that was set in place of the schedule's, as in strata_ps_gradients. */
    double rate;
    /* The callback is told of steps: with wait_each_step no unit is given. It waits for those that were given. */
    bool telling, settling;
    finished_step *finished;
    int n_finished, room;
    /* Of the training and of the epoch: what the means of their loads are made of. */
    strata_ps_load_sums training, epoch_sums;
    /* What workers pushed and pulled, for how many units. */
    int64_t bytes, n_units;
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

/* Seconds of a worker's step: the mean, or those of the step that it is at, where that takes longer already. */
static double step_seconds(const chief *c, int w) {
    const struct worker *own = &c->workers[w];
    const bool computes = strata_ps_pace_started(c->pace, w) > strata_ps_pace_clock(c->pace, w);
    const double since = computes && own->seconds > 0 ? strata_ps_seconds() - own->answered : 0;
    return since > own->seconds ? since : own->seconds;
}

static void note(void *user, const char *text) {
    notice(user, "%s", text);
}

static void take_route(void *user, const strata_ps_route *route) {
    chief *c = user;
    pthread_mutex_lock(&c->lock);
    c->fit->route = *route; /* workers learn it with their next batch */
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void update_totals(chief *c) {
    strata_parameter_server_totals *totals = &c->task->totals;
    pthread_mutex_lock(&c->task->lock);
    totals->present = 0;
    for (int w = 0; w < c->n_workers; w++) {
        totals->present += c->workers[w].came;
        c->task->workers[w].present = c->workers[w].came;
        if (!c->over) c->task->workers[w].step_seconds = step_seconds(c, w);
    }
    totals->spread = strata_ps_pace_spread(c->pace);
    totals->running = strata_ps_pace_running(c->pace);
    totals->waiting = strata_ps_pace_returned(c->pace);
    totals->bytes_per_step = c->n_units ? (double)c->bytes / (double)c->n_units : 0;
    if (!c->over) strata_ps_load_find_stragglers(c->task->workers, c->n_workers, totals);
    pthread_mutex_unlock(&c->task->lock);
}

/* After update_totals. */
static void note_leases(chief *c) {
    strata_parameter_server_totals *totals = &c->task->totals;
    strata_trace_add_counter(c->fit->trace, "queue depth", totals->running, strata_trace_now());
    pthread_mutex_lock(&c->task->lock);
    strata_ps_load_add_leases(&totals->training, &c->training, totals->running);
    strata_ps_load_add_leases(&totals->epoch, &c->epoch_sums, totals->running);
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
    if (!c->over) own->seconds = 0;
    const int n = strata_ps_pace_lose(c->pace, w) + strata_ps_pace_lose(c->visits, w);
    if (!c->over && !c->status) { /* else it ends as all tasks do */
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
    strata_ps_pace_join(c->visits, w);
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

static void add_finished(chief *c, double loss, double rate, double norm, int64_t examples) {
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
    c->finished[c->n_finished++] = (finished_step){loss, rate, norm, examples};
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
    c->closed_rate = c->rate;
    c->n_left_out += !counted;
    if (counted) add_finished(c, loss / (double)counted, c->step_rate, 0, counted);
}

static void take_report(chief *c, int w, const strata_ps_next_ask *ask, const float *sums) {
    const bool empty = ask->refused || ask->overflow || (synchronous(c) && !ask->examples);
    const strata_ps_finished finished = strata_ps_pace_finish(c->pace, w, &ask->unit, empty);
    struct worker *own = &c->workers[w];
    own->seconds = own->seconds > 0 ? 0.8 * own->seconds + 0.2 * ask->seconds : ask->seconds;
    if (ask->n_staleness)
        strata_trace_add_counter(c->fit->trace, "staleness", (double)ask->staleness_sum / (double)ask->n_staleness,
                                 strata_trace_now());
    c->bytes += ask->bytes;
    c->n_units++;
    pthread_mutex_lock(&c->task->lock);
    strata_ps_load_add_staleness(&c->task->totals.training, &c->training, ask);
    strata_ps_load_add_staleness(&c->task->totals.epoch, &c->epoch_sums, ask);
    c->task->totals.late += finished == STRATA_PS_TOO_LATE;
    c->task->totals.refused += ask->refused != 0;
    if (finished != STRATA_PS_TOO_LATE && !empty) {
        strata_parameter_server_worker *counted = &c->task->workers[w];
        counted->steps++;
        counted->epoch_steps++;
        counted->examples += ask->examples;
        counted->epoch_examples += ask->examples;
    }
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
        c->n_left_out += empty;
        if (empty) return;
        for (int64_t i = 0; i < c->n_sums; i++) c->sums[i] += (double)sums[i];
        add_finished(c, ask->examples ? (double)sums[0] / (double)ask->examples : 0, ask->rate, ask->norm, ask->examples);
        return;
    }
    memcpy(c->share_sums + ask->unit.share * c->n_sums, sums, (size_t)c->n_sums * sizeof *sums);
    c->share_examples[ask->unit.share] = empty ? 0 : ask->examples;
    c->step_examples = ask->whole;
    c->step_rate = ask->rate;
    if (finished == STRATA_PS_ENDS_STEP) end_step(c);
}

/* The end of the last synchronous step, for servers; false: there is none. With the lock. */
static bool last_close(const chief *c, strata_ps_close *out_close) {
    const bool closed = synchronous(c) && strata_ps_pace_closed(c->pace, out_close);
    out_close->scale = c->scale;
    out_close->rate = c->closed_rate;
    out_close->square = -1;
    return closed;
}

/* What the worker may do now; ahead: it computes another unit. With the lock. */
static void give(chief *c, int w, bool ahead, strata_ps_next_reply *reply) {
    const bool told = !c->fit->opts->wait_each_step || c->settling || (!c->n_finished && !c->telling && !ahead);
    *reply = (strata_ps_next_reply){.grant = STRATA_PS_TRAINING_OVER, .t = c->t, .rate = c->rate, .route = c->fit->route};
    if (c->over) return;
    reply->epoch = c->epoch;
    reply->has_close = last_close(c, &reply->close);
    if (c->evaluating) {
        reply->evaluates = true;
        reply->grant = (int32_t)strata_ps_pace_ask(c->visits, w, &reply->unit);
        return;
    }
    reply->grant =
        c->begun && !c->recovering && told ? (int32_t)strata_ps_pace_ask(c->pace, w, &reply->unit) : (int32_t)STRATA_PS_WAIT;
}

/* A batch of the validation data. Who is second with it does not count. */
static void take_visit(chief *c, int w, const strata_ps_next_ask *ask, const float *sums) {
    const int64_t index = ask->unit.index;
    if (!c->evaluating || strata_ps_pace_finish(c->visits, w, &ask->unit, false) == STRATA_PS_TOO_LATE) return;
    memcpy(c->visit_sums + index * c->n_sums, sums, (size_t)c->n_sums * sizeof *sums);
    c->visit_examples[index] = ask->examples;
}

static strata_status next(chief *c, const strata_rpc_call *call, int w, strata_rpc_reply *reply, strata_error *err) {
    const double patience = 1; /* then the worker asks again, and so learns that the chief lives */
    strata_ps_next_ask ask;
    strata_ps_next_reply answer;
    if (call->head_bytes != sizeof ask || call->body_bytes != (size_t)c->n_sums * sizeof(float))
        return strata_fail(err, STRATA_INVALID, "parameter_server: %s sent a report of another size", call->task);
    memcpy(&ask, call->head, sizeof ask);
    if (ask.unit.index >= 0 && !ask.evaluates && synchronous(c) && (ask.unit.share < 0 || ask.unit.share >= c->n_workers))
        return strata_fail(err, STRATA_INVALID, "parameter_server: %s reports share %d", call->task, (int)ask.unit.share);
    ask.what[sizeof ask.what - 1] = '\0';
    pthread_mutex_lock(&c->lock);
    join(c, w); /* a worker whose link was cut comes back with this call */
    if (ask.gives_back) {
        strata_ps_pace_join(c->pace, w);
        strata_ps_pace_join(c->visits, w);
        c->doubted = true;
        if (!c->recovering && !c->over) notice(c, "worker:%d gave its batches back: %.200s", w, ask.what);
        pthread_cond_broadcast(&c->changed);
    }
    if (ask.unit.index >= 0) {
        (ask.evaluates ? take_visit : take_report)(c, w, &ask, call->body);
        pthread_cond_broadcast(&c->changed);
    }
    const struct timespec deadline = strata_ps_deadline(patience);
    int waited = 0;
    for (;;) {
        if (c->status) break;
        give(c, w, !ask.waits, &answer);
        if (answer.grant == STRATA_PS_GRANTED || answer.grant == STRATA_PS_TRAINING_OVER) break;
        if (!ask.waits || waited || strata_rpc_call_ended(call)) break;
        waited = pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
    }
    c->workers[w].answered = strata_ps_seconds();
    update_totals(c);
    note_leases(c);
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

/* A task that is none of the cluster's workers as the chief knows it. At the start that ends all tasks: two of them were told
 * of different clusters. Later it is only sent away. */
static strata_status refuse_stranger(chief *c, const strata_rpc_call *call, strata_error *err) {
    strata_error own = {0};
    strata_status status = call->method == STRATA_PS_HELLO ? strata_ps_answer_hello(c->fit, call, &own) : STRATA_OK;
    if (!status)
        status = strata_fail(&own, STRATA_INVALID, "parameter_server: %s expects worker:0 to worker:%d, not %s", c->task->name,
                             c->n_workers - 1, call->task);
    pthread_mutex_lock(&c->lock);
    if (!c->begun) fail_training(c, status, own.message);
    pthread_mutex_unlock(&c->lock);
    return strata_fail(err, status, "%s", own.message);
}

static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    chief *c = user;
    const int w = worker_of(c, call->task);
    if (w < 0) return refuse_stranger(c, call, err);
    switch (call->method) {
        case STRATA_PS_HELLO:
            return hello(c, call, w, reply, err);
        case STRATA_PS_NEXT: {
            const double began = strata_trace_now();
            const strata_status status = next(c, call, w, reply, err);
            if (c->fit->trace)
                strata_trace_add_named(c->fit->trace, strata_trace_thread_track(c->fit->trace, call->task), "wait for a batch",
                                       (int64_t)call->sequence, began, strata_trace_now());
            return status;
        }
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

static strata_status wait_for_workers(chief *c, strata_rpc_server *rpc, strata_error *err) {
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
        status = strata_fail(err, STRATA_TIMEOUT, "fit: %s did not come to the chief in %.0f s%s", absent,
                             c->task->connect_seconds, strata_rpc_server_refused(rpc).text);
    }
    if (c->status) status = strata_fail(err, c->status, "%s", c->message);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Gives all servers the values of the chief's model, and waits until then for those that do not answer. */
static strata_status spread_when_there(chief *c, int64_t serial, double until, strata_error *err) {
    const double began = strata_ps_seconds();
    strata_error found = {0};
    strata_status status;
    do {
        for (int s = 0; s < c->watch.n; s++) {
            do {
                const double left = until - strata_ps_seconds();
                status = strata_ps_say_hello(c->fit, c->watch.clients[s], left > 1 ? left : 1, NULL, &found);
            } while (status == STRATA_PEER_LOST && strata_ps_seconds() < until);
            if (status == STRATA_PEER_LOST)
                return strata_fail(err, status, "fit: ps:%d was lost and did not start again in %.0f s (%s)", s, until - began,
                                   found.message);
            if (status) return strata_fail(err, status, "%s", found.message);
        }
        strata_ps_watch_forget(&c->watch);
        status = strata_ps_watch_spread(&c->watch, serial, err);
    } while (status == STRATA_PEER_LOST && strata_ps_seconds() < until);
    return status;
}

static strata_status begin(chief *c, strata_rpc_server *rpc, strata_error *err) {
    STRATA_TRY(strata_ps_watch_meet(&c->watch, err));
    STRATA_TRY(wait_for_workers(c, rpc, err));
    strata_status status = strata_ps_watch_spread(&c->watch, c->serial, err);
    if (status == STRATA_PEER_LOST) /* its link broke, or it started again: it has nothing to lose yet */
        status = spread_when_there(c, c->serial, strata_ps_seconds() + c->task->connect_seconds, err);
    if (status) return status;
    pthread_mutex_lock(&c->lock);
    c->begun = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* ---- epochs ---- */

typedef struct strata_ps_loop {
    chief *c;
    strata_progress progress;
    bool stop, stop_now;
    /* Until the callback returns nothing new is given. */
    bool paused;
    /* Where the model of the chief stands within the epoch: at the steps that were done before, or at those that it got for a
     * file that was saved. From there on steps are repeated when a server was lost. */
    struct {
        int64_t step, examples, t;
        /* (n_sums) */
        double *sums;
    } base;
    /* That happens now. */
    bool stands;
    double began, epoch_began;
} loop;

/* Training goes on where the callback had it wait for something that it saved. */
static void go_on(loop *l) {
    chief *c = l->c;
    if (!l->paused) return;
    l->paused = false;
    c->fit->model->position = (strata_model_position){0};
    pthread_mutex_lock(&c->lock);
    c->settling = false;
    strata_ps_pace_go_on(c->pace);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static strata_status tell(loop *l, strata_error *err) {
    const strata_fit_options *opts = l->c->fit->opts;
    strata_model *model = l->c->fit->model;
    if (!opts->on_progress) return STRATA_OK;
    if (!l->progress.epoch_end) l->progress.epoch_seconds = strata_ps_seconds() - l->epoch_began;
    /* Workers may be at the next synchronous step already. At their own pace a rate is that of later batches. */
    model->rate.locked = synchronous(l->c) && !l->progress.epoch_end && !opts->wait_each_step;
    l->c->task->loop = l;
    const strata_status status = opts->on_progress(&l->progress, opts->user, err);
    l->c->task->loop = NULL;
    model->rate.locked = false;
    go_on(l);
    pthread_mutex_lock(&l->c->lock);
    l->c->rate = model->rate.own;
    pthread_mutex_unlock(&l->c->lock);
    return status;
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
    c->telling = n > 0;
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
        l->progress.gradient_norm = steps[i].norm;
        l->progress.step++;
        l->progress.total_step = h->n_steps;
        c->fit->model->optimizer_steps = c->t + l->progress.step;
        if (together > 1 && l->progress.step % together) continue;
        status = tell(l, err);
    }
    free(steps);
    pthread_mutex_lock(&c->lock);
    c->telling = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* What a server has told of its queues. */
static void note_queue(void *user, const strata_ps_hello_reply *reply) {
    chief *c = user;
    pthread_mutex_lock(&c->task->lock);
    strata_ps_load_add_queue(&c->task->totals.training, reply);
    strata_ps_load_add_queue(&c->task->totals.epoch, reply);
    pthread_mutex_unlock(&c->task->lock);
}

/* Why the training cannot go on while units are waited for. With the lock. */
static strata_status check_training(chief *c, bool ended, strata_error *err) {
    if (!ended && c->alone > 0 && !c->status) {
        const double waited = strata_ps_seconds() - c->alone;
        if (c->failed) fail_training(c, c->failed, c->failure);
        if (waited > c->task->connect_seconds) {
            char text[160];
            snprintf(text, sizeof text, "fit: no worker is left, and none has come in %.0f s", waited);
            fail_training(c, STRATA_PEER_LOST, text);
        }
    }
    return c->status ? strata_fail(err, c->status, "%s", c->message) : STRATA_OK;
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
            STRATA_TRY(strata_ps_watch_look(&c->watch, err));
            looked = strata_ps_seconds();
        }
        pthread_mutex_lock(&c->lock);
        if (l->stop_now) strata_ps_pace_stop(c->pace);
        if (!c->n_finished && !strata_ps_pace_ended(c->pace) && !c->status) {
            const struct timespec deadline = strata_ps_deadline(0.1);
            pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
        }
        const bool ended = strata_ps_pace_ended(c->pace);
        status = check_training(c, ended, err);
        pthread_mutex_unlock(&c->lock);
        if (!status) status = tell_finished(l, err);
        if (!status && ended) status = strata_ps_watch_look(&c->watch, err); /* an epoch may be shorter than the patience */
        if (status || ended) return status;
    }
}

/* The numbers of an epoch begin at 0. */
static void forget_epoch(chief *c) {
    c->epoch_sums = (strata_ps_load_sums){0};
    pthread_mutex_lock(&c->task->lock);
    c->task->totals.epoch = (strata_parameter_server_load){0};
    for (int w = 0; w < c->n_workers; w++) c->task->workers[w].epoch_steps = c->task->workers[w].epoch_examples = 0;
    pthread_mutex_unlock(&c->task->lock);
}

/* The epoch's steps from where the model stands. */
static void open_epoch(loop *l) {
    chief *c = l->c;
    const int64_t first = l->base.step;
    pthread_mutex_lock(&c->lock);
    memcpy(c->sums, l->base.sums, (size_t)c->n_sums * sizeof *c->sums);
    c->examples = l->base.examples;
    c->n_left_out = 0;
    c->n_finished = 0;
    c->t = c->fit->model->optimizer_steps - first;
    c->epoch = l->progress.epoch;
    c->recovering = false;
    l->progress.step = first;
    l->progress.steps = c->fit->n_steps;
    l->progress.epoch_end = false;
    l->progress.metrics = l->progress.validation = (strata_metrics){0};
    forget_epoch(c);
    strata_ps_pace_begin(c->pace, ++c->serial, first, c->fit->n_steps);
    if (l->stop_now) strata_ps_pace_stop(c->pace); /* asked for between epochs: no step of this one is begun */
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Waits for a server that was lost to start again, and gives all servers the values from before the epoch. */
static strata_status recover(loop *l, strata_error *err) {
    chief *c = l->c;
    strata_history *h = c->fit->history;
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    const int64_t first = l->base.step, repeated = l->progress.step - first;
    pthread_mutex_lock(&c->lock);
    c->recovering = true;
    notice(c, "a server was lost (%.200s); it is waited for", err->message);
    pthread_mutex_unlock(&c->lock);
    strata_model *model = c->fit->model;
    model->optimizer_steps = l->base.t; /* as its parameters are */
    memcpy(model->metrics.sums, l->base.sums, (size_t)c->n_sums * sizeof *l->base.sums);
    if (l->base.step) model->position = (strata_model_position){.steps = l->base.step, .examples = l->base.examples};
    l->stands = true;
    STRATA_TRY(tell(l, err));
    l->stands = false;
    model->position = (strata_model_position){0};
    STRATA_TRY(spread_when_there(c, c->serial + 1, until, err));
    h->n_steps -= repeated;
    if (h->n_losses > h->n_steps) h->n_losses = (int)h->n_steps;
    pthread_mutex_lock(&c->lock);
    notice(c, "the servers have the parameters of before step %lld of epoch %d again; %lld steps are repeated",
           (long long)first + 1, l->progress.epoch + 1, (long long)(repeated > 0 ? repeated : 0));
    pthread_mutex_unlock(&c->lock);
    return STRATA_OK;
}

/* Brings the parameters to the model. */
static strata_status fetch_values(chief *c, strata_error *err) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    strata_ps_close close;
    pthread_mutex_lock(&c->lock);
    const bool closed = last_close(c, &close);
    pthread_mutex_unlock(&c->lock);
    for (;;) {
        const strata_status status = strata_ps_fetch_values(c->fit, c->watch.clients, closed ? &close : NULL, err);
        if (status != STRATA_PEER_LOST || !c->task->replicas || strata_ps_seconds() > until) return status;
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        nanosleep(&pause, NULL);
    }
}

/* A slice of the trace, on the track of the fit's thread, from `began` until now. */
static void trace_slice(const chief *c, const char *name, double began) {
    if (c->fit->trace) strata_trace_add_named(c->fit->trace, STRATA_TRACE_HOST, name, c->epoch, began, strata_trace_now());
}

static strata_status fetch(chief *c, strata_error *err) {
    const double began = strata_trace_now();
    const strata_status status = fetch_values(c, err);
    trace_slice(c, "fetch parameters", began);
    return status;
}

/* Runs the steps, and brings the parameters to the model. */
static strata_status run_steps(loop *l, strata_error *err) {
    chief *c = l->c;
    for (;;) {
        l->progress.step = l->base.step;
        strata_status status = strata_ps_watch_take_back(&c->watch, c->serial + 1, err);
        if (!status) {
            open_epoch(l);
            const double began = strata_trace_now();
            status = wait_for_epoch(l, err);
            trace_slice(c, "steps of an epoch", began);
        }
        if (!status) status = fetch(c, err);
        pthread_mutex_lock(&c->lock);
        const bool lost = status == STRATA_PEER_LOST && !c->status; /* else it is the workers that are lost */
        pthread_mutex_unlock(&c->lock);
        if (!lost) return status;
        STRATA_TRY(recover(l, err));
    }
}

static strata_status run_epoch(loop *l, int64_t first, strata_error *err) {
    chief *c = l->c;
    strata_model *model = c->fit->model;
    double *sums = calloc((size_t)c->n_sums, sizeof *sums);
    if (!sums) return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for the metrics' sums");
    if (first) memcpy(sums, model->metrics.sums, (size_t)c->n_sums * sizeof *sums); /* the epoch goes on after a stop */
    l->base.step = first;
    l->base.examples = first ? model->position.examples : 0;
    l->base.t = model->optimizer_steps;
    l->base.sums = sums;
    model->position = (strata_model_position){0};
    const strata_status status = run_steps(l, err);
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
        model->position = (strata_model_position){.steps = steps, .examples = examples};
        c->fit->history->stopped = true;
    }
    return STRATA_OK;
}

/* ---- validation ---- */

/* Waits until workers have evaluated all batches; false: they cannot, as no worker is left or a server was lost. */
static strata_status wait_for_visits(chief *c, bool *out_done, strata_error *err) {
    const double patience = 0.5;
    double looked = strata_ps_seconds();
    *out_done = false;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const struct timespec deadline = strata_ps_deadline(0.1);
        if (!strata_ps_pace_ended(c->visits) && !c->status && n_there(c))
            pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
        const bool there = n_there(c) > 0, doubted = c->doubted;
        const strata_status status = c->status ? strata_fail(err, c->status, "%s", c->message) : STRATA_OK;
        *out_done = strata_ps_pace_ended(c->visits);
        c->doubted = false;
        pthread_mutex_unlock(&c->lock);
        if (status || *out_done || !there) return status;
        if (!doubted && strata_ps_seconds() - looked < patience) continue;
        if (strata_ps_watch_look(&c->watch, err)) return STRATA_OK; /* the next epoch finds out what can be done */
        looked = strata_ps_seconds();
    }
}

static strata_status evaluate_on_workers(chief *c, bool *out_done, strata_error *err) {
    pthread_mutex_lock(&c->lock);
    strata_ps_pace_begin(c->visits, ++c->serial, 0, c->fit->n_visits);
    c->evaluating = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    const strata_status status = wait_for_visits(c, out_done, err);
    pthread_mutex_lock(&c->lock);
    c->evaluating = false;
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* The validation data's metrics: workers evaluate a batch each, and every batch counts once. The sums are added in the order of
 * the batches, so they are those of one device. Where workers cannot, the chief, which has the parameters, evaluates alone. */
static strata_status evaluate(chief *c, strata_metrics *out_metrics, strata_error *err) {
    strata_model *model = c->fit->model;
    const strata_fit_options *opts = c->fit->opts;
    int64_t examples = 0;
    bool done = false;
    if (c->fit->n_visits) STRATA_TRY(evaluate_on_workers(c, &done, err));
    if (!done) return strata_model_evaluate(model, opts->validation, opts->batch, out_metrics, err);
    memset(model->metrics.sums, 0, (size_t)c->n_sums * sizeof *model->metrics.sums);
    for (int64_t b = 0; b < c->fit->n_visits; b++) {
        for (int64_t i = 0; i < c->n_sums; i++) model->metrics.sums[i] += (double)c->visit_sums[b * c->n_sums + i];
        examples += c->visit_examples[b];
    }
    *out_metrics = strata_model_metrics(model, examples);
    return STRATA_OK;
}

static strata_status validate(loop *l, strata_error *err) {
    const strata_fit_options *opts = l->c->fit->opts;
    strata_progress *p = &l->progress;
    if (!opts->validation) return STRATA_OK;
    STRATA_TRY(evaluate(l->c, &p->validation, err));
    return strata_validation_take(l->c->fit->model, opts, p->epoch, &p->validation, &l->stop, err);
}

static strata_status end_epoch(loop *l, strata_error *err) {
    chief *c = l->c;
    strata_progress *p = &l->progress;
    strata_history *h = c->fit->history;
    p->epoch_end = true;
    p->epoch_seconds = strata_ps_seconds() - l->epoch_began;
    const double began = strata_trace_now();
    STRATA_TRY(validate(l, err));
    if (c->fit->opts->validation) trace_slice(c, "validation", began);
    h->epochs[h->n_epochs] = p->metrics;
    h->epoch_seconds[h->n_epochs] = p->epoch_seconds;
    if (h->validation) h->validation[h->n_epochs] = p->validation;
    h->n_epochs++;
    return tell(l, err);
}

/* ---- saving within an epoch ---- */

/* Waits until all that was given is finished; nothing new is given before the callback returns. Batches are given in their
 * order, so what is finished then are the epoch's first steps. At the end of an epoch that is so anyway. */
static strata_status pause_training(loop *l, strata_error *err) {
    const double patience = 0.5;
    chief *c = l->c;
    double looked = strata_ps_seconds();
    bool ended = l->progress.epoch_end;
    if (ended || l->paused) return STRATA_OK;
    l->paused = true;
    pthread_mutex_lock(&c->lock);
    c->settling = true;
    strata_ps_pace_stop(c->pace);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    while (!ended) {
        pthread_mutex_lock(&c->lock);
        const struct timespec deadline = strata_ps_deadline(0.1);
        if (!strata_ps_pace_ended(c->pace) && !c->status) pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
        ended = strata_ps_pace_ended(c->pace);
        const bool doubted = c->doubted;
        c->doubted = false;
        const strata_status status = check_training(c, ended, err);
        pthread_mutex_unlock(&c->lock);
        if (status) return status;
        if (!doubted && strata_ps_seconds() - looked < patience) continue;
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        looked = strata_ps_seconds();
    }
    strata_model *model = c->fit->model;
    pthread_mutex_lock(&c->lock);
    model->position = (strata_model_position){.steps = strata_ps_pace_steps(c->pace), .examples = c->examples};
    model->optimizer_steps = c->t + model->position.steps - c->n_left_out;
    memcpy(model->metrics.sums, c->sums, (size_t)c->n_sums * sizeof *c->sums);
    pthread_mutex_unlock(&c->lock);
    return strata_model_write_sums(model, err);
}

strata_status strata_ps_settle(strata_model *model, bool values, strata_error *err) {
    loop *l = strata_ps_task_of(model)->loop;
    if (!l || l->progress.epoch_end || l->stands) return STRATA_OK;
    STRATA_TRY(pause_training(l, err));
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
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    loop *l = strata_ps_task_of(model)->loop;
    strata_ps_close close;
    *out_written = l && !l->stands;
    if (!*out_written) return STRATA_OK;
    chief *c = l->c;
    const double until = strata_ps_seconds() + c->task->connect_seconds;
    pthread_mutex_lock(&c->lock);
    const bool closed = last_close(c, &close);
    pthread_mutex_unlock(&c->lock);
    for (;;) {
        const strata_status status =
            strata_ps_save_all(&c->watch, closed ? &close : NULL, folder, manifest, &model->optimizer_steps, err);
        if (status != STRATA_PEER_LOST || !c->task->replicas || strata_ps_seconds() > until) return status;
        strata_manifest_finish(manifest); /* the server with the copy writes what the lost one had */
        STRATA_TRY(strata_ps_watch_look(&c->watch, err));
        nanosleep(&pause, NULL);
    }
}

/* Workers fetch what the training ended with from the servers. One that was lost since the chief fetched it gets it from the
 * chief when it has started again, or its copy serves; the chief waits for that only so long, as its own model is complete. */
static strata_status keep_for_workers(chief *c, strata_error *err) {
    const double patience = 3;
    char text[320];
    strata_status status = strata_ps_watch_look(&c->watch, err);
    if (status == STRATA_PEER_LOST) {
        snprintf(text, sizeof text, "a server was lost behind the last step (%.200s)", err->message);
        note(c, text);
        status = spread_when_there(c, c->serial + 1, strata_ps_seconds() + patience, err);
    }
    return status == STRATA_PEER_LOST || status == STRATA_TIMEOUT ? STRATA_OK : status;
}

static strata_status run_epochs(chief *c, strata_error *err) {
    const strata_fit_options *opts = c->fit->opts;
    loop l = {.c = c, .began = strata_ps_seconds()};
    l.progress = (strata_progress){.model = c->fit->model, .epochs = opts->epochs, .stop = &l.stop, .stop_now = &l.stop_now};
    int64_t first = opts->first_step;
    for (l.progress.epoch = opts->first_epoch; l.progress.epoch < opts->epochs && !l.stop; l.progress.epoch++, first = 0) {
        l.epoch_began = strata_ps_seconds();
        STRATA_TRY(run_epoch(&l, first, err));
        if (c->fit->history->stopped) return STRATA_OK;
        STRATA_TRY(end_epoch(&l, err));
    }
    STRATA_TRY(keep_for_workers(c, err));
    c->fit->history->best_epoch = (int)c->fit->model->best.epochs - 1;
    STRATA_TRY(strata_validation_restore(c->fit->model, opts, err));
    return STRATA_OK;
}

/* ---- the whole ---- */

/* Workers fetch the parameters and leave; those that do not are not waited for longer than that. A worker whose connection
 * broke just now, perhaps as this process stood still, may come back for them. Where training does not begin each is to hear
 * why, also one that comes late; not where the time in which all had to come is over. */
static void dismiss_workers(chief *c, strata_status status, const char *message) {
    const double now = strata_ps_seconds(), until = now + 10, heard_until = now + 5, back_within = 4;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    if (status) fail_training(c, status, message);
    pthread_cond_broadcast(&c->changed);
    for (;;) {
        bool any = false;
        const bool waits = !c->begun && status != STRATA_TIMEOUT && strata_ps_seconds() < heard_until;
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
    STRATA_TRY(strata_ps_watch_make(&c->watch, c->fit, err));
    c->workers = calloc((size_t)c->n_workers, sizeof *c->workers);
    c->sums = calloc((size_t)c->n_sums, sizeof *c->sums);
    c->share_sums = calloc((size_t)(c->n_workers * c->n_sums), sizeof *c->share_sums);
    c->share_examples = calloc((size_t)c->n_workers, sizeof *c->share_examples);
    c->visit_sums = calloc((size_t)(c->fit->n_visits * c->n_sums + 1), sizeof *c->visit_sums);
    c->visit_examples = calloc((size_t)c->fit->n_visits + 1, sizeof *c->visit_examples);
    if (!c->workers || !c->sums || !c->share_sums || !c->share_examples || !c->visit_sums || !c->visit_examples)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d workers", c->n_workers);
    const strata_ps_pace_options visits = {.pace = STRATA_PACE_ASYNCHRONOUS, .n_workers = c->n_workers};
    STRATA_TRY(strata_ps_pace_create(&visits, &c->visits, err));
    return strata_ps_pace_create(&c->task->pace, &c->pace, err);
}

static void finish(chief *c) {
    strata_ps_watch_finish(&c->watch);
    strata_ps_pace_destroy(c->pace);
    strata_ps_pace_destroy(c->visits);
    free(c->visit_sums);
    free(c->visit_examples);
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
               .watch = {.notice = note, .on_route = take_route, .on_hello = note_queue},
               .n_workers = fit->task->pace.n_workers,
               .n_sums = fit->model->metrics.n_sums,
               .serial = (int64_t)fit->task->incarnation,
               .rate = fit->model->rate.own,
               .scale = 1};
    strata_rpc_server *rpc = NULL;
    strata_error own = {0};
    c.watch.user = &c;
    pthread_mutex_init(&c.lock, NULL);
    strata_ps_cond_init(&c.changed);
    strata_status status = make(&c, &own);
    if (!status && !fit->opts->first_step) fit->model->position = (strata_model_position){0};
    if (!status) status = strata_validation_begin(fit->model, fit->opts, &own);
    if (!status) status = strata_ps_listen(fit->task, handle, on_peer, &c, &rpc, &own);
    if (!status) status = begin(&c, rpc, &own);
    if (!status) status = run_epochs(&c, &own);
    if (rpc) dismiss_workers(&c, status, own.message);
    if (c.watch.clients) strata_ps_dismiss_servers(fit, c.watch.clients, status, own.message);
    strata_rpc_server_destroy(rpc);
    if (!status && !fit->history->stopped) strata_validation_forget(fit->model);
    finish(&c);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}
