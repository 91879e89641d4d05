/* SPDX-License-Identifier: Apache-2.0
 *
 * activation: each function by its formula, and wrong names. */
#include <math.h>

#include "layer_case.h"

static const double x_values[] = {-2, -0.5, 0, 0.5, 1, 3};

static double relu(double x) {
    return x > 0 ? x : 0;
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double gelu(double x) {
    return x * 0.5 * erfc(-x * 0.7071067811865476);
}
static double silu(double x) {
    return x * sigmoid(x);
}
static double leaky_relu(double x) {
    return x < 0 ? 0.2 * x : x;
}
static double elu(double x) {
    return x < 0 ? expm1(x) : x;
}
static double softplus(double x) {
    return log1p(exp(x));
}
static double softsign(double x) {
    return x / (1 + fabs(x));
}

Test(activation, element_wise_functions_are_their_formulas) {
    const struct {
        const char *name;
        double (*f)(double x);
    } functions[] = {{"relu", relu},         {"tanh", tanh},        {"sigmoid", sigmoid},       {"gelu", gelu},
                     {"silu", silu},         {"swish", silu},       {"leaky_relu", leaky_relu}, {"elu", elu},
                     {"softplus", softplus}, {"softsign", softsign}};
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), x_values);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        double want[6];
        for (int k = 0; k < 6; k++) want[k] = functions[i].f(x_values[k]);
        strata_model *model = layer_model(STRATA_SHAPE(3));
        strata_model_add_activation(model, (strata_activation_options){.function = functions[i].name});
        layer_gives(model, &x, NULL, STRATA_SHAPE(2, 3), want);
        strata_model_destroy(model);
    }
    strata_array_finish(&x);
}

Test(activation, softmax_is_over_the_last_axis) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), x_values);
    double want[6];
    for (int row = 0; row < 2; row++) {
        double total = 0;
        for (int k = 0; k < 3; k++) total += exp(x_values[3 * row + k]);
        for (int k = 0; k < 3; k++) want[3 * row + k] = exp(x_values[3 * row + k]) / total;
    }
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_activation(model, (strata_activation_options){.function = "softmax"});
    layer_gives(model, &x, NULL, STRATA_SHAPE(2, 3), want);
    strata_model_destroy(model);
    strata_array_finish(&x);
}

Test(activation, refuses_a_missing_or_unknown_function) {
    const char *const wrong[] = {NULL, "", "swosh"};
    for (int i = 0; i < 3; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(3));
        strata_model_add_activation(model, (strata_activation_options){.function = wrong[i]});
        layer_refuses(model, "there are: relu, tanh, sigmoid, softmax");
    }
}

Test(activation, alone_leaves_nothing_to_train) {
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_activation(model, (strata_activation_options){.function = "relu"});
    layer_refuses(model, "nothing to train");
    layer_refuses(layer_model(STRATA_SHAPE(3)), "no layers");
}
