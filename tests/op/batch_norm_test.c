/* SPDX-License-Identifier: Apache-2.0
 *
 * moments and batch_norm compared with PyTorch and finite differences, and which operands they refuse. */
#include <criterion/criterion.h>
#include <math.h>

#include "shaders/shaders.h"
#include "strata/executable.h"
#include "tests/op/op_case.h"

static const double epsilon = 1e-3;

static strata_tensor *moments(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_moments(x[0]);
}
/* x, mean, variance, scale, shift */
static strata_tensor *fixed(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_batch_norm(x[0], x[1], x[2], x[3], x[4], epsilon);
}
/* x, scale, shift */
static strata_tensor *training(strata_tensor *const *x, const void *user) {
    strata_tensor *mean, *variance;
    (void)user;
    return strata_batch_norm_training(x[0], x[1], x[2], epsilon, &mean, &variance);
}
/* The gradient with respect to operand *user. The last operand is dy. */
static strata_tensor *training_gradient(strata_tensor *const *x, const void *user) {
    strata_tensor *dx[3];
    strata_gradients(training(x, NULL), x[3], x, 3, dx);
    return dx[*(const int *)user];
}
static strata_tensor *fixed_gradient(strata_tensor *const *x, const void *user) {
    strata_tensor *dx[5];
    strata_gradients(fixed(x, NULL), x[5], x, 5, dx);
    return dx[*(const int *)user];
}

static strata_array get(const strata_golden *golden, const char *name) {
    return *strata_golden_get(golden, name);
}

/* The tolerance allows for a few roundings: sums have 20 terms, some of which cancel. */
static void expect_near(op_case c, const strata_array *want) {
    strata_array got = evaluate(c);
    strata_test_result same = strata_test_compare(&got, want, (strata_test_tolerance){4e-7, 2e-6});
    cr_assert(same.ok, "%s", same.text);
    strata_array_finish(&got);
}

Test(batch_norm, matches_pytorch) {
    strata_golden *golden = strata_golden_load("batch_norm");
    strata_array x = get(golden, "x"), dy = get(golden, "dy"), scale = get(golden, "scale"), shift = get(golden, "shift");
    strata_array own[] = {x, scale, shift, dy};
    strata_array given[] = {x, get(golden, "mean"), get(golden, "variance"), scale, shift, dy};
    expect_near((op_case){moments, NULL, &x, 1}, strata_golden_get(golden, "moments"));
    expect_near((op_case){training, NULL, own, 3}, strata_golden_get(golden, "y_training"));
    expect_near((op_case){fixed, NULL, given, 5}, strata_golden_get(golden, "y_fixed"));
    const char *const names[] = {"dx_training", "dscale_training", "dshift_training"};
    for (int i = 0; i < 3; i++) expect_near((op_case){training_gradient, &i, own, 4}, strata_golden_get(golden, names[i]));
    const char *const fixed_names[] = {"dx_fixed", NULL, NULL, "dscale_fixed", "dshift_fixed"};
    for (int i = 0; i < 5; i++)
        if (fixed_names[i]) expect_near((op_case){fixed_gradient, &i, given, 6}, strata_golden_get(golden, fixed_names[i]));
    strata_golden_destroy(golden);
}

Test(batch_norm, agrees_with_finite_differences) {
    strata_array x[5] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2, 2), -2, 2, 1),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2), -1, 1, 2),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0.8, 2, 3),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2), -1, 1, 4),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2), -1, 1, 5)};
    expect_gradient((op_case){moments, NULL, x, 1});
    expect_gradient((op_case){fixed, NULL, x, 5});
    expect_gradient((op_case){training, NULL, (strata_array[]){x[0], x[3], x[4]}, 3});
    for (int i = 0; i < 5; i++) strata_array_finish(&x[i]);
}

Test(batch_norm, moments_far_from_zero_keep_their_variance) {
    /* The values are 1000 +- 0.25, so the square of the mean is 16 million times the variance. */
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), (double[]){999.75, 1000.25, 999.75, 1000.25});
    expect_values((op_case){moments, NULL, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), (double[]){1000, 0.0625});
    strata_array_finish(&x);
}

Test(batch_norm, moments_of_no_rows_are_nan) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2), 0);
    expect_values((op_case){moments, NULL, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 2),
                  (double[]){(double)NAN, (double)NAN, (double)NAN, (double)NAN});
    strata_array_finish(&x);
}

Test(batch_norm, rejects_what_does_not_fit_the_channels) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), 0),
                 three = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 1);
    strata_array two = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 1),
                 scalar = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 1);
    strata_array half = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(3), 1),
                 whole = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(4, 3), 1);
    expect_rejected((op_case){fixed, NULL, (strata_array[]){x, three, two, three, three}, 5},
                    "batch_norm: x is (4,3), variance is (2); it must be (3), the last axis");
    expect_rejected((op_case){fixed, NULL, (strata_array[]){x, three, three, half, three}, 5}, "scale is f16; it must be f32");
    expect_rejected((op_case){moments, NULL, &scalar, 1}, "x is a scalar");
    expect_rejected((op_case){moments, NULL, &whole, 1}, "x is i32");
    strata_array *all[] = {&x, &three, &two, &scalar, &half, &whole};
    for (int i = 0; i < 6; i++) strata_array_finish(all[i]);
}

Test(batch_norm, takes_two_launches_to_measure_and_one_to_normalise) {
    for (int d = 0; d < 3; d++) {
        strata_array x = strata_test_full(float_dtypes[d], STRATA_SHAPE(64, 32, 32, 16), 1);
        strata_array c = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(16), 1);
        strata_launch launches[MOST_LAUNCHES];
        cr_assert_eq(lower_to((op_case){moments, NULL, &x, 1}, launches), 2);
        for (int i = 0; i < 2; i++) cr_assert(strata_shader_find(launches[i].kernel, launches[i].variant));
        cr_assert_eq(lower_to((op_case){fixed, NULL, (strata_array[]){x, c, c, c, c}, 5}, launches), 1);
        cr_assert(strata_shader_find(launches[0].kernel, launches[0].variant));
        strata_array_finish(&x);
        strata_array_finish(&c);
    }
}

/* Computes -dx for the rows of x and dy on the host device. With `times` 2 the batch has each row twice. */
static void minus_gradient(int times, float out[12]) {
    static const float x[6] = {1, 2, -3, 0.5f, -1, 4}, dy[6] = {0.3f, -0.2f, 0.9f, 1, 0.1f, -0.4f};
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    const strata_shape shape = STRATA_SHAPE(2 * times, 3);
    float values[2][12];
    for (int i = 0; i < 6 * times; i++) values[0][i] = x[i % 6], values[1][i] = dy[i % 6];
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *inputs[2] = {strata_input(graph, "x", STRATA_DTYPE_F32, shape),
                                strata_input(graph, "dy", STRATA_DTYPE_F32, shape)};
    strata_tensor *one = strata_broadcast_to(strata_scalar(graph, STRATA_DTYPE_F32, 1), STRATA_SHAPE(3)), *mean, *variance, *dx;
    strata_gradients(strata_batch_norm_training(inputs[0], one, one, epsilon, &mean, &variance), inputs[1], inputs, 1, &dx);
    dx = strata_neg(dx);
    cr_assert_eq(strata_executable_create(device, &dx, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    strata_array given[2], got = strata_array_view(STRATA_DTYPE_F32, shape, out);
    for (int i = 0; i < 2; i++) given[i] = strata_array_view(STRATA_DTYPE_F32, shape, values[i]);
    cr_assert_eq(strata_executable_run(exe, (const char *[]){"x", "dy"}, given, 2, &got, 1, &err), STRATA_OK, "%s",
                 err.message);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

/* With two rows the sums (2, C) have the shape of x. The gradient must not be computed in their memory while they are read. */
Test(batch_norm, the_gradient_of_two_rows_is_that_of_the_same_rows_twice) {
    float two[12], four[12];
    minus_gradient(1, two);
    minus_gradient(2, four);
    for (int i = 0; i < 12; i++) cr_assert_float_eq(two[i % 6], four[i], 1e-6, "element %d", i);
}
