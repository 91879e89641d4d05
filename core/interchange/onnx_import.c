/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an ONNX file into a functional model: checks it, walks its nodes in order, and gives the model the weights. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/interchange/onnx.h"
#include "strata/formats.h"
#include "strata/interchange.h"

/* The row of an op; NULL: there is none. */
static const strata_onnx_row *find_row(const char *op) {
    static const strata_onnx_row rows[] = {
#define STRATA_ONNX_OP(onnx, n_needed, function, detail) {#onnx, n_needed, strata_onnx_node_##function, detail},
#include "core/interchange/onnx.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].op, op)) return &rows[i];
    return NULL;
}

/* ---- folding ---- */

/* Sets a parameter of a layer that is folded. */
static strata_status take_weight(const char *name, strata_array *out, void *user, strata_error *err) {
    strata_onnx_import *im = user;
    for (int i = 0; i < im->n_weights; i++) {
        const strata_onnx_weight *weight = &im->weights[i];
        if (strcmp(weight->name, name) || !strata_shape_equal(weight->array.shape, out->shape)) continue;
        memcpy(out->data, weight->array.data, strata_array_bytes(out));
        return STRATA_OK;
    }
    (void)err; /* it is that of the import */
    return strata_onnx_fail(im, STRATA_DATA, "its weights do not fit %s %s", name, strata_shape_text(out->shape).text);
}

/* Evaluates the nodes of a graph of constants. */
static strata_status evaluate(strata_onnx_import *im, const strata_graph *graph, strata_array *values) {
    for (int id = 0; id < strata_graph_n_nodes(graph); id++) {
        const strata_shape shape = strata_tensor_shape(strata_graph_tensor(graph, id));
        if ((uint64_t)strata_shape_elements(shape) > im->most_elements)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                    "the constant %s is larger than the file's weights and 2^24 elements",
                                    strata_shape_text(shape).text);
    }
    return strata_graph_evaluate(graph, take_weight, im, values, im->err);
}

/* Imports a node whose inputs are all constant. It is built in a separate graph, whose values become the node's outputs. */
static strata_status fold(strata_onnx_import *im, const strata_onnx_row *row, const int *in) {
    const int first = im->n_values, n_weights = im->n_weights;
    STRATA_FREED strata_array *values = NULL;
    STRATA_TRY(strata_graph_create(&im->folding, im->err));
    strata_onnx_output(im, 0, row->import(im, in));
    strata_status status = im->status;
    const int n_nodes = strata_graph_n_nodes(im->folding);
    if (!status && !(values = calloc((size_t)n_nodes + 1, sizeof *values))) status = strata_onnx_no_memory(im);
    if (!status) status = evaluate(im, im->folding, values);
    for (int i = 0; i < im->n_values; i++) {
        strata_onnx_value *v = &im->values[i];
        if (!status && i >= first && !v->constant && v->folded) {
            const strata_array *from = &values[strata_tensor_node(v->folded).index];
            const strata_dtype dtype = from->dtype == STRATA_DTYPE_I32 ? STRATA_DTYPE_I64 : from->dtype;
            status = strata_onnx_convert(from, dtype, &v->array, im->err);
            v->constant = !status;
        }
        v->folded = NULL;
    }
    for (int i = 0; values && i < n_nodes; i++) strata_array_finish(&values[i]);
    strata_graph_destroy(im->folding);
    im->folding = NULL;
    im->n_folded_layers = 0;
    while (im->n_weights > n_weights) {
        strata_onnx_weight *weight = &im->weights[--im->n_weights];
        strata_array_finish(&weight->array);
        free(weight->name);
    }
    return status;
}

/* ---- the file ---- */

static const char *entry(const strata_onnx_import *im, const char *key) {
    return strata_onnx_entry(im->file->metadata_props, im->file->n_metadata_props, key);
}

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
    for (size_t i = im->first_node; i < im->graph->n_node; i++) {
        const StrataOnnx__Node *node = im->graph->node[i];
        const char *op = node->op_type ? node->op_type : "", *domain = node->domain ? node->domain : "";
        const bool own = !*domain || !strcmp(domain, "ai.onnx");
        if (own && find_row(op)) continue;
        const char *name = node->name && *node->name ? node->name : node->n_output ? node->output[0] : "";
        strata_text_add(&list, "%s%s%s%.40s (%.60s)", n++ ? ", " : "", own ? "" : domain, own ? "" : ".", op, name);
    }
    STRATA_FREED char *text = NULL;
    STRATA_TRY(strata_text_take(&list, &text, NULL, im->err));
    if (!n) return STRATA_OK;
    if (strlen(text) > 800) strcpy(text + 790, " ...");
    return strata_onnx_fail(im, STRATA_UNSUPPORTED, "%d node%s Strata has no op for: %s", n, n > 1 ? "s" : "", text);
}

bool strata_onnx_is_initializer(const StrataOnnx__Graph *graph, const char *name) {
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (graph->initializer[i]->name && !strcmp(graph->initializer[i]->name, name)) return true;
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
        if (!tensor->name || !*tensor->name) return strata_onnx_fail(im, STRATA_DATA, "initializer %zu has no name", i);
        if (strata_onnx_find(im, tensor->name))
            return strata_onnx_fail(im, STRATA_DATA, "there are two initializers \"%.80s\"", tensor->name);
        STRATA_TRY(strata_onnx_read_tensor(tensor, im->path, &array, im->err));
        const bool trainable = is_weight(&array);
        strata_onnx_set_name(im, strata_onnx_constant(im, &array, trainable), tensor->name);
    }
    return im->status;
}

/* Finds the nodes that compute the features, in a file that Strata wrote. Strata's own preprocessing does their work, so they
 * are left out: the first input of the model is their result. */
static void find_features(strata_onnx_import *im) {
    const char *name = entry(im, STRATA_ONNX_FEATURES), *shape = entry(im, STRATA_ONNX_FEATURES_SHAPE);
    for (size_t i = 0; name && shape && i < im->graph->n_node; i++) {
        const StrataOnnx__Node *node = im->graph->node[i];
        if (node->n_output != 1 || strcmp(node->output[0], name)) continue;
        im->features = name;
        im->first_node = i + 1;
    }
}

/* Replaces the sizes of the file's first input by those of the features, "3,4" in the metadata. */
static strata_status features_shape(strata_onnx_import *im, strata_shape *out) {
    const char *at = entry(im, STRATA_ONNX_FEATURES_SHAPE);
    out->rank = 1;
    for (char *end; *at; at = *end == ',' ? end + 1 : end) {
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 1 || size > INT32_MAX || out->rank == STRATA_MAX_RANK || (*end && *end != ','))
            return strata_onnx_fail(im, STRATA_DATA, "its metadata \"%s\" is no list of sizes", STRATA_ONNX_FEATURES_SHAPE);
        out->dims[out->rank++] = size;
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
                "it with this size fixed, or evaluate it as it is with strata predict --whole (in Python whole=True)",
                name, d, dim->dim_param ? dim->dim_param : "none given");
        out->dims[out->rank++] = size;
    }
    if (!im->batched || out->rank) return STRATA_OK;
    return strata_onnx_fail(im, STRATA_UNSUPPORTED, "input \"%.80s\" is one number, which has no axis of examples", name);
}

/* Fails with the error of adding to the model. */
static strata_status building_error(strata_onnx_import *im) {
    strata_error reason = {0};
    const strata_status status = strata_model_declare(im->model, &reason);
    return strata_onnx_fail(im, status ? status : STRATA_INTERNAL, "%s", reason.message);
}

static strata_status add_input(strata_onnx_import *im, const StrataOnnx__ValueInfo *info) {
    char name[64];
    strata_shape shape, example = {0};
    strata_dtype dtype;
    STRATA_TRY(input_shape(im, info, &shape, &dtype));
    const bool features = im->features && !im->n_calls && im->batched;
    if (features) STRATA_TRY(features_shape(im, &shape));
    strata_onnx_layer_name(im, info->name, name, sizeof name);
    for (int d = im->batched ? 1 : 0; d < shape.rank; d++) example.dims[example.rank++] = shape.dims[d];
    const strata_dtype own = dtype == STRATA_DTYPE_F32 ? STRATA_DTYPE_F32 : STRATA_DTYPE_I32;
    const int call = strata_onnx_add_call(im, NULL, name, NULL, 0);
    if (call < 0) return im->status;
    im->calls[call].value = strata_model_input(im->model, name, example, own);
    if (!im->calls[call].value) return building_error(im);
    strata_onnx_value value = {.call = call + 1};
    strata_shape whole = {.rank = example.rank + 1, .dims = {im->batched ? STRATA_ONNX_BATCH : 1}};
    memcpy(whole.dims + 1, example.dims, (size_t)example.rank * sizeof *example.dims);
    value.tensor = strata_input(im->built, name, own, whole);
    STRATA_TRY(strata_onnx_check_built(im));
    int index = strata_onnx_add_value(im, value);
    StrataOnnx__Node pretended = STRATA_ONNX__NODE__INIT; /* the layers below get their names from the input */
    pretended.op_type = (char *)"input";
    pretended.name = info->name;
    im->node = &pretended;
    if (!im->batched) index = strata_onnx_with_ints(im, "reshape", index, shape.dims, shape.rank, 0);
    if (dtype == STRATA_DTYPE_BOOL) index = strata_onnx_cast(im, "bool", index);
    im->node = NULL;
    strata_onnx_set_name(im, index, features ? im->features : info->name);
    return im->status;
}

/* Makes a constant of the array that is given for an input, if its type and sizes are those of the file. */
static strata_status add_given(strata_onnx_import *im, const StrataOnnx__ValueInfo *info) {
    const StrataOnnx__TensorType *type = info->type ? info->type->tensor_type : NULL;
    const strata_onnx_given *given = NULL;
    strata_array copy;
    strata_dtype dtype;
    if (!type)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                "input \"%.80s\" is no tensor; sequences and optional values are not there", info->name);
    STRATA_TRY(strata_onnx_dtype_of(type->elem_type, &dtype, info->name, im->err));
    for (size_t i = 0; i < im->given->n; i++)
        if (!strcmp(im->given->items[i].name, info->name)) given = &im->given->items[i];
    if (!given || !given->array.data)
        return strata_onnx_fail(im, STRATA_DATA, "there is no array for its input \"%.80s\"", info->name);
    const strata_array *array = &given->array;
    if (array->dtype == STRATA_DTYPE_F32 && dtype != STRATA_DTYPE_F32)
        return strata_onnx_fail(im, STRATA_DATA, "input \"%.80s\" is %s; its array has floats", info->name,
                                strata_onnx_type_name(type->elem_type));
    bool fits = !type->shape || type->shape->n_dim == (size_t)array->shape.rank;
    for (int d = 0; fits && type->shape && d < array->shape.rank; d++) {
        const StrataOnnx__Dimension *dim = type->shape->dim[d];
        fits = !dim->has_dim_value || dim->dim_value == array->shape.dims[d];
    }
    if (!fits) {
        strata_shape wanted = {0};
        for (size_t d = 0; d < type->shape->n_dim && d < STRATA_MAX_RANK; d++)
            wanted.dims[wanted.rank++] = type->shape->dim[d]->has_dim_value ? type->shape->dim[d]->dim_value : -1;
        return strata_onnx_fail(im, STRATA_DATA, "input \"%.80s\" is %s; its array is %s", info->name,
                                strata_shape_text(wanted).text, strata_shape_text(array->shape).text);
    }
    STRATA_TRY(strata_onnx_convert(array, dtype, &copy, im->err));
    strata_onnx_set_name(im, strata_onnx_constant(im, &copy, false), info->name);
    return im->status;
}

static strata_status read_inputs(strata_onnx_import *im) {
    for (size_t i = 0; i < im->graph->n_input; i++) {
        const StrataOnnx__ValueInfo *info = im->graph->input[i];
        if (!info->name || !*info->name) return strata_onnx_fail(im, STRATA_DATA, "input %zu has no name", i);
        if (strata_onnx_is_initializer(im->graph, info->name))
            continue; /* up to IR version 3 the inputs also list the weights */
        if (strata_onnx_find(im, info->name))
            return strata_onnx_fail(im, STRATA_DATA, "there are two inputs \"%.80s\"", info->name);
        STRATA_TRY(im->given ? add_given(im, info) : add_input(im, info));
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

/* Whether the node makes a tensor of one number whose size depends on the batch. It is then no constant, since only the number
 * is known. */
static bool spreads_over_batch(const strata_onnx_import *im, const StrataOnnx__Node *node) {
    const size_t sizes = !strcmp(node->op_type, "Expand") ? 1 : !strcmp(node->op_type, "ConstantOfShape") ? 0 : node->n_input;
    const int value = im->batched && sizes < node->n_input ? strata_onnx_find(im, node->input[sizes]) : 0;
    if (!strata_onnx_is_constant(im, value) || im->values[value].array.dtype != STRATA_DTYPE_I64) return false;
    const strata_array *array = &im->values[value].array;
    for (int64_t i = 0; i < strata_shape_elements(array->shape); i++) {
        const int64_t size = ((const int64_t *)array->data)[i];
        if (size > 0 && size % STRATA_ONNX_BATCH == 0) return true;
    }
    return false;
}

/* Marks the node's outputs as zeros if its op only moves the elements of its first input, and these are zeros. */
static void mark_zeros(strata_onnx_import *im, const StrataOnnx__Node *node) {
    static const char *const moves[] = {"Expand",  "Slice",     "Gather",   "Squeeze", "Unsqueeze", "Reshape",
                                        "Flatten", "Transpose", "Identity", "Cast",    "Split",     "Tile"};
    const int from = node->n_input ? strata_onnx_find(im, node->input[0]) : 0;
    if (!from || !strata_onnx_is_zeros(im, from)) return;
    for (size_t m = 0; m < sizeof moves / sizeof *moves; m++)
        for (size_t i = 0; i < node->n_output && !strcmp(moves[m], node->op_type); i++) {
            const int to = strata_onnx_find(im, node->output[i]);
            if (to) im->values[to].zeros = true;
        }
}

static strata_status import_node(strata_onnx_import *im, const StrataOnnx__Node *node) {
    bool constant = true;
    int in[STRATA_ONNX_MOST_NEEDED];
    im->node = node;
    im->row = find_row(node->op_type);
    if (node->n_output && im->values[strata_onnx_find(im, node->output[0])].ahead) return STRATA_OK;
    for (size_t i = 0; i < node->n_input; i++) {
        const char *name = node->input[i];
        const int value = *name ? strata_onnx_find(im, name) : 0;
        if (*name && !value)
            return strata_onnx_fail(
                im, STRATA_DATA,
                is_output_of_a_node(im, name)
                    ? "its input \"%.80s\" is given by this node or one behind it: the nodes are out of order, "
                      "or there is a cycle"
                    : "there is no \"%.80s\", which it takes",
                name);
        constant = constant && im->values[value].constant;
    }
    for (int i = 0; i < STRATA_ONNX_MOST_NEEDED; i++)
        in[i] = i < im->row->n_needed ? strata_onnx_need(im, i) : strata_onnx_input(im, i);
    if (im->status) return im->status;
    if (constant && !spreads_over_batch(im, node)) return fold(im, im->row, in);
    strata_onnx_output(im, 0, im->row->import(im, in));
    mark_zeros(im, node);
    return im->status;
}

static strata_status import_nodes(strata_onnx_import *im) {
    if (im->graph->n_node > STRATA_ONNX_MAX_NODES || im->graph->n_initializer > STRATA_ONNX_MAX_NODES)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu nodes and %zu initializers; at most %d each",
                                im->graph->n_node, im->graph->n_initializer, STRATA_ONNX_MAX_NODES);
    STRATA_TRY(check_ops(im));
    STRATA_TRY(read_initializers(im));
    STRATA_TRY(read_inputs(im));
    for (size_t i = im->first_node; i < im->graph->n_node; i++) STRATA_TRY(import_node(im, im->graph->node[i]));
    im->node = NULL;
    return STRATA_OK;
}

static strata_status start(strata_onnx_import *im, const void *bytes, size_t n_bytes) {
    im->most_elements = im->given ? im->given->most_elements : (uint64_t)n_bytes + (1 << 24);
    im->file = strata_onnx__model__unpack(NULL, n_bytes, bytes);
    if (!im->file || !im->file->graph)
        return strata_onnx_fail(im, STRATA_DATA,
                                im->file ? "it has no graph" : "it is no ONNX model: its bytes are no such message");
    im->graph = im->file->graph;
    STRATA_TRY(check_opset(im));
    if (!im->given) find_features(im);
    if (!im->given) STRATA_TRY(strata_model_create_functional(&im->model, im->err));
    STRATA_TRY(strata_graph_create(&im->built, im->err));
    /* Value 0, which stands for no value: a constant, so that its shape and its elements can be read. */
    strata_onnx_scalar(im, STRATA_DTYPE_F32, 0);
    if (im->status) return im->status;
    return import_nodes(im);
}

strata_status strata_onnx_open(const char *path, const void *bytes, size_t n_bytes, bool whole,
                               const strata_onnx_given_list *given, strata_onnx_import **out, strata_error *err) {
    strata_onnx_import *im = NULL;
    strata_error reason = {0};
    STRATA_TRY(STRATA_NEW(im, 1, err, "import: no host memory"));
    *im = (strata_onnx_import){.path = path, .err = &reason, .batched = !whole, .given = given};
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
    for (int i = 0; i < im->n_values; i++) strata_array_finish(&im->values[i].array);
    for (int i = 0; i < im->n_weights; i++) {
        strata_array_finish(&im->weights[i].array);
        free(im->weights[i].name);
    }
    for (int i = 0; i < im->n_calls; i++) free(im->calls[i].options);
    free(im->calls);
    free(im->values);
    free(im->weights);
    if (im->file) strata_onnx__model__free_unpacked(im->file, NULL);
    free(im);
}

/* ---- the model ---- */

/* The value of output `i`. It is converted to f32, and its first axis must be the batch. */
static strata_status find_output(strata_onnx_import *im, size_t i, int *out) {
    const char *name = im->graph->output[i]->name ? im->graph->output[i]->name : "";
    const char *raw = i ? NULL : entry(im, STRATA_ONNX_RAW_OUTPUT);
    int value = raw ? strata_onnx_find(im, raw) : 0;
    if (!value) value = strata_onnx_find(im, name);
    StrataOnnx__Node pretended = STRATA_ONNX__NODE__INIT;
    pretended.op_type = (char *)"output";
    pretended.name = (char *)name;
    if (!value) return strata_onnx_fail(im, STRATA_DATA, "no node gives the output \"%.80s\"", name);
    if (im->values[value].constant)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "the output \"%.80s\" does not depend on the inputs", name);
    im->node = &pretended;
    value = strata_onnx_in_front(im, value);
    if (strata_onnx_dtype(im, value) != STRATA_DTYPE_F32) value = strata_onnx_cast(im, "f32", value);
    const strata_shape shape = strata_onnx_shape(im, value);
    if (im->status) return im->status;
    if (!im->batched && shape.rank < STRATA_MAX_RANK) {
        int64_t whole[STRATA_MAX_RANK] = {1};
        memcpy(whole + 1, shape.dims, (size_t)shape.rank * sizeof *whole);
        value = strata_onnx_with_ints(im, "reshape", value, whole, shape.rank + 1, 0);
    } else if (shape.rank < 1 || shape.dims[0] != STRATA_ONNX_BATCH) {
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it is %s; its axis 0 must be the batch, as that of the inputs is",
                                strata_shape_text(shape).text);
    }
    im->node = NULL;
    *out = im->values[value].call - 1;
    if (!im->status) im->calls[*out].used = true;
    return im->status;
}

/* Adds the layers that the outputs use to the model; ONNX graphs may have others, but models may not. Fails for an unused
 * input. */
static strata_status make_layers(strata_onnx_import *im) {
    for (int i = im->n_calls - 1; i >= 0; i--) {
        const strata_onnx_call *call = &im->calls[i];
        if (!call->used && !call->kind)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "nothing depends on the input \"%s\"", call->name);
        for (int k = 0; k < call->n_inputs && call->used; k++) im->calls[call->inputs[k]].used = true;
    }
    for (int i = 0; i < im->n_calls; i++) {
        strata_onnx_call *call = &im->calls[i];
        const strata_value *inputs[STRATA_MAX_LAYER_INPUTS];
        if (!call->used || !call->kind) continue;
        for (int k = 0; k < call->n_inputs; k++) inputs[k] = im->calls[call->inputs[k]].value;
        strata_model_add_layer(im->model, call->kind, call->name, call->options);
        call->value = strata_layer_call(im->model, NULL, inputs, call->n_inputs);
        if (!call->value) return building_error(im);
    }
    return STRATA_OK;
}

static strata_status make_model(strata_onnx_import *im) {
    int outputs[STRATA_MAX_OUTPUTS];
    if (im->graph->n_output > STRATA_MAX_OUTPUTS || !im->graph->n_output)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu outputs; 1 to %d", im->graph->n_output, STRATA_MAX_OUTPUTS);
    for (size_t i = 0; i < im->graph->n_output; i++) STRATA_TRY(find_output(im, i, &outputs[i]));
    STRATA_TRY(make_layers(im));
    for (size_t i = 0; i < im->graph->n_output; i++) {
        char own[64];
        snprintf(own, sizeof own, "%.60s", im->graph->output[i]->name ? im->graph->output[i]->name : "");
        for (char *at = own; *at; at++)
            if (*at == '/') *at = '.';
        strata_model_output(im->model, im->calls[outputs[i]].value, (strata_output_options){.name = *own ? own : NULL});
        if (strata_model_n_outputs(im->model) != (int)i + 1) return building_error(im);
    }
    return STRATA_OK;
}

/* Gives the parameters their values. */
static strata_status load_weights(strata_onnx_import *im) {
    strata_error reason = {0};
    strata_status status = strata_model_declare(im->model, &reason);
    if (status) return strata_onnx_fail(im, status == STRATA_INVALID ? STRATA_UNSUPPORTED : status, "%s", reason.message);
    for (int i = 0; i < strata_model_n_parameters(im->model); i++) {
        const strata_parameter p = strata_model_parameter(im->model, i);
        const strata_array *array = NULL;
        for (int k = 0; k < im->n_weights && !array; k++)
            if (!strcmp(im->weights[k].name, p.name)) array = &im->weights[k].array;
        if (!array || !strata_shape_equal(array->shape, p.shape))
            return strata_onnx_fail(im, STRATA_DATA, "weights %s are %s; the layer needs %s", p.name,
                                    array ? strata_shape_text(array->shape).text : "missing", strata_shape_text(p.shape).text);
        STRATA_TRY(strata_model_set_parameter(im->model, i, array, im->err));
    }
    return STRATA_OK;
}

/* Reads the metadata of a model that Strata exported: "strata.label", "strata.loss" and its notes. */
static strata_status read_metadata(strata_onnx_import *im) {
    const char *label = entry(im, "strata.label"), *loss = entry(im, "strata.loss");
    STRATA_TRY(strata_model_set_label(im->model, label, im->err));
    if (loss) STRATA_TRY(strata_model_recall_losses(im->model, loss, im->err));
    for (size_t i = 0; i < im->file->n_metadata_props; i++) {
        const StrataOnnx__Entry *e = im->file->metadata_props[i];
        if (!e->key || !e->value || strncmp(e->key, "strata.note.", 12)) continue;
        /* Another program has changed the nodes that compute the features, so they are a part of the model now. */
        if (!strcmp(e->key + 12, "preprocessing") && entry(im, STRATA_ONNX_FEATURES) && !im->features) continue;
        STRATA_TRY(strata_model_set_note(im->model, e->key + 12, e->value, im->err));
    }
    return STRATA_OK;
}

static strata_status finish(strata_onnx_import *im) {
    STRATA_TRY(make_model(im));
    STRATA_TRY(load_weights(im));
    return read_metadata(im);
}

static strata_status parse(const char *path, const void *bytes, size_t n_bytes, bool whole, strata_model **out_model,
                           strata_error *err) {
    strata_onnx_import *im = NULL;
    strata_status status = strata_onnx_open(path, bytes, n_bytes, whole, NULL, &im, err);
    if (!status) status = finish(im);
    if (!status) {
        *out_model = im->model;
        im->model = NULL;
    }
    strata_onnx_close(im);
    return status == STRATA_INVALID ? STRATA_DATA
                                    : status; /* the file contains the invalid options, not the caller's arguments */
}

strata_status strata_model_parse_onnx(const char *path, const void *bytes, size_t n_bytes, strata_onnx_options opts,
                                      strata_model **out_model, strata_error *err) {
    strata_error reason = {0};
    strata_onnx_import *whole = NULL;
    const strata_status status = parse(path, bytes, n_bytes, opts.whole, out_model, &reason);
    if (!status) return STRATA_OK;
    if (!opts.whole) strata_onnx_name_batch(reason.message);
    /* Many graphs that cannot be read have no batch. Reading the nodes without one shows whether this is so. */
    const bool helps =
        !opts.whole && status != STRATA_OUT_OF_MEMORY && !strata_onnx_open(path, bytes, n_bytes, true, NULL, &whole, NULL);
    strata_onnx_close(whole);
    return strata_fail(err, status, "%s: %s%s", path ? path : "ONNX", reason.message,
                       helps ? "; without a batch it can be read: give --whole (in Python whole=True)" : "");
}

strata_status strata_model_load_onnx(const char *path, strata_onnx_options opts, strata_model **out_model, strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(31), &bytes, &n_bytes, err));
    const strata_status status = strata_model_parse_onnx(path, bytes, n_bytes, opts, out_model, err);
    return strata_file_explain(path, bytes, n_bytes, STRATA_FILE_ONNX, status, err);
}
