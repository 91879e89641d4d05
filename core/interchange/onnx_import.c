/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an ONNX file into a functional model: checks it, walks its nodes in order, and gives the model the weights. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/format/kind.h"
#include "core/graph/graph.h"
#include "core/interchange/onnx.h"
#include "core/layer/op.h"
#include "strata/interchange.h"

/* ---- folding ---- */

/* Evaluates the nodes of a graph of constants with the references of the ops. */
static strata_status evaluate(strata_onnx_import *im, strata_graph *graph, strata_array *values) {
    const void *inputs[STRATA_MAX_LAYER_INPUTS];
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        strata_array *y = &values[id];
        if ((uint64_t)strata_shape_elements(node->shape) > im->most_elements)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                    "the constant %s is larger than the file's weights and 2^24 elements",
                                    strata_shape_text(node->shape).text);
        STRATA_TRY(strata_array_create(node->dtype, node->shape, y, im->err));
        for (int i = 0; i < node->n_inputs && i < STRATA_MAX_LAYER_INPUTS; i++) inputs[i] = values[node->inputs[i]->id].data;
        if (strata_shape_elements(node->shape) == 0) continue;
        if (node->op->flags & STRATA_OP_LEAF) {
            memcpy(y->data, ((const strata_constant_attrs *)node->attrs)->data, strata_array_bytes(y));
            continue;
        }
        STRATA_TRY(node->op->reference(&(strata_op_call){.node = node, .inputs = inputs, .output = y->data}, im->err));
    }
    return STRATA_OK;
}

/* Imports a node whose inputs are all constant. It is built in a separate graph, whose values become the node's outputs. */
static strata_status fold(strata_onnx_import *im, const strata_onnx_row *row) {
    const int first = im->n_values;
    strata_array *values = NULL;
    STRATA_TRY(strata_graph_create(&im->folding, im->err));
    strata_status status = row->import(im);
    const int n_nodes = im->folding->n_nodes;
    if (!status) values = calloc((size_t)n_nodes + 1, sizeof *values);
    if (!status && !values) status = strata_onnx_no_memory(im);
    if (!status) status = evaluate(im, im->folding, values);
    for (int i = 0; i < im->n_values; i++) {
        strata_onnx_value *v = &im->values[i];
        if (!status && i >= first && !v->constant && v->folded) {
            const strata_array *from = &values[v->folded->id];
            strata_dtype dtype = from->dtype == STRATA_DTYPE_I32 ? STRATA_DTYPE_I64 : from->dtype;
            status = strata_array_create(dtype, from->shape, &v->array, im->err);
            const int64_t n = strata_shape_elements(from->shape);
            if (!status && dtype == from->dtype) memcpy(v->array.data, from->data, strata_array_bytes(from));
            for (int64_t k = 0; k < n && !status && dtype != from->dtype; k++)
                ((int64_t *)v->array.data)[k] = ((const int32_t *)from->data)[k];
            v->constant = !status;
        }
        v->folded = NULL;
    }
    for (int i = 0; values && i < n_nodes; i++) strata_array_finish(&values[i]);
    free(values);
    strata_graph_destroy(im->folding);
    im->folding = NULL;
    return status;
}

/* ---- the file ---- */

static strata_status check_opset(strata_onnx_import *im) {
    im->opset = 0;
    for (size_t i = 0; i < im->file->n_opset_import; i++) {
        const StrataOnnx__OperatorSet *set = im->file->opset_import[i];
        if (!set->domain || !*set->domain || !strcmp(set->domain, "ai.onnx")) im->opset = set->version;
    }
    if (im->opset >= STRATA_ONNX_FIRST_OPSET) return STRATA_OK;
    return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                            "its opset is %" PRId64 "; at least %d is needed: export it anew, or convert it", im->opset,
                            STRATA_ONNX_FIRST_OPSET);
}

/* Fails with a list of all nodes for whose op there is no translation. */
static strata_status check_ops(strata_onnx_import *im) {
    strata_text list = {0};
    int n = 0;
    for (size_t i = 0; i < im->graph->n_node; i++) {
        const StrataOnnx__Node *node = im->graph->node[i];
        const char *op = node->op_type ? node->op_type : "", *domain = node->domain ? node->domain : "";
        const bool own = !*domain || !strcmp(domain, "ai.onnx");
        if (own && strata_onnx_find_row(op)) continue;
        const char *name = node->name && *node->name ? node->name : node->n_output ? node->output[0] : "";
        strata_text_add(&list, "%s%s%s%.40s (%.60s)", n++ ? ", " : "", own ? "" : domain, own ? "" : ".", op, name);
    }
    char *text = NULL;
    STRATA_TRY(strata_text_take(&list, &text, NULL, im->err));
    strata_status status = STRATA_OK;
    if (n && strlen(text) > 800) strcpy(text + 790, " ...");
    if (n) status = strata_onnx_fail(im, STRATA_UNSUPPORTED, "%d node%s Strata has no op for: %s", n, n > 1 ? "s" : "", text);
    free(text);
    return status;
}

static bool is_initializer(const strata_onnx_import *im, const char *name) {
    for (size_t i = 0; i < im->graph->n_initializer; i++)
        if (im->graph->initializer[i]->name && !strcmp(im->graph->initializer[i]->name, name)) return true;
    return false;
}

/* Whether training may change the array. Exporters write masks of attention as initializers, too; they are not weights,
 * and contain infinities. */
static bool is_weight(const strata_array *array) {
    return array->dtype == STRATA_DTYPE_F32 && array->shape.rank && strata_shape_elements(array->shape) > 0 &&
           strata_onnx_is_finite(array);
}

static strata_status read_initializers(strata_onnx_import *im) {
    for (size_t i = 0; i < im->graph->n_initializer; i++) {
        const StrataOnnx__Tensor *tensor = im->graph->initializer[i];
        strata_array array;
        int index;
        if (!tensor->name || !*tensor->name) return strata_onnx_fail(im, STRATA_DATA, "initializer %zu has no name", i);
        if (strata_onnx_find(im, tensor->name) >= 0)
            return strata_onnx_fail(im, STRATA_DATA, "there are two initializers \"%.80s\"", tensor->name);
        STRATA_TRY(strata_onnx_read_tensor(tensor, im->path, &array, im->err));
        const bool trainable = is_weight(&array);
        STRATA_TRY(strata_onnx_constant(im, &array, trainable, &index));
        im->values[index].name = tensor->name;
        im->values[index].hash = strata_onnx_hash(tensor->name);
    }
    return STRATA_OK;
}

static strata_status input_shape(strata_onnx_import *im, const StrataOnnx__ValueInfo *info, strata_shape *out,
                                 strata_dtype *out_dtype) {
    const StrataOnnx__TensorType *type = info->type ? info->type->tensor_type : NULL;
    const char *name = info->name;
    *out = (strata_shape){0};
    if (!type || !type->shape)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "input \"%.80s\" is no tensor with a shape; export it with one", name);
    if (type->shape->n_dim >= STRATA_MAX_RANK)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "input \"%.80s\" has %zu axes; at most %d", name, type->shape->n_dim,
                                STRATA_MAX_RANK - 1);
    STRATA_TRY(strata_onnx_dtype_of(type->elem_type, out_dtype, name, im->err));
    for (size_t d = 0; d < type->shape->n_dim; d++) {
        const StrataOnnx__Dimension *dim = type->shape->dim[d];
        const int64_t size = dim->has_dim_value ? dim->dim_value : -1;
        if (d == 0 && im->batched) {
            if (size > 0) im->fixed_batch = size;
            out->dims[out->rank++] = STRATA_ONNX_BATCH;
            continue;
        }
        if (size < 1 || size > INT32_MAX)
            return strata_onnx_fail(
                im, STRATA_UNSUPPORTED,
                "input \"%.80s\": its axis %zu has no size (%s); only the batch, axis 0, may be open. Export "
                "it with this size fixed",
                name, d, dim->dim_param ? dim->dim_param : "none given");
        out->dims[out->rank++] = size;
    }
    if (!im->batched || out->rank) return STRATA_OK;
    return strata_onnx_fail(im, STRATA_UNSUPPORTED, "input \"%.80s\" is one number, which has no axis of examples", name);
}

static strata_status add_input(strata_onnx_import *im, const StrataOnnx__ValueInfo *info) {
    char name[64];
    strata_shape shape, example = {0};
    strata_dtype dtype;
    int index, made;
    STRATA_TRY(input_shape(im, info, &shape, &dtype));
    strata_onnx_layer_name(im, info->name, name, sizeof name);
    for (int d = im->batched ? 1 : 0; d < shape.rank; d++) example.dims[example.rank++] = shape.dims[d];
    const strata_dtype own = dtype == STRATA_DTYPE_F32 ? STRATA_DTYPE_F32 : STRATA_DTYPE_I32;
    strata_onnx_value value = {.value = strata_model_input(im->model, name, example, own)};
    if (im->model->building.status)
        return strata_onnx_fail(im, im->model->building.status, "%s", im->model->building.error.message);
    strata_shape whole = {.rank = example.rank + 1, .dims = {im->batched ? STRATA_ONNX_BATCH : 1}};
    memcpy(whole.dims + 1, example.dims, (size_t)example.rank * sizeof *example.dims);
    value.tensor = strata_input(im->built, name, own, whole);
    STRATA_TRY(strata_onnx_check_built(im));
    im->context.inputs[im->context.n_inputs++] = value.tensor;
    STRATA_TRY(strata_onnx_add_value(im, value, &index));
    StrataOnnx__Node pretended = STRATA_ONNX__NODE__INIT; /* the layers below get their names from the input */
    pretended.op_type = (char *)"input";
    pretended.name = info->name;
    im->node = &pretended;
    strata_status status = STRATA_OK;
    if (!im->batched) {
        strata_op_options opts = {.op = "reshape", .numbers = {.n = shape.rank}};
        for (int d = 0; d < shape.rank; d++) opts.numbers.values[d] = (double)shape.dims[d];
        status = strata_onnx_op(im, &opts, &index, 1, false, &made);
        if (!status) index = made;
    }
    if (!status && dtype == STRATA_DTYPE_BOOL) {
        status = strata_onnx_op(im, &(strata_op_options){.op = "cast", .dtype = "bool"}, &index, 1, false, &made);
        if (!status) index = made;
    }
    im->node = NULL;
    STRATA_TRY(status);
    im->values[index].name = info->name;
    im->values[index].hash = strata_onnx_hash(info->name);
    return STRATA_OK;
}

static strata_status read_inputs(strata_onnx_import *im) {
    for (size_t i = 0; i < im->graph->n_input; i++) {
        const StrataOnnx__ValueInfo *info = im->graph->input[i];
        if (!info->name || !*info->name) return strata_onnx_fail(im, STRATA_DATA, "input %zu has no name", i);
        if (is_initializer(im, info->name)) continue; /* up to IR version 3 the inputs also list the weights */
        if (strata_onnx_find(im, info->name) >= 0)
            return strata_onnx_fail(im, STRATA_DATA, "there are two inputs \"%.80s\"", info->name);
        STRATA_TRY(add_input(im, info));
    }
    return STRATA_OK;
}

/* ---- nodes ---- */

/* Whether a node of the file computes the value. */
static bool is_output_of_a_node(const strata_onnx_import *im, const char *name) {
    for (size_t k = 0; k < im->graph->n_node; k++)
        for (size_t i = 0; i < im->graph->node[k]->n_output; i++)
            if (!strcmp(im->graph->node[k]->output[i], name)) return true;
    return false;
}

static strata_status import_node(strata_onnx_import *im, const StrataOnnx__Node *node) {
    bool constant = true;
    im->node = node;
    const int given = node->n_output ? strata_onnx_find(im, node->output[0]) : -1;
    if (given >= 0 && im->values[given].ahead) return STRATA_OK;
    for (size_t i = 0; i < node->n_input; i++) {
        const char *name = node->input[i];
        const int value = *name ? strata_onnx_find(im, name) : -1;
        if (*name && value < 0)
            return strata_onnx_fail(
                im, STRATA_DATA,
                is_output_of_a_node(im, name)
                    ? "its input \"%.80s\" is given by this node or one behind it: the nodes are out of order, "
                      "or there is a cycle"
                    : "there is no \"%.80s\", which it takes",
                name);
        constant = constant && (value < 0 || im->values[value].constant);
    }
    const strata_onnx_row *row = strata_onnx_find_row(node->op_type);
    return constant ? fold(im, row) : row->import(im);
}

static strata_status import_nodes(strata_onnx_import *im) {
    if (im->graph->n_node > STRATA_ONNX_MAX_NODES || im->graph->n_initializer > STRATA_ONNX_MAX_NODES)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu nodes and %zu initializers; at most %d each",
                                im->graph->n_node, im->graph->n_initializer, STRATA_ONNX_MAX_NODES);
    STRATA_TRY(check_ops(im));
    STRATA_TRY(read_initializers(im));
    STRATA_TRY(read_inputs(im));
    for (size_t i = 0; i < im->graph->n_node; i++) STRATA_TRY(import_node(im, im->graph->node[i]));
    im->node = NULL;
    return STRATA_OK;
}

static strata_status start(strata_onnx_import *im, const void *bytes, size_t n_bytes) {
    im->most_elements = (uint64_t)n_bytes + (1 << 24);
    im->file = strata_onnx__model__unpack(NULL, n_bytes, bytes);
    if (!im->file || !im->file->graph)
        return strata_onnx_fail(im, STRATA_DATA,
                                im->file ? "it has no graph" : "it is no ONNX model: its bytes are no such message");
    im->graph = im->file->graph;
    STRATA_TRY(check_opset(im));
    STRATA_TRY(strata_model_create_functional(&im->model, im->err));
    STRATA_TRY(strata_graph_create(&im->built, im->err));
    im->context = (strata_layer_context){.declaring = true, .parameters = &im->parameters};
    return import_nodes(im);
}

strata_status strata_onnx_open(const char *path, const void *bytes, size_t n_bytes, bool whole, strata_onnx_import **out,
                               strata_error *err) {
    strata_onnx_import *im = calloc(1, sizeof *im);
    strata_error reason = {0};
    if (!im) return strata_fail(err, STRATA_OUT_OF_MEMORY, "import: no host memory");
    *im = (strata_onnx_import){.path = path, .err = &reason, .batched = !whole};
    const strata_status status = start(im, bytes, n_bytes);
    if (status) {
        strata_onnx_close(im);
        return strata_fail(err, status, "%s", reason.message);
    }
    im->err = err;
    *out = im;
    return STRATA_OK;
}

void strata_onnx_close(strata_onnx_import *im) {
    if (!im) return;
    strata_model_destroy(im->model);
    strata_graph_destroy(im->folding);
    strata_graph_destroy(im->built);
    strata_parameters_finish(&im->parameters);
    for (int i = 0; i < im->n_values; i++) strata_array_finish(&im->values[i].array);
    for (int i = 0; i < im->n_weights; i++) {
        strata_array_finish(&im->weights[i].array);
        free(im->weights[i].name);
    }
    free(im->values);
    free(im->weights);
    if (im->file) strata_onnx__model__free_unpacked(im->file, NULL);
    free(im);
}

/* ---- the model ---- */

static const char *entry(const strata_onnx_import *im, const char *key) {
    for (size_t i = 0; i < im->file->n_metadata_props; i++) {
        const StrataOnnx__Entry *e = im->file->metadata_props[i];
        if (e->key && e->value && !strcmp(e->key, key)) return e->value;
    }
    return NULL;
}

/* If the last layer is a softmax or sigmoid, predict computes it for a loss of logits, so it becomes the loss. Returns
 * the value before that layer, or else `value`. */
static const strata_value *logits_of(strata_onnx_import *im, const strata_value *value) {
    static const struct {
        const char *op, *loss;
    } ends[] = {{"softmax", "sparse_categorical_crossentropy"}, {"sigmoid", "binary_crossentropy"}};
    const char *named = entry(im, "strata.loss");
    const strata_layer *layer = value->layer < 0 ? NULL : &im->model->list.layers[value->layer];
    const strata_loss *loss = NULL;
    if (im->graph->n_output != 1 || !layer || layer->kind != &strata_layer_op) return value;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (strcmp(((const strata_op_options *)layer->options)->op, ends[i].op)) continue;
        if (strata_registry_find_loss(NULL, named ? named : ends[i].loss, &loss, NULL) || !loss->predict) return value;
        im->loss = loss;
        return im->model->values[value->inputs[0]];
    }
    return value;
}

/* Adds output `i`. It is converted to f32, and its first axis must be the batch. */
static strata_status add_output(strata_onnx_import *im, size_t i) {
    const char *name = im->graph->output[i]->name ? im->graph->output[i]->name : "";
    int value = strata_onnx_find(im, name), made;
    char own[64];
    StrataOnnx__Node pretended = STRATA_ONNX__NODE__INIT;
    pretended.op_type = (char *)"output";
    pretended.name = (char *)name;
    if (value < 0) return strata_onnx_fail(im, STRATA_DATA, "no node gives the output \"%.80s\"", name);
    if (im->values[value].constant)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "the output \"%.80s\" does not depend on the inputs", name);
    im->node = &pretended;
    STRATA_TRY(strata_onnx_in_front(im, value, &value));
    if (strata_onnx_dtype(im, value) != STRATA_DTYPE_F32) {
        STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "cast", .dtype = "f32"}, &value, 1, false, &made));
        value = made;
    }
    const strata_shape shape = strata_onnx_shape(im, value);
    if (!im->batched && shape.rank < STRATA_MAX_RANK) {
        strata_op_options opts = {.op = "reshape", .numbers = {.n = shape.rank + 1, .values = {1}}};
        for (int d = 0; d < shape.rank; d++) opts.numbers.values[d + 1] = (double)shape.dims[d];
        STRATA_TRY(strata_onnx_op(im, &opts, &value, 1, false, &made));
        value = made;
    } else if (shape.rank < 1 || shape.dims[0] != STRATA_ONNX_BATCH) {
        return strata_onnx_fail(
            im, STRATA_UNSUPPORTED,
            "it is %s; its axis 0 must be the batch, as that of the inputs is. With `whole` all of the inputs "
            "are one example",
            strata_shape_text(shape).text);
    }
    im->node = NULL;
    snprintf(own, sizeof own, "%.60s", name);
    for (char *at = own; *at; at++)
        if (*at == '/') *at = '.';
    strata_model_output(im->model, logits_of(im, im->values[value].value),
                        (strata_output_options){.name = *own ? own : NULL, .loss = im->graph->n_output > 1 ? "mse" : NULL});
    if (!im->model->building.status) return STRATA_OK;
    return strata_onnx_fail(im, im->model->building.status, "%s", im->model->building.error.message);
}

/* Removes calls whose value nothing uses; ONNX graphs may have them, but models may not. Fails for an unused input. */
static strata_status drop_unused(strata_onnx_import *im) {
    strata_model *model = im->model;
    for (int i = model->n_values - 1; i >= 0; i--) {
        strata_value *value = model->values[i];
        if (value->used) continue;
        if (value->layer < 0)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "nothing depends on the input \"%s\"", value->name);
        strata_model_drop_call(model, i);
    }
    return STRATA_OK;
}

/* Copies the weights to model->loaded, from where compile reads them. */
static strata_status load_weights(strata_onnx_import *im) {
    strata_model *model = im->model;
    strata_error reason = {0};
    strata_status status = strata_model_declare(model, &reason);
    if (status) return strata_onnx_fail(im, status == STRATA_INVALID ? STRATA_UNSUPPORTED : status, "%s", reason.message);
    model->loaded = calloc((size_t)strata_model_all_size(model) + 1, sizeof *model->loaded);
    if (!model->loaded) return strata_onnx_no_memory(im);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        const strata_array *array = NULL;
        for (int k = 0; k < im->n_weights && !array; k++)
            if (!strcmp(im->weights[k].name, p->name)) array = &im->weights[k].array;
        if (!array || !strata_shape_equal(array->shape, p->shape))
            return strata_onnx_fail(im, STRATA_DATA, "weights %s are %s; the layer needs %s", p->name,
                                    array ? strata_shape_text(array->shape).text : "missing", strata_shape_text(p->shape).text);
        memcpy(model->loaded + strata_model_place(model, p), array->data, strata_array_bytes(array));
    }
    return STRATA_OK;
}

/* Reads the metadata of a model that Strata exported: "strata.label", "strata.loss" and its notes. */
static strata_status read_metadata(strata_onnx_import *im) {
    const char *label = entry(im, "strata.label"), *loss = entry(im, "strata.loss");
    strata_output_spec *output = &im->model->outputs[0];
    if (im->model->n_outputs == 1) output->loss = im->loss;
    STRATA_TRY(strata_model_set_label(im->model, label, im->err));
    if (loss && im->model->n_outputs == 1) STRATA_TRY(strata_registry_find_loss(NULL, loss, &output->loss, im->err));
    if (output->loss && output->loss->check) STRATA_TRY(output->loss->check(&output->loss_options, im->err));
    for (size_t i = 0; i < im->file->n_metadata_props; i++) {
        const StrataOnnx__Entry *e = im->file->metadata_props[i];
        if (!e->key || !e->value || strncmp(e->key, "strata.note.", 12)) continue;
        STRATA_TRY(strata_model_set_note(im->model, e->key + 12, e->value, im->err));
    }
    return STRATA_OK;
}

static strata_status finish(strata_onnx_import *im) {
    if (im->graph->n_output > STRATA_MAX_OUTPUTS || !im->graph->n_output)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu outputs; 1 to %d", im->graph->n_output, STRATA_MAX_OUTPUTS);
    for (size_t i = 0; i < im->graph->n_output; i++) STRATA_TRY(add_output(im, i));
    STRATA_TRY(drop_unused(im));
    STRATA_TRY(load_weights(im));
    return read_metadata(im);
}

strata_status strata_model_parse_onnx(const char *path, const void *bytes, size_t n_bytes, strata_onnx_options opts,
                                      strata_model **out_model, strata_error *err) {
    strata_onnx_import *im = NULL;
    strata_error reason = {0};
    strata_status status = strata_onnx_open(path, bytes, n_bytes, opts.whole, &im, &reason);
    if (!status) {
        im->err = &reason;
        status = finish(im);
    }
    if (!status) {
        *out_model = im->model;
        im->model = NULL;
    }
    strata_onnx_close(im);
    if (status == STRATA_INVALID) status = STRATA_DATA; /* the file contains the invalid options, not the caller's arguments */
    return status ? strata_fail(err, status, "%s: %s", path ? path : "ONNX", reason.message) : STRATA_OK;
}

strata_status strata_model_load_onnx(const char *path, strata_onnx_options opts, strata_model **out_model, strata_error *err) {
    unsigned char *bytes;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(31), &bytes, &n_bytes, err));
    strata_status status = strata_model_parse_onnx(path, bytes, n_bytes, opts, out_model, err);
    status = strata_file_explain(path, bytes, n_bytes, STRATA_FILE_ONNX, status, err);
    free(bytes);
    return status;
}
