/* SPDX-License-Identifier: Apache-2.0
 *
 * all_gather: y = the members' x, concatenated along an axis in the order of the replicas. Each part is sent once. The parts'
 * lengths along the axis may differ; every member knows all of them. gradient: the sum of all members' dy, of which each
 * member receives only its own part. reduce_scatter computes this along axis 0; another axis is first exchanged with axis
 * 0. */
#include <string.h>

#include "core/op/communication.h"
#include "core/op/rules.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_parts_attrs *attrs = node->attrs;
    const strata_shape x = node->inputs[0]->shape;
    if (attrs->axis < 0 || attrs->axis >= x.rank)
        return strata_fail(err, STRATA_INVALID, "axis is %lld of a value %s", (long long)attrs->axis,
                           strata_shape_text(x).text);
    if (attrs->own < 0 || attrs->own >= attrs->n || attrs->lengths[attrs->own] != x.dims[attrs->axis])
        return strata_fail(err, STRATA_INVALID, "part %lld of %lld is %s; its length along axis %lld is said to be %lld",
                           (long long)attrs->own, (long long)attrs->n, strata_shape_text(x).text, (long long)attrs->axis,
                           attrs->own >= 0 && attrs->own < attrs->n ? (long long)attrs->lengths[attrs->own] : -1LL);
    return strata_communication_shape(node, err);
}

/* x with axis `axis` and axis 0 exchanged. */
static strata_tensor *swapped(strata_tensor *x, int axis) {
    int order[STRATA_MAX_RANK];
    if (!axis || strata_tensor_is_poison(x)) return x;
    for (int d = 0; d < x->shape.rank; d++) order[d] = d;
    order[0] = axis;
    order[axis] = 0;
    return strata_transpose(x, order);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_parts_attrs *attrs = node->attrs;
    strata_tensor *whole = swapped(dy, (int)attrs->axis);
    if (strata_tensor_is_poison(whole)) return;
    dx[0] = swapped(strata_reduce_scatter_parts(node->graph, whole, whole->dtype, whole->shape, attrs->common.channel,
                                                STRATA_REDUCE_SUM, false, attrs->lengths, (int)attrs->n, (int)attrs->own),
                    (int)attrs->axis);
}

const strata_op strata_op_all_gather = {
    .name = "all_gather",
    .n_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_parts_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_parts_attrs),
              {"axis", STRATA_ATTR_INT, offsetof(strata_parts_attrs, axis)},
              {"lengths", STRATA_ATTR_LIST, offsetof(strata_parts_attrs, lengths)},
              {"n", STRATA_ATTR_INT, offsetof(strata_parts_attrs, n)},
              {"own", STRATA_ATTR_INT, offsetof(strata_parts_attrs, own)}},
    .shape = shape,
    .gradient = gradient,
    .reference = strata_communication_reference,
};

const int64_t *strata_parts_copy(strata_graph *graph, const int64_t *lengths, int n) {
    int64_t *copy = strata_graph_alloc(graph, (size_t)n * sizeof *copy);
    if (copy) memcpy(copy, lengths, (size_t)n * sizeof *copy);
    return copy;
}

strata_tensor *strata_all_gather_parts(strata_tensor *x, strata_channel channel, int axis, const int64_t *lengths, int n,
                                       int own) {
    if (!x || strata_tensor_is_poison(x)) return x;
    strata_parts_attrs attrs = {.common = {.channel = channel, .dtype = x->dtype, .shape = x->shape, .takes = true},
                                .axis = axis,
                                .lengths = strata_parts_copy(x->graph, lengths, n),
                                .n = n,
                                .own = own};
    if (!attrs.lengths) return strata_graph_poison(x->graph, NULL, STRATA_OUT_OF_MEMORY, "all_gather: no host memory");
    if (axis >= 0 && axis < x->shape.rank) {
        attrs.common.shape.dims[axis] = 0;
        for (int i = 0; i < n; i++) attrs.common.shape.dims[axis] += lengths[i];
    }
    return strata_node(x->graph, &strata_op_all_gather, 1, &x, &attrs);
}

strata_tensor *strata_all_gather_equal(strata_tensor *x, int axis, int n, int own) {
    if (!x || strata_tensor_is_poison(x)) return x;
    int64_t *lengths = n > 0 ? strata_graph_alloc(x->graph, (size_t)n * sizeof *lengths) : NULL;
    if (!lengths) return strata_graph_poison(x->graph, NULL, STRATA_OUT_OF_MEMORY, "all_gather: no memory for %d parts", n);
    for (int i = 0; i < n; i++) lengths[i] = axis >= 0 && axis < x->shape.rank ? x->shape.dims[axis] : 0;
    return strata_all_gather_parts(x, (strata_channel){0}, axis, lengths, n, own);
}
