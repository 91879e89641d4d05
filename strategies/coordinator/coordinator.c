/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator's side: one queue of closures, and for each worker a thread, its *dispatcher*, which connects, greets, has
 * per-worker values made, and then takes closures from the queue, one at a time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/clock.h"
#include "cluster/rpc/rpc.h"
#include "strategies/coordinator/wire.h"

static const double CONNECT_SECONDS = 60, WORKER_SECONDS = 3600, TRY_SECONDS = 0.5, /* of one try to connect */
    RECONNECT_SECONDS = 2, /* for a link that was cut, before the closure runs elsewhere */
    GREET_SECONDS = 5,     /* which a worker cannot answer while it runs a closure that was given up */
    MAKE_SECONDS = 600,    /* for a worker to make a value */
    END_SECONDS = 3, TICK_SECONDS = 0.05, UNBOUNDED = 1e9;

struct strata_per_worker {
    strata_per_worker *next;
    strata_coordinator *coordinator;
    uint64_t id;
    const strata_remote_function *function;
    /* Why a worker could not make its object; under the coordinator's lock. */
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
    /* [function's n_results] once done without an error. */
    strata_array *results;
};

typedef struct closure {
    struct closure *next;
    uint64_t id;
    /* When it was scheduled. */
    double since;
    const strata_remote_function *function;
    int attempt;
    strata_remote_value *value;
    int n_args;
    /* An array that is owned, or a per-worker value. */
    struct {
        strata_array array;
        const strata_per_worker *per_worker;
    } args[];
} closure;

typedef struct dispatcher {
    strata_coordinator *coordinator;
    int number;
    char task[STRATA_RPC_TASK_BYTES];
    char *address;
    pthread_t thread;
    bool has_thread;
    strata_rpc_client *client;
    /* The worker's incarnation that was greeted, 0: none; and how many per-worker values it has. */
    uint64_t greeted;
    uint64_t n_made;

    /* Under the coordinator's lock. It was greeted and is there; it came before; it runs another program, and that was
     * reported; what the last trouble was. */
    bool there, came, refused, reported;
    strata_error problem;
} dispatcher;

struct strata_coordinator {
    char task[STRATA_RPC_TASK_BYTES];
    const strata_remote_function *functions;
    int n_functions;
    int64_t queue_bound;
    double worker_seconds, closure_seconds;
    strata_communicator_options cluster;
    char *texts[6], *secret;
    int n_workers;
    dispatcher *workers;

    /* Guards all below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    /* Why create failed, for the workers. */
    strata_error failure;
    closure *first, *last;
    uint64_t n_closures;
    int n_joining;
    /* The first error, which nobody has been told yet. */
    strata_error error;
    strata_per_worker *values, *last_value;
    uint64_t n_values;
    strata_coordinator_counts counts;
    /* Since when no worker is there. */
    double alone_since;
};

static void wait_changed(strata_coordinator *c, double seconds) {
    const struct timespec at = strata_clock_after(seconds);
    pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

static void init_monotonic(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* ---- values ---- */

static strata_remote_value *create_value(const strata_remote_function *function) {
    strata_remote_value *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    atomic_store(&v->references, 1);
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->changed, NULL);
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

/* Takes the results; error NULL: there is none. */
static void finish_value(strata_remote_value *v, strata_array *results, const strata_error *error) {
    pthread_mutex_lock(&v->lock);
    v->done = true;
    v->results = results;
    if (error) v->error = *error;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
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
        return strata_fail(err, STRATA_INVALID, "\"%s\" has %d results, and %d were asked for", v->function->name,
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
    pthread_mutex_lock(&v->lock);
    const int attempts = v->attempts;
    pthread_mutex_unlock(&v->lock);
    return attempts;
}

/* ---- closures ---- */

static void free_closure(closure *k) {
    for (int i = 0; i < k->n_args; i++) strata_array_finish(&k->args[i].array);
    strata_remote_value_release(k->value);
    free(k);
}

static closure *take_first(strata_coordinator *c) {
    closure *k = c->first;
    c->first = k->next;
    if (!c->first) c->last = NULL;
    c->counts.queued--;
    return k;
}

/* Ends every closure that waits, with this error. The lock is held. */
static void cancel_queue(strata_coordinator *c, const strata_error *error) {
    while (c->first) {
        closure *k = take_first(c);
        finish_value(k->value, NULL, error);
        c->counts.ended++;
        free_closure(k);
    }
}

/* Keeps the first error, and cancels what waits. The lock is held. */
static void keep_error(strata_coordinator *c, const strata_error *error) {
    strata_error cancelled;
    if (!c->error.status) c->error = *error;
    strata_fail(&cancelled, STRATA_INTERRUPTED, "the closure was cancelled, as another one had failed: %.700s",
                c->error.message);
    cancel_queue(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
}

/* A closure that ran is over. Takes it. */
static void end_closure(strata_coordinator *c, closure *k, strata_array *results, const strata_error *error) {
    finish_value(k->value, results, error);
    pthread_mutex_lock(&c->lock);
    c->counts.running--;
    c->counts.ended++;
    if (error) keep_error(c, error);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    free_closure(k);
}

/* A closure whose worker was lost goes before all others; where an error is pending it is cancelled as they were. */
static void put_back(strata_coordinator *c, closure *k) {
    pthread_mutex_lock(&c->lock);
    c->counts.running--;
    c->counts.repeated++;
    k->next = c->first;
    c->first = k;
    if (!c->last) c->last = k;
    c->counts.queued++;
    if (c->error.status) keep_error(c, &c->error);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* ---- dispatchers: requests to a worker ---- */

/* Sends a request whose arguments are in w and pieces. */
static strata_status ask(dispatcher *d, strata_remote_method method, const unsigned char *head, const strata_remote_writer *w,
                         const struct iovec *pieces, int n_pieces, const char *what, double seconds,
                         unsigned char out_head[STRATA_RPC_HEAD_BYTES], strata_rpc_answer *answer, strata_error *err) {
    if (w->full)
        return strata_fail(err, STRATA_INVALID, "%s: its description has more than %d bytes", what, STRATA_RPC_HEAD_BYTES);
    const strata_rpc_ask request = {
        .method = method, .head = head, .head_bytes = (size_t)(w->at - head), .body = pieces, .n_body = n_pieces, .what = what};
    *answer = (strata_rpc_answer){.head = out_head, .head_bytes = STRATA_RPC_HEAD_BYTES};
    return strata_rpc_client_call(d->client, &request, answer, seconds, err);
}

/* The status that a user's function on the worker returned. DATA, as the call's own status, where none is there. */
static strata_status get_result(const dispatcher *d, strata_remote_reader *r, const char *what, strata_error *result,
                                strata_error *err) {
    char text[STRATA_ERROR_MESSAGE_BYTES] = "";
    const strata_status status = (strata_status)strata_remote_get(r, 1);
    if (status) strata_remote_get_text(r, text, sizeof text);
    if (r->wrong || status > STRATA_INTERNAL) return strata_fail(err, STRATA_DATA, "the reply of %s is cut off", d->task);
    *result = (strata_error){0};
    if (status) strata_fail(result, status, "%s on %s: %.900s", what, d->task, text);
    return STRATA_OK;
}

static strata_status greet(dispatcher *d, unsigned char *head, unsigned char *reply, strata_error *err) {
    const strata_coordinator *c = d->coordinator;
    strata_remote_writer w = {head, head + STRATA_RPC_HEAD_BYTES, false};
    strata_rpc_answer answer;
    const uint64_t incarnation = strata_rpc_client_server_incarnation(d->client);
    strata_remote_put(&w, (uint64_t)d->number, 4);
    strata_remote_put(&w, (uint64_t)c->n_workers, 4);
    strata_remote_put_functions(&w, c->functions, c->n_functions);
    STRATA_TRY(
        ask(d, STRATA_REMOTE_GREET, head, &w, NULL, 0, "the comparison of functions", GREET_SECONDS, reply, &answer, err));
    free(answer.allocated);
    d->greeted = incarnation;
    d->n_made = 0;
    return STRATA_OK;
}

/* Has this worker's object of the value made. *result: what its function returned. */
static strata_status make_value(dispatcher *d, const strata_per_worker *v, unsigned char *head, unsigned char *reply,
                                strata_error *result, strata_error *err) {
    strata_remote_writer w = {head, head + STRATA_RPC_HEAD_BYTES, false};
    struct iovec pieces[STRATA_REMOTE_PIECES];
    char what[96];
    int n_pieces = 0;
    strata_rpc_answer answer;
    snprintf(what, sizeof what, "making \"%s\"", v->function->name);
    strata_remote_put(&w, v->id, 8);
    strata_remote_put_text(&w, v->function->name);
    strata_remote_put(&w, (uint64_t)v->n_args, 1);
    for (int i = 0; i < v->n_args; i++) {
        strata_remote_put(&w, 0, 1);
        strata_remote_put_array(&w, &v->args[i]);
        n_pieces = strata_remote_add_piece(pieces, n_pieces, &v->args[i]);
    }
    STRATA_TRY(ask(d, STRATA_REMOTE_MAKE, head, &w, pieces, n_pieces, what, MAKE_SECONDS, reply, &answer, err));
    free(answer.allocated);
    strata_remote_reader r = {reply, reply + answer.head_bytes, false};
    return get_result(d, &r, what, result, err);
}

static strata_status read_results(const dispatcher *d, const closure *k, strata_remote_reader *r, strata_rpc_answer *answer,
                                  strata_array **out_results, strata_error *err) {
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

/* Runs a closure. *result: what the function returned. Fails with what is wrong with the worker. */
static strata_status run_closure(dispatcher *d, const closure *k, unsigned char *head, unsigned char *reply,
                                 strata_array **out_results, strata_error *result, strata_error *err) {
    const strata_coordinator *c = d->coordinator;
    strata_remote_writer w = {head, head + STRATA_RPC_HEAD_BYTES, false};
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
    STRATA_TRY(ask(d, STRATA_REMOTE_RUN, head, &w, pieces, n_pieces, what, c->closure_seconds, reply, &answer, err));
    strata_remote_reader r = {reply, reply + answer.head_bytes, false};
    strata_status status = get_result(d, &r, what, result, err);
    if (!status && !result->status && read_results(d, k, &r, &answer, out_results, result))
        strata_fail_in(result, result->status, "%s", what);
    free(answer.allocated);
    return status;
}

/* ---- dispatchers: a worker's life ---- */

/* The worker is there, or is not; the lock is held. */
static void set_there(dispatcher *d, bool there, const strata_error *problem) {
    strata_coordinator *c = d->coordinator;
    if (problem) d->problem = *problem;
    if (d->there == there) return;
    d->there = there;
    c->counts.workers += there ? 1 : -1;
    c->counts.lost += !there && !c->closing;
    c->alone_since = strata_clock_seconds();
    pthread_cond_broadcast(&c->changed);
}

/* Connects once, at most for TRY_SECONDS or so, where there is no client. */
static strata_status connect_worker(dispatcher *d, strata_error *err) {
    strata_coordinator *c = d->coordinator;
    strata_communicator_options cluster = c->cluster;
    cluster.connect_seconds = TRY_SECONDS;
    const strata_rpc_client_options opts = {
        .task = c->task, .server = d->task, .address = d->address, .cluster = &cluster, .reconnect_seconds = RECONNECT_SECONDS};
    return d->client ? STRATA_OK : strata_rpc_client_create(&opts, &d->client, err);
}

/* Fails closures that wait when no worker has been there for long. The lock is held. */
static void check_alone(strata_coordinator *c, const dispatcher *d) {
    strata_error error;
    if (c->counts.workers || !c->first) return;
    const double since = c->alone_since > c->first->since ? c->alone_since : c->first->since;
    if (strata_clock_seconds() - since < c->worker_seconds) return;
    strata_fail(&error, STRATA_PEER_LOST, "no worker was there for %g s; %s: %.600s", c->worker_seconds, d->task,
                d->problem.message);
    cancel_queue(c, &error);
    keep_error(c, &error);
}

/* Connects, greets and has values made, so that the worker can run closures. The lock is not held. */
static strata_status prepare(dispatcher *d, unsigned char *head, unsigned char *reply, strata_error *err) {
    strata_coordinator *c = d->coordinator;
    STRATA_TRY(connect_worker(d, err));
    if (!strata_rpc_client_connected(d->client)) return strata_fail(err, STRATA_UNAVAILABLE, "%s is not connected", d->task);
    if (d->greeted != strata_rpc_client_server_incarnation(d->client)) STRATA_TRY(greet(d, head, reply, err));
    for (;;) {
        strata_error result = {0};
        pthread_mutex_lock(&c->lock);
        strata_per_worker *v = c->values;
        while (v && v->id <= d->n_made) v = v->next;
        pthread_mutex_unlock(&c->lock);
        if (!v) return STRATA_OK;
        STRATA_TRY(make_value(d, v, head, reply, &result, err));
        d->n_made = v->id;
        if (!result.status) continue;
        pthread_mutex_lock(&c->lock);
        v->failure = result;
        keep_error(c, &result);
        pthread_mutex_unlock(&c->lock);
    }
}

/* Whether an argument of the closure is a value that some worker could not make. The lock is held. */
static bool is_broken(const closure *k, strata_error *out_why) {
    for (int i = 0; i < k->n_args; i++) {
        if (!k->args[i].per_worker || !k->args[i].per_worker->failure.status) continue;
        *out_why = k->args[i].per_worker->failure;
        return true;
    }
    return false;
}

/* What to do with a closure whose worker failed. */
static void end_or_repeat(dispatcher *d, closure *k, strata_error *why) {
    strata_coordinator *c = d->coordinator;
    pthread_mutex_lock(&c->lock);
    set_there(d, false, why);
    pthread_mutex_unlock(&c->lock);
    d->greeted = 0;
    if (why->status == STRATA_PEER_LOST || why->status == STRATA_UNAVAILABLE) {
        k->attempt++;
        put_back(c, k);
        return;
    }
    strata_rpc_client_destroy(d->client); /* what the worker still does is nobody's */
    d->client = NULL;
    end_closure(c, k, NULL, why);
}

/* Takes a closure, when there is one. The lock is held. */
static closure *wait_closure(strata_coordinator *c, const dispatcher *d) {
    const uint64_t n_values = c->n_values;
    while (!c->first && !c->closing && c->n_values == n_values) {
        wait_changed(c, 1);
        if (!strata_rpc_client_connected(d->client)) return NULL;
    }
    if (!c->first || c->n_values != n_values || !strata_rpc_client_connected(d->client)) return NULL;
    closure *k = take_first(c);
    c->counts.running++;
    pthread_cond_broadcast(&c->changed);
    return k;
}

static void serve_closure(dispatcher *d, closure *k, unsigned char *head, unsigned char *reply) {
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
    else if (run_closure(d, k, head, reply, &results, &result, &why))
        end_or_repeat(d, k, &why);
    else
        end_closure(c, k, results, result.status ? &result : NULL);
}

/* Greets a worker that then is told why the coordinator ends; one of another program ends by the greeting. */
static void tell_failure(dispatcher *d, unsigned char *head, unsigned char *reply) {
    strata_error ignored;
    if (greet(d, head, reply, &ignored)) d->greeted = 0;
}

static void *run_dispatcher(void *user) {
    dispatcher *d = user;
    strata_coordinator *c = d->coordinator;
    unsigned char *head = malloc(2 * STRATA_RPC_HEAD_BYTES), *reply = head + STRATA_RPC_HEAD_BYTES;
    pthread_mutex_lock(&c->lock);
    while (!c->closing || (c->first && d->there)) {
        strata_error why = {0};
        strata_status status = STRATA_OUT_OF_MEMORY;
        pthread_mutex_unlock(&c->lock);
        if (head) status = prepare(d, head, reply, &why);
        pthread_mutex_lock(&c->lock);
        if (status) {
            d->refused = status == STRATA_INVALID;
            set_there(d, false, &why);
            if (d->refused && d->came && !d->reported) keep_error(c, &why); /* it came back as another program */
            d->reported |= d->refused;
            pthread_cond_broadcast(&c->changed);
            check_alone(c, d);
            if (!c->closing) wait_changed(c, d->refused ? 1 : TICK_SECONDS);
            continue;
        }
        d->refused = d->reported = false;
        d->came = true;
        set_there(d, true, NULL);
        closure *k = wait_closure(c, d);
        if (!k) continue;
        pthread_mutex_unlock(&c->lock);
        serve_closure(d, k, head, reply);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    /* A worker that had not been greeted when create failed is to fail too. */
    if (head && c->failure.status && !d->greeted && !connect_worker(d, NULL)) tell_failure(d, head, reply);
    if (d->client && d->greeted && head) {
        strata_remote_writer w = {head, head + STRATA_RPC_HEAD_BYTES, false};
        strata_rpc_answer answer;
        strata_remote_put(&w, c->failure.status, 1);
        strata_remote_put_text(&w, c->failure.message);
        if (!ask(d, STRATA_REMOTE_END, head, &w, NULL, 0, "the end", END_SECONDS, reply, &answer, NULL)) free(answer.allocated);
    }
    strata_rpc_client_destroy(d->client);
    free(head);
    return NULL;
}

/* ---- life ---- */

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

/* Own copies of what the clients need whenever they connect. */
static strata_status copy_cluster(strata_coordinator *c, const strata_communicator_options *from, strata_error *err) {
    const strata_communicator_options none = {0};
    c->cluster = from ? *from : none;
    const char **texts[] = {&c->cluster.tls_cert, &c->cluster.tls_key,   &c->cluster.tls_ca,
                            &c->cluster.tls_name, &c->cluster.interface, &c->cluster.store};
    bool whole = true;
    for (int i = 0; i < 6; i++) {
        if (!*texts[i]) continue;
        c->texts[i] = strdup(*texts[i]);
        *texts[i] = c->texts[i];
        whole &= c->texts[i] != NULL;
    }
    c->secret = malloc(c->cluster.secret_bytes + 1);
    if (!whole || !c->secret) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a coordinator");
    if (c->cluster.secret_bytes && !c->cluster.secret)
        return strata_fail(err, STRATA_INVALID, "secret_bytes is %zu without a secret", c->cluster.secret_bytes);
    if (c->cluster.secret_bytes) memcpy(c->secret, c->cluster.secret, c->cluster.secret_bytes);
    c->cluster.secret = c->secret;
    return STRATA_OK;
}

/* Waits until enough workers are there; fails for one that is refused, and at the deadline. The lock is held. */
static strata_status wait_for_workers(strata_coordinator *c, int least, double seconds, strata_error *err) {
    const double deadline = strata_clock_seconds() + seconds;
    for (;;) {
        for (int i = 0; i < c->n_workers; i++)
            if (c->workers[i].refused) return strata_fail(err, STRATA_INVALID, "%s", c->workers[i].problem.message);
        if (c->counts.workers >= least) return STRATA_OK;
        if (strata_clock_seconds() > deadline) break;
        wait_changed(c, TICK_SECONDS);
    }
    char names[256] = "", why[400] = "";
    for (int i = 0; i < c->n_workers; i++) {
        const size_t used = strlen(names);
        if (c->workers[i].there) continue;
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", c->workers[i].task);
        snprintf(why, sizeof why, "%.399s", c->workers[i].problem.message);
    }
    return strata_fail(err, STRATA_TIMEOUT, "%d of %d workers came within %g s; missing: %s; %s", c->counts.workers,
                       c->n_workers, seconds, names, why);
}

strata_status strata_coordinator_create(const strata_coordinator_options *opts, strata_coordinator **out_coordinator,
                                        strata_error *err) {
    *out_coordinator = NULL;
    STRATA_TRY(check_options(opts, err));
    strata_coordinator *c = calloc(1, sizeof *c);
    if (c) c->workers = calloc((size_t)opts->n_workers, sizeof *c->workers);
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
    c->alone_since = strata_clock_seconds();
    pthread_mutex_init(&c->lock, NULL);
    init_monotonic(&c->changed);
    strata_status status = copy_cluster(c, opts->cluster, err);
    for (int i = 0; i < c->n_workers && !status; i++) {
        dispatcher *d = &c->workers[i];
        d->coordinator = c;
        d->number = i;
        snprintf(d->task, sizeof d->task, "worker:%d", i);
        d->address = strdup(opts->workers[i]);
        if (!d->address) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a coordinator");
        if (!status && pthread_create(&d->thread, NULL, run_dispatcher, d))
            status = strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for %s", d->task);
        d->has_thread = !status;
    }
    if (!status) {
        const double seconds = c->cluster.connect_seconds > 0 ? c->cluster.connect_seconds : CONNECT_SECONDS;
        pthread_mutex_lock(&c->lock);
        status = wait_for_workers(c, opts->least_workers ? opts->least_workers : c->n_workers, seconds, &c->failure);
        pthread_mutex_unlock(&c->lock);
        if (status) strata_fail(err, status, "%s", c->failure.message);
    }
    if (status)
        strata_coordinator_destroy(c);
    else
        *out_coordinator = c;
    return status;
}

void strata_coordinator_destroy(strata_coordinator *c) {
    strata_error cancelled;
    if (!c) return;
    strata_fail(&cancelled, STRATA_INTERRUPTED, "the closure was cancelled, as the coordinator was destroyed");
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    cancel_queue(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_workers; i++) {
        if (c->workers[i].has_thread) pthread_join(c->workers[i].thread, NULL);
        free(c->workers[i].address);
    }
    cancel_queue(c, &cancelled); /* one may have been put back */
    while (c->values) {
        strata_per_worker *v = c->values;
        c->values = v->next;
        for (int i = 0; i < v->n_args; i++) strata_array_finish(&v->args[i]);
        free(v);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    for (int i = 0; i < 6; i++) free(c->texts[i]);
    free(c->secret);
    free(c->workers);
    free(c);
}

/* ---- scheduling ---- */

/* Where an error is pending: waits until nothing runs, raises it and clears it. The lock is held. */
static strata_status raise_error(strata_coordinator *c, strata_error *err) {
    while (c->error.status && c->counts.running) wait_changed(c, 1);
    const strata_status status = c->error.status;
    if (!status) return STRATA_OK; /* another thread was faster */
    strata_fail(err, status, "%s", c->error.message);
    c->error.status = STRATA_OK;
    return status;
}

static strata_status find_function(const strata_coordinator *c, const char *name, bool makes,
                                   const strata_remote_function **out, strata_error *err) {
    *out = strata_remote_find(c->functions, c->n_functions, name);
    if (!*out) return strata_fail(err, STRATA_INVALID, "there is no function \"%s\" in the coordinator's table", name);
    if (((*out)->make != NULL) == makes) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       makes ? "function \"%s\" runs closures; a per-worker value needs one with make"
                             : "function \"%s\" makes per-worker values, and cannot be scheduled",
                       name);
}

static strata_status make_closure(strata_coordinator *c, const char *name, const strata_remote_arg *args, int n_args,
                                  closure **out, strata_error *err) {
    const strata_remote_function *function = NULL;
    STRATA_TRY(find_function(c, name, false, &function, err));
    if (n_args < 0 || n_args > STRATA_REMOTE_MAX_ARRAYS)
        return strata_fail(err, STRATA_INVALID, "%d arguments for \"%s\"; 0 to %d are possible", n_args, name,
                           STRATA_REMOTE_MAX_ARRAYS);
    for (int i = 0; i < n_args; i++) {
        if (!args[i].array == !args[i].per_worker)
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" must be either an array or a per-worker value", i,
                               name);
        if (args[i].per_worker && args[i].per_worker->coordinator != c)
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" is a value of another coordinator", i, name);
        if (args[i].array && (strata_shape_check(args[i].array->shape, err) || !strata_dtype_bytes(args[i].array->dtype)))
            return strata_fail(err, STRATA_INVALID, "argument %d of \"%s\" is no array", i, name);
    }
    closure *k = calloc(1, sizeof *k + (size_t)n_args * sizeof k->args[0]);
    if (k) k->value = create_value(function);
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
    closure *k = NULL;
    if (out_value) *out_value = NULL;
    STRATA_TRY(make_closure(c, function, args, n_args, &k, err));
    pthread_mutex_lock(&c->lock);
    while (!c->error.status && (c->n_joining || c->counts.queued >= c->queue_bound)) wait_changed(c, 1);
    strata_error why = {0};
    strata_status status = raise_error(c, err);
    if (!status && is_broken(k, &why)) status = strata_fail(err, why.status, "%s", why.message);
    if (!status) {
        k->id = ++c->n_closures;
        k->since = strata_clock_seconds();
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
    pthread_mutex_lock(&c->lock);
    c->n_joining++;
    while (!c->error.status && (c->first || c->counts.running)) wait_changed(c, 1);
    const strata_status status = raise_error(c, err);
    c->n_joining--;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return status;
}

strata_status strata_coordinator_done(strata_coordinator *c, bool *out_done, strata_error *err) {
    pthread_mutex_lock(&c->lock);
    *out_done = !c->first && !c->counts.running;
    const strata_status status = c->counts.running ? STRATA_OK : raise_error(c, err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

strata_status strata_per_worker_create(strata_coordinator *c, const char *function, const strata_array *args, int n_args,
                                       strata_per_worker **out_value, strata_error *err) {
    const strata_remote_function *row = NULL;
    *out_value = NULL;
    STRATA_TRY(find_function(c, function, true, &row, err));
    if (n_args < 0 || n_args > STRATA_REMOTE_MAX_ARRAYS)
        return strata_fail(err, STRATA_INVALID, "%d arguments for \"%s\"; 0 to %d are possible", n_args, function,
                           STRATA_REMOTE_MAX_ARRAYS);
    strata_per_worker *v = calloc(1, sizeof *v + (size_t)n_args * sizeof v->args[0]);
    if (!v) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a per-worker value");
    v->coordinator = c;
    v->function = row;
    v->n_args = n_args;
    strata_status status = STRATA_OK;
    for (int i = 0; i < n_args && !status; i++) status = copy_array(&args[i], &v->args[i], err);
    if (status) {
        for (int i = 0; i < n_args; i++) strata_array_finish(&v->args[i]);
        free(v);
        return status;
    }
    pthread_mutex_lock(&c->lock);
    v->id = ++c->n_values;
    *(c->last_value ? &c->last_value->next : &c->values) = v;
    c->last_value = v;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    *out_value = v;
    return STRATA_OK;
}

strata_coordinator_counts strata_coordinator_count(strata_coordinator *c) {
    pthread_mutex_lock(&c->lock);
    const strata_coordinator_counts counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}
