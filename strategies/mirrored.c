/* SPDX-License-Identifier: Apache-2.0
 *
 * mirrored: a replica and a copy of every variable on each device. The host adds the replicas' gradients in replica order, and
 * every replica makes the same update of its copy. */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_mirrored = {.name = "mirrored", .most_devices = -1};
