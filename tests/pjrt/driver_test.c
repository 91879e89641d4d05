/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver with a plugin that works, and with one that fails or returns wrong values (plugin/plugin.c). Criterion runs
 * each case in a process of its own, so each has its own environment and its own counts of calls. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/pjrt/lower.h"
#include "backends/pjrt/plugin.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "core/run/executable.h"
#include "core/run/group.h"
#include "strata/strata.h"
#include "tests/support/check.h"

static void use_plugin(void) {
    char path[4096];
    const char *build = getenv("STRATA_BUILD_DIR");
    if (!build) cr_skip_test("STRATA_BUILD_DIR does not say where the plugin was built");
    snprintf(path, sizeof path, "pjrt:%s/suites/pjrt_plugin.so", build);
    setenv("STRATA_PLUGINS", path, 1);
    unsetenv("STRATA_TEST_PJRT_ENGINE");
}

static const char model_json[] =
    "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"activation\": \"relu\"},"
    "{\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"dense\", \"units\": 3}],"
    "\"loss\": \"sparse_categorical_crossentropy\", \"optimizer\": \"adam\"}";

/* Trains a small model, and computes its outputs and reads its weights. Returns the first error and frees everything. */
static strata_status train(const char *which, strata_history *history, strata_error *err) {
    strata_device *device = NULL;
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_metrics metrics;
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(40, 6), -1, 1, 1);
    strata_array y = strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(40), 0, 3, 2);
    strata_status status = strata_dataset_take_arrays(&x, &y, 1, &data, err);
    if (!status) status = strata_device_open(which, NULL, &device, err);
    if (!status) status = strata_model_from_json(model_json, strlen(model_json), "m", &model, err);
    if (!status) status = strata_model_compile(model, device, &(strata_compile_options){.seed = 1}, err);
    if (!status)
        status = strata_model_fit(model, data, &(strata_fit_options){.batch = 8, .epochs = 2, .seed = 3}, history, err);
    if (!status) status = strata_model_evaluate(model, data, 10, &metrics, err);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_device_close(device);
    return status;
}

Test(pjrt_driver, a_model_trains_as_on_the_host) {
    use_plugin();
    strata_history got = {0}, want = {0};
    strata_error err = {0};
    cr_assert_eq(train("pjrt:0", &got, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(train("host", &want, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(got.n_losses, want.n_losses);
    for (int i = 0; i < want.n_losses; i++)
        cr_assert_float_eq(got.losses[i], want.losses[i], 1e-5, "step %d: %g, on the host %g", i, (double)got.losses[i],
                           (double)want.losses[i]);
    strata_history_finish(&got);
    strata_history_finish(&want);
}

Test(pjrt_driver, a_value_is_what_was_set_and_what_programs_left) {
    use_plugin();
    strata_error err = {0};
    strata_device *device = NULL;
    strata_variable *variable = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, part[2] = {30, 40};
    cr_assert_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_variable_create(device, "v", STRATA_DTYPE_F32, STRATA_SHAPE(8), &variable, &err), STRATA_OK);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *v = strata_variable_read(graph, variable), *twice = strata_assign_add(v, v);
    cr_assert_eq(strata_executable_create(device, NULL, 0, &twice, 1, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    strata_array all = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8), values);
    strata_array middle = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2), part);
    cr_assert_eq(strata_variable_set(variable, &all, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(strata_executable_run(exe, NULL, NULL, 0, NULL, 0, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_variable_set_range(variable, 8, &middle, &err), STRATA_OK, "%s", err.message);
    }
    cr_assert_eq(strata_variable_get(variable, &all, &err), STRATA_OK, "%s", err.message);
    const float want[8] = {4, 8, 30, 40, 20, 24, 28, 32};
    cr_assert_arr_eq(values, want, sizeof want);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_variable_destroy(variable);
    strata_device_close(device);
}

/* Both operands of the pack are computed where the pack has them. The program behind the exchange reads the pack and both
 * parts of it, so three of its arguments lie in the same memory. */
Test(pjrt_driver, a_program_may_read_a_value_and_parts_of_it) {
    use_plugin();
    enum { N = 6, ALL = 2 * N };
    strata_error err = {0};
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    cr_assert_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N)),
                  *parts[2] = {strata_add(x, x), strata_mul(x, x)}, *pack = strata_pack(parts, (int64_t[]){0, N}, 2, ALL),
                  *sum = strata_all_reduce(strata_reduce_sum(x, NULL, 0, true), STRATA_REDUCE_SUM),
                  *outputs[3] = {strata_add(parts[1], sum), strata_add(pack, sum), strata_add(parts[0], sum)};
    cr_assert_eq(strata_executable_create_replica(device, outputs, 3, NULL, 0, NULL, NULL, &exe, &err), STRATA_OK, "%s",
                 err.message);
    strata_graph_destroy(graph);
    cr_assert_eq(strata_group_create(&exe, 1, NULL, NULL, &group, &err), STRATA_OK, "%s", err.message);
    for (int step = 0; step < 3; step++) {
        float values[N], total = 0;
        int slot = 0;
        for (int i = 0; i < N; i++) total += values[i] = (float)(i + step);
        cr_assert_eq(strata_group_acquire(group, &slot, &err), STRATA_OK);
        memcpy(strata_executable_input(exe, slot, 0), values, sizeof values);
        cr_assert_eq(strata_group_start(group, slot, step, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_group_finish(group, slot, NULL, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_group_wait(group, slot, &err), STRATA_OK, "%s", err.message);
        const float *of_second = strata_executable_output(exe, slot, 0), *of_all = strata_executable_output(exe, slot, 1),
                    *of_first = strata_executable_output(exe, slot, 2);
        for (int i = 0; i < N; i++) {
            const float twice = values[i] + values[i] + total, square = values[i] * values[i] + total;
            cr_expect(of_first[i] == twice && of_all[i] == twice, "step %d, element %d", step, i);
            cr_expect(of_second[i] == square && of_all[N + i] == square, "step %d, element %d", step, N + i);
        }
    }
    strata_group_destroy(group);
    strata_device_close(device);
}

/* XLA makes x of (1 + x) - 1, so a composition cannot find the rounding of 1 + x with it. jaxlib is XLA, where it is here. */
Test(pjrt_driver, softplus_of_negative_numbers_keeps_its_digits) {
    use_plugin();
    if (getenv("STRATA_TEST_JAX_PYTHON")) setenv("STRATA_TEST_PJRT_ENGINE", "jaxlib", 1);
    enum { N = 801 };
    strata_error err = {0};
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    float x[N], got[N] = {0};
    for (int i = 0; i < N; i++) x[i] = -20 + (float)i / 40;
    const strata_array in = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), x);
    strata_array out = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), got);
    cr_assert_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *y = strata_softplus(strata_input(graph, "x", STRATA_DTYPE_F32, in.shape));
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, (const char *const[]){"x"}, &in, 1, &out, 1, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < N; i++) {
        const double want = log1p(exp((double)x[i]));
        cr_expect_float_eq((double)got[i], want, 4e-6 * want, "softplus(%g) is %g instead of %g", (double)x[i], (double)got[i],
                           want);
    }
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

Test(pjrt_driver, several_devices_of_a_plugin_train_one_model) {
    use_plugin();
    setenv("STRATA_TEST_PJRT_DEVICES", "2", 1);
    strata_error err = {0};
    strata_strategy *strategy = NULL;
    const char *names[] = {"pjrt:0", "pjrt:1"};
    strata_model *model = NULL;
    strata_dataset *data = NULL;
    strata_history got = {0}, want = {0};
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(40, 6), -1, 1, 1);
    strata_array y = strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(40), 0, 3, 2);
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 1, &data, &err), STRATA_OK);
    cr_assert_eq(
        strata_strategy_create("mirrored", &(strata_strategy_options){.devices = names, .n_devices = 2}, &strategy, &err),
        STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_from_json(model_json, strlen(model_json), "m", &model, &err), STRATA_OK);
    cr_assert_eq(strata_model_compile(model, NULL, &(strata_compile_options){.seed = 1, .strategy = strategy}, &err), STRATA_OK,
                 "%s", err.message);
    cr_assert_eq(strata_model_fit(model, data, &(strata_fit_options){.batch = 8, .epochs = 2, .seed = 3}, &got, &err),
                 STRATA_OK, "%s", err.message);
    cr_assert_eq(train("host", &want, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < want.n_losses; i++)
        cr_assert_float_eq(got.losses[i], want.losses[i], 1e-5, "step %d: %g, on the host %g", i, (double)got.losses[i],
                           (double)want.losses[i]);
    strata_history_finish(&got);
    strata_history_finish(&want);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_strategy_destroy(strategy);
}

/* ---- calls that fail ---- */

/* Whether the driver ignores errors of this function, because there is nothing to undo, or because its text is only
 * displayed. */
static bool is_ignored(const char *function) {
    static const char *const rows[] = {"Event_Destroy",          "Client_Destroy",           "Buffer_Destroy",
                                       "Executable_Destroy",     "LoadedExecutable_Destroy", "Client_PlatformName",
                                       "Client_PlatformVersion", "DeviceDescription_Kind",   "Device_GetDescription",
                                       "Device_MemoryStats"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i], function)) return true;
    return false;
}

typedef struct failing_call {
    char function[40];
} failing_call;

ParameterizedTestParameters(pjrt_driver, each_call_that_fails_is_an_error) {
    static failing_call calls[] = {{"Plugin_Initialize"},
                                   {"Client_Create"},
                                   {"Client_AddressableDevices"},
                                   {"Client_Compile"},
                                   {"LoadedExecutable_GetExecutable"},
                                   {"Executable_NumOutputs"},
                                   {"LoadedExecutable_Execute"},
                                   {"Client_BufferFromHostBuffer"},
                                   {"Buffer_ToHostBuffer"},
                                   {"Event_Await"},
                                   {"Event_Destroy"},
                                   {"Client_Destroy"},
                                   {"Buffer_Destroy"},
                                   {"Executable_Destroy"},
                                   {"LoadedExecutable_Destroy"},
                                   {"Client_PlatformName"},
                                   {"Client_PlatformVersion"},
                                   {"DeviceDescription_Kind"},
                                   {"Device_GetDescription"},
                                   {"Device_MemoryStats"}};
    return cr_make_param_array(failing_call, calls, sizeof calls / sizeof *calls);
}

/* The counts of calls continue as long as the process lives, so one process makes the first calls fail one by one, and then
 * some of the later ones. */
ParameterizedTest(failing_call *call, pjrt_driver, each_call_that_fails_is_an_error) {
    use_plugin();
    int failures = 0;
    for (int ahead = 1; ahead <= 40; ahead += ahead < 12 ? 1 : 7) {
        char wanted[80];
        strata_error err = {0};
        strata_history history = {0};
        snprintf(wanted, sizeof wanted, "%s:+%d", call->function, ahead);
        setenv("STRATA_TEST_PJRT_FAIL", wanted, 1);
        const strata_status status = train("pjrt:0", &history, &err);
        strata_history_finish(&history);
        if (is_ignored(call->function)) {
            cr_assert_eq(status, STRATA_OK, "%s: %s", wanted, err.message);
            continue;
        }
        failures += status != STRATA_OK;
        if (status) cr_assert(strstr(err.message, "as it was told to"), "%s: %s", wanted, err.message);
    }
    if (!is_ignored(call->function)) cr_assert_gt(failures, 0, "%s never failed", call->function);
}

/* text: the error that the driver must report for this fault of the plugin. NULL: it must work. */
static void expect_load(const char *variable, const char *value, strata_status want, const char *text) {
    strata_error err = {0};
    strata_history history = {0};
    setenv(variable, value, 1);
    const strata_status status = train("pjrt:0", &history, &err);
    strata_history_finish(&history);
    unsetenv(variable);
    cr_expect_eq(status, want, "%s=%s: %s, %s", variable, value, strata_status_name(status), err.message);
    if (text) cr_expect(strstr(err.message, text), "%s=%s: %s", variable, value, err.message);
}

Test(pjrt_driver, older_and_newer_plugins_work_and_others_are_refused) {
    use_plugin();
    expect_load("STRATA_TEST_PJRT_API", "old", STRATA_OK, NULL);
    expect_load("STRATA_TEST_PJRT_API", "new", STRATA_OK, NULL);
    expect_load("STRATA_TEST_PJRT_API", "holes", STRATA_OK, NULL);
    expect_load("STRATA_TEST_PJRT_API", "ancient", STRATA_UNAVAILABLE, "version 0.40");
    expect_load("STRATA_TEST_PJRT_API", "other", STRATA_UNAVAILABLE, "version 1.90");
    expect_load("STRATA_TEST_PJRT_API", "short", STRATA_UNAVAILABLE, "its table of functions has 16 bytes");
    expect_load("STRATA_TEST_PJRT_API", "none", STRATA_UNAVAILABLE, "gives nothing");
    expect_load("STRATA_TEST_PJRT_API", "strict", STRATA_UNAVAILABLE, "Unexpected size of the arguments");
}

Test(pjrt_driver, results_of_the_wrong_number_or_size_are_refused) {
    use_plugin();
    expect_load("STRATA_TEST_PJRT_LIE", "outputs", STRATA_UNAVAILABLE, "results, the plugin gives");
    expect_load("STRATA_TEST_PJRT_LIE", "bytes", STRATA_DEVICE_LOST, "it should have");
}

Test(pjrt_driver, a_file_that_is_no_plugin_is_a_row_that_says_so) {
    strata_error err = {0};
    strata_device *device = NULL;
    setenv("STRATA_PLUGINS", "pjrt:/nonexistent.so", 1);
    cr_expect_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_UNAVAILABLE);
    cr_expect(strstr(err.message, "/nonexistent.so"), "%s", err.message);
    setenv("STRATA_PLUGINS", "pjrt:libm.so.6", 1);
    cr_expect_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_UNAVAILABLE);
    cr_expect(strstr(err.message, "exports no GetPjrtApi"), "%s", err.message);
    setenv("STRATA_PLUGINS", "", 1);
    cr_expect_eq(strata_device_open("pjrt:0", NULL, &device, &err), STRATA_UNAVAILABLE);
    cr_expect(strstr(err.message, "there is no \"pjrt:0\""), "%s", err.message);
}

/* ---- estimates ---- */

static strata_ahead_topology_estimate estimate_of(const char *name, float value) {
    strata_ahead_topology_estimate e = {.flops = -1, .seconds = -1};
    const pjrt_named_value properties[] = {
        {.name = "flops of dots", .name_size = 5, .type = PJRT_VALUE_FLOAT, .single = 64},
        {.name = name, .name_size = strlen(name), .type = PJRT_VALUE_FLOAT, .single = value}};
    strata_pjrt_read_costs(&(pjrt_cost_args){.n_properties = 2, .properties = properties}, &e);
    cr_expect_eq(e.flops, 64);
    return e;
}

Test(pjrt_estimate, ops_that_the_compiler_has_no_time_for_are_counted_and_left_out) {
    strata_ahead_topology_estimate e = estimate_of("optimal_seconds", 0.0002f);
    cr_expect(e.n_untimed == 0 && fabs(e.seconds - 0.0002) < 1e-9, "%d, %g", e.n_untimed, e.seconds);
    e = estimate_of("optimal_seconds", -2.9998f);
    cr_expect(e.n_untimed == 3 && fabs(e.seconds - 0.0002) < 3e-7, "%d, %g", e.n_untimed, e.seconds);
    e = estimate_of("optimal_seconds", NAN);
    cr_expect(e.n_untimed == 0 && e.seconds == -1, "%d, %g", e.n_untimed, e.seconds);
    e = estimate_of("optimal seconds", 1);
    cr_expect(e.n_untimed == 0 && e.seconds == -1, "%d, %g", e.n_untimed, e.seconds);
}

/* ---- ops that are lowered ---- */

static bool is_among(const strata_op *op, const strata_op *const *ops, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ops[i] == op) return true;
    return false;
}

/* A new op needs a lowering, a composition of ops that have one, or an entry in one of these lists. */
Test(strata_pjrt_lower, every_op_is_lowered_or_composed_or_listed_as_missing) {
    /* Ops that no program contains. Leaves are operands of the program. The passes replace a print node by its operand.
     * Where replicas exchange values, the core divides a program and makes the exchange itself (core/compile/segments.c);
     * only all_reduce is lowered, for programs of several replicas. */
    static const strata_op *const outside[] = {&strata_op_input,      &strata_op_constant,       &strata_op_read,
                                               &strata_op_reduce_to,  &strata_op_merge,          &strata_op_broadcast,
                                               &strata_op_all_gather, &strata_op_reduce_scatter, &strata_op_send,
                                               &strata_op_recv,       &strata_op_move,           &strata_op_print};
    /* backends/pjrt/README.md lists these ops under "What it cannot do". */
    static const strata_op *const missing[] = {&strata_op_top_k, &strata_op_fma_chain};
    for (int i = 0; i < strata_n_ops; i++) {
        const strata_op *op = strata_ops[i];
        const bool listed =
            is_among(op, outside, sizeof outside / sizeof *outside) || is_among(op, missing, sizeof missing / sizeof *missing);
        const bool is_run = strata_pjrt_row_of(op) || op->compose;
        cr_expect(is_run || listed, "%s has no row in a table of backends/pjrt, no composition, and is not listed", op->name);
        cr_expect(!is_run || !listed, "%s is listed as missing, but it is run", op->name);
    }
}
