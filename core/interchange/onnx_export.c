/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes what a model predicts as an ONNX graph. Each call of a layer becomes some nodes; the table at the end says by which
 * function. Beside the file a graph is built, as while declaring, so that the shapes are known where nodes need them. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/graph/graph.h"
#include "core/interchange/onnx.h"
#include "strata/interchange.h"
#include "strata/version.h"

enum { OPSET = 17, IR_VERSION = 8, NAME_BYTES = 160 };
/* ONNX's numbers of element types and kinds of attributes. */
enum { TYPE_FLOAT = 1, TYPE_INT32 = 6, TYPE_INT64 = 7, TYPE_BOOL = 9 };
enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3, ATTRIBUTE_FLOATS = 6, ATTRIBUTE_INTS = 7 };

/* A value of the graph that is written: its name, and the same in the graph of shapes. */
typedef struct val {
    const char *name;
    strata_tensor *tensor;
} val;

/* Memory that lives until the file is written. */
typedef struct block {
    struct block *next;
} block;

typedef struct exporter {
    strata_model *model;
    strata_graph *graph;
    strata_layer_context context;
    strata_parameter_set parameters;
    /* (all_size) */
    float *values;
    StrataOnnx__Graph out;
    size_t node_capacity, initializer_capacity;
    /* Kinds of layers that ONNX has no counterpart of, with the layers' names. */
    strata_text unsupported;
    block *blocks;
    int n_names;
    bool failed;
} exporter;

/* ---- memory ---- */

static void *take(exporter *ex, size_t bytes) {
    block *b = calloc(1, sizeof *b + sizeof(max_align_t) + bytes);
    if (!b) {
        ex->failed = true;
        return NULL;
    }
    b->next = ex->blocks;
    ex->blocks = b;
    return (char *)b + sizeof(max_align_t);
}

static char *copy_text(exporter *ex, const char *text) {
    char *copy = take(ex, strlen(text) + 1);
    return copy ? strcpy(copy, text) : (char *)"";
}

/* A new name: the layer's, with a number behind it. No name in a model has a '/', so it is none of these. */
static const char *new_name(exporter *ex, const char *base) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "/%.120s.%d", base, ++ex->n_names);
    return copy_text(ex, name);
}

/* One more place in a list of pointers. */
static void *grow(exporter *ex, void *list, size_t n, size_t *capacity) {
    if (n < *capacity) return list;
    const size_t more = *capacity ? 2 * *capacity : 32;
    void **bigger = take(ex, more * sizeof(*bigger));
    if (!bigger) return NULL;
    if (n) memcpy(bigger, list, n * sizeof(*bigger));
    *capacity = more;
    return bigger;
}

/* ---- nodes ---- */

/* A node with inputs[0..n), of which NULL ends the list, and one output, whose name it returns. */
static StrataOnnx__Node *add_node(exporter *ex, const char *op, const char *const *inputs, int n, const char *output) {
    StrataOnnx__Node *node = take(ex, sizeof *node);
    char **in = take(ex, (size_t)(n + 1) * sizeof(*in)), **out = take(ex, sizeof(*out));
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

static StrataOnnx__Attribute *add_attribute(exporter *ex, StrataOnnx__Node *node, const char *name, int type) {
    enum { MOST = 12 };
    StrataOnnx__Attribute *a = take(ex, sizeof *a);
    if (node && !node->attribute) node->attribute = take(ex, MOST * sizeof(*node->attribute));
    if (ex->failed || !node || node->n_attribute == MOST) return NULL;
    strata_onnx__attribute__init(a);
    a->name = (char *)name;
    a->has_type = 1, a->type = type;
    node->attribute[node->n_attribute++] = a;
    return a;
}

static void set_int(exporter *ex, StrataOnnx__Node *node, const char *name, int64_t value) {
    StrataOnnx__Attribute *a = add_attribute(ex, node, name, ATTRIBUTE_INT);
    if (a) a->has_i = 1, a->i = value;
}

static void set_float(exporter *ex, StrataOnnx__Node *node, const char *name, double value) {
    StrataOnnx__Attribute *a = add_attribute(ex, node, name, ATTRIBUTE_FLOAT);
    if (a) a->has_f = 1, a->f = (float)value;
}

static void set_text(exporter *ex, StrataOnnx__Node *node, const char *name, const char *value) {
    StrataOnnx__Attribute *a = add_attribute(ex, node, name, ATTRIBUTE_STRING);
    if (a) a->has_s = 1, a->s.data = (uint8_t *)copy_text(ex, value), a->s.len = strlen(value);
}

static void set_ints(exporter *ex, StrataOnnx__Node *node, const char *name, const int64_t *values, int n) {
    StrataOnnx__Attribute *a = add_attribute(ex, node, name, ATTRIBUTE_INTS);
    if (!a) return;
    a->ints = take(ex, (size_t)n * sizeof *values + 1);
    if (a->ints && n) memcpy(a->ints, values, (size_t)n * sizeof *values);
    a->n_ints = a->ints ? (size_t)n : 0;
}

/* op(a, b, c) under a new name; NULL: fewer inputs. */
static const char *emit(exporter *ex, const char *base, const char *op, const char *a, const char *b, const char *c) {
    const char *inputs[] = {a, b, c}, *name = new_name(ex, base);
    add_node(ex, op, inputs, c ? 3 : b ? 2 : a ? 1 : 0, name);
    return name;
}

static StrataOnnx__Node *last_node(exporter *ex) {
    return ex->out.n_node && !ex->failed ? ex->out.node[ex->out.n_node - 1] : NULL;
}

/* ---- constants ---- */

/* data is borrowed until the file is written, or NULL: memory is made, and returned. */
static void *add_initializer(exporter *ex, const char *name, int type, strata_shape shape, const void *data) {
    const size_t bytes = (size_t)strata_shape_elements(shape) * (type == TYPE_INT64 ? 8 : type == TYPE_BOOL ? 1 : 4);
    StrataOnnx__Tensor *t = take(ex, sizeof *t);
    int64_t *dims = take(ex, sizeof shape.dims);
    void *memory = data ? (void *)data : take(ex, bytes + 1);
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

static const char *ints(exporter *ex, const char *base, const int64_t *values, int n) {
    const char *name = new_name(ex, base);
    int64_t *memory = add_initializer(ex, name, TYPE_INT64, STRATA_SHAPE(n), NULL);
    if (memory && n) memcpy(memory, values, (size_t)n * sizeof *values);
    return name;
}

static const char *number(exporter *ex, const char *base, double value) {
    const char *name = new_name(ex, base);
    float *memory = add_initializer(ex, name, TYPE_FLOAT, STRATA_SHAPE(), NULL);
    if (memory) *memory = (float)value;
    return name;
}

/* The elements of the layer's parameter or state; NULL: it has none of this name. */
static const float *elements_of(const exporter *ex, const strata_layer *layer, const char *parameter, strata_shape *out_shape) {
    const size_t n = strlen(layer->name);
    for (int i = 0; i < ex->model->parameters.n; i++) {
        const strata_parameter_spec *p = &ex->model->parameters.items[i];
        if (strncmp(p->name, layer->name, n) || p->name[n] != '/' || strcmp(p->name + n + 1, parameter)) continue;
        *out_shape = p->shape;
        return ex->values + strata_model_place(ex->model, p);
    }
    return NULL;
}

/* The parameter as an initializer "layer/parameter", its axes in another order; axes NULL: as they are, with `shape` instead of
 * its own where that is not NULL. */
static const char *weight(exporter *ex, const strata_layer *layer, const char *parameter, const int *axes,
                          const strata_shape *shape) {
    char text[NAME_BYTES];
    strata_shape own;
    strata_array permuted = {0};
    const float *elements = elements_of(ex, layer, parameter, &own);
    if (!elements) return NULL;
    snprintf(text, sizeof text, "%.110s/%.40s", layer->name, parameter);
    const char *name = copy_text(ex, text);
    for (size_t i = 0; i < ex->out.n_initializer; i++) /* of a layer that is called more than once */
        if (!strcmp(ex->out.initializer[i]->name, name)) return name;
    if (!axes) {
        add_initializer(ex, name, TYPE_FLOAT, shape ? *shape : own, elements);
        return name;
    }
    const strata_array array = strata_array_view(STRATA_DTYPE_F32, own, (void *)elements);
    if (strata_onnx_permute_array(&array, axes, &permuted, NULL)) {
        ex->failed = true;
        return name;
    }
    void *memory = add_initializer(ex, name, TYPE_FLOAT, shape ? *shape : permuted.shape, NULL);
    if (memory) memcpy(memory, permuted.data, strata_array_bytes(&permuted));
    strata_array_finish(&permuted);
    return name;
}

static void refuse(exporter *ex, const strata_layer *layer, const char *why) {
    strata_text_add(&ex->unsupported, "%s%s (%s%s)", ex->unsupported.n_bytes ? ", " : "", layer->kind->name, layer->name, why);
}

/* ---- what layers share ---- */

static const char *transposed(exporter *ex, const char *base, const char *x, const int64_t *perm, int rank) {
    const char *y = emit(ex, base, "Transpose", x, NULL, NULL);
    set_ints(ex, last_node(ex), "perm", perm, rank);
    return y;
}

/* (N, ..., C) -> (N, C, ...), or back. A transpose right behind its opposite is none. */
static const char *moved(exporter *ex, const char *base, const char *x, int rank, bool to_front) {
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
    return transposed(ex, base, x, perm, rank);
}

/* What is an op of ONNX by itself, with an attribute where there is one. */
static const struct {
    const char *function, *op, *attribute;
    double value;
} functions[] = {{"relu", "Relu", NULL, 0},         {"tanh", "Tanh", NULL, 0},
                 {"sigmoid", "Sigmoid", NULL, 0},   {"softmax", "Softmax", "axis", 0},
                 {"softplus", "Softplus", NULL, 0}, {"softsign", "Softsign", NULL, 0},
                 {"elu", "Elu", "alpha", 1},        {"leaky_relu", "LeakyRelu", "alpha", 0.2}};

static const char *apply(exporter *ex, const strata_layer *layer, const char *function, const char *x) {
    const char *base = layer->name;
    if (!function || !*function) return x;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].function, function)) continue;
        const char *y = emit(ex, base, functions[i].op, x, NULL, NULL);
        if (functions[i].attribute && functions[i].value != 0)
            set_float(ex, last_node(ex), functions[i].attribute, functions[i].value);
        else if (functions[i].attribute)
            set_int(ex, last_node(ex), functions[i].attribute, -1);
        return y;
    }
    if (!strcmp(function, "silu") || !strcmp(function, "swish"))
        return emit(ex, base, "Mul", x, emit(ex, base, "Sigmoid", x, NULL, NULL), NULL);
    if (!strcmp(function, "gelu") || !strcmp(function, "gelu_tanh")) { /* a node of its own only from opset 20 on */
        const bool exact = function[4] == 0;
        const char *t = x;
        if (!exact) {
            t = emit(ex, base, "Mul", emit(ex, base, "Mul", x, x, NULL), x, NULL);
            t = emit(ex, base, "Add", x, emit(ex, base, "Mul", t, number(ex, base, 0.044715), NULL), NULL);
        }
        t = emit(ex, base, "Mul", t, number(ex, base, exact ? 0.7071067811865476 : 0.7978845608028654), NULL);
        t = emit(ex, base, exact ? "Erf" : "Tanh", t, NULL, NULL);
        t = emit(ex, base, "Add", t, number(ex, base, 1), NULL);
        return emit(ex, base, "Mul", emit(ex, base, "Mul", x, number(ex, base, 0.5), NULL), t, NULL);
    }
    refuse(ex, layer, ": a function of the program's own");
    return x;
}

static const char *reshaped(exporter *ex, const char *base, const char *x, const int64_t *to, int n) {
    return emit(ex, base, "Reshape", x, ints(ex, base, to, n), NULL);
}

/* ---- windows ---- */

/* Begin and end of each axis's padding, as ONNX has them; `in` and `out` are the sizes. */
static void pads_of(const char *padding, const int64_t *given, const int64_t *in, const int64_t *out, const int64_t *size,
                    const int64_t *stride, const int64_t *dilation, int n, int64_t *pads) {
    for (int d = 0; d < n; d++) {
        pads[d] = pads[n + d] = 0;
        if (padding && !strcmp(padding, "explicit")) pads[d] = given[2 * d], pads[n + d] = given[2 * d + 1];
        if (!padding || strcmp(padding, "same")) continue;
        const int64_t step = stride[d] ? stride[d] : 1, reach = (size[d] - 1) * (dilation && dilation[d] ? dilation[d] : 1) + 1;
        const int64_t all = (out[d] - 1) * step + reach - in[d];
        if (all <= 0) continue;
        pads[d] = all / 2;
        pads[n + d] = all - all / 2;
    }
}

static void set_window(exporter *ex, StrataOnnx__Node *node, const int64_t *size, const int64_t *stride,
                       const int64_t *dilation, const int64_t *pads, int n) {
    int64_t steps[2], spread[2];
    for (int d = 0; d < n; d++) steps[d] = stride[d] ? stride[d] : 1, spread[d] = dilation && dilation[d] ? dilation[d] : 1;
    set_ints(ex, node, "kernel_shape", size, n);
    set_ints(ex, node, "strides", steps, n);
    if (dilation) set_ints(ex, node, "dilations", spread, n);
    set_ints(ex, node, "pads", pads, 2 * n);
}

typedef struct conv {
    const char *padding, *activation;
    const int64_t *given, *size, *stride, *dilation;
    int64_t groups;
    int n_axes;
} conv;

/* x with channels in front -> the same. */
static const char *conv_node(exporter *ex, const strata_layer *layer, const conv *c, const char *x, const char *kernel,
                             const char *bias, const int64_t *in, const int64_t *out) {
    int64_t pads[4];
    const char *y = emit(ex, layer->name, "Conv", x, kernel, bias);
    pads_of(c->padding, c->given, in, out, c->size, c->stride, c->dilation, c->n_axes, pads);
    set_window(ex, last_node(ex), c->size, c->stride, c->dilation, pads, c->n_axes);
    set_int(ex, last_node(ex), "group", c->groups ? c->groups : 1);
    return y;
}

static const char *conv_export(exporter *ex, const strata_layer *layer, const val *x, const val *y, const conv *c) {
    static const int axes_2d[] = {3, 2, 0, 1}, axes_1d[] = {2, 1, 0};
    const int rank = c->n_axes + 2;
    const char *t = moved(ex, layer->name, x->name, rank, true);
    t = conv_node(ex, layer, c, t, weight(ex, layer, "kernel", c->n_axes == 2 ? axes_2d : axes_1d, NULL),
                  weight(ex, layer, "bias", NULL, NULL), strata_tensor_shape(x->tensor).dims + 1,
                  strata_tensor_shape(y->tensor).dims + 1);
    const bool softmax = c->activation && !strcmp(c->activation, "softmax"); /* which is along the channels */
    if (!softmax) t = apply(ex, layer, c->activation, t);
    t = moved(ex, layer->name, t, rank, false);
    return softmax ? apply(ex, layer, c->activation, t) : t;
}

static const char *conv2d(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_conv2d_options *o = layer->options;
    (void)n;
    return conv_export(
        ex, layer, x, y,
        &(conv){o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, o->groups, 2});
}

static const char *conv1d(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_conv1d_options *o = layer->options;
    (void)n;
    return conv_export(
        ex, layer, x, y,
        &(conv){o->padding, o->activation, o->explicit_padding, &o->kernel_size, &o->stride, &o->dilation, o->groups, 1});
}

/* Kernel (KH, KW, C, M) -> (C M, 1, KH, KW), a group for each channel. */
static const char *depthwise_weight(exporter *ex, const strata_layer *layer, const char *name, int64_t *out_channels) {
    static const int axes[] = {2, 3, 0, 1};
    strata_shape own = {0};
    elements_of(ex, layer, name, &own);
    *out_channels = own.dims[2];
    const strata_shape shape = STRATA_SHAPE(own.dims[2] * own.dims[3], 1, own.dims[0], own.dims[1]);
    return weight(ex, layer, name, axes, &shape);
}

static const char *depthwise_conv2d(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_depthwise_conv2d_options *o = layer->options;
    conv c = {o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    (void)n;
    const char *kernel = depthwise_weight(ex, layer, "kernel", &c.groups), *t = moved(ex, layer->name, x->name, 4, true);
    t = conv_node(ex, layer, &c, t, kernel, weight(ex, layer, "bias", NULL, NULL), strata_tensor_shape(x->tensor).dims + 1,
                  strata_tensor_shape(y->tensor).dims + 1);
    return apply(ex, layer, o->activation, moved(ex, layer->name, t, 4, false));
}

static const char *separable_conv2d(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_separable_conv2d_options *o = layer->options;
    static const int64_t one[2] = {1, 1};
    conv c = {o->padding, NULL, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    const conv point = {NULL, NULL, o->explicit_padding, one, one, one, 1, 2};
    (void)n;
    const char *kernel = depthwise_weight(ex, layer, "depthwise_kernel", &c.groups);
    const char *t = moved(ex, layer->name, x->name, 4, true);
    t = conv_node(ex, layer, &c, t, kernel, NULL, strata_tensor_shape(x->tensor).dims + 1,
                  strata_tensor_shape(y->tensor).dims + 1);
    t = conv_node(ex, layer, &point, t, weight(ex, layer, "pointwise_kernel", (const int[]){3, 2, 0, 1}, NULL),
                  weight(ex, layer, "bias", NULL, NULL), one, one);
    return apply(ex, layer, o->activation, moved(ex, layer->name, t, 4, false));
}

/* The size that the layer gives says how much the padding takes away, or output_padding adds. */
static const char *conv2d_transpose(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_conv2d_transpose_options *o = layer->options;
    int64_t pads[4], more[2];
    const char *t = moved(ex, layer->name, x->name, 4, true);
    const strata_shape in = strata_tensor_shape(x->tensor), out = strata_tensor_shape(y->tensor);
    (void)n;
    const bool same = o->padding && !strcmp(o->padding, "same");
    for (int d = 0; d < 2; d++) {
        const int64_t stride = o->stride[d] ? o->stride[d] : 1;
        const int64_t reach = (o->kernel_size[d] - 1) * (o->dilation[d] ? o->dilation[d] : 1) + 1;
        /* What the forward convolution of an image of `out` pads: none, or as for the same. */
        const int64_t all = same ? (in.dims[1 + d] - 1) * stride + reach - out.dims[1 + d] : 0;
        pads[d] = all > 0 ? all / 2 : 0;
        pads[2 + d] = all > 0 ? all - all / 2 : 0;
        more[d] = out.dims[1 + d] - ((in.dims[1 + d] - 1) * stride + reach - pads[d] - pads[2 + d]);
    }
    t = emit(ex, layer->name, "ConvTranspose", t, weight(ex, layer, "kernel", (const int[]){3, 2, 0, 1}, NULL),
             weight(ex, layer, "bias", NULL, NULL));
    set_window(ex, last_node(ex), o->kernel_size, o->stride, o->dilation, pads, 2);
    set_ints(ex, last_node(ex), "output_padding", more, 2);
    return apply(ex, layer, o->activation, moved(ex, layer->name, t, 4, false));
}

static const char *pool(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const bool max = layer->kind->name[0] == 'm', two = strchr(layer->kind->name, '2');
    const strata_pool2d_options *o = layer->options;
    const strata_pool1d_options *one = layer->options;
    const int axes = two ? 2 : 1;
    const int64_t *size = two ? o->size : &one->size, *given = two ? o->stride : &one->stride;
    int64_t stride[2], pads[4];
    (void)n;
    for (int d = 0; d < axes; d++) stride[d] = given[d] ? given[d] : size[d];
    const char *t =
        emit(ex, layer->name, max ? "MaxPool" : "AveragePool", moved(ex, layer->name, x->name, axes + 2, true), NULL, NULL);
    pads_of(two ? o->padding : one->padding, two ? o->explicit_padding : one->explicit_padding,
            strata_tensor_shape(x->tensor).dims + 1, strata_tensor_shape(y->tensor).dims + 1, size, stride, NULL, axes, pads);
    /* moved may have added the transpose before the pool's node, which is the last. */
    set_window(ex, last_node(ex), size, stride, NULL, pads, axes);
    return moved(ex, layer->name, t, axes + 2, false);
}

static const char *global_pool(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    int64_t axes[STRATA_MAX_RANK];
    const int rank = strata_tensor_shape(x->tensor).rank;
    (void)n, (void)y;
    for (int d = 1; d < rank - 1; d++) axes[d - 1] = d;
    if (rank < 3) return x->name;
    const char *t = emit(ex, layer->name, strstr(layer->kind->name, "max") ? "ReduceMax" : "ReduceMean", x->name, NULL, NULL);
    set_ints(ex, last_node(ex), "axes", axes, rank - 2);
    set_int(ex, last_node(ex), "keepdims", 0);
    return t;
}

/* ---- other layers ---- */

static const char *dense(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_dense_options *o = layer->options;
    const char *t = emit(ex, layer->name, "MatMul", x->name, weight(ex, layer, "kernel", NULL, NULL), NULL);
    (void)n, (void)y;
    if (!o->no_bias) t = emit(ex, layer->name, "Add", t, weight(ex, layer, "bias", NULL, NULL), NULL);
    return apply(ex, layer, o->activation, t);
}

static const char *activation(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    (void)n, (void)y;
    return apply(ex, layer, ((const strata_activation_options *)layer->options)->function, x->name);
}

/* It does nothing outside of training; the node keeps its rate for those who read the file. */
static const char *dropout(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    (void)n, (void)y;
    return emit(ex, layer->name, "Dropout", x->name,
                number(ex, layer->name, ((const strata_dropout_options *)layer->options)->rate), NULL);
}

static const char *flatten(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    (void)n, (void)y;
    const char *t = emit(ex, layer->name, "Flatten", x->name, NULL, NULL);
    set_int(ex, last_node(ex), "axis", 1);
    return t;
}

static const char *reshape(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_shape shape = ((const strata_reshape_options *)layer->options)->shape;
    int64_t to[STRATA_MAX_RANK + 1] = {0};
    (void)n, (void)y;
    memcpy(to + 1, shape.dims, (size_t)shape.rank * sizeof *to);
    return reshaped(ex, layer->name, x->name, to, shape.rank + 1);
}

static const char *embedding(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    (void)n, (void)y;
    if (((const strata_embedding_options *)layer->options)->mask_zero) refuse(ex, layer, ": mask_zero");
    return emit(ex, layer->name, "Gather", weight(ex, layer, "embeddings", NULL, NULL), x->name, NULL);
}

static const char *batch_norm(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_batch_norm_options *o = layer->options;
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const int rank = strata_tensor_shape(x->tensor).rank;
    const char *inputs[5] = {moved(ex, layer->name, x->name, rank, true)}, *t = new_name(ex, layer->name);
    (void)n, (void)y;
    for (int i = 0; i < 4; i++) inputs[1 + i] = weight(ex, layer, names[i], NULL, NULL);
    StrataOnnx__Node *node = add_node(ex, "BatchNormalization", inputs, 5, t);
    set_float(ex, node, "epsilon", o->epsilon == 0 ? 1e-3 : o->epsilon);
    set_float(ex, node, "momentum", o->no_average ? 0 : o->momentum == 0 ? 0.99 : o->momentum);
    const bool softmax = o->activation && !strcmp(o->activation, "softmax");
    if (!softmax) t = apply(ex, layer, o->activation, t);
    t = moved(ex, layer->name, t, rank, false);
    return softmax ? apply(ex, layer, o->activation, t) : t;
}

static const char *layer_norm(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const double epsilon = ((const strata_layer_norm_options *)layer->options)->epsilon;
    (void)n, (void)y;
    const char *t = emit(ex, layer->name, "LayerNormalization", x->name, weight(ex, layer, "gamma", NULL, NULL),
                         weight(ex, layer, "beta", NULL, NULL));
    set_int(ex, last_node(ex), "axis", -1);
    set_float(ex, last_node(ex), "epsilon", epsilon == 0 ? 1e-3 : epsilon);
    return t;
}

/* Groups as the channels of an instance norm. */
static const char *group_norm(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_group_norm_options *o = layer->options;
    const strata_shape shape = strata_tensor_shape(x->tensor);
    const int64_t channels = shape.dims[shape.rank - 1], groups = o->groups == -1 ? channels : o->groups ? o->groups : 32;
    const char *base = layer->name, *scale = new_name(ex, base), *shift = new_name(ex, base);
    int64_t back[STRATA_MAX_RANK];
    float *ones = add_initializer(ex, scale, TYPE_FLOAT, STRATA_SHAPE(groups), NULL);
    (void)n, (void)y;
    for (int64_t g = 0; ones && g < groups; g++) ones[g] = 1;
    add_initializer(ex, shift, TYPE_FLOAT, STRATA_SHAPE(groups), NULL); /* zeros */
    const char *t = moved(ex, base, x->name, shape.rank, true);
    t = reshaped(ex, base, t, (const int64_t[]){0, groups, -1}, 3);
    t = emit(ex, base, "InstanceNormalization", t, scale, shift);
    set_float(ex, last_node(ex), "epsilon", o->epsilon == 0 ? 1e-3 : o->epsilon);
    back[0] = -1, back[1] = channels;
    for (int d = 2; d < shape.rank; d++) back[d] = shape.dims[d - 1];
    t = moved(ex, base, reshaped(ex, base, t, back, shape.rank), shape.rank, false);
    if (!o->no_scale) t = emit(ex, base, "Mul", t, weight(ex, layer, "gamma", NULL, NULL), NULL);
    return o->no_center ? t : emit(ex, base, "Add", t, weight(ex, layer, "beta", NULL, NULL), NULL);
}

static const char *rms_norm(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_rms_norm_options *o = layer->options;
    const char *base = layer->name, *t = emit(ex, base, "Mul", x->name, x->name, NULL);
    (void)n, (void)y;
    t = emit(ex, base, "ReduceMean", t, NULL, NULL);
    set_ints(ex, last_node(ex), "axes", (const int64_t[]){-1}, 1);
    t = emit(ex, base, "Add", t, number(ex, base, o->epsilon == 0 ? 1e-6 : o->epsilon), NULL);
    t = emit(ex, base, "Div", x->name, emit(ex, base, "Sqrt", t, NULL, NULL), NULL);
    return o->no_scale ? t : emit(ex, base, "Mul", t, weight(ex, layer, "gamma", NULL, NULL), NULL);
}

static const char *merge(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const char *kind = layer->kind->name, *t = x[0].name, *names[STRATA_MAX_LAYER_INPUTS];
    (void)y;
    if (!strcmp(kind, "concat")) {
        const int64_t axis = ((const strata_concat_options *)layer->options)->axis;
        for (int i = 0; i < n; i++) names[i] = x[i].name;
        t = new_name(ex, layer->name);
        set_int(ex, add_node(ex, "Concat", names, n, t), "axis", axis ? axis : -1);
        return t;
    }
    for (int i = 1; i < n; i++) t = emit(ex, layer->name, *kind == 'a' ? "Add" : "Mul", t, x[i].name, NULL);
    return t;
}

/* Columns (K, gates U) become rows (gates U, K) in ONNX's order of gates: i o f c, z r h. */
static void gate_rows(const float *columns, const int *order, int gates, int64_t units, int64_t k, float *out) {
    for (int g = 0; g < gates; g++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < k; i++) out[(g * units + u) * k + i] = columns[i * gates * units + order[g] * units + u];
}

static const char *recurrent(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    static const int orders[2][4] = {{0, 1, 2, 0}, {0, 3, 1, 2}};
    static const struct {
        const char *name, *onnx;
    } functions_of[] = {{"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}, {"relu", "Relu"}, {"linear", "Affine"}};
    const strata_recurrent_layer_options *o = layer->options;
    const bool lstm = layer->kind->name[0] == 'l', both = o->bidirectional;
    const int gates = lstm ? 4 : 3, *order = orders[lstm], directions = both ? 2 : 1;
    const int64_t units = o->units, width = gates * units, k = strata_tensor_shape(x->tensor).dims[2];
    const char *base = layer->name, *w = new_name(ex, base), *r = new_name(ex, base), *b = new_name(ex, base);
    float *rows = add_initializer(ex, w, TYPE_FLOAT, STRATA_SHAPE(directions, width, k), NULL);
    float *matrix = add_initializer(ex, r, TYPE_FLOAT, STRATA_SHAPE(directions, width, units), NULL);
    float *bias = add_initializer(ex, b, TYPE_FLOAT, STRATA_SHAPE(directions, 2 * width), NULL);
    (void)n, (void)y;
    for (int way = 0; way < directions && !ex->failed; way++) {
        char name[48];
        strata_shape shape;
        const char *prefix = way ? "backward_" : "";
        snprintf(name, sizeof name, "%skernel", prefix);
        gate_rows(elements_of(ex, layer, name, &shape), order, gates, units, k, rows + way * width * k);
        snprintf(name, sizeof name, "%srecurrent_kernel", prefix);
        gate_rows(elements_of(ex, layer, name, &shape), order, gates, units, units, matrix + way * width * units);
        snprintf(name, sizeof name, "%sbias", prefix);
        const float *given = elements_of(ex, layer, name, &shape);
        for (int half = 0; given && half < (lstm || o->no_reset_after ? 1 : 2); half++)
            for (int g = 0; g < gates; g++)
                for (int64_t u = 0; u < units; u++)
                    bias[way * 2 * width + half * width + g * units + u] = given[half * width + order[g] * units + u];
    }
    const char *inputs[] = {transposed(ex, base, x->name, (const int64_t[]){1, 0, 2}, 3), w, r, b};
    const char *all = new_name(ex, base), *last = new_name(ex, base);
    StrataOnnx__Node *node = add_node(ex, lstm ? "LSTM" : "GRU", inputs, 4, all);
    if (!node) return all;
    node->output = take(ex, 2 * sizeof(*node->output));
    if (!node->output) return all;
    node->n_output = 2;
    node->output[0] = (char *)(o->return_sequences ? all : ""), node->output[1] = (char *)(o->return_sequences ? "" : last);
    set_int(ex, node, "hidden_size", units);
    if (!lstm) set_int(ex, node, "linear_before_reset", !o->no_reset_after);
    if (both) set_text(ex, node, "direction", "bidirectional");
    if (!both && o->go_backwards) set_text(ex, node, "direction", "reverse");
    const bool usual = (!o->activation || !strcmp(o->activation, "tanh")) &&
                       (!o->recurrent_activation || !strcmp(o->recurrent_activation, "sigmoid"));
    if (!usual) {
        StrataOnnx__Attribute *a = add_attribute(ex, node, "activations", 8);
        const char *of[] = {o->recurrent_activation ? o->recurrent_activation : "sigmoid",
                            o->activation ? o->activation : "tanh", o->activation ? o->activation : "tanh"};
        const int each = lstm ? 3 : 2;
        if (a) a->strings = take(ex, (size_t)(each * directions) * sizeof *a->strings);
        for (int i = 0; a && a->strings && i < each * directions; i++)
            for (size_t f = 0; f < sizeof functions_of / sizeof *functions_of; f++) {
                if (strcmp(functions_of[f].name, of[i % each])) continue;
                if (f == 3) refuse(ex, layer, ": a linear activation");
                a->strings[i] = (ProtobufCBinaryData){strlen(functions_of[f].onnx), (uint8_t *)functions_of[f].onnx};
                a->n_strings = (size_t)i + 1;
            }
    }
    if (o->go_backwards && o->return_sequences) refuse(ex, layer, ": go_backwards with return_sequences");
    if (both && strcmp(o->bidirectional, "concat")) refuse(ex, layer, ": bidirectional other than concat");
    if (o->return_sequences) /* (T, D, N, U) -> (N, T, D U) */
        return reshaped(ex, base, transposed(ex, base, all, (const int64_t[]){2, 0, 1, 3}, 4),
                        (const int64_t[]){0, 0, directions * units}, 3);
    return reshaped(ex, base, transposed(ex, base, last, (const int64_t[]){1, 0, 2}, 3),
                    (const int64_t[]){0, directions * units}, 2);
}

static const char *attention(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    static const char *const names[] = {"query", "key", "value", "output"};
    const strata_multi_head_attention_options *o = layer->options;
    const strata_shape shape = strata_tensor_shape(x->tensor);
    const int64_t t = shape.dims[1], key_dim = o->key_dim ? o->key_dim : shape.dims[2] / o->heads;
    const char *base = layer->name, *parts[4] = {x->name, x->name, x->name};
    char name[48];
    (void)n, (void)y;
    for (int i = 0; i < 4; i++) {
        if (i == 3) {
            const char *scores = emit(ex, base, "MatMul", parts[0], parts[1], NULL);
            scores = emit(ex, base, "Mul", scores, number(ex, base, 1 / sqrt((double)key_dim)), NULL);
            if (o->causal) { /* adds a number that the exponential makes 0 */
                const char *mask = new_name(ex, base);
                float *places = add_initializer(ex, mask, TYPE_FLOAT, STRATA_SHAPE(t, t), NULL);
                for (int64_t a = 0; places && a < t; a++)
                    for (int64_t b = a + 1; b < t; b++) places[a * t + b] = -1e30f;
                scores = emit(ex, base, "Add", scores, mask, NULL);
            }
            scores = emit(ex, base, "Softmax", scores, NULL, NULL);
            set_int(ex, last_node(ex), "axis", -1);
            parts[3] = transposed(ex, base, emit(ex, base, "MatMul", scores, parts[2], NULL), (const int64_t[]){0, 2, 1, 3}, 4);
            parts[3] = reshaped(ex, base, parts[3], (const int64_t[]){0, t, o->heads * key_dim}, 3);
        }
        snprintf(name, sizeof name, "%s_kernel", names[i]);
        parts[i] = emit(ex, base, "MatMul", parts[i], weight(ex, layer, name, NULL, NULL), NULL);
        snprintf(name, sizeof name, "%s_bias", names[i]);
        if (!o->no_bias) parts[i] = emit(ex, base, "Add", parts[i], weight(ex, layer, name, NULL, NULL), NULL);
        if (i == 3) break;
        parts[i] = reshaped(ex, base, parts[i], (const int64_t[]){0, t, o->heads, key_dim}, 4);
        parts[i] = transposed(ex, base, parts[i], i == 1 ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3}, 4);
    }
    return parts[3];
}

static const char *weights(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_weights_options *o = layer->options;
    const char *name = weight(ex, layer, "value", NULL, NULL);
    (void)x, (void)n, (void)y;
    if (!o->dtype || !strcmp(o->dtype, "f32")) return name;
    const char *cast = emit(ex, layer->name, "Cast", name, NULL, NULL);
    set_int(ex, last_node(ex), "to", !strcmp(o->dtype, "bool") ? TYPE_BOOL : TYPE_INT32);
    return cast;
}

/* ---- the layer `op` ---- */

/* Ops that are a node of ONNX with the same inputs and no numbers. */
static const struct {
    const char *op, *onnx;
} same_ops[] = {{"neg", "Neg"},
                {"abs", "Abs"},
                {"sign", "Sign"},
                {"exp", "Exp"},
                {"log", "Log"},
                {"sqrt", "Sqrt"},
                {"sin", "Sin"},
                {"cos", "Cos"},
                {"erf", "Erf"},
                {"tanh", "Tanh"},
                {"sigmoid", "Sigmoid"},
                {"relu", "Relu"},
                {"add", "Add"},
                {"sub", "Sub"},
                {"mul", "Mul"},
                {"div", "Div"},
                {"pow", "Pow"},
                {"min", "Min"},
                {"max", "Max"},
                {"equal", "Equal"},
                {"less", "Less"},
                {"less_equal", "LessOrEqual"},
                {"greater", "Greater"},
                {"greater_equal", "GreaterOrEqual"},
                {"where", "Where"},
                {"matmul", "MatMul"},
                {"softplus", "Softplus"},
                {"softmax", "Softmax"},
                {"log_softmax", "LogSoftmax"}};
/* Ops whose numbers are an attribute, a list or one number. */
static const struct {
    const char *op, *onnx, *attribute;
    char form;
} attribute_ops[] = {{"leaky_relu", "LeakyRelu", "alpha", 'f'}, {"elu", "Elu", "alpha", 'f'},
                     {"transpose", "Transpose", "perm", 'l'},   {"gather", "Gather", "axis", 'i'},
                     {"concat", "Concat", "axis", 'i'},         {"reduce_mean", "ReduceMean", "axes", 'r'},
                     {"reduce_max", "ReduceMax", "axes", 'r'},  {"reduce_min", "ReduceMin", "axes", 'r'}};

static const char *op_window(exporter *ex, const strata_layer *layer, const val *x, const val *y, const strata_op_options *o,
                             const int64_t *numbers) {
    const bool back = strstr(o->op, "transpose");
    const strata_shape kernel = strata_tensor_shape(x[1].tensor), in = strata_tensor_shape(x[0].tensor),
                       out = strata_tensor_shape(y->tensor);
    const int64_t pads[] = {numbers[4], numbers[6], numbers[5], numbers[7]};
    int64_t more[2];
    const char *base = layer->name, *t = moved(ex, base, x[0].name, 4, true);
    const char *w = transposed(ex, base, x[1].name, (const int64_t[]){3, 2, 0, 1}, 4);
    t = emit(ex, base, back ? "ConvTranspose" : "Conv", t, w, NULL);
    set_window(ex, last_node(ex), kernel.dims, numbers, numbers + 2, pads, 2);
    set_int(ex, last_node(ex), "group", numbers[8]);
    for (int d = 0; d < 2; d++)
        more[d] = out.dims[1 + d] -
                  ((in.dims[1 + d] - 1) * numbers[d] + (kernel.dims[d] - 1) * numbers[2 + d] + 1 - pads[d] - pads[2 + d]);
    if (back) set_ints(ex, last_node(ex), "output_padding", more, 2);
    return moved(ex, base, t, 4, false);
}

static const char *op(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    const strata_op_options *o = layer->options;
    const char *names[STRATA_MAX_LAYER_INPUTS], *base = layer->name, *t;
    int64_t numbers[2 * STRATA_MAX_NUMBERS] = {0}, axes[STRATA_MAX_RANK];
    const int count = o->numbers.n, rank = strata_tensor_shape(x->tensor).rank;
    for (int i = 0; i < n; i++) names[i] = x[i].name;
    for (int i = 0; i < count; i++) numbers[i] = fabs(o->numbers.values[i]) < 1e15 ? (int64_t)o->numbers.values[i] : 0;
    for (int d = 0; d < STRATA_MAX_RANK; d++) axes[d] = d;
    for (size_t i = 0; i < sizeof same_ops / sizeof *same_ops; i++)
        if (!strcmp(same_ops[i].op, o->op)) {
            t = new_name(ex, base);
            StrataOnnx__Node *node = add_node(ex, same_ops[i].onnx, names, n, t);
            if (strstr(o->op, "softmax")) set_int(ex, node, "axis", -1);
            return t;
        }
    for (size_t i = 0; i < sizeof attribute_ops / sizeof *attribute_ops; i++)
        if (!strcmp(attribute_ops[i].op, o->op)) {
            t = new_name(ex, base);
            StrataOnnx__Node *node = add_node(ex, attribute_ops[i].onnx, names, n, t);
            const char form = attribute_ops[i].form, *attribute = attribute_ops[i].attribute;
            if (form == 'f') set_float(ex, node, attribute, o->numbers.values[0]);
            if (form == 'i') set_int(ex, node, attribute, numbers[0]);
            if (form == 'l' || (form == 'r' && count)) set_ints(ex, node, attribute, numbers, count);
            if (form == 'r') set_int(ex, node, "keepdims", o->value == 1);
            return t;
        }
    if (!strcmp(o->op, "square")) return emit(ex, base, "Mul", x->name, x->name, NULL);
    if (!strcmp(o->op, "rsqrt")) return emit(ex, base, "Reciprocal", emit(ex, base, "Sqrt", x->name, NULL, NULL), NULL, NULL);
    if (!strcmp(o->op, "not_equal"))
        return emit(ex, base, "Not", emit(ex, base, "Equal", x[0].name, x[1].name, NULL), NULL, NULL);
    if (!strncmp(o->op, "gelu", 4) || !strcmp(o->op, "silu")) return apply(ex, layer, o->op, x->name);
    if (!strcmp(o->op, "clip")) {
        const double low = o->numbers.values[0], high = o->numbers.values[1];
        return emit(ex, base, "Clip", x->name, number(ex, base, low > -FLT_MAX ? low : -FLT_MAX),
                    number(ex, base, high < FLT_MAX ? high : FLT_MAX));
    }
    if (!strcmp(o->op, "cast")) {
        t = emit(ex, base, "Cast", x->name, NULL, NULL);
        const bool whole = o->dtype && *o->dtype == 'i', yes_no = o->dtype && !strcmp(o->dtype, "bool");
        set_int(ex, last_node(ex), "to", yes_no ? TYPE_BOOL : whole ? TYPE_INT32 : TYPE_FLOAT);
        return t;
    }
    if (!strcmp(o->op, "reshape")) return reshaped(ex, base, x->name, numbers, count);
    if (!strcmp(o->op, "expand")) {
        const char *size = emit(ex, base, "Shape", x[1].name, NULL, NULL), *sizes[STRATA_MAX_RANK];
        set_int(ex, last_node(ex), "start", 0);
        set_int(ex, last_node(ex), "end", 1);
        for (int d = 0; d < count; d++) sizes[d] = numbers[d] ? ints(ex, base, &numbers[d], 1) : size;
        t = new_name(ex, base);
        set_int(ex, add_node(ex, "Concat", sizes, count, t), "axis", 0);
        return emit(ex, base, "Expand", x->name, t, NULL);
    }
    if (!strcmp(o->op, "slice")) {
        int64_t ends[STRATA_MAX_RANK];
        for (int d = 0; d < rank; d++) ends[d] = numbers[rank + d] == -1 ? INT64_MAX : numbers[d] + numbers[rank + d];
        const char *inputs[] = {x->name, ints(ex, base, numbers, rank), ints(ex, base, ends, rank), ints(ex, base, axes, rank)};
        t = new_name(ex, base);
        add_node(ex, "Slice", inputs, 4, t);
        return t;
    }
    if (!strcmp(o->op, "pad"))
        return emit(ex, base, "Pad", x->name, ints(ex, base, numbers, count), number(ex, base, o->value));
    if (!strcmp(o->op, "tile")) return emit(ex, base, "Tile", x->name, ints(ex, base, numbers, count), NULL);
    if (!strcmp(o->op, "reduce_sum")) {
        t = emit(ex, base, "ReduceSum", x->name, ints(ex, base, count ? numbers : axes, count ? count : rank), NULL);
        set_int(ex, last_node(ex), "keepdims", o->value == 1);
        return t;
    }
    if (!strcmp(o->op, "argmax")) {
        t = emit(ex, base, "ArgMax", x->name, NULL, NULL);
        set_int(ex, last_node(ex), "axis", numbers[0]);
        set_int(ex, last_node(ex), "keepdims", 0);
        t = emit(ex, base, "Cast", t, NULL, NULL);
        set_int(ex, last_node(ex), "to", TYPE_INT32);
        return t;
    }
    if (!strcmp(o->op, "layer_norm")) {
        t = emit(ex, base, "LayerNormalization", x[0].name, x[1].name, x[2].name);
        set_int(ex, last_node(ex), "axis", -1);
        set_float(ex, last_node(ex), "epsilon", o->value);
        return t;
    }
    if (!strncmp(o->op, "conv2d", 6)) return op_window(ex, layer, x, y, o, numbers);
    refuse(ex, layer, o->op);
    return x->name;
}

/* ---- the walk ---- */

static const char *residual(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y);

static const struct {
    const char *kind;
    const char *(*export)(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y);
} kinds[] = {{"dense", dense},
             {"activation", activation},
             {"dropout", dropout},
             {"flatten", flatten},
             {"reshape", reshape},
             {"embedding", embedding},
             {"batch_norm", batch_norm},
             {"conv2d", conv2d},
             {"conv1d", conv1d},
             {"conv2d_transpose", conv2d_transpose},
             {"depthwise_conv2d", depthwise_conv2d},
             {"separable_conv2d", separable_conv2d},
             {"max_pool2d", pool},
             {"avg_pool2d", pool},
             {"max_pool1d", pool},
             {"avg_pool1d", pool},
             {"global_average_pool", global_pool},
             {"global_max_pool", global_pool},
             {"residual", residual},
             {"add", merge},
             {"multiply", merge},
             {"concat", merge},
             {"layer_norm", layer_norm},
             {"group_norm", group_norm},
             {"rms_norm", rms_norm},
             {"lstm", recurrent},
             {"gru", recurrent},
             {"multi_head_attention", attention},
             {"op", op},
             {"weights", weights}};

/* The nodes of a layer for n inputs. */
static val export_layer(exporter *ex, const strata_layer *layer, int call, const val *x, int n) {
    strata_tensor *tensors[STRATA_MAX_LAYER_INPUTS];
    for (int i = 0; i < n; i++) tensors[i] = x[i].tensor;
    val y = {x->name, strata_layer_build(&ex->context, layer, call, layer->name, tensors, n)};
    if (strata_tensor_is_poison(y.tensor)) return y;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (layer->kind->own || strcmp(kinds[i].kind, layer->kind->name)) continue;
        y.name = kinds[i].export(ex, layer, x, n, &y);
        return y;
    }
    refuse(ex, layer, "");
    return y;
}

static const char *residual(exporter *ex, const strata_layer *layer, const val *x, int n, const val *y) {
    val ends[2] = {*x, *x};
    (void)n, (void)y;
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < layer->branches[b].n; i++)
            ends[b] = export_layer(ex, &layer->branches[b].layers[i], 1, &ends[b], 1);
    return apply(ex, layer, ((const strata_residual_options *)layer->options)->activation,
                 emit(ex, layer->name, "Add", ends[0].name, ends[1].name, NULL));
}

/* An input or output of the graph: the batch, which is open, and one example's shape. */
static StrataOnnx__ValueInfo *value_info(exporter *ex, const char *name, int type, strata_shape example) {
    StrataOnnx__ValueInfo *info = take(ex, sizeof *info);
    StrataOnnx__Type *of = take(ex, sizeof *of);
    StrataOnnx__TensorType *tensor = take(ex, sizeof *tensor);
    StrataOnnx__Shape *shape = take(ex, sizeof *shape);
    StrataOnnx__Dimension *dims = take(ex, (STRATA_MAX_RANK + 1) * sizeof *dims),
                          **list = take(ex, (STRATA_MAX_RANK + 1) * sizeof(*list));
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
    info->type = of, info->name = copy_text(ex, name);
    return info;
}

static strata_status write_inputs(exporter *ex, val *values) {
    const strata_model *model = ex->model;
    ex->out.input = take(ex, STRATA_MAX_INPUTS * sizeof(*ex->out.input));
    for (int i = 0; i < model->n_inputs && !ex->failed; i++) {
        const strata_input_spec *input = &model->inputs[i];
        const char *name = strata_model_input_port(model, i).name;
        const bool whole = input->dtype == STRATA_DTYPE_I32;
        ex->out.input[ex->out.n_input++] = value_info(ex, name, whole ? TYPE_INT32 : TYPE_FLOAT, input->shape);
        values[input->value] =
            (val){copy_text(ex, name), strata_model_make_input(model, ex->graph, i, input->dtype, STRATA_ONNX_BATCH)};
        ex->context.inputs[ex->context.n_inputs++] = values[input->value].tensor;
    }
    return STRATA_OK;
}

/* What predict makes of an output: softmax or sigmoid of the logits, by its loss. */
static const char *predicted(exporter *ex, const strata_output_spec *output, const char *x) {
    const char *loss = output->loss ? output->loss->name : "";
    const bool classes = !strcmp(loss, "sparse_categorical_crossentropy") || !strcmp(loss, "categorical_crossentropy");
    if (!classes && (strcmp(loss, "binary_crossentropy") || output->loss_options.from_probabilities)) return x;
    const char *y = emit(ex, "predict", classes ? "Softmax" : "Sigmoid", x, NULL, NULL);
    if (classes) set_int(ex, last_node(ex), "axis", -1);
    return y;
}

static void write_outputs(exporter *ex, const val *values) {
    const strata_model *model = ex->model;
    ex->out.output = take(ex, STRATA_MAX_OUTPUTS * sizeof(*ex->out.output));
    for (int i = 0; i < model->n_outputs && !ex->failed; i++) {
        const strata_output_spec *output = &model->outputs[i];
        const char *y = predicted(ex, output, values[output->value].name);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.100s", strata_output_name(model, i));
        for (int k = 0; k < model->n_inputs; k++) /* names are one space in ONNX */
            if (!strcmp(name, strata_model_input_port(model, k).name))
                snprintf(name, sizeof name, "%.100s.out", strata_output_name(model, i));
        const char *inputs[] = {y}, *own = copy_text(ex, name);
        add_node(ex, "Identity", inputs, 1, own);
        ex->out.output[ex->out.n_output++] = value_info(ex, own, TYPE_FLOAT, output->shape);
    }
}

/* The label, the loss and the notes, for those who read the file back. */
static size_t write_metadata(exporter *ex, StrataOnnx__Entry ***out) {
    const strata_model *model = ex->model;
    const strata_output_spec *output = &model->outputs[0];
    const size_t most = (size_t)model->notes.n + 2;
    StrataOnnx__Entry **list = take(ex, most * sizeof(*list)), *entries = take(ex, most * sizeof *entries);
    size_t n = 0;
    if (ex->failed) return 0;
    for (size_t i = 0; i < most; i++) {
        strata_onnx__entry__init(&entries[i]);
        list[i] = &entries[i];
    }
    if (*model->label) entries[n].key = (char *)"strata.label", entries[n++].value = model->label;
    if (model->n_outputs == 1 && output->loss && !strata_options_given(output->loss->options, &output->loss_options))
        entries[n].key = (char *)"strata.loss", entries[n++].value = (char *)output->loss->name;
    for (int i = 0; i < model->notes.n; i++) {
        char key[NAME_BYTES];
        const char *own = model->notes.items[i].key;
        snprintf(key, sizeof key, "strata.note.%.100s", !strncmp(own, "strata.", 7) ? own + 7 : own);
        entries[n].key = copy_text(ex, key), entries[n++].value = model->notes.items[i].text;
    }
    *out = list;
    return n;
}

static strata_status write_model(exporter *ex, const char *path, strata_error *err) {
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
    const strata_status status = strata_file_write(path, packed, bytes, err);
    free(packed);
    return status;
}

static strata_status walk(exporter *ex, const char *path, val *values, strata_error *err) {
    strata_model *model = ex->model;
    STRATA_TRY(write_inputs(ex, values));
    for (int v = 0; v < model->n_values && !ex->failed; v++) {
        const strata_value *value = model->values[v];
        val taken[STRATA_MAX_LAYER_INPUTS];
        if (value->layer < 0) continue;
        for (int i = 0; i < value->n_inputs; i++) taken[i] = values[value->inputs[i]];
        values[v] = export_layer(ex, &model->list.layers[value->layer], value->number, taken, value->n_inputs);
    }
    STRATA_TRY(strata_graph_check(ex->graph, err));
    if (ex->unsupported.n_bytes)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: ONNX has no counterpart of: %.800s", path, ex->unsupported.bytes);
    write_outputs(ex, values);
    return write_model(ex, path, err);
}

strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err) {
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_model_check_readable(model, "save_onnx", err));
    exporter ex = {.model = model};
    strata_onnx__graph__init(&ex.out);
    ex.context = (strata_layer_context){.declaring = true, .parameters = &ex.parameters};
    ex.values = malloc((size_t)strata_model_all_size(model) * sizeof *ex.values + 1);
    val *values = calloc((size_t)model->n_values, sizeof *values);
    strata_status status = ex.values && values ? strata_model_read_all(model, ex.values, err)
                                               : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (!status) status = strata_graph_create(&ex.graph, err);
    if (!status) ex.graph->activations = model->registry ? model->registry->activations : NULL;
    if (!status) status = walk(&ex, path, values, err);
    strata_graph_destroy(ex.graph);
    strata_parameters_finish(&ex.parameters);
    strata_text_finish(&ex.unsupported);
    while (ex.blocks) {
        block *next = ex.blocks->next;
        free(ex.blocks);
        ex.blocks = next;
    }
    free(values);
    free(ex.values);
    return status;
}
