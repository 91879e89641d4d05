/* SPDX-License-Identifier: Apache-2.0
 *
 * merge_call: a function of the user that runs on the host between two segments of the replicas' programs. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "strategies/context.h"

typedef struct merge_call {
    strata_merge merge; /* must be the first field */
    strata_strategy *strategy;
    strata_merge_function function;
    void *user;
} merge_call;

/* Makes arrays that are views of the replicas' memory. */
static strata_status view(const merge_call *call, const void *const *data, int n, strata_per_replica *out, strata_error *err) {
    STRATA_TRY(strata_per_replica_create(n, out, err));
    for (int r = 0; r < n; r++) out->arrays[r] = strata_array_view(call->merge.dtype, call->merge.shape, (void *)data[r]);
    return STRATA_OK;
}

static strata_status merge_values(const merge_call *call, const void *const *operands, int n_operands, void *const *results,
                                  int n_results, strata_error *err) {
    strata_per_replica values = {0}, outputs = {0};
    strata_status status = view(call, operands, n_operands, &values, err);
    if (!status) status = view(call, (const void *const *)results, n_results, &outputs, err);
    if (!status) status = call->function(call->strategy, &values, &outputs, call->user, err);
    strata_per_replica_finish(&values);
    strata_per_replica_finish(&outputs);
    return status;
}

/* Each worker gets the values of all workers' replicas and keeps the results for its own replicas. The memory contains the
 * gathered values of all, the merged values, pointers to both, and the sizes of the workers' contributions. */
static strata_status merge_over_workers(const merge_call *call, const void *const *operands, int n_operands,
                                        void *const *results, int n_results, strata_error *err) {
    const strata_workers *workers = &call->strategy->workers;
    const int n = workers->n_replicas, first = workers->first_replica;
    const size_t bytes = (size_t)strata_shape_elements(call->merge.shape) * strata_dtype_bytes(call->merge.dtype);
    char *own = calloc((size_t)n_operands + 2 * (size_t)n + 1, bytes ? bytes : 1);
    const void **pointers = calloc(2 * (size_t)n, sizeof *pointers);
    size_t *counts = calloc((size_t)workers->n, sizeof *counts);
    strata_status status = STRATA_OK;
    if (!own || !pointers || !counts) {
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for values of %d replicas", n);
    } else {
        char *all = own + (size_t)n_operands * bytes;
        for (int r = 0; r < n_operands && bytes; r++) memcpy(own + (size_t)r * bytes, operands[r], bytes);
        for (int w = 0; w < workers->n; w++)
            counts[w] = (size_t)(workers->first_replicas[w + 1] - workers->first_replicas[w]) * bytes;
        for (int r = 0; r < 2 * n; r++) pointers[r] = all + (size_t)r * bytes;
        status = workers->all_gather(workers, own, all, counts, err);
    }
    if (!status) status = merge_values(call, pointers, n, (void *const *)(pointers + n), n, err);
    for (int r = 0; r < n_results && bytes && !status; r++) memcpy(results[r], pointers[n + first + r], bytes);
    free(own);
    free(pointers);
    free(counts);
    return status;
}

static strata_status run(const strata_merge *merge, const void *const *operands, int n_operands, void *const *results,
                         int n_results, strata_error *err) {
    const merge_call *call = (const merge_call *)merge;
    strata_status status = (strata_strategy_has_workers(call->strategy) ? merge_over_workers : merge_values)(
        call, operands, n_operands, results, n_results, err);
    return status ? strata_fail_in(err, status, "merge_call") : STRATA_OK;
}

strata_tensor *strata_replica_merge_call(strata_replica_context *replica, strata_merge_function merge, void *user,
                                         strata_tensor *x) {
    if (!strata_need_replica(replica, "strata_replica_merge_call") || !x || strata_tensor_is_poison(x)) return x;
    merge_call *call = strata_graph_alloc(replica->graph, sizeof *call);
    if (!call) return strata_graph_poison(replica->graph, NULL, STRATA_OUT_OF_MEMORY, "no host memory for a merge_call");
    *call = (merge_call){.merge = {.run = run, .dtype = x->dtype, .shape = x->shape},
                         .strategy = replica->strategy,
                         .function = merge,
                         .user = user};
    return strata_merge_values(x, &call->merge);
}
