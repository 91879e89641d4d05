/* SPDX-License-Identifier: Apache-2.0
 *
 * binary_sums: the sums from which the metrics of binary classifiers are computed. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/op/op_case.h"

static strata_tensor *sums(strata_tensor *const *x, const void *user) {
    return strata_binary_sums(x[0], x[1], x[2], *(const double *)user);
}

Test(binary_sums, adds_losses_and_shares_of_right_answers) {
    static const double at_zero = 0, at_half = 0.5, want_zero[] = {4, 2.5}, want_half[] = {4, 2};
    strata_array x[] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3), (double[]){0.5, 1.5, 2}),
                        /* row 0: both outputs are right; row 1: one of two is; NaN counts as the answer 0 */
                        strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), (double[]){1, -1, 0.25, 3, NAN, 0.75}),
                        strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), (double[]){1, 0, 1, 0.25, 0, 1})};
    expect_values((op_case){sums, &at_zero, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(2), want_zero);
    expect_values((op_case){sums, &at_half, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(2), want_half);
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(binary_sums, rejects_labels_of_another_shape) {
    static const double threshold = 0;
    strata_array x[] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 0),
                        strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 2), 0),
                        strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), 0)};
    expect_rejected((op_case){sums, &threshold, x, 3}, "labels (3,1)");
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

static strata_tensor *cross_entropy(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_sigmoid_cross_entropy(x[0], x[1]);
}

Test(sigmoid_cross_entropy, is_finite_far_out_and_its_gradients_agree_with_differences) {
    strata_array x[] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){-1000, 1000, 1000, 0}),
                        strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){0, 1, 0, 1})};
    expect_values((op_case){cross_entropy, NULL, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(4),
                  (double[]){0, 0, 1000, 0.69314718055994531});
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
    x[0] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 5), -3, 3, 1);
    x[1] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1), 0, 1, 2);
    expect_gradient((op_case){cross_entropy, NULL, x, 2});
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
}
