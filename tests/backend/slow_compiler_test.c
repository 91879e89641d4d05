/* SPDX-License-Identifier: Apache-2.0
 *
 * Drivers that take seconds to compile: the shims of tests/shims over PoCL and lavapipe. A warning names a slow kernel,
 * compilation beyond the time limit is an error, and waiting for it can be interrupted. Each time a thread that is still in
 * the driver remains. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "strata/strata.h"
#include "tests/support/folder.h"
#include "tests/support/patience.h"
#include "tests/support/shims.h"

TestSuite(slow_compiler, .init = test_folder_make, .fini = test_folder_remove, .timeout = 300);

static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

enum { ROWS = 3, COLUMNS = 40, HOURS = 4000 };

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int n_warnings, n_asked;
static char warning[1024];

static void take_warning(const char *message, void *user) {
    (void)user;
    snprintf(warning, sizeof warning, "%s", message);
    n_warnings++;
}

static bool stops;
static bool is_interrupted(void *user) {
    (void)user;
    n_asked++;
    return stops;
}

static const strata_device_options quick = {
    .no_tune = true, .no_cache = true, .trust = true, .on_warning = take_warning, .is_interrupted = is_interrupted};

/* A function of AddressSanitizer. NULL in other builds. */
__attribute__((weak)) void __lsan_ignore_object(const void *object);

/* Opens the device behind the shim, whose driver takes so many seconds to compile. */
static strata_device *open_slow(const char *id, strata_device_options opts, int seconds) {
    strata_device *device = NULL;
    char text[32];
    const char *missing = !strncmp(id, "vulkan", 6) ? test_use_vulkan_shim() : test_use_opencl_shim();
    if (missing) {
        cr_log_info("%s: %s", id, missing);
        return NULL;
    }
    snprintf(text, sizeof text, "%d", seconds);
    setenv("STRATA_SHIM_COMPILE_SECONDS", text, 1);
    OK(strata_device_open(id, &opts, &device, &err));
    /* A device with a thread that is still in the driver cannot be freed, so its memory must not count as a leak. */
    if (__lsan_ignore_object) __lsan_ignore_object(device);
    n_warnings = n_asked = 0;
    return device;
}

static strata_status run_softmax(strata_device *device) {
    float in[ROWS * COLUMNS] = {0}, out[ROWS * COLUMNS];
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    const char *name = "x";
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), in);
    strata_array output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), out);
    OK(strata_graph_create(&graph, &err));
    strata_tensor *y = strata_softmax(strata_input(graph, name, STRATA_DTYPE_F32, input.shape));
    strata_status status = strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err);
    if (!status) status = strata_executable_run(exe, &name, &input, 1, &output, 1, &err);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    if (!status) cr_expect_float_eq(out[0], 1.0 / COLUMNS, 1e-6);
    return status;
}

static const char *const devices[] = {"opencl:0", "vulkan:0"};
enum { N_DEVICES = sizeof devices / sizeof *devices };

Test(slow_compiler, a_kernel_that_compiles_for_long_is_named) {
    for (int d = 0; d < N_DEVICES; d++) {
        strata_device_options opts = quick;
        opts.compile_notice_seconds = 0.2;
        strata_device *device = open_slow(devices[d], opts, 1);
        if (!device) continue;
        OK(run_softmax(device));
        cr_expect_eq(n_warnings, 1, "%s: %d warnings", devices[d], n_warnings);
        cr_expect(strstr(warning, "compiling kernel softmax f32 has taken"), "%s", warning);
        strata_device_close(device);
    }
}

Test(slow_compiler, a_kernel_beyond_the_limit_is_an_error_that_suggests_another_device) {
    for (int d = 0; d < N_DEVICES; d++) {
        strata_device_options opts = quick;
        opts.compile_seconds = 0.3;
        strata_device *device = open_slow(devices[d], opts, HOURS);
        if (!device) continue;
        const double began = now_seconds();
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(run_softmax(device), STRATA_TIMEOUT);
            cr_expect(strstr(err.message, "kernel softmax f32") && strstr(err.message, "Another device"), "%s", err.message);
        }
        cr_expect_lt(now_seconds() - began, TEST_PATIENCE);
        strata_device_close(device);
    }
}

Test(slow_compiler, compiling_can_be_interrupted) {
    for (int d = 0; d < N_DEVICES; d++) {
        strata_device *device = open_slow(devices[d], quick, HOURS);
        if (!device) continue;
        stops = true;
        cr_assert_eq(run_softmax(device), STRATA_INTERRUPTED);
        cr_expect_gt(n_asked, 0);
        cr_expect(strstr(err.message, "interrupted while the driver compiled kernel softmax"), "%s", err.message);
        stops = false; /* opening the next device is not interrupted, however long it takes */
        strata_device_close(device);
    }
}

Test(slow_compiler, a_build_that_fails_without_a_message_is_tried_once_more) {
    for (int n_failing = 1; n_failing <= 2; n_failing++) {
        strata_device *device = open_slow("opencl:0", quick, 0);
        if (!device) return;
        setenv("STRATA_SHIM_BUILDS_FAIL", n_failing == 1 ? "1" : "1000", 1);
        strata_status status = run_softmax(device);
        cr_expect_eq(status, n_failing == 1 ? STRATA_OK : STRATA_UNSUPPORTED, "%s", err.message);
        strata_device_close(device);
    }
    cr_expect(strstr(err.message, "does not compile kernel softmax f32"), "%s", err.message);
}

Test(slow_compiler, options_of_the_environment_reach_the_compiler) {
    strata_device *device = open_slow("opencl:0", quick, 0);
    if (!device) return;
    setenv("STRATA_OPENCL_OPTIONS", "-Dfloat=nonsense", 1);
    cr_assert_eq(run_softmax(device), STRATA_UNSUPPORTED);
    char long_options[300] = "";
    memset(long_options, ' ', sizeof long_options - 1);
    setenv("STRATA_OPENCL_OPTIONS", long_options, 1);
    cr_assert_eq(run_softmax(device), STRATA_INVALID);
    cr_expect(strstr(err.message, "STRATA_OPENCL_OPTIONS has 299 bytes"), "%s", err.message);
    setenv("STRATA_OPENCL_OPTIONS", "-cl-opt-disable", 1);
    OK(run_softmax(device));
    strata_device_close(device);
}

Test(slow_compiler, limits_that_make_no_sense_are_refused) {
    for (int i = 0; i < 4; i++) {
        strata_device *device = NULL;
        strata_device_options opts = {0};
        *(i % 2 ? &opts.compile_seconds : &opts.compile_notice_seconds) = i < 2 ? -1 : 1e10;
        cr_assert_eq(strata_device_open("host", &opts, &device, &err), STRATA_INVALID);
        cr_expect(strstr(err.message, i % 2 ? "compile_seconds" : "compile_notice_seconds"), "%s", err.message);
    }
}

/* From the third step on the driver is slow and is_interrupted returns true. */
static strata_status lose_patience(const strata_progress *progress, void *user, strata_error *out_err) {
    (void)user;
    (void)out_err;
    char text[32];
    if (progress->total_step < 3) return STRATA_OK;
    snprintf(text, sizeof text, "%d", HOURS);
    setenv("STRATA_SHIM_COMPILE_SECONDS", text, 1);
    stops = true;
    return STRATA_OK;
}

/* The last batch has fewer examples and therefore needs another program, which is compiled then. */
Test(slow_compiler, training_that_is_interrupted_while_compiling_keeps_its_steps) {
    enum { EXAMPLES = 21, BATCH = 6, WIDTH = 3 };
    strata_device *device = open_slow("opencl:0", quick, 0);
    if (!device) return;
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_history history = {0};
    strata_array x, y;
    char sha[65];
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, WIDTH), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 1), &y, &err));
    for (int i = 0; i < EXAMPLES * WIDTH; i++) ((float *)x.data)[i] = (float)(i % 7);
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(WIDTH), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    OK(strata_model_compile(model, device, &(strata_compile_options){.loss = "mse"}, &err));
    const strata_fit_options opts = {.epochs = 2, .batch = BATCH, .wait_each_step = true, .on_progress = lose_patience};
    OK(strata_model_fit(model, data, &opts, &history, &err));
    cr_expect(history.stopped);
    cr_expect_eq(history.n_steps, 3);
    cr_expect_eq(strata_model_epoch_steps(model), 3);
    OK(strata_model_sha256(model, sha, &err)); /* the parameters can still be read */
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
}
