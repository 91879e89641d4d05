/* SPDX-License-Identifier: Apache-2.0
 *
 * Drivers that compute wrong results. tests/shims/opencl_shim.c calls PoCL and changes what one kernel has written.
 * tests/shims/vulkan_shim.c calls lavapipe and changes the code of one kernel. For each kernel that training launches,
 * training must give the losses of the host, or fail with the kernel's name. */
#if STRATA_WITH_OPENCL
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/run/device.h"
#include "strata/strata.h"
#include "tests/support/folder.h"
#include "tests/support/shims.h"

TestSuite(liar, .init = test_folder_make, .fini = test_folder_remove, .timeout = 900);

enum { EXAMPLES = 20, BATCH = 12, STEPS = 4, CLASSES = 5, WORDS = 9, VOCABULARY = 23, SIDE = 8, MOST_KERNELS = 128 };

static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* ---- models and data ---- */

static void add_pictures(strata_model *model) {
    strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 6, .kernel_size = {3, 3}, .padding = "same"});
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.activation = "relu"});
    strata_model_add_max_pool2d(model, (strata_max_pool2d_options){.size = {2, 2}});
    strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 7, .kernel_size = {2, 2}, .activation = "tanh"});
    strata_model_add_avg_pool2d(model, (strata_avg_pool2d_options){.size = {2, 2}, .stride = {1, 1}});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.2});
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
}

/* The layers have enough channels for Winograd's convolutions. */
static void add_channels(strata_model *model) {
    const strata_conv2d_options same = {.filters = 16, .kernel_size = {3, 3}, .padding = "same", .activation = "relu"};
    strata_model_add_conv2d(model, same);
    strata_model_add_conv2d(model, same);
    strata_model_add_flatten(model, (strata_flatten_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
}

static void add_texts(strata_model *model) {
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = VOCABULARY, .units = 8});
    strata_model_add_layer_norm(model, (strata_layer_norm_options){0});
    strata_model_add_multi_head_attention(model, (strata_multi_head_attention_options){.heads = 2, .key_dim = 4});
    strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
    strata_model_add_dense(model, (strata_dense_options){.units = CLASSES});
}

static const struct {
    strata_shape element;
    strata_dtype dtype;
    void (*add)(strata_model *model);
    const char *optimizer;
} works[] = {
    {{3, {SIDE, SIDE, 3}}, STRATA_DTYPE_F32, add_pictures, "adam"},
    {{3, {SIDE, SIDE, 3}}, STRATA_DTYPE_F32, add_channels, "sgd"},
    {{1, {WORDS}}, STRATA_DTYPE_I32, add_texts, "rmsprop"},
};
enum { N_WORKS = sizeof works / sizeof *works };

static strata_dataset *make_data(int work) {
    strata_array x, y;
    strata_shape shape = works[work].element;
    memmove(shape.dims + 1, shape.dims, sizeof *shape.dims * (size_t)shape.rank);
    shape.dims[0] = EXAMPLES;
    shape.rank++;
    OK(strata_array_create(works[work].dtype, shape, &x, &err));
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(EXAMPLES), &y, &err));
    uint32_t random = 7;
    for (int64_t i = 0; i < strata_shape_elements(shape); i++) {
        random = random * 1664525u + 1013904223u;
        if (works[work].dtype == STRATA_DTYPE_I32)
            ((int32_t *)x.data)[i] = (int32_t)((random >> 8) % VOCABULARY);
        else
            ((float *)x.data)[i] = (float)(random >> 8) / (1 << 24);
    }
    for (int i = 0; i < EXAMPLES; i++) ((int32_t *)y.data)[i] = i * 3 % CLASSES;
    strata_dataset *data = NULL;
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    return data;
}

/* Writes the losses of some steps. The later losses show whether the earlier steps updated the parameters correctly. */
static strata_status train(strata_device *device, int work, double *losses) {
    strata_model *model = NULL;
    strata_dataset *data = make_data(work);
    strata_history history = {0};
    OK(strata_model_create(works[work].element, &model, &err));
    OK(strata_model_set_input_dtype(model, works[work].dtype, &err));
    works[work].add(model);
    strata_optimizer optimizer = {.name = works[work].optimizer, .learning_rate = 0.01};
    strata_status status =
        strata_model_compile(model, device, &(strata_compile_options){.optimizer = optimizer, .seed = 3}, &err);
    if (!status)
        status = strata_model_fit(model, data, &(strata_fit_options){.epochs = STEPS / 2, .batch = BATCH, .seed = 5}, &history,
                                  &err);
    for (int i = 0; !status && i < STEPS; i++) losses[i] = (double)history.losses[i];
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return status;
}

/* ---- the driver ---- */

typedef char kernel_name[64];
static kernel_name *launched; /* the shim's list of kernels that were launched */

static void use_shim(void) {
    char path[512];
    const char *missing = test_use_opencl_shim();
    if (missing) cr_skip_test("%s", missing);
    setenv("STRATA_OPENCL_OPTIONS", "-cl-opt-disable", 1); /* each kernel that lies leads to other programs */
    test_shim_path("opencl", path);
    void *shim = dlopen(path, RTLD_NOW);
    if (shim) launched = dlsym(shim, "strata_shim_launched");
    cr_assert(launched, "%s", dlerror());
}

static int n_warnings;
static char warning[1024]; /* the last warning */
static void count_warning(const char *message, void *user) {
    (void)user;
    snprintf(warning, sizeof warning, "%s", message);
    n_warnings++;
}

static strata_device *open_liar(const char *kernel, bool trust, bool fallback) {
    strata_device *device = NULL;
    setenv("STRATA_SHIM_LIE", kernel, 1);
    const strata_device_options opts = {
        .no_tune = true, .no_cache = true, .trust = trust, .fallback_to_host = fallback, .on_warning = count_warning};
    OK(strata_device_open("opencl:0", &opts, &device, &err));
    cr_assert(strstr(strata_device_get_info(device)->driver, "Liar"));
    n_warnings = 0;
    return device;
}

static bool equal(const double *losses, const double *wanted) {
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(losses[i] - wanted[i]) <= 2e-4 * fabs(wanted[i]))) return false;
    return true;
}

/* Writes the losses of a training on the host. */
static void expect(int work, double *wanted) {
    strata_device *host = NULL;
    OK(strata_device_open("host", NULL, &host, &err));
    OK(train(host, work, wanted));
    strata_device_close(host);
}

/* Lists every kernel that this training launches on a driver without faults, each once. */
static int list_kernels(int work, const double *wanted, kernel_name *out) {
    double losses[STEPS];
    int n = 0;
    memset(launched, 0, MOST_KERNELS * sizeof *launched);
    strata_device *device = open_liar("", true, false);
    OK(train(device, work, losses));
    strata_device_close(device);
    cr_assert(equal(losses, wanted), "an honest driver trains to other losses than the host");
    while (n < MOST_KERNELS && launched[n][0]) {
        memcpy(out[n], launched[n], sizeof *out);
        n++;
    }
    return n;
}

Test(liar, every_kernel_that_lies_is_replaced_or_refused) {
    double wanted[N_WORKS][STEPS], losses[STEPS];
    kernel_name tried[2 * MOST_KERNELS];
    int n_tried = 0, n_replaced = 0, n_refused = 0, n_missed = 0;
    use_shim();
    for (int work = 0; work < N_WORKS; work++) {
        kernel_name kernels[MOST_KERNELS];
        expect(work, wanted[work]);
        const int n = list_kernels(work, wanted[work], kernels);
        for (int k = 0; k < n; k++) {
            bool before = false;
            for (int i = 0; i < n_tried; i++) before = before || !strcmp(tried[i], kernels[k]);
            if (before) continue;
            memcpy(tried[n_tried++], kernels[k], sizeof *tried);
            strata_device *device = open_liar(kernels[k], false, false);
            const strata_status status = train(device, work, losses);
            strata_device_close(device);
            if (status) {
                n_refused++;
                cr_log_info("%s is refused", kernels[k]);
                cr_expect_eq(status, STRATA_UNSUPPORTED, "%s: %s", kernels[k], err.message);
                cr_expect(strstr(err.message, "wrongly") && strstr(err.message, "Liar"), "%s: %s", kernels[k], err.message);
            } else {
                n_replaced++;
                cr_expect(equal(losses, wanted[work]), "%s: losses %g .. %g, not %g .. %g", kernels[k], losses[0],
                          losses[STEPS - 1], wanted[work][0], wanted[work][STEPS - 1]);
                /* the shim changes no word that the kernel leaves as it is, such as those of a relu in place */
                n_missed += n_warnings == 0;
            }
        }
    }
    cr_log_info("%d kernels: %d replaced, %d refused", n_tried, n_replaced, n_refused);
    cr_expect_gt(n_tried, 20);
    cr_expect_gt(n_replaced, 5);
    cr_expect_leq(n_missed, 2, "%d kernels that lied were found by nobody", n_missed);
}

Test(liar, a_driver_that_is_trusted_trains_to_wrong_numbers) {
    double wanted[STEPS], losses[STEPS];
    use_shim();
    expect(0, wanted);
    strata_device *device = open_liar("strata_adam", true, false);
    const strata_status status = train(device, 0, losses);
    cr_assert(status || !equal(losses, wanted), "the shim does not lie, so the other cases show nothing");
    strata_device_close(device);
}

Test(liar, the_host_runs_what_no_kernel_does_rightly) {
    double wanted[STEPS], losses[STEPS];
    use_shim();
    expect(0, wanted);
    strata_device *device = open_liar("strata_copy_strided", false, false);
    cr_expect_eq(train(device, 0, losses), STRATA_UNSUPPORTED);
    cr_expect(strstr(err.message, "copy_strided") && strstr(err.message, "Liar"), "%s", err.message);
    strata_device_close(device);
    device = open_liar("strata_copy_strided", false, true);
    OK(train(device, 0, losses));
    cr_expect(equal(losses, wanted));
    cr_expect_gt(strata_device_get_counters(device).host_nodes, 0);
    strata_device_close(device);
}

/* Simulates a device that becomes faulty during training: it computes correctly until its kernels have been checked. */
static strata_status lie_from_now_on(const strata_progress *progress, void *user, strata_error *out_err) {
    (void)user;
    (void)out_err;
    if (progress->total_step == 2) setenv("STRATA_SHIM_LIE", "strata_", 1);
    return STRATA_OK;
}

Test(liar, a_device_that_goes_bad_while_it_trains_is_told) {
    for (int64_t every = -1; every <= 1; every += 2) {
        use_shim();
        strata_device *device = open_liar("", false, false);
        strata_model *model = NULL;
        strata_dataset *data = make_data(0);
        OK(strata_model_create(works[0].element, &model, &err));
        add_pictures(model);
        OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_sgd_optimizer(1e-9, 0, false)},
                                &err));
        const strata_fit_options opts = {
            .epochs = 8, .batch = EXAMPLES, .seed = 5, .check_every = every, .on_progress = lie_from_now_on};
        const strata_status status = strata_model_fit(model, data, &opts, NULL, &err);
        if (every > 0)
            cr_expect(status == STRATA_UNSUPPORTED && strstr(err.message, "on values of a training step"), "%s", err.message);
        else
            cr_expect(!status || status == STRATA_DATA, "%s",
                      err.message); /* a wrong result may make the loss infinite or NaN */
        cr_expect_eq(n_warnings, 0, "%s", warning);
        strata_model_destroy(model);
        strata_dataset_destroy(data);
        strata_device_close(device);
    }
}

/* Trains a dense layer whose values are all above 100, for some steps. */
static strata_status train_large(strata_device *device, const strata_fit_options *opts, strata_history *out_history) {
    enum { COLUMNS = 6 };
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_array x, y;
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, COLUMNS), &x, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(EXAMPLES, 1), &y, &err));
    for (int i = 0; i < EXAMPLES * COLUMNS; i++) ((float *)x.data)[i] = 1000 + (float)(i % 17);
    for (int i = 0; i < EXAMPLES; i++) ((float *)y.data)[i] = (float)(i % 3);
    OK(strata_dataset_take_arrays(&x, &y, 0, &data, &err));
    OK(strata_model_create(STRATA_SHAPE(COLUMNS), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 5});
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    const strata_compile_options how = {.loss = "mse", .seed = 4, .optimizer = {.name = "adam", .learning_rate = 1e-3}};
    OK(strata_model_compile(model, device, &how, &err));
    const strata_status status = strata_model_fit(model, data, opts, out_history, &err);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    return status;
}

/* Kernels are checked with values in [-1, 1), so only the values of a training step reveal the fault. */
Test(liar, a_device_that_is_wrong_for_some_values_alone_is_told) {
    for (int64_t every = -1; every <= 1; every += 2) {
        use_shim();
        setenv("STRATA_SHIM_ABOVE", "100", 1);
        strata_device *device = open_liar("strata_", false, false);
        const strata_fit_options opts = {.epochs = 10, .batch = EXAMPLES, .seed = 5, .check_every = every};
        const strata_status status = train_large(device, &opts, NULL);
        cr_expect_eq(status, every > 0 ? STRATA_UNSUPPORTED : STRATA_OK);
        if (every > 0) cr_expect(strstr(err.message, "on values of a training step"), "%s", err.message);
        strata_device_close(device);
    }
}

/* Every step is checked, including updates and sequences of launches. The checks must not change the losses. */
Test(liar, checks_of_an_honest_device_warn_of_nothing_and_change_nothing) {
    static const char *const devices[] = {"opencl:0", "vulkan:0"};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        strata_device *device = NULL;
        const strata_device_options opts = {.no_tune = true, .on_warning = count_warning};
        if (strata_device_open(devices[d], &opts, &device, &err)) continue;
        strata_history history[2] = {{0}, {0}};
        n_warnings = 0;
        for (int checked = 0; checked < 2; checked++)
            OK(train_large(device,
                           &(strata_fit_options){.epochs = 12, .batch = BATCH, .seed = 5, .check_every = checked ? 1 : -1},
                           &history[checked]));
        cr_expect_eq(n_warnings, 0, "%s: %s", devices[d], warning);
        for (int e = 0; e < 12; e++)
            cr_expect_eq(history[0].epochs[e].loss, history[1].epochs[e].loss, "%s: epoch %d has loss %g, and %g when checked",
                         devices[d], e, history[0].epochs[e].loss, history[1].epochs[e].loss);
        for (int k = 0; k < 2; k++) strata_history_finish(&history[k]);
        strata_device_close(device);
    }
}

/* The mean of the operands of the check is nearly 0, so its rounding error is large relative to it. The other sums are of
 * many rows. */
Test(liar, a_long_sum_is_no_lie) {
    static const char *const devices[] = {"opencl:0", "vulkan:0"};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        strata_device *device = NULL;
        const strata_device_options opts = {.no_tune = true, .cache_dir = test_path("sums"), .on_warning = count_warning};
        if (strata_device_open(devices[d], &opts, &device, &err)) continue;
        strata_graph *graph = NULL;
        strata_executable *executable = NULL;
        n_warnings = 0;
        OK(strata_graph_create(&graph, &err));
        strata_tensor *sums[] = {
            strata_reduce_mean(strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(20000000)), NULL, 0, false),
            strata_unsorted_segment_sum(strata_input(graph, "rows", STRATA_DTYPE_F32, STRATA_SHAPE(200000, 2)),
                                        strata_input(graph, "indices", STRATA_DTYPE_I32, STRATA_SHAPE(200000)), 3)};
        OK(strata_executable_create(device, sums, 2, NULL, 0, NULL, &executable, &err));
        cr_expect_eq(n_warnings, 0, "%s: %s", devices[d], warning);
        strata_executable_destroy(executable);
        strata_graph_destroy(graph);
        strata_device_close(device);
    }
}

/* ---- Vulkan ---- */

static strata_device *open_vulkan(int nth) {
    strata_device *device = NULL;
    char text[16];
    snprintf(text, sizeof text, "%d", nth);
    setenv("STRATA_SHIM_LIE_NTH", text, 1);
    const strata_device_options opts = {.no_tune = true, .no_cache = true, .on_warning = count_warning};
    OK(strata_device_open("vulkan:0", &opts, &device, &err));
    n_warnings = 0;
    return device;
}

/* Each shader module of a training in turn computes wrong results. The check must replace the kernel or refuse the device. */
Test(liar, every_vulkan_kernel_that_lies_is_replaced_or_refused, .timeout = 900) {
    double wanted[STEPS], losses[STEPS];
    int n_replaced = 0, n_refused = 0;
    const char *missing = test_use_vulkan_shim();
    char path[512];
    if (missing) cr_skip_test("%s", missing);
    test_shim_path("vulkan", path);
    void *shim = dlopen(path, RTLD_NOW);
    const int *n_modules = shim ? dlsym(shim, "strata_shim_modules") : NULL;
    cr_assert(n_modules, "%s", dlerror());
    expect(0, wanted);
    strata_device *device = open_vulkan(0);
    OK(train(device, 0, losses));
    cr_assert(equal(losses, wanted), "an honest driver trains to other losses than the host");
    cr_assert_eq(n_warnings, 0, "%s", warning);
    strata_device_close(device);
    const int n = *n_modules;
    cr_assert_gt(n, 20);
    for (int nth = 1; nth <= n; nth++) {
        device = open_vulkan(nth);
        const strata_status status = train(device, 0, losses);
        strata_device_close(device);
        n_refused += status != STRATA_OK;
        if (status) {
            cr_expect_eq(status, STRATA_UNSUPPORTED, "module %d: %s", nth, err.message);
            cr_expect(strstr(err.message, "wrongly"), "module %d: %s", nth, err.message);
            continue;
        }
        n_replaced++;
        cr_expect(equal(losses, wanted), "module %d: losses %g .. %g, not %g .. %g", nth, losses[0], losses[STEPS - 1],
                  wanted[0], wanted[STEPS - 1]);
        cr_expect_gt(n_warnings, 0, "module %d was found by nobody", nth);
    }
    cr_log_info("%d modules: %d replaced, %d refused", n, n_replaced, n_refused);
    cr_expect_gt(n_replaced, 0);
}

static bool has_launched(const char *kernel) {
    for (int k = 0; k < MOST_KERNELS && launched[k][0]; k++)
        if (!strcmp(launched[k], kernel)) return true;
    return false;
}

/* Computes the softmax of a (3, 40) tensor once. */
static void run_softmax(strata_device *device) {
    enum { ROWS = 3, COLUMNS = 40 };
    float in[ROWS * COLUMNS], out[ROWS * COLUMNS];
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    const char *name = "x";
    for (int i = 0; i < ROWS * COLUMNS; i++) in[i] = (float)(i % 7);
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), in);
    strata_array output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), out);
    OK(strata_graph_create(&graph, &err));
    strata_tensor *y = strata_softmax(strata_input(graph, name, STRATA_DTYPE_F32, input.shape));
    OK(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err));
    OK(strata_executable_run(exe, &name, &input, 1, &output, 1, &err));
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int c = 0; c < COLUMNS; c++) sum += (double)out[row * COLUMNS + c];
        cr_expect_float_eq(sum, 1, 1e-5);
    }
}

/* Opens the device with a folder for verdicts, computes a softmax, and returns whether the softmax kernel was launched. */
static bool start_again(const char *lie, bool check_again) {
    strata_device *device = NULL;
    const strata_device_options opts = {
        .no_tune = true, .cache_dir = test_path("cache"), .check_again = check_again, .on_warning = count_warning};
    setenv("STRATA_SHIM_LIE", lie, 1);
    memset(launched, 0, MOST_KERNELS * sizeof *launched);
    n_warnings = 0;
    OK(strata_device_open("opencl:0", &opts, &device, &err));
    run_softmax(device);
    strata_device_close(device);
    return has_launched("strata_softmax");
}

Test(liar, verdicts_of_two_starts_are_kept_until_devices_are_checked_again) {
    use_shim();
    for (int start = 0; start < 2; start++) {
        cr_expect(start_again("strata_softmax", false), "start %d", start);
        cr_expect_eq(n_warnings, 1, "start %d: %d warnings", start, n_warnings);
    }
    cr_expect_not(start_again("strata_softmax", false), "a kernel that is known to lie is launched again");
    cr_expect(strstr(warning, test_path("cache")) && strstr(warning, "devices --check"), "%s", warning);
    cr_expect_eq(n_warnings, 1);
    cr_expect_not(start_again("", false), "the verdict of two starts is forgotten");
    cr_expect(start_again("", true));
    cr_expect_eq(n_warnings, 0, "%s", warning);
    cr_expect(start_again("", false));
    cr_expect_eq(n_warnings, 0, "%s", warning);
}

Test(liar, one_bad_start_does_not_condemn_a_kernel) {
    use_shim();
    cr_expect(start_again("strata_softmax", false));
    for (int start = 0; start < 2; start++) {
        cr_expect(start_again("", false), "start %d", start);
        cr_expect_eq(n_warnings, 0, "%s", warning);
    }
    start_again("strata_softmax", false);
    cr_expect(start_again("strata_softmax", false), "a kernel that was right in between counts as wrong at two starts");
}

/* A product of (rows, 600) and (600, 512) that is large enough for many work-groups. */
static strata_status run_product(strata_device *device, int64_t rows, double *out_error) {
    enum { K = 600, N = 512 };
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_array a, b, c;
    const char *names[] = {"a", "b"};
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(rows, K), &a, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(K, N), &b, &err));
    OK(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(rows, N), &c, &err));
    for (int64_t i = 0; i < rows * K; i++) ((float *)a.data)[i] = (float)(i % 7 - 3) / 8;
    for (int64_t i = 0; i < K * N; i++) ((float *)b.data)[i] = (float)(i % 5 - 1) / 8;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *y = strata_matmul(strata_input(graph, "a", STRATA_DTYPE_F32, a.shape),
                                     strata_input(graph, "b", STRATA_DTYPE_F32, b.shape), false, false);
    const strata_array inputs[] = {a, b};
    strata_status status = strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err);
    if (!status) status = strata_executable_run(exe, names, inputs, 2, &c, 1, &err);
    *out_error = 0;
    for (int64_t i = 0; i < rows * N && !status; i++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
            sum += (double)((float *)a.data)[i / N * K + k] * (double)((float *)b.data)[k * N + i % N];
        *out_error = fmax(*out_error, fabs((double)((float *)c.data)[i] - sum));
    }
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_array_finish(&a);
    strata_array_finish(&b);
    strata_array_finish(&c);
    return status;
}

/* A driver that computes a product rightly for few rows, and wrongly in one of the many work-groups of a larger one. */
Test(liar, a_kernel_that_lies_at_large_sizes_and_in_one_work_group_is_found) {
    enum { FEW = 8, MANY = 203 };
    static const char *const groups[] = {"0", "1", "3"};
    double error;
    use_shim();
    setenv("STRATA_SHIM_ITEMS", "3", 1);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        setenv("STRATA_SHIM_GROUP", groups[g], 1);
        strata_device *device = open_liar("strata_", false, false);
        OK(run_product(device, FEW, &error));
        cr_expect_lt(error, 1e-3);
        cr_expect_eq(n_warnings, 0, "%s", warning);
        const strata_status status = run_product(device, MANY, &error);
        cr_expect(status || error < 1e-3, "group %s: off by %g", groups[g], error);
        cr_expect_gt(n_warnings, 0, "group %s was found by nobody", groups[g]);
        if (status) cr_expect(status == STRATA_UNSUPPORTED && strstr(err.message, "wrongly"), "%s", err.message);
        strata_device_close(device);
    }
}

/* tests/run.sh --all-drivers runs this case on Mesa's rusticl, which ends loops after 65,535 iterations, so that it multiplies
 * few rows rightly and many rows wrongly. */
Test(liar, the_installed_driver_multiplies_rightly_or_is_refused) {
    static const int64_t rows[] = {8, 100};
    strata_device *device = NULL;
    const strata_device_options opts = {.no_tune = true, .no_cache = true, .on_warning = count_warning};
    if (strata_device_open("opencl:0", &opts, &device, &err)) cr_skip_test("%s", err.message);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double error;
        const strata_status status = run_product(device, rows[i], &error);
        cr_log_info("%d rows on %s: %s", (int)rows[i], strata_device_get_info(device)->driver,
                    status ? "refused" : "multiplied");
        cr_expect(status || error < 1e-3, "%d rows: off by %g", (int)rows[i], error);
        if (status) cr_expect(status == STRATA_UNSUPPORTED && strstr(err.message, "wrongly"), "%s", err.message);
    }
    strata_device_close(device);
}

Test(liar, a_kernel_that_lies_once_is_used_and_training_begins_as_if_it_had_not) {
    double honest[STEPS], losses[STEPS];
    use_shim();
    strata_device *device = open_liar("", false, false);
    OK(train(device, 0, honest));
    strata_device_close(device);
    setenv("STRATA_SHIM_FIRST", "4", 1);
    setenv("STRATA_SHIM_LAST", "4", 1);
    device = open_liar("strata_", false, false);
    OK(train(device, 0, losses));
    strata_device_close(device);
    cr_expect_eq(n_warnings, 1);
    cr_expect(strstr(warning, "in 1 run of 3"), "%s", warning);
    for (int i = 0; i < STEPS; i++) cr_expect_eq(losses[i], honest[i]);
}

/* The device lies from the second step on. The steps take long enough for the first check by time. */
static strata_status lie_and_wait(const strata_progress *progress, void *user, strata_error *out_err) {
    if (progress->total_step >= 2) usleep(500000);
    return lie_from_now_on(progress, user, out_err);
}

Test(liar, a_device_that_goes_bad_is_found_within_ten_seconds) {
    use_shim();
    strata_device *device = open_liar("", false, false);
    strata_model *model = NULL;
    strata_dataset *data = make_data(0);
    OK(strata_model_create(works[0].element, &model, &err));
    add_pictures(model);
    const strata_compile_options how = {.optimizer = strata_sgd_optimizer(1e-9, 0, false)};
    OK(strata_model_compile(model, device, &how, &err));
    const strata_fit_options opts = {.epochs = 20, .batch = EXAMPLES, .seed = 5, .on_progress = lie_and_wait};
    cr_expect_eq(strata_model_fit(model, data, &opts, NULL, &err), STRATA_UNSUPPORTED);
    cr_expect(strstr(err.message, "on values of a training step"), "%s", err.message);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
}
#endif
