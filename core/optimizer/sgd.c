/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD, optionally with plain or Nesterov momentum (Sutskever et al. 2013). The op sgd computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

strata_optimizer strata_sgd_optimizer(double learning_rate, double momentum, bool nesterov) {
    return (strata_optimizer){.name = "sgd", .learning_rate = learning_rate, .momentum = momentum, .nesterov = nesterov};
}

static strata_status sgd_check(const strata_optimizer *settings, strata_error *err) {
    if (!settings->nesterov || settings->momentum > 0) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "sgd: nesterov needs a momentum above 0");
}

static strata_tensor *sgd_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_sgd(u->parameters, settings->momentum > 0 ? u->slots[0] : NULL, u->gradients, u->step, u->gate,
                      settings->momentum, settings->nesterov);
}

const strata_optimizer_kind strata_optimizer_sgd = {
    .name = "sgd",
    .options = {STRATA_OPTIMIZER_NUMBER(momentum, 1), STRATA_OPTIMIZER_FLAG(nesterov), STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_SHARE(momentum, 0)},
    .check = sgd_check,
    .learning_rate = 0.01,
    .more_slots = strata_optimizer_momentum_slots,
    .build = sgd_build,
};
