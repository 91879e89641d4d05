/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_mean: its reference function, which operands it refuses, and in which graphs the fusion pass creates it
 * (core/compile/fusion.c). */
#include <criterion/criterion.h>

#include "core/op/ops.h"
#include "core/run/device.h"
#include "strata/executable.h"
#include "tests/op/op_case.h"

static strata_tensor *mean(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_node(NULL, &strata_op_gather_mean, 2, x, NULL);
}

Test(gather_mean, counts_an_index_out_of_range_as_zeros) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), (double[]){1, 2, 3, 4, 5, 6}),
                         strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 2), (double[]){0, 2, 1, 3})};
    expect_values((op_case){mean, NULL, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), (double[]){3, 4, 1.5, 2});
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
}

Test(gather_mean, refuses_indices_without_an_axis_and_means_of_nothing) {
    const strata_shape wrong[] = {{.rank = 0}, {2, {4, 0}}};
    for (int i = 0; i < 2; i++) {
        strata_graph *graph = NULL;
        strata_error err = {0};
        cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
        strata_tensor *x[] = {strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(3, 2)),
                              strata_input(graph, "indices", STRATA_DTYPE_I32, wrong[i])};
        mean(x, NULL);
        cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID);
        strata_graph_destroy(graph);
    }
}

enum { OUTER = 5, T = 250, ROWS = 40, INNER = 16 };

/* Writes the means to `out` and returns the number of nodes. also_read: another node reads the gathered rows, too. */
static int run(strata_device *device, bool also_read, bool no_fusion, float out[OUTER * INNER]) {
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    float most = 0;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *table = strata_input(graph, "table", STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, INNER));
    strata_tensor *indices = strata_input(graph, "indices", STRATA_DTYPE_I32, STRATA_SHAPE(OUTER, T));
    strata_tensor *rows = strata_gather(table, indices, 0);
    strata_tensor *outputs[] = {strata_reduce_mean(rows, (int[]){1}, 1, false),
                                strata_reduce_max(also_read ? rows : table, NULL, 0, false)};
    cr_assert_eq(
        strata_executable_create(device, outputs, 2, NULL, 0, &(strata_executable_options){.no_fusion = no_fusion}, &exe, &err),
        STRATA_OK, "%s", err.message);
    const int nodes = strata_executable_get_stats(exe).n_nodes;
    strata_array in[] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, INNER), -1, 1, 3),
                         strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(OUTER, T), -1, ROWS + 1, 4)},
                 got[] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(OUTER, INNER), out),
                          strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(), &most)};
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"table", "indices"}, in, 2, got, 2, &err), STRATA_OK, "%s",
                 err.message);
    for (int i = 0; i < 2; i++) strata_array_finish(&in[i]);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    return nodes;
}

Test(gather_mean, is_made_where_nothing_else_reads_the_rows_and_changes_no_bit) {
    float fused[OUTER * INNER], apart[OUTER * INNER];
    strata_device *device = NULL;
    strata_error err = {0};
    if (strata_device_open("opencl:0", NULL, &device, &err)) cr_skip_test("there is no OpenCL device");
    const bool has_it = device->info.device_class == STRATA_DEVICE_CPU;
    for (int also_read = 0; also_read < 2; also_read++) {
        const int nodes = run(device, also_read, false, fused), all = run(device, also_read, true, apart);
        cr_expect_eq(all - nodes, has_it && !also_read, "%d nodes of %d", nodes, all);
        cr_expect_arr_eq(fused, apart, sizeof fused);
    }
    strata_device_close(device);
}
