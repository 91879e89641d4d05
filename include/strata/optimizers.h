/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning rates. An optimizer is one fused update over the flat range of all parameters. Formulas:
 * core/optimizer/<name>.c. */
#ifndef STRATA_OPTIMIZERS_H
#define STRATA_OPTIMIZERS_H

#include "strata/numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the learning rate goes with the number t = 0, 1, ... of updates made before; the optimizer's learning_rate is its
 * beginning. The formulas are those of Keras' schedules, warm-up apart. In a model's JSON: "learning_rate": {"schedule":
 * "cosine", "initial": 0.1, "steps": 1000, ...}.
 *   constant      the rate
 *   step          the rate until t passes boundaries[0], then values[0], after boundaries[1] values[1] ... (t = boundary still
 *                 has the rate before)
 *   exponential   rate * factor^(t / steps); staircase: the exponent's whole part
 *   cosine        alpha + (rate - alpha) (1 + cos(pi min(t / steps, 1))) / 2,  alpha = rate * end
 *   polynomial    end + (rate - end) (1 - min(t, steps) / steps)^power; cycle: steps grows to the next multiple above t
 * With warmup_steps w > 0, the rate of t < w is warmup_from + (rate - warmup_from) t / w, and the schedule begins at t = w with
 * t - w. */
typedef struct strata_schedule {
    /* NULL: "constant". */
    const char *name;
    /* Exponential, cosine, polynomial: at least 1. */
    int64_t steps;
    /* Exponential: above 0. */
    double factor;
    /* Cosine: share of the rate, polynomial: rate, at the end; 0. */
    double end;
    /* Polynomial; 0: 1. */
    double power;
    /* For the schedule exponential. */
    bool staircase;
    /* For the schedule polynomial. */
    bool cycle;
    /* Step: as many values as boundaries, which ascend. */
    strata_numbers boundaries, values;
    /* 0: none. */
    int64_t warmup_steps;
    /* Rate at t = 0; 0. */
    double warmup_from;
    /* All rates are multiplied by it (linear scaling, Goyal et al. 2017); 0: 1. */
    int64_t replicas;
} strata_schedule;

/* An optimizer's settings: a plain value, copied where it is used. Zero is the default that each field tells. */
typedef struct strata_optimizer {
    /* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb": static memory. */
    const char *name;
    /* 0: 0.01 for sgd and lars, else 0.001. */
    double learning_rate;
    /* Sgd, rmsprop; 0..1. lars: 0: 0.9. */
    double momentum;
    /* For sgd. */
    bool nesterov;
    /* Adam, adamw, lamb; 0: 0.9 and 0.999. */
    double beta1, beta2;
    /* 0: 1e-7; lamb: 1e-6. */
    double epsilon;
    /* Rmsprop; 0: 0.9. */
    double rho;
    /* For rmsprop. */
    bool centered;
    /* Adagrad: where its sums of squares begin; 0: 0.1. */
    double accumulator;
    /* Adamw: 0: 0.004; lars: 0: 1e-4; lamb: 0. */
    double weight_decay;
    /* Lars: 0: 0.001. */
    double trust;
    strata_schedule schedule;

    /* Gradients, before the optimizer sees them; 0: not clipped. At most one of the three. */
    /* Each element to -clip_value .. clip_value. */
    double clip_value;
    /* Each parameter's gradient to this norm. */
    double clip_norm;
    /* All gradients together to this norm. */
    double clip_global_norm;

    /* One update for the gradients of so many batches, as if they were one batch: examples weigh the same, also where an
     * epoch's last batch is shorter or its last update has fewer of them. 0: 1. */
    int64_t gradient_accumulation_steps;
} strata_optimizer;

STRATA_API strata_optimizer strata_sgd_optimizer(double learning_rate, double momentum, bool nesterov);
STRATA_API strata_optimizer strata_adam_optimizer(double learning_rate); /* with the defaults above */
/* What a learning_rate of 0 means for it; 0 for a name that is no optimizer's. */
STRATA_API double strata_optimizer_default_rate(const char *name);

#ifdef __cplusplus
}
#endif
#endif
