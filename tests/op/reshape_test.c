/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "core/graph/graph.h"
#include "tests/op/op_case.h"

static strata_tensor *reshape(strata_tensor *const *x, const void *user) {
    return strata_reshape(x[0], *(const strata_shape *)user);
}

static strata_tensor *flatten(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_flatten(x[0]);
}

static const double counting[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

Test(reshape, keeps_the_elements_in_order) {
    strata_array x = strata_test_array(STRATA_DTYPE_I64, STRATA_SHAPE(3, 4), counting);
    expect_values((op_case){reshape, &STRATA_SHAPE(2, 1, 6), &x, 1}, STRATA_DTYPE_I64, STRATA_SHAPE(2, 1, 6), counting);
    strata_array_finish(&x);
}

Test(reshape, infers_a_dimension_of_minus_one) {
    strata_array x = strata_test_array(STRATA_DTYPE_U8, STRATA_SHAPE(3, 4), counting);
    expect_values((op_case){reshape, &STRATA_SHAPE(2, -1, 3), &x, 1}, STRATA_DTYPE_U8, STRATA_SHAPE(2, 2, 3), counting);
    expect_values((op_case){reshape, &STRATA_SHAPE(-1), &x, 1}, STRATA_DTYPE_U8, STRATA_SHAPE(12), counting);
    strata_array_finish(&x);
}

Test(reshape, takes_empty_tensors_and_infers_0) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 4), 0);
    strata_array want = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2), 0);
    expect_same((op_case){reshape, &STRATA_SHAPE(-1, 2), &x, 1}, want);
    strata_array_finish(&x);
    strata_array_finish(&want);
}

Test(reshape, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1);
    expect_gradient((op_case){reshape, &STRATA_SHAPE(3, 2), &x, 1});
    strata_array_finish(&x);
}

Test(reshape, rejects_shapes_of_another_size_two_unknowns_and_ambiguity) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0);
    strata_array empty = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 4), 0);
    expect_rejected((op_case){reshape, &STRATA_SHAPE(5, 2), &x, 1},
                    "x is (3,4) with 12 elements; they can't be laid out as (5,2)");
    expect_rejected((op_case){reshape, &STRATA_SHAPE(5, -1), &x, 1}, "they can't be laid out as (5,-1)");
    expect_rejected((op_case){reshape, &STRATA_SHAPE(-1, -1), &x, 1}, "one dimension at most can be -1");
    expect_rejected((op_case){reshape, &STRATA_SHAPE(-2, 6), &x, 1}, "is negative");
    expect_rejected((op_case){reshape, &STRATA_SHAPE(0, -1), &empty, 1}, "they can't be laid out as (0,-1)");
    strata_array_finish(&x);
    strata_array_finish(&empty);
}

Test(reshape, flatten_keeps_the_first_axis) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 2), counting);
    strata_array row = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3), counting);
    strata_array scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 0);
    strata_array none = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 3, 2), 0);
    strata_array want = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 6), 0);
    expect_values((op_case){flatten, NULL, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 6), counting);
    expect_values((op_case){flatten, NULL, &row, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), counting);
    expect_same((op_case){flatten, NULL, &none, 1}, want);
    expect_rejected((op_case){flatten, NULL, &scalar, 1}, "flatten: x is a scalar");
    strata_array_finish(&x);
    strata_array_finish(&row);
    strata_array_finish(&scalar);
    strata_array_finish(&none);
    strata_array_finish(&want);
}

Test(reshape, is_a_view_and_none_at_all_to_the_same_shape) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3));
    cr_assert_eq(strata_reshape(x, STRATA_SHAPE(2, 3)), x);
    cr_assert(strata_reshape(x, STRATA_SHAPE(6))->op->flags & STRATA_OP_VIEW);
    strata_graph_destroy(graph);
}
