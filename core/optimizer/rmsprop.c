/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSprop (Hinton 2012) in the form of Keras: epsilon is under the root, and the momentum is that of the scaled gradient.
 * The op rmsprop computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static int rmsprop_more_slots(const strata_optimizer *settings) {
    return settings->centered + strata_optimizer_momentum_slots(settings);
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
    .numbers = {STRATA_OPTIMIZER_SHARE(rho, 0.9), STRATA_OPTIMIZER_SHARE(momentum, 0), STRATA_OPTIMIZER_EPSILON},
    .learning_rate = 0.001,
    .n_slots = 1,
    .more_slots = rmsprop_more_slots,
    .build = rmsprop_build,
};
