/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout: what it leaves while training, and that it does nothing otherwise. */
#include <math.h>

#include "layer_case.h"

enum { ROWS = 100, COLUMNS = 100 };

static strata_model *with_dropout(double rate, int n_layers) {
    strata_model *model = layer_model(STRATA_SHAPE(COLUMNS));
    for (int i = 0; i < n_layers; i++) strata_model_add_dropout(model, (strata_dropout_options){.rate = rate});
    return model;
}

/* Number of zeros; all else must be `kept`. */
static int zeros(const strata_array *y, double kept) {
    int n = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double value = strata_element_get(y->dtype, y->data, i);
        cr_assert(value == 0 || fabs(value - kept) < 1e-6, "element %d is %g", i, value);
        n += value == 0;
    }
    return n;
}

Test(dropout, drops_its_share_and_scales_the_rest) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), 3);
    const double rates[] = {0.1, 0.5, 0.8};
    for (int i = 0; i < 3; i++) {
        strata_model *model = with_dropout(rates[i], 1);
        strata_array y = layer_run(model, &x, NULL, true);
        int n = zeros(&y, 3 / (1 - rates[i]));
        /* five standard deviations of a binomial of 10,000 */
        cr_assert_float_eq(n, 1e4 * rates[i], 5 * sqrt(1e4 * rates[i] * (1 - rates[i])), "%d zeros at rate %g", n, rates[i]);
        strata_array_finish(&y);
        strata_model_destroy(model);
    }
    strata_array_finish(&x);
}

Test(dropout, layers_of_one_model_drop_apart) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), 1);
    strata_model *model = with_dropout(0.5, 2);
    strata_array y = layer_run(model, &x, NULL, true);
    cr_assert_float_eq(zeros(&y, 4), 7500, 250, "two layers with one mask keep a half, not a quarter");
    strata_array_finish(&y);
    strata_model_destroy(model);
    strata_array_finish(&x);
}

Test(dropout, does_nothing_without_training_or_rate) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, COLUMNS), -1, 1, 3);
    const struct {
        double rate;
        bool training;
    } cases[] = {{0.5, false}, {0, true}};
    for (int i = 0; i < 2; i++) {
        strata_model *model = with_dropout(cases[i].rate, 1);
        strata_array y = layer_run(model, &x, NULL, cases[i].training);
        strata_test_result same = strata_test_same(&y, &x);
        cr_assert(same.ok, "%s", same.text);
        strata_array_finish(&y);
        strata_model_destroy(model);
    }
    strata_array_finish(&x);
}

Test(dropout, refuses_a_rate_that_is_no_share) {
    const double wrong[] = {-0.1, 1, 7, NAN};
    for (int i = 0; i < 4; i++) layer_refuses(with_dropout(wrong[i], 1), "it must be at least 0 and below 1");
}
