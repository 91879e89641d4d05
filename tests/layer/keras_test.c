/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers from their JSON against Keras 3: outputs and places of parameters (tests/op/golden/layers.py). And what they refuse,
 * and what a summary counts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/model/build.h"
#include "layer_case.h"
#include "tests/support/golden.h"

/* A model of these layers for an input as in JSON; tokens where `dtype` is i32. */
static strata_model *model_of(const char *input, const char *dtype, const char *layers) {
    char text[1024];
    strata_error err = {0};
    strata_model *model = NULL;
    snprintf(text, sizeof text, "{\"input\": %s, \"input_dtype\": \"%s\", \"layers\": [%s]}", input, dtype, layers);
    cr_assert_eq(strata_model_from_json(text, strlen(text), "test", &model, &err), STRATA_OK, "%s", err.message);
    return model;
}

static const strata_array *get(const strata_golden *golden, const char *name, const char *part) {
    char text[64];
    snprintf(text, sizeof text, "%s_%s", name, part);
    return strata_golden_get(golden, text);
}

#define TOKENS "[4]"
#define MASKED "{\"layer\": \"embedding\", \"vocabulary\": 4, \"units\": 3, \"mask_zero\": true}, "
/* The options of layers.py, in Strata's names. */
static const struct {
    const char *name, *input, *layers;
} cases[] = {
#define CELL(kind)                                                                                               \
    {kind, "[5, 4]", "{\"layer\": \"" kind "\", \"units\": 3}"},                                                 \
        {kind "_sequences", "[5, 4]", "{\"layer\": \"" kind "\", \"units\": 3, \"return_sequences\": true}"},    \
        {kind "_backwards", "[5, 4]",                                                                            \
         "{\"layer\": \"" kind "\", \"units\": 3, \"return_sequences\": true, \"go_backwards\": true}"},         \
        {kind "_functions", "[5, 4]",                                                                            \
         "{\"layer\": \"" kind                                                                                   \
         "\", \"units\": 3, \"activation\": \"relu\", \"recurrent_activation\": \"tanh\", \"no_bias\": true}"},  \
        {kind "_concat", "[5, 4]",                                                                               \
         "{\"layer\": \"" kind "\", \"units\": 2, \"return_sequences\": true, \"bidirectional\": \"concat\"}"},  \
        {kind "_ave", "[5, 4]", "{\"layer\": \"" kind "\", \"units\": 2, \"bidirectional\": \"ave\"}"},          \
        {kind "_masked_last", TOKENS, MASKED "{\"layer\": \"" kind "\", \"units\": 2}"}, {                       \
        kind "_masked_all", TOKENS, MASKED "{\"layer\": \"" kind "\", \"units\": 2, \"return_sequences\": true}" \
    }
    CELL("lstm"),
    CELL("gru"),
    {"gru_reset_before", "[5, 4]", "{\"layer\": \"gru\", \"units\": 3, \"no_reset_after\": true}"},
    {"gru_reset_before_sequences", "[5, 4]",
     "{\"layer\": \"gru\", \"units\": 3, \"no_reset_after\": true, \"return_sequences\": true, \"go_backwards\": true}"},
    {"gru_reset_before_functions", "[5, 4]",
     "{\"layer\": \"gru\", \"units\": 3, \"no_reset_after\": true, \"activation\": \"relu\", \"no_bias\": true}"},
    {"gru_reset_before_concat", "[5, 4]",
     "{\"layer\": \"gru\", \"units\": 2, \"no_reset_after\": true, \"return_sequences\": true, \"bidirectional\": \"concat\"}"},
    {"transpose", "[3, 4, 2]", "{\"layer\": \"conv2d_transpose\", \"filters\": 3, \"kernel_size\": [3, 2]}"},
    {"transpose_valid", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 3, \"kernel_size\": 3, \"stride\": 2, \"activation\": \"relu\"}"},
    {"transpose_same", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 3, \"kernel_size\": 3, \"stride\": 2, \"padding\": \"same\"}"},
    {"transpose_small", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 2, \"kernel_size\": 2, \"stride\": 3, \"no_bias\": true}"},
    {"transpose_more", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 2, \"kernel_size\": 3, \"stride\": 2, \"output_padding\": 1}"},
    {"transpose_more_of_one", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 2, \"kernel_size\": [3, 2], \"stride\": [2, 3], \"padding\": \"same\", "
     "\"output_padding\": [0, 2]}"},
    {"transpose_dilated", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 2, \"kernel_size\": [3, 2], \"dilation\": [2, 3]}"},
    {"transpose_dilated_same", "[3, 4, 2]",
     "{\"layer\": \"conv2d_transpose\", \"filters\": 2, \"kernel_size\": 3, \"dilation\": 2, \"padding\": \"same\"}"},
    {"depthwise", "[6, 5, 3]", "{\"layer\": \"depthwise_conv2d\", \"kernel_size\": 3}"},
    {"depthwise_same", "[6, 5, 3]",
     "{\"layer\": \"depthwise_conv2d\", \"kernel_size\": [2, 3], \"stride\": 2, \"padding\": \"same\", \"depth_multiplier\": "
     "2}"},
    {"depthwise_dilated", "[6, 5, 3]",
     "{\"layer\": \"depthwise_conv2d\", \"kernel_size\": 2, \"dilation\": 2, \"depth_multiplier\": 3, \"activation\": "
     "\"tanh\"}"},
    {"separable", "[6, 5, 3]",
     "{\"layer\": \"separable_conv2d\", \"filters\": 4, \"kernel_size\": 3, \"depth_multiplier\": 2, \"padding\": \"same\"}"},
    {"group_norm", "[2, 3, 6]", "{\"layer\": \"group_norm\", \"groups\": 2}"},
    {"instance_norm", "[2, 3, 6]", "{\"layer\": \"group_norm\", \"groups\": -1, \"epsilon\": 0.01, \"no_scale\": true}"},
    {"rms_norm", "[2, 3, 6]", "{\"layer\": \"rms_norm\"}"},
};
enum { N_CASES = sizeof cases / sizeof *cases, MOST_PARAMETERS = 256 };

Test(keras_layers, give_keras_outputs_for_its_parameters) {
    strata_golden *golden = strata_golden_load("layers");
    for (int i = 0; i < N_CASES; i++) {
        const strata_array *x = get(golden, cases[i].name, "x"), *p = get(golden, cases[i].name, "p");
        const strata_array *want = get(golden, cases[i].name, "y");
        strata_model *model = model_of(cases[i].input, strata_dtype_name(x->dtype), cases[i].layers);
        double parameters[MOST_PARAMETERS];
        int64_t n = 0;
        cr_assert_leq(strata_shape_elements(p->shape), MOST_PARAMETERS);
        for (int64_t k = 0; k < strata_shape_elements(p->shape); k++) parameters[k] = (double)((const float *)p->data)[k];
        strata_array got = layer_run(model, x, parameters, false);
        for (int k = 0; k < strata_model_n_parameters(model); k++)
            n += strata_shape_elements(strata_model_parameter(model, k).shape);
        cr_assert_eq(n, strata_shape_elements(p->shape), "%s has %lld parameters, Keras %lld", cases[i].name, (long long)n,
                     (long long)strata_shape_elements(p->shape));
        strata_test_result same = strata_test_compare(&got, want, strata_test_tolerance_of(STRATA_DTYPE_F32, 16));
        cr_expect(same.ok, "%s: %s", cases[i].name, same.text);
        strata_array_finish(&got);
        strata_model_destroy(model);
    }
    strata_golden_destroy(golden);
}

Test(keras_layers, parameters_have_keras_names_and_shapes) {
    static const struct {
        const char *input, *layers, *want;
    } models[] = {
        {"[5, 4]", "{\"layer\": \"lstm\", \"units\": 3, \"bidirectional\": \"sum\"}",
         "lstm/kernel (4,12) lstm/recurrent_kernel (3,12) lstm/bias (12) lstm/backward_kernel (4,12) "
         "lstm/backward_recurrent_kernel (3,12) lstm/backward_bias (12) "},
        {"[5, 4]", "{\"layer\": \"gru\", \"units\": 3}", "gru/kernel (4,9) gru/recurrent_kernel (3,9) gru/bias (2,9) "},
        {"[5, 4]", "{\"layer\": \"gru\", \"units\": 3, \"no_reset_after\": true}",
         "gru/kernel (4,9) gru/recurrent_kernel (3,9) gru/bias (9) "},
        {"[5, 4, 2]", "{\"layer\": \"conv2d_transpose\", \"filters\": 3, \"kernel_size\": 2}",
         "conv2d_transpose/kernel (2,2,3,2) conv2d_transpose/bias (3) "},
        {"[5, 4, 2]", "{\"layer\": \"depthwise_conv2d\", \"kernel_size\": [3, 1], \"depth_multiplier\": 5}",
         "depthwise_conv2d/kernel (3,1,2,5) depthwise_conv2d/bias (10) "},
        {"[5, 4, 2]", "{\"layer\": \"separable_conv2d\", \"filters\": 3, \"kernel_size\": 2, \"depth_multiplier\": 2}",
         "separable_conv2d/depthwise_kernel (2,2,2,2) separable_conv2d/pointwise_kernel (1,1,4,3) separable_conv2d/bias (3) "},
        {"[5, 4]", "{\"layer\": \"group_norm\", \"groups\": 2, \"no_center\": true}", "group_norm/gamma (4) "},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        strata_model *model = model_of(models[i].input, "f32", models[i].layers);
        strata_error err = {0};
        char text[512] = "";
        cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
        for (int k = 0; k < strata_model_n_parameters(model); k++) {
            const strata_parameter p = strata_model_parameter(model, k);
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s %s ", p.name, strata_shape_text(p.shape).text);
        }
        cr_expect_str_eq(text, models[i].want);
        strata_model_destroy(model);
    }
}

/* The outputs for tokens (1, n) of these layers behind an embedding that masks token 0, with the first numbers of a row of
 * parameters. */
static strata_array of_tokens(const int32_t *tokens, int n, const char *layers, const double *parameters) {
    char input[16], text[512];
    snprintf(input, sizeof input, "[%d]", n);
    snprintf(text, sizeof text, MASKED "%s", layers);
    strata_model *model = model_of(input, "i32", text);
    const strata_array x = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(1, n), (void *)tokens);
    strata_array y = layer_run(model, &x, parameters, false);
    strata_model_destroy(model);
    return y;
}

#define RECURRENT(kind, options) "{\"layer\": \"" kind "\", \"units\": 2" options "}"
#define SEQUENCES                ", \"return_sequences\": true"
#define BACKWARDS                ", \"go_backwards\": true"
#define BOTH                     ", \"bidirectional\": \"concat\""

/* A step that is masked is left out by each layer of a stack, wherever the step is and in whichever direction a layer runs. */
Test(keras_layers, a_masked_step_is_as_if_it_were_not_there) {
    static const int32_t tokens[] = {0, 3, 0, 1, 2, 0}, left[] = {3, 1, 2};
    static const char *const stacks[] = {
        RECURRENT("lstm", ""),
        RECURRENT("gru", BACKWARDS),
        RECURRENT("lstm", BOTH),
        RECURRENT("gru", SEQUENCES) ", " RECURRENT("lstm", ""),
        RECURRENT("lstm", SEQUENCES) ", " RECURRENT("gru", BACKWARDS),
        RECURRENT("gru", SEQUENCES BOTH) ", " RECURRENT("lstm", BACKWARDS),
        RECURRENT("lstm", SEQUENCES BOTH) ", " RECURRENT("gru", SEQUENCES) ", " RECURRENT("gru", BOTH),
        RECURRENT("gru", SEQUENCES) ", {\"layer\": \"dropout\", \"rate\": 0.5}, " RECURRENT("gru", BACKWARDS),
    };
    double parameters[512];
    for (int i = 0; i < 512; i++) parameters[i] = 0.7 * (i * 37 % 41) / 20 - 0.7;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        strata_array got = of_tokens(tokens, 6, stacks[i], parameters), want = of_tokens(left, 3, stacks[i], parameters);
        strata_test_result same = strata_test_compare(&got, &want, strata_test_tolerance_of(STRATA_DTYPE_F32, 4));
        cr_expect(same.ok, "%s: %s", stacks[i], same.text);
        strata_array_finish(&got);
        strata_array_finish(&want);
    }
}

/* The steps of a layer that goes backwards are in another order than the mask, so the mask ends there: the layer behind it runs
 * over all steps, as over an input without a mask. */
Test(keras_layers, a_mask_ends_behind_all_steps_in_reverse_order) {
    static const int32_t tokens[] = {0, 3, 0, 1, 2, 0};
    static const struct {
        const char *first, *second;
        int n_first;
    } stacks[] = {{RECURRENT("gru", SEQUENCES BACKWARDS), RECURRENT("lstm", ""), 4 * 3 + 3 * 6 + 2 * 6 + 2 * 6},
                  {RECURRENT("lstm", SEQUENCES BACKWARDS), RECURRENT("gru", SEQUENCES), 4 * 3 + 3 * 8 + 2 * 8 + 8}};
    double parameters[512];
    for (int i = 0; i < 512; i++) parameters[i] = 0.7 * (i * 37 % 41) / 20 - 0.7;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        char both[256];
        snprintf(both, sizeof both, "%s, %s", stacks[i].first, stacks[i].second);
        strata_array steps = of_tokens(tokens, 6, stacks[i].first, parameters), got = of_tokens(tokens, 6, both, parameters);
        strata_model *model = model_of("[6, 2]", "f32", stacks[i].second);
        strata_array want = layer_run(model, &steps, parameters + stacks[i].n_first, false);
        strata_test_result same = strata_test_compare(&got, &want, strata_test_tolerance_of(STRATA_DTYPE_F32, 4));
        cr_expect(same.ok, "%s: %s", both, same.text);
        strata_array_finish(&steps);
        strata_array_finish(&got);
        strata_array_finish(&want);
        strata_model_destroy(model);
    }
}

/* A half of the units is left out of what the products take while training, and none when it answers. */
Test(keras_layers, recurrent_dropout_is_there_while_training_only) {
    static const char layer[] = "{\"layer\": \"%s\", \"units\": 8, \"return_sequences\": true, \"recurrent_dropout\": %s}";
    const char *const kinds[] = {"lstm", "gru"};
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4), -1, 1, 1);
    double parameters[4 * 32 + 8 * 32 + 48];
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) parameters[i] = 0.01 * (double)(i % 17) - 0.06;
    for (int kind = 0; kind < 2; kind++)
        for (int training = 0; training < 2; training++) {
            char with[160], without[160];
            snprintf(with, sizeof with, layer, kinds[kind], "0.5");
            snprintf(without, sizeof without, layer, kinds[kind], "0");
            strata_model *a = model_of("[3, 4]", "f32", with), *b = model_of("[3, 4]", "f32", without);
            strata_array got = layer_run(a, &x, parameters, training), want = layer_run(b, &x, parameters, training);
            const float *left = got.data, *right = want.data;
            int differing = 0, first = 0;
            for (int64_t k = 0; k < strata_shape_elements(got.shape); k++) {
                differing += left[k] != right[k];
                first += k / 8 % 3 == 0 && left[k] != right[k]; /* the first step has no h to drop */
            }
            cr_expect_eq(differing > 8, training, "%s: %d numbers differ", kinds[kind], differing);
            cr_expect_eq(first, 0, "%s: %d numbers of the first step differ", kinds[kind], first);
            strata_array_finish(&got);
            strata_array_finish(&want);
            strata_model_destroy(a);
            strata_model_destroy(b);
        }
    strata_array_finish(&x);
}

/* Keras: the recurrent kernel is orthogonal, and the forget gate's bias begins at 1. */
Test(keras_layers, an_lstm_begins_as_keras_does) {
    strata_error err = {0};
    strata_device *host = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK);
    strata_model *model = model_of("[2, 3]", "f32", "{\"layer\": \"lstm\", \"units\": 8}");
    cr_assert_eq(strata_model_compile(model, host, NULL, &err), STRATA_OK, "%s", err.message);
    float matrix[8][32], bias[32];
    strata_array matrix_view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(8, 32), matrix);
    strata_array bias_view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(32), bias);
    cr_assert_eq(strata_model_get_parameter(model, 1, &matrix_view, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_get_parameter(model, 2, &bias_view, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            double product = 0;
            for (int k = 0; k < 32; k++) product += (double)matrix[i][k] * (double)matrix[j][k];
            cr_expect_float_eq(product, i == j, 1e-6, "rows %d and %d: %g", i, j, product);
        }
    for (int k = 0; k < 32; k++) cr_expect_eq(bias[k], k / 8 == 1 ? 1 : 0, "bias %d is %g", k, (double)bias[k]);
    strata_model_destroy(model);
    strata_device_close(host);
}

/* The same channels at all steps of an example, scaled; others in other examples. */
Test(keras_layers, dropout_leaves_out_channels_of_all_steps) {
    enum { N = 4, T = 3, C = 8 };
    strata_model *model = model_of("[3, 8]", "f32",
                                   "{\"layer\": \"lstm\", \"units\": 1, "
                                   "\"dropout\": 0.5, \"activation\": \"linear\", \"recurrent_activation\": \"linear\", "
                                   "\"no_bias\": true, \"return_sequences\": true}");
    /* i = f = o = g = 0.1 times the sum of x, a function of how many channels are left alone. */
    double p[C * 4 + 4] = {0};
    for (int i = 0; i < C * 4; i++) p[i] = 0.1;
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N, T, C), 1);
    strata_array with = layer_run(model, &x, p, true), without = layer_run(model, &x, p, false);
    const float *y = with.data, *all = without.data;
    int differ = 0;
    for (int n = 0; n < N; n++) {
        /* With z the value of all gates, c = z c + z z and h = z c; so after the first step h is z^3. */
        double z = cbrt((double)y[n * T]), c = 0;
        for (int t = 0; t < T; t++) {
            c = z * c + z * z;
            cr_expect_float_eq((double)y[n * T + t], z * c, 1e-4, "example %d, step %d", n, t);
        }
        differ += fabs((double)(y[n * T] - all[n * T])) > 1e-4;
    }
    cr_expect(differ > 0, "nothing was left out");
    strata_array_finish(&with);
    strata_array_finish(&without);
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(keras_layers, refuse_wrong_options) {
    strata_model *model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_lstm(model, (strata_lstm_options){0});
    layer_refuses(model, "lstm: units is 0");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_lstm(model, (strata_lstm_options){.units = 2, .activation = "gelu"});
    layer_refuses(model, "activation is \"gelu\"; it must be tanh, sigmoid, relu or linear");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_gru(model, (strata_gru_options){.units = 2, .bidirectional = "stack"});
    layer_refuses(model, "gru: bidirectional is \"stack\"; it must be concat, sum, mul or ave");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_gru(model, (strata_gru_options){.units = 2, .bidirectional = "sum", .go_backwards = true});
    layer_refuses(model, "leave go_backwards out");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_lstm(model, (strata_lstm_options){.units = 2, .dropout = 1});
    layer_refuses(model, "dropout is 1");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_lstm(model, (strata_lstm_options){.units = 2, .recurrent_initializer = "ortogonal"});
    layer_refuses(model, "there is no initializer \"ortogonal\"");
    model = layer_model(STRATA_SHAPE(5));
    strata_model_add_lstm(model, (strata_lstm_options){.units = 2});
    layer_refuses(model, "it must be (examples, time steps, channels)");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_conv2d_transpose(model, (strata_conv2d_transpose_options){.filters = 2, .kernel_size = {2, 2}});
    layer_refuses(model, "it must be (images, height, width, channels)");
    model = layer_model(STRATA_SHAPE(5, 4, 2));
    strata_model_add_conv2d_transpose(
        model, (strata_conv2d_transpose_options){.filters = 2, .kernel_size = {2, 2}, .output_padding = {1, 1}});
    layer_refuses(model, "output_padding is 1; it must be at least 0 and below the stride, 1");
    model = layer_model(STRATA_SHAPE(5, 4, 2));
    strata_model_add_conv2d_transpose(
        model, (strata_conv2d_transpose_options){.filters = 2, .kernel_size = {2, 2}, .padding = "explicit"});
    layer_refuses(model, "padding is \"explicit\"; it must be valid or same");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_depthwise_conv2d(model, (strata_depthwise_conv2d_options){.kernel_size = {2, 2}});
    layer_refuses(model, "it must be (images, height, width, channels)");
    model = layer_model(STRATA_SHAPE(5, 4, 2));
    strata_model_add_separable_conv2d(model, (strata_separable_conv2d_options){.kernel_size = {2, 2}});
    layer_refuses(model, "separable_conv2d: filters is 0");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_group_norm(model, (strata_group_norm_options){.groups = 3});
    layer_refuses(model, "its 4 channels can't be divided into 3 groups");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_rms_norm(model, (strata_rms_norm_options){.epsilon = 1});
    layer_refuses(model, "rms_norm: epsilon is 1");
    model = layer_model(STRATA_SHAPE(5, 4));
    strata_model_add_gru(model, (strata_gru_options){.units = 2, .recurrent_dropout = 1});
    layer_refuses(model, "gru: recurrent_dropout is 1; it must be at least 0 and below 1");
}
