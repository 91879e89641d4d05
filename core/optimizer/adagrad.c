/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad (Duchi et al. 2011) in the form of Keras, with epsilon under the root. The op adagrad computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static double adagrad_slot_begins(const strata_optimizer *settings) {
    return settings->accumulator;
}

static strata_tensor *adagrad_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_adagrad(u->parameters, u->slots[0], u->gradients, u->step, u->gate, settings->epsilon);
}

const strata_optimizer_kind strata_optimizer_adagrad = {
    .name = "adagrad",
    .options = {STRATA_OPTIMIZER_NUMBER(accumulator, 1e30), STRATA_OPTIMIZER_NUMBER(epsilon, 1), STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_POSITIVE(accumulator, 0.1), STRATA_OPTIMIZER_EPSILON},
    .learning_rate = 0.001,
    .n_slots = 1,
    .slot_begins = adagrad_slot_begins,
    .build = adagrad_build,
};
