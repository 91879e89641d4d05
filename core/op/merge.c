/* SPDX-License-Identifier: Apache-2.0
 *
 * merge: y = the result of a function of the host, which gets the x of all replicas (tf.distribute's merge_call). gradient: an
 * error, because the derivative of the function is not known. */
#include "core/op/communication.h"

const strata_op strata_op_merge = {
    .name = "merge",
    .n_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_merge_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_merge_attrs),
              {"merge", STRATA_ATTR_POINTER, offsetof(strata_merge_attrs, merge)}},
    .shape = strata_communication_shape,
    .no_gradient = "what a merge function does has no gradient",
    .reference = strata_communication_reference,
};

strata_tensor *strata_merge_values(strata_tensor *x, const strata_merge *merge) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_merge_attrs attrs = {.common = {.dtype = x->dtype, .shape = x->shape, .takes = true}, .merge = merge};
    return strata_node(x->graph, &strata_op_merge, 1, &x, &attrs);
}
