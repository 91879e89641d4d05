/* SPDX-License-Identifier: Apache-2.0
 *
 * The classifier of model_case.h in double precision, written out by hand: forward, gradients, optimizers. */
#ifndef STRATA_TESTS_MODEL_REFERENCE_H
#define STRATA_TESTS_MODEL_REFERENCE_H

#include "model_case.h"

/* Parameters in the model's order: hidden kernel (6,5), bias (5), output kernel (5,3), bias (3). */
enum {
    REFERENCE_KERNEL = 0,
    REFERENCE_BIAS = REFERENCE_KERNEL + CASE_INPUTS * CASE_HIDDEN,
    REFERENCE_OUT_KERNEL = REFERENCE_BIAS + CASE_HIDDEN,
    REFERENCE_OUT_BIAS = REFERENCE_OUT_KERNEL + CASE_HIDDEN * CASE_CLASSES,
    REFERENCE_SIZE = REFERENCE_OUT_BIAS + CASE_CLASSES
};

typedef struct reference {
    double p[REFERENCE_SIZE], slots[2][REFERENCE_SIZE];
    strata_optimizer optimizer; /* every setting given: no defaults here */
    int steps;
} reference;

/* With the model's parameters as they are now. */
void reference_take(reference *r, strata_model *model);
/* Sums of losses and of right answers over n elements; gradients of the mean loss when dp is not NULL. */
void reference_forward(const reference *r, const float *x, const int32_t *y, int64_t n, double out_sums[2], double *dp);
/* One training step; returns the mean loss before it. */
double reference_step(reference *r, const float *x, const int32_t *y, int64_t n);
/* Largest difference between the reference's parameters and the model's. */
double reference_distance(const reference *r, strata_model *model);

#endif
