/* SPDX-License-Identifier: Apache-2.0
 *
 * default: one replica on the best device. It is used by programs that name neither a strategy nor a device. */
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const strata_strategy_kind **out_kind, strata_error *err) {
    *out_kind = &strata_strategy_default;
    return strata_choose_best(rows, n_rows, choice, err);
}

const strata_strategy_kind strata_strategy_default = {.name = "default", .most_devices = 0, .choose = choose};
