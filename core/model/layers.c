/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's layers: declared once, which makes its parameters and the shape of its output, then built into each program's
 * graph. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/model/model.h"

strata_tensor *strata_model_build_layers(strata_model *model, strata_layer_context *context, strata_tensor *x) {
    context->parameters = &model->parameters;
    x = strata_layers_build(&model->list, context, x);
    if (context->declaring) model->n_tokens = context->n_tokens;
    return x;
}

/* (batch, shape...) */
static strata_shape with_batch(strata_shape shape, int64_t batch) {
    strata_shape result = {.rank = shape.rank + 1, .dims = {batch}};
    memcpy(result.dims + 1, shape.dims, (size_t)shape.rank * sizeof(int64_t));
    return result;
}

strata_status strata_model_declare(strata_model *model, strata_error *err) {
    if (model->building.status) return strata_fail(err, model->building.status, "%s", model->building.error.message);
    if (!model->list.n) return strata_fail(err, STRATA_INVALID, "model: it has no layers");
    const strata_layer *parent = strata_model_open_layer(model);
    if (parent) return strata_fail(err, STRATA_INVALID, "%s: it is begun and does not end", parent->name);
    if (model->parameters.n) return STRATA_OK;
    strata_graph *graph = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_layer_context context = {.declaring = true};
    strata_tensor *outputs =
        strata_model_build_layers(model, &context, strata_input(graph, "x", model->input_dtype, with_batch(model->input, 1)));
    strata_status status = strata_graph_check(graph, err);
    if (!status) {
        strata_shape shape = strata_tensor_shape(outputs);
        model->output.rank = shape.rank - 1;
        memcpy(model->output.dims, shape.dims + 1, (size_t)model->output.rank * sizeof(int64_t));
        if (!model->parameters.n)
            status = strata_fail(err, STRATA_INVALID, "model: no layer has parameters; there is nothing to train");
    }
    if (status)
        strata_model_free_parameters(model);
    else
        strata_parameters_lay_out(&model->parameters);
    strata_graph_destroy(graph);
    return status;
}
