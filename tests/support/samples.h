/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains the models of samples/ on any device, with generated data that they can learn. Tests use it to compare training steps
 * on several devices. Nothing here depends on a test framework. When memory runs out, the test program aborts. */
#ifndef STRATA_TESTS_SUPPORT_SAMPLES_H
#define STRATA_TESTS_SUPPORT_SAMPLES_H

#include "strata/strata.h"

typedef struct strata_test_sample {
    /* samples/NAME/model.json */
    char name[24];
    /* Number of examples of a step. */
    int64_t batch;
    /* Labels are whole numbers below `classes`; 0: labels are floats. */
    int64_t classes;
    /* Features are whole numbers below `tokens`; 0: features are floats. */
    int64_t tokens;
    /* Shape of the features of one example; a 0 ends it. */
    int64_t shape[4];
    /* The model has convolutions or sums over many rows, which are slow on a device that interprets ops. */
    bool large;
} strata_test_sample;

enum { STRATA_TEST_SAMPLES = 8 };
extern const strata_test_sample strata_test_samples[STRATA_TEST_SAMPLES];

/* Generates the features and labels of n_batches batches, the same in each call. The caller finishes the arrays. */
void strata_test_sample_arrays(const strata_test_sample *sample, int n_batches, strata_array *out_x, strata_array *out_y);
/* Makes a dataset of copies of the batches [first, first + n) of these arrays. */
strata_dataset *strata_test_sample_batches(const strata_test_sample *sample, const strata_array *x, const strata_array *y,
                                           int first, int n);

/* A sample's model, and the device for which it is compiled. */
typedef struct strata_test_trained {
    strata_device *device;
    strata_model *model;
} strata_test_trained;

/* Opens the device `which` and compiles the sample's model for it, with seed 1. The caller closes the result, also after a
 * failure. */
strata_status strata_test_sample_open(const strata_test_sample *sample, const char *which, strata_test_trained *out_trained,
                                      strata_error *err);
void strata_test_sample_close(strata_test_trained *trained);
/* Trains for one epoch. Each call shuffles the data in the same order. out_losses must have room for one number per batch. */
strata_status strata_test_sample_fit(const strata_test_trained *trained, const strata_test_sample *sample,
                                     const strata_dataset *data, float *out_losses, strata_error *err);

/* |a - b| / max(1, |b|). It is NaN when a or b is NaN. */
double strata_test_distance(double a, double b);

#endif
