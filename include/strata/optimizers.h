/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning rates. All parameters of a model are one contiguous range of f32, and the optimizer updates that
 * range with one kernel. The formulas are in core/optimizer/<name>.c. */
#ifndef STRATA_OPTIMIZERS_H
#define STRATA_OPTIMIZERS_H

#include "strata/numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The learning rate as a function of t = 0, 1, ..., the number of updates made before. `rate` below is the optimizer's
 * learning_rate. The formulas are those of Keras' schedules, except for the warm-up. In a model's JSON: "learning_rate":
 * {"schedule": "cosine", "initial": 0.1, "steps": 1000, ...}.
 *   constant      rate
 *   step          rate while t <= boundaries[0], then values[0] while t <= boundaries[1], and so on
 *   exponential   rate * factor^(t / steps); with staircase the exponent is rounded down
 *   cosine        alpha + (rate - alpha) (1 + cos(pi min(t / steps, 1))) / 2,  alpha = rate * end
 *   polynomial    end + (rate - end) (1 - min(t, steps) / steps)^power; with cycle, steps is replaced by its smallest positive
 *                 multiple that is at least t
 * With warmup_steps w > 0, the rate of t < w is warmup_from + (rate - warmup_from) t / w, and the schedule begins at t = w with
 * t - w. */
typedef struct strata_schedule {
    /* NULL: "constant". */
    const char *name;
    /* For exponential, cosine and polynomial; at least 1. */
    int64_t steps;
    /* For exponential; above 0. */
    double factor;
    /* For cosine: the last rate divided by the first. For polynomial: the last rate. Default 0. */
    double end;
    /* For polynomial. 0: 1. */
    double power;
    /* For exponential. */
    bool staircase;
    /* For polynomial. */
    bool cycle;
    /* For step: as many values as boundaries. Boundaries ascend. */
    strata_numbers boundaries, values;
    /* How many updates the warm-up has; 0: no warm-up. */
    int64_t warmup_steps;
    /* The rate at t = 0. Default 0. */
    double warmup_from;
    /* All rates are multiplied by this number of replicas (linear scaling, Goyal et al. 2017). 0: 1. */
    int64_t replicas;
} strata_schedule;

/* The settings of an optimizer: a plain value, which calls copy. A field that is 0 has the default that its comment names,
 * which is Keras' default. STRATA_ZERO (strata/numbers.h) is the number 0. */
typedef struct strata_optimizer {
    /* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lars" or "lamb"; static memory. */
    const char *name;
    /* Default 0.01 for sgd and lars, 0.001 for the others. */
    double learning_rate;
    /* For sgd, rmsprop and lars, at least 0 and below 1. Default 0; for lars 0.9. As in PyTorch, the velocity of sgd and lars
     * does not contain the learning rate, so a new rate applies to all of it. In Keras it contains the earlier rates. */
    double momentum;
    /* For sgd. */
    bool nesterov;
    /* For adam, adamw and lamb, at least 0 and below 1. Defaults 0.9 and 0.999. */
    double beta1, beta2;
    /* At least 0. Default 1e-7. */
    double epsilon;
    /* For rmsprop, at least 0 and below 1. Default 0.9. */
    double rho;
    /* For rmsprop. */
    bool centered;
    /* For adagrad: the initial value of its sums of squares, at least 0. Default 0.1. */
    double accumulator;
    /* For adamw, lars and lamb. Default 0.004 for adamw, 1e-4 for lars, 0 for lamb. */
    double weight_decay;
    /* For lars: its trust coefficient. Default 0.001. */
    double trust;
    strata_schedule schedule;

    /* How gradients are clipped before the update; 0: not. At most one of the three may be set. */
    /* Each element is clipped to -clip_value .. clip_value. */
    double clip_value;
    /* The gradient of each parameter is scaled down to this norm, if its norm is larger. */
    double clip_norm;
    /* All gradients are scaled down by one factor, if the norm of all of them together is larger than this. */
    double clip_global_norm;

    /* One update is made with the gradients of so many batches, as if they were one batch: every example of the update has the
     * same weight, also where the epoch's last batch is shorter or its last update has fewer batches. 0: 1. */
    int64_t gradient_accumulation_steps;
} strata_optimizer;

STRATA_API strata_optimizer strata_sgd_optimizer(double learning_rate, double momentum, bool nesterov);
STRATA_API strata_optimizer strata_adam_optimizer(double learning_rate); /* with the defaults above */
/* The default learning rate of the optimizer of this name; 0 for an unknown name. */
STRATA_API double strata_optimizer_default_rate(const char *name);

#ifdef __cplusplus
}
#endif
#endif
