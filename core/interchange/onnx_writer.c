/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the nodes, attributes and constants of the ONNX graph that is written, and the nodes that several layers need:
 * transposes and activations. All memory is freed at once when the file is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

const char *strata_onnx_new_name(strata_onnx_export *ex, const char *base) {
    char name[STRATA_ONNX_NAME_BYTES];
    snprintf(name, sizeof name, "/%.120s.%d", base, ++ex->n_names);
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

StrataOnnx__Node *strata_onnx_add_node(strata_onnx_export *ex, const char *op, const char *const *inputs, int n,
                                       const char *output) {
    StrataOnnx__Node *node = strata_onnx_take(ex, sizeof *node);
    char **in = strata_onnx_take(ex, (size_t)(n + 1) * sizeof(*in)), **out = strata_onnx_take(ex, sizeof(*out));
    ex->out.node = grow(ex, ex->out.node, ex->out.n_node, &ex->node_capacity);
    if (ex->failed) return NULL;
    strata_onnx__node__init(node);
    for (int i = 0; i < n; i++) in[i] = (char *)inputs[i];
    out[0] = (char *)output;
    node->input = in, node->n_input = (size_t)n;
    node->output = out, node->n_output = 1;
    node->op_type = (char *)op;
    node->name = (char *)output;
    ex->out.node[ex->out.n_node++] = node;
    return node;
}

StrataOnnx__Attribute *strata_onnx_add_attribute(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, int type) {
    enum { MOST = 12 };
    StrataOnnx__Attribute *a = strata_onnx_take(ex, sizeof *a);
    if (node && !node->attribute) node->attribute = strata_onnx_take(ex, MOST * sizeof(*node->attribute));
    if (ex->failed || !node || node->n_attribute == MOST) return NULL;
    strata_onnx__attribute__init(a);
    a->name = (char *)name;
    a->has_type = 1, a->type = type;
    node->attribute[node->n_attribute++] = a;
    return a;
}

void strata_onnx_set_int(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, int64_t value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, node, name, STRATA_ONNX_ATTRIBUTE_INT);
    if (a) a->has_i = 1, a->i = value;
}

void strata_onnx_set_float(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, double value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, node, name, STRATA_ONNX_ATTRIBUTE_FLOAT);
    if (a) a->has_f = 1, a->f = (float)value;
}

void strata_onnx_set_text(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, const char *value) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, node, name, STRATA_ONNX_ATTRIBUTE_STRING);
    if (a) a->has_s = 1, a->s.data = (uint8_t *)strata_onnx_copy_text(ex, value), a->s.len = strlen(value);
}

void strata_onnx_set_ints(strata_onnx_export *ex, StrataOnnx__Node *node, const char *name, const int64_t *values, int n) {
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, node, name, STRATA_ONNX_ATTRIBUTE_INTS);
    if (!a) return;
    a->ints = strata_onnx_take(ex, (size_t)n * sizeof *values + 1);
    if (a->ints && n) memcpy(a->ints, values, (size_t)n * sizeof *values);
    a->n_ints = a->ints ? (size_t)n : 0;
}

const char *strata_onnx_emit(strata_onnx_export *ex, const char *base, const char *op, const char *a, const char *b,
                             const char *c) {
    const char *inputs[] = {a, b, c}, *name = strata_onnx_new_name(ex, base);
    strata_onnx_add_node(ex, op, inputs, c ? 3 : b ? 2 : a ? 1 : 0, name);
    return name;
}

StrataOnnx__Node *strata_onnx_last_node(strata_onnx_export *ex) {
    return ex->out.n_node && !ex->failed ? ex->out.node[ex->out.n_node - 1] : NULL;
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

const char *strata_onnx_put_ints(strata_onnx_export *ex, const char *base, const int64_t *values, int n) {
    const char *name = strata_onnx_new_name(ex, base);
    int64_t *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_INT64, STRATA_SHAPE(n), NULL);
    if (memory && n) memcpy(memory, values, (size_t)n * sizeof *values);
    return name;
}

const char *strata_onnx_put_number(strata_onnx_export *ex, const char *base, double value) {
    const char *name = strata_onnx_new_name(ex, base);
    float *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(), NULL);
    if (memory) *memory = (float)value;
    return name;
}

const float *strata_onnx_elements_of(const strata_onnx_export *ex, const strata_layer *layer, const char *parameter,
                                     strata_shape *out_shape) {
    const size_t n = strlen(layer->name);
    for (int i = 0; i < ex->model->parameters.n; i++) {
        const strata_parameter_spec *p = &ex->model->parameters.items[i];
        if (strncmp(p->name, layer->name, n) || p->name[n] != '/' || strcmp(p->name + n + 1, parameter)) continue;
        *out_shape = p->shape;
        return ex->values + strata_model_place(ex->model, p);
    }
    return NULL;
}

const char *strata_onnx_put_weight(strata_onnx_export *ex, const strata_layer *layer, const char *parameter, const int *axes,
                                   const strata_shape *shape) {
    char text[STRATA_ONNX_NAME_BYTES];
    strata_shape own;
    strata_array permuted = {0};
    const float *elements = strata_onnx_elements_of(ex, layer, parameter, &own);
    if (!elements) return NULL;
    snprintf(text, sizeof text, "%.110s/%.40s", layer->name, parameter);
    const char *name = strata_onnx_copy_text(ex, text);
    for (size_t i = 0; i < ex->out.n_initializer; i++) /* it exists if the layer was called before */
        if (!strcmp(ex->out.initializer[i]->name, name)) return name;
    if (!axes) {
        strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, shape ? *shape : own, elements);
        return name;
    }
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, own, (void *)elements);
    if (strata_onnx_permute_array(&array, axes, &permuted, NULL)) {
        ex->failed = true;
        return name;
    }
    void *memory = strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, shape ? *shape : permuted.shape, NULL);
    if (memory) memcpy(memory, permuted.data, strata_array_bytes(&permuted));
    strata_array_finish(&permuted);
    return name;
}

void strata_onnx_refuse(strata_onnx_export *ex, const strata_layer *layer, const char *why) {
    strata_text_add(&ex->unsupported, "%s%s (%s%s)", ex->unsupported.n_bytes ? ", " : "", layer->kind->name, layer->name, why);
}

/* ---- functions that several layers use ---- */

const char *strata_onnx_transposed(strata_onnx_export *ex, const char *base, const char *x, const int64_t *perm, int rank) {
    const char *y = strata_onnx_emit(ex, base, "Transpose", x, NULL, NULL);
    strata_onnx_set_ints(ex, strata_onnx_last_node(ex), "perm", perm, rank);
    return y;
}

const char *strata_onnx_moved(strata_onnx_export *ex, const char *base, const char *x, int rank, bool to_front) {
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
    return strata_onnx_transposed(ex, base, x, perm, rank);
}

/* The activations that are one ONNX op, some with an attribute. */
static const struct {
    const char *function, *op, *attribute;
    double value;
} functions[] = {{"relu", "Relu", NULL, 0},         {"tanh", "Tanh", NULL, 0},
                 {"sigmoid", "Sigmoid", NULL, 0},   {"softmax", "Softmax", "axis", 0},
                 {"softplus", "Softplus", NULL, 0}, {"softsign", "Softsign", NULL, 0},
                 {"elu", "Elu", "alpha", 1},        {"leaky_relu", "LeakyRelu", "alpha", 0.2}};

const char *strata_onnx_activate(strata_onnx_export *ex, const strata_layer *layer, const char *function, const char *x) {
    const char *base = layer->name;
    if (!function || !*function) return x;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].function, function)) continue;
        const char *y = strata_onnx_emit(ex, base, functions[i].op, x, NULL, NULL);
        if (functions[i].attribute && functions[i].value != 0)
            strata_onnx_set_float(ex, strata_onnx_last_node(ex), functions[i].attribute, functions[i].value);
        else if (functions[i].attribute)
            strata_onnx_set_int(ex, strata_onnx_last_node(ex), functions[i].attribute, -1);
        return y;
    }
    if (!strcmp(function, "silu") || !strcmp(function, "swish"))
        return strata_onnx_emit(ex, base, "Mul", x, strata_onnx_emit(ex, base, "Sigmoid", x, NULL, NULL), NULL);
    if (!strcmp(function, "gelu") || !strcmp(function, "gelu_tanh")) { /* ONNX has a Gelu node only from opset 20 on */
        const bool exact = function[4] == 0;
        const char *t = x;
        if (!exact) {
            t = strata_onnx_emit(ex, base, "Mul", strata_onnx_emit(ex, base, "Mul", x, x, NULL), x, NULL);
            t = strata_onnx_emit(ex, base, "Add", x,
                                 strata_onnx_emit(ex, base, "Mul", t, strata_onnx_put_number(ex, base, 0.044715), NULL), NULL);
        }
        t = strata_onnx_emit(ex, base, "Mul", t,
                             strata_onnx_put_number(ex, base, exact ? 0.7071067811865476 : 0.7978845608028654), NULL);
        t = strata_onnx_emit(ex, base, exact ? "Erf" : "Tanh", t, NULL, NULL);
        t = strata_onnx_emit(ex, base, "Add", t, strata_onnx_put_number(ex, base, 1), NULL);
        return strata_onnx_emit(ex, base, "Mul",
                                strata_onnx_emit(ex, base, "Mul", x, strata_onnx_put_number(ex, base, 0.5), NULL), t, NULL);
    }
    strata_onnx_refuse(ex, layer, ": a function of the program's own");
    return x;
}

const char *strata_onnx_reshaped(strata_onnx_export *ex, const char *base, const char *x, const int64_t *to, int n) {
    return strata_onnx_emit(ex, base, "Reshape", x, strata_onnx_put_ints(ex, base, to, n), NULL);
}

void strata_onnx_set_window(strata_onnx_export *ex, StrataOnnx__Node *node, const int64_t *size, const int64_t *stride,
                            const int64_t *dilation, const int64_t *pads, int n) {
    int64_t steps[2], spread[2];
    for (int d = 0; d < n; d++) steps[d] = stride[d] ? stride[d] : 1, spread[d] = dilation && dilation[d] ? dilation[d] : 1;
    strata_onnx_set_ints(ex, node, "kernel_shape", size, n);
    strata_onnx_set_ints(ex, node, "strides", steps, n);
    if (dilation) strata_onnx_set_ints(ex, node, "dilations", spread, n);
    strata_onnx_set_ints(ex, node, "pads", pads, 2 * n);
}
