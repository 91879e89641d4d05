/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of an ONNX graph during its import: constants, calls of layers, their shapes, and the order of their axes.
 * The files that translate nodes (onnx_nodes.c and others) use these functions. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/interchange/onnx.h"

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

/* Stores the first failure, with a message that begins with the node. */
static strata_status fail(strata_onnx_import *im, strata_status status, const char *format, va_list arguments) {
    const StrataOnnx__Node *node = im->node;
    if (im->status) return im->status;
    im->status = strata_fail_v(im->err, status, format, arguments);
    if (!node) return im->status;
    const char *name = node->name && *node->name ? node->name : node->n_output ? node->output[0] : "";
    return strata_fail_in(im->err, status, "%s (node \"%.80s\")", node->op_type, name);
}

strata_status strata_onnx_fail(strata_onnx_import *im, strata_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const strata_status first = fail(im, status, format, arguments);
    va_end(arguments);
    return first;
}

int strata_onnx_reject(strata_onnx_import *im, strata_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)!fail(im, status, format, arguments);
    va_end(arguments);
    return 0;
}

int strata_onnx_take_error(strata_onnx_import *im, strata_status status, const strata_error *reason) {
    if (!im->status) im->status = strata_fail(im->err, status, "%s", reason->message);
    return 0;
}

strata_status strata_onnx_no_memory(strata_onnx_import *im) {
    return strata_onnx_fail(im, STRATA_OUT_OF_MEMORY, "no host memory to import it");
}

/* ---- values ---- */

static uint32_t hash_of(const char *name) {
    uint32_t hash = 2166136261u;
    while (*name) hash = (hash ^ (unsigned char)*name++) * 16777619u;
    return hash;
}

int strata_onnx_add_value(strata_onnx_import *im, strata_onnx_value value) {
    if (im->status || !strata_grow(&im->values, im->n_values, sizeof value)) {
        (void)!strata_onnx_no_memory(im); /* unless something else has failed before */
        strata_array_finish(&value.array);
        return 0;
    }
    im->values[im->n_values] = value;
    strata_onnx_set_name(im, im->n_values, value.name);
    return im->n_values++;
}

void strata_onnx_set_name(strata_onnx_import *im, int value, const char *name) {
    im->values[value].name = name;
    im->values[value].hash = name ? hash_of(name) : 0;
}

int strata_onnx_find(const strata_onnx_import *im, const char *name) {
    const uint32_t hash = hash_of(name);
    for (int i = im->n_values - 1; i > 0; i--) {
        const strata_onnx_value *v = &im->values[i];
        if (v->name && v->hash == hash && !strcmp(v->name, name)) return i;
    }
    return 0;
}

int strata_onnx_input(const strata_onnx_import *im, int i) {
    if ((size_t)i >= im->node->n_input || !im->node->input[i][0]) return 0;
    return strata_onnx_find(im, im->node->input[i]);
}

int strata_onnx_first_input(const strata_onnx_import *im) {
    for (int i = 1; i < im->n_values; i++)
        if (!im->values[i].constant && im->values[i].call && !im->calls[im->values[i].call - 1].kind) return i;
    return 0;
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

static void name_value(strata_onnx_import *im, const char *name, int value, bool ahead) {
    strata_onnx_value copy = im->values[value];
    if (im->status) return;
    if (strata_onnx_find(im, name)) {
        strata_onnx_reject(im, STRATA_DATA, "it gives \"%.80s\", which another node or input gives already", name);
        return;
    }
    copy.name = name;
    copy.ahead = ahead;
    if (!copy.constant) {
        strata_onnx_add_value(im, copy);
        return;
    }
    /* A value may have several names, each with a copy of the array that it frees. */
    const int made = strata_onnx_constant_as(im, value, copy.array.shape);
    im->values[made].behind = copy.behind;
    im->values[made].other = copy.other;
    strata_onnx_set_name(im, made, name);
}

void strata_onnx_output(strata_onnx_import *im, int i, int value) {
    if (value && (size_t)i < im->node->n_output && im->node->output[i][0]) name_value(im, im->node->output[i], value, false);
}

void strata_onnx_output_ahead(strata_onnx_import *im, const StrataOnnx__Node *node, int value) {
    name_value(im, node->output[0], value, true);
}

int strata_onnx_need(strata_onnx_import *im, int i) {
    const int value = strata_onnx_input(im, i);
    return value ? value : strata_onnx_reject(im, STRATA_DATA, "its input %d is missing", i);
}

/* The tensor of a value that is not constant. */
static strata_tensor *tensor_of(const strata_onnx_import *im, int value) {
    return im->folding ? im->values[value].folded : im->values[value].tensor;
}

bool strata_onnx_is_constant(const strata_onnx_import *im, int value) {
    return value && im->values[value].constant;
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

int strata_onnx_constant(strata_onnx_import *im, strata_array *array, bool trainable) {
    const strata_onnx_value value = {.constant = true, .array = *array, .trainable = trainable};
    *array = (strata_array){0};
    return strata_onnx_add_value(im, value);
}

int strata_onnx_new_constant(strata_onnx_import *im, strata_dtype dtype, strata_shape shape, void *out_data) {
    strata_array array;
    strata_error reason = {0};
    const strata_status status = im->status ? im->status : strata_array_create(dtype, shape, &array, &reason);
    if (status) return strata_onnx_take_error(im, status, &reason);
    if (strata_array_bytes(&array)) memset(array.data, 0, strata_array_bytes(&array));
    memcpy(out_data, &array.data, sizeof array.data);
    return strata_onnx_constant(im, &array, false);
}

int strata_onnx_constant_as(strata_onnx_import *im, int value, strata_shape shape) {
    void *data;
    const int copy = strata_onnx_new_constant(im, im->values[value].array.dtype, shape, &data);
    const strata_array *from = &im->values[value].array;
    if (copy && strata_array_bytes(from)) memcpy(data, from->data, strata_array_bytes(from));
    im->values[copy].trainable = im->values[value].trainable;
    return copy;
}

int strata_onnx_scalar(strata_onnx_import *im, strata_dtype dtype, double number) {
    void *data;
    const int made = strata_onnx_new_constant(im, dtype, STRATA_SHAPE(), &data);
    if (made) strata_element_set(dtype, data, 0, number);
    return made;
}

int strata_onnx_integers(strata_onnx_import *im, const int64_t *numbers, int n) {
    int64_t *data;
    const int made = strata_onnx_new_constant(im, STRATA_DTYPE_I64, STRATA_SHAPE(n), &data);
    if (made && n) memcpy(data, numbers, (size_t)n * sizeof *numbers);
    return made;
}

bool strata_onnx_is_zeros(const strata_onnx_import *im, int value) {
    const strata_onnx_value *v = &im->values[value];
    bool zeros = true;
    if (!v->constant) return v->zeros;
    for (int64_t i = 0; i < strata_shape_elements(v->array.shape) && zeros; i++)
        zeros = strata_element_get(v->array.dtype, v->array.data, i) == 0;
    return zeros;
}

double strata_onnx_number(strata_onnx_import *im, int i, double otherwise) {
    const int value = strata_onnx_input(im, i);
    if (!value) return otherwise;
    if (strata_onnx_is_constant(im, value) && strata_shape_elements(im->values[value].array.shape) == 1)
        return strata_element_get(im->values[value].array.dtype, im->values[value].array.data, 0);
    return strata_onnx_reject(im, STRATA_UNSUPPORTED, "an input that must be one constant number is not");
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

int strata_onnx_axis(strata_onnx_import *im, int64_t otherwise, int rank) {
    const int64_t axis = strata_onnx_int(im, "axis", otherwise);
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    return strata_onnx_reject(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axis, rank);
}

int strata_onnx_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, attribute);
    const int value = !a && input >= 0 ? strata_onnx_input(im, input) : 0;
    if (!a && !value) return 0;
    if (!a && !strata_onnx_is_constant(im, value))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its input %d (%s) depends on the data; it must be constant", input,
                                  attribute);
    const strata_array *array = a ? NULL : &im->values[value].array;
    const int64_t n = a ? (int64_t)a->n_ints : strata_shape_elements(array->shape);
    if (n > most)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "%s has %" PRId64 " numbers; at most %d", attribute, n, most);
    if (array && array->dtype != STRATA_DTYPE_I64)
        return strata_onnx_reject(im, STRATA_DATA, "its input %d has %s; it must have integers", input,
                                  strata_dtype_name(array->dtype));
    for (int64_t i = 0; i < n; i++) out[i] = a ? a->ints[i] : ((const int64_t *)array->data)[i];
    return (int)n;
}

int strata_onnx_need_ints(strata_onnx_import *im, const char *attribute, int input, int most, int64_t *out) {
    if (!strata_onnx_attribute(im, attribute)) strata_onnx_need(im, input);
    return im->status ? 0 : strata_onnx_ints(im, attribute, input, most, out);
}

int strata_onnx_axes(strata_onnx_import *im, int input, int rank, int64_t *axes) {
    const int n = strata_onnx_ints(im, "axes", input, STRATA_MAX_RANK, axes);
    for (int i = 0; i < n; i++) {
        if (axes[i] < -rank || axes[i] >= rank)
            return strata_onnx_reject(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axes[i], rank);
        if (axes[i] < 0) axes[i] += rank;
    }
    return n;
}

/* ---- layers ---- */

strata_status strata_onnx_check_built(strata_onnx_import *im) {
    strata_error reason = {0};
    const strata_status status = strata_graph_check(im->folding ? im->folding : im->built, &reason);
    if (!status) return STRATA_OK;
    return strata_onnx_fail(im, status == STRATA_INVALID ? STRATA_DATA : status, "%s", reason.message);
}

static bool is_call(const strata_onnx_import *im, const char *name) {
    for (int i = im->n_calls - 1; i >= 0; i--)
        if (!strcmp(im->calls[i].name, name)) return true;
    return false;
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
    for (int k = 1; is_call(im, out); k++) snprintf(out, bytes, "%s_%d", start, k);
}

int strata_onnx_add_call(strata_onnx_import *im, const char *kind, const char *name, const void *options, size_t bytes) {
    strata_onnx_call *call = strata_grow(&im->calls, im->n_calls, sizeof *call);
    void *copy = call ? malloc(bytes + 1) : NULL;
    if (!copy) return (void)!strata_onnx_no_memory(im), -1;
    if (bytes) memcpy(copy, options, bytes);
    *call = (strata_onnx_call){.kind = kind, .options = copy};
    snprintf(call->name, sizeof call->name, "%s", name);
    return im->n_calls++;
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

/* Adds a layer and its call, and builds it in the graph. */
static strata_status add_call(strata_onnx_import *im, const char *kind, const char *wanted, const void *options, size_t bytes,
                              const int *inputs, int n, strata_onnx_value *out) {
    char name[64];
    strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
    strata_onnx_layer_name(im, wanted, name, sizeof name);
    if (im->n_calls >= STRATA_ONNX_MAX_NODES)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "the model would have more than %d layers", STRATA_ONNX_MAX_NODES);
    const int index = strata_onnx_add_call(im, kind, name, options, bytes);
    if (index < 0) return im->status;
    im->calls[index].n_inputs = n;
    for (int i = 0; i < n; i++) {
        tensors[i] = im->values[inputs[i]].tensor;
        im->calls[index].inputs[i] = im->values[inputs[i]].call - 1;
    }
    out->call = index + 1;
    out->tensor = strata_layer_apply(kind, name, options, tensors, n);
    return strata_onnx_check_built(im);
}

/* Keeps the elements of the parameter "layer/name". Takes the array if there is memory. */
static void keep_weight(strata_onnx_import *im, const char *layer, const char *name, strata_array *array) {
    const size_t bytes = strlen(layer) + strlen(name) + 2;
    strata_onnx_weight *weight = strata_grow(&im->weights, im->n_weights, sizeof *weight);
    char *full = weight ? malloc(bytes) : NULL;
    if (!full) {
        (void)!strata_onnx_no_memory(im);
        return;
    }
    snprintf(full, bytes, "%s/%s", layer, name);
    *weight = (strata_onnx_weight){full, *array};
    *array = (strata_array){0};
    im->n_weights++;
}

/* The input of the graph with this name, which is a parameter of a layer; NULL: there is none. */
static const strata_tensor *find_parameter(const strata_graph *graph, const char *layer, const char *parameter) {
    for (int i = strata_graph_n_nodes(graph) - 1; i >= 0; i--) {
        const strata_tensor *t = strata_graph_tensor(graph, i);
        const char *name = strata_tensor_node(t).name, *own = name ? strata_name_in(name, layer) : NULL;
        if (own && !strcmp(own, parameter)) return t;
    }
    return NULL;
}

void strata_onnx_weight_of(strata_onnx_import *im, const char *name, int value, const int *axes) {
    char folded[16];
    strata_error reason = {0};
    if (im->status) return;
    snprintf(folded, sizeof folded, "%d", im->n_folded_layers);
    const char *layer = im->folding ? folded : im->calls[im->n_calls - 1].name;
    const strata_tensor *p = find_parameter(im->folding ? im->folding : im->built, layer, name);
    const strata_shape wanted = p ? strata_tensor_shape(p) : (strata_shape){0};
    STRATA_FINISHED_BY(strata_array_finish) strata_array ordered = {0}, floats = {0};
    strata_status status = strata_permuted(&im->values[value].array, axes, &ordered, &reason);
    if (!status) status = strata_onnx_convert(&ordered, STRATA_DTYPE_F32, &floats, &reason);
    if (!status && p && !strata_shape_equal(wanted, ordered.shape))
        status = strata_onnx_fail(im, STRATA_DATA, "its weights are %s as Strata has them; its input needs %s",
                                  strata_shape_text(ordered.shape).text, strata_shape_text(wanted).text);
    if (status)
        strata_onnx_take_error(im, status, &reason);
    else
        keep_weight(im, layer, name, &floats);
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
    if (!strata_onnx_first_input(im)) return strata_onnx_fail(im, STRATA_DATA, "the graph has no inputs");
    const int first = strata_onnx_first_input(im);
    strata_onnx_value made = {0};
    char ignored[128];
    STRATA_TRY(add_call(im, "weights", v->name ? v->name : name_of_node(im, ignored, sizeof ignored), &opts, sizeof opts,
                        &first, 1, &made));
    v->tensor = made.tensor;
    v->call = made.call;
    strata_onnx_weight_of(im, "value", value, NULL);
    return im->status;
}

int strata_onnx_op(strata_onnx_import *im, const strata_op_options *opts, const int *inputs, int n, bool behind) {
    strata_onnx_value made = {.behind = behind};
    char name[128];
    if (n > STRATA_MAX_LAYER_INPUTS)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "it has %d inputs; at most %d", n, STRATA_MAX_LAYER_INPUTS);
    for (int i = 0; i < n && !im->status; i++) im->status = make_tensor(im, inputs[i]);
    if (im->status) return 0;
    if (im->folding) {
        strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
        for (int i = 0; i < n; i++) tensors[i] = im->values[inputs[i]].folded;
        made.folded = strata_layer_apply("op", NULL, opts, tensors, n);
        im->status = strata_onnx_check_built(im);
    } else {
        im->status = add_call(im, "op", name_of_node(im, name, sizeof name), opts, sizeof *opts, inputs, n, &made);
    }
    return strata_onnx_add_value(im, made);
}

int strata_onnx_layer(strata_onnx_import *im, const char *kind, const void *options, size_t bytes, int input, bool behind) {
    strata_onnx_value made = {.behind = behind};
    char name[128];
    if (!im->status) im->status = make_tensor(im, input);
    if (im->status) return 0;
    if (im->folding) { /* its parameters are inputs of the graph */
        snprintf(name, sizeof name, "%d", ++im->n_folded_layers);
        made.folded = strata_layer_apply(kind, name, options, &im->values[input].folded, 1);
        im->status = strata_onnx_check_built(im);
    } else {
        im->status = add_call(im, kind, name_of_node(im, name, sizeof name), options, bytes, &input, 1, &made);
    }
    return strata_onnx_add_value(im, made);
}

/* ---- orders of axes ---- */

/* If the value is the result of a transpose that `axes` undo, returns the transposed value; else 0. */
static int undone(const strata_onnx_import *im, int value, const int *axes) {
    const strata_onnx_call *call = im->values[value].call ? &im->calls[im->values[value].call - 1] : NULL;
    if (im->folding || !call || !call->kind || strcmp(call->kind, "op")) return 0;
    const strata_op_options *opts = call->options;
    if (strcmp(opts->op, "transpose")) return 0;
    for (int d = 0; d < opts->numbers.n; d++)
        if ((int)opts->numbers.values[axes[d]] != d) return 0;
    for (int i = im->n_values - 1; i > 0; i--)
        if (im->values[i].call == call->inputs[0] + 1 && !im->values[i].behind) return i;
    return 0;
}

int strata_onnx_permute(strata_onnx_import *im, int value, const int *axes) {
    const strata_onnx_value *v = &im->values[value];
    strata_op_options opts = {.op = "transpose"};
    if (im->status) return 0;
    if (v->constant) {
        strata_array array;
        strata_error reason = {0};
        const strata_status status = strata_permuted(&v->array, axes, &array, &reason);
        return status ? strata_onnx_take_error(im, status, &reason) : strata_onnx_constant(im, &array, v->trainable);
    }
    const int before = undone(im, value, axes);
    if (before) return before;
    opts.numbers.n = strata_tensor_shape(tensor_of(im, value)).rank;
    for (int d = 0; d < opts.numbers.n; d++) opts.numbers.values[d] = axes[d];
    return strata_onnx_op(im, &opts, &value, 1, false);
}

static int reorder(strata_onnx_import *im, int value, bool behind) {
    const strata_onnx_value *v = &im->values[value];
    int axes[STRATA_MAX_RANK] = {0};
    if (im->status || v->behind == behind) return im->status ? 0 : value;
    const int rank = v->constant ? v->array.shape.rank : strata_tensor_shape(tensor_of(im, value)).rank;
    if (rank < 3) { /* (N, C) is the same in both orders of axes */
        if (!v->constant) im->values[value].behind = behind;
        return value;
    }
    if (v->other) return v->other;
    for (int d = 1; d < rank; d++) axes[d] = behind ? (d + 1 < rank ? d + 1 : 1) : (d == 1 ? rank - 1 : d - 1);
    const int n_before = im->n_values;
    int made = strata_onnx_permute(im, value, axes);
    if (made < n_before) { /* permute has found a value that has an order of its own, which must not change */
        strata_onnx_value copy = im->values[made];
        copy.name = NULL;
        made = strata_onnx_add_value(im, copy);
    }
    if (im->status) return 0;
    im->values[made].behind = behind;
    im->values[made].other = value;
    im->values[value].other = made;
    return made;
}

int strata_onnx_in_front(strata_onnx_import *im, int value) {
    return reorder(im, value, false);
}

int strata_onnx_behind(strata_onnx_import *im, int value) {
    return reorder(im, value, true);
}
