/* SPDX-License-Identifier: Apache-2.0
 *
 * one_device: one replica with all variables, on the device that the user names, or on the best one. */
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const strata_strategy_kind **out_kind, strata_error *err) {
    *out_kind = &strata_strategy_one_device;
    return strata_choose_best(rows, n_rows, choice, err);
}

const strata_strategy_kind strata_strategy_one_device = {.name = "one_device", .most_devices = 1, .choose = choose};
