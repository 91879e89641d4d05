/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_scatter: each member of a channel contributes an x of the same shape, and member k receives part k, along axis 0, of
 * their sum or mean (added in replica order, so its bits are those of all_reduce). Each part is sent only to its owner.
 * gradient: dy of all members, concatenated (all_gather); MEAN divides by the number of parts. */
#include "core/op/communication.h"
#include "core/op/rules.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_parts_attrs *attrs = node->attrs;
    int64_t all = 0;
    for (int64_t i = 0; i < attrs->n; i++) all += attrs->lengths[i];
    if (node->n_inputs) {
        const strata_tensor *x = node->inputs[0];
        STRATA_TRY(strata_check_dtype(x, "x", attrs->reduction == STRATA_REDUCE_MEAN ? STRATA_FLOATS : STRATA_NUMBERS, err));
        if (x->shape.rank < 1 || x->shape.dims[0] != all)
            return strata_fail(err, STRATA_INVALID, "x is %s; the %lld parts have %lld rows together",
                               strata_shape_text(x->shape).text, (long long)attrs->n, (long long)all);
    }
    return strata_communication_shape(node, err);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_parts_attrs *attrs = node->attrs;
    dx[0] = strata_all_gather_parts(dy, attrs->common.channel, 0, attrs->lengths, (int)attrs->n, (int)attrs->own);
    if (attrs->reduction == STRATA_REDUCE_MEAN)
        dx[0] = strata_div(dx[0], strata_scalar(node->graph, node->dtype, (double)attrs->n));
}

static void reference(strata_op_call *call) {
    const int64_t n = ((const strata_parts_attrs *)call->node->attrs)->n;
    if (n == 1)
        strata_communication_reference(call);
    else
        call->status =
            strata_fail(call->err, STRATA_INVALID, "reduce_scatter of %lld parts needs as many replicas", (long long)n);
}

const strata_op strata_op_reduce_scatter = {
    .name = "reduce_scatter",
    .optional_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_parts_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_parts_attrs),
              {"reduction", STRATA_ATTR_INT, offsetof(strata_parts_attrs, reduction)},
              {"lengths", STRATA_ATTR_LIST, offsetof(strata_parts_attrs, lengths)},
              {"n", STRATA_ATTR_INT, offsetof(strata_parts_attrs, n)},
              {"own", STRATA_ATTR_INT, offsetof(strata_parts_attrs, own)}},
    .words = strata_reduction_words,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
};

strata_tensor *strata_reduce_scatter_parts(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape whole,
                                           strata_channel channel, strata_reduction reduction, bool gradients,
                                           const int64_t *lengths, int n, int own) {
    strata_parts_attrs attrs = {.common = {.channel = channel, .dtype = dtype, .shape = whole, .takes = true},
                                .reduction = reduction,
                                .gradients = gradients,
                                .lengths = strata_parts_copy(graph, lengths, n),
                                .n = n,
                                .own = own};
    if (!attrs.lengths) return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "reduce_scatter: no host memory");
    if (own < 0 || own >= n || whole.rank < 1)
        return strata_graph_poison(graph, &strata_op_reduce_scatter, STRATA_INVALID, "part %d of %d of a value %s", own, n,
                                   strata_shape_text(whole).text);
    attrs.common.shape.dims[0] = lengths[own];
    return strata_node(graph, &strata_op_reduce_scatter, x != NULL, &x, &attrs);
}
