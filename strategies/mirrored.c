/* SPDX-License-Identifier: Apache-2.0
 *
 * mirrored: a replica and a copy of every variable on each device. The host adds the replicas' gradients in replica order, and
 * every replica makes the same update of its copy. */
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const strata_strategy_kind **out_kind, strata_error *err) {
    *out_kind = &strata_strategy_mirrored;
    STRATA_TRY(strata_choose_accelerators(rows, n_rows, choice, err));
    return choice->n ? STRATA_OK : strata_choose_best(rows, n_rows, choice, err);
}

const strata_strategy_kind strata_strategy_mirrored = {.name = "mirrored", .most_devices = -1, .choose = choose};
