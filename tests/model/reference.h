/* SPDX-License-Identifier: Apache-2.0
 *
 * An independent implementation of the classifier of model_case.h in double precision: the forward computation, its gradients
 * and the optimizers. */
#ifndef STRATA_TESTS_MODEL_REFERENCE_H
#define STRATA_TESTS_MODEL_REFERENCE_H

#include "model_case.h"

/* Offsets of the parameters, in the model's order: hidden kernel (6,5), bias (5), output kernel (5,3), bias (3). */
enum {
    REFERENCE_KERNEL = 0,
    REFERENCE_BIAS = REFERENCE_KERNEL + CASE_INPUTS * CASE_HIDDEN,
    REFERENCE_OUT_KERNEL = REFERENCE_BIAS + CASE_HIDDEN,
    REFERENCE_OUT_BIAS = REFERENCE_OUT_KERNEL + CASE_HIDDEN * CASE_CLASSES,
    REFERENCE_SIZE = REFERENCE_OUT_BIAS + CASE_CLASSES
};

typedef struct reference {
    double p[REFERENCE_SIZE], slots[2][REFERENCE_SIZE];
    strata_optimizer optimizer; /* with a value for each setting, since 0 does not stand for a default here */
    int steps;
} reference;

/* Copies the current parameters of the model. */
void reference_take(reference *r, strata_model *model);
/* Computes the sum of the losses of n examples and the number of right answers. If dp is not NULL, it also computes the
 * gradients of the mean loss. */
void reference_forward(const reference *r, const float *x, const int32_t *y, int64_t n, double out_sums[2], double *dp);
/* Makes one training step and returns the mean loss before it. */
double reference_step(reference *r, const float *x, const int32_t *y, int64_t n);
/* Returns the largest difference between a parameter of the reference and of the model. */
double reference_distance(const reference *r, strata_model *model);

#endif
