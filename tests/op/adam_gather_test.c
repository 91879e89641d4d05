/* SPDX-License-Identifier: Apache-2.0
 *
 * adam_gather: in which graphs the fusion pass creates it (core/compile/fusion.c), that fusion changes no bit, and
 * which operands it refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/op/adam_product.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "strata/executable.h"
#include "tests/op/op_case.h"

enum { ROWS = 20011, INNER = 16, J = 40, T = 250, TABLE = ROWS * INNER, BIAS = 7, SIZE = TABLE + BIAS };

typedef struct update_case {
    bool no_fusion;
    /* The gradients are also an output. */
    bool also_read;
    /* The value of the gate. NaN prevents the update. */
    float gate;
} update_case;

/* Makes one update of the parameters, m and v, which are in `state`, SIZE elements each. Returns the number of nodes. */
static int run(strata_device *device, update_case c, float *const state[3]) {
    static const char *const names[] = {"parameters", "m", "v"};
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_variable *variables[3];
    strata_tensor *x[3], *parts[2], *adam, *outputs[1];
    strata_error err = {0};
    float seen = 0;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    for (int i = 0; i < 3; i++) {
        const strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(SIZE), state[i]);
        cr_assert_eq(strata_variable_create(device, names[i], STRATA_DTYPE_F32, STRATA_SHAPE(SIZE), &variables[i], &err),
                     STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_variable_set(variables[i], &value, &err), STRATA_OK, "%s", err.message);
        x[i] = strata_variable_read(graph, variables[i]);
    }
    strata_tensor *dy = strata_input(graph, "dy", STRATA_DTYPE_F32, STRATA_SHAPE(J, 1, INNER));
    strata_tensor *indices = strata_input(graph, "indices", STRATA_DTYPE_I32, STRATA_SHAPE(J, T));
    strata_tensor *bias = strata_input(graph, "bias", STRATA_DTYPE_F32, STRATA_SHAPE(BIAS));
    strata_tensor *step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    strata_tensor *gate = strata_input(graph, "gate", STRATA_DTYPE_F32, STRATA_SHAPE(1));
    const strata_gather_grad_attrs attrs = {.axis = 0, .size = ROWS};
    parts[0] = strata_node(NULL, &strata_op_gather_grad, 2, (strata_tensor *[]){dy, indices}, &attrs);
    parts[1] = bias;
    strata_tensor *gradients = strata_pack(parts, (int64_t[]){0, TABLE}, 2, SIZE);
    adam = strata_adam(x[0], x[1], x[2], gradients, step, gate, 0.9, 0.999, 1e-7);
    outputs[0] = strata_reduce_max(c.also_read ? gradients : bias, NULL, 0, false);
    cr_assert_eq(strata_executable_create(device, outputs, 1, &adam, 1, &(strata_executable_options){.no_fusion = c.no_fusion},
                                          &exe, &err),
                 STRATA_OK, "%s", err.message);
    const int nodes = strata_executable_get_stats(exe).n_nodes;
    float words[STRATA_STEP_WORDS] = {0.01f, 0.01f};
    strata_array in[] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(J, 1, INNER), -1, 1, 5),
                         strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(J, T), -1, ROWS / 3, 6),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(BIAS), -1, 1, 7),
                         strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), words),
                         strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1), &c.gate)},
                 got[] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &seen)};
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"dy", "indices", "bias", "step", "gate"}, in, 5, got, 1, &err),
                 STRATA_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) strata_array_finish(&in[i]);
    for (int i = 0; i < 3; i++) {
        strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(SIZE), state[i]);
        cr_assert_eq(strata_variable_get(variables[i], &value, &err), STRATA_OK, "%s", err.message);
    }
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    for (int i = 0; i < 3; i++) strata_variable_destroy(variables[i]);
    return nodes;
}

/* Sets v to values with many different mantissas, and in some rows to values whose square roots cannot be computed by
 * multiply-adds alone. */
static void set(float *const state[3]) {
    static const float odd[] = {0, 1e-45f, 1e-38f, 3e-30f, 1e-25f, 3e38f, INFINITY, 1};
    for (int i = 0; i < SIZE; i++) {
        state[0][i] = (float)(i % 101) / 50 - 1;
        state[1][i] = ldexpf((float)(i % 89) / 44 - 1, -(i % 20));
        state[2][i] = ldexpf(1 + (float)((int64_t)i * 10007 % (1 << 23)) * 0x1p-23f, -(i % 40));
        if (i / INNER % 7 == 3 && i % 5 == 0) state[2][i] = odd[i % 8];
    }
}

Test(adam_gather, is_made_where_nothing_else_reads_the_gradients_and_changes_no_bit) {
    static float memory[2][3][SIZE];
    float *fused[] = {memory[0][0], memory[0][1], memory[0][2]}, *apart[] = {memory[1][0], memory[1][1], memory[1][2]};
    strata_device *device = NULL;
    strata_error err = {0};
    if (strata_device_open("opencl:0", NULL, &device, &err)) cr_skip_test("there is no OpenCL device");
    const bool has_it = device->info.device_class == STRATA_DEVICE_CPU;
    for (int also_read = 0; also_read < 2; also_read++) {
        set(fused);
        set(apart);
        const int nodes = run(device, (update_case){.also_read = also_read, .gate = 1}, fused);
        const int all = run(device, (update_case){.also_read = also_read, .gate = 1, .no_fusion = true}, apart);
        cr_expect_eq(all - nodes, has_it && !also_read, "%d nodes of %d", nodes, all);
        for (int i = 0; i < 3; i++) cr_expect_arr_eq(fused[i], apart[i], SIZE * sizeof(float), "variable %d", i);
    }
    set(fused);
    set(apart);
    run(device, (update_case){.gate = NAN}, fused);
    for (int i = 0; i < 3; i++) cr_expect_arr_eq(fused[i], apart[i], SIZE * sizeof(float), "a closed gate, variable %d", i);
    strata_device_close(device);
}

Test(adam_gather, refuses_a_table_that_does_not_lie_in_the_gradients) {
    strata_graph *graph = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_variable *variables[3];
    strata_device *device = NULL;
    strata_tensor *x[3];
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(strata_variable_create(device, "x", STRATA_DTYPE_F32, STRATA_SHAPE(70), &variables[i], &err), STRATA_OK);
        x[i] = strata_variable_read(graph, variables[i]);
    }
    const strata_gather_grad_attrs attrs = {.axis = 0, .size = 4};
    strata_tensor *gradient = strata_input(graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(70)),
                  *step = strata_input(graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS)),
                  *gate = strata_input(graph, "gate", STRATA_DTYPE_F32, STRATA_SHAPE(1)),
                  *dy = strata_input(graph, "dy", STRATA_DTYPE_F32, STRATA_SHAPE(3, 16)),
                  *indices = strata_input(graph, "indices", STRATA_DTYPE_I32, STRATA_SHAPE(3)),
                  *adam = strata_adam(x[0], x[1], x[2], gradient, step, gate, 0.9, 0.999, 1e-7),
                  *grad = strata_node(NULL, &strata_op_gather_grad, 2, (strata_tensor *[]){dy, indices}, &attrs);
    strata_adam_gather(adam, grad, 6);
    cr_expect_eq(strata_graph_check(graph, &err), STRATA_OK, "%s", err.message);
    strata_adam_gather(adam, grad, 7);
    cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "the table is (4,16) at element 7 of gradients (70)"), "%s", err.message);
    strata_graph_destroy(graph);
    for (int i = 0; i < 3; i++) strata_variable_destroy(variables[i]);
    strata_device_close(device);
}
