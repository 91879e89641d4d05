/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator has one queue of closures. For each worker a thread, the dispatcher, connects to the worker and sends a
 * greeting, with which the functions of both sides are compared. It then lets the worker create its objects of all per-worker
 * values, and runs closures of the queue, one at a time. Remote values receive the closures' results. The comment "locked"
 * means: the caller holds the coordinator's lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "cluster/rpc/rpc.h"
#include "core/base/locked.h"
#include "strategies/coordinator/wire.h"
#include "strategies/memory.h"

/* Time limits, in seconds. */
static const double CONNECT_SECONDS = 60, /* for reaching the workers, by default */
    WORKER_SECONDS = 3600,                /* without a worker, by default */
    UNBOUNDED = 1e9,                      /* for a closure, by default */
    ATTEMPT_SECONDS = 0.5,                /* for one attempt to connect */
    RECONNECT_SECONDS = 2,                /* for connecting again after a cut; then another worker gets the closure */
    GREET_SECONDS = 5,                    /* a worker that still runs an abandoned closure does not answer in time */
    MAKE_SECONDS = 600,                   /* for creating the worker's object of a per-worker value */
    END_SECONDS = 3,                      /* for telling the worker that the coordinator ends */
    TICK_SECONDS = 0.05;                  /* between two attempts to connect, and two checks while workers are waited for */

struct strata_per_worker {
    strata_per_worker *next;
    strata_coordinator *coordinator;
    uint64_t id;
    const strata_remote_function *function;
    /* The error of a worker that could not create its object. Protected by the coordinator's lock. */
    strata_error failure;
    int n_args;
    strata_array args[];
};

struct strata_remote_value {
    atomic_int references;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    int attempts;
    strata_error error;
    const strata_remote_function *function;
    /* [function->n_results] Set when the closure has succeeded. */
    strata_array *results;
};

typedef struct strata_closure {
    struct strata_closure *next;
    uint64_t id;
    /* The time of strata_coordinator_schedule, in seconds of strata_clock_seconds. */
    double scheduled_at;
    const strata_remote_function *function;
    int attempt;
    strata_remote_value *value;
    int n_args;
    /* Each argument is an array, which the closure owns, or a per-worker value. */
    struct {
        strata_array array;
        const strata_per_worker *per_worker;
    } args[];
} strata_closure;

typedef struct strata_dispatcher {
    strata_coordinator *coordinator;
    int number;
    char task[STRATA_RPC_TASK_BYTES];
    const char *address;
    pthread_t thread;
    bool has_thread;
    strata_rpc_client *client;
    /* Memory for the heads of a request and of its reply. */
    unsigned char head[STRATA_RPC_HEAD_BYTES], reply[STRATA_RPC_HEAD_BYTES];
    /* The incarnation of the worker that has accepted the greeting; 0: none. A worker that is restarted has another one. */
    uint64_t greeted;
    /* The id of the last per-worker value whose object the worker has created. */
    uint64_t n_made;

    /* The fields below are protected by the coordinator's lock. The worker is connected, has accepted the greeting and can run
     * closures. */
    bool available;
    /* The worker has been available before. */
    bool was_available;
    /* The worker runs another program, and keep_error was called for this. */
    bool refused, reported;
    /* Why the worker is not available. */
    strata_error problem;
} strata_dispatcher;

struct strata_coordinator {
    char task[STRATA_RPC_TASK_BYTES];
    const strata_remote_function *functions;
    int n_functions;
    int64_t queue_bound;
    double worker_seconds, closure_seconds;
    strata_communicator_options cluster;
    /* Of the fields above and below that do not change. */
    strata_memory memory;
    int n_workers;
    strata_dispatcher *workers;

    /* Protects all fields below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    /* The error with which create failed. It is sent to the workers. */
    strata_error failure;
    strata_closure *first, *last;
    uint64_t n_closures;
    int n_joining;
    /* The first error that no call has returned yet. */
    strata_error error;
    strata_per_worker *values, *last_value;
    uint64_t n_values;
    strata_coordinator_counts counts;
    /* The last time at which the number of available workers changed, in seconds of strata_clock_seconds. */
    double workers_changed_at;
};

/* ---- values ---- */

static strata_remote_value *create_remote_value(const strata_remote_function *function) {
    strata_remote_value *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    atomic_store(&v->references, 1);
    pthread_mutex_init(&v->lock, NULL);
    strata_clock_cond_init(&v->changed);
    v->function = function;
    return v;
}

void strata_remote_value_release(strata_remote_value *v) {
    if (!v || atomic_fetch_sub(&v->references, 1) != 1) return;
    for (int i = 0; v->results && i < v->function->n_results; i++) strata_array_finish(&v->results[i]);
    free(v->results);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* Sets the value's results, which it takes, or its error, and wakes the threads that wait for it. error NULL: the closure
 * succeeded. */
static void finish_value(strata_remote_value *v, strata_array *results, const strata_error *error) {
    STRATA_LOCKED(&v->lock);
    v->done = true;
    v->results = results;
    if (error) v->error = *error;
    pthread_cond_broadcast(&v->changed);
}

static strata_status copy_array(const strata_array *from, strata_array *out, strata_error *err) {
    STRATA_TRY(strata_array_create(from->dtype, from->shape, out, err));
    const size_t bytes = strata_array_bytes(from);
    if (bytes) memcpy(out->data, from->data, bytes);
    return STRATA_OK;
}

strata_status strata_remote_value_fetch(strata_remote_value *v, strata_array *out_results, int n, strata_error *err) {
    strata_status status = STRATA_OK;
    if (n != v->function->n_results)
        return strata_fail(err, STRATA_INVALID, "\"%s\" has %d results, but the caller asks for %d", v->function->name,
                           v->function->n_results, n);
    for (int i = 0; i < n; i++) out_results[i] = (strata_array){0};
    pthread_mutex_lock(&v->lock);
    while (!v->done) pthread_cond_wait(&v->changed, &v->lock);
    pthread_mutex_unlock(&v->lock);
    if (v->error.status) return strata_fail(err, v->error.status, "%s", v->error.message);
    for (int i = 0; i < n && !status; i++) status = copy_array(&v->results[i], &out_results[i], err);
    for (int i = 0; i < n && status; i++) strata_array_finish(&out_results[i]);
    return status;
}

int strata_remote_value_attempts(strata_remote_value *v) {
    STRATA_LOCKED(&v->lock);
    return v->attempts;
}

/* ---- closures ---- */

static void free_closure(strata_closure *k) {
    for (int i = 0; i < k->n_args; i++) strata_array_finish(&k->args[i].array);
    strata_remote_value_release(k->value);
    free(k);
}

/* Removes the first closure from the queue, which must not be empty. Locked. */
static strata_closure *take_first(strata_coordinator *c) {
    strata_closure *k = c->first;
    c->first = k->next;
    if (!c->first) c->last = NULL;
    c->counts.queued--;
    return k;
}

/* Ends all closures in the queue with this error. Locked. */
static void cancel_all(strata_coordinator *c, const strata_error *error) {
    while (c->first) {
        strata_closure *k = take_first(c);
        finish_value(k->value, NULL, error);
        c->counts.ended++;
        free_closure(k);
    }
}

/* Stores the error for the next call of schedule, join or done, unless an earlier one is stored, and cancels all closures in
 * the queue. Locked. */
static void keep_error(strata_coordinator *c, const strata_error *error) {
    strata_error cancelled;
    if (!c->error.status) c->error = *error;
    strata_fail(&cancelled, STRATA_INTERRUPTED, "the closure was cancelled, because another one had failed: %.700s",
                c->error.message);
    cancel_all(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
}

/* Ends a closure that has run, which it takes, with its results or with an error. */
static void end_closure(strata_coordinator *c, strata_closure *k, strata_array *results, const strata_error *error) {
    finish_value(k->value, results, error);
    free_closure(k);
    STRATA_LOCKED(&c->lock);
    c->counts.running--;
    c->counts.ended++;
    if (error) keep_error(c, error);
    pthread_cond_broadcast(&c->changed);
}

/* Returns a closure whose worker was lost to the front of the queue. If an error is stored, the closure is cancelled. */
static void put_back(strata_coordinator *c, strata_closure *k) {
    STRATA_LOCKED(&c->lock);
    c->counts.running--;
    c->counts.repeated++;
    k->next = c->first;
    c->first = k;
    if (!c->last) c->last = k;
    c->counts.queued++;
    if (c->error.status) keep_error(c, &c->error);
    pthread_cond_broadcast(&c->changed);
}

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
            status = copy_array(&view, &results[i], err);
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

/* Makes one attempt to connect, of about ATTEMPT_SECONDS, if there is no client. */
static strata_status connect_worker(strata_dispatcher *d, strata_error *err) {
    strata_coordinator *c = d->coordinator;
    strata_communicator_options cluster = c->cluster;
    cluster.connect_seconds = ATTEMPT_SECONDS;
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
    cancel_all(c, &error);
    keep_error(c, &error);
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
        keep_error(c, &result);
    }
}

/* Whether an argument of the closure is a per-worker value whose object some worker could not create. *out_why: the worker's
 * error. Locked. */
static bool is_broken(const strata_closure *k, strata_error *out_why) {
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
        put_back(d->coordinator, k);
        return;
    }
    strata_rpc_client_destroy(d->client); /* a late result of the worker is discarded */
    d->client = NULL;
    end_closure(d->coordinator, k, NULL, why);
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
        strata_wait_for(&c->changed, &c->lock, 1);
        if (!is_same_worker(d)) return NULL;
    }
    if (!c->first || c->n_values != n_values || !is_same_worker(d)) return NULL;
    strata_closure *k = take_first(c);
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
    const bool broken = is_broken(k, &result);
    pthread_mutex_unlock(&c->lock);
    if (broken)
        end_closure(c, k, NULL, &result);
    else if (run_closure(d, k, &results, &result, &why))
        end_or_repeat(d, k, &why);
    else
        end_closure(c, k, results, result.status ? &result : NULL);
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

/* The thread of a dispatcher. user: the strata_dispatcher. */
static void *run_dispatcher(void *user) {
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
            if (d->refused && d->was_available && !d->reported) keep_error(c, &why);
            d->reported |= d->refused;
            pthread_cond_broadcast(&c->changed);
            check_any_available(c, d);
            if (!c->closing) strata_wait_for(&c->changed, &c->lock, d->refused ? 1 : TICK_SECONDS);
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

/* ---- creating and destroying ---- */

static strata_status check_options(const strata_coordinator_options *opts, strata_error *err) {
    if (opts->n_workers < 1 || !opts->workers)
        return strata_fail(err, STRATA_INVALID, "a coordinator needs at least one worker");
    for (int i = 0; i < opts->n_workers; i++)
        if (!opts->workers[i]) return strata_fail(err, STRATA_INVALID, "worker %d has no address", i);
    if (opts->queue_bound < 0 || opts->least_workers < 0 || opts->least_workers > opts->n_workers)
        return strata_fail(err, STRATA_INVALID, "queue_bound is %lld and least_workers %d of %d", (long long)opts->queue_bound,
                           opts->least_workers, opts->n_workers);
    if (!(opts->worker_seconds >= 0) || !(opts->closure_seconds >= 0))
        return strata_fail(err, STRATA_INVALID, "worker_seconds is %g and closure_seconds %g; they must be at least 0",
                           opts->worker_seconds, opts->closure_seconds);
    return strata_remote_check_functions(opts->task ? opts->task : "chief:0", opts->functions, opts->n_functions, err);
}

/* Waits until `least` workers are available. Fails if a worker is refused, and at the deadline. */
static strata_status wait_for_workers(strata_coordinator *c, int least, strata_error *err) {
    const double seconds = c->cluster.connect_seconds > 0 ? c->cluster.connect_seconds : CONNECT_SECONDS;
    const double deadline = strata_clock_seconds() + seconds;
    STRATA_LOCKED(&c->lock);
    for (;;) {
        for (int i = 0; i < c->n_workers; i++)
            if (c->workers[i].refused) return strata_fail(err, STRATA_INVALID, "%s", c->workers[i].problem.message);
        if (c->counts.workers >= least) return STRATA_OK;
        if (strata_clock_seconds() > deadline) break;
        strata_wait_for(&c->changed, &c->lock, TICK_SECONDS);
    }
    char names[256] = "", why[400] = "";
    for (int i = 0; i < c->n_workers; i++) {
        const size_t used = strlen(names);
        if (c->workers[i].available) continue;
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", c->workers[i].task);
        snprintf(why, sizeof why, "%.399s", c->workers[i].problem.message);
    }
    return strata_fail(err, STRATA_TIMEOUT, "%d of %d workers were reached within %g s; missing: %s; %s", c->counts.workers,
                       c->n_workers, seconds, names, why);
}

strata_status strata_coordinator_create(const strata_coordinator_options *opts, strata_coordinator **out_coordinator,
                                        strata_error *err) {
    *out_coordinator = NULL;
    STRATA_TRY(check_options(opts, err));
    strata_coordinator *c = calloc(1, sizeof *c);
    if (c) c->workers = strata_memory_take(&c->memory, opts->n_workers, sizeof *c->workers);
    if (!c || !c->workers) {
        free(c);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a coordinator of %d workers", opts->n_workers);
    }
    snprintf(c->task, sizeof c->task, "%s", opts->task ? opts->task : "chief:0");
    c->functions = opts->functions;
    c->n_functions = opts->n_functions;
    c->queue_bound = opts->queue_bound ? opts->queue_bound : STRATA_REMOTE_QUEUE_BOUND;
    c->worker_seconds = opts->worker_seconds > 0 ? opts->worker_seconds : WORKER_SECONDS;
    c->closure_seconds = opts->closure_seconds > 0 ? opts->closure_seconds : UNBOUNDED;
    c->n_workers = opts->n_workers;
    c->workers_changed_at = strata_clock_seconds();
    pthread_mutex_init(&c->lock, NULL);
    strata_clock_cond_init(&c->changed);
    /* clients also connect after create has returned */
    strata_status status = strata_memory_copy_cluster(&c->memory, opts->cluster, &c->cluster, err);
    for (int i = 0; i < c->n_workers && !status; i++) {
        strata_dispatcher *d = &c->workers[i];
        d->coordinator = c;
        d->number = i;
        snprintf(d->task, sizeof d->task, "worker:%d", i);
        d->address = strata_memory_copy(&c->memory, opts->workers[i], strlen(opts->workers[i]) + 1);
        if (!d->address) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a coordinator");
        if (!status && pthread_create(&d->thread, NULL, run_dispatcher, d))
            status = strata_fail(err, STRATA_UNAVAILABLE, "the system cannot start a thread for %s", d->task);
        d->has_thread = !status;
    }
    if (!status) {
        status = wait_for_workers(c, opts->least_workers ? opts->least_workers : c->n_workers, &c->failure);
        if (status) strata_fail(err, status, "%s", c->failure.message);
    }
    if (status)
        strata_coordinator_destroy(c);
    else
        *out_coordinator = c;
    return status;
}

static void free_value(strata_per_worker *v) {
    for (int i = 0; i < v->n_args; i++) strata_array_finish(&v->args[i]);
    free(v);
}

void strata_coordinator_destroy(strata_coordinator *c) {
    strata_error cancelled;
    if (!c) return;
    strata_fail(&cancelled, STRATA_INTERRUPTED, "the closure was cancelled, because the coordinator was destroyed");
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    cancel_all(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].has_thread) pthread_join(c->workers[i].thread, NULL);
    cancel_all(c, &cancelled); /* a dispatcher may have returned one to the queue */
    while (c->values) {
        strata_per_worker *v = c->values;
        c->values = v->next;
        free_value(v);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    strata_memory_finish(&c->memory);
    free(c);
}

/* ---- scheduling ---- */

/* If an error is pending, waits until no closure runs, then returns the error and clears it. The caller holds the lock. */
static strata_status return_error(strata_coordinator *c, strata_error *err) {
    while (c->error.status && c->counts.running) strata_wait_for(&c->changed, &c->lock, 1);
    const strata_status status = c->error.status;
    if (!status) return STRATA_OK; /* another thread has returned the error meanwhile */
    strata_fail(err, status, "%s", c->error.message);
    c->error.status = STRATA_OK;
    return status;
}

static strata_status find_function(const strata_coordinator *c, const char *name, bool makes, int n_args,
                                   const strata_remote_function **out, strata_error *err) {
    *out = strata_remote_find(c->functions, c->n_functions, name);
    if (!*out) return strata_fail(err, STRATA_INVALID, "there is no function \"%s\" in the coordinator's table", name);
    if (n_args < 0 || n_args > STRATA_REMOTE_MAX_ARRAYS)
        return strata_fail(err, STRATA_INVALID, "%d arguments for \"%s\"; 0 to %d are possible", n_args, name,
                           STRATA_REMOTE_MAX_ARRAYS);
    if (((*out)->make != NULL) == makes) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       makes ? "function \"%s\" runs closures; a per-worker value needs one with make"
                             : "function \"%s\" makes per-worker values, and cannot be scheduled",
                       name);
}

static strata_status make_closure(strata_coordinator *c, const char *name, const strata_remote_arg *args, int n_args,
                                  strata_closure **out, strata_error *err) {
    const strata_remote_function *function = NULL;
    STRATA_TRY(find_function(c, name, false, n_args, &function, err));
    for (int i = 0; i < n_args; i++) {
        if (!args[i].array == !args[i].per_worker)
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" must be either an array or a per-worker value", i,
                               name);
        if (args[i].per_worker && args[i].per_worker->coordinator != c)
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" is a value of another coordinator", i, name);
        if (args[i].array && (strata_shape_check(args[i].array->shape, err) || !strata_dtype_bytes(args[i].array->dtype)))
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" is not a valid array", i, name);
    }
    strata_closure *k = calloc(1, sizeof *k + (size_t)n_args * sizeof k->args[0]);
    if (k) k->value = create_remote_value(function);
    if (!k || !k->value) {
        free(k);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a closure");
    }
    k->function = function;
    k->n_args = n_args;
    strata_status status = STRATA_OK;
    for (int i = 0; i < n_args && !status; i++) {
        k->args[i].per_worker = args[i].per_worker;
        if (args[i].array) status = copy_array(args[i].array, &k->args[i].array, err);
    }
    if (status)
        free_closure(k);
    else
        *out = k;
    return status;
}

strata_status strata_coordinator_schedule(strata_coordinator *c, const char *function, const strata_remote_arg *args,
                                          int n_args, strata_remote_value **out_value, strata_error *err) {
    strata_closure *k = NULL;
    if (out_value) *out_value = NULL;
    STRATA_TRY(make_closure(c, function, args, n_args, &k, err));
    pthread_mutex_lock(&c->lock);
    while (!c->error.status && (c->n_joining || c->counts.queued >= c->queue_bound)) strata_wait_for(&c->changed, &c->lock, 1);
    strata_error why = {0};
    strata_status status = return_error(c, err);
    if (!status && is_broken(k, &why)) status = strata_fail(err, why.status, "%s", why.message);
    if (!status) {
        k->id = ++c->n_closures;
        k->scheduled_at = strata_clock_seconds();
        if (out_value) {
            atomic_fetch_add(&k->value->references, 1);
            *out_value = k->value;
        }
        *(c->last ? &c->last->next : &c->first) = k;
        c->last = k;
        c->counts.queued++;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (status) free_closure(k);
    return status;
}

strata_status strata_coordinator_join(strata_coordinator *c, strata_error *err) {
    STRATA_LOCKED(&c->lock);
    c->n_joining++;
    while (!c->error.status && (c->first || c->counts.running)) strata_wait_for(&c->changed, &c->lock, 1);
    const strata_status status = return_error(c, err);
    c->n_joining--;
    pthread_cond_broadcast(&c->changed);
    return status;
}

strata_status strata_coordinator_done(strata_coordinator *c, bool *out_done, strata_error *err) {
    STRATA_LOCKED(&c->lock);
    *out_done = !c->first && !c->counts.running;
    return c->counts.running ? STRATA_OK : return_error(c, err);
}

strata_status strata_per_worker_create(strata_coordinator *c, const char *function, const strata_array *args, int n_args,
                                       strata_per_worker **out_value, strata_error *err) {
    const strata_remote_function *row = NULL;
    *out_value = NULL;
    STRATA_TRY(find_function(c, function, true, n_args, &row, err));
    strata_per_worker *v = calloc(1, sizeof *v + (size_t)n_args * sizeof v->args[0]);
    if (!v) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a per-worker value");
    v->coordinator = c;
    v->function = row;
    v->n_args = n_args;
    strata_status status = STRATA_OK;
    for (int i = 0; i < n_args && !status; i++) status = copy_array(&args[i], &v->args[i], err);
    if (status) {
        free_value(v);
        return status;
    }
    *out_value = v;
    STRATA_LOCKED(&c->lock);
    v->id = ++c->n_values;
    *(c->last_value ? &c->last_value->next : &c->values) = v;
    c->last_value = v;
    pthread_cond_broadcast(&c->changed);
    return STRATA_OK;
}

strata_coordinator_counts strata_coordinator_count(strata_coordinator *c) {
    STRATA_LOCKED(&c->lock);
    return c->counts;
}
