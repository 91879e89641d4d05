/* SPDX-License-Identifier: Apache-2.0
 *
 * Executables on the host: what create and run refuse, slots, inputs by name. */
#include "core/run/executable.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/base/lock.h"
#include "core/run/device.h"
#include "strata/ops.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_device *device;
static strata_graph *graph;
static strata_tensor *x, *y;

static void begin(void) {
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    x = strata_input(graph, "x", f32, STRATA_SHAPE(3));
    y = strata_neg(x);
}

static void end(void) {
    strata_graph_destroy(graph);
    strata_device_close(device);
}

TestSuite(executable, .init = begin, .fini = end);

static void expect_refused(strata_tensor *const *outputs, int n, const strata_executable_options *opts, const char *words) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_executable_create(device, outputs, n, NULL, 0, opts, &exe, &err), STRATA_INVALID, "%s", err.message);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert_null(exe);
}

Test(executable, create_refuses_what_makes_no_sense) {
    strata_graph *other = NULL;
    cr_assert_eq(strata_graph_create(&other, NULL), STRATA_OK);
    strata_tensor *foreign = strata_input(other, "z", f32, STRATA_SHAPE(3)), *none = NULL;
    expect_refused(NULL, 0, NULL, "nothing");
    expect_refused(&none, 1, NULL, "NULL");
    expect_refused((strata_tensor *[]){y, foreign}, 2, NULL, "another graph");
    expect_refused(&y, 1, &(strata_executable_options){.n_slots = STRATA_MAX_SLOTS + 1}, "257");
    expect_refused(&y, 1, &(strata_executable_options){.n_slots = -1}, "-1");
    strata_add(x, strata_input(graph, "w", f32, STRATA_SHAPE(4)));
    expect_refused(&y, 1, NULL, "add");
    strata_graph_destroy(other);
}

Test(executable, the_bytes_of_a_program_that_is_too_large_do_not_wrap_around) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    strata_program_cost cost = {0};
    strata_tensor *huge = strata_neg(strata_input(graph, "huge", f32, STRATA_SHAPE(INT64_C(1) << 56)));
    cr_assert_eq(strata_executable_measure(device, &huge, 1, NULL, 0, &cost, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(cost.device_bytes, INT64_C(6) << 58, "3 slots of an input and an output");
    huge = strata_exp(huge);
    cr_assert_eq(strata_executable_create(device, &huge, 1, NULL, 0, &(strata_executable_options){.n_slots = 128}, &exe, &err),
                 STRATA_OUT_OF_MEMORY);
    cr_assert_not_null(strstr(err.message, "needs 8796093022208.0 MiB"), "%s", err.message);
}

Test(executable, a_variable_of_another_device_is_refused) {
    strata_device *second = NULL;
    strata_variable *v = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &second, NULL), STRATA_OK);
    cr_assert_eq(strata_variable_create(second, "v", f32, STRATA_SHAPE(3), &v, NULL), STRATA_OK);
    strata_tensor *sum = strata_add(x, strata_variable_read(graph, v));
    expect_refused(&sum, 1, NULL, "lives on");
    strata_variable_destroy(v);
    strata_device_close(second);
}

Test(executable, run_checks_what_it_is_fed_and_asked_for) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    float in[4] = {1, 2, 3, 4}, out[4];
    strata_array input = strata_array_view(f32, STRATA_SHAPE(3), in), output = strata_array_view(f32, STRATA_SHAPE(3), out);
    strata_array wrong = strata_array_view(f32, STRATA_SHAPE(4), in), wide = strata_array_view(f32, STRATA_SHAPE(4), out);
    const char *names[] = {"x"}, *other[] = {"y"};
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 5; i++) { /* more often than there are slots */
        cr_assert_eq(strata_executable_run(exe, names, &wrong, 1, &output, 1, &err), STRATA_INVALID);
        cr_assert(strstr(err.message, "(3)") && strstr(err.message, "(4)"), "%s", err.message);
        cr_assert_eq(strata_executable_run(exe, other, &input, 1, &output, 1, &err), STRATA_INVALID);
        cr_assert_not_null(strstr(err.message, "x is not fed"), "%s", err.message);
        cr_assert_eq(strata_executable_run(exe, names, &input, 1, &wide, 1, &err), STRATA_INVALID);
        cr_assert_eq(strata_executable_run(exe, names, &input, 1, (strata_array[]){output, output}, 2, &err), STRATA_INVALID);
    }
    cr_assert_eq(strata_executable_run(exe, names, &input, 1, &output, 1, &err), STRATA_OK, "%s", err.message);
    cr_assert_arr_eq(out, ((float[]){-1, -2, -3}), 3 * sizeof(float));
    strata_executable_destroy(exe);
}

Test(executable, a_refused_run_changes_no_variable) {
    strata_executable *exe = NULL;
    strata_variable *v = NULL;
    strata_error err = {0};
    float in[3] = {1, 2, 3}, out[4] = {0};
    strata_array input = strata_array_view(f32, STRATA_SHAPE(3), in), output = strata_array_view(f32, STRATA_SHAPE(3), out),
                 wide = strata_array_view(f32, STRATA_SHAPE(4), out);
    cr_assert_eq(strata_variable_create(device, "v", f32, STRATA_SHAPE(3), &v, NULL), STRATA_OK);
    strata_tensor *sum = strata_assign_add(strata_variable_read(graph, v), x);
    cr_assert_eq(strata_executable_create(device, &y, 1, &sum, 1, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &input, 1, &wide, 1, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "output 0 is f32 (3), the array is f32 (4)"), "%s", err.message);
    cr_assert_eq(strata_variable_get(v, &output, &err), STRATA_OK, "%s", err.message);
    cr_assert_arr_eq(out, ((float[]){0, 0, 0}), 3 * sizeof(float));
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
}

Test(executable, slots_are_a_ring_and_keep_their_outputs) {
    strata_executable *exe = NULL;
    int first, slot;
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, &(strata_executable_options){.n_slots = 2}, &exe, NULL), 0);
    cr_assert_eq(strata_executable_n_slots(exe), 2);
    cr_assert_eq(strata_executable_input_index(exe, "x"), 0);
    cr_assert_eq(strata_executable_input_index(exe, "z"), -1);
    cr_assert_eq(strata_executable_acquire(exe, &first, NULL), STRATA_OK);
    memcpy(strata_executable_input(exe, first, 0), (float[]){1, 2, 3}, 12);
    cr_assert_eq(strata_executable_submit(exe, first, NULL), STRATA_OK);
    cr_assert_eq(strata_executable_submit(exe, first, NULL), STRATA_INVALID);
    cr_assert_eq(strata_executable_acquire(exe, &slot, NULL), STRATA_OK);
    cr_assert_neq(slot, first);
    memcpy(strata_executable_input(exe, slot, 0), (float[]){4, 5, 6}, 12);
    cr_assert_eq(strata_executable_submit(exe, slot, NULL), STRATA_OK);
    cr_assert_eq(strata_executable_wait(exe, slot, NULL), STRATA_OK);
    cr_assert_eq(strata_executable_wait(exe, first, NULL), STRATA_OK);
    cr_assert_eq(((const float *)strata_executable_output(exe, first, 0))[0], -1);
    cr_assert_eq(((const float *)strata_executable_output(exe, slot, 0))[0], -4);
    cr_assert_eq(strata_executable_acquire(exe, &slot, NULL), STRATA_OK);
    cr_assert_eq(slot, first);
    cr_assert_eq(strata_executable_wait(exe, 2, NULL), STRATA_INVALID);
    strata_executable_destroy(exe);
}

/* The graph may go as soon as create returns. */
/* Otherwise another thread could never use the device again. */
Test(executable, every_call_leaves_the_device) {
    strata_executable *exe = NULL;
    strata_variable *w = NULL, *other = NULL;
    strata_error err = {0};
    float values[4] = {1, 2, 3, 4}, out[4];
    double us = 0;
    const char *const name = "x";
    const strata_array value = strata_array_view(f32, STRATA_SHAPE(3), values),
                       one = strata_array_view(f32, STRATA_SHAPE(1), values);
    const strata_array four = strata_array_view(f32, STRATA_SHAPE(4), values);
    strata_array result = strata_array_view(f32, STRATA_SHAPE(3), out);
    strata_program_cost cost = {0};
    cr_assert_not_null(device->lock);
#define LEAVES(wanted, call)                                                 \
    do {                                                                     \
        const strata_status status = (call);                                 \
        cr_expect_eq(status, wanted, "%s: %s", #call, err.message);          \
        cr_assert_eq(device->lock->depth, 0, "%s does not leave it", #call); \
    } while (0)
    LEAVES(STRATA_OK, strata_variable_create(device, "w", f32, STRATA_SHAPE(3), &w, &err));
    LEAVES(STRATA_OK, strata_variable_create(device, "other", f32, STRATA_SHAPE(3), &other, &err));
    LEAVES(STRATA_OK, strata_variable_set(w, &value, &err));
    LEAVES(STRATA_OK, strata_variable_set_as(other, w, &value, &err));
    LEAVES(STRATA_OK, strata_variable_set_range(w, 4, &one, &err));
    LEAVES(STRATA_INVALID, strata_variable_set(w, &four, &err));
    LEAVES(STRATA_OK, strata_variable_get(w, &result, &err));
    LEAVES(STRATA_OK, strata_variable_get_range(w, 0, &result, &err));
    strata_tensor *read = strata_variable_read(graph, w), *sum = strata_add(y, read), *update = strata_assign(read, y);
    LEAVES(STRATA_OK, strata_executable_measure(device, &sum, 1, NULL, 0, &cost, &err));
    LEAVES(STRATA_INVALID, strata_executable_create(device, NULL, 0, NULL, 0, NULL, &exe, &err));
    LEAVES(STRATA_OK, strata_executable_create(device, &sum, 1, &update, 1, NULL, &exe, &err));
    LEAVES(STRATA_OK, strata_executable_run(exe, &name, &value, 1, &result, 1, &err));
    LEAVES(STRATA_INVALID, strata_executable_run(exe, &name, &four, 1, &result, 1, &err));
    LEAVES(STRATA_OK, strata_executable_time_node(exe, 0, &us, &err));
    LEAVES(STRATA_OK, (strata_device_get_counters(device), STRATA_OK));
    LEAVES(STRATA_OK, (strata_executable_destroy(exe), STRATA_OK));
    LEAVES(STRATA_OK, (strata_variable_destroy(w), STRATA_OK));
    LEAVES(STRATA_OK, (strata_variable_destroy(other), STRATA_OK));
}

Test(executable, outlives_its_graph) {
    strata_executable *exe = NULL;
    float in[3] = {1, 2, 3}, out[3];
    strata_array input = strata_array_view(f32, STRATA_SHAPE(3), in), output = strata_array_view(f32, STRATA_SHAPE(3), out);
    strata_tensor *sum = strata_add(y, strata_constant(graph, &input));
    cr_assert_eq(strata_executable_create(device, &sum, 1, NULL, 0, NULL, &exe, NULL), STRATA_OK);
    strata_graph_destroy(graph);
    graph = NULL;
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &input, 1, &output, 1, NULL), STRATA_OK);
    cr_assert_arr_eq(out, ((float[]){0, 0, 0}), sizeof out);
    strata_executable_destroy(exe);
}
