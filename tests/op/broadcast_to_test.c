/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "core/op/compose.h"
#include "tests/op/op_case.h"

static strata_tensor *broadcast_to(strata_tensor *const *x, const void *user) {
    return strata_broadcast_to(x[0], *(const strata_shape *)user);
}

static strata_tensor *sum_to(strata_tensor *const *x, const void *user) {
    return strata_sum_to(x[0], *(const strata_shape *)user);
}

Test(broadcast_to, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    const strata_array *want = strata_golden_get(golden, "row_to_2x3x4x5");
    expect_same((op_case){broadcast_to, &want->shape, strata_golden_get(golden, "row"), 1}, *want);
    strata_golden_destroy(golden);
}

Test(broadcast_to, repeats_a_scalar_of_every_dtype) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x = strata_test_full((strata_dtype)dtype, STRATA_SHAPE(), 1);
        strata_array want = strata_test_full((strata_dtype)dtype, STRATA_SHAPE(2, 5), 1);
        expect_same((op_case){broadcast_to, &want.shape, &x, 1}, want);
        strata_array_finish(&x);
        strata_array_finish(&want);
    }
}

Test(broadcast_to, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), -1, 1, 1);
    expect_gradient((op_case){broadcast_to, &STRATA_SHAPE(2, 3, 2), &x, 1});
    strata_array_finish(&x);
}

Test(broadcast_to, sum_to_undoes_it) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (double[]){1, 2, 3, 4, 5, 6});
    expect_values((op_case){sum_to, &STRATA_SHAPE(3), &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(3), (double[]){5, 7, 9});
    expect_values((op_case){sum_to, &STRATA_SHAPE(2, 1), &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), (double[]){6, 15});
    expect_values((op_case){sum_to, &STRATA_SHAPE(1, 3), &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), (double[]){5, 7, 9});
    expect_values((op_case){sum_to, &STRATA_SHAPE(), &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(), (double[]){21});
    strata_array_finish(&x);
}

Test(broadcast_to, rejects_shapes_that_x_does_not_repeat_to) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0);
    expect_rejected((op_case){broadcast_to, &STRATA_SHAPE(3, 5), &x, 1}, "x is (3,4), the shape wanted is (3,5)");
    expect_rejected((op_case){broadcast_to, &STRATA_SHAPE(1, 4), &x, 1}, "only axes of size 1 can be repeated");
    expect_rejected((op_case){broadcast_to, &STRATA_SHAPE(4), &x, 1}, "it has fewer axes");
    expect_rejected((op_case){broadcast_to, &STRATA_SHAPE(-3, 3, 4), &x, 1}, "is negative");
    strata_array_finish(&x);
}

Test(broadcast_to, takes_empty_tensors_without_a_launch) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), 0);
    strata_array want = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2), 0);
    op_case c = {broadcast_to, &want.shape, &x, 1};
    expect_same(c, want);
    cr_assert_eq(lower_to(c, NULL), 0);
    strata_array_finish(&x);
    strata_array_finish(&want);
}
