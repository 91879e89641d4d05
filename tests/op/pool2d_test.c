/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d, avg_pool2d, their gradients and one-dimensional forms, compared with PyTorch, TensorFlow and finite
 * differences; and error messages. */
#include "core/op/pool2d.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernel/lowering.h"
#include "tests/op/op_case.h"

static strata_tensor *max_pool(strata_tensor *const *x, const void *user) {
    return strata_max_pool2d(x[0], *(const strata_pool2d_window *)user);
}
static strata_tensor *avg_pool(strata_tensor *const *x, const void *user) {
    return strata_avg_pool2d(x[0], *(const strata_pool2d_window *)user);
}
/* x, dy -> dx */
static strata_tensor *max_grad(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(max_pool(x, user), x[1], x, 1, &dx);
    return dx;
}
static strata_tensor *avg_grad(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(avg_pool(x, user), x[1], x, 1, &dx);
    return dx;
}

static const strata_array *get(const strata_golden *golden, const char *name, const char *part) {
    char text[64];
    snprintf(text, sizeof text, "%s_%s", name, part);
    return strata_golden_get(golden, text);
}

/* Windows contain ties. The first maximum gets the gradient. */
Test(pool2d, and_its_gradients_agree_with_pytorch) {
    const struct {
        const char *name;
        strata_pool2d_window options;
    } cases[] = {
        {"halving", {.size = {2, 2}}},
        {"overlapping",
         {.size = {3, 2}, .stride = {2, 1}, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {1, 1, 1, 1}}},
        {"gaps", {.size = {2, 2}, .stride = {3, 3}}},
    };
    strata_golden *golden = strata_golden_load("conv2d");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x[2] = {*get(golden, cases[i].name, "x"), *get(golden, cases[i].name, "dy")};
        expect_golden((op_case){max_pool, &cases[i].options, x, 1}, get(golden, cases[i].name, "max"));
        expect_golden((op_case){max_grad, &cases[i].options, x, 2}, get(golden, cases[i].name, "max_dx"));
        expect_golden((op_case){avg_pool, &cases[i].options, x, 1}, get(golden, cases[i].name, "avg"));
        expect_golden((op_case){avg_grad, &cases[i].options, x, 2}, get(golden, cases[i].name, "avg_dx"));
    }
    strata_golden_destroy(golden);
}

Test(pool2d, pads_as_tensorflow_does) {
    const struct {
        const char *name;
        strata_pool2d_window options;
    } cases[] = {{"odd", {.size = {3, 3}, .stride = {2, 2}}},
                 {"even", {.size = {3, 3}, .stride = {2, 2}}},
                 {"wide", {.size = {2, 4}, .stride = {1, 3}}},
                 {"sparse", {.size = {1, 1}, .stride = {2, 2}}}};
    strata_golden *golden = strata_golden_load("window_same");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_pool2d_window options = cases[i].options;
        options.padding = STRATA_PADDING_SAME;
        const strata_array *x = get(golden, cases[i].name, "x");
        expect_golden((op_case){max_pool, &options, x, 1}, get(golden, cases[i].name, "max"));
        expect_golden((op_case){avg_pool, &options, x, 1}, get(golden, cases[i].name, "avg"));
    }
    strata_golden_destroy(golden);
}

Test(pool2d, gradients_agree_with_finite_differences_twice) {
    const strata_pool2d_window cases[] = {{.size = {2, 2}},
                                          {.size = {3, 2}, .stride = {1, 1}, .padding = STRATA_PADDING_SAME},
                                          {.size = {1, 2}, .stride = {2, 1}}};
    const strata_shape results[] = {STRATA_SHAPE(1, 2, 2, 2), STRATA_SHAPE(1, 4, 5, 2), STRATA_SHAPE(1, 2, 4, 2)};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x[2] = {strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4, 5, 2), 0.1, 1),
                             strata_test_random(STRATA_DTYPE_F32, results[i], -1, 1, 2)};
        expect_gradient((op_case){max_pool, &cases[i], x, 1});
        expect_gradient((op_case){max_grad, &cases[i], x, 2});
        expect_gradient((op_case){avg_pool, &cases[i], x, 1});
        expect_gradient((op_case){avg_grad, &cases[i], x, 2});
        for (int k = 0; k < 2; k++) strata_array_finish(&x[k]);
    }
}

Test(pool2d, of_nan_is_nan_and_takes_the_gradient) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1, 6, 1), (double[]){1, NAN, 5, -INFINITY, 2, 2}),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 1, 2, 1), (double[]){10, 20})};
    const strata_pool2d_window threes = {.size = {1, 3}};
    expect_values((op_case){max_pool, &threes, x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 1, 2, 1), (double[]){NAN, 2});
    expect_values((op_case){max_grad, &threes, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 1, 6, 1),
                  (double[]){0, 10, 0, 0, 20, 0});
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
}

static void reject(strata_shape shape, strata_pool2d_window options, const char *words) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, shape, 1);
    expect_rejected((op_case){max_pool, &options, &x, 1}, words);
    expect_rejected((op_case){avg_pool, &options, &x, 1}, words);
    strata_array_finish(&x);
}

Test(pool2d, rejects_what_does_not_fit_and_says_why) {
    const strata_shape x = STRATA_SHAPE(2, 4, 5, 6);
    reject(x, (strata_pool2d_window){.size = {5, 2}}, "its height 4 padded by 0 and 0 is less than the 5");
    reject(x, (strata_pool2d_window){.size = {2, 0}}, "the window's width is 0");
    reject(x, (strata_pool2d_window){.size = {2, 2}, .stride = {-2, 1}}, "the stride along the height is -2");
    reject(x, (strata_pool2d_window){.size = {2, 2}, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {0, 0, 2, 0}},
           "a padding of 2 under a window of 2 would give windows without an element");
    reject(STRATA_SHAPE(4, 5), (strata_pool2d_window){.size = {2, 2}}, "x is (4,5); it must be (images, height");
    strata_array whole = strata_test_full(STRATA_DTYPE_I32, x, 1);
    expect_rejected((op_case){max_pool, &(strata_pool2d_window){.size = {2, 2}}, &whole, 1}, "x is i32");
    strata_array_finish(&whole);
}

/* The number of iterations in a kernel is limited, but the reference functions accept any window. */
Test(pool2d, kernels_refuse_windows_that_take_too_many_steps) {
    strata_graph *graph;
    strata_error err = {0};
    strata_lowering lowering = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(1, 300, 300, 1)), *dx;
    strata_tensor *y = strata_avg_pool2d(x, (strata_pool2d_window){.size = {300, 300}});
    cr_assert_eq(y->op->lower(y, &lowering, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "a window of 300 by 300 at strides of 300 and 300 takes 90000 steps"), "%s", err.message);
    strata_gradients(strata_max_pool2d(x, (strata_pool2d_window){.size = {40, 40}, .stride = {1, 1}}), NULL, &x, 1, &dx);
    cr_assert_eq(dx->op->lower(dx, &lowering, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "takes 2560000 steps"), "%s", err.message);
    cr_assert_eq(lowering.n, 0);
    strata_lowering_finish(&lowering);
    strata_graph_destroy(graph);
}

/* ---- along one axis ---- */

static strata_tensor *max_pool1d(strata_tensor *const *x, const void *user) {
    return strata_max_pool1d(x[0], *(const strata_pool1d_window *)user);
}
static strata_tensor *avg_pool1d(strata_tensor *const *x, const void *user) {
    return strata_avg_pool1d(x[0], *(const strata_pool1d_window *)user);
}

Test(pool1d, slides_along_the_length) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 5, 1), (double[]){1, 4, 2, 8, 6});
    const strata_pool1d_window plain = {.size = 2}, same = {.size = 2, .padding = STRATA_PADDING_SAME};
    expect_values((op_case){max_pool1d, &plain, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 1), (double[]){4, 8});
    expect_values((op_case){avg_pool1d, &plain, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 1), (double[]){2.5, 5});
    expect_values((op_case){max_pool1d, &same, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 1), (double[]){4, 8, 6});
    expect_values((op_case){avg_pool1d, &same, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 1), (double[]){2.5, 5, 6});
    expect_rejected((op_case){max_pool1d, &(strata_pool1d_window){.size = 6}, &x, 1}, "the output is empty");
    strata_array_finish(&x);
    strata_array flat = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), 1);
    expect_rejected((op_case){max_pool1d, &plain, &flat, 1},
                    "max_pool1d: x is (4,1); it must be (sequences, length, channels)");
    expect_rejected((op_case){avg_pool1d, &plain, &flat, 1}, "avg_pool1d: x is (4,1)");
    strata_array_finish(&flat);
}
