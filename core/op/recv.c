/* SPDX-License-Identifier: Apache-2.0
 *
 * recv: y = x of the other device of the channel, of this group or of another worker, whose graph has a send. gradient: none,
 * as there is no input; a graph that needs the gradient of x sends dy in the opposite direction. */
#include "core/op/communication.h"

const strata_op strata_op_recv = {
    .name = "recv",
    .flags = STRATA_OP_COMMUNICATION,
    .attrs_bytes = sizeof(strata_point_attrs),
    .attrs = {STRATA_COMMUNICATION_ATTRS(strata_point_attrs),
              {"worker", STRATA_ATTR_INT, offsetof(strata_point_attrs, worker)}},
    .shape = strata_communication_shape,
    .reference = strata_communication_reference,
};

static strata_tensor *recv(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t channel, int from, int to,
                           int worker) {
    const strata_point_attrs attrs = {.common = {.channel.id = channel, .dtype = dtype, .shape = shape, .takes = true},
                                      .worker = worker};
    return strata_point(graph, &strata_op_recv, NULL, attrs, to, from);
}

strata_tensor *strata_recv(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t channel, int from, int to) {
    return recv(graph, dtype, shape, channel, from, to, -1);
}

strata_tensor *strata_recv_from_worker(strata_graph *graph, strata_dtype dtype, strata_shape shape, int64_t channel, int to,
                                       int worker) {
    return recv(graph, dtype, shape, channel, -1, to, worker);
}
