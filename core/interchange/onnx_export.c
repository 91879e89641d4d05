/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the predictions of a model as an ONNX graph. Each call of a layer becomes several nodes. Besides the file a
 * graph is built, as in the build that declares parameters, so that the shapes are known where nodes need them. */
#include "core/interchange/onnx_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "strata/interchange.h"
#include "strata/version.h"

enum { OPSET = 17, IR_VERSION = 8 };

/* The function for a kind of layer; NULL: ONNX has no counterpart. */
static strata_onnx_layer_export *find_layer(const char *kind) {
    static const struct {
        const char *kind;
        strata_onnx_layer_export *export;
    } kinds[] = {
#define STRATA_ONNX_LAYER(kind, function) {#kind, strata_onnx_layer_##function},
#include "core/interchange/onnx.def"
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind)) return kinds[i].export;
    return NULL;
}

strata_onnx_val strata_onnx_export_call(strata_onnx_export *ex, const strata_layer *layer, int call, const strata_onnx_val *x,
                                        int n) {
    strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
    for (int i = 0; i < n; i++) tensors[i] = x[i].tensor;
    strata_onnx_val y = {x->name, strata_layer_build(&ex->context, layer, call, layer->name, tensors, n, NULL)};
    if (strata_tensor_is_poison(y.tensor)) return y;
    ex->layer = layer, ex->base = layer->name;
    ex->x = x, ex->n = n, ex->y = &y;
    strata_onnx_layer_export *export = layer->kind->own ? NULL : find_layer(layer->kind->name);
    if (export)
        y.name = export(ex);
    else
        strata_onnx_refuse(ex, "");
    return y;
}

/* Describes an input or output of the graph: its shape is the batch, which is not fixed, and the shape of one example. */
static StrataOnnx__ValueInfo *value_info(strata_onnx_export *ex, const char *name, int type, strata_shape example) {
    StrataOnnx__ValueInfo *info = strata_onnx_take(ex, sizeof *info);
    StrataOnnx__Type *of = strata_onnx_take(ex, sizeof *of);
    StrataOnnx__TensorType *tensor = strata_onnx_take(ex, sizeof *tensor);
    StrataOnnx__Shape *shape = strata_onnx_take(ex, sizeof *shape);
    StrataOnnx__Dimension *dims = strata_onnx_take(ex, (STRATA_MAX_RANK + 1) * sizeof *dims),
                          **list = strata_onnx_take(ex, (STRATA_MAX_RANK + 1) * sizeof(*list));
    if (ex->failed) return NULL;
    strata_onnx__value_info__init(info);
    strata_onnx__type__init(of);
    strata_onnx__tensor_type__init(tensor);
    strata_onnx__shape__init(shape);
    for (int d = 0; d <= example.rank; d++) {
        strata_onnx__dimension__init(&dims[d]);
        list[d] = &dims[d];
        if (d) dims[d].has_dim_value = 1, dims[d].dim_value = example.dims[d - 1];
    }
    dims[0].dim_param = (char *)"batch";
    shape->dim = list, shape->n_dim = (size_t)example.rank + 1;
    tensor->shape = shape, tensor->has_elem_type = 1, tensor->elem_type = type;
    of->tensor_type = tensor;
    info->type = of, info->name = strata_onnx_copy_text(ex, name);
    return info;
}

static strata_status write_inputs(strata_onnx_export *ex, strata_onnx_val *values) {
    const strata_model *model = ex->model;
    ex->out.input = strata_onnx_take(ex, STRATA_MAX_INPUTS * sizeof(*ex->out.input));
    for (int i = 0; i < model->n_inputs && !ex->failed; i++) {
        const strata_input_spec *input = &model->inputs[i];
        const char *name = strata_model_input_port(model, i).name;
        const bool whole = input->dtype == STRATA_DTYPE_I32;
        const bool numbers = i == 0 && !whole && strata_onnx_takes_numbers(ex->preprocessing);
        const bool table = numbers && ex->preprocessing->kind == STRATA_PREPROCESSING_TABLE;
        const char *x = strata_onnx_copy_text(ex, name);
        ex->out.input[ex->out.n_input++] = value_info(ex, name, whole ? STRATA_ONNX_TYPE_INT32 : STRATA_ONNX_TYPE_FLOAT,
                                                      table ? STRATA_SHAPE(ex->preprocessing->n_columns) : input->shape);
        if (numbers) x = ex->features = strata_onnx_features(ex, ex->preprocessing, x);
        values[input->value] =
            (strata_onnx_val){x, strata_model_make_input(model, ex->graph, i, input->dtype, STRATA_ONNX_BATCH)};
        ex->context.inputs[ex->context.n_inputs++] = values[input->value].tensor;
    }
    return STRATA_OK;
}

/* Adds the function that predict applies to an output, which follows from its loss: softmax or sigmoid of the logits. */
static const char *predicted(strata_onnx_export *ex, const strata_output_spec *output, const char *x) {
    ex->base = "predict";
    return strata_onnx_activate(ex, strata_output_activation(output), x);
}

static void write_outputs(strata_onnx_export *ex, const strata_onnx_val *values) {
    const strata_model *model = ex->model;
    ex->out.output = strata_onnx_take(ex, STRATA_MAX_OUTPUTS * sizeof(*ex->out.output));
    for (int i = 0; i < model->n_outputs && !ex->failed; i++) {
        const strata_output_spec *output = &model->outputs[i];
        const char *y = predicted(ex, output, values[output->value].name);
        if (i == 0 && strata_onnx_restores(ex->preprocessing)) {
            ex->output = y;
            y = strata_onnx_restored(ex, ex->preprocessing, y);
        }
        char name[STRATA_ONNX_NAME_BYTES];
        snprintf(name, sizeof name, "%.100s", strata_output_name(model, i));
        for (int k = 0; k < model->n_inputs; k++) /* inputs and outputs must have different names in ONNX */
            if (!strcmp(name, strata_model_input_port(model, k).name))
                snprintf(name, sizeof name, "%.100s.out", strata_output_name(model, i));
        const char *own = strata_onnx_add_node(ex, "Identity", &y, 1, strata_onnx_copy_text(ex, name));
        ex->out.output[ex->out.n_output++] = value_info(ex, own, STRATA_ONNX_TYPE_FLOAT, output->shape);
    }
}

/* Writes the label, the loss and the notes, which strata_model_load_onnx reads. */
static size_t write_metadata(strata_onnx_export *ex, StrataOnnx__Entry ***out) {
    const strata_model *model = ex->model;
    char *losses = NULL;
    if (strata_model_losses_text(model, &losses, NULL)) ex->failed = true;
    const size_t most = (size_t)model->notes.n + 5;
    StrataOnnx__Entry **list = strata_onnx_take(ex, most * sizeof(*list)),
                      *entries = strata_onnx_take(ex, most * sizeof *entries);
    size_t n = 0;
    char *losses_copy = losses ? strata_onnx_copy_text(ex, losses) : NULL;
    free(losses);
    if (ex->failed) return 0;
    for (size_t i = 0; i < most; i++) {
        strata_onnx__entry__init(&entries[i]);
        list[i] = &entries[i];
    }
    if (*model->label) entries[n].key = (char *)"strata.label", entries[n++].value = model->label;
    if (losses_copy) entries[n].key = (char *)"strata.loss", entries[n++].value = losses_copy;
    if (ex->features) {
        char text[STRATA_ONNX_NAME_BYTES] = "";
        const strata_shape shape = model->inputs[0].shape;
        for (int d = 0; d < shape.rank; d++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", d ? "," : "", (long long)shape.dims[d]);
        entries[n].key = (char *)STRATA_ONNX_FEATURES, entries[n++].value = (char *)ex->features;
        entries[n].key = (char *)STRATA_ONNX_FEATURES_SHAPE, entries[n++].value = strata_onnx_copy_text(ex, text);
    }
    if (ex->output) entries[n].key = (char *)STRATA_ONNX_RAW_OUTPUT, entries[n++].value = (char *)ex->output;
    for (int i = 0; i < model->notes.n; i++) {
        char key[STRATA_ONNX_NAME_BYTES];
        const char *own = model->notes.items[i].key;
        snprintf(key, sizeof key, "strata.note.%.100s", !strncmp(own, "strata.", 7) ? own + 7 : own);
        entries[n].key = strata_onnx_copy_text(ex, key), entries[n++].value = model->notes.items[i].text;
    }
    *out = list;
    return n;
}

static strata_status read_back(const char *path, void *context, strata_error *err) {
    strata_model *model = NULL;
    (void)context;
    const strata_status status = strata_model_load_onnx(path, (strata_onnx_options){0}, &model, err);
    strata_model_destroy(model);
    return status;
}

static strata_status write_model(strata_onnx_export *ex, const char *path, strata_error *err) {
    StrataOnnx__Model file = STRATA_ONNX__MODEL__INIT;
    StrataOnnx__OperatorSet set = STRATA_ONNX__OPERATOR_SET__INIT, *sets[] = {&set};
    file.n_metadata_props = write_metadata(ex, &file.metadata_props);
    if (ex->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    set.domain = (char *)"", set.has_version = 1, set.version = OPSET;
    file.has_ir_version = 1, file.ir_version = IR_VERSION;
    file.producer_name = (char *)"strata", file.producer_version = (char *)STRATA_VERSION;
    file.opset_import = sets, file.n_opset_import = 1;
    ex->out.name = (char *)"strata";
    file.graph = &ex->out;
    const size_t bytes = strata_onnx__model__get_packed_size(&file);
    if (bytes >= (size_t)1 << 31)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: it would have %zu bytes; an ONNX file has less than 2^31", path,
                           bytes);
    unsigned char *packed = malloc(bytes + 1);
    if (!packed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %zu bytes", path, bytes);
    strata_onnx__model__pack(&file, packed);
    const strata_status status = strata_file_write_checked(path, packed, bytes, &(strata_file_check){read_back, NULL}, err);
    free(packed);
    return status;
}

static strata_status walk(strata_onnx_export *ex, const char *path, strata_onnx_val *values, strata_error *err) {
    strata_model *model = ex->model;
    STRATA_TRY(write_inputs(ex, values));
    for (int v = 0; v < model->n_values && !ex->failed; v++) {
        const strata_value *value = model->values[v];
        strata_onnx_val taken[STRATA_MAX_LAYER_INPUTS];
        if (value->layer < 0) continue;
        for (int i = 0; i < value->n_inputs; i++) taken[i] = values[value->inputs[i]];
        values[v] = strata_onnx_export_call(ex, &model->list.layers[value->layer], value->number, taken, value->n_inputs);
    }
    STRATA_TRY(strata_graph_check(ex->graph, err));
    strata_onnx_check_columns(ex, ex->preprocessing);
    if (ex->unsupported.n_bytes)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: ONNX has no counterpart of: %.800s%s", path, ex->unsupported.bytes,
                           ex->columns ? ". The file takes rows of numbers: strata export --c writes a program that takes such "
                                         "columns too"
                                       : "");
    write_outputs(ex, values);
    return write_model(ex, path, err);
}

strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_model_check_readable(model, "save_onnx", err));
    strata_onnx_export ex = {.model = model};
    strata_onnx__graph__init(&ex.out);
    ex.context = (strata_layer_context){.declaring = true, .parameters = &ex.parameters};
    ex.values = malloc((size_t)strata_model_all_size(model) * sizeof *ex.values + 1);
    strata_onnx_val *values = calloc((size_t)model->n_values, sizeof *values);
    strata_status status = ex.values && values ? strata_model_read_all(model, ex.values, err)
                                               : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (!status && strata_model_note(model, "preprocessing"))
        status = strata_model_preprocessing(model, &ex.preprocessing, err);
    if (!status) status = strata_graph_create(&ex.graph, err);
    if (!status) ex.graph->activations = model->registry ? model->registry->activations : NULL;
    if (!status) status = walk(&ex, path, values, err);
    if (status && err) strata_onnx_name_batch(err->message);
    strata_preprocessing_destroy(ex.preprocessing);
    strata_graph_destroy(ex.graph);
    strata_parameters_finish(&ex.parameters);
    strata_text_finish(&ex.unsupported);
    strata_onnx_free_all(&ex);
    free(values);
    free(ex.values);
    return status;
}
