/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of ops that have their own loop on the host. A new loop is one function and one row in its file. */
#include "backends/host/host.h"
#include "core/op/ops.h"

static const host_fast_op *const lists[] = {strata_host_matmuls,   strata_host_cross_entropies, strata_host_reductions,
                                            strata_host_depthwise, strata_host_conv2ds,         strata_host_pools,
                                            strata_host_recurrent, strata_host_casts,           strata_host_fma_chains,
                                            strata_host_updates,   strata_host_elementwise};

host_share strata_host_share(const host_call *call, int64_t n, int64_t unit) {
    const int64_t units = (n + unit - 1) / unit, first = units * call->part / call->n_parts * unit,
                  end = units * (call->part + 1) / call->n_parts * unit;
    return (host_share){first < n ? first : n, end < n ? end : n};
}

bool strata_host_is_f32(const strata_tensor *node) {
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i]->dtype != STRATA_DTYPE_F32) return false;
    return node->dtype == STRATA_DTYPE_F32;
}

const host_fast_op *strata_host_fast_find(const strata_tensor *node) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const host_fast_op *row = lists[i]; row->run; row++)
            if ((!row->op || row->op == node->op) && row->takes(node)) return row;
    return NULL;
}
