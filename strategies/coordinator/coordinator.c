/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator's public functions: creating and destroying it, scheduling closures, waiting for them, per-worker values. The
 * coordinator has one queue of closures. For each worker a thread, the dispatcher (dispatcher.c), runs closures of the
 * queue. */
#include <pthread.h>
#include <stdio.h>

#include "core/base/locked.h"
#include "strategies/coordinator/coordinator_parts.h"

/* The default time limits, in seconds; TICK_SECONDS: between two checks while workers are waited for. */
static const double CONNECT_SECONDS = 60, WORKER_SECONDS = 3600, TICK_SECONDS = 0.05, UNBOUNDED = 1e9;

void strata_coordinator_wait_changed(strata_coordinator *c, double seconds) {
    strata_wait_for(&c->changed, &c->lock, seconds);
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
        strata_coordinator_wait_changed(c, TICK_SECONDS);
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
        if (!status && pthread_create(&d->thread, NULL, strata_dispatcher_run, d))
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
    strata_closure_cancel_all(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].has_thread) pthread_join(c->workers[i].thread, NULL);
    strata_closure_cancel_all(c, &cancelled); /* a dispatcher may have returned one to the queue */
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
    while (c->error.status && c->counts.running) strata_coordinator_wait_changed(c, 1);
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
    if (k) k->value = strata_remote_value_create(function);
    if (!k || !k->value) {
        free(k);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a closure");
    }
    k->function = function;
    k->n_args = n_args;
    strata_status status = STRATA_OK;
    for (int i = 0; i < n_args && !status; i++) {
        k->args[i].per_worker = args[i].per_worker;
        if (args[i].array) status = strata_closure_copy_array(args[i].array, &k->args[i].array, err);
    }
    if (status)
        strata_closure_free(k);
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
    while (!c->error.status && (c->n_joining || c->counts.queued >= c->queue_bound)) strata_coordinator_wait_changed(c, 1);
    strata_error why = {0};
    strata_status status = return_error(c, err);
    if (!status && strata_closure_is_broken(k, &why)) status = strata_fail(err, why.status, "%s", why.message);
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
    if (status) strata_closure_free(k);
    return status;
}

strata_status strata_coordinator_join(strata_coordinator *c, strata_error *err) {
    STRATA_LOCKED(&c->lock);
    c->n_joining++;
    while (!c->error.status && (c->first || c->counts.running)) strata_coordinator_wait_changed(c, 1);
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
    for (int i = 0; i < n_args && !status; i++) status = strata_closure_copy_array(&args[i], &v->args[i], err);
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
