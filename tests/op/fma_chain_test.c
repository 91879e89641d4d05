/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>

#include "strata/strata.h"
#include "tests/op/op_case.h"

static strata_tensor *chain(strata_tensor *const *x, const void *user) {
    return strata_fma_chain(x[0], *(const int64_t *)user);
}

/* The closed form is v = 1 + (x - 1) 0.999^steps, because 0.001 equals 1 - 0.999 except for a rounding. */
Test(fma_chain, goes_towards_1_as_the_closed_form_says) {
    const int64_t steps = 700;
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 5), -3, 3, 1);
    strata_array y = evaluate((op_case){chain, &steps, &x, 1});
    for (int64_t i = 0; i < 15; i++) {
        double want = 1 + (strata_element_get(STRATA_DTYPE_F32, x.data, i) - 1) * pow(0.999, (double)steps);
        cr_expect_float_eq(strata_element_get(STRATA_DTYPE_F32, y.data, i), want, 1e-4, "element %d", (int)i);
    }
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(fma_chain, of_no_steps_is_x_and_of_one_is_one_fma) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3), (double[]){-2.5, 0, 1});
    expect_same((op_case){chain, (int64_t[]){0}, &x, 1}, x);
    expect_values((op_case){chain, (int64_t[]){1}, &x, 1}, STRATA_DTYPE_F32, x.shape,
                  (double[]){fmaf(-2.5f, 0.999f, 0.001f), 0.001f, 0.999f + 0.001f});
    strata_array_finish(&x);
}

Test(fma_chain, rejects_other_dtypes_and_numbers_of_steps) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0),
                 f16 = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(2), 0);
    expect_rejected((op_case){chain, (int64_t[]){-1}, &x, 1}, "steps is -1; it must be from 0 to 60000");
    expect_rejected((op_case){chain, (int64_t[]){60001}, &x, 1}, "steps is 60001");
    expect_rejected((op_case){chain, (int64_t[]){1}, &f16, 1}, "x is f16; it must be f32");
    strata_array_finish(&x);
    strata_array_finish(&f16);
}

Test(fma_chain, launches_a_work_item_for_each_eight_elements) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(17), 0),
                 empty = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0), 0);
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){chain, (int64_t[]){9}, &x, 1}, &launch), 1);
    cr_assert_eq(launch.global[0], 3);
    cr_assert_eq(launch.words[0].u32, 17);
    cr_assert_eq(launch.words[1].u32, 9);
    cr_assert_eq(lower_to((op_case){chain, (int64_t[]){9}, &empty, 1}, &launch), 0);
    strata_array_finish(&x);
    strata_array_finish(&empty);
}

static void expect_on_host(int64_t n, int64_t steps) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(n), -3, 3, (uint64_t)n), got;
    strata_array want = evaluate((op_case){chain, &steps, &x, 1});
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    const char *name = "x";
    cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, x.shape, &got, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK, "%s", err.message);
    strata_tensor *y = strata_fma_chain(strata_input(graph, name, STRATA_DTYPE_F32, x.shape), steps);
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, &name, &x, 1, &got, 1, &err), STRATA_OK, "%s", err.message);
    /* A processor without a fused multiply-add makes one more rounding in each step. */
    strata_test_result r = strata_test_compare(&got, &want, (strata_test_tolerance){1e-6 * (double)steps, 1e-6});
    cr_expect(r.ok, "n %d: %s", (int)n, r.text);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_device_close(device);
    strata_array_finish(&x);
    strata_array_finish(&got);
    strata_array_finish(&want);
}

Test(fma_chain, the_hosts_loop_covers_every_tail) {
    const int64_t sizes[] = {1, 15, 47, 48, 49, 95, 97, 383, 384, 385, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) expect_on_host(sizes[i], 1 + (int64_t)i);
}
