/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad (Duchi et al. 2011) in the form of Keras, with epsilon under the root. The op adagrad computes the update. */
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static strata_status adagrad_check(strata_optimizer *settings, strata_error *err) {
    STRATA_TRY(strata_optimizer_choose("adagrad", "accumulator", 0.1, &settings->accumulator, err));
    return strata_optimizer_choose("adagrad", "epsilon", STRATA_OPTIMIZER_EPSILON, &settings->epsilon, err);
}

static int adagrad_n_slots(const strata_optimizer *settings) {
    (void)settings;
    return 1;
}

static double adagrad_slot_begins(const strata_optimizer *settings) {
    return settings->accumulator;
}

static strata_tensor *adagrad_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_adagrad(u->parameters, u->slots[0], u->gradients, u->step, u->gate, settings->epsilon);
}

const strata_optimizer_kind strata_optimizer_adagrad = {
    .name = "adagrad",
    .options = {STRATA_OPTIMIZER_NUMBER(accumulator, 1e30), STRATA_OPTIMIZER_NUMBER(epsilon, 1), STRATA_OPTIMIZER_COMMON},
    .check = adagrad_check,
    .learning_rate = 0.001,
    .n_slots = adagrad_n_slots,
    .slot_begins = adagrad_slot_begins,
    .build = adagrad_build,
};
