/* SPDX-License-Identifier: Apache-2.0
 *
 * residual: layers within a layer: values, names, JSON, and what it refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/build.h"
#include "layer_case.h"

static strata_dense_options dense(int64_t units) {
    return (strata_dense_options){.units = units, .no_bias = true};
}

Test(residual, adds_x_to_what_its_layers_give) {
    strata_model *model = layer_model(STRATA_SHAPE(2));
    strata_model_begin_residual(model, (strata_residual_options){.activation = "relu"});
    strata_model_add_dense(model, dense(2));
    strata_model_end_residual(model);
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2), (double[]){1, -2});
    layer_gives(model, &x, (double[]){1, 2, 3, 4}, STRATA_SHAPE(1, 2), (double[]){0, 0});
    layer_gives(model, &x, (double[]){7, 8, 3, 2}, STRATA_SHAPE(1, 2), (double[]){2, 2});
    strata_array_finish(&x);
    strata_model_destroy(model);
}

/* dense 3, residual of (dense 3, residual of dense 3) with the shortcut dense 3, dense 2. */
static strata_model *nested(void) {
    strata_model *model = layer_model(STRATA_SHAPE(2));
    strata_model_add_dense(model, dense(3));
    strata_model_begin_residual(model, (strata_residual_options){.name = "block"});
    strata_model_add_dense(model, dense(3));
    strata_model_begin_residual(model, (strata_residual_options){.activation = "tanh"});
    strata_model_add_dense(model, dense(3));
    strata_model_end_residual(model);
    strata_model_begin_shortcut(model);
    strata_model_add_dense(model, dense(3));
    strata_model_end_residual(model);
    strata_model_add_dense(model, dense(2));
    return model;
}

static const char *const names[] = {"dense/kernel", "block/dense/kernel", "block/residual/dense/kernel", "block/dense_1/kernel",
                                    "dense_1/kernel"};

static void has_names(strata_model *model) {
    strata_error err = {0};
    cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_n_parameters(model), 5);
    for (int i = 0; i < 5; i++) cr_assert_str_eq(strata_model_parameter(model, i).name, names[i]);
}

Test(residual, names_layers_by_where_they_are_and_survives_json) {
    strata_error err = {0};
    char *text = NULL, *again = NULL;
    strata_model *model = nested(), *read = NULL;
    has_names(model);
    cr_assert_eq(strata_model_to_json(model, &text, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_from_json(text, strlen(text), "text", &read, &err), STRATA_OK, "%s", err.message);
    has_names(read);
    cr_assert_eq(strata_model_to_json(read, &again, &err), STRATA_OK, "%s", err.message);
    cr_assert_str_eq(text, again);
    free(text);
    free(again);
    strata_model_destroy(model);
    strata_model_destroy(read);
}

Test(residual, refuses_what_does_not_fit_or_does_not_end) {
    strata_model *shapes = layer_model(STRATA_SHAPE(2));
    strata_model_begin_residual(shapes, (strata_residual_options){0});
    strata_model_add_dense(shapes, dense(3));
    strata_model_end_residual(shapes);
    layer_refuses(shapes, "its layers give (1,3), its shortcut gives (1,2)");
    strata_model *open = layer_model(STRATA_SHAPE(2));
    strata_model_begin_residual(open, (strata_residual_options){0});
    strata_model_add_dense(open, dense(2));
    layer_refuses(open, "residual: it is begun and does not end");
    strata_model *empty = layer_model(STRATA_SHAPE(2));
    strata_model_begin_residual(empty, (strata_residual_options){0});
    strata_model_end_residual(empty);
    layer_refuses(empty, "residual: there is no layer in it");
    strata_model *ended = layer_model(STRATA_SHAPE(2));
    strata_model_add_dense(ended, dense(2));
    strata_model_end_residual(ended);
    layer_refuses(ended, "no branch was begun");
    strata_model *deep = layer_model(STRATA_SHAPE(2));
    for (int i = 0; i < 40; i++) strata_model_begin_residual(deep, (strata_residual_options){0});
    layer_refuses(deep, "nested at most 16 deep");
}

Test(residual, wrong_json_names_its_place) {
    const char *const wrong[] = {"{\"layer\":\"residual\"}", "{\"layer\":\"residual\",\"layers\":[]}",
                                 "{\"layer\":\"residual\",\"layers\":[{\"layer\":\"dense\",\"units\":0}]}"};
    const char *const messages[] = {"layers", "has 0 layers", "units"};
    for (int i = 0; i < 3; i++) {
        char text[256];
        strata_error err = {0};
        strata_model *model = NULL;
        snprintf(text, sizeof text, "{\"input\":[2],\"layers\":[%s]}", wrong[i]);
        cr_assert_eq(strata_model_from_json(text, strlen(text), "text", &model, &err), STRATA_DATA);
        cr_assert_not_null(strstr(err.message, messages[i]), "%s", err.message);
    }
}
