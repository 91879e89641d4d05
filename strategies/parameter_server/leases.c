/* SPDX-License-Identifier: Apache-2.0
 *
 * The chief's replies to workers: workers connect and leave, report what they have finished, and get the next batch
 * (pace.h). */
#include <stdio.h>

#include "strategies/parameter_server/chief.h"

static void lose(strata_ps_chief *c, int w, const char *why) {
    struct worker *own = &c->workers[w];
    own->connected = false;
    if (!own->came) return;
    own->came = false;
    if (!c->over) own->seconds = 0;
    const int n = strata_ps_pace_lose(c->pace, w) + strata_ps_pace_lose(c->visits.pace, w);
    if (!c->over && !c->failure.status) { /* otherwise the worker ends together with all tasks */
        c->task->totals.lost++;
        strata_ps_notice(c->task, "worker:%d was lost%s%s%s; %d batch%s that it had %s given to other workers", w,
                         *why ? " (" : "", why, *why ? ")" : "", n, n == 1 ? "" : "es", n == 1 ? "is" : "are");
    }
    if (!strata_ps_chief_n_there(c)) c->alone = strata_clock_seconds();
}

void strata_ps_chief_on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    strata_ps_chief *c = user;
    const int w = strata_ps_worker_index(task, c->n_workers);
    if (w < 0) return;
    STRATA_LOCKED(&c->lock);
    struct worker *own = &c->workers[w];
    if (event == STRATA_RPC_CONNECTED) {
        if (own->incarnation != incarnation) own->n_returned = 0, own->left_out = false;
        own->connected = own->heard = true;
        own->incarnation = incarnation;
        own->lost_at = 0;
    } else if (own->incarnation == incarnation) {
        own->lost_at = event == STRATA_RPC_LEFT ? 0 : strata_clock_seconds();
        lose(c, w, event == STRATA_RPC_LEFT ? "it ended" : why);
    }
    strata_ps_chief_update_totals(c);
    pthread_cond_broadcast(&c->changed);
}

static void join(strata_ps_chief *c, int w) {
    if (c->workers[w].came) return;
    c->workers[w].came = true;
    c->alone = 0;
    strata_ps_pace_join(c->pace, w);
    strata_ps_pace_join(c->visits.pace, w);
    if (!c->begun) return;
    c->task->totals.joined++;
    strata_ps_notice(c->task, "worker:%d has joined", w);
}

/* A worker gives its batches back because it cannot reach a server. If it does so again and again while the chief finds the
 * servers well, only the link between the two is broken. Then the worker is left out, since its batches would come back for
 * ever. */
static strata_status take_back(strata_ps_chief *c, int w, const char *what, strata_error *err) {
    enum { MOST_RETURNS = 3 };
    static const double least_seconds = 15; /* a server that was started again has come back by then, or is found lost */
    struct worker *own = &c->workers[w];
    strata_ps_pace_join(c->pace, w);
    strata_ps_pace_join(c->visits.pace, w);
    c->doubted = true;
    pthread_cond_broadcast(&c->changed);
    if (c->recovering || c->over) {
        own->n_returned = 0;
        return STRATA_OK;
    }
    if (!own->n_returned++) own->first_returned = strata_clock_seconds();
    if (own->n_returned < MOST_RETURNS || strata_clock_seconds() - own->first_returned < least_seconds) {
        strata_ps_notice(c->task, "worker:%d gave its batches back: %.200s", w, what);
        return STRATA_OK;
    }
    char why[256];
    snprintf(why, sizeof why,
             "it is left out, since it gave its batches back %d times, and the chief reaches all servers: %.120s",
             own->n_returned, what);
    own->left_out = true;
    lose(c, w, why);
    strata_ps_chief_update_totals(c);
    return strata_fail(err, STRATA_UNAVAILABLE,
                       "worker:%d is left out: it gave its batches back %d times, and the chief reaches "
                       "all servers: %.200s",
                       w, own->n_returned, what);
}

/* A worker's first call. It returns when all workers have connected, so that each of them is told if any two tasks differ. */
static strata_status hello(strata_ps_chief *c, const strata_rpc_call *call, int w, strata_rpc_reply *reply, strata_error *err) {
    strata_error difference = {0};
    int64_t serial = 0;
    const strata_status differs = strata_ps_answer_hello(c->fit, call, &serial, &difference);
    STRATA_LOCKED(&c->lock);
    if (!c->begun && serial > c->epoch.serial) c->epoch.serial = serial;
    if (differs && !c->begun) strata_ps_chief_fail(c, differs, difference.message);
    if (!differs) join(c, w);
    strata_ps_chief_update_totals(c);
    pthread_cond_broadcast(&c->changed);
    while (!differs && !c->begun && !c->failure.status && !strata_rpc_call_ended(call))
        pthread_cond_wait(&c->changed, &c->lock);
    if (differs) return strata_fail(err, differs, "%s", difference.message);
    if (c->failure.status) return strata_fail(err, c->failure.status, "%s", c->failure.message);
    const strata_ps_hello_reply own = {.route = c->fit->route};
    strata_ps_reply(reply, &own, sizeof own);
    return STRATA_OK;
}

static void add_finished(strata_ps_chief *c, double loss, double rate, double norm, int64_t examples) {
    strata_ps_finished_step *added = strata_grow(&c->tell.steps, c->tell.n, sizeof *added);
    if (!added) {
        strata_ps_chief_fail(c, STRATA_OUT_OF_MEMORY, "fit: no host memory for the list of finished steps");
        return;
    }
    *added = (strata_ps_finished_step){loss, rate, norm, examples};
    c->tell.n++;
    c->epoch.examples += examples;
}

/* Adds the sums of the shares that count, in the order of the shares, so that the bits do not depend on which finished
 * first. */
static void end_step(strata_ps_chief *c) {
    strata_ps_close close;
    int64_t counted = 0;
    double loss = 0;
    strata_ps_pace_closed(c->pace, &close);
    for (int w = 0; w < c->n_workers; w++) {
        if (!(close.counted[w / 8] >> (w % 8) & 1)) continue;
        for (int64_t i = 0; i < c->n_sums; i++) c->epoch.sums[i] += (double)c->step.sums[w * c->n_sums + i];
        loss += (double)c->step.sums[w * c->n_sums];
        counted += c->step.examples[w];
    }
    c->closed.scale = counted && counted != c->step.whole ? (double)c->step.whole / (double)counted : 1;
    c->closed.rate = c->rate;
    c->epoch.n_left_out += !counted;
    if (counted) add_finished(c, loss / (double)counted, c->step.rate, 0, counted);
}

static void take_report(strata_ps_chief *c, int w, const strata_ps_next_ask *ask, const float *sums) {
    const bool empty = ask->refused || ask->overflow || ((c->task->pace.n_shares > 0) && !ask->examples);
    const strata_ps_finished finished = strata_ps_pace_finish(c->pace, w, &ask->unit, empty);
    struct worker *own = &c->workers[w];
    own->n_returned = 0;
    own->seconds = own->seconds > 0 ? 0.8 * own->seconds + 0.2 * ask->seconds : ask->seconds;
    if (ask->n_staleness)
        strata_trace_add_counter(c->fit->trace, "staleness", (double)ask->staleness_sum / (double)ask->n_staleness,
                                 strata_trace_now());
    c->load.bytes += ask->bytes;
    c->load.n_units++;
    pthread_mutex_lock(&c->task->lock);
    strata_ps_load_add_staleness(&c->task->totals.training, &c->load.training, ask);
    strata_ps_load_add_staleness(&c->task->totals.epoch, &c->load.epoch, ask);
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
        snprintf(c->failure.refused, sizeof c->failure.refused,
                 "the gradients of worker:%d at step %lld are not finite (%.90s) and were left out", w,
                 (long long)ask->unit.index + 1, ask->what);
        strata_ps_notice(c->task, "%s", c->failure.refused);
    }
    if (finished == STRATA_PS_TOO_LATE) return;
    if (!(c->task->pace.n_shares > 0)) {
        c->epoch.n_left_out += empty;
        if (empty) return;
        for (int64_t i = 0; i < c->n_sums; i++) c->epoch.sums[i] += (double)sums[i];
        add_finished(c, ask->examples ? (double)sums[0] / (double)ask->examples : 0, ask->rate, ask->norm, ask->examples);
        return;
    }
    memcpy(c->step.sums + ask->unit.share * c->n_sums, sums, (size_t)c->n_sums * sizeof *sums);
    c->step.examples[ask->unit.share] = empty ? 0 : ask->examples;
    c->step.whole = ask->whole;
    c->step.rate = ask->rate;
    if (finished == STRATA_PS_ENDS_STEP) end_step(c);
}

bool strata_ps_chief_last_close(const strata_ps_chief *c, strata_ps_close *out_close) {
    const bool closed = (c->task->pace.n_shares > 0) && strata_ps_pace_closed(c->pace, out_close);
    out_close->scale = c->closed.scale;
    out_close->rate = c->closed.rate;
    out_close->square = -1;
    return closed;
}

/* Leases further units to a worker in asynchronous training. The worker computes them without another request, so that short
 * steps do not need a request each. They are few enough that the other workers do not wait for them at the end of an epoch. */
static void give_more(strata_ps_chief *c, int w, strata_ps_next_reply *reply) {
    const double seconds_of_units = 0.004;
    const double own = c->workers[w].seconds;
    if (c->task->pace.pace != STRATA_PACE_ASYNCHRONOUS || c->fit->opts->wait_each_step) return;
    if (!(own > 0) || reply->grant != STRATA_PS_GRANTED) return; /* the worker may be lost, and be the last one */
    const int64_t share = strata_ps_pace_left(c->pace) / (2 * (int64_t)strata_ps_chief_n_there(c));
    while (reply->n_more < STRATA_PS_MOST_UNITS - 1 && reply->n_more < share && (reply->n_more + 2) * own < seconds_of_units) {
        if (strata_ps_pace_ask(c->pace, w, &reply->more[reply->n_more]) != STRATA_PS_GRANTED) break;
        reply->n_more++;
    }
}

/* Decides what the worker does next. ahead: it is still computing another unit. The caller has the lock. */
static void give(strata_ps_chief *c, int w, bool ahead, strata_ps_next_reply *reply) {
    const bool told = !c->fit->opts->wait_each_step || c->tell.settling || (!c->tell.n && !c->tell.running && !ahead);
    *reply = (strata_ps_next_reply){.grant = STRATA_PS_TRAINING_OVER, .t = c->epoch.t, .rate = c->rate, .route = c->fit->route};
    if (c->over) return;
    reply->epoch = c->epoch.number;
    reply->has_close = strata_ps_chief_last_close(c, &reply->close);
    reply->grant = STRATA_PS_WAIT;
    if (c->visits.running) {
        reply->evaluates = true;
        reply->grant = (int32_t)strata_ps_pace_ask(c->visits.pace, w, &reply->unit);
    } else if (c->begun && !c->recovering && told) {
        reply->grant = (int32_t)strata_ps_pace_ask(c->pace, w, &reply->unit);
        give_more(c, w, reply);
    }
}

/* Takes the result of a batch of the validation data. If two workers evaluated it, the first result counts. */
static void take_visit(strata_ps_chief *c, int w, const strata_ps_next_ask *ask, const float *sums) {
    const int64_t index = ask->unit.index;
    if (!c->visits.running || strata_ps_pace_finish(c->visits.pace, w, &ask->unit, false) == STRATA_PS_TOO_LATE) return;
    memcpy(c->visits.sums + index * c->n_sums, sums, (size_t)c->n_sums * sizeof *sums);
    c->visits.examples[index] = ask->examples;
}

static strata_status check_report(const strata_ps_chief *c, const strata_rpc_call *call, strata_ps_next_ask *report,
                                  strata_error *err) {
    report->what[sizeof report->what - 1] = '\0';
    if (report->unit.index < 0 || report->evaluates || !(c->task->pace.n_shares > 0)) return STRATA_OK;
    if (report->unit.share >= 0 && report->unit.share < c->n_workers) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "parameter_server: %s reports share %d", call->task, (int)report->unit.share);
}

static strata_status next(strata_ps_chief *c, const strata_rpc_call *call, int w, strata_rpc_reply *reply, strata_error *err) {
    /* seconds; then the worker sends the request again, which shows it that the chief is alive */
    const double patience = 1;
    const size_t n = call->head_bytes / sizeof(strata_ps_next_ask);
    strata_ps_next_ask reports[STRATA_PS_MOST_REPORTS];
    strata_ps_next_reply answer;
    if (!n || n > STRATA_PS_MOST_REPORTS || call->head_bytes % sizeof *reports ||
        call->body_bytes != n * (size_t)c->n_sums * sizeof(float))
        return strata_fail(err, STRATA_INVALID, "parameter_server: %s sent a report of another size", call->task);
    memcpy(reports, call->head, call->head_bytes);
    const strata_ps_next_ask *ask = &reports[n - 1];
    for (size_t i = 0; i < n; i++) STRATA_TRY(check_report(c, call, &reports[i], err));
    STRATA_LOCKED(&c->lock);
    if (c->workers[w].left_out)
        return strata_fail(err, STRATA_UNAVAILABLE, "worker:%d was left out, since it could not reach a server", w);
    join(c, w); /* a worker whose connection broke joins again with this call */
    if (ask->gives_back) STRATA_TRY(take_back(c, w, ask->what, err));
    for (size_t i = 0; i < n; i++) {
        if (reports[i].unit.index < 0) continue;
        (reports[i].evaluates ? take_visit : take_report)(c, w, &reports[i], (const float *)call->body + i * (size_t)c->n_sums);
        pthread_cond_broadcast(&c->changed);
    }
    const struct timespec deadline = strata_clock_after(patience);
    int waited = 0;
    for (;;) {
        if (c->failure.status) break;
        give(c, w, !ask->waits, &answer);
        if (answer.grant == STRATA_PS_GRANTED || answer.grant == STRATA_PS_TRAINING_OVER) break;
        if (!ask->waits || waited || strata_rpc_call_ended(call)) break;
        waited = pthread_cond_timedwait(&c->changed, &c->lock, &deadline);
    }
    c->workers[w].answered = strata_clock_seconds();
    c->workers[w].n_given = answer.grant == STRATA_PS_GRANTED ? 1 + answer.n_more : 1;
    strata_ps_chief_update_totals(c);
    strata_ps_chief_note_leases(c);
    if (c->failure.status) return strata_fail(err, c->failure.status, "%s", c->failure.message);
    strata_ps_reply(reply, &answer, sizeof answer);
    return STRATA_OK;
}

static strata_status take_failure(strata_ps_chief *c, const strata_rpc_call *call, int w) {
    int32_t status = STRATA_INTERNAL;
    if (call->head_bytes == sizeof status) memcpy(&status, call->head, sizeof status);
    STRATA_LOCKED(&c->lock);
    snprintf(c->failure.of_worker, sizeof c->failure.of_worker, "worker:%d: %.*s", w,
             (int)(call->body_bytes < 400 ? call->body_bytes : 400), (const char *)call->body);
    c->failure.worker_status = (strata_status)status;
    lose(c, w, c->failure.of_worker);
    strata_ps_chief_update_totals(c);
    pthread_cond_broadcast(&c->changed);
    return STRATA_OK;
}

/* A task that is not a worker of the chief's cluster. At the start this ends all tasks, since two of them have different
 * clusters. Later only this task is refused. */
static strata_status refuse_stranger(strata_ps_chief *c, const strata_rpc_call *call, strata_error *err) {
    strata_error own = {0};
    int64_t ignored = 0;
    strata_status status = call->method == STRATA_PS_HELLO ? strata_ps_answer_hello(c->fit, call, &ignored, &own) : STRATA_OK;
    if (!status)
        status = strata_fail(&own, STRATA_INVALID, "parameter_server: %s expects worker:0 to worker:%d, not %s", c->task->name,
                             c->n_workers - 1, call->task);
    STRATA_LOCKED(&c->lock);
    if (!c->begun) strata_ps_chief_fail(c, status, own.message);
    return strata_fail(err, status, "%s", own.message);
}

strata_status strata_ps_chief_handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_ps_chief *c = user;
    const int w = strata_ps_worker_index(call->task, c->n_workers);
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
