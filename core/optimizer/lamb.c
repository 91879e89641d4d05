/* SPDX-License-Identifier: Apache-2.0
 *
 * LAMB (You et al. 2020): the direction is that of Adam, including the decay. For each parameter w, it is multiplied by
 * |w| / |direction|, or by 1 if a norm is 0. The op lamb computes the direction; plain SGD makes the step. */
#include <math.h>
#include <stddef.h>

#include "core/optimizer/optimizer.h"

static void lamb_fill_step(const strata_optimizer *settings, int64_t t, double *words) {
    words[STRATA_STEP_CORRECTION_1] = 1 / (1 - pow(settings->beta1, (double)t));
    words[STRATA_STEP_CORRECTION_2] = 1 / (1 - pow(settings->beta2, (double)t));
}

static strata_tensor *lamb_build(const strata_optimizer *settings, const strata_update *u) {
    strata_tensor *direction = strata_lamb(u->slots[2], u->slots[0], u->slots[1], u->parameters, u->gradients, u->step, u->gate,
                                           settings->beta1, settings->beta2, settings->epsilon, settings->weight_decay);
    strata_tensor *w = strata_sqrt(strata_segment_squares(u->segments, u->parameters));
    strata_tensor *far = strata_ratio_or_one(w, strata_sqrt(strata_segment_squares(u->segments, direction)));
    return strata_sgd(u->parameters, NULL, strata_segment_scale(u->segments, direction, far), u->step, u->gate, 0, false);
}

const strata_optimizer_kind strata_optimizer_lamb = {
    .name = "lamb",
    .options = {STRATA_OPTIMIZER_NUMBER(beta1, 1), STRATA_OPTIMIZER_NUMBER(beta2, 1), STRATA_OPTIMIZER_NUMBER(epsilon, 1),
                STRATA_OPTIMIZER_NUMBER(weight_decay, 1e6), STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_POSITIVE(weight_decay, 0), STRATA_OPTIMIZER_MOMENTS},
    .learning_rate = 0.001,
    .whole_parameters = true,
    .n_slots = 3,
    .fill_step = lamb_fill_step,
    .build = lamb_build,
};
