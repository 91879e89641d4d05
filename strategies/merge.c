/* SPDX-License-Identifier: Apache-2.0
 *
 * merge_call: a function of the user's own between the replicas' segments. */
#include <string.h>

#include "core/graph.h"
#include "core/op/all_reduce.h"
#include "strategies/context.h"

typedef struct merge_call {
    strata_merge merge; /* first */
    strata_strategy *strategy;
    strata_merge_function function;
    void *user;
} merge_call;

/* The replicas' memory as arrays. */
static strata_status view(const merge_call *call, const void *const *data, int n, strata_per_replica *out, strata_error *err) {
    STRATA_TRY(strata_per_replica_create(n, out, err));
    for (int r = 0; r < n; r++) out->arrays[r] = strata_array_view(call->merge.dtype, call->merge.shape, (void *)data[r]);
    return STRATA_OK;
}

static strata_status run(const strata_merge *merge, const void *const *operands, int n_operands, void *const *results,
                         int n_results, strata_error *err) {
    const merge_call *call = (const merge_call *)merge;
    strata_per_replica values = {0}, outputs = {0};
    strata_status status = view(call, operands, n_operands, &values, err);
    if (!status) status = view(call, (const void *const *)results, n_results, &outputs, err);
    if (!status) status = call->function(call->strategy, &values, &outputs, call->user, err);
    strata_per_replica_finish(&values);
    strata_per_replica_finish(&outputs);
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
    return strata_exchange_merged(x, &call->merge);
}
