/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an update computes the product that is its gradient (core/compile/fusion.c): which graphs it is done in, and
 * that it changes no bit. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/run/device.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/check.h"

enum { K = 9, M = 256, N = 128, SIZE = 10 + M * N + 6 };
static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* What keeps the product from being a part of the update. */
typedef enum obstacle {
    NONE,
    GRADIENT_IS_READ,
    PACK_IS_READ,
    NO_GATE,
    CLIPPED,
    SMALL,
    NOT_ALONE,
    OF_PARAMETERS, /* an operand of the product is a part of the parameters that the update changes */
    OBSTACLES
} obstacle;

typedef struct scene {
    strata_graph *graph;
    strata_variable *variables[3];
    strata_tensor *update, *output;
} scene;

/* Adam over gradients of two parts, the larger of them a^T b. */
static void build(scene *s, strata_device *device, obstacle what) {
    static const char *const names[] = {"parameters", "m", "v"};
    strata_tensor *reads[3];
    OK(strata_graph_create(&s->graph, &err));
    for (int i = 0; i < 3; i++) {
        strata_array values = strata_test_random(f32, STRATA_SHAPE(SIZE), i == 2 ? 0.1 : -1, 1, (uint64_t)i + 1);
        OK(strata_variable_create(device, names[i], f32, STRATA_SHAPE(SIZE), &s->variables[i], &err));
        OK(strata_variable_set(s->variables[i], &values, &err));
        strata_array_finish(&values);
        reads[i] = strata_variable_read(s->graph, s->variables[i]);
    }
    const int64_t n = what == SMALL ? 32 : N;
    strata_tensor *a = strata_input(s->graph, "a", f32, STRATA_SHAPE(K, M)),
                  *b = strata_input(s->graph, "b", f32, STRATA_SHAPE(K, n));
    strata_tensor *step = strata_input(s->graph, "step", f32, STRATA_SHAPE(STRATA_STEP_WORDS)),
                  *gate = strata_slice(step, (int64_t[]){5}, (int64_t[]){1});
    if (what == OF_PARAMETERS)
        a = strata_reshape(strata_slice(reads[0], (int64_t[]){0}, (int64_t[]){K * M}), STRATA_SHAPE(K, M));
    strata_tensor *product = strata_matmul(a, b, true, false), *sums = strata_reduce_sum(b, (int[]){0}, 1, true);
    strata_tensor *parts[] = {strata_slice(strata_reshape(sums, STRATA_SHAPE(n)), (int64_t[]){0}, (int64_t[]){6}), product};
    strata_tensor *gradients =
        what == NOT_ALONE ? strata_pack(parts + 1, (int64_t[]){10}, 1, SIZE) : strata_pack(parts, (int64_t[]){0, 10}, 2, SIZE);
    strata_tensor *used = what == CLIPPED ? strata_clip(gradients, -1, 1) : gradients;
    s->update = strata_adam(reads[0], reads[1], reads[2], used, step, what == NO_GATE ? NULL : gate, 0.9, 0.999, 1e-7);
    s->output = what == GRADIENT_IS_READ ? strata_reduce_sum(product, NULL, 0, false)
                : what == PACK_IS_READ   ? strata_reduce_sum(gradients, NULL, 0, false)
                                         : strata_reduce_sum(b, NULL, 0, false);
}

/* Runs it and returns the number of nodes; the variables' bits go to `values`. */
static int run(strata_device *device, obstacle what, bool no_fusion, float values[3][SIZE]) {
    scene s = {0};
    strata_executable *exe = NULL;
    build(&s, device, what);
    OK(strata_executable_create(device, &s.output, 1, &s.update, 1, &(strata_executable_options){.no_fusion = no_fusion}, &exe,
                                &err));
    const int nodes = strata_executable_get_stats(exe).n_nodes;
    const int64_t n = what == SMALL ? 32 : N;
    float sum = 0;
    strata_array in[] = {strata_test_random(f32, STRATA_SHAPE(K, M), -1, 1, 11),
                         strata_test_random(f32, STRATA_SHAPE(K, n), -1, 1, 12),
                         strata_test_full(f32, STRATA_SHAPE(STRATA_STEP_WORDS), 0.01)},
                 out = strata_array_view(f32, STRATA_SHAPE(), &sum);
    OK(strata_executable_run(exe, (const char *[]){"a", "b", "step"}, in, 3, &out, 1, &err));
    for (int i = 0; i < 3; i++) {
        strata_array got = strata_array_view(f32, STRATA_SHAPE(SIZE), values[i]);
        OK(strata_variable_get(s.variables[i], &got, &err));
        strata_array_finish(&in[i]);
    }
    strata_executable_destroy(exe);
    for (int i = 0; i < 3; i++) strata_variable_destroy(s.variables[i]);
    strata_graph_destroy(s.graph);
    return nodes;
}

static strata_device *open_cpu(void) {
    strata_device *device = NULL;
    if (strata_device_open("opencl:0", NULL, &device, &err)) cr_skip_test("there is no OpenCL device");
    if (device->info.device_class == STRATA_DEVICE_CPU) return device;
    strata_device_close(device);
    cr_skip_test("the OpenCL device is not a CPU");
}

Test(product_update, changes_no_bit_and_is_done_where_nothing_else_reads_the_gradient) {
    static float fused[3][SIZE], apart[3][SIZE];
    strata_device *device = open_cpu();
    for (int what = 0; what < OBSTACLES; what++) {
        const int nodes = run(device, (obstacle)what, false, fused), all = run(device, (obstacle)what, true, apart);
        cr_expect_eq(all - nodes, what == NONE, "obstacle %d: %d nodes of %d", what, nodes, all);
        cr_expect_arr_eq(fused, apart, sizeof fused, "obstacle %d", what);
    }
    strata_device_close(device);
}

Test(product_update, is_not_done_where_the_device_prefers_the_parts) {
    static float fused[3][SIZE], apart[3][SIZE];
    strata_device *device = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    cr_expect_eq(run(device, NONE, false, fused), run(device, NONE, true, apart));
    cr_expect_arr_eq(fused, apart, sizeof fused);
    strata_device_close(device);
}
