/* SPDX-License-Identifier: Apache-2.0
 *
 * assign and assign_add. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/op/op_case.h"
#include "tests/support/eval.h"

typedef strata_tensor *(*builder)(strata_tensor *variable, strata_tensor *value);

/* Runs one update of a variable with the value *before, and writes its new value to *before. Returns the value of the node. */
static strata_array update(builder build, strata_array *before, strata_array *value) {
    strata_variable variable = strata_test_variable("v", before->dtype, before->shape);
    strata_graph *graph;
    strata_error err = {0};
    strata_array result;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK, "%s", err.message);
    strata_tensor *x = strata_input(graph, "x", value->dtype, value->shape);
    strata_tensor *y = build(strata_variable_read(graph, &variable), x);
    strata_test_feed feeds[] = {{&variable, before}, {x, value}};
    strata_status status = strata_test_eval(&y, 1, feeds, 2, &result, &err);
    strata_graph_destroy(graph);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return result;
}

static void expect_update(builder build, strata_dtype dtype, const double *before, const double *value, const double *want) {
    strata_array variable = strata_test_array(dtype, STRATA_SHAPE(2), before);
    strata_array operand = strata_test_array(dtype, STRATA_SHAPE(2), value);
    strata_array expected = strata_test_array(dtype, STRATA_SHAPE(2), want);
    strata_array result = update(build, &variable, &operand);
    strata_test_result same = strata_test_same(&variable, &expected);
    cr_assert(same.ok, "the variable: %s", same.text);
    same = strata_test_same(&result, &expected);
    cr_assert(same.ok, "the node: %s", same.text);
    strata_array_finish(&variable);
    strata_array_finish(&operand);
    strata_array_finish(&expected);
    strata_array_finish(&result);
}

Test(assign, replaces_a_variable_of_every_dtype) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++)
        expect_update(strata_assign, (strata_dtype)dtype, (double[]){1, 0}, (double[]){0, 1}, (double[]){0, 1});
}

Test(assign, add_adds_in_place) {
    expect_update(strata_assign_add, STRATA_DTYPE_F32, (double[]){1.5, -1}, (double[]){0.25, 1}, (double[]){1.75, 0});
    expect_update(strata_assign_add, STRATA_DTYPE_I32, (double[]){INT32_MAX, 2}, (double[]){1, -5}, (double[]){INT32_MIN, -3});
}

Test(assign, add_is_exact_and_wraps_on_i64) {
    int64_t before[] = {(INT64_C(1) << 53) + 1, INT64_MAX}, value[] = {2, 1}, want[] = {(INT64_C(1) << 53) + 3, INT64_MIN};
    strata_array variable = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(2), before);
    strata_array operand = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(2), value);
    strata_array result = update(strata_assign_add, &variable, &operand);
    cr_assert_arr_eq(before, want, sizeof want);
    strata_array_finish(&result);
}

Test(assign, sees_what_an_earlier_update_left) {
    strata_array value = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 1), result;
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_graph *graph;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *five = strata_scalar(graph, STRATA_DTYPE_F32, 5);
    strata_tensor *y = strata_assign_add(strata_assign_add(strata_variable_read(graph, &variable), five), five);
    strata_test_feed feed = {&variable, &value};
    cr_assert_eq(strata_test_eval(&y, 1, &feed, 1, &result, &err), STRATA_OK, "%s", err.message);
    cr_assert_float_eq(*(float *)value.data, 11, 0);
    strata_graph_destroy(graph);
    strata_array_finish(&value);
    strata_array_finish(&result);
}

static void expect_refused(builder build, strata_dtype dtype, strata_shape shape, bool as_input, const char *words) {
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3));
    strata_graph *graph;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", dtype, shape);
    build(as_input ? x : strata_variable_read(graph, &variable), x);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, words), "the message is \"%s\"", err.message);
    strata_graph_destroy(graph);
}

Test(assign, refuses_other_shapes_dtypes_and_what_is_no_variable) {
    builder builds[] = {strata_assign, strata_assign_add};
    for (int i = 0; i < 2; i++) {
        expect_refused(builds[i], STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), false, "v is (2,3), the value is (3,2)");
        expect_refused(builds[i], STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), false, "the variable is f32, the value is i32");
        expect_refused(builds[i], STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), true, "must come from strata_variable_read");
    }
}

Test(assign, add_refuses_dtypes_without_a_sum) {
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_U8, STRATA_SHAPE(2));
    strata_graph *graph;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_assign_add(strata_variable_read(graph, &variable), strata_input(graph, "x", STRATA_DTYPE_U8, STRATA_SHAPE(2)));
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "the variable is u8; it must be f32, i32 or i64"), "the message is \"%s\"", err.message);
    strata_graph_destroy(graph);
}

Test(assign, cannot_be_differentiated) {
    strata_variable variable = strata_test_variable("v", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_graph *graph;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE()), *dx;
    strata_gradients(strata_assign(strata_variable_read(graph, &variable), x), NULL, &x, 1, &dx);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "assign: it cannot be differentiated"), "the message is \"%s\"", err.message);
    strata_graph_destroy(graph);
}
