/* SPDX-License-Identifier: Apache-2.0
 *
 * A dispatcher is the coordinator's thread for one worker. It connects to the worker and sends a greeting, with which the
 * functions of both sides are compared. It then lets the worker create its objects of all per-worker values, and runs closures
 * of the queue, one at a time. */
#include <stdio.h>
#include <time.h>

#include "core/base/locked.h"
#include "strategies/coordinator/coordinator_parts.h"

/* Time limits, in seconds. */
static const double CONNECT_SECONDS = 0.5, /* for one attempt to connect */
    RECONNECT_SECONDS = 2,                 /* for connecting again after a cut; then another worker gets the closure */
    GREET_SECONDS = 5,                     /* a worker that still runs an abandoned closure does not answer in time */
    MAKE_SECONDS = 600,                    /* for creating the worker's object of a per-worker value */
    END_SECONDS = 3,                       /* for telling the worker that the coordinator ends */
    TICK_SECONDS = 0.05;                   /* between two attempts to connect */

/* ---- requests to a worker ---- */

static strata_remote_writer write_head(strata_dispatcher *d) {
    return (strata_remote_writer){d->head, d->head + STRATA_RPC_HEAD_BYTES, false};
}

/* Sends a request, whose head `w` has written and whose body is `pieces`, and waits for the answer. `what` names the request in
 * messages. *out_reply reads the head of the reply. answer NULL: its body is not needed. */
static strata_status request_worker(strata_dispatcher *d, strata_remote_method method, const strata_remote_writer *w,
                                    const struct iovec *pieces, int n_pieces, const char *what, double seconds,
                                    strata_remote_reader *out_reply, strata_rpc_answer *answer, strata_error *err) {
    strata_rpc_answer own, *got = answer ? answer : &own;
    if (w->full)
        return strata_fail(err, STRATA_INVALID, "%s: its description has more than %d bytes", what, STRATA_RPC_HEAD_BYTES);
    const strata_rpc_ask request = {.method = method,
                                    .head = d->head,
                                    .head_bytes = (size_t)(w->at - d->head),
                                    .body = pieces,
                                    .n_body = n_pieces,
                                    .what = what};
    *got = (strata_rpc_answer){.head = d->reply, .head_bytes = STRATA_RPC_HEAD_BYTES};
    STRATA_TRY(strata_rpc_client_call(d->client, &request, got, seconds, err));
    *out_reply = (strata_remote_reader){d->reply, d->reply + got->head_bytes, false};
    if (!answer) free(own.allocated);
    return STRATA_OK;
}

/* Reads from a reply the status, and for a failure the message, of the user's function into *result. Fails: DATA if the reply
 * contains none. */
static strata_status get_result(const strata_dispatcher *d, strata_remote_reader *r, const char *what, strata_error *result,
                                strata_error *err) {
    char text[STRATA_ERROR_MESSAGE_BYTES] = "";
    const strata_status status = (strata_status)strata_remote_get(r, 1);
    if (status) strata_remote_get_text(r, text, sizeof text);
    if (r->wrong || status > STRATA_INTERNAL) return strata_fail(err, STRATA_DATA, "the reply of %s is cut off", d->task);
    *result = (strata_error){0};
    if (status) strata_fail(result, status, "%s on %s: %.900s", what, d->task, text);
    return STRATA_OK;
}

static strata_status greet(strata_dispatcher *d, double seconds, strata_error *err) {
    const strata_coordinator *c = d->coordinator;
    strata_remote_writer w = write_head(d);
    strata_remote_reader ignored;
    const uint64_t incarnation = strata_rpc_client_server_incarnation(d->client);
    strata_remote_put(&w, (uint64_t)d->number, 4);
    strata_remote_put(&w, (uint64_t)c->n_workers, 4);
    strata_remote_put_functions(&w, c->functions, c->n_functions);
    STRATA_TRY(
        request_worker(d, STRATA_REMOTE_GREET, &w, NULL, 0, "the comparison of functions", seconds, &ignored, NULL, err));
    d->greeted = incarnation;
    d->n_made = 0;
    return STRATA_OK;
}

/* Lets the worker create its object of the value. *result: the status that the user's function returned. */
static strata_status make_value(strata_dispatcher *d, const strata_per_worker *v, strata_error *result, strata_error *err) {
    strata_remote_writer w = write_head(d);
    strata_remote_reader r;
    struct iovec pieces[STRATA_REMOTE_PIECES];
    char what[96];
    int n_pieces = 0;
    snprintf(what, sizeof what, "making \"%s\"", v->function->name);
    strata_remote_put(&w, v->id, 8);
    strata_remote_put_text(&w, v->function->name);
    strata_remote_put(&w, (uint64_t)v->n_args, 1);
    for (int i = 0; i < v->n_args; i++) {
        strata_remote_put(&w, 0, 1);
        strata_remote_put_array(&w, &v->args[i]);
        n_pieces = strata_remote_add_piece(pieces, n_pieces, &v->args[i]);
    }
    STRATA_TRY(request_worker(d, STRATA_REMOTE_MAKE, &w, pieces, n_pieces, what, MAKE_SECONDS, &r, NULL, err));
    return get_result(d, &r, what, result, err);
}

static strata_status read_results(const strata_dispatcher *d, const strata_closure *k, strata_remote_reader *r,
                                  strata_rpc_answer *answer, strata_array **out_results, strata_error *err) {
    const int n = k->function->n_results;
    strata_array *results = calloc((size_t)n + 1, sizeof *results);
    strata_status status = results ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d results", n);
    size_t offset = 0;
    for (int i = 0; i < n && !status; i++) {
        const strata_array view = strata_remote_get_array(r, answer->allocated, answer->body_bytes, &offset);
        if (r->wrong)
            status = strata_fail(err, STRATA_DATA, "result %d of \"%s\" from %s is cut off", i, k->function->name, d->task);
        else
            status = strata_closure_copy_array(&view, &results[i], err);
    }
    for (int i = 0; i < n && status && results; i++) strata_array_finish(&results[i]);
    if (status) free(results);
    *out_results = status ? NULL : results;
    return status;
}

/* Runs a closure on the worker. *result: the status that the user's function returned. Fails if the worker cannot be reached or
 * its answer is damaged. */
static strata_status run_closure(strata_dispatcher *d, const strata_closure *k, strata_array **out_results,
                                 strata_error *result, strata_error *err) {
    const double seconds = d->coordinator->closure_seconds;
    strata_remote_writer w = write_head(d);
    strata_remote_reader r;
    struct iovec pieces[STRATA_REMOTE_PIECES];
    char what[128];
    int n_pieces = 0;
    strata_rpc_answer answer;
    snprintf(what, sizeof what, "closure %llu (%s)", (unsigned long long)k->id, k->function->name);
    strata_remote_put(&w, k->id, 8);
    strata_remote_put(&w, (uint64_t)k->attempt, 4);
    strata_remote_put_text(&w, k->function->name);
    strata_remote_put(&w, (uint64_t)k->n_args, 1);
    for (int i = 0; i < k->n_args; i++) {
        const strata_per_worker *v = k->args[i].per_worker;
        strata_remote_put(&w, v != NULL, 1);
        if (v) {
            strata_remote_put(&w, v->id, 8);
        } else {
            strata_remote_put_array(&w, &k->args[i].array);
            n_pieces = strata_remote_add_piece(pieces, n_pieces, &k->args[i].array);
        }
    }
    STRATA_TRY(request_worker(d, STRATA_REMOTE_RUN, &w, pieces, n_pieces, what, seconds, &r, &answer, err));
    strata_status status = get_result(d, &r, what, result, err);
    if (!status && !result->status && read_results(d, k, &r, &answer, out_results, result))
        strata_fail_in(result, result->status, "%s", what);
    free(answer.allocated);
    return status;
}

/* ---- connecting, and losing a worker ---- */

/* Records whether the worker is available, and why it is not. Locked. */
static void set_available(strata_dispatcher *d, bool available, const strata_error *problem) {
    strata_coordinator *c = d->coordinator;
    if (problem) d->problem = *problem;
    if (d->available == available) return;
    d->available = available;
    c->counts.workers += available ? 1 : -1;
    c->counts.lost += !available && !c->closing;
    c->workers_changed_at = strata_clock_seconds();
    pthread_cond_broadcast(&c->changed);
}

static void set_lost(strata_dispatcher *d, const strata_error *why) {
    STRATA_LOCKED(&d->coordinator->lock);
    set_available(d, false, why);
}

/* Makes one attempt to connect, of about CONNECT_SECONDS, if there is no client. */
static strata_status connect_worker(strata_dispatcher *d, strata_error *err) {
    strata_coordinator *c = d->coordinator;
    strata_communicator_options cluster = c->cluster;
    cluster.connect_seconds = CONNECT_SECONDS;
    const strata_rpc_client_options opts = {
        .task = c->task, .server = d->task, .address = d->address, .cluster = &cluster, .reconnect_seconds = RECONNECT_SECONDS};
    return d->client ? STRATA_OK : strata_rpc_client_create(&opts, &d->client, err);
}

/* Ends the closures in the queue with an error if no worker was available for worker_seconds. Locked. */
static void check_any_available(strata_coordinator *c, const strata_dispatcher *d) {
    strata_error error;
    if (c->counts.workers || !c->first) return;
    const double since = c->workers_changed_at > c->first->scheduled_at ? c->workers_changed_at : c->first->scheduled_at;
    if (strata_clock_seconds() - since < c->worker_seconds) return;
    strata_fail(&error, STRATA_PEER_LOST, "no worker was available for %g s; %s: %.600s", c->worker_seconds, d->task,
                d->problem.message);
    strata_closure_cancel_all(c, &error);
    strata_closure_keep_error(c, &error);
}

/* Connects, sends the greeting and lets the worker create its objects of per-worker values, so that it can run closures. The
 * caller does not hold the lock. */
static strata_status prepare(strata_dispatcher *d, strata_error *err) {
    strata_coordinator *c = d->coordinator;
    STRATA_TRY(connect_worker(d, err));
    if (!strata_rpc_client_connected(d->client)) return strata_fail(err, STRATA_UNAVAILABLE, "%s is not connected", d->task);
    const uint64_t incarnation = strata_rpc_client_server_incarnation(d->client);
    if (d->greeted && d->greeted != incarnation) { /* it was lost and started again before this thread noticed */
        strata_fail(err, STRATA_PEER_LOST, "%s was started again", d->task);
        set_lost(d, err);
    }
    if (d->greeted != incarnation) STRATA_TRY(greet(d, GREET_SECONDS, err));
    for (;;) {
        strata_error result = {0};
        pthread_mutex_lock(&c->lock);
        strata_per_worker *v = c->values;
        while (v && v->id <= d->n_made) v = v->next;
        pthread_mutex_unlock(&c->lock);
        if (!v) return STRATA_OK;
        STRATA_TRY(make_value(d, v, &result, err));
        d->n_made = v->id;
        if (!result.status) continue;
        STRATA_LOCKED(&c->lock);
        v->failure = result;
        strata_closure_keep_error(c, &result);
    }
}

bool strata_closure_is_broken(const strata_closure *k, strata_error *out_why) {
    for (int i = 0; i < k->n_args; i++) {
        if (!k->args[i].per_worker || !k->args[i].per_worker->failure.status) continue;
        *out_why = k->args[i].per_worker->failure;
        return true;
    }
    return false;
}

/* Returns the closure to the queue if its worker was lost; ends it with the error if the request failed otherwise. */
static void end_or_repeat(strata_dispatcher *d, strata_closure *k, strata_error *why) {
    set_lost(d, why);
    d->greeted = 0;
    if (why->status == STRATA_PEER_LOST || why->status == STRATA_UNAVAILABLE) {
        k->attempt++;
        strata_closure_put_back(d->coordinator, k);
        return;
    }
    strata_rpc_client_destroy(d->client); /* a late result of the worker is discarded */
    d->client = NULL;
    strata_closure_end(d->coordinator, k, NULL, why);
}

/* Whether the worker that accepted the greeting is connected. */
static bool is_same_worker(const strata_dispatcher *d) {
    return strata_rpc_client_connected(d->client) && strata_rpc_client_server_incarnation(d->client) == d->greeted;
}

/* Waits for a closure and removes it from the queue. Returns NULL if the coordinator closes, if there is a new per-worker
 * value, which must be created first, or if the worker was lost or started again. Locked. */
static strata_closure *wait_closure(strata_coordinator *c, const strata_dispatcher *d) {
    const uint64_t n_values = c->n_values;
    while (!c->first && !c->closing && c->n_values == n_values) {
        strata_coordinator_wait_changed(c, 1);
        if (!is_same_worker(d)) return NULL;
    }
    if (!c->first || c->n_values != n_values || !is_same_worker(d)) return NULL;
    strata_closure *k = strata_closure_take_first(c);
    c->counts.running++;
    pthread_cond_broadcast(&c->changed);
    return k;
}

static void serve_closure(strata_dispatcher *d, strata_closure *k) {
    strata_coordinator *c = d->coordinator;
    strata_array *results = NULL;
    strata_error result = {0}, why = {0};
    pthread_mutex_lock(&k->value->lock);
    k->value->attempts = k->attempt + 1;
    pthread_mutex_unlock(&k->value->lock);
    pthread_mutex_lock(&c->lock);
    const bool broken = strata_closure_is_broken(k, &result);
    pthread_mutex_unlock(&c->lock);
    if (broken)
        strata_closure_end(c, k, NULL, &result);
    else if (run_closure(d, k, &results, &result, &why))
        end_or_repeat(d, k, &why);
    else
        strata_closure_end(c, k, results, result.status ? &result : NULL);
}

static strata_status send_end(strata_dispatcher *d, double seconds, strata_error *err) {
    const strata_error *failure = &d->coordinator->failure;
    strata_remote_reader ignored;
    STRATA_TRY(connect_worker(d, err));
    if (d->greeted != strata_rpc_client_server_incarnation(d->client)) STRATA_TRY(greet(d, seconds, err));
    strata_remote_writer w = write_head(d);
    strata_remote_put(&w, failure->status, 1);
    strata_remote_put_text(&w, failure->message);
    return request_worker(d, STRATA_REMOTE_END, &w, NULL, 0, "the end", seconds, &ignored, NULL, err);
}

/* Tells the worker that the coordinator ends. A worker that has been available may just start again, so this is repeated for
 * END_SECONDS: without the message it would wait for another coordinator for minutes. If create failed, a worker that never got
 * a greeting is told the failure too, with one attempt, since it may not run at all. A worker that runs another program ends
 * because of the greeting. */
static void tell_end(strata_dispatcher *d) {
    const double until = strata_clock_seconds() + END_SECONDS;
    double left = END_SECONDS;
    if (!d->was_available && !d->coordinator->failure.status) return;
    do {
        strata_error why = {0};
        const strata_status status = send_end(d, left, &why);
        if (!status || status == STRATA_INVALID) return;
        d->greeted = 0;
        nanosleep(&(struct timespec){.tv_nsec = (long)(TICK_SECONDS * 1e9)}, NULL);
        left = until - strata_clock_seconds();
    } while (d->was_available && left > 0);
}

void *strata_dispatcher_run(void *user) {
    strata_dispatcher *d = user;
    strata_coordinator *c = d->coordinator;
    pthread_mutex_lock(&c->lock);
    while (!c->closing || (c->first && d->available)) {
        strata_error why = {0};
        pthread_mutex_unlock(&c->lock);
        const strata_status status = prepare(d, &why);
        pthread_mutex_lock(&c->lock);
        if (status) {
            d->refused = status == STRATA_INVALID;
            set_available(d, false, &why);
            /* The worker was restarted with another program. */
            if (d->refused && d->was_available && !d->reported) strata_closure_keep_error(c, &why);
            d->reported |= d->refused;
            pthread_cond_broadcast(&c->changed);
            check_any_available(c, d);
            if (!c->closing) strata_coordinator_wait_changed(c, d->refused ? 1 : TICK_SECONDS);
            continue;
        }
        d->refused = d->reported = false;
        d->was_available = true;
        set_available(d, true, NULL);
        strata_closure *k = wait_closure(c, d);
        if (!k) continue;
        pthread_mutex_unlock(&c->lock);
        serve_closure(d, k);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    tell_end(d);
    strata_rpc_client_destroy(d->client);
    return NULL;
}
