/* SPDX-License-Identifier: Apache-2.0
 *
 * The op print on every device: it reports the values of its operand, and does not change what the program computes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "strata/executable.h"
#include "strata/ops.h"

enum { MOST = 64, N = 6 };
static char lines[MOST][2048];
static uint64_t runs[MOST];
static strata_printed last;
static int n_lines;

static void note(const strata_printed *printed, void *user) {
    (void)user;
    cr_assert_lt(n_lines, MOST);
    snprintf(lines[n_lines], sizeof lines[0], "%s", printed->text);
    runs[n_lines++] = printed->run;
    last = *printed;
}

static void run(strata_executable *exe, const float *in, float *out) {
    strata_error err = {0};
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (void *)in);
    strata_array output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), out);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x"}, &input, 1, &output, 1, &err), STRATA_OK, "%s", err.message);
}

static void shows_values(strata_device *device) {
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    const float in[N] = {1, -2, 3, 0.5f, 4, -8}, bad[N] = {1, NAN, INFINITY, 2, -INFINITY, 6};
    float out[N];
    n_lines = 0;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3));
    strata_tensor *seen = strata_print(x, &(strata_print_options){.name = "before"});
    strata_tensor *twice = strata_print(strata_mul(seen, strata_scalar(graph, STRATA_DTYPE_F32, 2)),
                                        &(strata_print_options){.name = "twice", .every = 2, .first = 6});
    strata_tensor *y = strata_add(strata_neg(twice), seen);
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    strata_graph_destroy(graph);
    for (int i = 0; i < 3; i++) run(exe, in, out);
    if (conformance_computes(device)) {
        for (int i = 0; i < N; i++) cr_assert_eq(out[i], -in[i], "%s", device->info.id);
        cr_assert_eq(n_lines, 5);
        cr_assert_str_eq(lines[0], "before (2,3) f32 [1, -2, 3, ...] -8..4, mean -0.25");
        cr_assert_str_eq(lines[1], "twice (2,3) f32 [2, -4, 6, 1, 8, -16] -16..8, mean -0.5");
        cr_assert_str_eq(lines[2], lines[0]);
        cr_assert_str_eq(lines[4], lines[1]);
        cr_assert(runs[0] == 0 && runs[1] == 0 && runs[2] == 1 && runs[3] == 2 && runs[4] == 2);
        run(exe, bad, out);
        cr_assert_str_eq(lines[5], "before (2,3) f32 [1, nan, inf, ...] 1..6, mean 3, 1 NaN, 2 infinite");
        cr_assert(last.n_nan == 1 && last.n_infinite == 2 && last.least == 1 && last.largest == 6 && last.mean == 3);
    }
    strata_executable_destroy(exe);
}

Test(conformance_print, values_are_shown_in_order_with_what_they_are) {
    conformance_each_device(&(strata_device_options){.on_print = note}, shows_values);
}
