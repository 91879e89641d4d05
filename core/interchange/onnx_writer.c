/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the nodes, attributes and constants of the ONNX graph that is written, and the nodes that several layers need:
 * transposes and activations. All memory is freed at once when the file is written. */
#include <stdio.h>

#include "core/interchange/onnx_export.h"

struct strata_onnx_block {
    struct strata_onnx_block *next;
};

/* ---- memory ---- */

void *strata_onnx_take(strata_onnx_export *ex, size_t bytes) {
    struct strata_onnx_block *b = calloc(1, sizeof *b + sizeof(max_align_t) + bytes);
    if (!b) {
        ex->failed = true;
        return NULL;
    }
    b->next = ex->blocks;
    ex->blocks = b;
    return (char *)b + sizeof(max_align_t);
}

void strata_onnx_free_all(strata_onnx_export *ex) {
    while (ex->blocks) {
        struct strata_onnx_block *next = ex->blocks->next;
        free(ex->blocks);
        ex->blocks = next;
    }
}

char *strata_onnx_copy_text(strata_onnx_export *ex, const char *text) {
    char *copy = strata_onnx_take(ex, strlen(text) + 1);
    return copy ? strcpy(copy, text) : (char *)"";
}

const char *strata_onnx_new_name(strata_onnx_export *ex) {
    char name[STRATA_ONNX_NAME_BYTES];
    snprintf(name, sizeof name, "/%.120s.%d", ex->base, ++ex->n_names);
    return strata_onnx_copy_text(ex, name);
}

/* Makes room for one more pointer in a list. */
static void *grow(strata_onnx_export *ex, void *list, size_t n, size_t *capacity) {
    if (n < *capacity) return list;
    const size_t more = *capacity ? 2 * *capacity : 32;
    void **bigger = strata_onnx_take(ex, more * sizeof(*bigger));
    if (!bigger) return NULL;
    if (n) memcpy(bigger, list, n * sizeof(*bigger));
    *capacity = more;
    return bigger;
}

/* ---- nodes ---- */

const char *strata_onnx_add_node(strata_onnx_export *ex, const char *op, const char *const *inputs, int n, const char *output) {
    if (!output) output = strata_onnx_new_name(ex);
    while (n && !inputs[n - 1]) n--;
    StrataOnnx__Node *node = strata_onnx_take(ex, sizeof *node);
    char **in = strata_onnx_take(ex, (size_t)(n + 1) * sizeof(*in)), **out = strata_onnx_take(ex, sizeof(*out));
    ex->out.node = grow(ex, ex->out.node, ex->out.n_node, &ex->node_capacity);
    if (ex->failed) return output;
    strata_onnx__node__init(node);
    for (int i = 0; i < n; i++) in[i] = (char *)inputs[i];
    out[0] = (char *)output;
    node->input = in, node->n_input = (size_t)n;
    node->output = out, node->n_output = 1;
    node->op_type = (char *)op;
    node->name = (char *)output;
    ex->out.node[ex->out.n_node++] = node;
    return output;
}

const char *strata_onnx_one(strata_onnx_export *ex, const char *op, const char *a) {
    return strata_onnx_add_node(ex, op, &a, 1, NULL);
}

const char *strata_onnx_two(strata_onnx_export *ex, const char *op, const char *a, const char *b) {
    return strata_onnx_add_node(ex, op, (const char *[]){a, b}, 2, NULL);
}

StrataOnnx__Node *strata_onnx_last_node(strata_onnx_export *ex) {
    return ex->out.n_node && !ex->failed ? ex->out.node[ex->out.n_node - 1] : NULL;
}

StrataOnnx__Attribute *strata_onnx_add_attribute(strata_onnx_export *ex, const char *name, int type) {
    enum { MOST = 12 };
    StrataOnnx__Node *node = strata_onnx_last_node(ex);
    StrataOnnx__Attribute *a = strata_onnx_take(ex, sizeof *a);
    if (node && !node->attribute) node->attribute = strata_onnx_take(ex, MOST * sizeof(*node->attribute));
    if (ex->failed || !node || node->n_attribute == MOST) return NULL;
    strata_onnx__attribute__init(a);
    a->name = (char *)name;
    a->has_type = 1, a->type = type;
    node->attribute[node->n_attribute++] = a;
    return a;
}

void strata_onnx_set_int(strata_onnx_export *ex, const char *name, int64_t value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, name, STRATA_ONNX_ATTRIBUTE_INT);
    if (a) a->has_i = 1, a->i = value;
}

void strata_onnx_set_float(strata_onnx_export *ex, const char *name, double value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, name, STRATA_ONNX_ATTRIBUTE_FLOAT);
    if (a) a->has_f = 1, a->f = (float)value;
}

void strata_onnx_set_text(strata_onnx_export *ex, const char *name, const char *value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, name, STRATA_ONNX_ATTRIBUTE_STRING);
    if (a) a->has_s = 1, a->s.data = (uint8_t *)strata_onnx_copy_text(ex, value), a->s.len = strlen(value);
}

void strata_onnx_set_ints(strata_onnx_export *ex, const char *name, const int64_t *values, int n) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, name, STRATA_ONNX_ATTRIBUTE_INTS);
    if (!a) return;
    a->ints = strata_onnx_take(ex, (size_t)n * sizeof *values + 1);
    if (a->ints && n) memcpy(a->ints, values, (size_t)n * sizeof *values);
    a->n_ints = a->ints ? (size_t)n : 0;
}

void strata_onnx_set_window(strata_onnx_export *ex, const int64_t *size, const int64_t *stride, const int64_t *dilation,
                            const int64_t *pads, int n) {
    int64_t steps[2], spread[2];
    for (int d = 0; d < n; d++) steps[d] = stride[d] ? stride[d] : 1, spread[d] = dilation && dilation[d] ? dilation[d] : 1;
    strata_onnx_set_ints(ex, "kernel_shape", size, n);
    strata_onnx_set_ints(ex, "strides", steps, n);
    if (dilation) strata_onnx_set_ints(ex, "dilations", spread, n);
    strata_onnx_set_ints(ex, "pads", pads, 2 * n);
}

/* ---- constants ---- */

void *strata_onnx_add_initializer(strata_onnx_export *ex, const char *name, int type, strata_shape shape, const void *data) {
    const size_t bytes = (size_t)strata_shape_elements(shape) * (type == STRATA_ONNX_TYPE_INT64  ? 8
                                                                 : type == STRATA_ONNX_TYPE_BOOL ? 1
                                                                                                 : 4);
    StrataOnnx__Tensor *t = strata_onnx_take(ex, sizeof *t);
    int64_t *dims = strata_onnx_take(ex, sizeof shape.dims);
    void *memory = data ? (void *)data : strata_onnx_take(ex, bytes + 1);
    ex->out.initializer = grow(ex, ex->out.initializer, ex->out.n_initializer, &ex->initializer_capacity);
    if (ex->failed) return NULL;
    strata_onnx__tensor__init(t);
    memcpy(dims, shape.dims, sizeof shape.dims);
    t->dims = dims, t->n_dims = (size_t)shape.rank;
    t->has_data_type = 1, t->data_type = type;
    t->name = (char *)name;
    t->has_raw_data = 1, t->raw_data.data = memory, t->raw_data.len = bytes;
    ex->out.initializer[ex->out.n_initializer++] = t;
    return memory;
}

const char *strata_onnx_put_ints(strata_onnx_export *ex, const int64_t *values, int n) {
    const char *name = strata_onnx_new_name(ex);
    int64_t *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_INT64, STRATA_SHAPE(n), NULL);
    if (memory && n) memcpy(memory, values, (size_t)n * sizeof *values);
    return name;
}

const char *strata_onnx_put_number(strata_onnx_export *ex, double value) {
    const char *name = strata_onnx_new_name(ex);
    float *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(), NULL);
    if (memory) *memory = (float)value;
    return name;
}

const float *strata_onnx_elements_of(const strata_onnx_export *ex, const char *parameter, strata_shape *out_shape) {
    const int i = strata_parameter_find(ex->model, ex->call->name, parameter);
    if (i < 0) return NULL;
    *out_shape = ex->weights.arrays[i].shape;
    return ex->weights.arrays[i].data;
}

const char *strata_onnx_put_weight(strata_onnx_export *ex, const char *parameter) {
    return strata_onnx_put_weight_as(ex, parameter, NULL, NULL);
}

const char *strata_onnx_put_weight_as(strata_onnx_export *ex, const char *parameter, const int *axes,
                                      const strata_shape *shape) {
    char text[STRATA_ONNX_NAME_BYTES];
    strata_shape own;
    strata_array permuted = {0};
    const float *elements = strata_onnx_elements_of(ex, parameter, &own);
    if (!elements) return NULL;
    snprintf(text, sizeof text, "%.110s/%.40s", ex->call->name, parameter);
    const char *name = strata_onnx_copy_text(ex, text);
    for (size_t i = 0; i < ex->out.n_initializer; i++) /* it exists if the layer was called before */
        if (!strcmp(ex->out.initializer[i]->name, name)) return name;
    if (!axes) {
        strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, shape ? *shape : own, elements);
        return name;
    }
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, own, (void *)elements);
    if (strata_permuted(&array, axes, &permuted, NULL)) {
        ex->failed = true;
        return name;
    }
    void *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, shape ? *shape : permuted.shape, NULL);
    if (memory) memcpy(memory, permuted.data, strata_array_bytes(&permuted));
    strata_array_finish(&permuted);
    return name;
}

const char *strata_onnx_x(const strata_onnx_export *ex, int i) {
    return ex->names[ex->call->inputs[i]];
}

strata_shape strata_onnx_shape_of(const strata_onnx_export *ex, int i) {
    return ex->structure.calls[ex->call->inputs[i]].shape;
}

void strata_onnx_refuse(strata_onnx_export *ex, const char *why) {
    strata_text_add(&ex->unsupported, "%s%s (%s%s)", ex->unsupported.n_bytes ? ", " : "", ex->call->kind, ex->call->name, why);
}

/* ---- functions that several layers use ---- */

const char *strata_onnx_transposed(strata_onnx_export *ex, const char *x, const int64_t *perm, int rank) {
    const char *y = strata_onnx_one(ex, "Transpose", x);
    strata_onnx_set_ints(ex, "perm", perm, rank);
    return y;
}

const char *strata_onnx_moved(strata_onnx_export *ex, const char *x, int rank, bool to_front) {
    int64_t perm[STRATA_MAX_RANK] = {0};
    if (rank < 3) return x;
    for (int d = 1; d < rank; d++) perm[d] = to_front ? (d == 1 ? rank - 1 : d - 1) : (d == rank - 1 ? 1 : d + 1);
    for (size_t i = ex->out.n_node; i-- > 0 && !ex->failed;) {
        const StrataOnnx__Node *node = ex->out.node[i];
        if (strcmp(node->output[0], x)) continue;
        if (strcmp(node->op_type, "Transpose") || node->attribute[0]->n_ints != (size_t)rank) break;
        bool opposite = true;
        for (int d = 0; d < rank; d++) opposite = opposite && perm[node->attribute[0]->ints[d]] == d;
        if (opposite) return node->input[0];
        break;
    }
    return strata_onnx_transposed(ex, x, perm, rank);
}

const char *strata_onnx_activate_behind(strata_onnx_export *ex, const char *function, const char *x, int rank) {
    if (function && !strcmp(function, "softmax"))
        return strata_onnx_activate(ex, function, strata_onnx_moved(ex, x, rank, false));
    return strata_onnx_moved(ex, strata_onnx_activate(ex, function, x), rank, false);
}

const char *strata_onnx_reshaped(strata_onnx_export *ex, const char *x, const int64_t *to, int n) {
    return strata_onnx_two(ex, "Reshape", x, strata_onnx_put_ints(ex, to, n));
}

const char *strata_onnx_converted(strata_onnx_export *ex, const char *x, int type) {
    const char *y = strata_onnx_one(ex, "Cast", x);
    strata_onnx_set_int(ex, "to", type);
    return y;
}
