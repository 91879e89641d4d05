/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the coordinator share: coordinator.c (its life, and scheduling), closures.c and dispatcher.c. */
#ifndef STRATA_STRATEGIES_COORDINATOR_COORDINATOR_PARTS_H
#define STRATA_STRATEGIES_COORDINATOR_COORDINATOR_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/rpc/rpc.h"
#include "strategies/coordinator/wire.h"

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

typedef struct strata_closure {
    struct strata_closure *next;
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
} strata_closure;

typedef struct strata_dispatcher {
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
} strata_dispatcher;

struct strata_coordinator {
    char task[STRATA_RPC_TASK_BYTES];
    const strata_remote_function *functions;
    int n_functions;
    int64_t queue_bound;
    double worker_seconds, closure_seconds;
    strata_communicator_options cluster;
    char *texts[6], *secret;
    int n_workers;
    strata_dispatcher *workers;

    /* Guards all below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    /* Why create failed, for the workers. */
    strata_error failure;
    strata_closure *first, *last;
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

/* ---- closures.c ---- */

/* NULL: no memory. */
strata_remote_value *strata_remote_value_create(const strata_remote_function *function);
STRATA_MUST_USE strata_status strata_closure_copy_array(const strata_array *from, strata_array *out, strata_error *err);
void strata_closure_free(strata_closure *k);
/* The queue's first closure, which is there. The lock is held. */
strata_closure *strata_closure_take_first(strata_coordinator *c);
/* Ends every closure that waits, with this error. The lock is held. */
void strata_closure_cancel_all(strata_coordinator *c, const strata_error *error);
/* Keeps the first error, and cancels what waits. The lock is held. */
void strata_closure_keep_error(strata_coordinator *c, const strata_error *error);
/* A closure that ran is over. Takes it. */
void strata_closure_end(strata_coordinator *c, strata_closure *k, strata_array *results, const strata_error *error);
/* A closure whose worker was lost goes before all others; where an error is pending it is cancelled as they were. */
void strata_closure_put_back(strata_coordinator *c, strata_closure *k);

/* ---- dispatcher.c ---- */

/* Whether an argument of the closure is a value that some worker could not make. The lock is held. */
bool strata_closure_is_broken(const strata_closure *k, strata_error *out_why);
/* A dispatcher's thread; user: the strata_dispatcher. */
void *strata_dispatcher_run(void *user);

/* ---- coordinator.c ---- */

/* Waits for a change, with the lock. */
void strata_coordinator_wait_changed(strata_coordinator *c, double seconds);

#endif
