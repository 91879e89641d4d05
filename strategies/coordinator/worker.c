/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: a server (cluster/rpc) whose handlers pass each request to the thread that called strata_coordinator_serve, and
 * wait until it is done. So all of the user's functions run in one thread of the user, whichever connection received the
 * request. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/rpc.h"
#include "core/base/locked.h"
#include "strategies/coordinator/wire.h"

/* How long a worker waits for a coordinator by default, and the time between two checks for one. */
static const double COORDINATOR_SECONDS = 600, TICK_SECONDS = 0.1;

/* This worker's object of a per-worker value. */
typedef struct object {
    struct object *next;
    uint64_t id;
    void *object;
    const strata_remote_function *function;
} object;

/* A request that is passed to the serving thread. */
typedef struct job {
    const strata_rpc_call *call;
    strata_rpc_reply *reply;
    strata_error error;
    strata_status status;
    bool done;
} job;

typedef struct worker {
    const strata_coordinator_worker_options *opts;
    char task[STRATA_RPC_TASK_BYTES];

    /* Protects the fields up to `closing`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job *job;
    /* How many coordinators are connected, and when this number changed last, in seconds of strata_clock_seconds. */
    int n_coordinators;
    double coordinators_changed_at;
    bool closing;

    /* Only the serving thread uses the fields below. The coordinator whose greeting was accepted last, and its incarnation. */
    char coordinator[STRATA_RPC_TASK_BYTES];
    uint64_t incarnation;
    /* A greeting was accepted; the coordinator has ended. */
    bool greeted, ended;
    /* The error that serve returns after the end; a status of STRATA_OK: the coordinator ended without an error. */
    strata_error end;
    object *objects;
} worker;

bool strata_remote_cancelled(const strata_remote_call *call) {
    return strata_rpc_call_ended(call->state);
}

/* ---- requests, in the serving thread ---- */

static void destroy_objects(worker *w) {
    while (w->objects) {
        object *gone = w->objects;
        w->objects = gone->next;
        if (gone->function->unmake) gone->function->unmake(gone->object, gone->function->user);
        free(gone);
    }
}

static object *find_object(const worker *w, uint64_t id) {
    object *at = w->objects;
    while (at && at->id != id) at = at->next;
    return at;
}

/* Fails if the coordinator runs another program. */
static strata_status compare(const worker *w, const strata_rpc_call *call, strata_error *err) {
    strata_remote_reader r = {call->head, (const unsigned char *)call->head + call->head_bytes, false};
    const int number = (int)strata_remote_get(&r, 4), n_workers = (int)strata_remote_get(&r, 4);
    if (number != w->opts->worker || n_workers != w->opts->n_workers)
        return strata_fail(err, STRATA_INVALID, "%s expects worker %d of %d at this address, but this is worker %d of %d",
                           call->task, number, n_workers, w->opts->worker, w->opts->n_workers);
    return strata_remote_compare(&r, call->task, w->task, w->opts->functions, w->opts->n_functions, err);
}

static strata_status greet(worker *w, const strata_rpc_call *call, strata_error *err) {
    const strata_status status = compare(w, call, err);
    /* This task ends with the same error, unless it works for another coordinator already. */
    if (status && !w->greeted) {
        w->ended = true;
        strata_fail(&w->end, status, "%s", err->message);
    }
    if (status) return status;
    destroy_objects(w);
    snprintf(w->coordinator, sizeof w->coordinator, "%s", call->task);
    w->incarnation = call->incarnation;
    w->greeted = true;
    return STRATA_OK;
}

typedef struct task {
    const strata_remote_function *function;
    strata_remote_call call;
    strata_remote_input inputs[STRATA_REMOTE_MAX_ARRAYS];
} task;

/* Reads the function and the arguments of a request. makes: the function must be one that makes per-worker values. */
static strata_status read_task(const worker *w, strata_remote_reader *r, const strata_rpc_call *call, bool makes, task *out,
                               strata_error *err) {
    char name[STRATA_REMOTE_MAX_NAME + 1];
    size_t offset = 0;
    strata_remote_get_text(r, name, sizeof name);
    const int n = (int)strata_remote_get(r, 1);
    out->function = strata_remote_find(w->opts->functions, w->opts->n_functions, name);
    if (r->wrong || n > STRATA_REMOTE_MAX_ARRAYS || !out->function || (out->function->make != NULL) != makes)
        return strata_fail(err, STRATA_DATA,
                           "a request of %s for function \"%s\" is malformed, or this task has no such function", call->task,
                           name);
    for (int i = 0; i < n; i++) {
        out->inputs[i] = (strata_remote_input){0};
        if (strata_remote_get(r, 1)) {
            const uint64_t id = strata_remote_get(r, 8);
            const object *o = find_object(w, id);
            if (!o) return strata_fail(err, STRATA_UNAVAILABLE, "%s has no object %llu", w->task, (unsigned long long)id);
            out->inputs[i].object = o->object;
        } else {
            out->inputs[i].array = strata_remote_get_array(r, call->body, call->body_bytes, &offset);
        }
    }
    if (r->wrong) return strata_fail(err, STRATA_DATA, "the arguments of \"%s\" from %s are cut off", name, call->task);
    out->call = (strata_remote_call){.task = w->task,
                                     .worker = w->opts->worker,
                                     .n_workers = w->opts->n_workers,
                                     .inputs = out->inputs,
                                     .n_inputs = n,
                                     .user = out->function->user,
                                     .state = call};
    return STRATA_OK;
}

/* Writes the status of a user's function to the reply, and for a failure its message. */
static void put_result(strata_rpc_reply *reply, strata_remote_writer *w, strata_status status, const strata_error *why) {
    *w = (strata_remote_writer){reply->head, (unsigned char *)reply->head + STRATA_RPC_HEAD_BYTES, false};
    strata_remote_put(w, status, 1);
    if (status) strata_remote_put_text(w, why->message);
    reply->head_bytes = (size_t)(w->at - (unsigned char *)reply->head);
}

static strata_status make(worker *w, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_remote_reader r = {call->head, (const unsigned char *)call->head + call->head_bytes, false};
    strata_remote_writer out;
    strata_error why = {0};
    task t;
    const uint64_t id = strata_remote_get(&r, 8);
    STRATA_TRY(read_task(w, &r, call, true, &t, err));
    object *o = find_object(w, id) ? NULL : calloc(1, sizeof *o);
    if (!o) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s cannot make object %llu", w->task, (unsigned long long)id);
    const strata_status status = t.function->make(&t.call, &o->object, &why);
    if (status) {
        free(o);
    } else {
        o->id = id;
        o->function = t.function;
        o->next = w->objects;
        w->objects = o;
    }
    put_result(reply, &out, status, &why);
    return STRATA_OK;
}

static void free_result(void *owned) {
    strata_array *array = owned;
    strata_array_finish(array);
    free(array);
}

/* Adds the results to the reply, which takes their memory. On failure all results are finished. */
static strata_status put_results(strata_rpc_reply *reply, strata_remote_writer *out, strata_array *results, int n,
                                 strata_error *err) {
    struct iovec pieces[STRATA_REMOTE_PIECES];
    int i = 0;
    strata_status status = STRATA_OK;
    for (; i < n && !status; i++) {
        strata_array *owned = malloc(sizeof *owned);
        if (!results[i].data && strata_shape_elements(results[i].shape))
            status = strata_fail(err, STRATA_INVALID, "result %d was not created", i);
        else if (!owned)
            status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a result");
        if (status) {
            free(owned);
            break;
        }
        strata_remote_put_array(out, &results[i]);
        const int n_pieces = strata_remote_add_piece(pieces, 0, &results[i]);
        for (int k = 0; k < n_pieces; k++)
            reply->body[reply->n_body++] = (strata_rpc_piece){pieces[k].iov_base, pieces[k].iov_len, NULL, NULL};
        *owned = results[i];
        reply->body[reply->n_body - 1].release = free_result;
        reply->body[reply->n_body - 1].user = owned;
    }
    if (!status) {
        reply->head_bytes = (size_t)(out->at - (unsigned char *)reply->head);
        return STRATA_OK;
    }
    for (int k = 0; k < reply->n_body; k++)
        if (reply->body[k].release) reply->body[k].release(reply->body[k].user);
    reply->n_body = 0;
    for (; i < n; i++) strata_array_finish(&results[i]);
    return status;
}

static strata_status run(worker *w, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    strata_remote_reader r = {call->head, (const unsigned char *)call->head + call->head_bytes, false};
    strata_remote_writer out;
    strata_array results[STRATA_REMOTE_MAX_ARRAYS] = {{0}};
    strata_error why = {0};
    task t;
    const uint64_t closure = strata_remote_get(&r, 8);
    const int attempt = (int)strata_remote_get(&r, 4);
    STRATA_TRY(read_task(w, &r, call, false, &t, err));
    t.call.closure = closure;
    t.call.attempt = attempt;
    strata_status status = t.function->run(&t.call, results, t.function->n_results, &why);
    put_result(reply, &out, status, &why);
    if (status) {
        for (int i = 0; i < t.function->n_results; i++) strata_array_finish(&results[i]);
        return STRATA_OK;
    }
    if (put_results(reply, &out, results, t.function->n_results, &why)) {
        status = strata_fail_in(&why, STRATA_INVALID, "\"%s\"", t.function->name);
        put_result(reply, &out, status, &why);
    }
    return STRATA_OK;
}

/* The coordinator has ended: normally, or because it could not be created. */
static strata_status end(worker *w, const strata_rpc_call *call) {
    strata_remote_reader r = {call->head, (const unsigned char *)call->head + call->head_bytes, false};
    char text[STRATA_ERROR_MESSAGE_BYTES];
    const strata_status status = (strata_status)strata_remote_get(&r, 1);
    strata_remote_get_text(&r, text, sizeof text);
    w->ended = true;
    if (status && status <= STRATA_INTERNAL) strata_fail(&w->end, status, "%s could not be created: %.900s", call->task, text);
    return STRATA_OK;
}

static strata_status answer(worker *w, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    if (call->method == STRATA_REMOTE_GREET) return greet(w, call, err);
    /* On UNAVAILABLE the coordinator sends a greeting and repeats the request. */
    if (!w->greeted || call->incarnation != w->incarnation || strcmp(call->task, w->coordinator) != 0)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s has no greeting of %s", w->task, call->task);
    switch (call->method) {
        case STRATA_REMOTE_MAKE:
            return make(w, call, reply, err);
        case STRATA_REMOTE_RUN:
            return run(w, call, reply, err);
        case STRATA_REMOTE_END:
            return end(w, call);
        default:
            return strata_fail(err, STRATA_INVALID, "%s has no method %u", w->task, call->method);
    }
}

/* ---- passing requests to the serving thread ---- */

static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    worker *w = user;
    job own = {.call = call, .reply = reply};
    STRATA_LOCKED(&w->lock);
    while (w->job && !w->closing) pthread_cond_wait(&w->changed, &w->lock);
    if (w->closing) return strata_fail(err, STRATA_UNAVAILABLE, "%s ends", w->task);
    w->job = &own;
    pthread_cond_broadcast(&w->changed);
    while (!own.done) pthread_cond_wait(&w->changed, &w->lock);
    return own.status ? strata_fail(err, own.status, "%s", own.error.message) : STRATA_OK;
}

static void on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    worker *w = user;
    (void)task, (void)incarnation, (void)why;
    STRATA_LOCKED(&w->lock);
    w->n_coordinators += event == STRATA_RPC_CONNECTED ? 1 : -1;
    w->coordinators_changed_at = strata_clock_seconds();
    pthread_cond_broadcast(&w->changed);
}

/* Ends the current job, so that the next one can be passed. The caller holds the lock. */
static void end_job(worker *w, strata_status status) {
    w->job->status = status;
    w->job->done = true;
    w->job = NULL;
    pthread_cond_broadcast(&w->changed);
}

/* Runs requests until the coordinator has ended. The caller holds the lock. */
static strata_status serve(worker *w, strata_error *err) {
    const strata_coordinator_worker_options *opts = w->opts;
    const double most = opts->coordinator_seconds > 0 ? opts->coordinator_seconds : COORDINATOR_SECONDS;
    while (!w->ended) {
        if (w->job) {
            job *j = w->job;
            pthread_mutex_unlock(&w->lock);
            const strata_status status = answer(w, j->call, j->reply, &j->error);
            pthread_mutex_lock(&w->lock);
            end_job(w, status);
            continue;
        }
        if (!w->n_coordinators && strata_clock_seconds() - w->coordinators_changed_at > most)
            return strata_fail(err, STRATA_TIMEOUT, "%s waited %g s for a coordinator%s%s", w->task, most,
                               *w->coordinator ? ": it was lost: " : ", and none connected", w->coordinator);
        pthread_mutex_unlock(&w->lock);
        const bool stop = opts->stop_now && opts->stop_now(opts->user);
        pthread_mutex_lock(&w->lock);
        if (stop) return strata_fail(err, STRATA_INTERRUPTED, "%s was asked to stop", w->task);
        if (!w->job) strata_wait_for(&w->changed, &w->lock, TICK_SECONDS);
    }
    return w->end.status ? strata_fail(err, w->end.status, "%s", w->end.message) : STRATA_OK;
}

strata_status strata_coordinator_serve(const strata_coordinator_worker_options *opts, strata_error *err) {
    worker w = {.opts = opts};
    strata_rpc_server *server = NULL;
    if (opts->worker < 0 || opts->worker >= opts->n_workers)
        return strata_fail(err, STRATA_INVALID, "this is worker %d of %d; workers are numbered from 0", opts->worker,
                           opts->n_workers);
    if (!(opts->coordinator_seconds >= 0))
        return strata_fail(err, STRATA_INVALID, "coordinator_seconds is %g; it must be at least 0", opts->coordinator_seconds);
    snprintf(w.task, sizeof w.task, "worker:%d", opts->worker);
    STRATA_TRY(strata_remote_check_functions(w.task, opts->functions, opts->n_functions, err));
    strata_clock_cond_init(&w.changed);
    pthread_mutex_init(&w.lock, NULL);
    w.coordinators_changed_at = strata_clock_seconds();
    const strata_rpc_server_options server_options = {
        .task = w.task, .address = opts->address, .cluster = opts->cluster, .handler = handle, .on_peer = on_peer, .user = &w};
    strata_status status = strata_rpc_server_create(&server_options, &server, err);
    if (!status) {
        pthread_mutex_lock(&w.lock);
        status = serve(&w, err);
        w.closing = true;
        if (w.job) {
            strata_fail(&w.job->error, STRATA_UNAVAILABLE, "%s ends", w.task);
            end_job(&w, STRATA_UNAVAILABLE);
        }
        pthread_cond_broadcast(&w.changed);
        pthread_mutex_unlock(&w.lock);
        strata_rpc_server_destroy(server);
    }
    destroy_objects(&w);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.changed);
    return status;
}
