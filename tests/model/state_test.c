/* SPDX-License-Identifier: Apache-2.0
 *
 * States: variables that a layer updates without training them, such as the moving averages of batch_norm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(state, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 48, MEAN = 2, VARIANCE = 3 };

static strata_model *norm_model(strata_device *device) {
    strata_error err = {0};
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.momentum = 0.9});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.no_average = true});
    OK(strata_model_compile(model, device, &(strata_compile_options){.seed = 3}, &err));
    return model;
}

static void get(strata_model *model, int index, float *out, int64_t n) {
    strata_error err = {0};
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), out);
    OK(strata_model_get_parameter(model, index, &view, &err));
}

/* As in Keras, each batch of an update changes the moving averages, one after the other, also where the last update has fewer
 * batches. A learning rate of 0 keeps the rest. */
TEST_ON_HOST(state, follows_each_accumulated_batch) {
    enum { BATCH = 8, EPOCHS = 2 };
    static const double momenta[] = {0.9, 0.5, STRATA_ZERO};
    strata_error err = {0};
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(N - 5, &x, &y);
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    for (int m = 0; m < 3; m++) {
        strata_model *model = NULL;
        const strata_compile_options compile = {
            .optimizer = {.name = "sgd", .learning_rate = STRATA_ZERO, .gradient_accumulation_steps = 4}};
        OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
        strata_model_add_flatten(model, (strata_flatten_options){0});
        strata_model_add_batch_norm(model, (strata_batch_norm_options){.momentum = momenta[m]});
        strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
        OK(strata_model_compile(model, device, &compile, &err));
        const strata_fit_options opts = {.epochs = EPOCHS, .batch = BATCH, .no_shuffle = true};
        OK(strata_model_fit(model, data, &opts, NULL, &err));
        float mean[CASE_INPUTS], variance[CASE_INPUTS];
        get(model, MEAN, mean, CASE_INPUTS);
        get(model, VARIANCE, variance, CASE_INPUTS);
        for (int k = 0; k < CASE_INPUTS; k++) {
            double moving_mean = 0, moving_variance = 1;
            for (int e = 0; e < EPOCHS; e++)
                for (int first = 0, n; first < N - 5; first += n) {
                    double sum = 0, squares = 0;
                    n = N - 5 - first < BATCH ? N - 5 - first : BATCH;
                    for (int i = first; i < first + n; i++) sum += (double)((float *)x.data)[i * CASE_INPUTS + k] / n;
                    for (int i = first; i < first + n; i++)
                        squares += pow((double)((float *)x.data)[i * CASE_INPUTS + k] - sum, 2) / n;
                    moving_mean = momenta[m] * moving_mean + (1 - momenta[m]) * sum;
                    moving_variance = momenta[m] * moving_variance + (1 - momenta[m]) * squares;
                }
            cr_expect_float_eq((double)mean[k], moving_mean, 1e-6, "momentum %g", momenta[m]);
            cr_expect_float_eq((double)variance[k], moving_variance, 1e-6, "momentum %g", momenta[m]);
        }
        strata_model_destroy(model);
    }
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* A model is written with its settings of 0 and read again with them; files without them have the defaults. */
TEST_ON_HOST(state, settings_of_zero_are_saved) {
    strata_error err = {0};
    strata_model *model = NULL, *again = NULL;
    char path[300], *texts[2] = {NULL};
    const strata_compile_options compile = {.optimizer = {.name = "adamw", .weight_decay = STRATA_ZERO, .beta1 = STRATA_ZERO}};
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.momentum = STRATA_ZERO, .epsilon = STRATA_ZERO});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    OK(strata_model_compile(model, device, &compile, &err));
    snprintf(path, sizeof path, "%s/zero.strata", test_folder());
    OK(strata_model_save(model, path, &err));
    OK(strata_model_load(path, &again, &err));
    OK(strata_model_to_json(model, &texts[0], &err));
    OK(strata_model_to_json(again, &texts[1], &err));
    cr_expect_str_eq(texts[0], texts[1]);
    cr_expect(strstr(texts[0], "\"momentum\":0,\"epsilon\":0"), "%s", texts[0]);
    cr_expect(strstr(texts[0], "\"beta1\":0,"), "%s", texts[0]);
    cr_expect(strstr(texts[0], "\"weight_decay\":0"), "%s", texts[0]);
    free(texts[0]);
    free(texts[1]);
    strata_model_destroy(again);
    strata_model_destroy(model);
}

TEST_ON_HOST(state, a_fit_of_no_epochs_trains_nothing) {
    strata_error err = {0};
    strata_history history = {0};
    strata_dataset *data = case_dataset(N);
    strata_model *model = norm_model(device);
    const char *before = case_sha(model);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = STRATA_NO_EPOCHS, .validation = data}, &history, &err));
    cr_expect_eq(history.n_epochs, 0);
    cr_expect_str_eq(case_sha(model), before);
    strata_history_finish(&history);
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = -1}, NULL, &err), STRATA_INVALID, "epochs is -1");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(state, follows_the_batches) {
    strata_error err = {0};
    strata_model *model = norm_model(device);
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(N, &x, &y);
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    const int epochs = 3;
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = epochs, .batch = N}, NULL, &err));
    float mean[CASE_INPUTS], variance[CASE_INPUTS];
    get(model, MEAN, mean, CASE_INPUTS);
    get(model, VARIANCE, variance, CASE_INPUTS);
    const double kept = pow(0.9, epochs); /* the weight of the initial values, 0 and 1 */
    for (int k = 0; k < CASE_INPUTS; k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < N; i++) sum += (double)((float *)x.data)[i * CASE_INPUTS + k] / N;
        for (int i = 0; i < N; i++) squares += pow((double)((float *)x.data)[i * CASE_INPUTS + k] - sum, 2) / N;
        cr_assert_float_eq(mean[k], (1 - kept) * sum, 1e-6);
        cr_assert_float_eq(variance[k], kept + (1 - kept) * squares, 1e-6);
    }
    /* The last layer has no moving average and keeps the statistics of the last batch, so its state differs from the
     * initial one. */
    float last[CASE_CLASSES];
    get(model, 9, last, CASE_CLASSES);
    cr_assert_str_eq(strata_model_parameter(model, 9).name, "batch_norm_1/moving_variance");
    for (int k = 0; k < CASE_CLASSES; k++) cr_assert(last[k] > 0 && fabsf(last[k] - 1) > 1e-4f, "%g", (double)last[k]);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}

TEST_ON_DEVICES(state, is_saved_loaded_and_hashed) {
    strata_error err = {0};
    strata_metrics before, after;
    strata_model *model = norm_model(device), *loaded = NULL;
    strata_dataset *data = case_dataset(N);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = 16}, NULL, &err));
    const char *path = test_path("norm.strata");
    OK(strata_model_save(model, path, &err));
    OK(strata_model_load(path, &loaded, &err));
    OK(strata_model_compile(loaded, device, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(loaded));
    OK(strata_model_evaluate(model, data, 0, &before, &err));
    OK(strata_model_evaluate(loaded, data, 0, &after, &err));
    cr_assert_eq(before.loss, after.loss);
    const char *sha = case_sha(loaded);
    strata_array ones = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(CASE_INPUTS), 0.5);
    OK(strata_model_set_parameter(loaded, MEAN, &ones, &err));
    cr_assert_str_neq(case_sha(loaded), sha);
    OK(strata_model_evaluate(loaded, data, 0, &after, &err));
    cr_assert_neq(before.loss, after.loss);
    strata_array_finish(&ones);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_model_destroy(loaded);
}

TEST_ON_DEVICES(state, is_left_alone_by_steps_whose_loss_is_not_finite) {
    strata_error err = {0};
    strata_model *model = norm_model(device);
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(N, &x, &y);
    ((float *)x.data)[7] = INFINITY;
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    const char *sha = case_sha(model);
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = 16, .no_shuffle = true}, NULL, &err), STRATA_DATA,
          "not finite at epoch 1, step 1");
    cr_assert_str_eq(case_sha(model), sha);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}
