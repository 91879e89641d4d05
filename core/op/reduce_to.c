/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_to: the members of a channel contribute x, and the receiving members get the sum or mean, added in replica order. The
 * nodes of the others are empty. central_storage uses it to sum gradients on the device that makes updates. gradient: none if
 * the node is empty, as nothing can depend on it. If it is not empty, dy would have to be sent to devices whose graphs do not
 * receive it, so differentiating through the node is an error. */
#include "core/op/communication.h"
#include "core/op/rules.h"

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    if (node->n_inputs)
        STRATA_TRY(strata_check_dtype(node->inputs[0], "x",
                                      attrs->reduction == STRATA_REDUCE_MEAN ? STRATA_FLOATS : STRATA_NUMBERS, err));
    return strata_communication_shape(node, err);
}

const strata_op strata_op_reduce_to = {
    .name = "reduce_to",
    .optional_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_all_reduce_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_all_reduce_attrs),
              {"reduction", STRATA_ATTR_INT, offsetof(strata_all_reduce_attrs, reduction)}},
    .words = strata_reduction_words,
    .shape = shape,
    .no_gradient = "only some devices get its result; use all_reduce where gradients must pass",
    .reference = strata_communication_reference,
};

strata_tensor *strata_reduce_to(strata_graph *graph, strata_tensor *x, strata_all_reduce_attrs attrs) {
    return strata_node(graph, &strata_op_reduce_to, x != NULL, &x, &attrs);
}
