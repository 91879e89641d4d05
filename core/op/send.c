/* SPDX-License-Identifier: Apache-2.0
 *
 * send: sends x to one other device, of this group or of another worker, whose graph has a recv in the same channel. The node
 * is empty, of shape (0). gradient: none, since nothing can depend on an empty node; a graph that needs it sends dy in the
 * opposite direction. */
#include "core/op/communication.h"

const strata_op strata_op_send = {
    .name = "send",
    .n_inputs = 1,
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_point_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_point_attrs),
              {"worker", STRATA_ATTR_INT, offsetof(strata_point_attrs, worker)}},
    .shape = strata_communication_shape,
    .no_gradient = "what a device sends comes back only where its graph receives it",
    .reference = strata_communication_reference,
};

strata_tensor *strata_point(strata_graph *graph, const strata_op *op, strata_tensor *x, strata_point_attrs attrs, int device,
                            int other) {
    const bool within = attrs.worker < 0;
    if (device < 0 || (within && (other < 0 || other == device)))
        return strata_graph_poison(graph, op, STRATA_INVALID, "device %d and device %d", device, other);
    if (attrs.common.channel.id < 0 || attrs.common.channel.id > UINT32_MAX)
        return strata_graph_poison(graph, op, STRATA_INVALID, "channel %lld; it must be 0 to 4294967295",
                                   (long long)attrs.common.channel.id);
    const int64_t members[2] = {within && other < device ? other : device, within && other < device ? device : other};
    attrs.common.channel = strata_channel_make(graph, attrs.common.channel.id, members, within ? 2 : 1);
    attrs.common.channel.local = true; /* the other worker is named by the attributes */
    return strata_node(graph, op, x != NULL, x ? &x : NULL, &attrs);
}

static strata_tensor *send(strata_tensor *x, int64_t channel, int from, int to, int worker) {
    if (!x || strata_tensor_is_poison(x)) return x;
    const strata_point_attrs attrs = {.common = {.channel.id = channel, .dtype = x->dtype, .shape = x->shape},
                                      .worker = worker};
    return strata_point(x->graph, &strata_op_send, x, attrs, from, to);
}

strata_tensor *strata_send(strata_tensor *x, int64_t channel, int from, int to) {
    return send(x, channel, from, to, -1);
}

strata_tensor *strata_send_to_worker(strata_tensor *x, int64_t channel, int from, int worker) {
    return send(x, channel, from, -1, worker);
}
