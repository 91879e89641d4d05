/* SPDX-License-Identifier: Apache-2.0
 *
 * mae: mean of |output - label|. */
#include "core/loss/loss.h"

static strata_tensor *mae_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    (void)opts;
    return strata_loss_mean(strata_abs(strata_sub(outputs, strata_loss_match(outputs, labels))));
}

const strata_loss strata_loss_mae = {.name = "mae", .build = mae_build};
