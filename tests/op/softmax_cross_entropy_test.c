/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cross_entropy and sparse_softmax_cross_entropy compared with NumPy, and their gradients. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/op/op_case.h"

static strata_tensor *dense(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_softmax_cross_entropy(x[0], x[1]);
}

static strata_tensor *sparse(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_sparse_softmax_cross_entropy(x[0], x[1]);
}

/* The gradient of the loss of x[0] and x[1] with respect to operand *user. x[2] is dy. */
static strata_tensor *gradient(strata_tensor *loss, strata_tensor *const *x, const void *user) {
    strata_tensor *by = x[*(const int *)user], *dx;
    strata_gradients(loss, x[2], &by, 1, &dx);
    return dx;
}

static strata_tensor *dense_gradient(strata_tensor *const *x, const void *user) {
    return gradient(dense(x, NULL), x, user);
}

static strata_tensor *sparse_gradient(strata_tensor *const *x, const void *user) {
    return gradient(sparse(x, NULL), x, user);
}

static const int by_logits = 0, by_labels = 1;

static strata_array golden_of(const strata_golden *golden, const char *stem, strata_dtype dtype) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", stem, strata_dtype_name(dtype));
    return *strata_golden_get(golden, name);
}

Test(softmax_cross_entropy, agrees_with_numpy) {
    strata_golden *golden = strata_golden_load("softmax");
    for (int d = 0; d < 3; d++) {
        strata_dtype dtype = float_dtypes[d];
        strata_array x[3] = {golden_of(golden, "x", dtype), golden_of(golden, "labels", dtype),
                             golden_of(golden, "per_row", dtype)};
        strata_array want = golden_of(golden, "dense", dtype);
        expect_golden((op_case){dense, NULL, x, 2}, &want);
        want = golden_of(golden, "dense_grad", dtype);
        expect_golden((op_case){dense_gradient, &by_logits, x, 3}, &want);
        want = golden_of(golden, "dense_labels_grad", dtype);
        expect_golden((op_case){dense_gradient, &by_labels, x, 3}, &want);
    }
    strata_golden_destroy(golden);
}

Test(sparse_softmax_cross_entropy, agrees_with_numpy_for_both_kinds_of_labels) {
    strata_golden *golden = strata_golden_load("softmax");
    for (int d = 0; d < 3; d++) {
        strata_dtype dtype = float_dtypes[d];
        strata_array long_labels = golden_of(golden, "classes", dtype);
        strata_array labels = strata_test_full(STRATA_DTYPE_I32, long_labels.shape, 0);
        for (int i = 0; i < 12; i++) ((int32_t *)labels.data)[i] = (int32_t)((int64_t *)long_labels.data)[i];
        strata_array x[3] = {golden_of(golden, "x", dtype), labels, golden_of(golden, "per_row", dtype)};
        for (int kind = 0; kind < 2; kind++) {
            strata_array want = golden_of(golden, "sparse", dtype);
            expect_golden((op_case){sparse, NULL, x, 2}, &want);
            want = golden_of(golden, "sparse_grad", dtype);
            expect_golden((op_case){sparse_gradient, &by_logits, x, 3}, &want);
            x[1] = long_labels;
        }
        strata_array_finish(&labels);
    }
    strata_golden_destroy(golden);
}

Test(sparse_softmax_cross_entropy, label_out_of_range_makes_its_row_nan_and_no_other) {
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), 1),
                         strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(4), (double[]){2, 3, -1, 0}),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4), 1)};
    float log3 = logf(3), third = 1.0f / 3;
    float loss[4] = {log3, NAN, NAN, log3};
    float slope[12] = {third, third, third - 1, NAN, NAN, NAN, NAN, NAN, NAN, third - 1, third, third};
    expect_golden((op_case){sparse, NULL, x, 2}, &(strata_array){STRATA_DTYPE_F32, STRATA_SHAPE(4), loss, NULL});
    expect_golden((op_case){sparse_gradient, &by_logits, x, 3},
                  &(strata_array){STRATA_DTYPE_F32, STRATA_SHAPE(4, 3), slope, NULL});
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(softmax_cross_entropy, gradients_agree_with_finite_differences) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4), -1, 1, 5),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4), 0, 1, 6)};
    expect_gradient((op_case){dense, NULL, x, 2});
    strata_array_finish(&x[1]);
    x[1] = strata_test_random(STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), 0, 4, 7);
    expect_gradient((op_case){sparse, NULL, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(softmax_cross_entropy, one_row_without_batch_gives_a_scalar) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(8), 0.25),
                         strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(), 3)};
    float want = logf(8);
    expect_golden((op_case){sparse, NULL, x, 2}, &(strata_array){STRATA_DTYPE_F32, STRATA_SHAPE(), &want, NULL});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

static void reject(strata_test_build build, strata_dtype a_dtype, strata_shape a, strata_dtype b_dtype, strata_shape b,
                   const char *words) {
    strata_array x[2] = {strata_test_full(a_dtype, a, 0), strata_test_full(b_dtype, b, 0)};
    expect_rejected((op_case){build, NULL, x, 2}, words);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(softmax_cross_entropy, rejects_labels_that_do_not_fit_and_says_why) {
    const strata_dtype f32 = STRATA_DTYPE_F32, i32 = STRATA_DTYPE_I32;
    reject(sparse, f32, STRATA_SHAPE(64, 10), i32, STRATA_SHAPE(32),
           "sparse_softmax_cross_entropy: labels is (32), logits is (64,10); labels must be (64)");
    reject(sparse, f32, STRATA_SHAPE(64, 10), f32, STRATA_SHAPE(64), "labels is f32; it must be i32 or i64");
    reject(sparse, f32, STRATA_SHAPE(), i32, STRATA_SHAPE(), "logits is a scalar");
    reject(dense, f32, STRATA_SHAPE(64, 10), f32, STRATA_SHAPE(64, 9),
           "logits is (64,10), labels is (64,9); they must be equal");
    reject(dense, f32, STRATA_SHAPE(64, 10), STRATA_DTYPE_F16, STRATA_SHAPE(64, 10), "logits is f32, labels is f16");
}

static strata_tensor *second_derivative(strata_tensor *const *x, const void *user) {
    strata_tensor *dx = sparse_gradient(x, user), *ddx;
    strata_gradients(dx, NULL, x, 1, &ddx);
    return ddx;
}

Test(softmax_cross_entropy, second_derivative_says_what_to_do_instead) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x[3] = {strata_input(graph, "logits", STRATA_DTYPE_F32, STRATA_SHAPE(2, 3)),
                           strata_input(graph, "labels", STRATA_DTYPE_I32, STRATA_SHAPE(2)),
                           strata_input(graph, "dy", STRATA_DTYPE_F32, STRATA_SHAPE(2))};
    second_derivative(x, &by_logits);
    strata_error err;
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "strata_log_softmax"), "%s", err.message);
    strata_graph_destroy(graph);
}
