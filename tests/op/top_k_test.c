/* SPDX-License-Identifier: Apache-2.0
 *
 * top_k compared with NumPy, and its results for ties and NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "tests/op/op_case.h"

static strata_tensor *values(strata_tensor *const *x, const void *user) {
    return strata_top_k(x[0], *(const int64_t *)user, NULL);
}

static strata_tensor *indices(strata_tensor *const *x, const void *user) {
    strata_tensor *result;
    strata_top_k(x[0], *(const int64_t *)user, &result);
    return result;
}

Test(top_k, agrees_with_numpy) {
    static const char *const dtypes[] = {"f32", "f16", "bf16", "i32", "i64"};
    strata_golden *golden = strata_golden_load("top_k");
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        char name[3][32];
        snprintf(name[0], sizeof name[0], "x_%s", dtypes[d]);
        snprintf(name[1], sizeof name[1], "indices_%s", dtypes[d]);
        snprintf(name[2], sizeof name[2], "values_%s", dtypes[d]);
        strata_array x = *strata_golden_get(golden, name[0]);
        expect_same((op_case){indices, &(int64_t){3}, &x, 1}, *strata_golden_get(golden, name[1]));
        expect_same((op_case){values, &(int64_t){3}, &x, 1}, *strata_golden_get(golden, name[2]));
    }
    strata_golden_destroy(golden);
}

Test(top_k, takes_the_lower_index_of_equals_and_nan_before_all) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 4), (double[]){1, NAN, INFINITY, NAN, 0, -0.0, 7, 7});
    expect_values((op_case){indices, &(int64_t){4}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(2, 4),
                  (double[]){1, 3, 2, 0, 2, 3, 0, 1});
    strata_array_finish(&x);
}

Test(top_k, tells_large_i64_apart) {
    int64_t numbers[3] = {INT64_MAX - 2, INT64_MAX - 1, INT64_MIN};
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), numbers);
    expect_values((op_case){indices, &(int64_t){3}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(3), (double[]){1, 0, 2});
}

Test(top_k, gradient_goes_to_the_elements_chosen) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 4), (double[]){.5, -1, 2, 1, 3, -2, 0, 1});
    expect_gradient((op_case){values, &(int64_t){2}, &x, 1});
    strata_array_finish(&x);
}

Test(top_k, rejects_more_than_there_are) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 1),
                 scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 1);
    expect_rejected((op_case){values, &(int64_t){4}, &x, 1},
                    "top_k: k is 4, x is (2,3); k must be 1 to the size of the last axis");
    expect_rejected((op_case){values, &(int64_t){0}, &x, 1}, "k is 0");
    expect_rejected((op_case){values, &(int64_t){1}, &scalar, 1}, "top_k: x is a scalar; it has no last axis");
    strata_array_finish(&x);
    strata_array_finish(&scalar);
}
