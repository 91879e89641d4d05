/* SPDX-License-Identifier: Apache-2.0
 *
 * central_storage: a replica on each device; the parameters' owner is one device, the host or one of the replicas'. Gradients
 * are added up for it, it makes the one update, and sends the new parameters to the replicas. Devices are chosen as mirrored
 * chooses them. */
#include "strategies/kinds.h"

static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const strata_strategy_kind **out_kind, strata_error *err) {
    STRATA_TRY(strata_strategy_mirrored.choose(rows, n_rows, choice, out_kind, err));
    *out_kind = &strata_strategy_central_storage;
    return STRATA_OK;
}

const strata_strategy_kind strata_strategy_central_storage = {
    .name = "central_storage", .most_devices = -1, .central = true, .choose = choose};
