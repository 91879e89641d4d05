/* SPDX-License-Identifier: Apache-2.0
 *
 * central_storage: a replica on each device. One device owns the parameters: the host, or the device of a replica. It gets the
 * sum of the gradients, makes the update, and sends the new parameters to the replicas. Devices are chosen as for mirrored. */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_central_storage = {
    .name = "central_storage", .most_devices = -1, .update = {.at = 1}};
