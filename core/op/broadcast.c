/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast: y = x of the one member of the channel that sends it. The sender's own node is empty unless it also receives the
 * value. gradient: if every member receives, the sender's dx is the sum of all members' dy. Nodes without an input pass no
 * gradient. */
#include "core/op/communication.h"

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_communication_attrs *common = node->attrs;
    dx[0] = strata_all_reduce_among(node->graph, dy, (strata_all_reduce_attrs){.common = *common});
}

const strata_op strata_op_broadcast = {
    .name = "broadcast",
    .optional_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_communication_attrs),
    .attrs = {{"channel", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.id)},
              {"channel_members", STRATA_ATTR_LIST, offsetof(strata_communication_attrs, channel.members)},
              {"n_channel_members", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.n_members)},
              {"shape", STRATA_ATTR_SHAPE, offsetof(strata_communication_attrs, shape)}},
    .shape = strata_communication_shape,
    .gradient = gradient,
    .reference = strata_communication_reference,
};

strata_tensor *strata_broadcast(strata_graph *graph, strata_tensor *x, strata_communication_attrs attrs) {
    return strata_node(graph, &strata_op_broadcast, x != NULL, &x, &attrs);
}
