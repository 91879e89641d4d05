/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning rates. An optimizer is one fused update over the flat range of all parameters. Formulas:
 * core/optimizer/<name>.c. */
#ifndef STRATA_OPTIMIZERS_H
#define STRATA_OPTIMIZERS_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MAX_NUMBERS = 16 };
typedef struct strata_numbers {
    int n;
    double values[STRATA_MAX_NUMBERS];
} strata_numbers;

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
    const char *name;                  /* NULL: "constant" */
    int64_t steps;                     /* exponential, cosine, polynomial: at least 1 */
    double factor;                     /* exponential: above 0 */
    double end;                        /* cosine: share of the rate, polynomial: rate, at the end; 0 */
    double power;                      /* polynomial; 0: 1 */
    bool staircase;                    /* exponential */
    bool cycle;                        /* polynomial */
    strata_numbers boundaries, values; /* step: as many values as boundaries, which ascend */
    int64_t warmup_steps;              /* 0: none */
    double warmup_from;                /* rate at t = 0; 0 */
    int64_t replicas;                  /* all rates are multiplied by it (linear scaling, Goyal et al. 2017); 0: 1 */
} strata_schedule;

/* An optimizer's settings: a plain value, copied where it is used. Zero is the default that each field tells. */
typedef struct strata_optimizer {
    const char *name;     /* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb": static memory */
    double learning_rate; /* 0: 0.01 for sgd and lars, else 0.001 */
    double momentum;      /* sgd, rmsprop; 0..1. lars: 0: 0.9 */
    bool nesterov;        /* sgd */
    double beta1, beta2;  /* adam, adamw, lamb; 0: 0.9 and 0.999 */
    double epsilon;       /* 0: 1e-7; lamb: 1e-6 */
    double rho;           /* rmsprop; 0: 0.9 */
    bool centered;        /* rmsprop */
    double accumulator;   /* adagrad: where its sums of squares begin; 0: 0.1 */
    double weight_decay;  /* adamw: 0: 0.004; lars: 0: 1e-4; lamb: 0 */
    double trust;         /* lars: 0: 0.001 */
    strata_schedule schedule;

    /* Gradients, before the optimizer sees them; 0: not clipped. At most one of the three. */
    double clip_value;       /* each element to -clip_value .. clip_value */
    double clip_norm;        /* each parameter's gradient to this norm */
    double clip_global_norm; /* all gradients together to this norm */

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
