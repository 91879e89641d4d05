/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "shaders/shaders.h"
#include "tests/op/op_case.h"

static strata_tensor *gather(strata_tensor *const *x, const void *user) {
    return strata_gather(x[0], x[1], *(const int *)user);
}

/* The gradient of sum(gather) with respect to x[0]. */
static strata_tensor *gather_grad(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(gather(x, user), NULL, x, 1, &dx);
    return dx;
}

static const double counting[] = {1, 2, 3, 4, 5, 6};

Test(gather, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    strata_array x[2] = {*strata_golden_get(golden, "x"), *strata_golden_get(golden, "indices")};
    strata_array first[2] = {x[0], *strata_golden_get(golden, "indices_0")};
    expect_same((op_case){gather, &(int){2}, x, 2}, *strata_golden_get(golden, "gather_2"));
    expect_same((op_case){gather, &(int){-2}, x, 2}, *strata_golden_get(golden, "gather_2"));
    expect_same((op_case){gather, &(int){0}, first, 2}, *strata_golden_get(golden, "gather_0"));
    strata_golden_destroy(golden);
}

Test(gather, reads_indices_out_of_range_as_zero) {
    const strata_dtype index_dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (int d = 0; d < 2; d++) {
        strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), counting),
                             strata_test_array(index_dtypes[d], STRATA_SHAPE(4), (double[]){2, 3, -1, 0})};
        expect_values((op_case){gather, &(int){0}, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(4, 2),
                      (double[]){5, 6, 0, 0, 0, 0, 1, 2});
        expect_values((op_case){gather_grad, &(int){0}, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(3, 2),
                      (double[]){1, 1, 0, 0, 1, 1});
        strata_array_finish(&x[0]);
        strata_array_finish(&x[1]);
    }
}

Test(gather, by_a_scalar_removes_the_axis) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_U8, STRATA_SHAPE(3, 2), counting),
                         strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(), 1)};
    expect_values((op_case){gather, &(int){1}, x, 2}, STRATA_DTYPE_U8, STRATA_SHAPE(3), (double[]){2, 4, 6});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(gather, adds_up_the_gradients_of_a_row_taken_often) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), counting),
                         strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 2), (double[]){2, 0, 2, 2})};
    expect_values((op_case){gather_grad, &(int){1}, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (double[]){1, 0, 3, 1, 0, 3});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

static strata_tensor *squared(strata_tensor *const *x, const void *user) {
    return strata_square(gather(x, user));
}

static strata_tensor *squared_grad(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(squared(x, user), NULL, x, 1, &dx);
    return dx;
}

Test(gather, agrees_with_finite_differences_twice) {
    for (int axis = 0; axis < 3; axis++) {
        strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 2), -1, 1, 1),
                             strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3), (double[]){1, 0, 1})};
        expect_gradient((op_case){squared, &axis, x, 2});
        expect_gradient((op_case){squared_grad, &axis, x, 2}); /* differentiates gather_grad */
        strata_array_finish(&x[0]);
        strata_array_finish(&x[1]);
    }
}

Test(gather, of_empty_things_is_empty_or_zero) {
    strata_array rows = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), 7);
    strata_array no_rows = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2), 0);
    strata_array no_indices = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(0), 0);
    strata_array one = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(1), 0);
    op_case none = {gather, &(int){0}, (strata_array[]){rows, no_indices}, 2};
    expect_same(none, no_rows);
    cr_assert_eq(lower_to(none, NULL), 0);
    op_case zeros = {gather, &(int){0}, (strata_array[]){no_rows, one}, 2};
    expect_values(zeros, STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), (double[]){0, 0});
    strata_launch launch;
    cr_assert_eq(lower_to(zeros, &launch), 1);
    cr_assert_str_eq(launch.kernel, "fill");
    expect_values((op_case){gather_grad, &(int){0}, (strata_array[]){rows, no_indices}, 2}, STRATA_DTYPE_F32,
                  STRATA_SHAPE(3, 2), (double[6]){0});
    strata_array_finish(&rows);
    strata_array_finish(&no_rows);
    strata_array_finish(&no_indices);
    strata_array_finish(&one);
}

Test(gather, rejects_float_indices_wrong_axes_and_too_many) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0);
    strata_array f32 = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0);
    strata_array deep = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), 0);
    expect_rejected((op_case){gather, &(int){0}, (strata_array[]){x, f32}, 2}, "indices is f32; it must be i32 or i64");
    expect_rejected((op_case){gather, &(int){2}, (strata_array[]){x, deep}, 2}, "axis is 2");
    expect_rejected((op_case){gather, &(int){0}, (strata_array[]){x, deep}, 2}, "the result would have rank 9");
    strata_array_finish(&x);
    strata_array_finish(&f32);
    strata_array_finish(&deep);
}

Test(gather, gives_its_gradient_ranges_of_rows_where_there_are_many) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1000, 16), 1),
                         strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(64, 250), 1)};
    strata_launch launches[8];
    cr_assert_eq(lower_to((op_case){gather_grad, &(int){0}, x, 2}, launches), 2);
    for (int64_t i = 0, first = 0; i < 2; first += launches[i++].words[2].u32) {
        cr_assert_str_eq(launches[i].kernel, "scatter_rows");
        cr_assert(strata_shader_find(launches[i].kernel, launches[i].variant));
        cr_assert_eq(launches[i].offsets[0], 16 * first);
        cr_assert_eq(launches[i].offsets[1], first);
        cr_assert_eq(launches[i].constants[0].value, i == 0);
    }
    cr_assert_eq(launches[0].words[2].u32 + launches[1].words[2].u32, 16000);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(gather, has_kernels_for_each_dtype_and_kind_of_index) {
    const strata_dtype index_dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        for (int d = 0; d < 2; d++) {
            strata_array x[2] = {strata_test_full((strata_dtype)dtype, STRATA_SHAPE(3, 2), 1),
                                 strata_test_full(index_dtypes[d], STRATA_SHAPE(5), 1)};
            strata_launch launch;
            cr_assert_eq(lower_to((op_case){gather, &(int){0}, x, 2}, &launch), 1);
            cr_assert(strata_shader_find(launch.kernel, launch.variant));
            cr_assert_eq(launch.words[0].u32, 10);
            cr_assert_eq(launch.words[1].u32, 3);
            cr_assert_eq(launch.words[2].u32, 2);
            cr_assert_eq(launch.words[3].u32, 5);
            if (strata_dtype_is_float((strata_dtype)dtype)) {
                cr_assert_eq(lower_to((op_case){gather_grad, &(int){0}, x, 2}, &launch), 1);
                cr_assert_str_eq(launch.kernel, "scatter_add");
                cr_assert(strata_shader_find(launch.kernel, launch.variant));
                cr_assert_eq(launch.words[0].u32, 6);
            }
            strata_array_finish(&x[0]);
            strata_array_finish(&x[1]);
        }
    }
}
