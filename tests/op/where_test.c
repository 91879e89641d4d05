/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *where(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_where(x[0], x[1], x[2]);
}

Test(where, broadcasts_all_three_as_numpy_does) {
    strata_golden *golden = strata_golden_load("move");
    strata_array x[3] = {*strata_golden_get(golden, "condition"), *strata_golden_get(golden, "x"),
                         *strata_golden_get(golden, "row")};
    expect_same((op_case){where, NULL, x, 3}, *strata_golden_get(golden, "where"));
    strata_golden_destroy(golden);
}

Test(where, takes_every_dtype) {
    strata_array condition = strata_test_array(STRATA_DTYPE_BOOL, STRATA_SHAPE(3, 1), (double[]){1, 0, 1});
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x[3] = {condition, strata_test_array((strata_dtype)dtype, STRATA_SHAPE(2), (double[]){1, 0}),
                             strata_test_full((strata_dtype)dtype, STRATA_SHAPE(), 1)};
        expect_values((op_case){where, NULL, x, 3}, (strata_dtype)dtype, STRATA_SHAPE(3, 2), (double[]){1, 0, 1, 1, 1, 0});
        strata_array_finish(&x[1]);
        strata_array_finish(&x[2]);
    }
    strata_array_finish(&condition);
}

Test(where, agrees_with_finite_differences) {
    strata_array x[3] = {strata_test_array(STRATA_DTYPE_BOOL, STRATA_SHAPE(2, 1), (double[]){1, 0}),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3), -1, 1, 2)};
    expect_gradient((op_case){where, NULL, x, 3});
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(where, rejects_conditions_that_are_not_bool_and_values_of_two_dtypes) {
    strata_array f32 = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0);
    strata_array i32 = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0);
    strata_array yes = strata_test_full(STRATA_DTYPE_BOOL, STRATA_SHAPE(2), 1);
    strata_array longer = strata_test_full(STRATA_DTYPE_BOOL, STRATA_SHAPE(3), 1);
    expect_rejected((op_case){where, NULL, (strata_array[]){f32, f32, f32}, 3}, "condition is f32; it must be bool");
    expect_rejected((op_case){where, NULL, (strata_array[]){yes, f32, i32}, 3}, "a is f32, b is i32");
    expect_rejected((op_case){where, NULL, (strata_array[]){longer, f32, f32}, 3}, "condition is (3), a with b is (2)");
    strata_array_finish(&f32);
    strata_array_finish(&i32);
    strata_array_finish(&yes);
    strata_array_finish(&longer);
}

Test(where, takes_empty_tensors_without_a_launch) {
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_BOOL, STRATA_SHAPE(0), 0),
                         strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(0), 0),
                         strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(), 0)};
    expect_same((op_case){where, NULL, x, 3}, x[1]);
    cr_assert_eq(lower_to((op_case){where, NULL, x, 3}, NULL), 0);
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}
