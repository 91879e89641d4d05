/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a model's layers: once to declare the parameters and find the shapes of the outputs, then for the graph of each
 * program. */
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/model/build.h"

/* The mask that all inputs of a call have; NULL: their masks differ. */
static strata_tensor *common_mask(strata_tensor *const *masks, const strata_value *value) {
    for (int i = 1; i < value->n_inputs; i++)
        if (masks[value->inputs[i]] != masks[value->inputs[0]]) return NULL;
    return masks[value->inputs[0]];
}

void strata_model_build_calls(strata_model *model, strata_layer_context *context, strata_tensor *const *inputs,
                              strata_tensor **outputs) {
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    const size_t n = (size_t)model->n_values;
    strata_tensor **tensors = strata_graph_alloc(graph, 2 * n * sizeof(*tensors)), **masks = tensors ? tensors + n : NULL;
    strata_tensor *taken[STRATA_MAX_LAYER_INPUTS];
    context->parameters = &model->parameters;
    context->n_inputs = model->n_inputs;
    graph->activations = model->registry ? model->registry->activations : NULL;
    for (int i = 0; i < model->n_inputs; i++) context->inputs[i] = inputs[i];
    for (int v = 0; v < model->n_values && tensors; v++) {
        const strata_value *value = model->values[v];
        if (value->layer < 0) {
            strata_tensor *x = inputs[value->number];
            tensors[v] = strata_tensor_dtype(x) == STRATA_DTYPE_F32 ? strata_cast(x, context->dtype) : x;
            continue;
        }
        context->stage = value->stage;
        strata_tensor *mask = common_mask(masks, value);
        for (int i = 0; i < value->n_inputs; i++) {
            const strata_value *input = model->values[value->inputs[i]];
            const int from = input->layer < 0 ? STRATA_EVERY_STAGE : input->stage;
            taken[i] = strata_layer_context_at_stage(context, tensors[value->inputs[i]], from);
            if (mask && !i) mask = strata_layer_context_at_stage(context, mask, from);
        }
        tensors[v] = strata_layer_build(context, &model->list.layers[value->layer], value->number, value->name, taken,
                                        value->n_inputs, mask);
        masks[v] = context->mask;
    }
    for (int i = 0; i < model->n_outputs; i++) {
        strata_tensor *y = tensors ? tensors[model->outputs[i].value] : inputs[0];
        outputs[i] = strata_dtype_is_float(strata_tensor_dtype(y)) ? strata_cast(y, STRATA_DTYPE_F32) : y;
    }
    for (int i = 0; i < model->n_inputs && context->declaring; i++) model->inputs[i].n_tokens = context->n_tokens[i];
}

strata_slot_text strata_slot_name(const char *base, int index) {
    strata_slot_text name;
    if (index)
        snprintf(name.text, sizeof name.text, "%s%d", base, index);
    else
        snprintf(name.text, sizeof name.text, "%s", base);
    return name;
}

strata_tensor *strata_model_make_input(const strata_model *model, strata_graph *graph, int input, strata_dtype dtype,
                                       int64_t batch) {
    const strata_input_spec *spec = &model->inputs[input];
    strata_shape shape = {.rank = spec->shape.rank + 1, .dims = {batch}};
    memcpy(shape.dims + 1, spec->shape.dims, (size_t)spec->shape.rank * sizeof(int64_t));
    return strata_input(graph, strata_slot_name("x", input).text, dtype, shape);
}

/* Sets the shapes of the outputs, of one example, and whether they are probabilities. */
static strata_status take_outputs(strata_model *model, strata_tensor *const *outputs, strata_error *err) {
    for (int i = 0; i < model->n_outputs; i++) {
        const strata_shape shape = strata_tensor_shape(outputs[i]);
        strata_shape *own = &model->outputs[i].shape;
        if (shape.rank < 1 || shape.dims[0] != 1)
            return strata_fail(err, STRATA_INVALID, "output \"%s\": for one example its shape is %s; it must be (1, ...)",
                               strata_output_name(model, i), strata_shape_text(shape).text);
        own->rank = shape.rank - 1;
        memcpy(own->dims, shape.dims + 1, (size_t)own->rank * sizeof(int64_t));
        model->outputs[i].ending = strata_loss_ending(outputs[i]);
        model->outputs[i].probabilities = strata_loss_are_probabilities(outputs[i]);
    }
    return STRATA_OK;
}

/* Builds all calls of layers for one example into a new graph. */
static strata_status build_for_one(strata_model *model, strata_layer_context *context, strata_graph **out_graph,
                                   strata_tensor **inputs, strata_tensor **outputs, strata_error *err) {
    STRATA_TRY(strata_graph_create(out_graph, err));
    if (context->training) context->rng = strata_input(*out_graph, "rng", STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS));
    for (int i = 0; i < model->n_inputs; i++)
        inputs[i] = strata_model_make_input(model, *out_graph, i, model->inputs[i].dtype, 1);
    strata_model_build_calls(model, context, inputs, outputs);
    return strata_graph_check(*out_graph, err);
}

strata_status strata_model_declare(strata_model *model, strata_error *err) {
    if (model->building.error.status)
        return strata_fail(err, model->building.error.status, "%s", model->building.error.message);
    if (!model->list.n) return strata_fail(err, STRATA_INVALID, "model: it has no layers");
    const strata_layer *parent = strata_model_open_layer(model);
    if (parent) return strata_fail(err, STRATA_INVALID, "%s: it is begun and does not end", parent->name);
    if (model->parameters.n) return STRATA_OK;
    STRATA_TRY(strata_model_connect(model, err));
    STRATA_OWNED(strata_graph) *graph = NULL;
    strata_layer_context context = {.declaring = true};
    strata_tensor *inputs[STRATA_MAX_INPUTS], *outputs[STRATA_MAX_OUTPUTS];
    strata_status status = build_for_one(model, &context, &graph, inputs, outputs, err);
    if (!status) status = take_outputs(model, outputs, err);
    if (!status && !model->parameters.n)
        status = strata_fail(err, STRATA_INVALID, "model: no layer has parameters; there is nothing to train");
    if (status)
        strata_model_free_parameters(model);
    else
        strata_parameters_lay_out(&model->parameters);
    return status;
}

strata_status strata_model_graph(strata_model *model, strata_graph **out_graph, strata_tensor **inputs, strata_tensor **outputs,
                                 strata_error *err) {
    strata_layer_context context = {.declaring = true};
    *out_graph = NULL;
    STRATA_TRY(strata_model_declare(model, err));
    strata_status status = build_for_one(model, &context, out_graph, inputs, outputs, err);
    for (int i = 0; i < model->n_outputs && !status; i++)
        outputs[i] = strata_loss_predict(model->outputs[i].loss, &model->outputs[i].loss_options, outputs[i]);
    if (!status) status = strata_graph_check(*out_graph, err);
    if (!status) return STRATA_OK;
    strata_graph_destroy(*out_graph);
    *out_graph = NULL;
    return status;
}

strata_status strata_model_cost_calls(strata_model *model, strata_layer_cost *out_costs, double *out_bytes, strata_error *err) {
    STRATA_OWNED(strata_graph) *graph = NULL;
    strata_layer_context context = {.declaring = true, .costs = out_costs};
    strata_tensor *inputs[STRATA_MAX_INPUTS], *outputs[STRATA_MAX_OUTPUTS];
    STRATA_TRY(build_for_one(model, &context, &graph, inputs, outputs, err));
    for (int call = 0, n = strata_model_n_calls(model); call < n; call++)
        for (int id = out_costs[call].first; id < out_costs[call].end; id++)
            if (strata_node_moved_bytes(graph->nodes[id]) > 0) out_bytes[call] += (double)strata_tensor_bytes(graph->nodes[id]);
    return STRATA_OK;
}

strata_status strata_model_check_endings(strata_model *model, const strata_output_spec *specs, strata_error *err) {
    STRATA_OWNED(strata_graph) *graph = NULL;
    strata_layer_context context = {.declaring = true, .training = true};
    strata_tensor *inputs[STRATA_MAX_INPUTS], *outputs[STRATA_MAX_OUTPUTS];
    STRATA_TRY(build_for_one(model, &context, &graph, inputs, outputs, err));
    for (int i = 0; i < model->n_outputs; i++) {
        strata_graph_set_scope(graph, model->n_outputs > 1 ? strata_output_name(model, i) : NULL);
        strata_loss_logits(specs[i].loss, &specs[i].loss_options, outputs[i]);
        STRATA_TRY(strata_graph_check(graph, err));
    }
    return STRATA_OK;
}
