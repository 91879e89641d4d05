/* SPDX-License-Identifier: Apache-2.0
 *
 * 100 steps of each sample, on made-up data, through the bridge and on the host: the losses are the same within 1e-4. The
 * interpreter runs the small samples; jaxlib, where STRATA_TEST_JAX_PYTHON names a Python that has it, runs all of them. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/whole.h"
#include "core/model/model.h"
#include "strata/strata.h"
#include "tests/support/check.h"

typedef struct step_case {
    char name[24];
    /* Examples, and below which number labels and tokens are; 0: they are numbers. */
    int64_t batch, classes, tokens;
    int64_t shape[4];
    /* Only jaxlib is quick enough for it. */
    bool large;
    /* Of a loss; 0: 1e-4. */
    double tolerance;
} step_case;

/* The residual network's losses part from the host's after some steps: jaxlib's and OpenCL's have the same first seven digits
 * then, and the host's has others from the fourth digit on. */
static step_case cases[] = {{"linear", 4, 0, 0, {1}, false, 0},          {"regression", 4, 0, 0, {10}, false, 0},
                            {"mnist", 2, 10, 0, {28, 28}, false, 0},     {"mnist_cnn", 2, 10, 0, {28, 28, 1}, true, 0},
                            {"cifar10", 2, 10, 0, {32, 32, 3}, true, 0}, {"cifar10_resnet", 16, 10, 0, {32, 32, 3}, true, 1e-2},
                            {"imdb", 4, 2, 10000, {250}, true, 0},       {"fake_news", 4, 2, 10000, {64}, true, 0}};

enum { STEPS = 100 };

static strata_dataset *made_data(const step_case *c) {
    strata_error err = {0};
    strata_dataset *data = NULL;
    strata_shape shape = {.rank = 1, .dims = {STEPS * c->batch}};
    for (int d = 0; d < 4 && c->shape[d]; d++) shape.dims[shape.rank++] = c->shape[d];
    strata_array x =
        strata_test_random(c->tokens ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, shape, 0, c->tokens ? (double)c->tokens : 1, 11);
    strata_array y = strata_test_random(c->classes ? STRATA_DTYPE_I32 : STRATA_DTYPE_F32, STRATA_SHAPE(STEPS * c->batch), 0,
                                        c->classes ? (double)c->classes : 1, 12);
    /* Classes that can be learned: where there is nothing to learn, steps follow the noise of rounding. */
    const int64_t size = strata_shape_elements(shape) / (STEPS * c->batch);
    for (int64_t i = 0; i < STEPS * c->batch * size && c->classes && !c->tokens; i++)
        ((float *)x.data)[i] += 0.5f * (float)((i % size / 64 + 3 * ((const int32_t *)y.data)[i / size]) % c->classes);
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 1, &data, &err), STRATA_OK, "%s", err.message);
    return data;
}

/* The sample's model, compiled for the device. */
static strata_model *open_model(const step_case *c, const char *which, strata_device **out_device) {
    char path[4096];
    strata_error err = {0};
    strata_model *model = NULL;
    snprintf(path, sizeof path, "%s/samples/%s/model.json", STRATA_TEST_SOURCE_DIR, c->name);
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    static char json[1 << 16];
    const size_t n = fread(json, 1, sizeof json, file);
    fclose(file);
    cr_assert_eq(strata_device_open(which, NULL, out_device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_from_json(json, n, path, &model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_compile(model, *out_device, &(strata_compile_options){.seed = 1}, &err), STRATA_OK, "%s",
                 err.message);
    return model;
}

static void train(const step_case *c, const char *which, strata_history *history) {
    strata_error err = {0};
    strata_device *device = NULL;
    strata_model *model = open_model(c, which, &device);
    strata_dataset *data = made_data(c);
    cr_assert_eq(strata_model_fit(model, data, &(strata_fit_options){.batch = c->batch, .seed = 7}, history, &err), STRATA_OK,
                 "%s", err.message);
    cr_assert_eq(history->n_losses, STEPS);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
}

ParameterizedTestParameters(pjrt_steps, a_hundred_losses_are_the_hosts) {
    return cr_make_param_array(step_case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(step_case *c, pjrt_steps, a_hundred_losses_are_the_hosts) {
    char path[4096];
    const char *build = getenv("STRATA_BUILD_DIR"), *python = getenv("STRATA_TEST_JAX_PYTHON");
    if (!build) cr_skip_test("STRATA_BUILD_DIR does not say where the plugin was built");
    if (c->large && !python) cr_skip_test("jaxlib is not here: STRATA_TEST_JAX_PYTHON names a Python that has it");
    snprintf(path, sizeof path, "pjrt:%s/suites/pjrt_plugin.so", build);
    setenv("STRATA_PLUGINS", path, 1);
    if (python) setenv("STRATA_TEST_PJRT_ENGINE", "jaxlib", 1);
    strata_history got = {0}, want = {0};
    train(c, "host", &want);
    train(c, "pjrt:0", &got);
    for (int i = 0; i < STEPS; i++) {
        const double a = (double)got.losses[i], b = (double)want.losses[i];
        cr_assert(fabs(a - b) <= (c->tolerance > 0 ? c->tolerance : 1e-4) * fmax(1, fabs(b)),
                  "%s, step %d: the loss is %.7g, on the host %.7g", c->name, i, a, b);
    }
    strata_history_finish(&got);
    strata_history_finish(&want);
}

Test(pjrt_steps, training_evaluation_and_prediction_of_each_sample_are_lowered) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_device *device = NULL;
        strata_model *model = open_model(&cases[i], "null", &device);
        static const strata_program_kind kinds[] = {STRATA_PROGRAM_TRAIN, STRATA_PROGRAM_EVALUATE, STRATA_PROGRAM_PREDICT};
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            strata_error err = {0};
            strata_step step;
            pjrt_module module;
            cr_assert_eq(strata_model_build_step(model, kinds[k], 0, 4, &step, &err), STRATA_OK, "%s", err.message);
            const strata_status status = strata_pjrt_lower_graph(&step.output, step.output != NULL, step.updates,
                                                                 step.n_updates, (pjrt_lower_options){0}, &module, &err);
            cr_expect_eq(status, STRATA_OK, "%s, program %zu: %s", cases[i].name, k, err.message);
            cr_expect_gt(module.n_results, 0);
            strata_pjrt_module_finish(&module);
            strata_graph_destroy(step.graph);
        }
        strata_model_destroy(model);
        strata_device_close(device);
    }
}
