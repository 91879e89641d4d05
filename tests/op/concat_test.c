/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

typedef struct request {
    int n, axis;
} request;

static strata_tensor *concat(strata_tensor *const *x, const void *user) {
    const request *r = user;
    return strata_concat(x, r->n, r->axis);
}

Test(concat, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    strata_array x[3] = {*strata_golden_get(golden, "x"), *strata_golden_get(golden, "tail"), *strata_golden_get(golden, "x")};
    expect_same((op_case){concat, &(request){3, 2}, x, 3}, *strata_golden_get(golden, "concat_2"));
    expect_same((op_case){concat, &(request){3, -2}, x, 3}, *strata_golden_get(golden, "concat_2"));
    strata_golden_destroy(golden);
}

Test(concat, takes_every_dtype_and_empty_parts) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x[3] = {strata_test_array((strata_dtype)dtype, STRATA_SHAPE(1, 2), (double[]){1, 0}),
                             strata_test_full((strata_dtype)dtype, STRATA_SHAPE(0, 2), 0),
                             strata_test_array((strata_dtype)dtype, STRATA_SHAPE(2, 2), (double[]){0, 1, 1, 0})};
        op_case c = {concat, &(request){3, 0}, x, 3};
        expect_values(c, (strata_dtype)dtype, STRATA_SHAPE(3, 2), (double[]){1, 0, 0, 1, 1, 0});
        cr_assert_eq(lower_to(c, NULL), 2); /* the empty part needs no launch */
        for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
    }
}

Test(concat, agrees_with_finite_differences) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1, 2), -1, 1, 1),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 2), -1, 1, 2)};
    expect_gradient((op_case){concat, &(request){2, 1}, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(concat, rejects_parts_that_differ_elsewhere) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 4), 0)};
    strata_array mixed[2] = {x[0], strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), 0)};
    strata_array scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 0);
    expect_rejected((op_case){concat, &(request){2, 0}, x, 2}, "x[0] is (2,3), x[1] is (2,4); all axes but 0 must be equal");
    expect_rejected((op_case){concat, &(request){2, 2}, x, 2}, "axis is 2; a tensor of rank 2 has axes -2 to 1");
    expect_rejected((op_case){concat, &(request){2, 0}, mixed, 2}, "x[0] is f32, x[1] is i32");
    expect_rejected((op_case){concat, &(request){1, 0}, &scalar, 1}, "axis is 0; a scalar has no axes");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
    strata_array_finish(&mixed[1]);
    strata_array_finish(&scalar);
}
