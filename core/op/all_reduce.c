/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce: y = x of replica 0 + x of replica 1 + ..., folded in that order, the same bits on every replica; MEAN divides by
 * the number of replicas that gave a value. It is a communication node: it divides a replica's graph into segments
 * (core/compile/segments.h) and is executed between them, so it has no kernel. With one replica y = x.
 * gradient: the same all_reduce of dy. */
#include "core/op/communication.h"
#include "core/op/rules.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    const bool mean = attrs->reduction == STRATA_REDUCE_MEAN;
    if (!mean && attrs->reduction != STRATA_REDUCE_SUM)
        return strata_fail(err, STRATA_INVALID, "reduction %d is neither SUM (%d) nor MEAN (%d)", (int)attrs->reduction,
                           STRATA_REDUCE_SUM, STRATA_REDUCE_MEAN);
    if (node->n_inputs) STRATA_TRY(strata_check_dtype(node->inputs[0], "x", mean ? STRATA_FLOATS : STRATA_NUMBERS, err));
    return strata_communication_shape(node, err);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_all_reduce_among(node->graph, dy, *(const strata_all_reduce_attrs *)node->attrs);
}

const strata_op strata_op_all_reduce = {
    .name = "all_reduce",
    .optional_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_all_reduce_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_all_reduce_attrs),
              {"reduction", STRATA_ATTR_INT, offsetof(strata_all_reduce_attrs, reduction)}},
    .words = strata_reduction_words,
    .shape = shape,
    .gradient = gradient,
    .reference = strata_communication_reference,
};

strata_tensor *strata_all_reduce_among(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs) {
    attrs.common.takes = true;
    return strata_node(graph, &strata_op_all_reduce, x != NULL, &x, &attrs);
}

strata_tensor *strata_all_reduce(strata_tensor *x, strata_reduction reduction) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_communication_attrs common = {.dtype = x->dtype, .shape = x->shape};
    return strata_all_reduce_among(x->graph, x, (strata_all_reduce_attrs){.common = common, .reduction = reduction});
}
