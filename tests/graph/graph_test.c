/* SPDX-License-Identifier: Apache-2.0
 *
 * Building graphs: the first error is kept with its scope, and poison spreads. */
#include "core/graph/graph.h"

#include <criterion/criterion.h>
#include <string.h>

#include "strata/ops.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK, "%s", err.message);
    return graph;
}

Test(graph, keeps_the_first_error_with_its_scope) {
    strata_graph *graph = new_graph();
    strata_error err = {0};
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(32, 784));
    strata_tensor *w = strata_input(graph, "w", f32, STRATA_SHAPE(512, 10));
    strata_graph_set_scope(graph, "dense_1");
    strata_tensor *y = strata_matmul(x, w, false, false);
    strata_graph_set_scope(graph, "dense_2");
    strata_tensor *z = strata_add(strata_relu(y), strata_input(graph, "x", f32, STRATA_SHAPE(1)));
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_eq(strstr(err.message, "dense_1: matmul: "), err.message, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "784"));
    cr_assert(strata_tensor_is_poison(y) && strata_tensor_is_poison(z));
    cr_assert_eq(strata_tensor_shape(z).rank, 0);
    cr_assert_eq(strata_tensor_graph(z), graph);
    strata_graph_destroy(graph);
}

Test(graph, rejects_null_and_foreign_operands) {
    strata_graph *graph = new_graph(), *other = new_graph();
    strata_error err = {0};
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(2)), *y = strata_input(other, "y", f32, STRATA_SHAPE(2));
    cr_assert_null(strata_relu(NULL));
    cr_assert(strata_tensor_is_poison(strata_add(x, NULL)));
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "operand 1 is NULL"), "%s", err.message);
    cr_assert(strata_tensor_is_poison(strata_add(y, x)));
    cr_assert_eq(strata_graph_check(other, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "another graph"), "%s", err.message);
    cr_assert_eq(strata_graph_check(NULL, &err), STRATA_INVALID);
    strata_graph_destroy(graph);
    strata_graph_destroy(other);
    strata_graph_destroy(NULL);
}

Test(graph, names_of_inputs_are_unique_and_copied) {
    strata_graph *graph = new_graph();
    strata_error err = {0};
    char name[] = "image";
    strata_tensor *x = strata_input(graph, name, f32, STRATA_SHAPE(2));
    name[0] = '?';
    cr_assert_str_eq(strata_tensor_name(x), "image");
    cr_assert_str_eq(strata_tensor_name(strata_relu(x)), "relu");
    strata_input(graph, "image", f32, STRATA_SHAPE(3));
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "image"));
    strata_graph_destroy(graph);
}

Test(graph, copies_the_elements_of_constants) {
    strata_graph *graph = new_graph();
    float values[] = {1, 2, 3};
    strata_array array = strata_array_view(f32, STRATA_SHAPE(3), values);
    strata_tensor *c = strata_constant(graph, &array);
    values[0] = 9;
    cr_assert_eq(((const float *)((const strata_constant_attrs *)c->attrs)->data)[0], 1);
    strata_graph_destroy(graph);
}

Test(graph, a_shape_that_is_too_large_is_an_error_not_an_overflow) {
    strata_graph *graph = new_graph();
    strata_error err = {0};
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(1 << 20, 1));
    strata_broadcast_to(x, STRATA_SHAPE(INT64_MAX / 2, 1 << 20, 1));
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    strata_graph_destroy(graph);
}

Test(graph, an_operand_that_is_null_is_named_wherever_it_is) {
    for (int place = 0; place < 3; place++) {
        strata_graph *graph = NULL;
        strata_error err = {0};
        strata_tensor *parts[3];
        cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK, "%s", err.message);
        for (int i = 0; i < 3; i++)
            parts[i] =
                i == place ? NULL : strata_input(graph, (const char *[]){"a", "b", "c"}[i], STRATA_DTYPE_F32, STRATA_SHAPE(2));
        strata_concat(parts, 3, 0);
        cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID, "%d", place);
        cr_expect(strstr(err.message, (const char *[]){"operand 0 is NULL", "operand 1 is NULL", "operand 2 is NULL"}[place]),
                  "%d: %s", place, err.message);
        strata_graph_destroy(graph);
    }
}
