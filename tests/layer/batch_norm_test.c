/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer batch_norm: what it takes in training and else, its parameters, what it refuses. The op:
 * tests/op/batch_norm_test.c. */
#include <math.h>

#include "core/model/build.h"
#include "layer_case.h"

/* gamma, beta, moving_mean, moving_variance of two channels */
static const double parameters[] = {2, 1, 10, 20, 3, 5, 3.999, 0.999};
static const double values[] = {1, 6, 5, 4, 1, 6, 5, 4};

Test(batch_norm, takes_the_moving_averages_outside_of_training) {
    strata_model *model = layer_model(STRATA_SHAPE(2));
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4, 2), values);
    layer_gives(model, &x, parameters, STRATA_SHAPE(4, 2), (double[]){8, 21, 12, 19, 8, 21, 12, 19});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(batch_norm, takes_the_batch_s_own_while_training) {
    strata_model *model = layer_model(STRATA_SHAPE(2, 2));
    strata_model_add_batch_norm(model, (strata_batch_norm_options){.epsilon = 0.5, .activation = "relu"});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 2), values);
    strata_array y = layer_run(model, &x, (double[]){3, 1, 0, 0, 0, 0, 1, 1}, true);
    const double first = 3 * 2 / sqrt(4.5), second = 1 / sqrt(1.5);
    const double want[] = {0, second, first, 0, 0, second, first, 0};
    for (int i = 0; i < 8; i++)
        cr_assert_float_eq(((float *)y.data)[i], want[i], 1e-6, "%d: %g", i, (double)((float *)y.data)[i]);
    strata_array_finish(&x);
    strata_array_finish(&y);
    strata_model_destroy(model);
}

Test(batch_norm, has_two_parameters_and_two_states) {
    strata_error err = {0};
    strata_model *model = layer_model(STRATA_SHAPE(2, 3));
    strata_model_add_batch_norm(model, (strata_batch_norm_options){0});
    cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
    const char *const names[] = {"batch_norm/gamma", "batch_norm/beta", "batch_norm/moving_mean", "batch_norm/moving_variance"};
    cr_assert_eq(strata_model_n_parameters(model), 4);
    for (int i = 0; i < 4; i++) {
        strata_parameter p = strata_model_parameter(model, i);
        cr_assert_str_eq(p.name, names[i]);
        cr_assert(strata_shape_equal(p.shape, STRATA_SHAPE(3)));
        cr_assert_eq(p.state, i >= 2);
    }
    strata_model_destroy(model);
}

Test(batch_norm, refuses_wrong_options) {
    const strata_batch_norm_options wrong[] = {{.momentum = 1}, {.momentum = -0.1}, {.epsilon = -1}, {.activation = "rely"}};
    const char *const messages[] = {"batch_norm: momentum is 1", "momentum is -0.1", "epsilon is -1", "no activation \"rely\""};
    for (int i = 0; i < 4; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(3));
        strata_model_add_batch_norm(model, wrong[i]);
        layer_refuses(model, messages[i]);
    }
}
