/* SPDX-License-Identifier: Apache-2.0
 *
 * dense: values, parameters, what it refuses. */
#include <math.h>
#include <string.h>

#include "core/model/build.h"
#include "layer_case.h"

/* kernel (3,2), bias (2) */
static const double parameters[] = {1, 2, 3, 4, 5, 6, 0.5, -30};

Test(dense, multiplies_and_adds) {
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (double[]){1, 2, 3, -1, 0, 1});
    layer_gives(model, &x, parameters, STRATA_SHAPE(2, 2), (double[]){22.5, -2, 4.5, -26});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(dense, applies_its_activation_after_the_bias) {
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(model, (strata_dense_options){.units = 2, .activation = "relu"});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), (double[]){1, 2, 3});
    layer_gives(model, &x, parameters, STRATA_SHAPE(1, 2), (double[]){22.5, 0});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(dense, without_bias_has_one_parameter) {
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(model, (strata_dense_options){.units = 2, .no_bias = true});
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), (double[]){1, 2, 3});
    layer_gives(model, &x, parameters, STRATA_SHAPE(1, 2), (double[]){22, 28});
    cr_assert_eq(strata_model_n_parameters(model), 1);
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(dense, multiplies_along_the_last_of_more_axes) {
    strata_model *model = layer_model(STRATA_SHAPE(2, 3));
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    strata_array x =
        strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 3), (double[]){1, 2, 3, -1, 0, 1, 0, 0, 0, 0, 1, 0});
    layer_gives(model, &x, parameters, STRATA_SHAPE(2, 2, 2), (double[]){22.5, -2, 4.5, -26, 0.5, -30, 3.5, -26});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

Test(dense, names_its_parameters_by_layer) {
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(model, (strata_dense_options){.units = 4});
    strata_model_add_dense(model, (strata_dense_options){.units = 5, .no_bias = true});
    strata_model_add_dense(model, (strata_dense_options){.units = 6, .name = "logits"});
    strata_error err = {0};
    cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
    const struct {
        const char *name;
        strata_shape shape;
    } want[] = {{"dense/kernel", STRATA_SHAPE(3, 4)},
                {"dense/bias", STRATA_SHAPE(4)},
                {"dense_1/kernel", STRATA_SHAPE(4, 5)},
                {"logits/kernel", STRATA_SHAPE(5, 6)},
                {"logits/bias", STRATA_SHAPE(6)}};
    cr_assert_eq(strata_model_n_parameters(model), 5);
    for (int i = 0; i < 5; i++) {
        strata_parameter p = strata_model_parameter(model, i);
        cr_assert_str_eq(p.name, want[i].name);
        cr_assert(strata_shape_equal(p.shape, want[i].shape), "%s is %s", p.name, strata_shape_text(p.shape).text);
    }
    strata_model_destroy(model);
}

Test(dense, draws_what_its_initializers_say) {
    strata_error err = {0};
    strata_device *host = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK);
    strata_model *model = layer_model(STRATA_SHAPE(30));
    strata_model_add_dense(model, (strata_dense_options){.units = 20});
    strata_model_add_dense(model,
                           (strata_dense_options){.units = 10, .kernel_initializer = "zeros", .bias_initializer = "ones"});
    cr_assert_eq(strata_model_compile(model, host, NULL, &err), STRATA_OK, "%s", err.message);
    float values[600];
    strata_array views[] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(30, 20), values),
                            strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(20), values),
                            strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(20, 10), values),
                            strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(10), values)};
    const double limit = sqrt(6.0 / (30 + 20)); /* Glorot, over inputs and units */
    double largest = 0;
    cr_assert_eq(strata_model_get_parameter(model, 0, &views[0], &err), STRATA_OK);
    for (int i = 0; i < 600; i++) largest = fmax(largest, fabs((double)values[i]));
    cr_assert(largest <= limit && largest > 0.97 * limit, "the largest of 600 is %g of %g", largest, limit);
    const double constants[] = {0, 0, 0, 1};
    for (int k = 1; k < 4; k++) {
        cr_assert_eq(strata_model_get_parameter(model, k, &views[k], &err), STRATA_OK);
        for (int i = 0; i < strata_shape_elements(views[k].shape); i++)
            cr_assert_eq((double)values[i], constants[k], "parameter %d", k);
    }
    strata_model_destroy(model);
    strata_device_close(host);
}

Test(dense, refuses_wrong_options) {
    const struct {
        strata_dense_options options;
        const char *message;
    } wrong[] = {{{.units = 0}, "dense: units is 0"},
                 {{.units = -3, .name = "last"}, "last: units is -3"},
                 {{.units = 2, .activation = "rely"}, "no activation \"rely\"; there are: relu, tanh, sigmoid, softmax"},
                 {{.units = 2, .kernel_initializer = "xavier"}, "no initializer \"xavier\""},
                 {{.units = 2, .bias_initializer = "none"}, "no initializer \"none\""},
                 {{.units = 2, .name = "a/b"}, "layer name \"a/b\""},
                 {{.units = 2, .name = ""}, "1 to 127 characters"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(3));
        strata_model_add_dense(model, wrong[i].options);
        strata_model_add_dense(model, (strata_dense_options){.units = 2}); /* the first error is kept */
        layer_refuses(model, wrong[i].message);
    }
    strata_model *twice = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(twice, (strata_dense_options){.units = 2, .name = "same"});
    strata_model_add_dense(twice, (strata_dense_options){.units = 2, .name = "same"});
    layer_refuses(twice, "two layers called \"same\"");
    strata_model *scalars = layer_model(STRATA_SHAPE());
    strata_model_add_dense(scalars, (strata_dense_options){.units = 2});
    layer_refuses(scalars, "dense");
}

Test(dense, copies_its_strings) {
    char activation[] = "relu", name[] = "first";
    strata_model *model = layer_model(STRATA_SHAPE(3));
    strata_model_add_dense(model, (strata_dense_options){.units = 2, .activation = activation, .name = name});
    memset(activation, 'x', 4);
    memset(name, 'x', 5);
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), (double[]){1, 2, 3});
    layer_gives(model, &x, parameters, STRATA_SHAPE(1, 2), (double[]){22.5, 0});
    cr_assert_str_eq(strata_model_parameter(model, 0).name, "first/kernel");
    strata_array_finish(&x);
    strata_model_destroy(model);
}
