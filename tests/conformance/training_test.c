/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a convolutional classifier, read from JSON, on every device. The losses must be those of the host. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "strata/strata.h"
#include "tests/conformance/devices.h"
#include "tests/support/check.h"

/* The classifier of the CIFAR-10 sample, with a small learning rate. Differences of rounding between devices grow with each
 * step, and they grow faster with larger steps. */
static const char model_json[] =
    "{\"input\": [32, 32, 3], \"layers\": ["
    "{\"layer\": \"conv2d\", \"filters\": 32, \"kernel_size\": 3, \"activation\": \"relu\"},"
    "{\"layer\": \"max_pool2d\", \"size\": 2},"
    "{\"layer\": \"conv2d\", \"filters\": 64, \"kernel_size\": 3, \"activation\": \"relu\"},"
    "{\"layer\": \"max_pool2d\", \"size\": 2},"
    "{\"layer\": \"flatten\"},"
    "{\"layer\": \"dense\", \"units\": 64, \"activation\": \"relu\"},"
    "{\"layer\": \"dense\", \"units\": 10}],"
    "\"loss\": \"sparse_categorical_crossentropy\", \"optimizer\": {\"name\": \"adam\", \"learning_rate\": 0.0003}}";

enum { CLASSES = 10, BATCH = 8, STEPS = 50, PIXELS = 32 * 32 * 3 };

/* Noise and stripes, whose position is the label. */
static strata_dataset *pictures(int64_t n) {
    strata_error err = {0};
    strata_dataset *data = NULL;
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n, 32, 32, 3), 0, 0.5, 21);
    strata_array y = strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(n), 0, CLASSES, 22);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < PIXELS; k++)
            ((float *)x.data)[i * PIXELS + k] += 0.05f * (float)((k / 96 + 3 * ((const int32_t *)y.data)[i]) % CLASSES);
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 1, &data, &err), STRATA_OK, "%s", err.message);
    return data;
}

/* Writes the losses of the first steps and returns their number. */
static int train(strata_device *device, int64_t steps, strata_history *out_history) {
    strata_error err = {0};
    strata_model *model = NULL;
    strata_dataset *data = pictures(steps * BATCH);
    cr_assert_eq(strata_model_from_json(model_json, strlen(model_json), "cifar", &model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_compile(model, device, &(strata_compile_options){.seed = 1}, &err), STRATA_OK, "%s", err.message);
    const strata_fit_options fit = {.batch = BATCH, .seed = 7};
    cr_assert_eq(strata_model_fit(model, data, &fit, out_history, &err), STRATA_OK, "%s", err.message);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return out_history->n_losses;
}

static void losses_are_the_hosts(strata_device *device) {
    strata_error err = {0};
    strata_device *host = NULL;
    strata_history want = {0}, got = {0};
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(train(host, STEPS, &want), STEPS);
    cr_assert_eq(train(device, STEPS, &got), STEPS);
    for (int i = 0; i < STEPS && conformance_computes(device); i++) {
        const double a = (double)got.losses[i], b = (double)want.losses[i];
        cr_assert(fabs(a - b) <= 1e-3 * fabs(b), "step %d: the loss is %.7g, on the host %.7g", i, a, b);
    }
    cr_assert((double)want.losses[STEPS - 1] < 0.9 * (double)want.losses[0], "it does not learn");
    strata_history_finish(&want);
    strata_history_finish(&got);
    strata_device_close(host);
}

Test(conformance_training, a_convolutional_classifier_has_the_hosts_losses) {
    if (conformance_small()) cr_skip_test("training takes a simulator hours");
    conformance_each_device(&(strata_device_options){.no_tune = true}, losses_are_the_hosts);
}
