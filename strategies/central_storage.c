/* SPDX-License-Identifier: Apache-2.0
 *
 * central_storage: a replica on each device. One device owns the parameters: the host, or the device of a replica. It gets the
 * sum of the gradients, makes the update, and sends the new parameters to the replicas. Devices are chosen as for mirrored. */
#include "strategies/kinds.h"

static strata_tensor *sum(const strata_strategy *strategy, int device, strata_graph *graph, strata_tensor *x,
                          strata_all_reduce_attrs attrs) {
    attrs.common.takes = strata_strategy_updates(strategy, device);
    return strata_reduce_to(graph, x, attrs);
}

static strata_tensor *share(const strata_strategy *strategy, int device, strata_graph *graph, strata_tensor *variable,
                            strata_tensor *updated) {
    const strata_communication_attrs attrs = {.channel.local = true,
                                              .dtype = STRATA_DTYPE_F32,
                                              .shape = strata_tensor_shape(variable),
                                              .takes = !strata_strategy_updates(strategy, device)};
    strata_tensor *sent = strata_broadcast(graph, updated, attrs);
    return attrs.takes ? strata_assign(variable, sent) : sent;
}

const strata_step_exchanges strata_exchanges_through_one = {.sum = sum, .share = share};

const strata_strategy_kind strata_strategy_central_storage = {
    .name = "central_storage", .most_devices = -1, .update = {.at = 1}};
