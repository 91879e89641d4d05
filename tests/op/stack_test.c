/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *stack(strata_tensor *const *x, const void *user) {
    return strata_stack(x, 2, *(const int *)user);
}

static strata_tensor *stack_with_one_more(strata_tensor *const *x, const void *user) {
    strata_tensor *one = strata_scalar(strata_tensor_graph(x[0]), STRATA_DTYPE_I32, 1);
    return strata_stack((strata_tensor *[]){x[0], strata_add(x[0], one), x[0]}, 3, *(const int *)user);
}

Test(stack, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    const strata_array *x = strata_golden_get(golden, "x");
    expect_same((op_case){stack_with_one_more, &(int){0}, x, 1}, *strata_golden_get(golden, "stack_0"));
    expect_same((op_case){stack_with_one_more, &(int){4}, x, 1}, *strata_golden_get(golden, "stack_last"));
    expect_same((op_case){stack_with_one_more, &(int){-1}, x, 1}, *strata_golden_get(golden, "stack_last"));
    strata_golden_destroy(golden);
}

Test(stack, makes_a_vector_of_scalars) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_BOOL, STRATA_SHAPE(), 1),
                         strata_test_full(STRATA_DTYPE_BOOL, STRATA_SHAPE(), 0)};
    expect_values((op_case){stack, &(int){0}, x, 2}, STRATA_DTYPE_BOOL, STRATA_SHAPE(2), (double[]){1, 0});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(stack, agrees_with_finite_differences) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), -1, 1, 1),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), -1, 1, 2)};
    for (int axis = 0; axis < 3; axis++) expect_gradient((op_case){stack, &axis, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(stack, rejects_other_shapes_and_axes) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), 0)};
    strata_array mixed[2] = {x[0], strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2, 1), 0)};
    strata_array deep[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), 0), {0}};
    deep[1] = deep[0];
    expect_rejected((op_case){stack, &(int){0}, x, 2}, "stack: x[0] is (2,1), x[1] is (2,2); they must be equal");
    expect_rejected((op_case){stack, &(int){0}, mixed, 2}, "x[0] is f32, x[1] is i32");
    expect_rejected((op_case){stack, &(int){3}, (strata_array[]){x[0], x[0]}, 2},
                    "stack: axis is 3; a tensor of rank 3 has axes -3 to 2");
    expect_rejected((op_case){stack, &(int){0}, deep, 2}, "the result would have more than 8 axes");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
    strata_array_finish(&mixed[1]);
    strata_array_finish(&deep[0]);
}
