/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom training loops under a strategy, with the names of tf.distribute. samples/custom_loop.c is a complete program:
 *
 *     strata_strategy_enter(strategy, &err);                                     with strategy.scope():
 *     strata_distributed_create("w", STRATA_DTYPE_F32, STRATA_SHAPE(8, 1), &opts, &w, &err);  w = tf.Variable(...)
 *     strata_strategy_exit(strategy, &err);
 *     strata_function_create(strategy, step, &state, &function, &err);           @tf.function
 *     strata_distributed_batches_create(strategy, data, &b, &batches, &err);     strategy.experimental_distribute_dataset(data)
 *     strata_distributed_batches_next(batches, inputs, &n, &err);                for inputs in batches:
 *     strata_strategy_run(function, inputs, n, outputs, 1, &err);                    outputs = strategy.run(step, args=inputs)
 *     strata_strategy_reduce(strategy, outputs, STRATA_REDUCE_SUM, STRATA_NO_AXIS, ..);
 *                                                                                strategy.reduce("SUM", outputs, axis=None)
 *
 * Ownership. Destroying a strategy also destroys all objects that were made with it and still exist, models that were compiled
 * or built with it too, the newest first. Handles to them are then invalid.
 *
 * A mesh. Under model_parallel there is one function for all devices of the mesh, written as for one device: it is traced once,
 * as replica 0 of 1. Its inputs and outputs are whole values (strata_per_replica.n is 1), and the result is that of one device
 * with the whole batch, batch norm's statistics included. Each device computes its part: a model's parameters and slots are
 * placed as in a fit, inputs with as many rows as the first one are divided over the axis data, and other variables are copies
 * on all devices. strata_replica_all_reduce and strata_replica_all_gather return their operand. With several workers all of
 * them run the function on the same whole batch. merge_call, micro-batches and workers with batches of their own are
 * UNSUPPORTED.
 *
 * Contexts. A thread is in the cross-replica context of the strategy whose scope it entered; while a function is being traced
 * it is in the context of a replica, and while a merge function runs it is in the cross-replica context again. A call that
 * needs one context fails with INVALID in the other, and the message names the context that it needs. Each thread has its own
 * context. */
#ifndef STRATA_DISTRIBUTE_H
#define STRATA_DISTRIBUTE_H

#include "strata/model.h"
#include "strata/ops.h"
#include "strata/pipeline.h"
#include "strata/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scope ---- */

/* Enter and leave the scope of a strategy. A thread may enter the same strategy several times, with one exit for each enter.
 * Entering another strategy inside of a scope is INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_enter(strata_strategy *strategy, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_strategy_exit(strata_strategy *strategy, strata_error *err);
STRATA_API strata_strategy *strata_strategy_current(void); /* of this thread's scope; NULL: none */
STRATA_API bool strata_in_cross_replica_context(void);     /* false while a replica's function is traced */

/* ---- values: one for each replica ---- */

/* arrays[r] is the value of replica r; if n is 1, all replicas share arrays[0]. */
typedef struct strata_per_replica {
    int n;
    /* [n]. */
    strata_array *arrays;
    /* For a batch that strata_distributed_batches_next divided: the number of examples in the global batch, and the index of
     * this worker's first example in it. 0: not known. */
    int64_t n_rows, first_row;
} strata_per_replica;
/* n zeroed arrays, which the caller fills. */
STRATA_API STRATA_MUST_USE strata_status strata_per_replica_create(int n, strata_per_replica *out_values, strata_error *err);
STRATA_API void strata_per_replica_finish(strata_per_replica *values); /* finishes the arrays; NULL and zeroed are fine */

/* Values for all replicas, each made by one call of a function that receives the replica's number
 * (strategy.experimental_distribute_values_from_function). */
typedef struct strata_value_context {
    int replica_id_in_sync_group, num_replicas_in_sync;
} strata_value_context;
typedef strata_status (*strata_value_function)(const strata_value_context *context, void *user, strata_array *out_value,
                                               strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_strategy_distribute_values(strata_strategy *strategy,
                                                                           strata_value_function function, void *user,
                                                                           strata_per_replica *out_values, strata_error *err);

/* With several workers all of them make the calls below, and strata_distributed_set and _get, in the same order. `values` are
 * those of the calling worker's replicas. Every worker gets the same result, with the bits that one worker with all replicas
 * would compute. */
enum { STRATA_NO_AXIS = STRATA_MAX_RANK + 1 };
/* Reduces the replicas' values to one, in replica order. axis STRATA_NO_AXIS: the values have one shape and are added element
 * by element; MEAN divides by the number of replicas. Another axis (negative: from the end) is summed over too; its size may
 * differ between replicas, and MEAN divides by the sum of these sizes. f32, i32 and i64; MEAN: f32. Cross-replica. The caller
 * finishes *out. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_reduce(strata_strategy *strategy, const strata_per_replica *values,
                                                                strata_reduction reduction, int axis, strata_array *out,
                                                                strata_error *err);
/* The same for values of one element each (losses, counts); the result is a number. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_reduce_scalar(strata_strategy *strategy,
                                                                       const strata_per_replica *values,
                                                                       strata_reduction reduction, double *out_value,
                                                                       strata_error *err);
/* Concatenates the values along the axis; their other dimensions must be equal. Cross-replica. The caller finishes *out. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_gather(strata_strategy *strategy, const strata_per_replica *values,
                                                                int axis, strata_array *out, strata_error *err);
/* The values of this worker's replicas. */
static inline const strata_array *strata_strategy_local_results(const strata_per_replica *values, int *out_n) {
    *out_n = values->n;
    return values->arrays;
}

/* ---- variables ---- */

/* ON_WRITE: the values that replicas assign are aggregated, and all copies get the result, so the copies are always equal.
 * ON_READ: each replica assigns to its own copy, and the copies are aggregated when the variable is read in the cross-replica
 * context; used for the sums of metrics. */
typedef enum strata_synchronization { STRATA_ON_WRITE = 0, STRATA_ON_READ } strata_synchronization;
typedef enum strata_aggregation {
    /* ON_WRITE: replicas must not write. ON_READ with several replicas: the cross-replica context must not read. */
    STRATA_AGGREGATION_NONE = 0,
    STRATA_AGGREGATION_SUM,
    STRATA_AGGREGATION_MEAN,
    STRATA_AGGREGATION_ONLY_FIRST_REPLICA
} strata_aggregation;

typedef struct strata_distributed_variable strata_distributed_variable;
typedef struct strata_distributed_options {
    strata_synchronization synchronization;
    strata_aggregation aggregation;
    /* Create the copies on the same devices as those of this variable, for its strategy. NULL: for the strategy of the scope.
     * */
    const strata_distributed_variable *colocate_with;
} strata_distributed_options;

/* A variable with a copy on each replica's device, whose elements are 0. It belongs to the strategy of the thread's scope, or
 * to the strategy of the variable that it is colocated with (the thread must then be in no scope or in that strategy's). opts
 * may be NULL. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_create(const char *name, strata_dtype dtype, strata_shape shape,
                                                                   const strata_distributed_options *opts,
                                                                   strata_distributed_variable **out_variable,
                                                                   strata_error *err);
STRATA_API void strata_distributed_destroy(strata_distributed_variable *variable); /* after its functions; NULL is fine */
/* Sets every copy to the value; with several workers to the chief's value. For ON_READ with SUM, each copy gets the share of
 * the value that makes the sum of all copies the value. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_set(strata_distributed_variable *variable,
                                                                const strata_array *value, strata_error *err);
/* Reads the variable. For ON_READ (f32 only), the result is the aggregate of the copies. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_get(strata_distributed_variable *variable, strata_array *value,
                                                                strata_error *err);
/* The copy of a replica; borrowed. NULL where there is no such replica. Of a model's parameters under a mesh: the device's
 * part; NULL where it has none. */
STRATA_API strata_variable *strata_distributed_copy(const strata_distributed_variable *variable, int replica);

/* ---- a replica's function ---- */

typedef struct strata_replica_context strata_replica_context;

/* Builds the step of one replica as nodes of its graph. It is called (traced) once for each replica and set of input shapes;
 * the graph is then run any number of times. inputs[i]: the replica's part of input i of strata_strategy_run. All replicas must
 * call the functions below in the same order. */
typedef strata_status (*strata_replica_function)(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                                 strata_error *err);

STRATA_API int strata_replica_id(const strata_replica_context *replica); /* from 0 to strata_replica_num_in_sync - 1 */
STRATA_API int strata_replica_num_in_sync(const strata_replica_context *replica);
STRATA_API strata_graph *strata_replica_graph(strata_replica_context *replica);

/* Calling a function below in another context poisons the graph of `replica`, and the run fails with that error. */

/* The value of the replica's copy at this point of the step. */
STRATA_API strata_tensor *strata_replica_read(strata_replica_context *replica, strata_distributed_variable *variable);
/* Assigns to the variable. ON_READ: the replica's copy becomes `value`. ON_WRITE: all copies become the aggregate of the
 * replicas' values. */
STRATA_API void strata_replica_assign(strata_replica_context *replica, strata_distributed_variable *variable,
                                      strata_tensor *value);
/* An optimizer's node (strata_sgd, strata_adam ...) on variables read with strata_replica_read, with gradients that are equal
 * on all replicas (all_reduce). Where the strategy's devices are of several kinds, the first replica makes the update and sends
 * the parameters to the others. */
STRATA_API void strata_replica_update(strata_replica_context *replica, strata_distributed_variable *variable,
                                      strata_tensor *update);
/* The sum or mean of x over the replicas, added in their order, so each receives the same bits. Gradient: the same sum or mean
 * of the gradient. */
STRATA_API strata_tensor *strata_replica_all_reduce(strata_replica_context *replica, strata_tensor *x,
                                                    strata_reduction reduction);
/* The replicas' values, concatenated along the axis (>= 0); their other dimensions must be equal. f32, i32 or i64. Gradient:
 * the replica's part of the sum of gradients. */
STRATA_API strata_tensor *strata_replica_all_gather(strata_replica_context *replica, strata_tensor *x, int axis);
/* Sums sparse gradients over the replicas. Each replica has rows `values` (m, ...) f32 at `indices` (m) i32; m may differ
 * between replicas and may be 0, and an index may occur several times. The result is dense: (n_rows, ...). Only the rows and
 * indices are exchanged. They are added in the order of the replicas, and within a replica in the order of its rows. */
STRATA_API strata_tensor *strata_replica_all_reduce_rows(strata_replica_context *replica, strata_tensor *values,
                                                         strata_tensor *indices, int64_t n_rows);

/* ---- models, losses and optimizers in a replica's function ----
 *
 *     outputs = strata_model_apply(model, replica, inputs[0], true);                   model(features, training=True)
 *     loss = strata_replica_average_loss(replica, strata_example_losses("mse", ...));  tf.nn.compute_average_loss(losses)
 *     gradients = strata_replica_gradients(replica, loss, variables);                  tape.gradient(loss, variables)
 *     strata_optimizer_apply(replica, optimizer, gradients, variables);                optimizer.apply_gradients(...)
 *
 * With the same seed, batches and optimizer this computes the same step as fit: the parameters get the same bits. */

typedef struct strata_variables {
    /* [n] borrowed. */
    strata_distributed_variable *const *items;
    int n;
} strata_variables;
/* The trained parameters of a model that was built or compiled with the strategy: contiguous f32 variables that the model owns;
 * a single one where the devices can bind all parameters as one buffer range, and one for each parameter under a mesh. There
 * they are read and set by strata_model_get_parameter and _set_parameter. n is 0 for any other model. */
STRATA_API strata_variables strata_model_variables(strata_model *model);

/* The model's outputs (n, output...) for x (n, input...), in x's graph; x has the dtype of the model's input, and may have its
 * shape with some axes merged.
 *   replica   the context of the function that is being traced, whose strategy is the model's. NULL: in any other graph, of
 *             which the executable is for the first device of the model's strategy; training must be false then
 *   training  dropout drops, with the model's seed and a count of its runs; batch norm uses the batch's own statistics, and
 *             its moving averages follow the mean over the replicas that have examples
 * May be called several times in a function. Errors poison the graph. */
STRATA_API strata_tensor *strata_model_apply(strata_model *model, strata_replica_context *replica, strata_tensor *x,
                                             bool training);
/* The same for a model with several inputs or outputs: inputs [strata_model_n_inputs], out_outputs [strata_model_n_outputs]. */
STRATA_API void strata_model_apply_all(strata_model *model, strata_replica_context *replica, strata_tensor *const *inputs,
                                       strata_tensor **out_outputs, bool training);
/* The sum of the losses (n) of this replica's examples, divided by the number of examples in the global batch, which the first
 * input of the run has (strata_per_replica.n_rows). The sum over the replicas is the mean loss. */
STRATA_API strata_tensor *strata_replica_average_loss(strata_replica_context *replica, strata_tensor *losses);
/* The penalties (kernel_l1, kernel_l2) of a model that was applied before, times the replica's share of the global batch, so
 * that the sum over the replicas is the whole penalty. A scalar; 0 where no layer has a penalty. */
STRATA_API strata_tensor *strata_replica_penalty(strata_replica_context *replica, const strata_model *model);
/* The gradients of a scalar with respect to variables that the function has read (strata_replica_read, strata_model_apply): [n]
 * tensors with the variables' shapes; the array is valid while the function is traced. They are gradients for the replica's own
 * examples; strata_optimizer_apply adds them up. */
STRATA_API strata_tensor *const *strata_replica_gradients(strata_replica_context *replica, strata_tensor *loss,
                                                          strata_variables variables);

/* An optimizer with its count of updates, and its slots for each variable that it updates, on the devices of the strategy in
 * whose scope the thread is. With the strategy's shard_optimizer YES each replica owns the slots of its part of each variable.
 * Cross-replica. Fails: INVALID for settings that fit does not take, outside of a scope, for gradient_accumulation_steps, and
 * for shards where one device makes the updates. */
typedef struct strata_distributed_optimizer strata_distributed_optimizer;
STRATA_API STRATA_MUST_USE strata_status strata_distributed_optimizer_create(const strata_optimizer *settings,
                                                                             strata_distributed_optimizer **out_optimizer,
                                                                             strata_error *err);
/* After the functions that use it, before the strategy; NULL is fine. */
STRATA_API void strata_distributed_optimizer_destroy(strata_distributed_optimizer *optimizer);
STRATA_API int64_t strata_distributed_optimizer_steps(const strata_distributed_optimizer *optimizer); /* updates so far */
/* Adds up the gradients over the replicas, clips them as the settings say, and updates the variables. Every replica calls it
 * with the same variables. Errors poison the graph. */
STRATA_API void strata_optimizer_apply(strata_replica_context *replica, strata_distributed_optimizer *optimizer,
                                       strata_tensor *const *gradients, strata_variables variables);

/* strata_optimizer_apply of the gradients of the loss by the variables: optimizer.minimize(loss, variables). */
STRATA_API void strata_optimizer_minimize(strata_replica_context *replica, strata_distributed_optimizer *optimizer,
                                          strata_tensor *loss, strata_variables variables);

/* Adds an output of the function for this replica. Outputs are in the order of the calls. */
STRATA_API void strata_replica_return(strata_replica_context *replica, strata_tensor *value);

/* Called once in each step, in the cross-replica context, when the values of all replicas are computed: values[r] is x of
 * replica r, and the function writes results[r], of the same shape, with which replica r continues. With several workers each
 * of them calls it, with the values of all replicas of all workers, so the results must depend on these values only. A failure
 * ends the run. */
typedef strata_status (*strata_merge_function)(strata_strategy *strategy, const strata_per_replica *values,
                                               strata_per_replica *results, void *user, strata_error *err);
STRATA_API strata_tensor *strata_replica_merge_call(strata_replica_context *replica, strata_merge_function merge, void *user,
                                                    strata_tensor *x);

/* ---- running ---- */

typedef struct strata_function strata_function;
/* Borrows the strategy and `user`. */
STRATA_API STRATA_MUST_USE strata_status strata_function_create(strata_strategy *strategy, strata_replica_function function,
                                                                void *user, strata_function **out_function, strata_error *err);
STRATA_API void strata_function_destroy(strata_function *function); /* NULL is fine */
/* Totals of all runs of the function so far. */
STRATA_API strata_communication_totals strata_function_communication(const strata_function *function);
/* Runs one step of all replicas and waits for its end. inputs[i].n is 1 (shared) or the number of replicas. outputs[i] receives
 * the replicas' i-th outputs; the caller zeroes it before the first run, and later runs reuse its memory. Cross-replica.
 * Fails: errors of tracing and compiling, with the replica's number; a device's failure, after which the function can only be
 * destroyed. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run(strata_function *function, const strata_per_replica *inputs,
                                                             int n_inputs, strata_per_replica *outputs, int n_outputs,
                                                             strata_error *err);

/* strata_strategy_run, followed by strata_strategy_reduce_scalar of the first output, which must be one number for each
 * replica. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run_scalar(strata_function *function, const strata_per_replica *inputs,
                                                                    int n_inputs, strata_reduction reduction, double *out_value,
                                                                    strata_error *err);

/* ---- data ---- */

typedef struct strata_distributed_batches strata_distributed_batches;
typedef struct strata_distributed_batches_options {
    /* Examples of all replicas together; 0: 32. Ignored for a dataset whose last stage is a batch stage. */
    int64_t global_batch;
    /* Shuffle a dataset of arrays. A pipeline has stages for this. */
    bool shuffle;
    uint64_t seed, epoch;
    /* With several workers: which examples each of them reads (strata/pipeline.h). */
    strata_auto_shard auto_shard;
} strata_distributed_batches_options;
/* The batches of a dataset, epoch after epoch, each divided among the replicas (strata_strategy_share): features f32 or i32,
 * and labels if the dataset has them. Borrows strategy and dataset. With several workers all of them create it and call _next
 * equally often. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_create(strata_strategy *strategy,
                                                                           const strata_dataset *dataset,
                                                                           const strata_distributed_batches_options *opts,
                                                                           strata_distributed_batches **out_batches,
                                                                           strata_error *err);
/* Continues at the beginning of the given epoch, whose number determines how the dataset is shuffled. With several workers all
 * call it. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_set_epoch(strata_distributed_batches *batches,
                                                                              uint64_t epoch, strata_error *err);
/* The replicas' parts of the next batch: values[0] features, values[1] labels, borrowed until the next call. A part may have no
 * examples. *out_n: the number of examples in the global batch; 0 at the end of the epoch, which is the same call on all
 * workers. The call after that returns the first batch of the next epoch. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_next(strata_distributed_batches *batches,
                                                                         strata_per_replica values[2], int64_t *out_n,
                                                                         strata_error *err);
/* Runs the function on the next n_steps batches, with the results of as many calls of strata_distributed_batches_next and
 * strata_strategy_run ("steps per execution"). Devices that can run several steps in one call (cores of a TPU) get all steps
 * whose inputs have the same shapes at once, so that they do not wait for the host in between. outputs: [n_steps * n_outputs],
 * first those of the first step, each as for strata_strategy_run. *out_n_steps: how many steps were run; fewer than n_steps if
 * the epoch ended. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run_batches(strata_function *function,
                                                                     strata_distributed_batches *batches, int n_steps,
                                                                     strata_per_replica *outputs, int n_outputs,
                                                                     int *out_n_steps, strata_error *err);
STRATA_API void strata_distributed_batches_destroy(strata_distributed_batches *batches); /* NULL is fine */

/* The argument of a function that creates the dataset of a worker (strategy.distribute_datasets_from_function). */
typedef struct strata_input_context {
    /* The number of workers, and the number of this one, from 0. */
    int num_input_pipelines, input_pipeline_id;
    int num_replicas_in_sync;
} strata_input_context;
/* *out_batch = global_batch / num_replicas_in_sync; INVALID where this is not a whole number. */
STRATA_API STRATA_MUST_USE strata_status strata_input_context_per_replica_batch(const strata_input_context *context,
                                                                                int64_t global_batch, int64_t *out_batch,
                                                                                strata_error *err);
typedef strata_status (*strata_dataset_function)(const strata_input_context *context, void *user, strata_dataset **out_dataset,
                                                 strata_error *err);
/* Calls the function once on each worker. The last stage of its dataset must be a batch stage. In each step every replica of
 * the worker gets one of these batches; in the last step of an epoch some replicas may get none. Takes the dataset. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_from_function(strata_strategy *strategy,
                                                                                  strata_dataset_function function, void *user,
                                                                                  uint64_t seed, uint64_t epoch,
                                                                                  strata_distributed_batches **out_batches,
                                                                                  strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
