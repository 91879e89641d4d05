/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax and log_softmax compared with NumPy; first and second derivatives. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/op/ops.h"
#include "tests/op/op_case.h"

typedef strata_tensor *(*unary)(strata_tensor *x);

static strata_tensor *build(strata_tensor *const *x, const void *user) {
    return (*(const unary *)user)(x[0]);
}

/* softmax_grad(y, dy) or log_softmax_grad(y, dy); `user` is the op. */
static strata_tensor *build_grad(strata_tensor *const *x, const void *user) {
    return strata_node(NULL, user, 2, x, NULL);
}

static const unary softmax = strata_softmax, log_softmax = strata_log_softmax;

static strata_array golden_of(const strata_golden *golden, const char *stem, strata_dtype dtype) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", stem, strata_dtype_name(dtype));
    return *strata_golden_get(golden, name);
}

Test(softmax, agrees_with_numpy) {
    strata_golden *golden = strata_golden_load("softmax");
    for (int d = 0; d < 3; d++) {
        strata_array x = golden_of(golden, "x", float_dtypes[d]);
        strata_array want = golden_of(golden, "softmax", float_dtypes[d]);
        expect_golden((op_case){build, &softmax, &x, 1}, &want);
        want = golden_of(golden, "log_softmax", float_dtypes[d]);
        expect_golden((op_case){build, &log_softmax, &x, 1}, &want);
    }
    strata_golden_destroy(golden);
}

Test(softmax, gradient_ops_agree_with_numpy) {
    strata_golden *golden = strata_golden_load("softmax");
    for (int d = 0; d < 3; d++) {
        strata_array x[2] = {golden_of(golden, "softmax_y", float_dtypes[d]), golden_of(golden, "dy", float_dtypes[d])};
        strata_array want = golden_of(golden, "softmax_grad", float_dtypes[d]);
        expect_golden((op_case){build_grad, &strata_op_softmax_grad, x, 2}, &want);
        x[0] = golden_of(golden, "log_softmax_y", float_dtypes[d]);
        want = golden_of(golden, "log_softmax_grad", float_dtypes[d]);
        expect_golden((op_case){build_grad, &strata_op_log_softmax_grad, x, 2}, &want);
    }
    strata_golden_destroy(golden);
}

Test(softmax, rows_sum_to_one) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(50, 33), -80, 80, 1);
    strata_array y = evaluate((op_case){build, &softmax, &x, 1});
    for (int row = 0; row < 50; row++) {
        double sum = 0;
        for (int i = 0; i < 33; i++) sum += ((float *)y.data)[row * 33 + i];
        cr_assert_float_eq(sum, 1, 1e-6, "row %d sums to %.9g", row, sum);
    }
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(softmax, row_that_is_not_finite_is_nan_and_a_masked_element_is_zero) {
    double values[] = {1, NAN, 2, 1, INFINITY, 2, -INFINITY, -INFINITY, -INFINITY, 0, -INFINITY, 0};
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), values);
    float want[12] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0.5f, 0, 0.5f};
    expect_golden((op_case){build, &softmax, &x, 1}, &(strata_array){STRATA_DTYPE_F32, x.shape, want, NULL});
    strata_array_finish(&x);
}

Test(softmax, gradients_agree_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4), -1, 1, 5);
    expect_gradient((op_case){build, &softmax, &x, 1});
    expect_gradient((op_case){build, &log_softmax, &x, 1});
    strata_array_finish(&x);
}

Test(softmax, gradient_ops_have_gradients_of_their_own) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), -1, 1, 6),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), -1, 1, 7)};
    expect_gradient((op_case){build_grad, &strata_op_softmax_grad, x, 2});
    expect_gradient((op_case){build_grad, &strata_op_log_softmax_grad, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(softmax, rejects_scalars_and_integers_and_says_why) {
    strata_array scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 1);
    strata_array integers = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(3), 1);
    expect_rejected((op_case){build, &softmax, &scalar, 1}, "softmax: x is a scalar; it must have at least 1 axis");
    expect_rejected((op_case){build, &log_softmax, &integers, 1}, "log_softmax: x is i32; it must be f32, f16 or bf16");
    strata_array pair[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 1),
                            strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4), 1)};
    expect_rejected((op_case){build_grad, &strata_op_softmax_grad, pair, 2}, "y is (3), dy is (4); they must be equal");
    strata_array_finish(&scalar);
    strata_array_finish(&integers);
    strata_array_finish(&pair[0]);
    strata_array_finish(&pair[1]);
}

/* The order in which the elements of a row are added must depend on the length of the row only. */
Test(softmax, rows_longer_than_32_are_folded_as_a_tree) {
    static const int64_t lengths[] = {1, 10, 32, 33, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int64_t rows = 1; rows <= 1000; rows *= 10) {
            strata_launch launch[MOST_LAUNCHES];
            strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(rows, lengths[i]), 0);
            cr_assert_eq(lower_to((op_case){build, &softmax, &x, 1}, launch), 1);
            cr_assert_eq(launch->words[0].u32, rows);
            cr_assert_eq(launch->words[1].u32, lengths[i]);
            bool found = false;
            for (int c = 0; c < launch->n_constants; c++) {
                if (strcmp(launch->constants[c].name, "TREE") != 0) continue;
                cr_assert_eq(launch->constants[c].value, lengths[i] > 32);
                found = true;
            }
            cr_assert(found);
            strata_array_finish(&x);
        }
    }
}
