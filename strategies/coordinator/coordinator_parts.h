/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs and functions that coordinator.c, closures.c and dispatcher.c share. */
#ifndef STRATA_STRATEGIES_COORDINATOR_COORDINATOR_PARTS_H
#define STRATA_STRATEGIES_COORDINATOR_COORDINATOR_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/rpc/rpc.h"
#include "strategies/coordinator/wire.h"
#include "strategies/memory.h"

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
    /* The worker runs another program, and strata_closure_keep_error was called for this. */
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

/* ---- closures.c ---- */

/* Returns NULL if there is no memory. */
strata_remote_value *strata_remote_value_create(const strata_remote_function *function);
STRATA_MUST_USE strata_status strata_closure_copy_array(const strata_array *from, strata_array *out, strata_error *err);
void strata_closure_free(strata_closure *k);
/* The comment "locked" means: the caller holds the coordinator's lock. */

/* Removes the first closure from the queue, which must not be empty. Locked. */
strata_closure *strata_closure_take_first(strata_coordinator *c);
/* Ends all closures in the queue with this error. Locked. */
void strata_closure_cancel_all(strata_coordinator *c, const strata_error *error);
/* Stores the error for the next call of schedule, join or done, unless an earlier one is stored, and cancels all closures in
 * the queue. Locked. */
void strata_closure_keep_error(strata_coordinator *c, const strata_error *error);
/* Ends a closure that has run, which it takes, with its results or with an error. */
void strata_closure_end(strata_coordinator *c, strata_closure *k, strata_array *results, const strata_error *error);
/* Returns a closure whose worker was lost to the front of the queue. If an error is stored, the closure is cancelled. */
void strata_closure_put_back(strata_coordinator *c, strata_closure *k);

/* ---- dispatcher.c ---- */

/* Whether an argument of the closure is a per-worker value whose object some worker could not create. *out_why: the worker's
 * error. Locked. */
bool strata_closure_is_broken(const strata_closure *k, strata_error *out_why);
/* The thread of a dispatcher. user: the strata_dispatcher. */
void *strata_dispatcher_run(void *user);

/* ---- coordinator.c ---- */

/* Waits until `changed` is signalled, for at most `seconds`. Locked. */
void strata_coordinator_wait_changed(strata_coordinator *c, double seconds);

#endif
