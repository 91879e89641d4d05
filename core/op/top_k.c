/* SPDX-License-Identifier: Apache-2.0
 *
 * top_k: the indices (i32) of the k largest of each row, largest first, the lower index first among equals, NaN above all.
 *   x (..., C) -> y (..., k).   No gradient. The values of strata_top_k are gathered from x by these indices, so their gradient
 *   is that of gather. */
#include "core/op/define.h"

typedef struct top_k_attrs {
    int64_t k;
} top_k_attrs;

static strata_axes axes_of(const strata_tensor *node) {
    const strata_shape shape = node->inputs[0]->shape;
    return strata_axes_of(shape, shape.rank - 1, 1);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const int64_t k = ((const top_k_attrs *)node->attrs)->k;
    const strata_shape from = node->inputs[0]->shape;
    const int64_t n = from.rank ? from.dims[from.rank - 1] : 0;
    if (!from.rank) return strata_fail(err, STRATA_INVALID, "x is a scalar; it has no last axis to choose from");
    if (k < 1 || k > n || n > INT32_MAX)
        return strata_fail(err, STRATA_INVALID,
                           "k is %" PRId64 ", x is %s; k must be 1 to the size of the last axis, which is at most %d", k,
                           strata_shape_text(from).text, INT32_MAX);
    node->dtype = STRATA_DTYPE_I32;
    node->shape.dims[from.rank - 1] = k;
    return STRATA_OK;
}

/* Whether element b comes after element a in the order. */
static bool behind(strata_dtype dtype, const void *x, int64_t b, int64_t a) {
    return strata_element_above(dtype, x, a, b) || (b > a && !strata_element_above(dtype, x, b, a));
}

static void reference(strata_op_call *call) {
    const strata_axes axes = axes_of(call->node);
    const int64_t k = ((const top_k_attrs *)call->node->attrs)->k;
    const strata_dtype dtype = call->node->inputs[0]->dtype;
    for (int64_t row = 0; row < axes.outer; row++) {
        const int64_t first = row * axes.n;
        for (int64_t j = 0, last = -1; j < k; j++) {
            int64_t best = -1;
            for (int64_t i = first; i < first + axes.n; i++) {
                if (last >= 0 && !behind(dtype, call->inputs[0], i, last)) continue;
                if (best < 0 || strata_element_above(dtype, call->inputs[0], i, best)) best = i;
            }
            ((int32_t *)call->output)[row * k + j] = (int32_t)(best - first);
            last = best;
        }
    }
}

/* A launch finds several ranks, one after the other, as long as a work-item's loops stay short (shaders/README.md); the next
 * launch continues from the results of the launch before it. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const int64_t most_turns = 32768;
    const strata_axes axes = axes_of(node);
    const int64_t k = ((const top_k_attrs *)node->attrs)->k, turns = axes.n / 64 + 64, share = most_turns / turns + 1;
    for (int64_t first = 0; first < k; first += share) {
        strata_launch launch = strata_launch_of(node, "top_k", strata_dtype_name(node->inputs[0]->dtype));
        STRATA_TRY(strata_launch_rows(&launch, axes.outer, axes.n, 1, (int)(k - first < share ? k - first : share), err));
        STRATA_LAUNCH_INTS(&launch, k, first, k - first < share ? k : first + share);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

const strata_op strata_op_top_k = {
    .name = "top_k",
    .n_inputs = 1,
    .attrs_bytes = sizeof(top_k_attrs),
    .attrs = {{"k", STRATA_ATTR_INT, offsetof(top_k_attrs, k)}},
    .dims = "...C->...K",
    .shape = shape,
    .reference = reference,
    .lower = lower,
};

/* A constant (rows, 1): the index at which each row of n elements begins. */
static strata_tensor *row_starts(strata_graph *graph, int64_t rows, int64_t n) {
    int32_t *starts = strata_graph_alloc(graph, (size_t)(rows ? rows : 1) * sizeof *starts);
    if (!starts) return &graph->poison;
    for (int64_t i = 0; i < rows; i++) starts[i] = (int32_t)(i * n);
    strata_array array = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(rows, 1), starts);
    return strata_constant(graph, &array);
}

strata_tensor *strata_top_k(strata_tensor *x, int64_t k, strata_tensor **out_indices) {
    strata_tensor *indices = strata_node(NULL, &strata_op_top_k, 1, &x, &(top_k_attrs){.k = k});
    if (out_indices) *out_indices = indices;
    if (strata_tensor_is_poison(indices)) return indices;
    const strata_axes axes = axes_of(indices);
    if (axes.outer * axes.n > INT32_MAX)
        return strata_graph_poison(x->graph, &strata_op_top_k, STRATA_UNSUPPORTED, "x is %s; it may have at most %d elements",
                                   strata_shape_text(x->shape).text, INT32_MAX);
    strata_tensor *places =
        strata_add(strata_reshape(indices, STRATA_SHAPE(axes.outer, k)), row_starts(x->graph, axes.outer, axes.n));
    strata_tensor *values = strata_gather(strata_reshape(x, STRATA_SHAPE(axes.outer * axes.n)), places, 0);
    return strata_reshape(values, indices->shape);
}
