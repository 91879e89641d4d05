/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *transpose(strata_tensor *const *x, const void *user) {
    return strata_transpose(x[0], user);
}

Test(transpose, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    const strata_array *x = strata_golden_get(golden, "x");
    expect_same((op_case){transpose, (int[]){2, 0, 3, 1}, x, 1}, *strata_golden_get(golden, "transpose_2031"));
    expect_same((op_case){transpose, (int[]){-2, 0, -1, -3}, x, 1}, *strata_golden_get(golden, "transpose_2031"));
    expect_same((op_case){transpose, NULL, x, 1}, *strata_golden_get(golden, "transpose_reversed"));
    strata_golden_destroy(golden);
}

Test(transpose, takes_every_dtype_and_eight_axes) {
    const int reversed[] = {7, 6, 5, 4, 3, 2, 1, 0};
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x = strata_test_random((strata_dtype)dtype, STRATA_SHAPE(2, 3, 1, 2, 2, 1, 3, 2), 0, 9, 1);
        strata_array y = evaluate((op_case){transpose, reversed, &x, 1});
        expect_same((op_case){transpose, reversed, &y, 1}, x); /* reversing the axes twice gives x */
        for (int64_t i = 0; i < 144; i++) {
            int64_t rest = i, at = 0, stride = 144;
            for (int d = 0; d < 8; d++) { /* axis d of x is axis 7 - d of y */
                int64_t inner = 1;
                for (int e = d + 1; e < 8; e++) inner *= x.shape.dims[e];
                int64_t position = rest / inner;
                rest %= inner;
                stride = 1;
                for (int e = 8 - d; e < 8; e++) stride *= y.shape.dims[e];
                at += position * stride;
            }
            cr_assert_eq(strata_element_get(x.dtype, x.data, i), strata_element_get(y.dtype, y.data, at));
        }
        strata_array_finish(&x);
        strata_array_finish(&y);
    }
}

Test(transpose, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 2), -1, 1, 1);
    expect_gradient((op_case){transpose, (int[]){1, 2, 0}, &x, 1});
    strata_array_finish(&x);
}

Test(transpose, rejects_what_is_no_permutation) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0);
    expect_rejected((op_case){transpose, (int[]){0, 0}, &x, 1}, "axes[1] is 0; x is (3,4)");
    expect_rejected((op_case){transpose, (int[]){0, 2}, &x, 1}, "axes[1] is 2");
    expect_rejected((op_case){transpose, (int[]){-3, 1}, &x, 1}, "axes[0] is -3");
    strata_array_finish(&x);
}

Test(transpose, of_a_matrix_is_one_launch_over_two_axes) {
    strata_array x = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(3, 4), 0);
    strata_array empty = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(3, 0), 0);
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){transpose, NULL, &x, 1}, &launch), 1);
    cr_assert_str_eq(launch.kernel, "copy_strided");
    cr_assert_str_eq(launch.variant, "b16");
    const uint32_t words[] = {12, 1, 1, 4, 3, 0, 0, 1, 4, 0, 0, 3, 1}; /* n, the sizes, the strides of x, the strides of y */
    cr_assert_eq(launch.n_words, 13);
    for (int i = 0; i < 13; i++) cr_assert_eq(launch.words[i].u32, words[i], "word %d is %u", i, launch.words[i].u32);
    cr_assert_eq(lower_to((op_case){transpose, NULL, &empty, 1}, NULL), 0);
    strata_array_finish(&x);
    strata_array_finish(&empty);
}
