/* SPDX-License-Identifier: Apache-2.0
 *
 * auto: mirrored over the devices that are named, or over all accelerators; with one device, or no accelerator, one_device. */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_auto = {.name = "auto", .most_devices = -1};
