/* SPDX-License-Identifier: Apache-2.0
 *
 * auto: mirrored over the devices that are named, or over all accelerators; with one device, or no accelerator, one_device. */
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const strata_strategy_kind **out_kind, strata_error *err) {
    STRATA_TRY(strata_strategy_mirrored.choose(rows, n_rows, choice, out_kind, err));
    if (choice->n == 1) *out_kind = &strata_strategy_one_device;
    return STRATA_OK;
}

const strata_strategy_kind strata_strategy_auto = {.name = "auto", .most_devices = -1, .choose = choose};
