/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"

const strata_test_sample strata_test_samples[STRATA_TEST_SAMPLES] = {
    {"linear", 4, 0, 0, {1}, false},          {"regression", 4, 0, 0, {10}, false},
    {"mnist", 2, 10, 0, {28, 28}, false},     {"mnist_cnn", 2, 10, 0, {28, 28, 1}, true},
    {"cifar10", 2, 10, 0, {32, 32, 3}, true}, {"cifar10_resnet", 16, 10, 0, {32, 32, 3}, true},
    {"imdb", 4, 2, 10000, {250}, true},       {"fake_news", 4, 2, 10000, {64}, true},
};

void strata_test_sample_arrays(const strata_test_sample *sample, int n_batches, strata_array *out_x, strata_array *out_y) {
    const strata_test_sample *s = sample;
    const int64_t n = n_batches * s->batch;
    strata_shape shape = {.rank = 1, .dims = {n}};
    for (int d = 0; d < 4 && s->shape[d]; d++) shape.dims[shape.rank++] = s->shape[d];
    *out_x =
        strata_test_random(s->tokens ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, shape, 0, s->tokens ? (double)s->tokens : 1, 11);
    *out_y = strata_test_random(s->classes ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, STRATA_SHAPE(n), 0,
                                s->classes ? (double)s->classes : 1, 12);
    if (!s->classes || s->tokens) return;
    /* Adds a pattern to each image that depends on its class. If there were nothing to learn, gradients would consist of
     * noise, and rounding errors would grow in each step. */
    const int64_t size = strata_shape_elements(shape) / n;
    const int32_t *labels = out_y->data;
    for (int64_t i = 0; i < n * size; i++)
        ((float *)out_x->data)[i] += 0.5f * (float)((i % size / 64 + 3 * labels[i / size]) % s->classes);
}

static strata_array rows_of(const strata_array *whole, int64_t first, int64_t n) {
    strata_array rows;
    strata_shape shape = whole->shape;
    const size_t row_bytes = strata_array_bytes(whole) / (size_t)shape.dims[0];
    shape.dims[0] = n;
    if (strata_array_create(whole->dtype, shape, &rows, NULL)) abort();
    memcpy(rows.data, (const char *)whole->data + (size_t)first * row_bytes, (size_t)n * row_bytes);
    return rows;
}

strata_dataset *strata_test_sample_batches(const strata_test_sample *sample, const strata_array *x, const strata_array *y,
                                           int first, int n) {
    strata_dataset *data = NULL;
    strata_array features = rows_of(x, first * sample->batch, n * sample->batch);
    strata_array labels = rows_of(y, first * sample->batch, n * sample->batch);
    if (strata_dataset_take_arrays(&features, &labels, 1, &data, NULL)) abort();
    return data;
}

strata_status strata_test_sample_open(const strata_test_sample *sample, const char *which, strata_test_trained *out_trained,
                                      strata_error *err) {
    char path[4096];
    strata_test_trained *t = out_trained;
    *t = (strata_test_trained){0};
    snprintf(path, sizeof path, "%s/samples/%s/model.json", STRATA_TEST_SOURCE_DIR, sample->name);
    strata_status status = strata_device_open(which, NULL, &t->device, err);
    if (!status) status = strata_model_read_json(path, &t->model, err);
    if (!status) status = strata_model_compile(t->model, t->device, &(strata_compile_options){.seed = 1}, err);
    return status;
}

void strata_test_sample_close(strata_test_trained *trained) {
    strata_model_destroy(trained->model);
    strata_device_close(trained->device);
    *trained = (strata_test_trained){0};
}

strata_status strata_test_sample_fit(const strata_test_trained *trained, const strata_test_sample *sample,
                                     const strata_dataset *data, float *out_losses, strata_error *err) {
    strata_history history = {0};
    const strata_status status =
        strata_model_fit(trained->model, data, &(strata_fit_options){.batch = sample->batch, .seed = 7}, &history, err);
    if (!status) memcpy(out_losses, history.losses, (size_t)history.n_losses * sizeof *out_losses);
    strata_history_finish(&history);
    return status;
}

double strata_test_distance(double a, double b) {
    return fabs(a - b) / (fabs(b) > 1 ? fabs(b) : 1);
}
