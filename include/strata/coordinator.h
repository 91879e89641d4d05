/* SPDX-License-Identifier: Apache-2.0
 *
 * A coordinator schedules functions on workers, as ClusterCoordinator of tf.distribute does. All tasks run the same program and
 * have the same table of functions; a function is called by its name, and no code is sent:
 *
 *     static const strata_remote_function functions[] = {{.name = "step", .run = step, .n_results = 1, .user = &state},
 *                                                        {.name = "data", .make = open_data, .unmake = close_data}};
 *     if (is_worker) return strata_coordinator_serve(&worker_options, &err);     until the coordinator ends
 *
 *     strata_coordinator_create(&options, &coordinator, &err);               coordinator = ClusterCoordinator(strategy)
 *     strata_per_worker_create(coordinator, "data", NULL, 0, &data, &err);   data = coordinator.create_per_worker_dataset(f)
 *     strata_coordinator_schedule(coordinator, "step", args, 1, &loss, &err);    loss = coordinator.schedule(step, args=[data])
 *     strata_coordinator_join(coordinator, &err);                            coordinator.join()
 *     strata_remote_value_fetch(loss, &array, 1, &err);                      loss.fetch()
 *     strata_coordinator_destroy(coordinator);                               workers return from serve
 *
 * A *closure* is one scheduled call of a function with its arguments. Any worker may run it. Each worker runs one closure at a
 * time and sends its results to the coordinator when it has ended.
 *
 * Lost workers. When a worker dies, or cannot be reached for 2 s, its closure runs again on another worker, before closures
 * that were scheduled later. So the effects of a closure may happen more than once; strata_remote_call.attempt counts how often
 * it was begun before. A worker that is started again with the same name is used again, after its per-worker values have been
 * built anew. If a connection is interrupted and restored within that time, the worker is not lost and its closure runs only
 * once.
 *
 * Errors. When a closure fails, its error is stored, and closures that wait in the queue are cancelled. Closures that are
 * running continue to their end, since C functions cannot be stopped. When nothing runs any more, the next call of schedule,
 * join or done returns the error, once; after that the coordinator can be used again. Fetching a value always returns the error
 * of its own closure.
 *
 * Threads. Every function that takes a coordinator or a value, except destroy, may be called by several threads at a time.
 * While a thread is in join, schedule blocks in other threads. */
#ifndef STRATA_COORDINATOR_H
#define STRATA_COORDINATOR_H

#include "strata/cluster.h"
#include "strata/graph.h"
#include "strata/model.h"
#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRATA_REMOTE_MAX_ARRAYS = 64,         /* the most arguments of a closure, and the most results */
    STRATA_REMOTE_MAX_NAME = 63,           /* the most bytes of a function's name */
    STRATA_REMOTE_QUEUE_BOUND = 256 * 1024 /* the most closures that wait for a worker, unless an option sets another number */
};

/* ---- functions ---- */

/* An argument as the function receives it: borrowed while the function runs. */
typedef struct strata_remote_input {
    /* The array's memory may be written to. Zeroed for a per-worker value. */
    strata_array array;
    /* This worker's object of a per-worker value, as `make` made it; NULL for an array. */
    void *object;
} strata_remote_input;

/* The arguments of a function on a worker, borrowed while it runs. */
typedef struct strata_remote_call {
    /* "worker:1", and 1. */
    const char *task;
    int worker;
    /* How many workers there are, as in the worker's options. */
    int n_workers;
    /* The number of the closure, from 1, which does not change when the closure runs again, and how often it was begun before.
     * Both are 0 for `make`. */
    uint64_t closure;
    int attempt;
    const strata_remote_input *inputs;
    int n_inputs;
    /* Of the function's row. */
    void *user;
    /* Private: see strata_remote_cancelled. */
    const void *state;
} strata_remote_call;

/* Whether the connection to the coordinator ended, so that the results cannot be sent. A long function may check this, and
 * return any error if it is true. If the coordinator connects again, the closure runs again. */
STRATA_API bool strata_remote_cancelled(const strata_remote_call *call);

/* Computes out_results[0 .. n_results), zeroed before: arrays that the function creates and the library finishes. Runs in the
 * thread that called strata_coordinator_serve. Its error travels to the coordinator with status and message. */
typedef strata_status (*strata_remote_run)(const strata_remote_call *call, strata_array *out_results, int n_results,
                                           strata_error *err);
/* Makes this worker's object of a per-worker value (an iterator over its part of the data, a cache), and destroys it. It must
 * not schedule closures. */
typedef strata_status (*strata_remote_make)(const strata_remote_call *call, void **out_object, strata_error *err);
typedef void (*strata_remote_unmake)(void *object, void *user);

/* A function that all tasks know: either `run`, which closures call, or `make` and `unmake`, for per-worker values. */
typedef struct strata_remote_function {
    const char *name;
    strata_remote_run run;
    int n_results;
    strata_remote_make make;
    strata_remote_unmake unmake;
    void *user;
    /* A hash of what the function computes, where it traces a graph (strata_remote_graph_hash); 0: none. Tasks must have the
     * same, else the coordinator refuses the worker, and both report both numbers. */
    uint64_t graph_hash;
} strata_remote_function;

/* The hash of the graph below these tensors: ops, attributes, shapes, dtypes, constants and the variables' names, but no
 * values of variables. Equal graphs have equal hashes in all processes of this version. Never 0. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_graph_hash(strata_tensor *const *outputs, int n_outputs,
                                                                  uint64_t *out_hash, strata_error *err);

/* ---- workers ---- */

typedef struct strata_coordinator_worker_options {
    /* This worker's number, from 0, and how many there are. */
    int worker, n_workers;
    /* "host:port": the address where the worker listens and to which the coordinator connects. */
    const char *address;
    /* secret, tls_*, insecure, interface and heartbeat_seconds are used; NULL: defaults. */
    const strata_communicator_options *cluster;
    const strata_remote_function *functions;
    int n_functions;
    /* How long to wait without a coordinator, at the start and after one was lost; 0: 600 s. */
    double coordinator_seconds;
    /* Called at least every 0.2 s while nothing runs; true ends serve with INTERRUPTED. (optional). */
    bool (*stop_now)(void *user);
    void *user;
} strata_coordinator_worker_options;

/* Runs what the coordinator schedules, in the calling thread, until the coordinator is destroyed. A coordinator that was lost
 * may be started again; it continues with this worker, whose per-worker values are then built anew.
 * Fails: INVALID for wrong options, and for a coordinator with other functions, naming both sides; with the error of the
 * coordinator if creating it failed; UNAVAILABLE when the address cannot be listened on; TIMEOUT when there is no coordinator
 * for coordinator_seconds; INTERRUPTED by stop_now. */
STRATA_API STRATA_MUST_USE strata_status strata_coordinator_serve(const strata_coordinator_worker_options *opts,
                                                                  strata_error *err);

/* ---- the coordinator ---- */

typedef struct strata_coordinator strata_coordinator;

typedef struct strata_coordinator_options {
    /* NULL: "chief:0". */
    const char *task;
    /* The workers' addresses, in the order of their numbers. */
    const char *const *workers;
    int n_workers;
    /* As for workers; connect_seconds is how long create waits for all workers. */
    const strata_communicator_options *cluster;
    /* The same rows as on the workers. Their functions are not called here. */
    const strata_remote_function *functions;
    int n_functions;
    /* Closures that may wait; 0: STRATA_REMOTE_QUEUE_BOUND. schedule blocks while there are so many. */
    int64_t queue_bound;
    /* How many workers create waits for; 0: all. The other workers are used when they have connected. */
    int least_workers;
    /* How long closures wait while no worker is connected; after that they fail with PEER_LOST. 0: 3600 s. */
    double worker_seconds;
    /* How long one closure may run on a worker that lives; after that the worker counts as lost, and the closure fails with
     * TIMEOUT. 0: without a bound. */
    double closure_seconds;
} strata_coordinator_options;

/* Connects to the workers; opts and what it points to, but for the functions' rows, is borrowed during create. The rows are
 * borrowed until destroy.
 * Fails: INVALID for wrong options, and when a worker has other functions, naming both sides; TIMEOUT when workers do not
 * connect within connect_seconds, naming them. The workers that have connected then fail with the same message. */
STRATA_API STRATA_MUST_USE strata_status strata_coordinator_create(const strata_coordinator_options *opts,
                                                                   strata_coordinator **out_coordinator, strata_error *err);
/* Cancels closures that wait, waits for those that run, and lets the workers return from serve. Values stay valid until they
 * are released. NULL is fine. */
STRATA_API void strata_coordinator_destroy(strata_coordinator *coordinator);

/* A value that is a different object on each worker. The function's `make` creates the object on the worker, with arguments
 * that are the same for all workers. It is freed with the coordinator. A worker creates its object before its next closure. An
 * error of `make` is reported like that of a closure, and by each schedule with the value. */
typedef struct strata_per_worker strata_per_worker;
STRATA_API STRATA_MUST_USE strata_status strata_per_worker_create(strata_coordinator *coordinator, const char *function,
                                                                  const strata_array *args, int n_args,
                                                                  strata_per_worker **out_value, strata_error *err);

/* An argument of a closure; one of the two fields is set. Results of other closures cannot be arguments; fetch them first. */
typedef struct strata_remote_arg {
    /* Copied by schedule. */
    const strata_array *array;
    strata_per_worker *per_worker;
} strata_remote_arg;

/* The results of a closure, which may not be there yet. */
typedef struct strata_remote_value strata_remote_value;

/* Puts a closure into the queue and returns. Blocks while the queue is full, and while another thread is in join. out_value may
 * be NULL, where the results do not matter; else the caller releases it.
 * Fails: INVALID for an unknown function or wrong arguments; OUT_OF_MEMORY; an earlier closure's error, in which case the new
 * closure is not scheduled. */
STRATA_API STRATA_MUST_USE strata_status strata_coordinator_schedule(strata_coordinator *coordinator, const char *function,
                                                                     const strata_remote_arg *args, int n_args,
                                                                     strata_remote_value **out_value, strata_error *err);
/* Waits until all closures have ended. Fails with an earlier closure's error. It cannot wait forever: lost workers,
 * worker_seconds and closure_seconds end it. */
STRATA_API STRATA_MUST_USE strata_status strata_coordinator_join(strata_coordinator *coordinator, strata_error *err);
/* *out_done: whether all closures have ended. Does not wait. Fails with an earlier closure's error once nothing runs. */
STRATA_API STRATA_MUST_USE strata_status strata_coordinator_done(strata_coordinator *coordinator, bool *out_done,
                                                                 strata_error *err);

/* Waits for the closure. out_results[0 .. n): copies that the caller finishes; n must be the function's n_results. Fails: the
 * closure's own error; INTERRUPTED where it was cancelled because of another's. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_value_fetch(strata_remote_value *value, strata_array *out_results, int n,
                                                                   strata_error *err);
/* How often the closure was begun on a worker so far. */
STRATA_API int strata_remote_value_attempts(strata_remote_value *value);
STRATA_API void strata_remote_value_release(strata_remote_value *value); /* NULL is fine */

/* What a line of progress shows. */
typedef struct strata_coordinator_counts {
    /* Closures that wait, that run, and that ended; and how many were begun again after their worker was lost. */
    int64_t queued, running, ended, repeated;
    /* Workers that are connected now, and how often one was lost. */
    int workers;
    int64_t lost;
} strata_coordinator_counts;
STRATA_API strata_coordinator_counts strata_coordinator_count(strata_coordinator *coordinator);

/* ---- a model whose parameters are on parameter servers ---- */

/* For closures that train a model, under the strategy parameter_server with the pace ASYNCHRONOUS: every task compiles the same
 * model under it (strata_model_compile). A task ps then serves, the chief opens the model and schedules closures, and each
 * worker opens it and makes steps in its closures:
 *
 *     strata_remote_model_serve(model, &err);                             ps: until the chief closes the model
 *     strata_remote_model_open(model, &remote, &err);                     the chief, and the workers before they serve closures
 *     strata_remote_model_step(remote, call->closure, &x, &y, &loss, &err);   a worker, in a closure
 *     strata_remote_model_fetch(remote, &err);                            the chief: its model gets the parameters
 *     strata_remote_model_close(remote);
 *
 * With strata_parameter_server_options.replicas a server may be lost: steps continue with the copies of its shards, and each
 * step is applied once. A server that is started again gets its shards with the next fetch. The chief reports both as notices
 * (strata_strategy_parameter_server_notice).
 *
 * Threads: one call at a time for a remote model. */
typedef struct strata_remote_model strata_remote_model;

/* Owns this server's shards of the parameters, and updates them with the gradients that workers push, until the chief closes
 * the model. Fails: INVALID for another strategy, pace or task, and for a task whose model differs, naming both; TIMEOUT for a
 * chief that does not connect within the strategy's connect_seconds; PEER_LOST for a chief that was lost for as long;
 * OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_model_serve(strata_model *model, strata_error *err);
/* Connects to the servers. The chief sends them its model's parameters, so it must open the model before it schedules steps.
 * The model is borrowed until close. Fails: as serve; TIMEOUT for a server that does not connect. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_model_open(strata_model *model, strata_remote_model **out_remote,
                                                                  strata_error *err);
/* On a worker: pulls the parameters, computes the gradients of the loss's mean over a batch, and pushes them, for the servers'
 * optimizer.
 *   number   the number of the batch, from 0. Gradients that are pushed twice with the same number are applied once. Pass the
 *            closure's number, so that a closure that runs again is applied once.
 *   x, y     features and labels, an array for each of the model's inputs and outputs in their order: (n, ...) as the model
 *            takes them, n at least 1: f32, or i32 where the model's are
 *   out_loss the mean loss before the update; may be NULL
 * Fails: INVALID for other shapes or dtypes; DATA, naming the first tensor, for gradients that are not finite, which are
 * not pushed; PEER_LOST when a server was lost and no other server has its shards. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_model_step(strata_remote_model *remote, int64_t number,
                                                                  const strata_array *x, const strata_array *y,
                                                                  double *out_loss, strata_error *err);
/* On the chief, while no closure runs: its model gets the servers' parameters, and the optimizer's slots. */
STRATA_API STRATA_MUST_USE strata_status strata_remote_model_fetch(strata_remote_model *remote, strata_error *err);
/* When the chief closes it, the servers end. NULL is fine. */
STRATA_API void strata_remote_model_close(strata_remote_model *remote);

#ifdef __cplusplus
}
#endif
#endif
