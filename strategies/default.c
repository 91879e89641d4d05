/* SPDX-License-Identifier: Apache-2.0
 *
 * default: one replica on the best device. It is used by programs that name neither a strategy nor a device. */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_default = {.name = "default", .most_devices = 0, .choose = strata_choose_best};
