/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates layers to nodes of ONNX. The table at the end has a row for each kind of layer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx_export.h"

/* ---- windows ---- */

/* Computes the padding before and after each axis, in the order of ONNX. `in` and `out` are the sizes of input and
 * output. */
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

typedef struct conv {
    const char *padding, *activation;
    const int64_t *given, *size, *stride, *dilation;
    int64_t groups;
    int n_axes;
} conv;

/* Adds the convolution. x and the result have channels first. */
static const char *conv_node(strata_onnx_export *ex, const strata_layer *layer, const conv *c, const char *x,
                             const char *kernel, const char *bias, const int64_t *in, const int64_t *out) {
    int64_t pads[4];
    const char *y = strata_onnx_emit(ex, layer->name, "Conv", x, kernel, bias);
    pads_of(c->padding, c->given, in, out, c->size, c->stride, c->dilation, c->n_axes, pads);
    strata_onnx_set_window(ex, strata_onnx_last_node(ex), c->size, c->stride, c->dilation, pads, c->n_axes);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "group", c->groups ? c->groups : 1);
    return y;
}

static const char *conv_export(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x,
                               const strata_onnx_val *y, const conv *c) {
    static const int axes_2d[] = {3, 2, 0, 1}, axes_1d[] = {2, 1, 0};
    const int rank = c->n_axes + 2;
    const char *t = strata_onnx_moved(ex, layer->name, x->name, rank, true);
    t = conv_node(ex, layer, c, t, strata_onnx_put_weight(ex, layer, "kernel", c->n_axes == 2 ? axes_2d : axes_1d, NULL),
                  strata_onnx_put_weight(ex, layer, "bias", NULL, NULL), strata_tensor_shape(x->tensor).dims + 1,
                  strata_tensor_shape(y->tensor).dims + 1);
    /* Softmax is computed along the channels, so they must come last. */
    const bool softmax = c->activation && !strcmp(c->activation, "softmax");
    if (!softmax) t = strata_onnx_activate(ex, layer, c->activation, t);
    t = strata_onnx_moved(ex, layer->name, t, rank, false);
    return softmax ? strata_onnx_activate(ex, layer, c->activation, t) : t;
}

static const char *conv2d(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                          const strata_onnx_val *y) {
    const strata_conv2d_options *o = layer->options;
    (void)n;
    return conv_export(
        ex, layer, x, y,
        &(conv){o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, o->groups, 2});
}

static const char *conv1d(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                          const strata_onnx_val *y) {
    const strata_conv1d_options *o = layer->options;
    (void)n;
    return conv_export(
        ex, layer, x, y,
        &(conv){o->padding, o->activation, o->explicit_padding, &o->kernel_size, &o->stride, &o->dilation, o->groups, 1});
}

/* Converts a kernel (KH, KW, C, M) to (C M, 1, KH, KW), with a group for each channel. */
static const char *depthwise_weight(strata_onnx_export *ex, const strata_layer *layer, const char *name,
                                    int64_t *out_channels) {
    static const int axes[] = {2, 3, 0, 1};
    strata_shape own = {0};
    strata_onnx_elements_of(ex, layer, name, &own);
    *out_channels = own.dims[2];
    const strata_shape shape = STRATA_SHAPE(own.dims[2] * own.dims[3], 1, own.dims[0], own.dims[1]);
    return strata_onnx_put_weight(ex, layer, name, axes, &shape);
}

static const char *depthwise_conv2d(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                    const strata_onnx_val *y) {
    const strata_depthwise_conv2d_options *o = layer->options;
    conv c = {o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    (void)n;
    const char *kernel = depthwise_weight(ex, layer, "kernel", &c.groups),
               *t = strata_onnx_moved(ex, layer->name, x->name, 4, true);
    t = conv_node(ex, layer, &c, t, kernel, strata_onnx_put_weight(ex, layer, "bias", NULL, NULL),
                  strata_tensor_shape(x->tensor).dims + 1, strata_tensor_shape(y->tensor).dims + 1);
    return strata_onnx_activate(ex, layer, o->activation, strata_onnx_moved(ex, layer->name, t, 4, false));
}

static const char *separable_conv2d(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                    const strata_onnx_val *y) {
    const strata_separable_conv2d_options *o = layer->options;
    static const int64_t one[2] = {1, 1};
    conv c = {o->padding, NULL, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    const conv point = {NULL, NULL, o->explicit_padding, one, one, one, 1, 2};
    (void)n;
    const char *kernel = depthwise_weight(ex, layer, "depthwise_kernel", &c.groups);
    const char *t = strata_onnx_moved(ex, layer->name, x->name, 4, true);
    t = conv_node(ex, layer, &c, t, kernel, NULL, strata_tensor_shape(x->tensor).dims + 1,
                  strata_tensor_shape(y->tensor).dims + 1);
    t = conv_node(ex, layer, &point, t, strata_onnx_put_weight(ex, layer, "pointwise_kernel", (const int[]){3, 2, 0, 1}, NULL),
                  strata_onnx_put_weight(ex, layer, "bias", NULL, NULL), one, one);
    return strata_onnx_activate(ex, layer, o->activation, strata_onnx_moved(ex, layer->name, t, 4, false));
}

/* The padding and output_padding follow from the size of the layer's output. */
static const char *conv2d_transpose(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                                    const strata_onnx_val *y) {
    const strata_conv2d_transpose_options *o = layer->options;
    int64_t pads[4], more[2];
    const char *t = strata_onnx_moved(ex, layer->name, x->name, 4, true);
    const strata_shape in = strata_tensor_shape(x->tensor), out = strata_tensor_shape(y->tensor);
    (void)n;
    const bool same = o->padding && !strcmp(o->padding, "same");
    for (int d = 0; d < 2; d++) {
        const int64_t stride = o->stride[d] ? o->stride[d] : 1;
        const int64_t reach = (o->kernel_size[d] - 1) * (o->dilation[d] ? o->dilation[d] : 1) + 1;
        /* The padding that the forward convolution of an image of the size `out` would have: that of "same", or none. */
        const int64_t all = same ? (in.dims[1 + d] - 1) * stride + reach - out.dims[1 + d] : 0;
        pads[d] = all > 0 ? all / 2 : 0;
        pads[2 + d] = all > 0 ? all - all / 2 : 0;
        more[d] = out.dims[1 + d] - ((in.dims[1 + d] - 1) * stride + reach - pads[d] - pads[2 + d]);
    }
    t = strata_onnx_emit(ex, layer->name, "ConvTranspose", t,
                         strata_onnx_put_weight(ex, layer, "kernel", (const int[]){3, 2, 0, 1}, NULL),
                         strata_onnx_put_weight(ex, layer, "bias", NULL, NULL));
    strata_onnx_set_window(ex, strata_onnx_last_node(ex), o->kernel_size, o->stride, o->dilation, pads, 2);
    strata_onnx_set_ints(ex, strata_onnx_last_node(ex), "output_padding", more, 2);
    return strata_onnx_activate(ex, layer, o->activation, strata_onnx_moved(ex, layer->name, t, 4, false));
}

static const char *pool(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                        const strata_onnx_val *y) {
    const bool max = layer->kind->name[0] == 'm', two = strchr(layer->kind->name, '2');
    const strata_pool2d_options *o = layer->options;
    const strata_pool1d_options *one = layer->options;
    const int axes = two ? 2 : 1;
    const int64_t *size = two ? o->size : &one->size, *given = two ? o->stride : &one->stride;
    int64_t stride[2], pads[4];
    (void)n;
    for (int d = 0; d < axes; d++) stride[d] = given[d] ? given[d] : size[d];
    const char *t = strata_onnx_emit(ex, layer->name, max ? "MaxPool" : "AveragePool",
                                     strata_onnx_moved(ex, layer->name, x->name, axes + 2, true), NULL, NULL);
    pads_of(two ? o->padding : one->padding, two ? o->explicit_padding : one->explicit_padding,
            strata_tensor_shape(x->tensor).dims + 1, strata_tensor_shape(y->tensor).dims + 1, size, stride, NULL, axes, pads);
    /* This must be the node of the pool: a transpose, if one was needed, was added before it. */
    strata_onnx_set_window(ex, strata_onnx_last_node(ex), size, stride, NULL, pads, axes);
    return strata_onnx_moved(ex, layer->name, t, axes + 2, false);
}

static const char *global_pool(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                               const strata_onnx_val *y) {
    int64_t axes[STRATA_MAX_RANK];
    const int rank = strata_tensor_shape(x->tensor).rank;
    (void)n, (void)y;
    for (int d = 1; d < rank - 1; d++) axes[d - 1] = d;
    if (rank < 3) return x->name;
    const char *t =
        strata_onnx_emit(ex, layer->name, strstr(layer->kind->name, "max") ? "ReduceMax" : "ReduceMean", x->name, NULL, NULL);
    strata_onnx_set_ints(ex, strata_onnx_last_node(ex), "axes", axes, rank - 2);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "keepdims", 0);
    return t;
}

/* ---- other layers ---- */

static const char *dense(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                         const strata_onnx_val *y) {
    const strata_dense_options *o = layer->options;
    const char *t =
        strata_onnx_emit(ex, layer->name, "MatMul", x->name, strata_onnx_put_weight(ex, layer, "kernel", NULL, NULL), NULL);
    (void)n, (void)y;
    if (!o->no_bias)
        t = strata_onnx_emit(ex, layer->name, "Add", t, strata_onnx_put_weight(ex, layer, "bias", NULL, NULL), NULL);
    return strata_onnx_activate(ex, layer, o->activation, t);
}

static const char *activation(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                              const strata_onnx_val *y) {
    (void)n, (void)y;
    return strata_onnx_activate(ex, layer, ((const strata_activation_options *)layer->options)->function, x->name);
}

/* The node computes nothing in predictions. It stores the rate for readers of the file. */
static const char *dropout(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                           const strata_onnx_val *y) {
    (void)n, (void)y;
    return strata_onnx_emit(ex, layer->name, "Dropout", x->name,
                            strata_onnx_put_number(ex, layer->name, ((const strata_dropout_options *)layer->options)->rate),
                            NULL);
}

static const char *identity(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                            const strata_onnx_val *y) {
    (void)n, (void)y;
    return strata_onnx_emit(ex, layer->name, "Identity", x->name, NULL, NULL);
}

static const char *flatten(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                           const strata_onnx_val *y) {
    (void)n, (void)y;
    const char *t = strata_onnx_emit(ex, layer->name, "Flatten", x->name, NULL, NULL);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "axis", 1);
    return t;
}

static const char *reshape(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                           const strata_onnx_val *y) {
    const strata_shape shape = ((const strata_reshape_options *)layer->options)->shape;
    int64_t to[STRATA_MAX_RANK + 1] = {0};
    (void)n, (void)y;
    memcpy(to + 1, shape.dims, (size_t)shape.rank * sizeof *to);
    return strata_onnx_reshaped(ex, layer->name, x->name, to, shape.rank + 1);
}

static const char *embedding(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                             const strata_onnx_val *y) {
    (void)n, (void)y;
    if (((const strata_embedding_options *)layer->options)->mask_zero) strata_onnx_refuse(ex, layer, ": mask_zero");
    return strata_onnx_emit(ex, layer->name, "Gather", strata_onnx_put_weight(ex, layer, "embeddings", NULL, NULL), x->name,
                            NULL);
}

static const char *batch_norm(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                              const strata_onnx_val *y) {
    const strata_batch_norm_options *o = layer->options;
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const int rank = strata_tensor_shape(x->tensor).rank;
    const char *inputs[5] = {strata_onnx_moved(ex, layer->name, x->name, rank, true)},
               *t = strata_onnx_new_name(ex, layer->name);
    (void)n, (void)y;
    for (int i = 0; i < 4; i++) inputs[1 + i] = strata_onnx_put_weight(ex, layer, names[i], NULL, NULL);
    StrataOnnx__Node *node = strata_onnx_add_node(ex, "BatchNormalization", inputs, 5, t);
    strata_onnx_set_float(ex, node, "epsilon", strata_number_or(o->epsilon, 1e-3));
    strata_onnx_set_float(ex, node, "momentum", o->no_average ? 0 : strata_number_or(o->momentum, 0.99));
    const bool softmax = o->activation && !strcmp(o->activation, "softmax");
    if (!softmax) t = strata_onnx_activate(ex, layer, o->activation, t);
    t = strata_onnx_moved(ex, layer->name, t, rank, false);
    return softmax ? strata_onnx_activate(ex, layer, o->activation, t) : t;
}

static const char *layer_norm(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                              const strata_onnx_val *y) {
    const double epsilon = ((const strata_layer_norm_options *)layer->options)->epsilon;
    (void)n, (void)y;
    const char *t =
        strata_onnx_emit(ex, layer->name, "LayerNormalization", x->name, strata_onnx_put_weight(ex, layer, "gamma", NULL, NULL),
                         strata_onnx_put_weight(ex, layer, "beta", NULL, NULL));
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "axis", -1);
    strata_onnx_set_float(ex, strata_onnx_last_node(ex), "epsilon", strata_number_or(epsilon, 1e-3));
    return t;
}

/* Becomes an instance normalization, of a tensor in which each group is one channel. */
static const char *group_norm(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                              const strata_onnx_val *y) {
    const strata_group_norm_options *o = layer->options;
    const strata_shape shape = strata_tensor_shape(x->tensor);
    const int64_t channels = shape.dims[shape.rank - 1], groups = o->groups == -1 ? channels : o->groups ? o->groups : 32;
    const char *base = layer->name, *scale = strata_onnx_new_name(ex, base), *shift = strata_onnx_new_name(ex, base);
    int64_t back[STRATA_MAX_RANK];
    float *ones = strata_onnx_add_initializer(ex, scale, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(groups), NULL);
    (void)n, (void)y;
    for (int64_t g = 0; ones && g < groups; g++) ones[g] = 1;
    strata_onnx_add_initializer(ex, shift, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(groups), NULL); /* the shift is zeros */
    const char *t = strata_onnx_moved(ex, base, x->name, shape.rank, true);
    t = strata_onnx_reshaped(ex, base, t, (const int64_t[]){0, groups, -1}, 3);
    t = strata_onnx_emit(ex, base, "InstanceNormalization", t, scale, shift);
    strata_onnx_set_float(ex, strata_onnx_last_node(ex), "epsilon", strata_number_or(o->epsilon, 1e-3));
    back[0] = -1, back[1] = channels;
    for (int d = 2; d < shape.rank; d++) back[d] = shape.dims[d - 1];
    t = strata_onnx_moved(ex, base, strata_onnx_reshaped(ex, base, t, back, shape.rank), shape.rank, false);
    if (!o->no_scale) t = strata_onnx_emit(ex, base, "Mul", t, strata_onnx_put_weight(ex, layer, "gamma", NULL, NULL), NULL);
    return o->no_center ? t : strata_onnx_emit(ex, base, "Add", t, strata_onnx_put_weight(ex, layer, "beta", NULL, NULL), NULL);
}

static const char *rms_norm(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                            const strata_onnx_val *y) {
    const strata_rms_norm_options *o = layer->options;
    const char *base = layer->name, *t = strata_onnx_emit(ex, base, "Mul", x->name, x->name, NULL);
    (void)n, (void)y;
    t = strata_onnx_emit(ex, base, "ReduceMean", t, NULL, NULL);
    strata_onnx_set_ints(ex, strata_onnx_last_node(ex), "axes", (const int64_t[]){-1}, 1);
    t = strata_onnx_emit(ex, base, "Add", t, strata_onnx_put_number(ex, base, strata_number_or(o->epsilon, 1e-6)), NULL);
    t = strata_onnx_emit(ex, base, "Div", x->name, strata_onnx_emit(ex, base, "Sqrt", t, NULL, NULL), NULL);
    return o->no_scale ? t : strata_onnx_emit(ex, base, "Mul", t, strata_onnx_put_weight(ex, layer, "gamma", NULL, NULL), NULL);
}

static const char *merge(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                         const strata_onnx_val *y) {
    const char *kind = layer->kind->name, *t = x[0].name, *names[STRATA_MAX_LAYER_INPUTS];
    (void)y;
    if (!strcmp(kind, "concat")) {
        const int64_t axis = ((const strata_concat_options *)layer->options)->axis;
        for (int i = 0; i < n; i++) names[i] = x[i].name;
        t = strata_onnx_new_name(ex, layer->name);
        strata_onnx_set_int(ex, strata_onnx_add_node(ex, "Concat", names, n, t), "axis", axis ? axis : -1);
        return t;
    }
    for (int i = 1; i < n; i++) t = strata_onnx_emit(ex, layer->name, *kind == 'a' ? "Add" : "Mul", t, x[i].name, NULL);
    return t;
}

/* Converts columns (K, gates U) to rows (gates U, K) in ONNX's order of gates: i o f c for an LSTM, z r h for a GRU. */
static void gate_rows(const float *columns, const int *order, int gates, int64_t units, int64_t k, float *out) {
    for (int g = 0; g < gates; g++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < k; i++) out[(g * units + u) * k + i] = columns[i * gates * units + order[g] * units + u];
}

static const char *recurrent(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                             const strata_onnx_val *y) {
    static const int orders[2][4] = {{0, 1, 2, 0}, {0, 3, 1, 2}};
    static const struct {
        const char *name, *onnx;
    } functions_of[] = {{"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}, {"relu", "Relu"}, {"linear", "Affine"}};
    const strata_recurrent_layer_options *o = layer->options;
    const bool lstm = layer->kind->name[0] == 'l', both = o->bidirectional;
    const int gates = lstm ? 4 : 3, *order = orders[lstm], directions = both ? 2 : 1;
    const int64_t units = o->units, width = gates * units, k = strata_tensor_shape(x->tensor).dims[2];
    const char *base = layer->name, *w = strata_onnx_new_name(ex, base), *r = strata_onnx_new_name(ex, base),
               *b = strata_onnx_new_name(ex, base);
    float *rows = strata_onnx_add_initializer(ex, w, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, width, k), NULL);
    float *matrix = strata_onnx_add_initializer(ex, r, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, width, units), NULL);
    float *bias = strata_onnx_add_initializer(ex, b, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, 2 * width), NULL);
    (void)n, (void)y;
    for (int way = 0; way < directions && !ex->failed; way++) {
        char name[48];
        strata_shape shape;
        const char *prefix = way ? "backward_" : "";
        snprintf(name, sizeof name, "%skernel", prefix);
        gate_rows(strata_onnx_elements_of(ex, layer, name, &shape), order, gates, units, k, rows + way * width * k);
        snprintf(name, sizeof name, "%srecurrent_kernel", prefix);
        gate_rows(strata_onnx_elements_of(ex, layer, name, &shape), order, gates, units, units, matrix + way * width * units);
        snprintf(name, sizeof name, "%sbias", prefix);
        const float *given = strata_onnx_elements_of(ex, layer, name, &shape);
        for (int half = 0; given && half < (lstm || o->no_reset_after ? 1 : 2); half++)
            for (int g = 0; g < gates; g++)
                for (int64_t u = 0; u < units; u++)
                    bias[way * 2 * width + half * width + g * units + u] = given[half * width + order[g] * units + u];
    }
    const char *inputs[] = {strata_onnx_transposed(ex, base, x->name, (const int64_t[]){1, 0, 2}, 3), w, r, b};
    const char *all = strata_onnx_new_name(ex, base), *last = strata_onnx_new_name(ex, base);
    StrataOnnx__Node *node = strata_onnx_add_node(ex, lstm ? "LSTM" : "GRU", inputs, 4, all);
    if (!node) return all;
    node->output = strata_onnx_take(ex, 2 * sizeof(*node->output));
    if (!node->output) return all;
    node->n_output = 2;
    node->output[0] = (char *)(o->return_sequences ? all : ""), node->output[1] = (char *)(o->return_sequences ? "" : last);
    strata_onnx_set_int(ex, node, "hidden_size", units);
    if (!lstm) strata_onnx_set_int(ex, node, "linear_before_reset", !o->no_reset_after);
    if (both) strata_onnx_set_text(ex, node, "direction", "bidirectional");
    if (!both && o->go_backwards) strata_onnx_set_text(ex, node, "direction", "reverse");
    const bool usual = (!o->activation || !strcmp(o->activation, "tanh")) &&
                       (!o->recurrent_activation || !strcmp(o->recurrent_activation, "sigmoid"));
    if (!usual) {
        StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, node, "activations", 8);
        const char *of[] = {o->recurrent_activation ? o->recurrent_activation : "sigmoid",
                            o->activation ? o->activation : "tanh", o->activation ? o->activation : "tanh"};
        const int each = lstm ? 3 : 2;
        if (a) a->strings = strata_onnx_take(ex, (size_t)(each * directions) * sizeof *a->strings);
        for (int i = 0; a && a->strings && i < each * directions; i++)
            for (size_t f = 0; f < sizeof functions_of / sizeof *functions_of; f++) {
                if (strcmp(functions_of[f].name, of[i % each])) continue;
                if (f == 3) strata_onnx_refuse(ex, layer, ": a linear activation");
                a->strings[i] = (ProtobufCBinaryData){strlen(functions_of[f].onnx), (uint8_t *)functions_of[f].onnx};
                a->n_strings = (size_t)i + 1;
            }
    }
    if (o->go_backwards && o->return_sequences) strata_onnx_refuse(ex, layer, ": go_backwards with return_sequences");
    if (both && strcmp(o->bidirectional, "concat")) strata_onnx_refuse(ex, layer, ": bidirectional other than concat");
    if (o->return_sequences) /* (T, D, N, U) -> (N, T, D U) */
        return strata_onnx_reshaped(ex, base, strata_onnx_transposed(ex, base, all, (const int64_t[]){2, 0, 1, 3}, 4),
                                    (const int64_t[]){0, 0, directions * units}, 3);
    return strata_onnx_reshaped(ex, base, strata_onnx_transposed(ex, base, last, (const int64_t[]){1, 0, 2}, 3),
                                (const int64_t[]){0, directions * units}, 2);
}

static const char *attention(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                             const strata_onnx_val *y) {
    static const char *const names[] = {"query", "key", "value", "output"};
    const strata_multi_head_attention_options *o = layer->options;
    const strata_shape shape = strata_tensor_shape(x->tensor);
    const int64_t t = shape.dims[1], key_dim = o->key_dim ? o->key_dim : shape.dims[2] / o->heads;
    const char *base = layer->name, *parts[4] = {x->name, x->name, x->name};
    char name[48];
    (void)n, (void)y;
    for (int i = 0; i < 4; i++) {
        if (i == 3) {
            const char *scores = strata_onnx_emit(ex, base, "MatMul", parts[0], parts[1], NULL);
            scores =
                strata_onnx_emit(ex, base, "Mul", scores, strata_onnx_put_number(ex, base, 1 / sqrt((double)key_dim)), NULL);
            if (o->causal) { /* adds a number so low that its exponential is 0 */
                const char *mask = strata_onnx_new_name(ex, base);
                float *places = strata_onnx_add_initializer(ex, mask, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(t, t), NULL);
                for (int64_t a = 0; places && a < t; a++)
                    for (int64_t b = a + 1; b < t; b++) places[a * t + b] = -1e30f;
                scores = strata_onnx_emit(ex, base, "Add", scores, mask, NULL);
            }
            scores = strata_onnx_emit(ex, base, "Softmax", scores, NULL, NULL);
            strata_onnx_set_int(ex, strata_onnx_last_node(ex), "axis", -1);
            parts[3] = strata_onnx_transposed(ex, base, strata_onnx_emit(ex, base, "MatMul", scores, parts[2], NULL),
                                              (const int64_t[]){0, 2, 1, 3}, 4);
            parts[3] = strata_onnx_reshaped(ex, base, parts[3], (const int64_t[]){0, t, o->heads * key_dim}, 3);
        }
        snprintf(name, sizeof name, "%s_kernel", names[i]);
        parts[i] = strata_onnx_emit(ex, base, "MatMul", parts[i], strata_onnx_put_weight(ex, layer, name, NULL, NULL), NULL);
        snprintf(name, sizeof name, "%s_bias", names[i]);
        if (!o->no_bias)
            parts[i] = strata_onnx_emit(ex, base, "Add", parts[i], strata_onnx_put_weight(ex, layer, name, NULL, NULL), NULL);
        if (i == 3) break;
        parts[i] = strata_onnx_reshaped(ex, base, parts[i], (const int64_t[]){0, t, o->heads, key_dim}, 4);
        parts[i] = strata_onnx_transposed(ex, base, parts[i],
                                          i == 1 ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3}, 4);
    }
    return parts[3];
}

static const char *weights(strata_onnx_export *ex, const strata_layer *layer, const strata_onnx_val *x, int n,
                           const strata_onnx_val *y) {
    const strata_weights_options *o = layer->options;
    const char *name = strata_onnx_put_weight(ex, layer, "value", NULL, NULL);
    (void)x, (void)n, (void)y;
    if (!o->dtype || !strcmp(o->dtype, "f32")) return name;
    const char *cast = strata_onnx_emit(ex, layer->name, "Cast", name, NULL, NULL);
    strata_onnx_set_int(ex, strata_onnx_last_node(ex), "to",
                        !strcmp(o->dtype, "bool") ? STRATA_ONNX_TYPE_BOOL : STRATA_ONNX_TYPE_INT32);
    return cast;
}

/* ---- the table ---- */

static const struct {
    const char *kind;
    strata_onnx_layer_export export;
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
             {"add", merge},
             {"multiply", merge},
             {"concat", merge},
             {"layer_norm", layer_norm},
             {"group_norm", group_norm},
             {"rms_norm", rms_norm},
             {"lstm", recurrent},
             {"gru", recurrent},
             {"multi_head_attention", attention},
             {"weights", weights},
             {"residual", strata_onnx_export_residual},
             {"op", strata_onnx_export_op},
             {"print", identity}};

strata_onnx_layer_export strata_onnx_find_layer(const char *kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind)) return kinds[i].export;
    return NULL;
}
