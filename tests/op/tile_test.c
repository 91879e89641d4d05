/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *tile(strata_tensor *const *x, const void *user) {
    return strata_tile(x[0], user);
}

Test(tile, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    expect_same((op_case){tile, (int64_t[]){1, 2, 1, 3}, strata_golden_get(golden, "x"), 1},
                *strata_golden_get(golden, "tile_1213"));
    strata_golden_destroy(golden);
}

Test(tile, takes_once_and_never) {
    strata_array x = strata_test_array(STRATA_DTYPE_U8, STRATA_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    strata_array scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 5);
    expect_same((op_case){tile, (int64_t[]){1, 1}, &x, 1}, x);
    expect_values((op_case){tile, (int64_t[]){2, 1}, &x, 1}, STRATA_DTYPE_U8, STRATA_SHAPE(4, 2),
                  (double[]){1, 2, 3, 4, 1, 2, 3, 4});
    expect_values((op_case){tile, (int64_t[]){3, 0}, &x, 1}, STRATA_DTYPE_U8, STRATA_SHAPE(6, 0), NULL);
    expect_values((op_case){tile, NULL, &scalar, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(), (double[]){5});
    strata_array_finish(&x);
    strata_array_finish(&scalar);
}

Test(tile, works_at_the_largest_rank) {
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), (double[]){1, 2});
    expect_values((op_case){tile, (int64_t[]){2, 1, 1, 1, 1, 1, 1, 2}, &x, 1}, STRATA_DTYPE_I32,
                  STRATA_SHAPE(2, 1, 1, 1, 1, 1, 1, 4), (double[]){1, 2, 1, 2, 1, 2, 1, 2});
    strata_array_finish(&x);
}

Test(tile, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1);
    expect_gradient((op_case){tile, (int64_t[]){3, 2}, &x, 1});
    strata_array_finish(&x);
}

Test(tile, rejects_negative_and_huge_counts) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0);
    expect_rejected((op_case){tile, (int64_t[]){1, -1}, &x, 1}, "tile: times[1] is -1; it must be at least 0");
    expect_rejected((op_case){tile, (int64_t[]){1, INT64_MAX}, &x, 1}, "tile: axis 1 of the result is beyond 2^63");
    strata_array_finish(&x);
}
