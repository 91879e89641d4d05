/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of an ONNX graph during its import: constants, calls of layers, their shapes, and the order of their axes.
 * The files that translate nodes (onnx_nodes.c and others) use these functions. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"
#include "core/graph/graph.h"
#include "core/interchange/onnx.h"
#include "core/layer/op.h"
#include "core/model/build.h"

/* ---- messages ---- */

void strata_onnx_name_batch(char *message) {
    for (char *at = message; *at;) {
        if (*at < '1' || *at > '9') {
            at++;
            continue;
        }
        char *end;
        const unsigned long long number = strtoull(at, &end, 10);
        char name[32] = "N";
        if (number > STRATA_ONNX_BATCH) snprintf(name, sizeof name, "%llu N", number / STRATA_ONNX_BATCH);
        const size_t n = strlen(name);
        if (number % STRATA_ONNX_BATCH == 0 && n <= (size_t)(end - at)) {
            memcpy(at, name, n);
            memmove(at + n, end, strlen(end) + 1);
            end = at + n;
        }
        at = end;
    }
}

strata_status strata_onnx_fail(strata_onnx_import *im, strata_status status, const char *format, ...) {
    char text[STRATA_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    strata_format_v(text, sizeof text, format, arguments);
    va_end(arguments);
    const StrataOnnx__Node *node = im->node;
    const char *name = node && node->name && *node->name              ? node->name
                       : node && node->n_output && node->output[0][0] ? node->output[0]
                                                                      : "";
    if (!node) return strata_fail(im->err, status, "%s", text);
    return strata_fail(im->err, status, "%s (node \"%.80s\"): %s", node->op_type, name, text);
}

strata_status strata_onnx_no_memory(strata_onnx_import *im) {
    return strata_onnx_fail(im, STRATA_OUT_OF_MEMORY, "no host memory to import it");
}

/* ---- values ---- */

uint32_t strata_onnx_hash(const char *name) {
    uint32_t hash = 2166136261u;
    while (*name) hash = (hash ^ (unsigned char)*name++) * 16777619u;
    return hash;
}

strata_status strata_onnx_add_value(strata_onnx_import *im, strata_onnx_value value, int *out) {
    if (im->n_values == im->values_capacity) {
        const int capacity = im->values_capacity ? 2 * im->values_capacity : 64;
        strata_onnx_value *values = realloc(im->values, (size_t)capacity * sizeof *values);
        if (!values) {
            strata_array_finish(&value.array);
            return strata_onnx_no_memory(im);
        }
        im->values = values;
        im->values_capacity = capacity;
    }
    if (value.name) value.hash = strata_onnx_hash(value.name);
    *out = im->n_values;
    im->values[im->n_values++] = value;
    return STRATA_OK;
}

int strata_onnx_find(const strata_onnx_import *im, const char *name) {
    const uint32_t hash = strata_onnx_hash(name);
    for (int i = im->n_values - 1; i >= 0; i--) {
        const strata_onnx_value *v = &im->values[i];
        if (v->name && v->hash == hash && !strcmp(v->name, name)) return i;
    }
    return -1;
}

int strata_onnx_input(strata_onnx_import *im, int i) {
    if ((size_t)i >= im->node->n_input || !im->node->input[i][0]) return -1;
    return strata_onnx_find(im, im->node->input[i]);
}

/* Counts the nodes and outputs that use a value. *out_last: the last such node. */
static int count_takers(const strata_onnx_import *im, const char *name, const StrataOnnx__Node **out_last) {
    int n = 0;
    for (size_t k = 0; k < im->graph->n_node; k++)
        for (size_t i = 0; i < im->graph->node[k]->n_input; i++) {
            if (strcmp(im->graph->node[k]->input[i], name)) continue;
            *out_last = im->graph->node[k];
            n++;
        }
    for (size_t i = 0; i < im->graph->n_output; i++)
        n += im->graph->output[i]->name && !strcmp(im->graph->output[i]->name, name);
    return n;
}

const StrataOnnx__Node *strata_onnx_only_taker(const strata_onnx_import *im, const char *op) {
    const StrataOnnx__Node *taker = NULL;
    if (!im->node->n_output || count_takers(im, im->node->output[0], &taker) != 1 || !taker) return NULL;
    return taker->n_output == 1 && !strcmp(taker->op_type, op) ? taker : NULL;
}

bool strata_onnx_is_taken(const strata_onnx_import *im, int i) {
    const StrataOnnx__Node *ignored;
    return (size_t)i < im->node->n_output && im->node->output[i][0] && count_takers(im, im->node->output[i], &ignored);
}

static strata_status name_value(strata_onnx_import *im, const char *name, int value, bool ahead) {
    if (strata_onnx_find(im, name) >= 0)
        return strata_onnx_fail(im, STRATA_DATA, "it gives \"%.80s\", which another node or input gives already", name);
    strata_onnx_value copy = im->values[value];
    strata_array array = copy.array;
    if (copy.constant) { /* a value may have several names, each with a copy of the array that it frees */
        STRATA_TRY(strata_array_create(array.dtype, array.shape, &copy.array, im->err));
        memcpy(copy.array.data, array.data, strata_array_bytes(&array));
    }
    copy.name = name;
    copy.ahead = ahead;
    int ignored;
    return strata_onnx_add_value(im, copy, &ignored);
}

strata_status strata_onnx_output(strata_onnx_import *im, int i, int value) {
    if ((size_t)i >= im->node->n_output || !im->node->output[i][0]) return STRATA_OK;
    return name_value(im, im->node->output[i], value, false);
}

strata_status strata_onnx_output_ahead(strata_onnx_import *im, const StrataOnnx__Node *node, int value) {
    return name_value(im, node->output[0], value, true);
}

const strata_onnx_row *strata_onnx_row_of(const strata_onnx_import *im) {
    return strata_onnx_find_row(im->node->op_type);
}

strata_status strata_onnx_need(strata_onnx_import *im, int i, int *out) {
    *out = strata_onnx_input(im, i);
    return *out >= 0 ? STRATA_OK : strata_onnx_fail(im, STRATA_DATA, "its input %d is missing", i);
}

strata_status strata_onnx_give(strata_onnx_import *im, int value) {
    return strata_onnx_output(im, 0, value);
}

/* The tensor of a value that is not constant. */
static strata_tensor *tensor_of(const strata_onnx_import *im, int value) {
    return im->folding ? im->values[value].folded : im->values[value].tensor;
}

bool strata_onnx_is_constant(const strata_onnx_import *im, int value) {
    return value >= 0 && im->values[value].constant;
}

bool strata_onnx_is_finite(const strata_array *array) {
    const float *x = array->data;
    bool finite = true;
    for (int64_t i = 0; i < strata_shape_elements(array->shape); i++) finite = finite && isfinite(x[i]);
    return finite;
}

strata_shape strata_onnx_shape(const strata_onnx_import *im, int value) {
    const strata_onnx_value *v = &im->values[value];
    const strata_shape stored = v->constant ? v->array.shape : strata_tensor_shape(tensor_of(im, value));
    if (!v->behind || stored.rank < 3) return stored;
    strata_shape meant = stored;
    meant.dims[1] = stored.dims[stored.rank - 1];
    for (int d = 2; d < stored.rank; d++) meant.dims[d] = stored.dims[d - 1];
    return meant;
}

strata_dtype strata_onnx_dtype(const strata_onnx_import *im, int value) {
    const strata_onnx_value *v = &im->values[value];
    return v->constant ? v->array.dtype : strata_tensor_dtype(tensor_of(im, value));
}

/* ---- constants ---- */

strata_status strata_onnx_constant(strata_onnx_import *im, strata_array *array, bool trainable, int *out) {
    const strata_onnx_value value = {.constant = true, .array = *array, .trainable = trainable};
    *array = (strata_array){0};
    return strata_onnx_add_value(im, value, out);
}

strata_status strata_onnx_scalar(strata_onnx_import *im, strata_dtype dtype, double number, int *out) {
    strata_array array;
    STRATA_TRY(strata_array_create(dtype, STRATA_SHAPE(), &array, im->err));
    strata_element_set(dtype, array.data, 0, number);
    return strata_onnx_constant(im, &array, false, out);
}

strata_status strata_onnx_integers(strata_onnx_import *im, const int64_t *numbers, int n, int *out) {
    strata_array array;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(n), &array, im->err));
    if (n) memcpy(array.data, numbers, (size_t)n * sizeof *numbers);
    return strata_onnx_constant(im, &array, false, out);
}

strata_status strata_onnx_permute_array(const strata_array *array, const int *axes, strata_array *out, strata_error *err) {
    const int rank = array->shape.rank;
    strata_shape shape = {.rank = rank};
    int64_t strides[STRATA_MAX_RANK], place[STRATA_MAX_RANK] = {0}, stride = 1;
    const size_t bytes = strata_dtype_bytes(array->dtype);
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= array->shape.dims[d];
    }
    for (int d = 0; d < rank; d++) shape.dims[d] = array->shape.dims[axes[d]];
    STRATA_TRY(strata_array_create(array->dtype, shape, out, err));
    const int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int d = 0; d < rank; d++) from += place[d] * strides[axes[d]];
        memcpy((char *)out->data + (size_t)i * bytes, (const char *)array->data + (size_t)from * bytes, bytes);
        for (int d = rank - 1; d >= 0 && ++place[d] == shape.dims[d]; d--) place[d] = 0;
    }
    return STRATA_OK;
}

bool strata_onnx_is_zeros(const strata_onnx_import *im, int value) {
    const strata_onnx_value *v = &im->values[value];
    bool zeros = true;
    if (!v->constant) return v->zeros;
    for (int64_t i = 0; i < strata_shape_elements(v->array.shape) && zeros; i++)
        zeros = strata_element_get(v->array.dtype, v->array.data, i) == 0;
    return zeros;
}

strata_status strata_onnx_number(strata_onnx_import *im, int value, double *out) {
    if (!strata_onnx_is_constant(im, value) || strata_shape_elements(im->values[value].array.shape) != 1)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "an input that must be one constant number is not");
    *out = strata_element_get(im->values[value].array.dtype, im->values[value].array.data, 0);
    return STRATA_OK;
}

/* ---- attributes ---- */

const StrataOnnx__Attribute *strata_onnx_attribute(const strata_onnx_import *im, const char *name) {
    for (size_t i = 0; i < im->node->n_attribute; i++)
        if (im->node->attribute[i]->name && !strcmp(im->node->attribute[i]->name, name)) return im->node->attribute[i];
    return NULL;
}

int64_t strata_onnx_int(const strata_onnx_import *im, const char *name, int64_t otherwise) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, name);
    return a ? a->i : otherwise;
}

double strata_onnx_float(const strata_onnx_import *im, const char *name, double otherwise) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, name);
    return a ? (double)a->f : otherwise;
}

bool strata_onnx_text_is(const strata_onnx_import *im, const char *name, const char *text, bool otherwise) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, name);
    return a ? a->s.len == strlen(text) && !memcmp(a->s.data, text, a->s.len) : otherwise;
}

strata_status strata_onnx_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out, int *out_n) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, attribute);
    const int value = !a && input >= 0 ? strata_onnx_input(im, input) : -1;
    *out_n = 0;
    if (!a && value < 0) return STRATA_OK;
    if (!a && !strata_onnx_is_constant(im, value))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its input %d (%s) depends on the data; it must be constant", input,
                                attribute);
    const strata_array *array = a ? NULL : &im->values[value].array;
    const int64_t n = a ? (int64_t)a->n_ints : strata_shape_elements(array->shape);
    if (n > most) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "%s has %" PRId64 " numbers; at most %d", attribute, n, most);
    if (array && array->dtype != STRATA_DTYPE_I64)
        return strata_onnx_fail(im, STRATA_DATA, "its input %d has %s; it must have integers", input,
                                strata_dtype_name(array->dtype));
    for (int64_t i = 0; i < n; i++) out[i] = a ? a->ints[i] : ((const int64_t *)array->data)[i];
    *out_n = (int)n;
    return STRATA_OK;
}

strata_status strata_onnx_need_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out,
                                    int *out_n) {
    int value;
    if (!strata_onnx_attribute(im, attribute)) STRATA_TRY(strata_onnx_need(im, input, &value));
    return strata_onnx_ints(im, attribute, input, most, out, out_n);
}

/* ---- layers ---- */

strata_status strata_onnx_check_built(strata_onnx_import *im) {
    strata_error reason = {0};
    const strata_status status = strata_graph_check(im->folding ? im->folding : im->built, &reason);
    if (!status) return STRATA_OK;
    return strata_onnx_fail(im, status == STRATA_INVALID ? STRATA_DATA : status, "%s", reason.message);
}

void strata_onnx_layer_name(strata_onnx_import *im, const char *wanted, char *out, size_t bytes) {
    char base[48];
    const size_t n = strlen(wanted);
    snprintf(base, sizeof base, "%s", n >= sizeof base ? wanted + n - sizeof base + 1 : wanted);
    for (char *at = base; *at; at++)
        if (*at == '/' || *at == ':' || (unsigned char)*at < ' ' || (unsigned char)*at > 126) *at = '.';
    const char *start = base;
    while (*start == '.') start++;
    if (!*start) start = "value";
    snprintf(out, bytes, "%s", start);
    for (int k = 1; strata_model_find_layer(im->model, out) >= 0 || strata_model_find_value(im->model, out) >= 0; k++)
        snprintf(out, bytes, "%s_%d", start, k);
}

/* The name for a layer. If one of the node's weights is "layer1.conv.weight", it is "layer1.conv". */
static const char *name_of_node(strata_onnx_import *im, char *out, size_t bytes) {
    static const char *const endings[] = {".weight", ".kernel", "_weight", "/kernel", ".value", "/weight"};
    for (size_t i = 0; i < im->node->n_input; i++) {
        const char *input = im->node->input[i];
        for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
            const size_t n = strlen(input), k = strlen(endings[e]);
            if (n <= k || strcmp(input + n - k, endings[e]) || n - k >= bytes) continue;
            memcpy(out, input, n - k);
            out[n - k] = 0;
            return out;
        }
    }
    if (im->node->name && *im->node->name) return im->node->name;
    return im->node->n_output && im->node->output[0][0] ? im->node->output[0] : im->node->op_type;
}

static strata_status add_call(strata_onnx_import *im, const strata_layer_kind *kind, const char *wanted, const void *options,
                              const int *inputs, int n, strata_onnx_value *out) {
    char name[64];
    int places[STRATA_MAX_LAYER_INPUTS];
    strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
    strata_onnx_layer_name(im, wanted, name, sizeof name);
    if (im->model->list.n >= STRATA_ONNX_MAX_NODES)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "the model would have more than %d layers", STRATA_ONNX_MAX_NODES);
    for (int i = 0; i < n; i++) {
        tensors[i] = im->values[inputs[i]].tensor;
        places[i] = strata_model_find_value(im->model, im->values[inputs[i]].value->name);
    }
    strata_model_add(im->model, kind, name, options);
    out->value = strata_model_add_call(im->model, im->model->list.n - 1, name, places, n);
    if (im->model->building.error.status)
        return strata_onnx_fail(im, im->model->building.error.status, "%s", im->model->building.error.message);
    out->tensor = strata_layer_build(&im->context, &im->model->list.layers[im->model->list.n - 1], 1, name, tensors, n, NULL);
    strata_graph_set_scope(im->built, NULL);
    return strata_onnx_check_built(im);
}

static strata_status keep_weight(strata_onnx_import *im, const char *layer, const char *name, strata_array *array) {
    if (im->n_weights == im->weights_capacity) {
        const int capacity = im->weights_capacity ? 2 * im->weights_capacity : 16;
        strata_onnx_weight *weights = realloc(im->weights, (size_t)capacity * sizeof *weights);
        if (!weights) return strata_onnx_no_memory(im);
        im->weights = weights;
        im->weights_capacity = capacity;
    }
    const size_t bytes = strlen(layer) + strlen(name) + 2;
    char *full = malloc(bytes);
    if (!full) return strata_onnx_no_memory(im);
    snprintf(full, bytes, "%s/%s", layer, name);
    im->weights[im->n_weights++] = (strata_onnx_weight){full, *array};
    *array = (strata_array){0};
    return STRATA_OK;
}

strata_status strata_onnx_weight_of(strata_onnx_import *im, const char *name, const strata_array *array) {
    char folded[16];
    snprintf(folded, sizeof folded, "%d", im->n_folded_layers);
    const char *layer = im->folding ? folded : im->model->list.layers[im->model->list.n - 1].name;
    const size_t n_layer = strlen(layer);
    strata_array copy;
    const strata_parameter_set *set = im->folding ? &im->folded_parameters : &im->parameters;
    for (int i = set->n - 1; i >= 0; i--) {
        const strata_parameter_spec *p = &set->items[i];
        if (strncmp(p->name, layer, n_layer) || p->name[n_layer] != '/' || strcmp(p->name + n_layer + 1, name)) continue;
        if (!strata_shape_equal(p->shape, array->shape))
            return strata_onnx_fail(im, STRATA_DATA, "its weights are %s as Strata has them; its input needs %s",
                                    strata_shape_text(array->shape).text, strata_shape_text(p->shape).text);
    }
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, array->shape, &copy, im->err));
    const int64_t n = strata_shape_elements(array->shape);
    for (int64_t i = 0; i < n; i++) ((float *)copy.data)[i] = (float)strata_element_get(array->dtype, array->data, i);
    const strata_status status = keep_weight(im, layer, name, &copy);
    strata_array_finish(&copy);
    return status;
}

/* Makes a tensor of a constant: a layer `weights`, or, while folding, a constant of the graph. Integers become i32 in the
 * model. */
static strata_status make_tensor(strata_onnx_import *im, int value) {
    strata_onnx_value *v = &im->values[value];
    if (im->folding) {
        if (!v->folded) v->folded = strata_constant(im->folding, &v->array);
        return strata_onnx_check_built(im);
    }
    if (v->tensor) return STRATA_OK;
    strata_weights_options opts = {.shape = v->array.shape, .constant = !v->trainable};
    if (v->array.dtype == STRATA_DTYPE_I64) opts.dtype = "i32";
    if (v->array.dtype == STRATA_DTYPE_BOOL) opts.dtype = "bool";
    const int64_t n = strata_shape_elements(v->array.shape);
    for (int64_t i = 0; i < n && v->array.dtype == STRATA_DTYPE_I64; i++) {
        const int64_t number = ((const int64_t *)v->array.data)[i];
        if (number < -(1 << 24) || number > 1 << 24)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "the constant %" PRId64 " is beyond 2^24, so f32 does not have it",
                                    number);
    }
    if (!im->model->n_inputs) return strata_onnx_fail(im, STRATA_DATA, "the graph has no inputs");
    int first = -1;
    for (int i = 0; i < im->n_values && first < 0; i++)
        if (!im->values[i].constant && im->values[i].value && im->values[i].value->layer < 0) first = i;
    strata_onnx_value made = {0};
    char ignored[128];
    STRATA_TRY(add_call(im, &strata_layer_weights, v->name ? v->name : name_of_node(im, ignored, sizeof ignored), &opts, &first,
                        1, &made));
    v = &im->values[value];
    v->tensor = made.tensor;
    v->value = made.value;
    return strata_onnx_weight_of(im, "value", &v->array);
}

strata_status strata_onnx_op(strata_onnx_import *im, const strata_op_options *opts, const int *inputs, int n, bool behind,
                             int *out) {
    strata_onnx_value made = {.behind = behind};
    if (n > STRATA_MAX_LAYER_INPUTS)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %d inputs; at most %d", n, STRATA_MAX_LAYER_INPUTS);
    for (int i = 0; i < n; i++) STRATA_TRY(make_tensor(im, inputs[i]));
    if (im->folding) {
        strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
        for (int i = 0; i < n; i++) tensors[i] = im->values[inputs[i]].folded;
        made.folded = strata_op_apply(opts, tensors, n);
        STRATA_TRY(strata_onnx_check_built(im));
        return strata_onnx_add_value(im, made, out);
    }
    char name[128];
    STRATA_TRY(add_call(im, &strata_layer_op, name_of_node(im, name, sizeof name), opts, inputs, n, &made));
    return strata_onnx_add_value(im, made, out);
}

strata_status strata_onnx_simple(strata_onnx_import *im, const char *op, int a, int b, int *out) {
    int inputs[2];
    STRATA_TRY(strata_onnx_in_front(im, a, &inputs[0]));
    if (b >= 0) STRATA_TRY(strata_onnx_in_front(im, b, &inputs[1]));
    return strata_onnx_op(im, &(strata_op_options){.op = op}, inputs, b >= 0 ? 2 : 1, false, out);
}

strata_status strata_onnx_layer(strata_onnx_import *im, const strata_layer_kind *kind, const void *options, int input,
                                bool behind, int *out) {
    strata_onnx_value made = {.behind = behind};
    char name[128];
    STRATA_TRY(make_tensor(im, input));
    if (im->folding) { /* the layer is built without a model; its parameters are inputs of the graph */
        snprintf(name, sizeof name, "%d", ++im->n_folded_layers);
        const strata_layer layer = {.kind = kind, .options = (void *)options, .name = name};
        strata_layer_context context = {.declaring = true, .parameters = &im->folded_parameters};
        strata_tensor *x = im->values[input].folded;
        made.folded = strata_layer_build(&context, &layer, 1, name, &x, 1, NULL);
        strata_graph_set_scope(im->folding, NULL);
        STRATA_TRY(strata_onnx_check_built(im));
        return strata_onnx_add_value(im, made, out);
    }
    STRATA_TRY(add_call(im, kind, name_of_node(im, name, sizeof name), options, &input, 1, &made));
    return strata_onnx_add_value(im, made, out);
}

/* ---- orders of axes ---- */

/* If the value is the result of a transpose that `axes` undo, returns the index of the transposed value; else -1. */
static int undone(const strata_onnx_import *im, int value, const int *axes) {
    const strata_value *call = im->values[value].value;
    if (im->folding || !call || call->layer < 0) return -1;
    const strata_layer *layer = &im->model->list.layers[call->layer];
    const strata_op_options *opts = layer->options;
    if (layer->kind != &strata_layer_op || strcmp(opts->op, "transpose")) return -1;
    for (int d = 0; d < opts->numbers.n; d++)
        if ((int)opts->numbers.values[axes[d]] != d) return -1;
    for (int i = im->n_values - 1; i >= 0; i--)
        if (im->values[i].value == im->model->values[call->inputs[0]] && !im->values[i].behind) return i;
    return -1;
}

strata_status strata_onnx_permute(strata_onnx_import *im, int value, const int *axes, int *out) {
    const strata_onnx_value *v = &im->values[value];
    strata_op_options opts = {.op = "transpose"};
    if (v->constant) {
        strata_array array;
        const bool trainable = v->trainable;
        STRATA_TRY(strata_onnx_permute_array(&v->array, axes, &array, im->err));
        STRATA_TRY(strata_onnx_constant(im, &array, trainable, out));
        im->values[*out].name = NULL;
        return STRATA_OK;
    }
    *out = undone(im, value, axes);
    if (*out >= 0) return STRATA_OK;
    opts.numbers.n = strata_tensor_shape(tensor_of(im, value)).rank;
    for (int d = 0; d < opts.numbers.n; d++) opts.numbers.values[d] = axes[d];
    return strata_onnx_op(im, &opts, &value, 1, false, out);
}

static strata_status reorder(strata_onnx_import *im, int value, bool behind, int *out) {
    const strata_onnx_value *v = &im->values[value];
    int axes[STRATA_MAX_RANK] = {0};
    *out = value;
    if (v->behind == behind) return STRATA_OK;
    const int rank = v->constant ? v->array.shape.rank : strata_tensor_shape(tensor_of(im, value)).rank;
    if (rank < 3) { /* (N, C) is the same in both orders of axes */
        if (!v->constant) im->values[value].behind = behind;
        return STRATA_OK;
    }
    if (v->other) {
        *out = v->other;
        return STRATA_OK;
    }
    for (int d = 1; d < rank; d++) axes[d] = behind ? (d + 1 < rank ? d + 1 : 1) : (d == 1 ? rank - 1 : d - 1);
    const int n_before = im->n_values;
    STRATA_TRY(strata_onnx_permute(im, value, axes, out));
    if (*out < n_before) { /* permute has found a value that has an order of its own, which must not change */
        strata_onnx_value copy = im->values[*out];
        copy.name = NULL;
        STRATA_TRY(strata_onnx_add_value(im, copy, out));
    }
    im->values[*out].behind = behind;
    im->values[*out].other = value;
    im->values[value].other = *out;
    return STRATA_OK;
}

strata_status strata_onnx_in_front(strata_onnx_import *im, int value, int *out) {
    return reorder(im, value, false, out);
}

strata_status strata_onnx_behind(strata_onnx_import *im, int value, int *out) {
    return reorder(im, value, true, out);
}
