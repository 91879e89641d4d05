/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSprop (Hinton 2012) in the form of Keras: epsilon is under the root, and the momentum is that of the scaled gradient.
 * The op rmsprop computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static strata_status rmsprop_check(strata_optimizer *settings, strata_error *err) {
    STRATA_TRY(strata_optimizer_choose_share("rmsprop", "rho", 0.9, &settings->rho, err));
    STRATA_TRY(strata_optimizer_choose_share("rmsprop", "momentum", 0, &settings->momentum, err));
    return strata_optimizer_choose("rmsprop", "epsilon", STRATA_OPTIMIZER_EPSILON, &settings->epsilon, err);
}

static int rmsprop_n_slots(const strata_optimizer *settings) {
    return 1 + settings->centered + (settings->momentum > 0);
}

static strata_tensor *rmsprop_build(const strata_optimizer *settings, const strata_update *u) {
    strata_tensor *mean = settings->centered ? u->slots[1] : NULL;
    strata_tensor *velocity = settings->momentum > 0 ? u->slots[settings->centered ? 2 : 1] : NULL;
    return strata_rmsprop(u->parameters, u->slots[0], mean, velocity, u->gradients, u->step, u->gate, settings->rho,
                          settings->momentum, settings->epsilon);
}

const strata_optimizer_kind strata_optimizer_rmsprop = {
    .name = "rmsprop",
    .options = {STRATA_OPTIMIZER_NUMBER(rho, 1), STRATA_OPTIMIZER_NUMBER(momentum, 1), STRATA_OPTIMIZER_FLAG(centered),
                STRATA_OPTIMIZER_NUMBER(epsilon, 1), STRATA_OPTIMIZER_COMMON},
    .check = rmsprop_check,
    .learning_rate = 0.001,
    .n_slots = rmsprop_n_slots,
    .build = rmsprop_build,
};
