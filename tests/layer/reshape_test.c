/* SPDX-License-Identifier: Apache-2.0
 *
 * reshape: (N, ...) -> (N, shape...), elements in their order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_case.h"

Test(reshape_layer, lays_out_each_example_anew) {
    const double values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const struct {
        strata_shape shape, y;
    } cases[] = {{STRATA_SHAPE(3, 2), STRATA_SHAPE(2, 3, 2)},
                 {STRATA_SHAPE(-1), STRATA_SHAPE(2, 6)},
                 {STRATA_SHAPE(1, -1, 3), STRATA_SHAPE(2, 1, 2, 3)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 6), values);
        strata_model *model = layer_model(STRATA_SHAPE(6));
        strata_model_add_reshape(model, (strata_reshape_options){.shape = cases[i].shape});
        layer_gives(model, &x, NULL, cases[i].y, values);
        strata_model_destroy(model);
        strata_array_finish(&x);
    }
}

Test(reshape_layer, refuses_what_does_not_fit) {
    const struct {
        strata_shape shape;
        const char *message;
    } wrong[] = {{STRATA_SHAPE(4), "they can't be laid out as (1,4)"},
                 {STRATA_SHAPE(-1, 4), "they can't be laid out as (1,-1,4)"},
                 {STRATA_SHAPE(0, 6), "reshape: dimension 0 of shape is 0; it must be at least 1, or -1 for what is left"},
                 {STRATA_SHAPE(-1, -1), "reshape: shape has 2 dimensions of -1; one at most can be"},
                 {STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 6), "reshape: shape has 8 dimensions; it may have 0 to 7"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = layer_model(STRATA_SHAPE(6));
        strata_model_add_reshape(model, (strata_reshape_options){.shape = wrong[i].shape});
        layer_refuses(model, wrong[i].message);
    }
}

static strata_status from_json(const char *shape, strata_model **out_model, strata_error *err) {
    char text[200];
    snprintf(text, sizeof text,
             "{\"input\": [12], \"layers\": [{\"layer\": \"reshape\"%s}, {\"layer\": \"dense\", \"units\": 1}]}", shape);
    return strata_model_from_json(text, strlen(text), "m", out_model, err);
}

Test(reshape_layer, goes_through_json_and_back) {
    strata_model *model = NULL;
    strata_error err = {0};
    char *text = NULL;
    cr_assert_eq(from_json(", \"shape\": [2, -1, 3]", &model, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_model_to_json(model, &text, &err), STRATA_OK, "%s", err.message);
    cr_assert(strstr(text, "\"shape\":[2,-1,3]"), "%s", text);
    free(text);
    strata_model_destroy(model);
}

Test(reshape_layer, says_what_is_wrong_with_a_shape_in_json) {
    static const char *const wrong[][2] = {
        {"", "layers[0]: \"shape\" is missing"},
        {", \"shape\": 3", "layers[0].shape: must be an array, is 3"},
        {", \"shape\": [2, 1.5]", "layers[0].shape[1]: must be an integer"},
        {", \"shape\": [2, -2]", "layers[0].shape[1]: must be an integer"},
        {", \"shape\": [1,1,1,1,1,1,1,1,1]", "layers[0].shape: has 9 dimensions; at most 8"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_model *model = NULL;
        strata_error err = {0};
        cr_assert_eq(from_json(wrong[i][0], &model, &err), STRATA_DATA);
        cr_assert(strstr(err.message, wrong[i][1]), "%s", err.message);
    }
}
