/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_norm and attention compared with PyTorch, attention with masks, and which operands both refuse. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/op/op_case.h"

static strata_tensor *layer_norm(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_layer_norm(x[0], x[1], x[2], 1e-3);
}
static strata_tensor *attention(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_attention(x[0], x[1], x[2], NULL, 0);
}
static strata_tensor *masked(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_attention(x[0], x[1], x[2], x[4], 0);
}

/* The gradient of `build` with respect to operand i. Operand 3 is dy. */
typedef struct gradient_of {
    strata_test_build build;
    int i;
} gradient_of;
static strata_tensor *gradient(strata_tensor *const *x, const void *user) {
    const gradient_of *g = user;
    strata_tensor *dx[3];
    strata_gradients(g->build(x, NULL), x[3], x, 3, dx);
    return dx[g->i];
}

static void expect_near(op_case c, const strata_golden *golden, const char *name) {
    strata_array got = evaluate(c);
    strata_test_result same = strata_test_compare(&got, strata_golden_get(golden, name), (strata_test_tolerance){1e-6, 2e-6});
    cr_assert(same.ok, "%s: %s", name, same.text);
    strata_array_finish(&got);
}

static void expect_all(strata_test_build build, const strata_array *x, int n_x, const strata_golden *golden, const char *name) {
    expect_near((op_case){build, NULL, x, n_x}, golden, name);
    for (int i = 0; i < 3; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s_grad_%d", name, i);
        expect_near((op_case){gradient, &(gradient_of){build, i}, x, n_x}, golden, text);
    }
}

Test(attention, and_layer_norm_match_pytorch) {
    strata_golden *golden = strata_golden_load("attention");
    const char *const names[] = {"x", "scale", "shift", "dy", "q", "k", "v", "dout", "mask"};
    strata_array x[9];
    for (int i = 0; i < 9; i++) x[i] = *strata_golden_get(golden, names[i]);
    expect_all(layer_norm, x, 4, golden, "layer_norm");
    expect_all(attention, x + 4, 4, golden, "attention_plain");
    expect_all(masked, x + 4, 5, golden, "attention_masked");
    strata_golden_destroy(golden);
}

Test(attention, of_a_row_that_is_all_masked_is_zero_and_passes_no_gradient) {
    strata_array q = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1);
    strata_array v = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 2);
    strata_array mask = strata_test_array(STRATA_DTYPE_BOOL, STRATA_SHAPE(2, 2), (double[]){0, 0, 1, 0});
    strata_array x[] = {q, q, v, q, mask};
    const float *second = v.data;
    expect_values((op_case){masked, NULL, x, 5}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 3),
                  (double[]){0, 0, 0, (double)second[0], (double)second[1], (double)second[2]});
    strata_array dq = evaluate((op_case){gradient, &(gradient_of){masked, 0}, x, 5});
    for (int i = 0; i < 3; i++) cr_assert_eq(((float *)dq.data)[i], 0);
    strata_array_finish(&dq);
    strata_array_finish(&q);
    strata_array_finish(&v);
    strata_array_finish(&mask);
}

Test(attention, rejects_shapes_that_do_not_meet) {
    strata_array a = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0),
                 b = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 4), 0);
    strata_array flat = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 0);
    expect_rejected((op_case){attention, NULL, (strata_array[]){a, b, a}, 3}, "matmul");
    expect_rejected((op_case){attention, NULL, (strata_array[]){flat, a, a}, 3}, "q is (3); it needs at least two axes");
    expect_rejected((op_case){layer_norm, NULL, (strata_array[]){a, flat, b}, 3}, "x is (2,3), shift is (2,4); it must be (3)");
    strata_array_finish(&a);
    strata_array_finish(&b);
    strata_array_finish(&flat);
}
