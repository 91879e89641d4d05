/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD, optionally with plain or Nesterov momentum (Sutskever et al. 2013). The op sgd computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

strata_optimizer strata_sgd_optimizer(double learning_rate, double momentum, bool nesterov) {
    return (strata_optimizer){.name = "sgd", .learning_rate = learning_rate, .momentum = momentum, .nesterov = nesterov};
}

static strata_status sgd_check(strata_optimizer *settings, strata_error *err) {
    STRATA_TRY(strata_optimizer_choose_share("sgd", "momentum", 0, &settings->momentum, err));
    if (settings->nesterov && settings->momentum == 0)
        return strata_fail(err, STRATA_INVALID, "sgd: nesterov needs a momentum above 0");
    return STRATA_OK;
}

static int sgd_n_slots(const strata_optimizer *settings) {
    return settings->momentum > 0 ? 1 : 0;
}

static strata_tensor *sgd_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_sgd(u->parameters, settings->momentum > 0 ? u->slots[0] : NULL, u->gradients, u->step, u->gate,
                      settings->momentum, settings->nesterov);
}

const strata_optimizer_kind strata_optimizer_sgd = {
    .name = "sgd",
    .options = {STRATA_OPTIMIZER_NUMBER(momentum, 1), STRATA_OPTIMIZER_FLAG(nesterov), STRATA_OPTIMIZER_COMMON},
    .check = sgd_check,
    .learning_rate = 0.01,
    .n_slots = sgd_n_slots,
    .build = sgd_build,
};
