/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: the inputs and outputs of a segment are in memory that other segments cannot use (core/compile/segments.c). Each
 * test has one replica, so an exchange changes no value. random_graphs_test.c has more graphs. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <string.h>

#include "core/compile/passes.h"
#include "core/run/group.h"
#include "strata/ops.h"

enum { N = 64 };
static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* Runs the program with x_i = i. out: [n] room for each output. */
static void run(strata_device *device, strata_tensor *const *outputs, int n, float out[][N]) {
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    float x[N];
    int slot = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    OK(strata_executable_create_replica(device, outputs, n, NULL, 0, NULL, NULL, &exe, &err));
    OK(strata_group_create(&exe, 1, NULL, NULL, &group, &err));
    OK(strata_group_acquire(group, &slot, &err));
    strata_executable_feed(exe, slot, "x", x, sizeof x);
    OK(strata_group_start(group, slot, 0, &err));
    OK(strata_group_finish(group, slot, NULL, &err));
    OK(strata_group_wait(group, slot, &err));
    for (int i = 0; i < n; i++)
        memcpy(out[i], strata_executable_output(exe, slot, i),
               (size_t)strata_shape_elements(strata_tensor_shape(outputs[i])) * sizeof(float));
    strata_group_destroy(group);
}

Test(segments, a_slice_that_is_an_output_can_be_read_behind_an_exchange) {
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    float out[2][N];
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(N)), *y = strata_neg(x);
    strata_tensor *half = strata_slice(y, (int64_t[]){N / 2}, (int64_t[]){N / 2});
    strata_tensor *sum = strata_all_reduce(strata_square(x), STRATA_REDUCE_SUM);
    strata_tensor *later = strata_add(half, strata_slice(sum, (int64_t[]){0}, (int64_t[]){N / 2}));
    run(device, (strata_tensor *[]){half, later}, 2, out);
    for (int i = 0; i < N / 2; i++) {
        cr_expect_eq(out[0][i], (float)-(i + N / 2), "%d: %g", i, out[0][i]);
        cr_expect_eq(out[1][i], (float)(i * i - i - N / 2), "%d: %g", i, out[1][i]);
    }
    strata_graph_destroy(graph);
    strata_device_close(device);
}

/* The pack is the operand of the exchange, as packed gradients are. */
Test(segments, a_part_of_a_pack_can_be_read_behind_the_exchange_of_the_pack) {
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    float out[1][N];
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(N)), *part = strata_neg(x), *other = strata_square(x);
    strata_tensor *pack = strata_pack((strata_tensor *[]){part, other}, (int64_t[]){0, N}, 2, 2 * N);
    strata_tensor *sum = strata_all_reduce(pack, STRATA_REDUCE_SUM);
    strata_tensor *second = strata_slice(sum, (int64_t[]){N}, (int64_t[]){N}), *y = strata_sub(second, part);
    run(device, &y, 1, out);
    for (int i = 0; i < N; i++) cr_expect_eq(out[0][i], (float)(i * i + i), "%d: %g", i, out[0][i]);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

/* The program is built from graphs that passes make of the user's graph, and they read what belongs to it. Freed memory is
 * filled, so that a use of it shows. */
Test(segments, the_program_outlives_the_graph_that_it_was_made_from) {
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0x5A);
#endif
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    float x[N];
    int slot = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_graph_create(&graph, &err));
    strata_tensor *input = strata_input(graph, "x", f32, STRATA_SHAPE(N));
    strata_tensor *square = strata_reshape(strata_square(input), STRATA_SHAPE(8, 8));
    strata_tensor *sum = strata_all_reduce(strata_clip(square, -2, 900), STRATA_REDUCE_SUM);
    strata_tensor *turned = strata_transpose(sum, (int[]){1, 0});
    strata_tensor *half = strata_slice(turned, (int64_t[]){4, 0}, (int64_t[]){4, 8});
    strata_tensor *out = strata_reduce_sum(strata_pad(half, (int64_t[]){1, 0}, (int64_t[]){0, 2}, 3), (int[]){0}, 1, false);
    OK(strata_executable_create_replica(device, &out, 1, NULL, 0, NULL, NULL, &exe, &err));
    strata_graph_destroy(graph);
    OK(strata_group_create(&exe, 1, NULL, NULL, &group, &err));
    OK(strata_group_acquire(group, &slot, &err));
    strata_executable_feed(exe, slot, "x", x, sizeof x);
    OK(strata_group_start(group, slot, 0, &err));
    OK(strata_group_finish(group, slot, NULL, &err));
    OK(strata_group_wait(group, slot, &err));
    const float *got = strata_executable_output(exe, slot, 0);
    for (int c = 0; c < 10; c++) {
        double want = 3; /* a row of padding */
        for (int r = 4; r < 8; r++) want += c < 8 ? fmin(900, (c * 8 + r) * (c * 8 + r)) : 3;
        cr_expect_float_eq((double)got[c], want, 1e-3, "%d: %g", c, (double)got[c]);
    }
    strata_group_destroy(group);
    strata_device_close(device);
}
