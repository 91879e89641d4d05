/* SPDX-License-Identifier: Apache-2.0
 *
 * gelu, silu, softplus, leaky_relu and elu compared with PyTorch and with finite differences, and their values at
 * infinities. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/op/op_case.h"

static strata_tensor *leaky_relu(strata_tensor *x) {
    return strata_leaky_relu(x, 0.25);
}
static strata_tensor *elu(strata_tensor *x) {
    return strata_elu(x, 1.5);
}
static const struct {
    const char *name;
    strata_tensor *(*f)(strata_tensor *x);
    double at_infinity[2]; /* values at -infinity and infinity */
    bool once;             /* its gradient is an op that has no gradient itself */
} functions[] = {{"gelu", strata_gelu, {NAN, INFINITY}, true},
                 {"gelu_tanh", strata_gelu_tanh, {NAN, INFINITY}, true},
                 {"silu", strata_silu, {NAN, INFINITY}, true},
                 {"softplus", strata_softplus, {0, INFINITY}, false},
                 {"leaky_relu", leaky_relu, {-INFINITY, INFINITY}, false},
                 {"elu", elu, {-1.5, INFINITY}, false}};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static strata_tensor *value(strata_tensor *const *x, const void *user) {
    return functions[*(const int *)user].f(x[0]);
}
static strata_tensor *gradient(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(value(x, user), x[1], x, 1, &dx);
    return dx;
}

/* The tolerance allows for the constants of the formulas, which are f32. */
static void expect_near(op_case c, const strata_array *want, const char *name) {
    strata_array got = evaluate(c);
    strata_test_result same = strata_test_compare(&got, want, (strata_test_tolerance){3e-7, 3e-7});
    cr_assert(same.ok, "%s: %s", name, same.text);
    strata_array_finish(&got);
}

Test(activation, matches_pytorch_in_value_and_gradient) {
    strata_golden *golden = strata_golden_load("activation");
    strata_array x[2] = {*strata_golden_get(golden, "x"), *strata_golden_get(golden, "dy")};
    for (int i = 0; i < N_FUNCTIONS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_grad", functions[i].name);
        expect_near((op_case){value, &i, x, 1}, strata_golden_get(golden, functions[i].name), functions[i].name);
        expect_near((op_case){gradient, &i, x, 2}, strata_golden_get(golden, name), name);
    }
    strata_golden_destroy(golden);
}

Test(activation, agrees_with_finite_differences) {
    strata_array x = strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0.2, 1);
    for (int i = 0; i < N_FUNCTIONS; i++) expect_gradient((op_case){value, &i, &x, 1});
    strata_array_finish(&x);
}

/* As in PyTorch and TensorFlow: what is not above 0 has the slope of what is below. */
Test(activation, has_the_slope_of_its_negative_side_at_0) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){0, -0.0}),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){1, 2})};
    for (int i = 0; i < N_FUNCTIONS; i++) {
        const double slope = functions[i].f == leaky_relu ? 0.25 : functions[i].f == elu ? 1.5 : 0.5;
        strata_array dx = evaluate((op_case){gradient, &i, x, 2});
        const float *got = dx.data;
        cr_assert_float_eq((double)got[0], slope, 1e-6, "%s: %g", functions[i].name, (double)got[0]);
        cr_assert_float_eq((double)got[1], 2 * slope, 1e-6, "%s: %g", functions[i].name, (double)got[1]);
        strata_array_finish(&dx);
    }
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
}

Test(activation, keeps_its_ends) {
    strata_array x =
        strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){(double)-INFINITY, (double)INFINITY, 0, (double)NAN});
    for (int i = 0; i < N_FUNCTIONS; i++) {
        strata_array y = evaluate((op_case){value, &i, &x, 1});
        const float *got = y.data;
        for (int k = 0; k < 2; k++) {
            const double want = functions[i].at_infinity[k];
            cr_assert(isnan(want) ? isnan(got[k]) : (double)got[k] == want, "%s: %g", functions[i].name, (double)got[k]);
        }
        cr_assert_float_eq((double)got[2], functions[i].f == strata_softplus ? log(2) : 0, 1e-7);
        cr_assert(isnan(got[3]), "%s", functions[i].name);
        strata_array_finish(&y);
    }
    strata_array_finish(&x);
}

Test(activation, says_which_gradients_are_not_differentiated_again) {
    for (int i = 0; i < N_FUNCTIONS; i++) {
        if (!functions[i].once) continue;
        strata_error err = {0};
        strata_graph *graph = NULL;
        cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
        strata_tensor *x[] = {strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2)),
                              strata_input(graph, "dy", STRATA_DTYPE_F32, STRATA_SHAPE(2))};
        strata_tensor *twice;
        strata_gradients(gradient(x, &i), NULL, x, 1, &twice);
        cr_assert_eq(strata_graph_check(graph, &err), STRATA_UNSUPPORTED);
        cr_assert(strstr(err.message, "not differentiated again"), "%s", err.message);
        strata_graph_destroy(graph);
    }
}
