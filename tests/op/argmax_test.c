/* SPDX-License-Identifier: Apache-2.0
 *
 * argmax compared with NumPy, and its results for ties and NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "tests/op/op_case.h"

static strata_tensor *build(strata_tensor *const *x, const void *user) {
    return strata_argmax(x[0], *(const int *)user);
}

Test(argmax, agrees_with_numpy_along_every_axis) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32,
                                          STRATA_DTYPE_I64};
    strata_golden *golden = strata_golden_load("reduce");
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        for (int axis = -4; axis < 4; axis++) {
            char name[64];
            snprintf(name, sizeof name, "x_%s", strata_dtype_name(dtypes[d]));
            strata_array x = *strata_golden_get(golden, name);
            snprintf(name, sizeof name, "argmax_%d_%s", (axis + 4) % 4, strata_dtype_name(dtypes[d]));
            expect_same((op_case){build, &axis, &x, 1}, *strata_golden_get(golden, name));
        }
    }
    strata_golden_destroy(golden);
}

Test(argmax, takes_the_first_of_equals_and_nan_before_all) {
    double values[] = {2, 7, 7, 1, NAN, INFINITY, 3, NAN, NAN, -INFINITY, -INFINITY, -INFINITY};
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), values);
    expect_values((op_case){build, &(int){1}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(4), (double[]){1, 1, 1, 0});
    strata_array_finish(&x);
}

Test(argmax, tells_large_i64_apart) {
    int64_t values[3] = {INT64_MAX - 2, INT64_MAX - 1, INT64_MAX - 2};
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), values);
    expect_values((op_case){build, &(int){0}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(), (double[]){1});
}

static strata_tensor *gradient(strata_tensor *const *x, const void *user) {
    (void)user;
    strata_tensor *dx, *y = strata_cast(strata_argmax(x[0], 0), STRATA_DTYPE_F32);
    strata_gradients(y, NULL, x, 1, &dx);
    return dx;
}

Test(argmax, passes_no_gradient) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 1);
    expect_values((op_case){gradient, NULL, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){0, 0});
    strata_array_finish(&x);
}

Test(argmax, rejects_axes_that_are_not_there_or_empty) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 0), 1);
    expect_rejected((op_case){build, &(int){2}, &x, 1}, "argmax: axis is 2; a tensor of rank 2 has axes -2 to 1");
    expect_rejected((op_case){build, &(int){-1}, &x, 1}, "x is (2,0); axis 1 must have 1 to 2147483647 elements");
    strata_array_finish(&x);
}
