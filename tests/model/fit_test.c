/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: its numbers equal those of a reference in double precision, it is repeatable, and what ends it. */
#include "core/model/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/model/data.h"
#include "core/run/device.h"
#include "model_case.h"
#include "reference.h"
#include "tests/support/check.h"
#include "tests/support/patience.h"

static strata_error err;

/* ---- comparison with the reference ---- */

/* Fits n elements for some epochs, and makes the same steps with the reference, in the order of the dataset. */
static void fit_equals_reference(strata_device *device, strata_optimizer optimizer, int64_t n, int64_t batch, int epochs) {
    strata_dataset *data = case_dataset(n);
    strata_model *model = case_model(device, optimizer, 3);
    strata_history history = {0};
    reference r = {.optimizer = optimizer};
    float *x = calloc((size_t)n * CASE_INPUTS, sizeof *x);
    int32_t *y = calloc((size_t)n, sizeof *y);
    reference_take(&r, model);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = epochs, .batch = batch, .seed = 5}, &history, &err));
    int64_t steps = (n + batch - 1) / batch;
    cr_assert_eq(history.n_steps, steps * epochs);
    cr_assert_eq(history.n_epochs, epochs);
    cr_assert_eq(history.n_losses, steps * epochs);
    for (int epoch = 0, step = 0; epoch < epochs; epoch++) {
        strata_order *order = NULL;
        OK(strata_order_create(n, true, 5, (uint64_t)epoch, &order, &err));
        double losses = 0, right = 0;
        for (int64_t first = 0; first < n; first += batch, step++) {
            int64_t size = n - first < batch ? n - first : batch;
            double sums[2];
            strata_dataset_fetch(data, order, first, size, x, y);
            reference_forward(&r, x, y, size, sums, NULL);
            double loss = reference_step(&r, x, y, size);
            cr_assert_float_eq((double)history.losses[step], loss, 1e-5, "step %d: %g, not %g", step,
                               (double)history.losses[step], loss);
            losses += sums[0];
            right += sums[1];
        }
        cr_assert_float_eq(history.epochs[epoch].loss, losses / (double)n, 1e-5);
        cr_assert_float_eq(history.epochs[epoch].accuracy, right / (double)n, 1e-6);
        cr_assert_eq(history.epochs[epoch].examples, n);
        cr_assert_gt(history.epoch_seconds[epoch], 0);
        strata_order_destroy(order);
    }
    cr_assert_lt(reference_distance(&r, model), 1e-5, "%s: parameters are %g from the reference", optimizer.name,
                 reference_distance(&r, model));
    free(x);
    free(y);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(fit, sgd_equals_the_reference) {
    fit_equals_reference(device, strata_sgd_optimizer(0.5, 0, false), 22, 8, 2);
}
TEST_ON_HOST(fit, momentum_equals_the_reference) {
    fit_equals_reference(device, strata_sgd_optimizer(0.1, 0.9, false), 22, 8, 2);
}
TEST_ON_DEVICES(fit, nesterov_equals_the_reference) {
    fit_equals_reference(device, strata_sgd_optimizer(0.1, 0.9, true), 22, 8, 2);
}
TEST_ON_DEVICES(fit, adam_equals_the_reference) {
    strata_optimizer adam = {.name = "adam", .learning_rate = 0.02, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7};
    fit_equals_reference(device, adam, 22, 8, 3);
}
TEST_ON_DEVICES(fit, last_shorter_batch_is_exact) {
    fit_equals_reference(device, strata_sgd_optimizer(0.5, 0, false), 17, 16, 2); /* the last batch has one element */
    fit_equals_reference(device, strata_sgd_optimizer(0.5, 0, false), 5, 8, 2);   /* the only batch is shorter */
}
TEST_ON_HOST(fit, a_step_that_is_accumulated_says_where_it_was_not_finite) {
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(32, &x, &y);
    ((float *)x.data)[21 * CASE_INPUTS] = NAN; /* in the second batch of the second step */
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    strata_optimizer sgd = strata_sgd_optimizer(0.1, 0, false);
    sgd.gradient_accumulation_steps = 4;
    strata_model *model = case_model(device, sgd, 3), *other = case_model(device, sgd, 3);
    const strata_fit_options opts = {.batch = 4, .no_shuffle = true};
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_DATA,
          "epoch 1, step 2; the first tensor that is not is x (4,2,3)");
    strata_dataset_destroy(data);
    case_arrays(16, &x, &y); /* only the examples before it */
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    OK(strata_model_fit(other, data, &opts, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(other));
    OK(strata_model_fit(model, data, &opts, NULL, &err)); /* no gradients of the failed step are left over */
    OK(strata_model_fit(other, data, &opts, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(other));
    strata_model_destroy(model);
    strata_model_destroy(other);
    strata_dataset_destroy(data);
}
TEST_ON_HOST(fit, steps_are_updates_where_batches_are_accumulated) {
    strata_dataset *data = case_dataset(22);
    strata_optimizer adam = strata_adam_optimizer(0);
    strata_history history = {0};
    adam.gradient_accumulation_steps = 3;
    strata_model *model = case_model(device, adam, 3);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = 4}, &history, &err));
    cr_assert_eq(history.n_steps, 4);
    cr_assert_eq(history.epochs[1].examples, 22);
    strata_history_finish(&history);
    strata_model_destroy(model);
    model = case_model_uncompiled();
    adam.gradient_accumulation_steps = -1;
    FAILS(strata_model_compile(model, device, &(strata_compile_options){.optimizer = adam}, &err), STRATA_INVALID,
          "gradient_accumulation_steps is -1; it must be 1..1000000");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}
TEST_ON_HOST(fit, batch_of_one_equals_the_reference) {
    fit_equals_reference(device, strata_sgd_optimizer(0.1, 0, false), 7, 1, 1);
}

/* A regression y = x . (1, -2) by one dense unit with the loss mse, whose gradients are 2 (p - y) x. */
TEST_ON_HOST(fit, mse_equals_a_regression) {
    enum { N = 6 };
    float x[N][2] = {{1, 0}, {0, 1}, {1, 1}, {-1, 2}, {0.5f, 0.5f}, {2, -1}}, y[N], w[2] = {0, 0};
    for (int i = 0; i < N; i++) y[i] = x[i][0] - 2 * x[i][1];
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 2), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), y);
    strata_array weights = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), w);
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    strata_history history = {0};
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1, .no_bias = true});
    strata_compile_options compile = {.loss = "mse", .optimizer = strata_sgd_optimizer(0.05, 0, false)};
    OK(strata_model_compile(model, device, &compile, &err));
    OK(strata_model_set_parameter(model, 0, &weights, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 3, .batch = 4, .no_shuffle = true}, &history, &err));
    OK(strata_model_get_parameter(model, 0, &weights, &err));
    double v[2] = {0, 0};
    for (int epoch = 0; epoch < 3; epoch++)
        for (int first = 0, step = 2 * epoch; first < N; first += 4, step++) {
            int n = N - first < 4 ? N - first : 4;
            double g[2] = {0, 0}, loss = 0;
            for (int i = first; i < first + n; i++) {
                double r = (double)x[i][0] * v[0] + (double)x[i][1] * v[1] - (double)y[i];
                loss += r * r / n;
                for (int k = 0; k < 2; k++) g[k] += 2 * r * (double)x[i][k] / n;
            }
            cr_assert_float_eq((double)history.losses[step], loss, 1e-5 * (1 + loss));
            for (int k = 0; k < 2; k++) v[k] -= 0.05 * g[k];
        }
    for (int k = 0; k < 2; k++) cr_assert_float_eq((double)w[k], v[k], 1e-5);
    cr_assert_eq(history.epochs[0].accuracy, 0);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(fit, loss_falls) {
    strata_dataset *data = case_dataset(200);
    strata_model *model = case_model(device, strata_adam_optimizer(0.02), 1);
    strata_history history = {0};
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 20, .batch = 16}, &history, &err));
    cr_assert_lt(history.epochs[19].loss, 0.3 * history.epochs[0].loss);
    cr_assert_gt(history.epochs[19].accuracy, 0.9);
    cr_assert_eq(history.n_losses, 100, "of 260 steps the first 100 losses are kept");
    cr_assert_gt(history.first_step_seconds, 0);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- time ---- */

static const double COMPARISON_SECONDS = 0.2;

static strata_status compare_slowly(strata_device *device, const strata_piece *piece, strata_program *program,
                                    const strata_check_request *request, strata_error *out_err) {
    (void)device, (void)piece, (void)program, (void)request, (void)out_err;
    nanosleep(&(struct timespec){.tv_nsec = (long)(COMPARISON_SECONDS * 1e9)}, NULL);
    return STRATA_OK;
}

/* 40 examples make batches of 16, 16 and 8, so there are two programs. */
TEST_ON_HOST(fit, an_epoch_does_not_count_the_comparison_of_its_programs) {
    const strata_device_api *api = device->api;
    strata_device_api slow = *api;
    slow.check = compare_slowly;
    strata_dataset *data = case_dataset(40);
    strata_model *model = case_model(device, strata_adam_optimizer(0.02), 1);
    strata_history history = {0};
    device->api = &slow;
    const double began = strata_clock_seconds();
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = 16}, &history, &err));
    const double took = strata_clock_seconds() - began;
    device->api = api;
    cr_assert_gt(history.first_step_seconds, COMPARISON_SECONDS);
    cr_assert_leq(history.epoch_seconds[0] + history.epoch_seconds[1], took - 2 * COMPARISON_SECONDS + 1e-6);
    cr_assert(history.epoch_seconds[0] > 0 && history.epoch_seconds[1] > 0);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- repeatability ---- */

static const char *trained_sha(strata_device *device, const strata_dataset *data, uint64_t seed, strata_fit_options opts) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 8, .activation = "relu"});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.25});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    OK(strata_model_compile(model, device, &(strata_compile_options){.seed = seed}, &err));
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    const char *sha = case_sha(model);
    strata_model_destroy(model);
    return sha;
}

TEST_ON_DEVICES(fit, same_seeds_give_the_same_bits) {
    strata_dataset *data = case_dataset(50);
    strata_fit_options opts = {.epochs = 2, .batch = 16, .seed = 9}, other = opts;
    const char *first = trained_sha(device, data, 1, opts);
    cr_assert_str_eq(first, trained_sha(device, data, 1, opts));
    cr_assert_str_neq(first, trained_sha(device, data, 2, opts), "another seed of weights gave the same");
    other.seed = 10;
    cr_assert_str_neq(first, trained_sha(device, data, 1, other), "another order gave the same");
    strata_dataset_destroy(data);
}

Test(fit, no_shuffle_takes_no_seed) {
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_dataset *data = case_dataset(50);
    strata_fit_options opts = {.batch = 16, .seed = 1, .no_shuffle = true},
                       other = {.batch = 16, .seed = 2, .no_shuffle = true};
    cr_assert_str_eq(trained_sha(host, data, 1, opts), trained_sha(host, data, 1, other));
    strata_dataset_destroy(data);
    strata_device_close(host);
}

/* ---- features that are bytes ---- */

static strata_dataset *dataset_of(strata_array x, strata_array y, double scale) {
    strata_dataset *data = NULL;
    OK(strata_dataset_from_arrays(&x, &y, scale, &data, &err));
    return data;
}

/* A device with its own memory receives the bytes and converts them. It must get the same numbers as a device for which the
 * host converts them. */
TEST_ON_DEVICES(fit, bytes_train_as_the_numbers_that_they_are) {
    enum { N = 37, SIZE = 6 };
    ((strata_device_info *)strata_device_get_info(device))->unified_memory = false; /* as on a discrete GPU */
    uint8_t bytes[N * SIZE];
    float numbers[N * SIZE];
    int32_t labels[N];
    const double scale = 1.0 / 255;
    for (int i = 0; i < N * SIZE; i++) bytes[i] = (uint8_t)(i * 97 + i / 5), numbers[i] = (float)bytes[i] * (float)scale;
    for (int i = 0; i < N; i++) labels[i] = bytes[i * SIZE] % 3;
    const strata_array x = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(N, 2, 3), bytes),
                       same = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, 2, 3), numbers),
                       y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), labels);
    strata_dataset *data[] = {dataset_of(x, y, scale), dataset_of(same, y, 1)};
    const strata_fit_options opts = {.epochs = 2, .batch = 16, .seed = 9};
    cr_assert_str_eq(trained_sha(device, data[0], 1, opts), trained_sha(device, data[1], 1, opts));
    strata_model *model = case_model(device, strata_sgd_optimizer(0.1, 0, false), 3);
    strata_metrics metrics[2];
    strata_array outputs[2];
    cr_assert(strata_model_takes_bytes(model, 16));
    for (int i = 0; i < 2; i++) {
        OK(strata_model_evaluate(model, data[i], 16, &metrics[i], &err));
        OK(strata_model_predict(model, data[i], 16, &outputs[i], &err));
    }
    cr_assert_eq(metrics[0].loss, metrics[1].loss);
    cr_assert_eq(metrics[0].accuracy, metrics[1].accuracy);
    cr_assert_arr_eq(outputs[0].data, outputs[1].data, strata_array_bytes(&outputs[0]));
    for (int i = 0; i < 2; i++) {
        strata_array_finish(&outputs[i]);
        strata_dataset_destroy(data[i]);
    }
    strata_model_destroy(model);
}

/* The bytes of a pipeline are scaled after its last stage, either by the device or, where memory is shared, by the host. */
TEST_ON_DEVICES(fit, a_pipeline_of_bytes_trains_as_one_of_numbers) {
    enum { N = 21 };
    uint8_t bytes[N * 6];
    int32_t labels[N];
    for (int i = 0; i < N * 6; i++) bytes[i] = (uint8_t)(i * 89 + i / 7);
    for (int i = 0; i < N; i++) labels[i] = bytes[i * 6 + 1] % 3;
    const strata_array x = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(N, 2, 3), bytes),
                       y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(N), labels);
    const strata_fit_options opts = {.batch = 8};
    const char *sha[3];
    for (int i = 0; i < 3; i++) {
        strata_dataset *data = dataset_of(x, y, 1.0 / 255);
        ((strata_device_info *)strata_device_get_info(device))->unified_memory = i != 2;
        if (i) OK(strata_dataset_keep_bytes(data, &err));
        OK(strata_dataset_take(&data, N, &err));
        cr_assert_eq(strata_dataset_feature_dtype(data), i ? STRATA_DTYPE_U8 : STRATA_DTYPE_F32);
        sha[i] = trained_sha(device, data, 1, opts);
        strata_dataset_destroy(data);
    }
    cr_assert_str_eq(sha[0], sha[1]);
    cr_assert_str_eq(sha[0], sha[2]);
}

Test(fit, keeps_bytes_of_arrays_of_bytes_alone) {
    strata_dataset *data = case_dataset(4);
    FAILS(strata_dataset_keep_bytes(data, &err), STRATA_INVALID, "the dataset is arrays of f32; it must be arrays of u8");
    strata_dataset_destroy(data);
}

/* ---- callbacks ---- */

typedef struct told {
    strata_progress last;
    int calls, epoch_ends, with_metrics;
    int64_t stop_at;
} told;

static strata_status on_progress(const strata_progress *p, void *user, strata_error *out_err) {
    told *t = user;
    if (p->epoch_end) {
        cr_expect_eq(p->step, p->steps);
        t->epoch_ends++;
    } else {
        cr_expect_eq(p->total_step, t->last.total_step + 1, "a step was not told");
        cr_expect_eq(p->step, p->epoch == t->last.epoch && t->calls ? t->last.step + 1 : 1);
        t->with_metrics += p->metrics.examples > 0;
    }
    t->calls++;
    t->last = *p;
    return t->stop_at && p->total_step == t->stop_at ? strata_fail(out_err, STRATA_INTERRUPTED, "stop") : STRATA_OK;
}

TEST_ON_HOST(fit, callback_is_told_every_step_and_epoch) {
    strata_dataset *data = case_dataset(40);
    strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
    told t = {0};
    strata_fit_options opts = {.epochs = 3, .batch = 16, .on_progress = on_progress, .user = &t};
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_eq(t.epoch_ends, 3);
    cr_assert_eq(t.calls, 3 * 3 + 3);
    cr_assert_eq(t.with_metrics, 0, "nobody asked for metrics within an epoch");
    cr_assert(t.last.epoch == 2 && t.last.epochs == 3 && t.last.steps == 3 && t.last.metrics.examples == 40);
    t = (told){0};
    opts.metrics_seconds = 1e-9;
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_eq(t.with_metrics, 3 * 3, "each step's own sums are in the metrics");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* Plain gradient descent with one batch per epoch: the parameters must change by the rate times the gradient. */
typedef struct moved {
    strata_model *model;
    float *before;
    int epochs;
} moved;

static double distance(moved *m) {
    strata_error err = {0};
    double square = 0;
    int at = 0;
    for (int i = 0; i < strata_model_n_parameters(m->model); i++) {
        strata_array value;
        OK(strata_array_create(STRATA_DTYPE_F32, strata_model_parameter(m->model, i).shape, &value, &err));
        OK(strata_model_get_parameter(m->model, i, &value, &err));
        for (int64_t k = 0; k < strata_shape_elements(value.shape); k++, at++) {
            const double step = (double)((float *)value.data)[k] - (double)m->before[at];
            if (!strata_model_parameter(m->model, i).state) square += step * step;
            m->before[at] = ((float *)value.data)[k];
        }
        strata_array_finish(&value);
    }
    return sqrt(square);
}

static strata_status compare_norm(const strata_progress *p, void *user, strata_error *out_err) {
    (void)out_err;
    moved *m = user;
    if (!p->epoch_end) return STRATA_OK;
    const double norm = distance(m) / 0.5;
    cr_expect_float_eq(p->learning_rate, 0.5, 1e-7);
    cr_expect_float_eq(p->gradient_norm, norm, 1e-3 * norm + 1e-6, "epoch %d: %g, not %g", p->epoch, p->gradient_norm, norm);
    m->epochs++;
    return STRATA_OK;
}

TEST_ON_DEVICES(fit, gradient_norm_is_that_of_the_step) {
    strata_dataset *data = case_dataset(16);
    strata_model *model = case_model_uncompiled();
    const strata_compile_options compile = {.optimizer = strata_sgd_optimizer(0.5, 0, false), .seed = 3, .gradient_norm = true};
    OK(strata_model_compile(model, device, &compile, &err));
    moved m = {.model = model, .before = calloc(1000, sizeof(float))};
    cr_assert_not_null(m.before);
    distance(&m);
    const strata_fit_options opts = {.epochs = 3, .batch = 16, .on_progress = compare_norm, .user = &m};
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    cr_assert_eq(m.epochs, 3);
    free(m.before);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

static strata_status count_calls(const strata_progress *p, void *user, strata_error *out_err) {
    (void)out_err;
    if (!p->epoch_end) (*(int *)user)++;
    return STRATA_OK;
}

TEST_ON_HOST(fit, steps_per_execution_changes_only_how_often_it_is_told) {
    const int64_t together[] = {0, 1, 2, 7};
    const int wanted[] = {7, 7, 3, 1}; /* 7 steps per epoch */
    strata_dataset *data = case_dataset(100);
    char first[65], sha[65];
    for (int i = 0; i < 4; i++) {
        int calls = 0;
        strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
        const strata_fit_options opts = {
            .epochs = 2, .batch = 16, .steps_per_execution = together[i], .on_progress = count_calls, .user = &calls};
        OK(strata_model_fit(model, data, &opts, NULL, &err));
        OK(strata_model_sha256(model, i ? sha : first, &err));
        if (i) cr_assert_str_eq(sha, first);
        cr_assert_eq(calls, 2 * wanted[i], "%d calls for %d", calls, (int)together[i]);
        strata_model_destroy(model);
    }
    strata_dataset_destroy(data);
}

TEST_ON_HOST(fit, callback_ends_the_fit_after_its_step) {
    strata_dataset *data = case_dataset(200);
    strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
    told t = {.stop_at = 4};
    strata_history history = {0};
    strata_fit_options opts = {.epochs = 3, .batch = 16, .on_progress = on_progress, .user = &t};
    FAILS(strata_model_fit(model, data, &opts, &history, &err), STRATA_INTERRUPTED, "stop");
    cr_assert(t.calls == 4 && history.n_steps == 4 && history.n_losses == 4 && history.n_epochs == 0);
    strata_history_finish(&history);
    t = (told){0};
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_assert_eq(history.n_epochs, 3, "the model can be trained on");
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- values that are not finite ---- */

/* A model with relu, because tanh would keep the loss finite. */
static strata_model *rectified(strata_device *device) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(2, 3), &model, &err));
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 16, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = CASE_CLASSES});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0.01)}, &err));
    return model;
}

/* Checks that one step of plain gradient descent on the same examples subtracts the rate times these gradients. */
static void gradients_are_those_of_a_step(strata_model *model, const strata_dataset *data, int64_t batch) {
    enum { MOST = 16 };
    const int n = strata_model_n_parameters(model);
    strata_array before[MOST], after[MOST], gradients[MOST];
    double largest = 0;
    cr_assert_leq(n, MOST);
    for (int i = 0; i < n; i++) {
        const strata_shape shape = strata_model_parameter(model, i).shape;
        OK(strata_array_create(STRATA_DTYPE_F32, shape, &before[i], &err));
        OK(strata_array_create(STRATA_DTYPE_F32, shape, &after[i], &err));
        OK(strata_array_create(STRATA_DTYPE_F32, shape, &gradients[i], &err));
        OK(strata_model_get_parameter(model, i, &before[i], &err));
    }
    OK(strata_model_get_gradients(model, data, batch, gradients, &err));
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = batch, .steps_per_epoch = 1, .no_shuffle = true}, NULL,
                        &err));
    for (int i = 0; i < n; i++) {
        OK(strata_model_get_parameter(model, i, &after[i], &err));
        for (int64_t e = 0; e < strata_shape_elements(before[i].shape); e++) {
            const double was = ((float *)before[i].data)[e], is = ((float *)after[i].data)[e],
                         gradient = ((float *)gradients[i].data)[e];
            if (fabs(gradient) > largest) largest = fabs(gradient);
            cr_assert_float_eq(was - is, gradient, 1e-5, "%s[%lld]: %g, not %g", strata_model_parameter(model, i).name,
                               (long long)e, gradient, was - is);
        }
        strata_array_finish(&before[i]);
        strata_array_finish(&after[i]);
        strata_array_finish(&gradients[i]);
    }
    cr_assert_gt(largest, 1e-3, "all gradients are about 0");
}

TEST_ON_DEVICES(fit, gradients_that_are_shown_are_those_of_a_step) {
    strata_dataset *data = case_dataset(24);
    strata_model *model = case_model(device, strata_sgd_optimizer(1, 0, false), 3);
    gradients_are_those_of_a_step(model, data, 8);
    gradients_are_those_of_a_step(model, data, 24);
    strata_array none[8] = {{0}};
    FAILS(strata_model_get_gradients(model, data, 25, none, &err), STRATA_INVALID, "array 0 must be f32");
    FAILS(strata_model_get_gradients(model, data, 0, none, &err), STRATA_INVALID, "n is 0");
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_HOST(fit, gradients_of_a_sparse_table_are_shown_whole) {
    int32_t x[6 * 4], y[6];
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    for (int i = 0; i < 24; i++) x[i] = i * 7 % 5; /* some rows occur several times, others not at all */
    for (int i = 0; i < 6; i++) y[i] = i % 3;
    const strata_array xs = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(6, 4), x),
                       ys = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(6), y);
    OK(strata_dataset_from_arrays(&xs, &ys, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(4), &model, &err));
    OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = 9, .units = 3, .sparse = true});
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_sgd_optimizer(1, 0, false)}, &err));
    gradients_are_those_of_a_step(model, data, 6);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

TEST_ON_DEVICES(fit, infinite_pixel_is_named_and_its_step_undone) {
    strata_array x, y;
    strata_dataset *data = NULL, *before = NULL;
    case_arrays(64, &x, &y);
    strata_array first_x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8, 2, 3), x.data);
    strata_array first_y = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(8), y.data);
    OK(strata_dataset_from_arrays(&first_x, &first_y, 0, &before, &err));
    ((float *)x.data)[11 * CASE_INPUTS] = INFINITY; /* in the second batch of 8, which is not the last one */
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    strata_model *model = rectified(device), *twin = rectified(device);
    strata_history history = {0};
    strata_fit_options opts = {.epochs = 2, .batch = 8, .no_shuffle = true};
    FAILS(strata_model_fit(model, data, &opts, &history, &err), STRATA_DATA, "epoch 1, step 2");
    cr_assert_not_null(strstr(err.message, " is x (8,2,3)"), "%s", err.message);
    cr_assert_eq(history.n_steps, 1);
    strata_history_finish(&history);
    opts.epochs = 1;
    OK(strata_model_fit(twin, before, &opts, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(twin), "the parameters are not those before the step");
    /* Training continues as if the failed step had not been made. */
    OK(strata_model_fit(model, before, &opts, NULL, &err));
    OK(strata_model_fit(twin, before, &opts, NULL, &err));
    cr_assert_str_eq(case_sha(model), case_sha(twin), "training goes on otherwise after a step that was undone");
    strata_model_destroy(model);
    strata_model_destroy(twin);
    strata_dataset_destroy(data);
    strata_dataset_destroy(before);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* tanh keeps the loss of an infinite input finite, but its gradient is NaN. The next step detects it. */
TEST_ON_HOST(fit, gradient_that_was_not_finite_is_told) {
    strata_array x, y;
    strata_dataset *data = NULL;
    case_arrays(64, &x, &y);
    ((float *)x.data)[11 * CASE_INPUTS] = INFINITY;
    OK(strata_dataset_from_arrays(&x, &y, 0, &data, &err));
    strata_model *model = case_model(device, strata_adam_optimizer(0.01), 1);
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = 8, .no_shuffle = true}, NULL, &err), STRATA_DATA,
          "epoch 1, step 3; the first tensor that is not is parameters");
    cr_assert_not_null(strstr(err.message, "in an earlier step"), "%s", err.message);
    strata_model_destroy(model);
    /* When the norm of the gradients is computed, the message names the step itself, and describes the tensor and its
     * inputs. */
    model = case_model_uncompiled();
    OK(strata_model_compile(model, device, &(strata_compile_options){.gradient_norm = true, .seed = 1}, &err));
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = 8, .no_shuffle = true}, NULL, &err), STRATA_DATA,
          "epoch 1, step 2; the first tensor that is not is x (8,2,3) f32 from ");
    cr_assert_not_null(strstr(err.message, ", 1 infinite"), "%s", err.message);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

TEST_ON_HOST(fit, learning_rate_that_diverges_names_a_tensor) {
    float x[8][2], y[8], w[2];
    for (int i = 0; i < 8; i++) x[i][0] = (float)i, x[i][1] = 1, y[i] = 3;
    strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8, 2), x);
    strata_array labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8), y);
    strata_array weights = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), w);
    strata_dataset *data = NULL;
    strata_model *model = NULL;
    OK(strata_dataset_from_arrays(&features, &labels, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1, .no_bias = true});
    strata_compile_options compile = {.loss = "mse", .optimizer = strata_sgd_optimizer(10, 0, false)};
    OK(strata_model_compile(model, device, &compile, &err));
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = 100, .batch = 8}, NULL, &err), STRATA_DATA,
          "learning rate");
    cr_assert_not_null(strstr(err.message, "loss"), "%s", err.message);
    OK(strata_model_get_parameter(model, 0, &weights, &err));
    cr_assert(isfinite(w[0]) && isfinite(w[1]));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- errors ---- */

Test(fit, refuses_wrong_options_and_data) {
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    strata_dataset *data = case_dataset(20), *other = NULL;
    strata_model *bare = case_model_uncompiled(), *model = case_model(host, strata_adam_optimizer(0), 1);
    const char *before = case_sha(model);
    FAILS(strata_model_fit(bare, data, NULL, NULL, &err), STRATA_INVALID, "not compiled");
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = -1}, NULL, &err), STRATA_INVALID, "batch is -1");
    FAILS(strata_model_fit(model, data, &(strata_fit_options){.epochs = -2}, NULL, &err), STRATA_INVALID, "epochs is -2");

    float x[2][6] = {{0}}, y[2] = {0, 1};
    int32_t classes[2] = {0, 3};
    strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 6), x);
    strata_array shaped = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 3), x);
    strata_array none = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2, 3), x);
    strata_array numbers = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), y);
    strata_array labels = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(2), classes);
    strata_array no_labels = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(0), classes);
    const struct {
        const strata_array *x, *y;
        const char *message;
    } wrong[] = {{&flat, &labels, "elements are (6), the model takes (2,3)"},
                 {&shaped, NULL, "no labels"},
                 {&shaped, &numbers, "labels are f32"},
                 {&shaped, &labels, "largest label is 3; the model's classes are 0..2"},
                 {&none, &no_labels, "empty"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OK(strata_dataset_from_arrays(wrong[i].x, wrong[i].y, 0, &other, &err));
        FAILS(strata_model_fit(model, other, NULL, NULL, &err), STRATA_DATA, wrong[i].message);
        strata_dataset_destroy(other);
    }
    cr_assert_str_eq(before, case_sha(model));
    strata_model_destroy(bare);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(host);
}

TEST_ON_DEVICES(fit, batch_beyond_memory_says_what_fits) {
    strata_dataset *data = case_dataset(20);
    strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
    const int64_t batches[] = {INT64_C(1) << 36, INT64_C(1000000000000), INT64_MAX};
    const double began = strata_clock_seconds();
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        FAILS(strata_model_fit(model, data, &(strata_fit_options){.batch = batches[i]}, NULL, &err), STRATA_OUT_OF_MEMORY,
              "MiB are free");
        /* With a 32-bit size_t, all three batches are larger than a shape may be. */
        cr_assert(i == 2 || sizeof(size_t) < 8 || strstr(err.message, " needs "), "%s", err.message);
        const char *fits = strstr(err.message, "a batch of ");
        cr_assert_not_null(fits, "%s", err.message);
        int64_t batch = strtoll(fits + strlen("a batch of "), NULL, 10);
        cr_assert(batch > 1000 && batch < batches[i], "%s", err.message);
    }
    cr_assert_lt(strata_clock_seconds() - began, TEST_PATIENCE);
    /* larger than the data, but memory suffices */
    OK(strata_model_fit(model, data, &(strata_fit_options){.batch = 1000}, NULL, &err));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}

/* ---- the cost of a step ---- */

TEST_ON_DEVICES(fit, second_epoch_allocates_and_compiles_nothing) {
    strata_dataset *data = case_dataset(100);
    strata_model *model = case_model(device, strata_adam_optimizer(0), 1);
    strata_fit_options opts = {.epochs = 1, .batch = 16};
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    strata_device_counters before = strata_device_get_counters(device);
    opts.epochs = 3;
    OK(strata_model_fit(model, data, &opts, NULL, &err));
    strata_device_counters after = strata_device_get_counters(device);
    cr_assert_eq(after.allocations, before.allocations);
    cr_assert_eq(after.allocated_bytes, before.allocated_bytes);
    cr_assert_eq(after.compilations, before.compilations);
    cr_assert_eq(after.submissions - before.submissions, 3 * 7);
    cr_assert_leq(after.waits - before.waits, 3 * 7 + 3 * 4, "%d waits", (int)(after.waits - before.waits));
    strata_model_destroy(model);
    strata_dataset_destroy(data);
}
