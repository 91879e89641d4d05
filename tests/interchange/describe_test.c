/* SPDX-License-Identifier: Apache-2.0
 *
 * What strata/describe.h shows of models and graphs. */
#include "strata/describe.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

Test(describe, a_residual_comes_after_its_layers_and_takes_the_ends_of_its_branches) {
    strata_model *model = NULL;
    strata_model_structure s;
    OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_begin_residual(model, (strata_residual_options){.activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 4});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    strata_model_end_residual(model);
    strata_model_add_layer(model, "dense", "last", &(strata_dense_options){.units = 2});
    OK(strata_model_describe(model, &s, &err));
    static const char *const want[] = {"input", "dense", "dense", "residual", "dense"};
    cr_assert_eq(s.n_calls, 5);
    for (int i = 0; i < 5; i++) cr_expect_str_eq(s.calls[i].kind, want[i]);
    const strata_call *sum = &s.calls[3];
    cr_expect(sum->n_inputs == 2 && sum->inputs[0] == 2 && sum->inputs[1] == 0);
    cr_expect_str_eq(s.calls[1].name, "residual/dense");
    cr_expect_str_eq(s.calls[4].name, "last");
    cr_expect(strata_shape_equal(s.calls[1].shape, STRATA_SHAPE(1, 4)));
    cr_expect_eq(((const strata_dense_options *)s.calls[4].options)->units, 2);
    cr_expect(s.sequential && s.outputs[0] == 4 && !s.activations[0]);
    free(s.calls);
    strata_model_destroy(model);
}

Test(describe, a_shared_layer_names_its_first_call) {
    strata_model *model = NULL;
    strata_model_structure s;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x = strata_model_input(model, "x", STRATA_SHAPE(3), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 3, .name = "shared"});
    const strata_value *y = strata_layer_call(model, "shared", &x, 1), *z = strata_layer_call(model, "shared", &y, 1);
    strata_model_output(model, z, (strata_output_options){.loss = "binary_crossentropy"});
    OK(strata_model_describe(model, &s, &err));
    cr_assert_eq(s.n_calls, 3);
    cr_expect(s.calls[1].first == 1 && s.calls[2].first == 1 && s.calls[2].inputs[0] == 1 && !s.sequential);
    cr_expect_str_eq(s.activations[0], "sigmoid");
    free(s.calls);
    strata_model_destroy(model);
}

static strata_status twos(const char *name, strata_array *out, void *user, strata_error *reason) {
    (void)reason;
    *(int *)user += !strcmp(name, "d/kernel") || !strcmp(name, "d/bias");
    for (int64_t i = 0; i < strata_shape_elements(out->shape); i++) ((float *)out->data)[i] = 2;
    return STRATA_OK;
}

Test(describe, a_layer_that_is_applied_is_evaluated_with_the_parameters_that_are_given) {
    strata_graph *graph = NULL;
    float ones[3] = {1, 1, 1};
    const strata_array x = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(1, 3), ones);
    OK(strata_graph_create(&graph, &err));
    strata_tensor *in = strata_constant(graph, &x);
    strata_tensor *y = strata_layer_apply("dense", "d", &(strata_dense_options){.units = 2, .activation = "relu"}, &in, 1);
    OK(strata_graph_check(graph, &err));
    const strata_node_info node = strata_tensor_node(y);
    cr_expect_str_eq(node.op, "relu");
    cr_expect(node.formula && node.n_inputs == 1);
    int parameters = 0;
    strata_array *values = calloc((size_t)strata_graph_n_nodes(graph), sizeof *values);
    OK(strata_graph_evaluate(graph, twos, &parameters, values, &err));
    const float *got = values[node.index].data; /* 3 * 1 * 2 + 2 */
    cr_expect(parameters == 2 && got[0] == 8 && got[1] == 8);
    for (int i = 0; i < strata_graph_n_nodes(graph); i++) strata_array_finish(&values[i]);
    free(values);
    strata_layer_apply("dense", "e", &(strata_dense_options){.units = 0}, &in, 1);
    cr_expect_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "e: units is 0"), "%s", err.message);
    strata_graph_destroy(graph);
}

Test(describe, parameters_may_be_set_before_the_model_is_built) {
    strata_model *model = NULL;
    strata_device *host = NULL;
    float kernel[2] = {3, 4}, got[2] = {0};
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), kernel), out = value;
    out.data = got;
    OK(strata_model_create(STRATA_SHAPE(2), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 1});
    cr_expect_eq(strata_model_get_parameter(model, 0, &out, &err), STRATA_INVALID);
    cr_expect_eq(strata_model_set_parameter(model, 2, &value, &err), STRATA_INVALID);
    cr_expect_eq(strata_model_get_parameter(model, 0, &out, &err), STRATA_INVALID); /* it still has no values */
    OK(strata_model_set_parameter(model, 0, &value, &err));
    for (int built = 0; built < 2; built++) {
        got[0] = got[1] = 0;
        OK(strata_model_get_parameter(model, 0, &out, &err));
        cr_expect(got[0] == 3 && got[1] == 4);
        if (!built) OK(strata_device_open("host", NULL, &host, &err));
        if (!built) OK(strata_model_build(model, host, NULL, &err));
    }
    strata_model_destroy(model);
    strata_device_close(host);
}
