/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/op/op_case.h"

static strata_tensor *clip(strata_tensor *const *x, const void *user) {
    const double *bounds = user;
    return strata_clip(x[0], bounds[0], bounds[1]);
}

static const double one_to_three[2] = {1, 3};

Test(clip, keeps_values_within_the_bounds_and_nan) {
    const double values[] = {-INFINITY, 0.5, 1, 2, 3, 3.5, INFINITY, NAN}, want[] = {1, 1, 1, 2, 3, 3, 3, NAN};
    for (int d = 0; d < 3; d++) {
        strata_array x = strata_test_array(float_dtypes[d], STRATA_SHAPE(8), values);
        expect_values((op_case){clip, one_to_three, &x, 1}, float_dtypes[d], x.shape, want);
        strata_array_finish(&x);
    }
}

Test(clip, takes_integers_and_bounds_beyond_them) {
    const double values[] = {INT32_MIN, -4, 4, INT32_MAX};
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(4), values);
    expect_values((op_case){clip, one_to_three, &x, 1}, STRATA_DTYPE_I32, x.shape, (double[]){1, 1, 3, 3});
    expect_values((op_case){clip, (double[]){-INFINITY, 1e12}, &x, 1}, STRATA_DTYPE_I32, x.shape, values);
    strata_array_finish(&x);
}

Test(clip, clips_i64_at_bounds_that_no_i32_holds) {
    int64_t values[] = {INT64_MIN, (INT64_C(1) << 53) + 1, INT64_MAX};
    int64_t want[] = {-INT64_C(5000000000), (INT64_C(1) << 53) + 1, INT64_MAX};
    expect_same((op_case){clip, (double[]){-5e9, INFINITY}, &(strata_array){STRATA_DTYPE_I64, {1, {3}}, values, NULL}, 1},
                strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), want));
}

Test(clip, agrees_with_finite_differences) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){0.5, 1.5, 2.5, 3.5});
    expect_gradient((op_case){clip, one_to_three, &x, 1});
    strata_array_finish(&x);
}

static strata_tensor *gradient_of(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(clip(x, user), NULL, x, 1, &dx);
    return dx;
}

Test(clip, passes_the_gradient_at_the_bounds_themselves) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(5), (double[]){0.99, 1, 2, 3, 3.01});
    expect_values((op_case){gradient_of, one_to_three, &x, 1}, STRATA_DTYPE_F32, x.shape, (double[]){0, 1, 1, 1, 0});
    strata_array_finish(&x);
}

Test(clip, rejects_bounds_in_the_wrong_order_nan_and_fractions_for_integers) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0);
    strata_array i32 = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0);
    strata_array i64 = strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(2), 0);
    strata_array u8 = strata_test_full(STRATA_DTYPE_U8, STRATA_SHAPE(2), 0);
    expect_rejected((op_case){clip, (double[]){2, 1}, &x, 1}, "low is 2, high is 1; low must be at most high");
    expect_rejected((op_case){clip, (double[]){NAN, 1}, &x, 1}, "low must be at most high");
    expect_rejected((op_case){clip, (double[]){0.5, 1}, &i32, 1}, "low is 0.5, high is 1; for x of i32");
    expect_rejected((op_case){clip, (double[]){0, 1.5}, &i64, 1}, "low is 0, high is 1.5; for x of i64");
    expect_rejected((op_case){clip, one_to_three, &u8, 1}, "x is u8; it must be f32, f16, bf16 or i32");
    strata_array_finish(&x);
    strata_array_finish(&i32);
    strata_array_finish(&i64);
    strata_array_finish(&u8);
}

Test(clip, gives_the_kernel_bounds_in_its_own_type) {
    strata_array x = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(5), 0);
    strata_array i32 = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(5), 0);
    strata_array empty = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(0), 0);
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){clip, one_to_three, &x, 1}, &launch), 1);
    cr_assert_float_eq(launch.words[1].f32, 1, 0);
    cr_assert_float_eq(launch.words[2].f32, 3, 0);
    cr_assert_eq(lower_to((op_case){clip, (double[]){-INFINITY, 7}, &i32, 1}, &launch), 1);
    cr_assert_eq(launch.words[1].i32, INT32_MIN);
    cr_assert_eq(launch.words[2].i32, 7);
    cr_assert_eq(lower_to((op_case){clip, one_to_three, &empty, 1}, &launch), 0);
    strata_array_finish(&x);
    strata_array_finish(&i32);
    strata_array_finish(&empty);
}
