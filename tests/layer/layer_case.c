/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers run by references. */
#include "layer_case.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/build.h"
#include "tests/support/eval.h"

strata_model *layer_model(strata_shape input) {
    strata_error err = {0};
    strata_model *model = NULL;
    cr_assert_eq(strata_model_create(input, &model, &err), STRATA_OK, "%s", err.message);
    return model;
}

enum { MOST_PARTS = 64 };

/* The parameters, or the states, at their places in their range; where there are none it has one element that nobody reads. */
static strata_array range_of(const strata_model *model, bool state, const double *parameters) {
    int64_t size = state ? model->parameters.state_size : model->parameters.flat_size;
    strata_array flat = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(size ? size : 1), 0);
    for (int i = 0; i < model->parameters.n; i++)
        for (int64_t k = 0; k < strata_shape_elements(model->parameters.items[i].shape); k++, parameters++)
            if (model->parameters.items[i].state == state)
                ((float *)flat.data)[model->parameters.items[i].offset + k] = (float)*parameters;
    return flat;
}

strata_array layer_run(strata_model *model, const strata_array *x, const double *parameters, bool training) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_array out;
    strata_status status = strata_model_declare(model, &err);
    cr_assert(!status || !parameters, "%s", err.message); /* a model without parameters is fine here */
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_array flat = range_of(model, false, parameters), state = range_of(model, true, parameters);
    strata_array rng = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS), (double[STRATA_RNG_WORDS]){7, 0, 1});
    strata_layer_context context = {.parameters = &model->parameters, .training = training};
    strata_tensor *block = strata_input(graph, "flat", STRATA_DTYPE_F32, flat.shape), *parts[MOST_PARTS] = {NULL};
    cr_assert_eq(strata_parameters_cut(&model->parameters, INT64_MAX, false, &err), STRATA_OK, "%s", err.message);
    cr_assert_leq(model->parameters.n_parts, MOST_PARTS);
    context.blocks = &block;
    context.parts = parts;
    context.state = strata_input(graph, "state", STRATA_DTYPE_F32, state.shape);
    context.rng = strata_input(graph, "rng", STRATA_DTYPE_I32, rng.shape);
    strata_tensor *input = strata_input(graph, "x", x->dtype, x->shape);
    strata_tensor *y;
    strata_model_build_calls(model, &context, &input, &y);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_OK, "%s", err.message);
    strata_test_feed feeds[] = {{input, (strata_array *)x}, {block, &flat}, {context.state, &state}, {context.rng, &rng}};
    cr_assert_eq(strata_test_eval(&y, 1, feeds, 4, &out, &err), STRATA_OK, "%s", err.message);
    strata_graph_destroy(graph);
    strata_array_finish(&flat);
    strata_array_finish(&state);
    strata_array_finish(&rng);
    return out;
}

void layer_gives(strata_model *model, const strata_array *x, const double *parameters, strata_shape shape, const double *want) {
    strata_array got = layer_run(model, x, parameters, false), wanted = strata_test_array(STRATA_DTYPE_F32, shape, want);
    strata_test_result same = strata_test_compare(&got, &wanted, strata_test_tolerance_of(STRATA_DTYPE_F32, 16));
    cr_assert(same.ok, "%s", same.text);
    strata_array_finish(&got);
    strata_array_finish(&wanted);
}

void layer_refuses(strata_model *model, const char *text) {
    strata_error err = {0};
    strata_device *host = NULL;
    cr_assert_eq(strata_device_open("host", NULL, &host, &err), STRATA_OK);
    strata_status status = strata_model_compile(model, host, NULL, &err);
    cr_assert_eq(status, STRATA_INVALID, "%s: %s", strata_status_name(status), err.message);
    cr_assert_not_null(strstr(err.message, text), "\"%s\" lacks \"%s\"", err.message, text);
    strata_model_destroy(model);
    strata_device_close(host);
}
