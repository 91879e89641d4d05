/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the first wrong tensor of a training step (diagnose.c). */
#ifndef STRATA_CORE_MODEL_DIAGNOSE_H
#define STRATA_CORE_MODEL_DIAGNOSE_H

#include "core/model/model.h"

/* The inputs of a training step: n examples in the format of the programs' inputs. */
typedef struct strata_examined_step {
    void *const *x, *const *y;
    int64_t n;
    /* As in strata_batch_form. */
    float byte_scale;
    /* The inputs "step" and "rng". */
    const float *words;
    const int32_t *rng;
} strata_examined_step;
/* Finds the first tensor of the step on the first replica that is not finite. Returns DATA, with a message "epoch .., step ..:
 * .." that describes this tensor and those from which it is computed; OK if all are finite. */
strata_status strata_model_diagnose(strata_model *model, const strata_examined_step *step, const char *where,
                                    strata_error *err);
/* Computes the step's loss and gradients twice on each replica's device. Fails: DATA, with the first tensor whose bits
 * differ. */
STRATA_MUST_USE strata_status strata_model_repeat(strata_model *model, const strata_examined_step *step, const char *where,
                                                  strata_error *err);

#endif
