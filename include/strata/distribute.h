/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom training loops under a strategy, with the words of tf.distribute. samples/custom_loop.c is the whole of one:
 *
 *     strata_strategy_enter(strategy, &err);                                     with strategy.scope():
 *     strata_distributed_create("w", f32, STRATA_SHAPE(8, 1), &opts, &w, &err);      w = tf.Variable(...)
 *     strata_strategy_exit(strategy, &err);
 *     strata_function_create(strategy, step, &state, &function, &err);           @tf.function
 *     strata_distributed_batches_create(strategy, data, &b, &batches, &err);     strategy.experimental_distribute_dataset(data)
 *     strata_distributed_batches_next(batches, inputs, &n, &err);                for inputs in batches:
 *     strata_strategy_run(function, inputs, n, outputs, 1, &err);                    outputs = strategy.run(step, args=inputs)
 *     strata_strategy_reduce(strategy, outputs, STRATA_REDUCE_SUM, STRATA_NO_AXIS, ..);
 *                                                                                strategy.reduce("SUM", outputs, axis=None)
 *
 * Ownership. What is made here with a strategy, and a model that is compiled or built with it, is destroyed with the strategy
 * where that has not been done before, the newest first. A handle is of no use after that.
 *
 * Contexts. A thread is in the cross-replica context of the strategy whose scope it entered; while a function is being traced
 * it is in a replica's context, and while a merge function runs in the cross-replica context again. Each call that belongs in
 * one context fails with INVALID in the other, and says which it needs. Contexts are a thread's own. */
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

/* Entering the same strategy again is fine; another one, inside of a scope, is INVALID. Each enter needs its exit. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_enter(strata_strategy *strategy, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_strategy_exit(strata_strategy *strategy, strata_error *err);
STRATA_API strata_strategy *strata_strategy_current(void); /* of this thread's scope; NULL: none */
STRATA_API bool strata_in_cross_replica_context(void);     /* false while a replica's function is traced */

/* ---- values, one a replica ---- */

/* Replica r's value is arrays[r]; with n 1 all replicas share arrays[0]. */
typedef struct strata_per_replica {
    int n;
    /* [n]. */
    strata_array *arrays;
    /* Of a batch that strata_distributed_batches_next has divided: examples of the global batch, and the first one of this
     * worker's replicas in it. 0: they are not known. */
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
 * those of the calling worker's replicas. Every worker sends them to all others, and every worker receives the same result,
 * which has the bits that one worker with all replicas would compute. */
enum { STRATA_NO_AXIS = STRATA_MAX_RANK + 1 };
/* The replicas' values as one, in replica order. axis STRATA_NO_AXIS: element by element, all of one shape; MEAN divides by the
 * replicas. Else the axis (negative: from the end) is summed over too; MEAN divides by the elements that there are along it in
 * all replicas, which may differ. f32, i32 and i64; MEAN: f32. Cross-replica. The caller finishes *out. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_reduce(strata_strategy *strategy, const strata_per_replica *values,
                                                                strata_reduction reduction, int axis, strata_array *out,
                                                                strata_error *err);
/* The same of values that have one element each (losses, counts), as a number. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_reduce_scalar(strata_strategy *strategy,
                                                                       const strata_per_replica *values,
                                                                       strata_reduction reduction, double *out_value,
                                                                       strata_error *err);
/* The values end to end along the axis; they may differ in that axis alone. Cross-replica. The caller finishes *out. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_gather(strata_strategy *strategy, const strata_per_replica *values,
                                                                int axis, strata_array *out, strata_error *err);
/* The values of this worker's replicas. */
static inline const strata_array *strata_strategy_local_results(const strata_per_replica *values, int *out_n) {
    *out_n = values->n;
    return values->arrays;
}

/* ---- variables ---- */

/* ON_WRITE: copies are always equal, what replicas write is aggregated first. ON_READ: replicas write their own copies, which
 * are aggregated when the cross-replica context reads (a metric's sums). */
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
    /* Each copy is made on the device of this variable's copy, for that variable's strategy. NULL: for the scope's strategy. */
    const strata_distributed_variable *colocate_with;
} strata_distributed_options;

/* A copy on each replica's device, zeros, for the strategy in whose scope the thread is, or of the variable that it is
 * colocated with (in no scope, or in that strategy's). opts may be NULL. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_create(const char *name, strata_dtype dtype, strata_shape shape,
                                                                   const strata_distributed_options *opts,
                                                                   strata_distributed_variable **out_variable,
                                                                   strata_error *err);
STRATA_API void strata_distributed_destroy(strata_distributed_variable *variable); /* after its functions; NULL is fine */
/* Cross-replica. Every copy becomes the value; with several workers the chief's, as initial values do (ON_READ with SUM: its
 * share of it, so that reading gives the value back). */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_set(strata_distributed_variable *variable,
                                                                const strata_array *value, strata_error *err);
/* Cross-replica. ON_READ: aggregated (f32 only). */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_get(strata_distributed_variable *variable, strata_array *value,
                                                                strata_error *err);
/* A replica's copy: borrowed. Equal for all replicas of an ON_WRITE variable. NULL for a replica that is not there. */
STRATA_API strata_variable *strata_distributed_copy(const strata_distributed_variable *variable, int replica);

/* ---- a replica's function ---- */

typedef struct strata_replica_context strata_replica_context;

/* Builds one replica's step into its graph: traced once for each replica and set of input shapes, then replayed. inputs[i]: the
 * replica's part of what strata_strategy_run is given. Every replica must make the same calls of the functions below in the
 * same order. */
typedef strata_status (*strata_replica_function)(strata_replica_context *replica, strata_tensor *const *inputs, void *user,
                                                 strata_error *err);

STRATA_API int strata_replica_id(const strata_replica_context *replica); /* in the sync group, from 0 */
STRATA_API int strata_replica_num_in_sync(const strata_replica_context *replica);
STRATA_API strata_graph *strata_replica_graph(strata_replica_context *replica);

/* Calls below in another context poison the graph of `replica`; the run then fails and says so. */

/* The replica's copy as it is at this point of the step. */
STRATA_API strata_tensor *strata_replica_read(strata_replica_context *replica, strata_distributed_variable *variable);
/* The copy becomes the value: ON_READ the replica's own, ON_WRITE what the replicas' values aggregate to. */
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
/* The replicas' values end to end along the axis (>= 0), in which alone they may differ. f32, i32 or i64. Gradient: the
 * replica's part of the sum of gradients. */
STRATA_API strata_tensor *strata_replica_all_gather(strata_replica_context *replica, strata_tensor *x, int axis);
/* The sum over the replicas of sparse gradients, dense: (n_rows, ...), of rows `values` (m, ...) f32 at `indices` (m) i32; m
 * may differ by replica and be 0, an index may come more than once. The rows travel, not what they are added to; added in
 * replica order, each one's in theirs. */
STRATA_API strata_tensor *strata_replica_all_reduce_rows(strata_replica_context *replica, strata_tensor *values,
                                                         strata_tensor *indices, int64_t n_rows);

/* ---- models, losses and optimizers in a replica's function ----
 *
 *     outputs = strata_model_apply(model, replica, inputs[0], true);                   model(features, training=True)
 *     loss = strata_replica_average_loss(replica, strata_example_losses("mse", ...));  tf.nn.compute_average_loss(losses)
 *     gradients = strata_replica_gradients(replica, loss, variables);                  tape.gradient(loss, variables)
 *     strata_optimizer_apply(replica, optimizer, gradients, variables);                optimizer.apply_gradients(...)
 *
 * With the model's seed, the same batches and the same optimizer this is fit's step: the parameters get the same bits. */

typedef struct strata_variables {
    /* [n] borrowed. */
    strata_distributed_variable *const *items;
    int n;
} strata_variables;
/* The trained parameters of a model that was built or compiled with the strategy: flat ranges f32 that the model owns, one
 * where the devices can bind all parameters in one piece. Empty for another model. */
STRATA_API strata_variables strata_model_variables(strata_model *model);

/* The model's outputs (n, output...) for x (n, input...), in x's graph; x has the model's dtype, and may be flatter than its
 * input.
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
/* losses (n) of this replica's examples, added up and divided by the examples of the global batch: the sum over replicas is
 * the mean. The run's first input says how many these are (strata_per_replica). */
STRATA_API strata_tensor *strata_replica_average_loss(strata_replica_context *replica, strata_tensor *losses);
/* What the layers of a model that was applied before add to the loss (kernel_l1, kernel_l2), times the replica's share of the
 * global batch, so that the sum over replicas is the whole. A scalar; 0 where no layer adds any. */
STRATA_API strata_tensor *strata_replica_penalty(strata_replica_context *replica, const strata_model *model);
/* The gradients of a scalar by variables that the function has read (strata_replica_read, strata_model_apply): [n], in the
 * shape of each variable; memory of the trace. Of the replica's own examples: strata_optimizer_apply adds them up. */
STRATA_API strata_tensor *const *strata_replica_gradients(strata_replica_context *replica, strata_tensor *loss,
                                                          strata_variables variables);

/* An optimizer with its count of updates, and its slots for each variable that it updates, on the devices of the strategy in
 * whose scope the thread is. With the strategy's shard_optimizer YES each replica owns the slots of its part of each variable.
 * Cross-replica. Fails: INVALID for settings that fit does not take, outside of a scope, and for
 * gradient_accumulation_steps. */
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

/* What the function returns for this replica, in the order of the calls. */
STRATA_API void strata_replica_return(strata_replica_context *replica, strata_tensor *value);

/* Called once a step, in the cross-replica context, when all replicas have come here: values[r] is replica r's x, results[r]
 * (same shape) what it goes on with. With several workers each calls it, with the values of all replicas of all workers: what
 * it makes of them must depend on nothing else. A failure ends the run. */
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
/* Of all its runs so far. */
STRATA_API strata_communication_totals strata_function_communication(const strata_function *function);
/* One step of all replicas, waited for. inputs[i].n is 1 (shared) or the number of replicas. outputs[i], zeroed at first,
 * receives what replicas return as their i-th value and is used again when it is given again. Cross-replica. Fails: what
 * tracing or compiling fails with, naming the replica; a device's failure, after which the function is of no use. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run(strata_function *function, const strata_per_replica *inputs,
                                                             int n_inputs, strata_per_replica *outputs, int n_outputs,
                                                             strata_error *err);

/* strata_strategy_run, and what the replicas return as their first value, a number each, as one: run and
 * strata_strategy_reduce_scalar. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run_scalar(strata_function *function, const strata_per_replica *inputs,
                                                                    int n_inputs, strata_reduction reduction, double *out_value,
                                                                    strata_error *err);

/* ---- data ---- */

typedef struct strata_distributed_batches strata_distributed_batches;
typedef struct strata_distributed_batches_options {
    /* Examples of all replicas together; a dataset that ends in a batch stage has its own; 0: 32. */
    int64_t global_batch;
    /* arrays; a pipeline has its own stages for that. */
    bool shuffle;
    uint64_t seed, epoch;
    /* Several workers: what each reads (strata/pipeline.h). */
    strata_auto_shard auto_shard;
} strata_distributed_batches_options;
/* Epochs of the dataset, each batch divided among the replicas (strata_strategy_share): features f32 or i32, labels where it
 * has some. Borrows strategy and dataset. With several workers all make theirs, and take their batches in step.
 * Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_create(strata_strategy *strategy,
                                                                           const strata_dataset *dataset,
                                                                           const strata_distributed_batches_options *opts,
                                                                           strata_distributed_batches **out_batches,
                                                                           strata_error *err);
/* Goes to the beginning of an epoch, for a loop that does not take one after the other. Its number decides how the dataset is
 * shuffled. With several workers all call it.
 * Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_set_epoch(strata_distributed_batches *batches,
                                                                              uint64_t epoch, strata_error *err);
/* The replicas' parts of the next batch: values[0] features, values[1] labels, borrowed until the next call. A part may have no
 * examples. *out_n: examples of the whole batch, of all workers; 0 at the end of the epoch, to which all workers come together.
 * The call after that gives the first batch of the next epoch. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_next(strata_distributed_batches *batches,
                                                                         strata_per_replica values[2], int64_t *out_n,
                                                                         strata_error *err);
/* Steps per execution: runs the function on the next n_steps batches, as so many calls of strata_distributed_batches_next and
 * strata_strategy_run. Devices that take several runs in one call (cores of a TPU) get all those whose inputs have the same
 * shapes at once, so that the host has nothing to do between them. The bits are the same. outputs: [n_steps * n_outputs], those
 * of one step after the other, each as strata_strategy_run has them. *out_n_steps: steps that were run, fewer where the epoch
 * ended. Cross-replica. */
STRATA_API STRATA_MUST_USE strata_status strata_strategy_run_batches(strata_function *function,
                                                                     strata_distributed_batches *batches, int n_steps,
                                                                     strata_per_replica *outputs, int n_outputs,
                                                                     int *out_n_steps, strata_error *err);
STRATA_API void strata_distributed_batches_destroy(strata_distributed_batches *batches); /* NULL is fine */

/* What a function that makes each worker's input is told (strategy.distribute_datasets_from_function). */
typedef struct strata_input_context {
    /* Workers; this one. */
    int num_input_pipelines, input_pipeline_id;
    int num_replicas_in_sync;
} strata_input_context;
/* A replica's part of a global batch; INVALID where it does not divide. */
STRATA_API STRATA_MUST_USE strata_status strata_input_context_per_replica_batch(const strata_input_context *context,
                                                                                int64_t global_batch, int64_t *out_batch,
                                                                                strata_error *err);
typedef strata_status (*strata_dataset_function)(const strata_input_context *context, void *user, strata_dataset **out_dataset,
                                                 strata_error *err);
/* The function is called once on each worker, with its number; its dataset ends in a batch stage, whose batches go to the
 * replicas one after the other: each step takes one for each. The last step of an epoch may leave replicas without one. Takes
 * the dataset. */
STRATA_API STRATA_MUST_USE strata_status strata_distributed_batches_from_function(strata_strategy *strategy,
                                                                                  strata_dataset_function function, void *user,
                                                                                  uint64_t seed, uint64_t epoch,
                                                                                  strata_distributed_batches **out_batches,
                                                                                  strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
