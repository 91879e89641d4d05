/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "shaders/shaders.h"
#include "tests/op/op_case.h"

static strata_tensor *cast(strata_tensor *const *x, const void *user) {
    return strata_cast(x[0], *(const strata_dtype *)user);
}

static void expect_cast(strata_dtype from, strata_dtype to, int n, const double *values, const double *want) {
    strata_array x = strata_test_array(from, STRATA_SHAPE(n), values);
    expect_values((op_case){cast, &to, &x, 1}, to, x.shape, want);
    strata_array_finish(&x);
}

Test(cast, floats_to_integers_truncate_saturate_and_take_nan_to_0) {
    const double x[] = {2.9, -2.9, 1e30, -1e30, NAN, INFINITY};
    expect_cast(STRATA_DTYPE_F32, STRATA_DTYPE_I32, 6, x, (double[]){2, -2, INT32_MAX, INT32_MIN, 0, INT32_MAX});
    expect_cast(STRATA_DTYPE_F32, STRATA_DTYPE_U8, 6, x, (double[]){2, 0, 255, 0, 0, 255});
    expect_cast(STRATA_DTYPE_BF16, STRATA_DTYPE_I64, 2, (double[]){-2.5, 1e30}, (double[]){-2, 0x1p63});
    expect_cast(STRATA_DTYPE_F16, STRATA_DTYPE_I32, 2, (double[]){-2.5, INFINITY}, (double[]){-2, INT32_MAX});
}

Test(cast, integers_to_integers_saturate) {
    const double x[] = {-5, 0, 300, 5e9, -5e9};
    expect_cast(STRATA_DTYPE_I64, STRATA_DTYPE_I32, 5, x, (double[]){-5, 0, 300, INT32_MAX, INT32_MIN});
    expect_cast(STRATA_DTYPE_I64, STRATA_DTYPE_U8, 5, x, (double[]){0, 0, 255, 255, 0});
    expect_cast(STRATA_DTYPE_U8, STRATA_DTYPE_I64, 2, (double[]){0, 255}, (double[]){0, 255});
}

Test(cast, to_bool_is_whether_it_is_not_zero) {
    expect_cast(STRATA_DTYPE_F32, STRATA_DTYPE_BOOL, 5, (double[]){0, -0.0, 1e-30, NAN, -2}, (double[]){0, 0, 1, 1, 1});
    expect_cast(STRATA_DTYPE_I64, STRATA_DTYPE_BOOL, 3, (double[]){0, 4294967296.0, -1}, (double[]){0, 1, 1});
    expect_cast(STRATA_DTYPE_BOOL, STRATA_DTYPE_F16, 2, (double[]){0, 1}, (double[]){0, 1});
}

Test(cast, to_narrower_floats_rounds_to_nearest_even) {
    expect_cast(STRATA_DTYPE_F32, STRATA_DTYPE_F16, 3, (double[]){1 + 0x1p-11, 1 + 0x3p-11, 65520},
                (double[]){1, 1 + 0x1p-9, INFINITY});
    expect_cast(STRATA_DTYPE_F32, STRATA_DTYPE_BF16, 2, (double[]){1 + 0x1p-8, 1 + 0x3p-8}, (double[]){1, 1 + 0x1p-6});
}

Test(cast, i64_to_f32_rounds_once) {
    /* The value is just above the midpoint of two floats. A conversion to double would round it to the midpoint, and the
     * conversion to f32 would then round that to the even float below. */
    int64_t value = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &value);
    expect_values((op_case){cast, &(strata_dtype){STRATA_DTYPE_F32}, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(),
                  (double[]){0x1p60 + 0x1p37});
}

Test(cast, keeps_i64_bits_between_integers) {
    int64_t value = -(INT64_C(1) << 31);
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &value);
    expect_values((op_case){cast, &(strata_dtype){STRATA_DTYPE_I32}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(),
                  (double[]){INT32_MIN});
}

static strata_tensor *there_and_back(strata_tensor *const *x, const void *user) {
    strata_tensor *dx, *y = strata_square(strata_cast(x[0], *(const strata_dtype *)user));
    strata_gradients(y, NULL, x, 1, &dx);
    return dx;
}

Test(cast, passes_gradients_between_floats) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){1.5, -0.25});
    for (int d = 0; d < 3; d++)
        expect_values((op_case){there_and_back, &float_dtypes[d], &x, 1}, STRATA_DTYPE_F32, x.shape, (double[]){3, -0.5});
    strata_array_finish(&x);
}

static strata_tensor *through_integers(strata_tensor *const *x, const void *user) {
    (void)user;
    strata_tensor *dx;
    strata_gradients(strata_cast(strata_cast(x[0], STRATA_DTYPE_I32), STRATA_DTYPE_F32), NULL, x, 1, &dx);
    return dx;
}

Test(cast, passes_no_gradient_through_integers) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 3);
    expect_values((op_case){through_integers, NULL, &x, 1}, STRATA_DTYPE_F32, x.shape, (double[]){0, 0});
    strata_array_finish(&x);
}

Test(cast, rejects_a_dtype_that_does_not_exist) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 3);
    expect_rejected((op_case){cast, &(strata_dtype){(strata_dtype)99}, &x, 1}, "dtype 99 is not known");
    strata_array_finish(&x);
}

Test(cast, has_a_kernel_for_each_pair_of_dtypes) {
    for (int from = 0; from < STRATA_DTYPE_COUNT; from++) {
        for (int to = 0; to < STRATA_DTYPE_COUNT; to++) {
            if (from == to) continue;
            strata_array x = strata_test_full((strata_dtype)from, STRATA_SHAPE(3), 1);
            strata_dtype target = (strata_dtype)to;
            strata_launch launch;
            char variant[32];
            cr_assert_eq(lower_to((op_case){cast, &target, &x, 1}, &launch), 1);
            snprintf(variant, sizeof variant, "%s_%s", strata_dtype_name((strata_dtype)from), strata_dtype_name(target));
            cr_assert_str_eq(launch.variant, variant);
            cr_assert(strata_shader_find(launch.kernel, launch.variant), "there is no cast %s", variant);
            strata_array_finish(&x);
        }
    }
}

static strata_tensor *dequantize(strata_tensor *const *x, const void *user) {
    return strata_dequantize(x[0], *(const double *)user);
}

Test(dequantize, is_the_byte_times_the_scale_rounded_once) {
    uint8_t bytes[] = {0, 1, 7, 254, 255};
    const float scale = 1.0f / 255;
    double want[5];
    for (int i = 0; i < 5; i++) want[i] = (double)((float)bytes[i] * scale);
    strata_array x = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(5), bytes);
    expect_values((op_case){dequantize, &(double){1.0 / 255}, &x, 1}, STRATA_DTYPE_F32, x.shape, want);
}

Test(dequantize, takes_bytes_alone) {
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2), (double[]){1, 2});
    expect_rejected((op_case){dequantize, &(double){1}, &x, 1}, "u8");
    strata_array_finish(&x);
}
