/* SPDX-License-Identifier: Apache-2.0
 *
 * mse: mean of (output - label)^2. */
#include "core/loss/loss.h"

static strata_tensor *mse_build(const strata_loss_options *opts, strata_tensor *outputs, strata_tensor *labels) {
    (void)opts;
    return strata_loss_mean(strata_square(strata_sub(outputs, strata_loss_match(outputs, labels))));
}

const strata_loss strata_loss_mse = {.name = "mse", .build = mse_build};
