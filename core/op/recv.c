/* SPDX-License-Identifier: Apache-2.0
 *
 * recv: y = x of the other device of the channel, whose graph has a send.
 * gradient: it has no input to pass one to; a graph that wants x's gradient sends dy back the other way. */
#include "core/op/communication.h"

const strata_op strata_op_recv = {
    .name = "recv",
    .min_inputs = 0,
    .max_inputs = 0,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_communication_attrs),
    .attrs = {{"channel", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.id)},
              {"members", STRATA_ATTR_INT, offsetof(strata_communication_attrs, channel.members)},
              {"shape", STRATA_ATTR_SHAPE, offsetof(strata_communication_attrs, shape)}},
    .shape = strata_communication_shape,
    .reference = strata_communication_reference,
};

strata_tensor *strata_recv(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t channel, int from, int to) {
    if (from == to || from < 0 || to < 0 || from > 61 || to > 61)
        return strata_graph_poison(graph, &strata_op_recv, STRATA_INVALID, "from device %d to device %d", from, to);
    const strata_communication_attrs attrs = {
        .channel = {.id = channel, .members = (int64_t)1 << from | (int64_t)1 << to, .local = true},
        .dtype = dtype,
        .shape = shape,
        .takes = true};
    return strata_node(graph, &strata_op_recv, 0, NULL, &attrs);
}
