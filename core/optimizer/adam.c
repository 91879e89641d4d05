/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019). The bias corrections are one factor of the step's
 * learning rate, which is computed here in double. The op adam computes the update. */
#include <math.h>
#include <stddef.h>

#include "core/optimizer/optimizer.h"

strata_optimizer strata_adam_optimizer(double learning_rate) {
    return (strata_optimizer){.name = "adam", .learning_rate = learning_rate};
}

/* lr sqrt(1 - beta2^t) / (1 - beta1^t) */
static void adam_fill_step(const strata_optimizer *settings, int64_t t, double *words) {
    words[STRATA_STEP_LEARNING_RATE] *= sqrt(1 - pow(settings->beta2, (double)t)) / (1 - pow(settings->beta1, (double)t));
}

static strata_tensor *adam_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_adam(u->parameters, u->slots[0], u->slots[1], u->gradients, u->step, u->gate, settings->beta1,
                       settings->beta2, settings->epsilon);
}

static strata_tensor *adamw_build(const strata_optimizer *settings, const strata_update *u) {
    return strata_adamw(u->parameters, u->slots[0], u->slots[1], u->gradients, u->step, u->gate, settings->beta1,
                        settings->beta2, settings->epsilon, settings->weight_decay);
}

#define MOMENTS STRATA_OPTIMIZER_NUMBER(beta1, 1), STRATA_OPTIMIZER_NUMBER(beta2, 1), STRATA_OPTIMIZER_NUMBER(epsilon, 1)

const strata_optimizer_kind strata_optimizer_adam = {
    .name = "adam",
    .options = {MOMENTS, STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_MOMENTS},
    .learning_rate = 0.001,
    .n_slots = 2,
    .fill_step = adam_fill_step,
    .build = adam_build,
};

const strata_optimizer_kind strata_optimizer_adamw = {
    .name = "adamw",
    .options = {MOMENTS, STRATA_OPTIMIZER_NUMBER(weight_decay, 1e6), STRATA_OPTIMIZER_COMMON},
    .numbers = {STRATA_OPTIMIZER_POSITIVE(weight_decay, 0.004), STRATA_OPTIMIZER_MOMENTS},
    .learning_rate = 0.001,
    .n_slots = 2,
    .fill_step = adam_fill_step,
    .build = adamw_build,
};
