/* SPDX-License-Identifier: Apache-2.0
 *
 * merge_call: a function of the user that runs on the host between two segments of the replicas' programs. */
#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "strategies/context.h"

typedef struct merge_call {
    strata_merge merge; /* must be the first field */
    strata_strategy *strategy;
    strata_merge_function function;
    void *user;
} merge_call;

/* Calls the function with the values of all workers' replicas. Each worker keeps the results for its own replicas. */
static strata_status merge_values(const merge_call *call, const void *const *operands, int n_operands, void *const *results,
                                  int n_results, strata_memory *memory, strata_error *err) {
    const strata_dtype dtype = call->merge.dtype;
    const strata_shape shape = call->merge.shape;
    const int first = call->strategy->workers.first_replica;
    strata_per_replica own = {.n = n_operands, .arrays = strata_memory_take(memory, n_operands, sizeof *own.arrays)}, values,
                       merged;
    if (!own.arrays) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for values of %d replicas", n_operands);
    for (int r = 0; r < n_operands; r++) own.arrays[r] = strata_array_view(dtype, shape, (void *)operands[r]);
    STRATA_TRY(strata_per_replica_collect(call->strategy, &own, memory, &values, err));
    merged = (strata_per_replica){.n = values.n, .arrays = strata_memory_take(memory, values.n, sizeof *merged.arrays)};
    for (int r = 0; r < values.n && merged.arrays; r++) {
        const bool is_own = r >= first && r < first + n_results;
        void *to =
            is_own ? results[r - first] : strata_memory_take(memory, strata_shape_elements(shape), strata_dtype_bytes(dtype));
        merged.arrays[r] = strata_array_view(dtype, shape, to);
    }
    if (memory->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for values of %d replicas", values.n);
    return call->function(call->strategy, &values, &merged, call->user, err);
}

static strata_status run(const strata_merge *merge, const void *const *operands, int n_operands, void *const *results,
                         int n_results, strata_error *err) {
    STRATA_FINISHED(strata_memory) memory = {0};
    const strata_status status =
        merge_values((const merge_call *)merge, operands, n_operands, results, n_results, &memory, err);
    return status ? strata_fail_in(err, status, "merge_call") : STRATA_OK;
}

strata_tensor *strata_replica_merge_call(strata_replica_context *replica, strata_merge_function merge, void *user,
                                         strata_tensor *x) {
    if (!strata_need_replica(replica, "strata_replica_merge_call") || !x || strata_tensor_is_poison(x)) return x;
    if (strata_strategy_has_mesh(replica->strategy))
        return strata_graph_poison(
            replica->graph, NULL, STRATA_UNSUPPORTED,
            "merge_call: strategy %s runs one function on all devices, so there are no values of replicas "
            "to merge; return the value, and pass the result to the next run",
            replica->strategy->name);
    merge_call *call = strata_graph_alloc(replica->graph, sizeof *call);
    if (!call) return strata_graph_poison(replica->graph, NULL, STRATA_OUT_OF_MEMORY, "no host memory for a merge_call");
    *call = (merge_call){.merge = {.run = run, .dtype = x->dtype, .shape = x->shape},
                         .strategy = replica->strategy,
                         .function = merge,
                         .user = user};
    return strata_merge_values(x, &call->merge);
}
