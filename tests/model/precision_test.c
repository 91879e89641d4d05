/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision: every layer works in f16 and bf16, training is close to that of f32, and a step whose f16 gradients
 * overflow changes nothing but halves the loss scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/run/device.h"
#include "model_case.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(precision, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

static const strata_dtype halves[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16};

static strata_compile_options with_precision(strata_dtype precision, strata_optimizer optimizer) {
    return (strata_compile_options){.optimizer = optimizer, .seed = 3, .precision = precision};
}

/* ---- close to f32 ---- */

static double trained_loss(strata_device *device, strata_dtype precision, double *out_accuracy) {
    strata_dataset *data = case_dataset(200);
    strata_model *model = case_model_uncompiled();
    strata_history history = {0};
    strata_metrics metrics;
    const strata_compile_options opts = with_precision(precision, strata_adam_optimizer(0.02));
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 12, .batch = 16}, &history, &err));
    OK(strata_model_evaluate(model, data, 0, &metrics, &err));
    cr_assert_eq(history.n_skipped, 0);
    cr_assert_eq(history.loss_scale, precision == STRATA_DTYPE_F16 ? 32768 : 0);
    *out_accuracy = metrics.accuracy;
    const double loss = history.epochs[11].loss;
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return loss;
}

TEST_ON_DEVICES(precision, trains_nearly_as_f32) {
    double accuracy, wanted_accuracy;
    const double wanted = trained_loss(device, STRATA_DTYPE_F32, &wanted_accuracy);
    for (int i = 0; i < 2; i++) {
        const double loss = trained_loss(device, halves[i], &accuracy);
        cr_assert_float_eq(loss, wanted, 0.02 * wanted, "%s: %g, with f32 %g", strata_dtype_name(halves[i]), loss, wanted);
        cr_assert_neq(loss, wanted, "%s computes as f32 does", strata_dtype_name(halves[i]));
        cr_assert_float_eq(accuracy, wanted_accuracy, 0.03);
    }
}

/* ---- every layer ---- */

static const char pictures[] =
    "{\"input\": [8, 8, 2], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": \"same\", "
    "\"kernel_l2\": 0.001},"
    "{\"layer\": \"batch_norm\", \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", \"size\": 2},"
    "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": "
    "\"same\"}]},"
    "{\"layer\": \"avg_pool2d\", \"size\": 2}, {\"layer\": \"activation\", \"function\": \"gelu\"}, {\"layer\": \"flatten\"},"
    "{\"layer\": \"layer_norm\"}, {\"layer\": \"dropout\", \"rate\": 0.2}, {\"layer\": \"dense\", \"units\": 3}]}";
static const char sequences[] =
    "{\"input\": [6], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 9, \"units\": 8},"
    "{\"layer\": \"conv1d\", \"filters\": 8, \"kernel_size\": 3, \"padding\": \"same\", \"activation\": \"tanh\"},"
    "{\"layer\": \"multi_head_attention\", \"heads\": 2, \"causal\": true}, {\"layer\": \"max_pool1d\", \"size\": 2},"
    "{\"layer\": \"global_average_pool\"}, {\"layer\": \"dense\", \"units\": 3, \"activation\": \"softplus\"}]}";

static void expect_it_learns(strata_device *device, const char *json, strata_dtype precision) {
    enum { N = 48 };
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_history history = {0};
    strata_array x, y;
    OK(strata_model_from_json(json, strlen(json), "test", &model, &err));
    const strata_shape one = strata_model_input_shape(model);
    strata_shape shape = {.rank = one.rank + 1, .dims = {N}};
    memcpy(shape.dims + 1, one.dims, (size_t)one.rank * sizeof(int64_t));
    const bool tokens = strata_model_input_dtype(model) == STRATA_DTYPE_I32;
    x = strata_test_random(STRATA_DTYPE_F32, shape, 0, 9, 4);
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), &y, &err));
    const int64_t size = strata_shape_elements(one);
    for (int64_t i = 0; i < N; i++) ((int32_t *)y.data)[i] = (int32_t)(((float *)x.data)[i * size] / 3.01f);
    for (int64_t i = 0; tokens && i < N * size; i++) ((int32_t *)x.data)[i] = (int32_t)((float *)x.data)[i] % 9;
    if (tokens) x.dtype = STRATA_DTYPE_I32;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    const strata_compile_options opts = with_precision(precision, strata_adam_optimizer(0.01));
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 12, .batch = 16}, &history, &err));
    cr_assert_lt(history.epochs[11].loss, 0.95 * history.epochs[0].loss, "%s: from %g to %g", strata_dtype_name(precision),
                 history.epochs[0].loss, history.epochs[11].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(precision, every_layer_computes_in_it) {
    for (int i = 0; i < 2; i++) {
        expect_it_learns(device, pictures, halves[i]);
        expect_it_learns(device, sequences, halves[i]);
    }
}

/* ---- the loss scale ---- */

/* A regression y = 4000 x with the loss mse. The gradient of the bias is the mean of -2 y, times the scale. */
static strata_model *steep_model(strata_device *device, strata_dtype precision, int accumulate, strata_dataset **out_data) {
    enum { N = 8 };
    strata_array x, y;
    strata_model *model = NULL;
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N, 1), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(N), &y, &err));
    for (int i = 0; i < N; i++) ((float *)x.data)[i] = 1, ((float *)y.data)[i] = 4000;
    OK(strata_dataset_take_arrays(&x, &y, 0, out_data, &err));
    OK(strata_model_create(STRATA_SHAPE(1), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    strata_compile_options opts = with_precision(precision, strata_sgd_optimizer(0.01, 0, false));
    opts.optimizer.gradient_accumulation_steps = accumulate;
    opts.loss = "mse";
    OK(strata_model_compile(model, device, &opts, &err));
    return model;
}

TEST_ON_DEVICES(precision, an_overflowing_step_changes_nothing_and_halves_the_scale) {
    strata_dataset *data = NULL;
    strata_history history = {0};
    strata_model *model = steep_model(device, STRATA_DTYPE_F16, 0, &data);
    const char *before = case_sha(model);
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 8}, &history, &err));
    cr_assert_eq(history.n_skipped, 1);
    cr_assert_eq(history.loss_scale, 16384);
    cr_assert(isfinite(history.losses[0]));
    cr_assert_str_eq(case_sha(model), before);
    strata_history_finish(&history);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 60, .batch = 8}, &history, &err));
    cr_assert_geq(history.n_skipped, 11, "%lld", (long long)history.n_skipped);
    /* the bias' gradient 2 * 4000 * 8 is below 65504, the largest f16; with a scale of 16 it would not be */
    cr_assert_eq(history.loss_scale, 8);
    cr_assert_lt(history.epochs[59].loss, 0.5 * history.epochs[0].loss);
    cr_assert_str_neq(case_sha(model), before);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(precision, the_scale_is_one_for_all_that_is_accumulated) {
    strata_dataset *data = NULL;
    strata_history history = {0};
    strata_model *model = steep_model(device, STRATA_DTYPE_F16, 4, &data);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 60, .batch = 2}, &history, &err));
    cr_assert_eq(history.loss_scale, 32); /* the gradient of a quarter of the examples is 2 * 1000 * 32 */
    cr_assert_lt(history.epochs[59].loss, 0.5 * history.epochs[0].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(precision, bf16_needs_no_scale) {
    strata_dataset *data = NULL;
    strata_history history = {0};
    strata_model *model = steep_model(device, STRATA_DTYPE_BF16, 0, &data);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 60, .batch = 8}, &history, &err));
    cr_assert_eq(history.n_skipped, 0);
    cr_assert_lt(history.epochs[59].loss, 0.5 * history.epochs[0].loss);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(precision, the_scale_doubles_after_2000_steps) {
    strata_dataset *data = case_dataset(20);
    strata_model *model = case_model_uncompiled();
    strata_history history = {0};
    const strata_compile_options opts = with_precision(STRATA_DTYPE_F16, strata_sgd_optimizer(1e-6, 0, false));
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 199, .batch = 2}, &history, &err));
    cr_assert_eq(history.loss_scale, 32768);
    strata_history_finish(&history);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 1, .batch = 2}, &history, &err));
    cr_assert_eq(history.loss_scale, 65536);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(precision, gradients_that_never_fit_end_the_fit) {
    strata_dataset *data = NULL;
    strata_model *model = steep_model(device, STRATA_DTYPE_F16, 0, &data);
    strata_dataset_destroy(data);
    strata_array x, y;
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1), &y, &err));
    ((float *)x.data)[0] = 1;
    ((float *)y.data)[0] = 1e6f;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = 60, .batch = 1}, NULL, &err), STRATA_DATA,
          "the f16 gradients are not finite at epoch");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- the cost of a step, and errors ---- */

TEST_ON_HOST(precision, later_steps_allocate_and_compile_nothing) {
    strata_dataset *data = case_dataset(32);
    strata_model *model = case_model_uncompiled();
    const strata_compile_options opts = with_precision(STRATA_DTYPE_F16, strata_adam_optimizer(0));
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 8}, NULL, &err));
    const strata_device_counters before = strata_device_get_counters(device);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = 8}, NULL, &err));
    cr_assert_eq(strata_device_get_counters(device).allocations, before.allocations);
    cr_assert_eq(strata_device_get_counters(device).compilations, before.compilations);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(precision, a_device_without_the_type_is_named) {
    strata_model *model = case_model_uncompiled();
    strata_compile_options opts = with_precision(STRATA_DTYPE_F16, strata_adam_optimizer(0));
    const uint32_t dtypes = device->info.dtypes;
    device->info.dtypes &= ~(1u << STRATA_DTYPE_F16);
    FAILS(strata_model_compile(model, device, &opts, &err), STRATA_UNSUPPORTED,
          "cannot store f16; every device has precision f32");
    device->info.dtypes = dtypes;
    opts.precision = STRATA_DTYPE_I32;
    FAILS(strata_model_compile(model, device, &opts, &err), STRATA_INVALID, "precision is i32; it is f32, f16 or bf16");
    opts.precision = STRATA_DTYPE_F16;
    OK(strata_model_compile(model, device, &opts, &err));
    strata_model_destroy(model);
}

/* ---- the precision in a model file ---- */

static strata_model *loaded(const char *path, strata_device *device, const strata_compile_options *opts) {
    strata_model *model = NULL;
    OK(strata_model_load(path, &model, &err));
    if (opts) OK(strata_model_compile(model, device, opts, &err));
    return model;
}

TEST_ON_HOST(precision, of_training_is_that_of_the_loaded_model) {
    const char *path = test_path("half.strata");
    strata_dataset *data = case_dataset(50);
    strata_model *model = case_model_uncompiled();
    strata_compile_options opts = with_precision(STRATA_DTYPE_BF16, strata_adam_optimizer(0.02));
    strata_metrics trained, same, other;
    OK(strata_model_compile(model, device, &opts, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 1, .batch = 16}, NULL, &err));
    OK(strata_model_evaluate(model, data, 0, &trained, &err));
    OK(strata_model_save(model, path, &err));
    strata_model *half = loaded(path, device, &(strata_compile_options){0}), *single = loaded(path, device, NULL);
    cr_assert_str_eq(strata_model_note(half, "precision"), "bf16");
    OK(strata_model_evaluate(half, data, 0, &same, &err));
    cr_assert_eq(same.loss, trained.loss);
    OK(strata_model_set_note(single, "precision", NULL, &err));
    OK(strata_model_compile(single, device, NULL, &err));
    OK(strata_model_evaluate(single, data, 0, &other, &err));
    cr_assert_neq(other.loss, trained.loss);
    cr_assert_float_eq(other.loss, trained.loss, 0.02);
    strata_dataset_destroy(data);
    strata_model_destroy(model);
    strata_model_destroy(half);
    strata_model_destroy(single);
}

TEST_ON_HOST(precision, that_a_file_makes_up_is_refused) {
    static const char *const made_up[] = {"f12", "i32"}, *const messages[] = {"its note \"precision\"", "precision is i32"};
    for (int i = 0; i < 2; i++) {
        strata_model *model = case_model_uncompiled();
        OK(strata_model_set_note(model, "precision", made_up[i], &err));
        FAILS(strata_model_compile(model, device, NULL, &err), STRATA_INVALID, messages[i]);
        strata_model_destroy(model);
    }
}
