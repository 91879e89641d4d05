/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation and prediction must give the values of the reference, whatever the batch size. */
#include <math.h>
#include <string.h>

#include "model_case.h"
#include "reference.h"
#include "tests/support/check.h"

static strata_error err;

TEST_ON_DEVICES(evaluate, equals_the_reference_for_every_batch) {
    enum { N = 53 };
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(N, &x, &y);
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    strata_model *model = case_model(device, strata_adam_optimizer(0), 4);
    const char *before = case_sha(model);
    reference r = {.steps = 0};
    double sums[2];
    reference_take(&r, model);
    reference_forward(&r, x.data, y.data, N, sums, NULL);
    const int64_t batches[] = {0, 1, 7, 52, 53, 1000};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        strata_metrics metrics;
        OK(strata_model_evaluate(model, data, batches[i], &metrics, &err));
        cr_assert_eq(metrics.examples, N);
        cr_assert_float_eq(metrics.loss, sums[0] / N, 1e-5, "batch %d: %g, not %g", (int)batches[i], metrics.loss, sums[0] / N);
        cr_assert_float_eq(metrics.accuracy, sums[1] / N, 1e-9, "batch %d", (int)batches[i]);
    }
    cr_assert_str_eq(before, case_sha(model), "evaluation changed the parameters");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

TEST_ON_DEVICES(evaluate, predictions_are_probabilities_in_order) {
    enum { N = 53 };
    strata_array x, y, whole = {0}, parts = {0};
    strata_dataset *data = NULL, *bare = NULL;
    case_arrays(N, &x, &y);
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    OK(strata_dataset_from_arrays(&x, NULL, 0, &bare, &err));
    strata_model *model = case_model(device, strata_adam_optimizer(0.05), 4);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 5, .batch = 8}, NULL, &err));
    strata_metrics metrics;
    OK(strata_model_evaluate(model, data, 0, &metrics, &err));
    OK(strata_model_predict(model, bare, 0, &whole, &err));
    OK(strata_model_predict(model, data, 5, &parts, &err));
    cr_assert(strata_shape_equal(whole.shape, STRATA_SHAPE(N, CASE_CLASSES)));
    int right = 0;
    double losses = 0;
    for (int i = 0; i < N; i++) {
        const float *row = (const float *)whole.data + i * CASE_CLASSES;
        int best = 0, label = ((int32_t *)y.data)[i];
        double total = 0;
        for (int k = 0; k < CASE_CLASSES; k++) {
            cr_assert(row[k] >= 0 && row[k] <= 1);
            total += (double)row[k];
            if (row[k] > row[best]) best = k;
        }
        cr_assert_float_eq(total, 1, 1e-5, "row %d sums to %g", i, total);
        right += best == label;
        losses -= log((double)row[label]);
    }
    cr_assert_float_eq(metrics.accuracy, right / (double)N, 1e-9);
    cr_assert_float_eq(metrics.loss, losses / N, 1e-4);
    strata_test_result same = strata_test_compare(&parts, &whole, (strata_test_tolerance){1e-5, 1e-6});
    cr_assert(same.ok, "%s", same.text);
    strata_array_finish(&whole);
    strata_array_finish(&parts);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_dataset_destroy(bare);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(evaluate, a_regression_predicts_its_outputs) {
    float x[3][2] = {{1, 2}, {3, 4}, {-1, 0}}, w[2] = {2, -1}, y[3] = {0, 2, 0};
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), x), predictions = {0};
    strata_array weights = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), w);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), y);
    strata_device *host = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_metrics metrics;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1, .no_bias = true});
    OK(strata_model_compile(model, host, &(strata_compile_options){.loss = "mse"}, &err));
    OK(strata_model_set_parameter(model, 0, &weights, &err));
    OK(strata_model_predict(model, data, 2, &predictions, &err));
    cr_assert(strata_shape_equal(predictions.shape, STRATA_SHAPE(3, 1)));
    const float *got = predictions.data;
    cr_assert(got[0] == 0 && got[1] == 2 && got[2] == -2);
    OK(strata_model_evaluate(model, data, 2, &metrics, &err));
    cr_assert_float_eq(metrics.loss, 4.0 / 3, 1e-6);
    cr_assert_eq(metrics.accuracy, 0);
    strata_array_finish(&predictions);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

Test(evaluate, dropout_does_not_work_here) {
    strata_device *host = NULL;
    strata_model *model = NULL;
    strata_metrics first, second;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_dataset *data = case_dataset(40);
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.9});
    OK(strata_model_compile(model, host, NULL, &err));
    strata_array predictions = {0};
    OK(strata_model_evaluate(model, data, 0, &first, &err));
    OK(strata_model_evaluate(model, data, 8, &second, &err));
    cr_assert_float_eq(first.loss, second.loss, 1e-6);
    OK(strata_model_predict(model, data, 0, &predictions, &err));
    int uniform = 0; /* with all logits dropped, the predictions would be 1/3 each */
    for (int i = 0; i < 40; i++) uniform += fabsf(((float *)predictions.data)[3 * i] - 1.0f / 3) < 1e-6f;
    cr_assert_leq(uniform, 2);
    strata_array_finish(&predictions);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

Test(evaluate, refuses_wrong_batches_and_data) {
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_dataset *data = case_dataset(10), *other = NULL;
    strata_model *bare = case_model_uncompiled(), *model = case_model(host, strata_adam_optimizer(0), 1);
    strata_metrics metrics;
    strata_array predictions = {0};
    FAILS(strata_model_evaluate(bare, data, 0, &metrics, &err), STRATA_INVALID, "not compiled");
    FAILS(strata_model_predict(bare, data, 0, &predictions, &err), STRATA_INVALID, "not compiled");
    FAILS(strata_model_evaluate(model, data, -1, &metrics, &err), STRATA_INVALID, "batch is -1");
    FAILS(strata_model_predict(model, data, -7, &predictions, &err), STRATA_INVALID, "batch is -7");
    FAILS(strata_model_evaluate(model, data, INT64_C(1) << 40, &metrics, &err), STRATA_OUT_OF_MEMORY, "a batch of");
    FAILS(strata_model_predict(model, data, INT64_C(1) << 40, &predictions, &err), STRATA_OUT_OF_MEMORY, "a batch of");
    float x[12] = {0};
    strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 6), x);
    strata_array shaped = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 3), x);
    OK(strata_dataset_from_arrays(&flat, NULL, 0, &other, &err));
    FAILS(strata_model_predict(model, other, 0, &predictions, &err), STRATA_DATA, "elements are (6), the model takes (2,3)");
    strata_dataset_destroy(other);
    OK(strata_dataset_from_arrays(&shaped, NULL, 0, &other, &err));
    FAILS(strata_model_evaluate(model, other, 0, &metrics, &err), STRATA_DATA, "no labels");
    strata_dataset_destroy(other);
    cr_assert_null(predictions.data);
    strata_model_destroy(bare);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(host);
}
