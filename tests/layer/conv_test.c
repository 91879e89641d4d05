/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d and conv1d: values, parameters, JSON, what they refuse. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/model/build.h"
#include "layer_case.h"

Test(conv2d_layer, slides_its_kernel_and_adds_its_bias) {
    strata_model *model = layer_model(STRATA_SHAPE(2, 3, 1));
    strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 1, .kernel_size = {2, 2}, .activation = "relu"});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 3, 1), (double[]){1, 2, 3, 4, 5, 6});
    layer_gives(model, &x, (double[]){1, 0, 0, -1, 5}, STRATA_SHAPE(1, 1, 2, 1), (double[]){1, 1});
    layer_gives(model, &x, (double[]){1, 0, 0, -1, 3}, STRATA_SHAPE(1, 1, 2, 1), (double[]){0, 0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(conv2d_layer, takes_stride_padding_dilation_and_groups) {
    const struct {
        strata_conv2d_options options;
        strata_shape kernel, y;
    } cases[] = {
        {{.filters = 4, .kernel_size = {3, 3}, .padding = "same"}, {4, {3, 3, 2, 4}}, {4, {1, 7, 6, 4}}},
        {{.filters = 4, .kernel_size = {3, 2}, .padding = "same", .stride = {2, 3}}, {4, {3, 2, 2, 4}}, {4, {1, 4, 2, 4}}},
        {{.filters = 4, .kernel_size = {3, 3}, .padding = "explicit", .explicit_padding = {1, 0, 2, 1}},
         {4, {3, 3, 2, 4}},
         {4, {1, 6, 7, 4}}},
        {{.filters = 6, .kernel_size = {3, 2}, .dilation = {3, 1}, .groups = 2}, {4, {3, 2, 1, 6}}, {4, {1, 1, 5, 6}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(7, 6, 2));
        strata_conv2d_options options = cases[i].options;
        options.no_bias = true;
        strata_model_add_conv2d(model, options);
        strata_error err = {0};
        cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_model_n_parameters(model), 1);
        strata_parameter kernel = strata_model_parameter(model, 0);
        cr_assert_str_eq(kernel.name, "conv2d/kernel");
        cr_assert(strata_shape_equal(kernel.shape, cases[i].kernel), "%s", strata_shape_text(kernel.shape).text);
        double zeros[7 * 6 * 4] = {0};
        strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 7, 6, 2), 1);
        layer_gives(model, &x, zeros, cases[i].y, zeros);
        strata_array_finish(&x);
        strata_model_destroy(model);
    }
}

/* Glorot's limit counts taps: sqrt(6 / (9 3 + 9 32)). */
Test(conv2d_layer, draws_by_the_inputs_and_outputs_of_a_weight) {
    strata_error err = {0};
    strata_device *host = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK);
    strata_model *model = layer_model(STRATA_SHAPE(8, 8, 3));
    strata_model_add_conv2d(model, (strata_conv2d_options){.filters = 32, .kernel_size = {3, 3}});
    strata_model_add_global_max_pool(model, (strata_global_max_pool_options){0});
    cr_assert_eq(strata_model_compile(model, host, NULL, &err), STRATA_OK, "%s", err.message);
    float values[864];
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3, 3, 3, 32), values);
    cr_assert_eq(strata_model_get_parameter(model, 0, &view, &err), STRATA_OK, "%s", err.message);
    const double limit = sqrt(6.0 / (27 + 288));
    double largest = 0;
    for (int i = 0; i < 864; i++) largest = fmax(largest, fabs((double)values[i]));
    cr_assert(largest <= limit && largest > 0.97 * limit, "the largest of 864 is %g of %g", largest, limit);
    strata_model_destroy(model);
    strata_device_close(host);
}

Test(conv2d_layer, refuses_wrong_options) {
    const struct {
        strata_conv2d_options options;
        const char *message;
    } wrong[] = {
        {{.kernel_size = {3, 3}}, "conv2d: filters is 0"},
        {{.filters = 4}, "conv2d: kernel_size is 0"},
        {{.filters = 4, .kernel_size = {3, 3}, .groups = 3}, "4 filters can't be divided among 3 groups"},
        {{.filters = 4, .kernel_size = {3, 3}, .groups = 4}, "its 6 channels can't be divided among 4 groups"},
        {{.filters = 8, .kernel_size = {3, 3}, .groups = 8}, "its 6 channels can't be divided among 8 groups"},
        {{.filters = 4, .kernel_size = {9, 3}}, "the output is empty"},
        {{.filters = 4, .kernel_size = {3, 3}, .padding = "full"}, "no padding \"full\"; there are: valid, same, explicit"},
        {{.filters = 4, .kernel_size = {3, 3}, .stride = {0, 2}}, "conv2d: stride is [0, 2]; give both, or neither"},
        {{.filters = 4, .kernel_size = {3, 3}, .stride = {-1, 2}}, "conv2d: stride is -1; it must be 1..1048576"},
        {{.filters = 4, .kernel_size = {3, 3}, .activation = "rely"}, "no activation \"rely\""},
        {{.filters = 4, .kernel_size = {3, 3}, .kernel_initializer = "xavier"}, "no initializer \"xavier\""},
        {{.filters = 4, .kernel_size = {3, 3}, .kernel_l2 = -1}, "conv2d: kernel_l2 is -1; it must be 0..1e+06"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(8, 8, 6));
        strata_model_add_conv2d(model, wrong[i].options);
        layer_refuses(model, wrong[i].message);
    }
    strata_model *flat = layer_model(STRATA_SHAPE(8));
    strata_model_add_conv2d(flat, (strata_conv2d_options){.filters = 4, .kernel_size = {3, 3}});
    layer_refuses(flat, "it must be (images, height, width, channels)");
}

static const char model_json[] =
    "{\"input\": [9, 9, 4], \"layers\": ["
    "{\"layer\": \"conv2d\", \"filters\": 8, \"kernel_size\": [3, 2], \"stride\": 2, \"padding\": \"same\", \"groups\": 2},"
    "{\"layer\": \"max_pool2d\", \"size\": 2, \"stride\": [1, 2], \"padding\": \"explicit\", \"explicit_padding\": 1},"
    "{\"layer\": \"avg_pool2d\", \"size\": 2, \"padding\": \"explicit\", \"explicit_padding\": [0, 1, 1, 0]},"
    "{\"layer\": \"global_average_pool\"}]}";

Test(conv2d_layer, goes_through_json_and_back) {
    strata_model *model = NULL, *again = NULL;
    strata_error err = {0};
    char *text = NULL, *twice = NULL;
    cr_assert_eq(strata_model_from_json(model_json, strlen(model_json), "m", &model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_to_json(model, &text, &err), STRATA_OK, "%s", err.message);
    cr_assert(strstr(text, "\"kernel_size\":[3,2]") && strstr(text, "\"stride\":[2,2]") && strstr(text, "\"size\":[2,2]") &&
                  strstr(text, "\"explicit_padding\":[1,1,1,1]") && strstr(text, "\"explicit_padding\":[0,1,1,0]") &&
                  !strstr(text, "dilation"),
              "%s", text);
    cr_assert_eq(strata_model_from_json(text, strlen(text), "m", &again, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_to_json(again, &twice, &err), STRATA_OK, "%s", err.message);
    cr_assert_str_eq(text, twice);
    free(text);
    free(twice);
    strata_model_destroy(model);
    strata_model_destroy(again);
}

Test(conv2d_layer, says_what_is_wrong_with_a_pair_in_json) {
    const struct {
        const char *pair, *message;
    } wrong[] = {{"[3]", "layers[0].kernel_size: has 1 elements; it must be one number or [height, width]"},
                 {"[3, 0]", "layers[0].kernel_size[1]"},
                 {"\"3\"", "layers[0].kernel_size"},
                 {"0", "layers[0].kernel_size"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[256];
        strata_model *model = NULL;
        strata_error err = {0};
        snprintf(text, sizeof text,
                 "{\"input\": [9, 9, 4], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 8, \"kernel_size\": %s}]}",
                 wrong[i].pair);
        cr_assert_eq(strata_model_from_json(text, strlen(text), "m", &model, &err), STRATA_DATA);
        cr_assert(strstr(err.message, wrong[i].message), "%s", err.message);
    }
}

Test(conv1d_layer, takes_padding_as_it_is_given) {
    static const char json[] =
        "{\"input\": [4, 1], \"layers\": [{\"layer\": \"conv1d\", \"filters\": 1, \"kernel_size\": 3, "
        "\"padding\": \"explicit\", \"explicit_padding\": [2, 0]}]}";
    strata_error err = {0};
    strata_model *model = NULL;
    cr_assert_eq(strata_model_from_json(json, sizeof json - 1, "m", &model, &err), STRATA_OK, "%s", err.message);
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4, 1), (double[]){1, 2, 3, 4});
    layer_gives(model, &x, (double[]){1, 10, 100, 0.5}, STRATA_SHAPE(1, 4, 1), (double[]){100.5, 210.5, 321.5, 432.5});
    strata_array_finish(&x);
    strata_model_destroy(model);
    strata_model *unheard = layer_model(STRATA_SHAPE(4, 1));
    strata_model_add_conv1d(unheard, (strata_conv1d_options){.filters = 1, .kernel_size = 3, .explicit_padding = {1, 1}});
    layer_refuses(unheard, "explicit_padding is for padding \"explicit\", not \"valid\"");
}

Test(conv1d_layer, slides_along_the_length) {
    strata_model *model = layer_model(STRATA_SHAPE(4, 1));
    strata_model_add_conv1d(model, (strata_conv1d_options){.filters = 1, .kernel_size = 3, .padding = "same"});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4, 1), (double[]){1, 2, 3, 4});
    layer_gives(model, &x, (double[]){1, 10, 100, 0.5}, STRATA_SHAPE(1, 4, 1), (double[]){210.5, 321.5, 432.5, 43.5});
    strata_array_finish(&x);
    strata_model_destroy(model);
    strata_model *wrong = layer_model(STRATA_SHAPE(4, 1));
    strata_model_add_conv1d(wrong, (strata_conv1d_options){.filters = 1});
    layer_refuses(wrong, "conv1d: kernel_size is 0");
    strata_model *images = layer_model(STRATA_SHAPE(4, 4, 1));
    strata_model_add_conv1d(images, (strata_conv1d_options){.filters = 1, .kernel_size = 2});
    layer_refuses(images, "conv1d");
}

/* The loss that evaluate gives has the penalty in it: of the weights, not of the bias. */
static double loss_with(strata_device *host, const strata_dataset *data, double l1, double l2, float *weights) {
    strata_error err = {0};
    strata_metrics metrics;
    strata_model *model = layer_model(STRATA_SHAPE(4, 3));
    strata_model_add_reshape(model, (strata_reshape_options){.shape = STRATA_SHAPE(2, 2, 3)});
    strata_model_add_conv2d(
        model, (strata_conv2d_options){
                   .filters = 6, .kernel_size = {2, 2}, .bias_initializer = "ones", .kernel_l1 = l1, .kernel_l2 = l2});
    strata_model_add_reshape(model, (strata_reshape_options){.shape = STRATA_SHAPE(-1, 2)});
    strata_model_add_conv1d(
        model, (strata_conv1d_options){
                   .filters = 1, .kernel_size = 3, .kernel_initializer = "ones", .kernel_l1 = l1, .kernel_l2 = l2});
    strata_model_add_flatten(model, (strata_flatten_options){0});
    cr_assert_eq(strata_model_compile(model, host, &(strata_compile_options){.loss = "mse", .seed = 1}, &err), STRATA_OK, "%s",
                 err.message);
    cr_assert_eq(strata_model_evaluate(model, data, 0, &metrics, &err), STRATA_OK, "%s", err.message);
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 3, 6), weights);
    cr_assert_eq(strata_model_get_parameter(model, 0, &view, &err), STRATA_OK, "%s", err.message);
    strata_model_destroy(model);
    return metrics.loss;
}

Test(conv_layers, penalties_of_their_kernels_are_in_the_loss) {
    enum { N = 2 * 2 * 3 * 6, ONES = 3 * 2 };
    strata_error err = {0};
    strata_device *host = NULL;
    strata_dataset *data = NULL;
    float weights[N];
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(5, 4, 3), -1, 1, 1);
    strata_array y = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(5), -1, 1, 2);
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK);
    cr_assert_eq(strata_dataset_take_arrays(&x, &y, 0, &data, &err), STRATA_OK, "%s", err.message);
    double plain = loss_with(host, data, 0, 0, weights), penalty = ONES * (0.01 + 0.1);
    for (int i = 0; i < N; i++) penalty += 0.01 * fabs((double)weights[i]) + 0.1 * (double)weights[i] * (double)weights[i];
    cr_assert_float_eq(loss_with(host, data, 0.01, 0.1, weights), plain + penalty, 1e-4);
    strata_dataset_destroy(data);
    strata_device_close(host);
}
