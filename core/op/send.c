/* SPDX-License-Identifier: Apache-2.0
 *
 * send: gives x to one other device of the group, whose graph has a recv in the same channel. The node is empty, of shape (0).
 * gradient: none, since nothing can depend on an empty node; a graph that wants one sends dy back the other way. */
#include "core/op/communication.h"

const strata_op strata_op_send = {
    .name = "send",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_communication_attrs),
    .attrs = {{"channel", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.id)},
              {"members", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.members)},
              {"shape", STRATA_ATTR_SHAPE, offsetof(strata_communication_attrs, shape)}},
    .shape = strata_communication_shape,
    .no_gradient = "what a device sends comes back only where its graph receives it",
    .reference = strata_communication_reference,
};

strata_tensor *strata_send(strata_tensor *x, int64_t channel, int from, int to) {
    if (!x || strata_tensor_is_poison(x)) return x;
    if (from == to || from < 0 || to < 0 || from > 61 || to > 61)
        return strata_graph_poison(x->graph, &strata_op_send, STRATA_INVALID, "from device %d to device %d", from, to);
    const strata_communication_attrs attrs = {
        .channel = {.id = channel, .members = (int64_t)1 << from | (int64_t)1 << to, .local = true},
        .dtype = x->dtype,
        .shape = x->shape};
    return strata_node(x->graph, &strata_op_send, 1, &x, &attrs);
}
