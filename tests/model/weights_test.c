/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of examples and of classes: compared with golden numbers, with the same results from arrays, from a pipeline,
 * when gradients are accumulated, and with several replicas; and errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/golden.h"

static strata_error err;

enum { INPUTS = 5, CLASSES = 3, N = 6 };

typedef enum how { EXAMPLES = 1, BY_CLASS = 2 } how;

static strata_dataset *dataset_of(const strata_golden *golden, how weighted) {
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(strata_golden_get(golden, "x"), strata_golden_get(golden, "y"), 0, &data, &err));
    if (weighted & EXAMPLES) OK(strata_dataset_set_weights(data, strata_golden_get(golden, "weights"), &err));
    return data;
}

static strata_model *linear_model(const strata_golden *golden, strata_device *device, strata_strategy *strategy,
                                  int accumulate) {
    strata_model *model = NULL;
    strata_compile_options opts = {.optimizer = strata_sgd_optimizer(0.5, 0, false), .strategy = strategy};
    opts.optimizer.gradient_accumulation_steps = accumulate;
    OK(strata_model_create(STRATA_SHAPE(INPUTS), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES, .no_bias = true});
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_set_parameter(model, 0, strata_golden_get(golden, "w"), &err));
    return model;
}

/* Fits `data`, takes it, and compares the results with the golden numbers of that name. */
static void expect_golden(const strata_golden *golden, strata_model *model, strata_dataset *data, int64_t batch, how weighted) {
    const char *name = weighted == EXAMPLES ? "examples" : weighted == BY_CLASS ? "classes" : "both";
    char key[32];
    const float *by_class = strata_golden_get(golden, "class_weights")->data;
    const double weights[CLASSES] = {(double)by_class[0], (double)by_class[1], (double)by_class[2]};
    strata_fit_options fit = {.batch = batch, .no_shuffle = true};
    strata_history history = {0};
    strata_metrics metrics;
    float values[INPUTS * CLASSES];
    strata_array w = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(INPUTS, CLASSES), values);
    if (weighted & BY_CLASS) fit.class_weights = weights, fit.n_class_weights = CLASSES;
    OK(strata_model_fit(model, data, &fit, &history, &err));
    snprintf(key, sizeof key, "%s_losses", name);
    const float *losses = strata_golden_get(golden, key)->data;
    for (int i = 0; i < 2; i++)
        cr_assert_float_eq((double)history.losses[i], (double)losses[i], 1e-5, "%s %d: %g, not %g", key, i,
                           (double)history.losses[i], (double)losses[i]);
    cr_assert_float_eq(history.epochs[0].loss, (4 * (double)losses[0] + 2 * (double)losses[1]) / N, 1e-5);
    OK(strata_model_get_parameter(model, 0, &w, &err));
    snprintf(key, sizeof key, "%s_w", name);
    strata_test_result same = strata_test_compare(&w, strata_golden_get(golden, key), (strata_test_tolerance){1e-5, 1e-5});
    cr_assert(same.ok, "%s: %s", key, same.text);
    OK(strata_model_evaluate(model, data, 4, &metrics, &err));
    snprintf(key, sizeof key, "%s_evaluated", name);
    const float *evaluated = strata_golden_get(golden, key)->data;
    cr_assert_float_eq(metrics.loss, (double)evaluated[weighted & EXAMPLES ? 0 : 1], 1e-5, "%s", key);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(weights, of_examples_and_classes_count_as_in_keras) {
    strata_golden *golden = strata_golden_load("weights");
    for (int weighted = 1; weighted <= 3; weighted++)
        expect_golden(golden, linear_model(golden, device, NULL, 1), dataset_of(golden, (how)weighted), 4, (how)weighted);
    strata_golden_destroy(golden);
}

TEST_ON_HOST(weights, are_a_pipelines_third_part) {
    strata_golden *golden = strata_golden_load("weights");
    strata_dataset *data = dataset_of(golden, EXAMPLES);
    OK(strata_dataset_batch(&data, 4, false, &err));
    cr_assert(strata_dataset_has_weights(data));
    expect_golden(golden, linear_model(golden, device, NULL, 1), data, 4, EXAMPLES | BY_CLASS);
    strata_golden_destroy(golden);
}

TEST_ON_HOST(weights, are_exact_when_batches_are_accumulated) {
    strata_golden *golden = strata_golden_load("weights");
    expect_golden(golden, linear_model(golden, device, NULL, 2), dataset_of(golden, EXAMPLES | BY_CLASS), 2,
                  EXAMPLES | BY_CLASS);
    strata_golden_destroy(golden);
}

Test(weights, are_exact_on_replicas) {
    strata_golden *golden = strata_golden_load("weights");
    strata_device *devices[3] = {NULL};
    strata_strategy *strategy = NULL;
    for (int r = 0; r < 3; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
    OK(strata_strategy_from_devices(devices, 3, &strategy, &err));
    expect_golden(golden, linear_model(golden, NULL, strategy, 1), dataset_of(golden, EXAMPLES | BY_CLASS), 4,
                  EXAMPLES | BY_CLASS);
    strata_strategy_destroy(strategy);
    strata_golden_destroy(golden);
}

/* Labels of a binary output, and labels that are probabilities of classes. */
TEST_ON_HOST(weights, of_classes_take_every_kind_of_class) {
    const double weights[] = {0, 1};
    const strata_fit_options fit = {.batch = 4, .class_weights = weights, .n_class_weights = 2};
    for (int shares = 0; shares < 2; shares++) {
        float x[4] = {1, 2, 3, 4}, y[8] = {0, 0, 0, 0}, w[4] = {0.5f, -0.5f, 0, 0}, after[4];
        for (int i = 0; shares && i < 4; i++) y[2 * i] = 0.9f, y[2 * i + 1] = 0.1f;
        strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), x);
        strata_array labels = strata_array_view(STRATA_DTYPE_F32, shares ? STRATA_SHAPE(4, 2) : STRATA_SHAPE(4), y);
        strata_array kernel = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1 + shares), w);
        strata_array got = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1 + shares), after);
        strata_dataset *data = NULL;
        strata_model *model = NULL;
        OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
        OK(strata_model_create(STRATA_SHAPE(1), &model, &err));
        strata_model_add_dense(model, (strata_dense_options){.units = 1 + shares, .no_bias = true});
        OK(strata_model_compile(model, device,
                                &(strata_compile_options){.loss = shares ? "categorical_crossentropy" : "binary_crossentropy",
                                                          .optimizer = strata_sgd_optimizer(0.1, 0, false)},
                                &err));
        OK(strata_model_set_parameter(model, 0, &kernel, &err));
        OK(strata_model_fit(model, data, &fit, NULL, &err));
        OK(strata_model_get_parameter(model, 0, &got, &err));
        cr_assert_eq(after[0], w[0], "all are of class 0, which weighs nothing");
        ((float *)y)[shares ? 1 : 0] = shares ? 0.95f : 1; /* the first example becomes one of class 1 */
        OK(strata_model_fit(model, data, &fit, NULL, &err));
        OK(strata_model_get_parameter(model, 0, &got, &err));
        cr_assert_neq(after[0], w[0]);
        strata_model_destroy(model);
        strata_dataset_destroy(data);
    }
}

TEST_ON_HOST(weights, later_steps_allocate_and_compile_nothing) {
    strata_golden *golden = strata_golden_load("weights");
    strata_dataset *data = dataset_of(golden, EXAMPLES);
    strata_model *model = linear_model(golden, device, NULL, 1);
    const double classes[] = {1, 2, 3};
    const strata_fit_options fit = {.epochs = 3, .batch = 4, .class_weights = classes, .n_class_weights = CLASSES};
    OK(strata_model_fit(model, data, &fit, NULL, &err));
    const strata_device_counters before = strata_device_get_counters(device);
    OK(strata_model_fit(model, data, &fit, NULL, &err));
    cr_assert_eq(strata_device_get_counters(device).allocations, before.allocations);
    cr_assert_eq(strata_device_get_counters(device).compilations, before.compilations);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_golden_destroy(golden);
}

TEST_ON_HOST(weights, that_are_wrong_say_so) {
    strata_golden *golden = strata_golden_load("weights");
    strata_dataset *data = dataset_of(golden, 0);
    strata_model *model = linear_model(golden, device, NULL, 1);
    float few[N] = {1, 1, 1, -1, 1, 1};
    double classes[] = {1, 1, -2};
    strata_array weights = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N - 1), few);
    FAILS(strata_dataset_set_weights(data, &weights, &err), STRATA_INVALID, "weights are f32 (5); they must be f32 (6)");
    weights.shape = STRATA_SHAPE(N);
    FAILS(strata_dataset_set_weights(data, &weights, &err), STRATA_DATA,
          "the weight of example 3 is -1; it must be at least 0");
    few[3] = INFINITY;
    FAILS(strata_dataset_set_weights(data, &weights, &err), STRATA_DATA, "example 3 is inf");
    strata_fit_options fit = {.class_weights = classes, .n_class_weights = 2};
    FAILS(strata_model_fit(model, data, &fit, NULL, &err), STRATA_INVALID, "there are 2; the model has 3 classes");
    fit.n_class_weights = 3;
    FAILS(strata_model_fit(model, data, &fit, NULL, &err), STRATA_INVALID, "that of class 2 is -2; it must be at least 0");
    OK(strata_dataset_batch(&data, 2, false, &err));
    FAILS(strata_dataset_set_weights(data, &weights, &err), STRATA_INVALID, "the dataset is batch; it must be arrays");
    strata_model_destroy(model);
    OK(strata_model_create(STRATA_SHAPE(INPUTS), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    OK(strata_model_compile(model, device, &(strata_compile_options){.loss = "mse"}, &err));
    FAILS(strata_model_fit(model, data, &fit, NULL, &err), STRATA_INVALID,
          "class weights: mse with outputs of (1) has no one class");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_golden_destroy(golden);
}
