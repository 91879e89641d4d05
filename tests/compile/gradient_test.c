/* SPDX-License-Identifier: Apache-2.0
 *
 * strata_gradients: sums over paths, zeros, and what cannot be differentiated. The ops' own gradients: tests/op. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/graph/graph.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;

typedef struct scene {
    strata_graph *graph;
    strata_tensor *x, *y;
} scene;

static scene begin(void) {
    scene s = {0};
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&s.graph, &err), STRATA_OK);
    s.x = strata_input(s.graph, "x", f32, STRATA_SHAPE(2));
    s.y = strata_input(s.graph, "y", f32, STRATA_SHAPE(2));
    return s;
}

/* The value at x = (3, -2), y = (0.5, 4). */
static void expect_value(const scene *s, strata_tensor *tensor, float first, float second) {
    strata_error err = {0};
    strata_array x = strata_test_array(f32, STRATA_SHAPE(2), (double[]){3, -2});
    strata_array y = strata_test_array(f32, STRATA_SHAPE(2), (double[]){0.5, 4}), got;
    strata_test_feed feeds[] = {{s->x, &x}, {s->y, &y}};
    cr_assert_eq(strata_test_eval(&tensor, 1, feeds, 2, &got, &err), STRATA_OK, "%s", err.message);
    const float *values = got.data;
    cr_assert(values[0] == first && values[1] == second, "got %g %g, not %g %g", values[0], values[1], first, second);
    strata_array_finish(&got);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(gradient, sums_over_every_path) {
    scene s = begin();
    strata_tensor *dx;
    /* y = x * x + x: 2 x + 1 */
    strata_gradients(strata_add(strata_mul(s.x, s.x), s.x), NULL, &s.x, 1, &dx);
    expect_value(&s, dx, 7, -3);
    strata_graph_destroy(s.graph);
}

Test(gradient, takes_a_weight_for_each_element) {
    scene s = begin();
    strata_tensor *dx;
    strata_gradients(strata_square(s.x), s.y, &s.x, 1, &dx);
    expect_value(&s, dx, 3, -16);
    strata_graph_destroy(s.graph);
}

Test(gradient, is_zero_for_what_y_does_not_depend_on) {
    scene s = begin();
    strata_tensor *d[2];
    strata_gradients(strata_square(s.x), NULL, (strata_tensor *[]){s.y, s.x}, 2, d);
    expect_value(&s, d[0], 0, 0);
    expect_value(&s, d[1], 6, -4);
    strata_tensor *late = strata_neg(s.x), *dlate; /* made after y */
    strata_gradients(s.x, NULL, &late, 1, &dlate);
    expect_value(&s, dlate, 0, 0);
    strata_graph_destroy(s.graph);
}

Test(gradient, of_y_by_itself_is_one) {
    scene s = begin();
    strata_tensor *dx;
    strata_gradients(s.x, NULL, &s.x, 1, &dx);
    expect_value(&s, dx, 1, 1);
    strata_graph_destroy(s.graph);
}

/* How many nodes of the graph have this op. */
static int count(const strata_graph *graph, const char *op) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) n += !strcmp(graph->nodes[i]->op->name, op);
    return n;
}

/* z = x exp(y), w = z^2 + z: what the gradients read of the first is computed again, but printed once. */
Test(gradient, computes_values_again_from_those_before) {
    scene s = begin();
    strata_tensor *d[2], *kept[2];
    const int first = s.graph->n_nodes;
    strata_tensor *z = strata_print(strata_mul(s.x, strata_exp(s.y)), NULL);
    strata_tensor *w = strata_add(strata_square(z), z);
    strata_gradients(w, NULL, (strata_tensor *[]){s.x, s.y}, 2, kept);
    cr_assert_eq(count(s.graph, "exp"), 1);
    strata_graph_recompute(s.graph, first + 1);
    strata_graph_recompute(s.graph, first); /* the nodes of the call around */
    strata_gradients(w, NULL, (strata_tensor *[]){s.x, s.y}, 2, d);
    cr_assert_eq(count(s.graph, "exp"), 2);
    cr_assert_eq(count(s.graph, "print"), 1);
    for (int i = 0; i < 2; i++) {
        strata_tensor *same = strata_sub(d[i], kept[i]);
        expect_value(&s, same, 0, 0);
    }
    strata_graph_destroy(s.graph);
}

Test(gradient, sees_intermediate_values) {
    scene s = begin();
    strata_tensor *middle = strata_mul(s.x, s.y), *dmiddle;
    strata_gradients(strata_square(middle), NULL, &middle, 1, &dmiddle);
    expect_value(&s, dmiddle, 3, -16); /* 2 x y */
    strata_graph_destroy(s.graph);
}

/* The nodes of two graphs built alike are alike: sums are taken in one order. */
Test(gradient, is_built_in_the_same_order_each_time) {
    scene s[2] = {begin(), begin()};
    for (int i = 0; i < 2; i++) {
        strata_tensor *d[2], *a = strata_exp(s[i].x), *b = strata_tanh(s[i].x);
        strata_tensor *sum = strata_add(strata_mul(a, b), strata_mul(strata_sub(a, s[i].y), b));
        strata_gradients(sum, NULL, (strata_tensor *[]){s[i].x, s[i].y}, 2, d);
    }
    cr_assert_eq(s[0].graph->n_nodes, s[1].graph->n_nodes);
    for (int id = 0; id < s[0].graph->n_nodes; id++) {
        const strata_tensor *a = s[0].graph->nodes[id], *b = s[1].graph->nodes[id];
        cr_assert_eq(a->op, b->op);
        for (int i = 0; i < a->n_inputs; i++) cr_assert_eq(a->inputs[i]->id, b->inputs[i]->id);
    }
    strata_graph_destroy(s[0].graph);
    strata_graph_destroy(s[1].graph);
}

Test(gradient, passes_no_comparison_and_no_integer) {
    scene s = begin();
    strata_tensor *dx;
    strata_tensor *picked = strata_where(strata_less(s.x, s.y), s.x, s.y);
    strata_gradients(picked, NULL, &s.x, 1, &dx);
    expect_value(&s, dx, 0, 1);
    strata_graph_destroy(s.graph);
}

static void expect_error(const scene *s, strata_tensor *y, strata_tensor *dy, strata_tensor *x, strata_status status,
                         const char *words) {
    strata_error err = {0};
    strata_tensor *dx = NULL;
    strata_gradients(y, dy, &x, 1, &dx);
    cr_assert_eq(strata_graph_check(s->graph, &err), status, "%s", strata_status_name(err.status));
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert(strata_tensor_is_poison(dx));
    strata_graph_destroy(s->graph);
}

Test(gradient, errors_name_what_is_wrong) {
    scene s = begin();
    strata_tensor *integer = strata_cast(s.x, STRATA_DTYPE_I32);
    expect_error(&s, integer, NULL, s.x, STRATA_INVALID, "y is i32");
    s = begin();
    expect_error(&s, s.x, strata_scalar(s.graph, f32, 1), s.x, STRATA_INVALID, "dy is f32 (), y is f32 (2)");
    s = begin();
    expect_error(&s, s.x, NULL, strata_cast(s.x, STRATA_DTYPE_I32), STRATA_INVALID, "x[0]");
    s = begin();
    expect_error(&s, s.x, NULL, NULL, STRATA_INVALID, "x[0]");
}

Test(gradient, of_an_update_is_an_error) {
    scene s = begin();
    strata_variable variable = strata_test_variable("v", f32, STRATA_SHAPE(2));
    strata_tensor *assigned = strata_assign(strata_variable_read(s.graph, &variable), s.x);
    expect_error(&s, strata_square(assigned), NULL, s.x, STRATA_UNSUPPORTED, "assign");
}
