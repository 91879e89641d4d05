/* SPDX-License-Identifier: Apache-2.0
 *
 * one_device: one replica with all variables, on the device that the user names, or on the best one. */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_one_device = {.name = "one_device", .most_devices = 1, .choose = strata_choose_best};
