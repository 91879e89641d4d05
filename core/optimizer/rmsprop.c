/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSprop (Hinton 2012) in the form of Keras: epsilon is under the root, and the momentum is that of the scaled gradient.
 * The op rmsprop computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static strata_status rmsprop_check(strata_optimizer *settings, strata_error *err) {
    if (settings->rho == 0) settings->rho = 0.9;
    if (settings->epsilon == 0) settings->epsilon = 1e-7;
    STRATA_TRY(strata_optimizer_check_share("rmsprop", "rho", settings->rho, err));
    if (!(settings->momentum >= 0 && settings->momentum < 1))
        return strata_fail(err, STRATA_INVALID, "rmsprop: momentum is %g; it must be at least 0 and below 1",
                           settings->momentum);
    return strata_optimizer_check_above("rmsprop", "epsilon", settings->epsilon, err);
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
