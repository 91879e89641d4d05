/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of samples/, with made-up data that they can learn, on any device: for tests that compare training steps between
 * devices. No test framework is named here; memory that runs out aborts the test program. */
#ifndef STRATA_TESTS_SUPPORT_SAMPLES_H
#define STRATA_TESTS_SUPPORT_SAMPLES_H

#include "strata/strata.h"

typedef struct strata_test_sample {
    /* samples/NAME/model.json */
    char name[24];
    /* Examples of a step. Labels and tokens are whole numbers below `classes` and `tokens`; 0: any floats. */
    int64_t batch, classes, tokens;
    /* Of an example; ends with 0. */
    int64_t shape[4];
    /* Convolutions, or sums over many rows: slow where ops are interpreted. */
    bool large;
} strata_test_sample;

enum { STRATA_TEST_SAMPLES = 8 };
extern const strata_test_sample strata_test_samples[STRATA_TEST_SAMPLES];

/* Features and labels of n_batches batches, which the caller finishes. The same each time. */
void strata_test_sample_arrays(const strata_test_sample *sample, int n_batches, strata_array *out_x, strata_array *out_y);
/* Batches [first, first + n) of such arrays, copied. */
strata_dataset *strata_test_sample_batches(const strata_test_sample *sample, const strata_array *x, const strata_array *y,
                                           int first, int n);

/* A sample on a device. */
typedef struct strata_test_trained {
    strata_device *device;
    strata_model *model;
} strata_test_trained;

/* The sample's model with seed 1, compiled for the device, which is opened. Closed by the caller, after a failure too. */
strata_status strata_test_sample_open(const strata_test_sample *sample, const char *which, strata_test_trained *out_trained,
                                      strata_error *err);
void strata_test_sample_close(strata_test_trained *trained);
/* Trains on the data once, shuffled the same way each time; out_losses has room for one number a batch. */
strata_status strata_test_sample_fit(const strata_test_trained *trained, const strata_test_sample *sample,
                                     const strata_dataset *data, float *out_losses, strata_error *err);

/* max(1, |b|) is 1 of |a - b|; NaN where either is. */
double strata_test_distance(double a, double b);

#endif
