/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce: y = x of replica 0 + x of replica 1 + ..., folded in that order, the same bits on every replica; MEAN divides by the
 * number of replicas. A communication node: it divides a replica's graph into segments (core/compile/segments.h) and is carried out between them,
 * so it has no kernel. With one replica y = x.
 * gradient: the sum over replicas of dy, that is all_reduce of dy; MEAN likewise. */
#include "core/op/all_reduce.h"

#include <string.h>

#include "core/op/rules.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    const bool mean = attrs->reduction == STRATA_REDUCE_MEAN;
    if (!mean && attrs->reduction != STRATA_REDUCE_SUM)
        return strata_fail(err, STRATA_INVALID, "reduction %d is neither SUM (%d) nor MEAN (%d)", (int)attrs->reduction,
                           STRATA_REDUCE_SUM, STRATA_REDUCE_MEAN);
    if (node->n_inputs && !attrs->merge)
        STRATA_TRY(strata_check_dtype(node->inputs[0], "x", mean ? STRATA_FLOATS : STRATA_NUMBERS, err));
    node->dtype = attrs->dtype;
    node->shape = attrs->takes ? attrs->shape : STRATA_SHAPE(0);
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    if (attrs->merge) {
        dx[0] = strata_graph_poison(node->graph, node->op, STRATA_UNSUPPORTED, "what a merge function does has no gradient");
        return;
    }
    dx[0] = attrs->inside ? strata_exchange_inside(dy) : strata_all_reduce(dy, (strata_reduction)attrs->reduction);
}

static strata_status reference(const strata_op_call *call, strata_error *err) {
    (void)err;
    size_t bytes = (size_t)strata_shape_elements(call->node->shape) * strata_dtype_bytes(call->node->dtype);
    if (bytes && call->node->n_inputs) memcpy(call->output, call->inputs[0], bytes);
    return STRATA_OK;
}

const strata_op strata_op_all_reduce = {
    .name = "all_reduce",
    .min_inputs = 0,
    .max_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_all_reduce_attrs),
    .attrs = {{"reduction", STRATA_ATTR_INT, offsetof(strata_all_reduce_attrs, reduction)}},
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
};

strata_tensor *strata_exchange(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape shape,
                               strata_reduction reduction, bool takes) {
    strata_all_reduce_attrs attrs = {.reduction = reduction, .takes = takes, .dtype = dtype, .shape = shape};
    return strata_node(graph, &strata_op_all_reduce, x != NULL, &x, &attrs);
}

strata_tensor *strata_exchange_copy(strata_graph *graph, strata_tensor *x, int64_t n) {
    strata_all_reduce_attrs attrs = {
        .reduction = STRATA_REDUCE_SUM, .takes = true, .copy = true, .dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(n)};
    return strata_node(graph, &strata_op_all_reduce, x != NULL, &x, &attrs);
}

strata_tensor *strata_exchange_gradients(strata_graph *graph, strata_tensor *x, int64_t n, bool takes) {
    strata_all_reduce_attrs attrs = {
        .reduction = STRATA_REDUCE_SUM, .takes = takes, .gradients = true, .dtype = STRATA_DTYPE_F32, .shape = STRATA_SHAPE(n)};
    return strata_node(graph, &strata_op_all_reduce, x != NULL, &x, &attrs);
}

strata_tensor *strata_all_reduce(strata_tensor *x, strata_reduction reduction) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return strata_exchange(x->graph, x, x->dtype, x->shape, reduction, true);
}

strata_tensor *strata_exchange_every(strata_tensor *x, strata_reduction reduction, int64_t every) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_all_reduce_attrs attrs = {
        .reduction = reduction, .every = every, .takes = true, .dtype = x->dtype, .shape = x->shape};
    return strata_node(x->graph, &strata_op_all_reduce, 1, &x, &attrs);
}

strata_tensor *strata_exchange_inside(strata_tensor *x) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_all_reduce_attrs attrs = {
        .reduction = STRATA_REDUCE_SUM, .takes = true, .inside = true, .dtype = x->dtype, .shape = x->shape};
    return strata_node(x->graph, &strata_op_all_reduce, 1, &x, &attrs);
}

strata_tensor *strata_exchange_merged(strata_tensor *x, const strata_merge *merge) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_all_reduce_attrs attrs = {.merge = merge, .takes = true, .dtype = x->dtype, .shape = x->shape};
    return strata_node(x->graph, &strata_op_all_reduce, 1, &x, &attrs);
}
