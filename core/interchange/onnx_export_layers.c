/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates layers to nodes of ONNX. onnx.def has a row for each kind of layer. */
#include <math.h>
#include <stdio.h>

#include "core/interchange/onnx_export.h"

/* ---- ops ---- */

/* The ops that become one ONNX node with the same inputs, and have no numbers. */
static const struct {
    const char *op, *onnx;
} same_ops[] = {
#define STRATA_ONNX_BOTH(onnx, n_needed, function, op) {#op, #onnx},
#include "core/interchange/onnx.def"
};
/* The ops whose numbers become an attribute, which is a list or one number. */
static const struct {
    const char *op, *onnx, *attribute;
    char form;
} attribute_ops[] = {{"leaky_relu", "LeakyRelu", "alpha", 'f'}, {"elu", "Elu", "alpha", 'f'},
                     {"transpose", "Transpose", "perm", 'l'},   {"gather", "Gather", "axis", 'i'},
                     {"concat", "Concat", "axis", 'i'},         {"reduce_mean", "ReduceMean", "axes", 'r'},
                     {"reduce_max", "ReduceMax", "axes", 'r'},  {"reduce_min", "ReduceMin", "axes", 'r'}};

/* Adds the node of an op of these tables, whose numbers are n integers, or `value`. NULL: the op is in none of them. */
static const char *table_node(strata_onnx_export *ex, const char *op, const char *const *inputs, int n_inputs, double value,
                              const int64_t *numbers, int n, bool keep) {
    for (size_t i = 0; i < sizeof same_ops / sizeof *same_ops; i++) {
        if (strcmp(same_ops[i].op, op)) continue;
        const char *y = strata_onnx_add_node(ex, same_ops[i].onnx, inputs, n_inputs, NULL);
        if (strstr(op, "softmax")) strata_onnx_set_int(ex, "axis", -1);
        return y;
    }
    for (size_t i = 0; i < sizeof attribute_ops / sizeof *attribute_ops; i++) {
        if (strcmp(attribute_ops[i].op, op)) continue;
        const char *y = strata_onnx_add_node(ex, attribute_ops[i].onnx, inputs, n_inputs, NULL);
        const char form = attribute_ops[i].form, *attribute = attribute_ops[i].attribute;
        if (form == 'f') strata_onnx_set_float(ex, attribute, value);
        if (form == 'i') strata_onnx_set_int(ex, attribute, numbers[0]);
        if (form == 'l' || (form == 'r' && n)) strata_onnx_set_ints(ex, attribute, numbers, n);
        if (form == 'r') strata_onnx_set_int(ex, "keepdims", keep);
        return y;
    }
    return NULL;
}

const char *strata_onnx_activate(strata_onnx_export *ex, const char *function, const char *x) {
    /* Those that are ops. A function of the program's own may have the name of another op. */
    static const char *const ops[] = {"relu", "tanh", "sigmoid", "softmax", "softplus", "elu", "leaky_relu"};
    if (!function || !*function) return x;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) /* the slope of leaky_relu, and the scale of elu */
        if (!strcmp(function, ops[i]))
            return table_node(ex, function, &x, 1, !strcmp(function, "leaky_relu") ? 0.2 : 1, NULL, 0, false);
    if (!strcmp(function, "softsign")) return strata_onnx_one(ex, "Softsign", x);
    if (!strcmp(function, "silu") || !strcmp(function, "swish"))
        return strata_onnx_two(ex, "Mul", x, strata_onnx_one(ex, "Sigmoid", x));
    if (!strcmp(function, "gelu") || !strcmp(function, "gelu_tanh")) { /* ONNX has a Gelu node only from opset 20 on */
        const bool exact = function[4] == 0;
        const char *t = x;
        if (!exact) {
            t = strata_onnx_two(ex, "Mul", strata_onnx_two(ex, "Mul", x, x), x);
            t = strata_onnx_two(ex, "Add", x, strata_onnx_two(ex, "Mul", t, strata_onnx_put_number(ex, 0.044715)));
        }
        t = strata_onnx_two(ex, "Mul", t, strata_onnx_put_number(ex, exact ? 0.7071067811865476 : 0.7978845608028654));
        t = strata_onnx_two(ex, "Add", strata_onnx_one(ex, exact ? "Erf" : "Tanh", t), strata_onnx_put_number(ex, 1));
        return strata_onnx_two(ex, "Mul", strata_onnx_two(ex, "Mul", x, strata_onnx_put_number(ex, 0.5)), t);
    }
    strata_onnx_refuse(ex, ": a function of the program's own");
    return x;
}

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
static const char *conv_node(strata_onnx_export *ex, const conv *c, const char *x, const char *kernel, const char *bias,
                             const int64_t *in, const int64_t *out) {
    int64_t pads[4];
    const char *y = strata_onnx_add_node(ex, "Conv", (const char *[]){x, kernel, bias}, 3, NULL);
    pads_of(c->padding, c->given, in, out, c->size, c->stride, c->dilation, c->n_axes, pads);
    strata_onnx_set_window(ex, c->size, c->stride, c->dilation, pads, c->n_axes);
    strata_onnx_set_int(ex, "group", c->groups ? c->groups : 1);
    return y;
}

static const char *conv_layer(strata_onnx_export *ex, const conv *c, const char *kernel) {
    const strata_shape in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
    const char *x = strata_onnx_moved(ex, strata_onnx_x(ex, 0), c->n_axes + 2, true);
    const char *y = conv_node(ex, c, x, kernel, strata_onnx_put_weight(ex, "bias"), in.dims + 1, out.dims + 1);
    return strata_onnx_activate_behind(ex, c->activation, y, c->n_axes + 2);
}

const char *strata_onnx_layer_conv2d(strata_onnx_export *ex) {
    const strata_conv2d_options *o = ex->call->options;
    const conv c = {o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, o->groups, 2};
    return conv_layer(ex, &c, strata_onnx_put_weight_as(ex, "kernel", (const int[]){3, 2, 0, 1}, NULL));
}

const char *strata_onnx_layer_conv1d(strata_onnx_export *ex) {
    const strata_conv1d_options *o = ex->call->options;
    const conv c = {o->padding, o->activation, o->explicit_padding, &o->kernel_size, &o->stride, &o->dilation, o->groups, 1};
    return conv_layer(ex, &c, strata_onnx_put_weight_as(ex, "kernel", (const int[]){2, 1, 0}, NULL));
}

/* Converts a kernel (KH, KW, C, M) to (C M, 1, KH, KW), with a group for each channel. */
static const char *depthwise_weight(strata_onnx_export *ex, const char *name, int64_t *out_channels) {
    strata_shape own = {0};
    strata_onnx_elements_of(ex, name, &own);
    *out_channels = own.dims[2];
    const strata_shape shape = STRATA_SHAPE(own.dims[2] * own.dims[3], 1, own.dims[0], own.dims[1]);
    return strata_onnx_put_weight_as(ex, name, (const int[]){2, 3, 0, 1}, &shape);
}

const char *strata_onnx_layer_depthwise_conv2d(strata_onnx_export *ex) {
    const strata_depthwise_conv2d_options *o = ex->call->options;
    conv c = {o->padding, o->activation, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    const char *kernel = depthwise_weight(ex, "kernel", &c.groups);
    return conv_layer(ex, &c, kernel);
}

const char *strata_onnx_layer_separable_conv2d(strata_onnx_export *ex) {
    const strata_separable_conv2d_options *o = ex->call->options;
    static const int64_t one[2] = {1, 1};
    conv c = {o->padding, NULL, o->explicit_padding, o->kernel_size, o->stride, o->dilation, 1, 2};
    const conv point = {NULL, NULL, o->explicit_padding, one, one, one, 1, 2};
    const strata_shape in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
    const char *kernel = depthwise_weight(ex, "depthwise_kernel", &c.groups);
    const char *t = strata_onnx_moved(ex, strata_onnx_x(ex, 0), 4, true);
    t = conv_node(ex, &c, t, kernel, NULL, in.dims + 1, out.dims + 1);
    t = conv_node(ex, &point, t, strata_onnx_put_weight_as(ex, "pointwise_kernel", (const int[]){3, 2, 0, 1}, NULL),
                  strata_onnx_put_weight(ex, "bias"), one, one);
    return strata_onnx_activate_behind(ex, o->activation, t, 4);
}

/* The padding and output_padding follow from the size of the layer's output. */
const char *strata_onnx_layer_conv2d_transpose(strata_onnx_export *ex) {
    const strata_conv2d_transpose_options *o = ex->call->options;
    int64_t pads[4], more[2];
    const strata_shape in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
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
    const char *inputs[] = {strata_onnx_moved(ex, strata_onnx_x(ex, 0), 4, true),
                            strata_onnx_put_weight_as(ex, "kernel", (const int[]){3, 2, 0, 1}, NULL),
                            strata_onnx_put_weight(ex, "bias")};
    const char *t = strata_onnx_add_node(ex, "ConvTranspose", inputs, 3, NULL);
    strata_onnx_set_window(ex, o->kernel_size, o->stride, o->dilation, pads, 2);
    strata_onnx_set_ints(ex, "output_padding", more, 2);
    return strata_onnx_activate_behind(ex, o->activation, t, 4);
}

const char *strata_onnx_layer_pool(strata_onnx_export *ex) {
    const char *kind = ex->call->kind;
    const bool max = *kind == 'm', two = strchr(kind, '2');
    const strata_pool2d_options *o = ex->call->options;
    const strata_pool1d_options *one = ex->call->options;
    const int axes = two ? 2 : 1;
    const int64_t *size = two ? o->size : &one->size, *given = two ? o->stride : &one->stride;
    int64_t stride[2], pads[4];
    const strata_shape in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
    for (int d = 0; d < axes; d++) stride[d] = given[d] ? given[d] : size[d];
    const char *x = strata_onnx_moved(ex, strata_onnx_x(ex, 0), axes + 2, true);
    const char *t = strata_onnx_one(ex, max ? "MaxPool" : "AveragePool", x);
    pads_of(two ? o->padding : one->padding, two ? o->explicit_padding : one->explicit_padding, in.dims + 1, out.dims + 1, size,
            stride, NULL, axes, pads);
    strata_onnx_set_window(ex, size, stride, NULL, pads, axes);
    return strata_onnx_moved(ex, t, axes + 2, false);
}

const char *strata_onnx_layer_global_pool(strata_onnx_export *ex) {
    int64_t axes[STRATA_MAX_RANK];
    const int rank = strata_onnx_shape_of(ex, 0).rank;
    if (rank < 3) return strata_onnx_x(ex, 0);
    for (int d = 1; d < rank - 1; d++) axes[d - 1] = d;
    const char *t = strata_onnx_one(ex, strstr(ex->call->kind, "max") ? "ReduceMax" : "ReduceMean", strata_onnx_x(ex, 0));
    strata_onnx_set_ints(ex, "axes", axes, rank - 2);
    strata_onnx_set_int(ex, "keepdims", 0);
    return t;
}

/* ---- other layers ---- */

/* t parameter, or t if the layer has no such parameter. */
static const char *times(strata_onnx_export *ex, const char *t, const char *parameter) {
    const char *weight = strata_onnx_put_weight(ex, parameter);
    return weight ? strata_onnx_two(ex, "Mul", t, weight) : t;
}

/* t + parameter, or t if the layer has no such parameter. */
static const char *plus(strata_onnx_export *ex, const char *t, const char *parameter) {
    const char *weight = strata_onnx_put_weight(ex, parameter);
    return weight ? strata_onnx_two(ex, "Add", t, weight) : t;
}

const char *strata_onnx_layer_dense(strata_onnx_export *ex) {
    const char *t = strata_onnx_two(ex, "MatMul", strata_onnx_x(ex, 0), strata_onnx_put_weight(ex, "kernel"));
    return strata_onnx_activate(ex, ((const strata_dense_options *)ex->call->options)->activation, plus(ex, t, "bias"));
}

const char *strata_onnx_layer_activation(strata_onnx_export *ex) {
    return strata_onnx_activate(ex, ((const strata_activation_options *)ex->call->options)->function, strata_onnx_x(ex, 0));
}

/* The node computes nothing in predictions. It stores the rate for readers of the file. */
const char *strata_onnx_layer_dropout(strata_onnx_export *ex) {
    const double rate = ((const strata_dropout_options *)ex->call->options)->rate;
    return strata_onnx_two(ex, "Dropout", strata_onnx_x(ex, 0), strata_onnx_put_number(ex, rate));
}

const char *strata_onnx_layer_identity(strata_onnx_export *ex) {
    return strata_onnx_one(ex, "Identity", strata_onnx_x(ex, 0));
}

const char *strata_onnx_layer_flatten(strata_onnx_export *ex) {
    const char *t = strata_onnx_one(ex, "Flatten", strata_onnx_x(ex, 0));
    strata_onnx_set_int(ex, "axis", 1);
    return t;
}

const char *strata_onnx_layer_reshape(strata_onnx_export *ex) {
    const strata_shape shape = ((const strata_reshape_options *)ex->call->options)->shape;
    int64_t to[STRATA_MAX_RANK + 1] = {0};
    memcpy(to + 1, shape.dims, (size_t)shape.rank * sizeof *to);
    return strata_onnx_reshaped(ex, strata_onnx_x(ex, 0), to, shape.rank + 1);
}

const char *strata_onnx_layer_embedding(strata_onnx_export *ex) {
    if (((const strata_embedding_options *)ex->call->options)->mask_zero) strata_onnx_refuse(ex, ": mask_zero");
    return strata_onnx_two(ex, "Gather", strata_onnx_put_weight(ex, "embeddings"), strata_onnx_x(ex, 0));
}

const char *strata_onnx_layer_batch_norm(strata_onnx_export *ex) {
    const strata_batch_norm_options *o = ex->call->options;
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const int rank = strata_onnx_shape_of(ex, 0).rank;
    const char *inputs[5] = {strata_onnx_moved(ex, strata_onnx_x(ex, 0), rank, true)};
    for (int i = 0; i < 4; i++) inputs[1 + i] = strata_onnx_put_weight(ex, names[i]);
    const char *t = strata_onnx_add_node(ex, "BatchNormalization", inputs, 5, NULL);
    strata_onnx_set_float(ex, "epsilon", strata_number_or(o->epsilon, 1e-3));
    strata_onnx_set_float(ex, "momentum", o->no_average ? 0 : strata_number_or(o->momentum, 0.99));
    return strata_onnx_activate_behind(ex, o->activation, t, rank);
}

const char *strata_onnx_layer_layer_norm(strata_onnx_export *ex) {
    const double epsilon = ((const strata_layer_norm_options *)ex->call->options)->epsilon;
    const char *inputs[] = {strata_onnx_x(ex, 0), strata_onnx_put_weight(ex, "gamma"), strata_onnx_put_weight(ex, "beta")};
    const char *t = strata_onnx_add_node(ex, "LayerNormalization", inputs, 3, NULL);
    strata_onnx_set_int(ex, "axis", -1);
    strata_onnx_set_float(ex, "epsilon", strata_number_or(epsilon, 1e-3));
    return t;
}

/* Becomes an instance normalization, of a tensor in which each group is one channel. */
const char *strata_onnx_layer_group_norm(strata_onnx_export *ex) {
    const strata_group_norm_options *o = ex->call->options;
    const strata_shape shape = strata_onnx_shape_of(ex, 0);
    const int64_t channels = shape.dims[shape.rank - 1], groups = o->groups == -1 ? channels : o->groups ? o->groups : 32;
    const char *scale = strata_onnx_new_name(ex), *shift = strata_onnx_new_name(ex);
    int64_t back[STRATA_MAX_RANK] = {-1, channels};
    float *ones = strata_onnx_add_initializer(ex, scale, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(groups), NULL);
    for (int64_t g = 0; ones && g < groups; g++) ones[g] = 1;
    strata_onnx_add_initializer(ex, shift, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(groups), NULL); /* the shift is zeros */
    const char *t = strata_onnx_moved(ex, strata_onnx_x(ex, 0), shape.rank, true);
    t = strata_onnx_reshaped(ex, t, (const int64_t[]){0, groups, -1}, 3);
    t = strata_onnx_add_node(ex, "InstanceNormalization", (const char *[]){t, scale, shift}, 3, NULL);
    strata_onnx_set_float(ex, "epsilon", strata_number_or(o->epsilon, 1e-3));
    for (int d = 2; d < shape.rank; d++) back[d] = shape.dims[d - 1];
    t = strata_onnx_moved(ex, strata_onnx_reshaped(ex, t, back, shape.rank), shape.rank, false);
    return plus(ex, times(ex, t, "gamma"), "beta");
}

const char *strata_onnx_layer_rms_norm(strata_onnx_export *ex) {
    const strata_rms_norm_options *o = ex->call->options;
    const char *x = strata_onnx_x(ex, 0), *t = strata_onnx_one(ex, "ReduceMean", strata_onnx_two(ex, "Mul", x, x));
    strata_onnx_set_ints(ex, "axes", (const int64_t[]){-1}, 1);
    t = strata_onnx_two(ex, "Add", t, strata_onnx_put_number(ex, strata_number_or(o->epsilon, 1e-6)));
    return times(ex, strata_onnx_two(ex, "Div", x, strata_onnx_one(ex, "Sqrt", t)), "gamma");
}

const char *strata_onnx_layer_merge(strata_onnx_export *ex) {
    const char *op = !strcmp(ex->call->kind, "add") ? "Add" : "Mul", *t = strata_onnx_x(ex, 0);
    for (int i = 1; i < ex->call->n_inputs; i++) t = strata_onnx_two(ex, op, t, strata_onnx_x(ex, i));
    return t;
}

const char *strata_onnx_layer_concat(strata_onnx_export *ex) {
    const int64_t axis = ((const strata_concat_options *)ex->call->options)->axis;
    const char *names[STRATA_MAX_LAYER_INPUTS];
    for (int i = 0; i < ex->call->n_inputs; i++) names[i] = strata_onnx_x(ex, i);
    const char *t = strata_onnx_add_node(ex, "Concat", names, ex->call->n_inputs, NULL);
    strata_onnx_set_int(ex, "axis", axis ? axis : -1);
    return t;
}

/* Converts columns (K, gates U) to rows (gates U, K) in ONNX's order of gates: i o f c for an LSTM, z r h for a GRU. */
static void gate_rows(const float *columns, const int *order, int gates, int64_t units, int64_t k, float *out) {
    for (int g = 0; g < gates; g++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < k; i++) out[(g * units + u) * k + i] = columns[i * gates * units + order[g] * units + u];
}

/* Adds the attribute "activations": those of the gates, of the candidate and, for an LSTM, of the output, for each
 * direction. */
static void set_activations(strata_onnx_export *ex, const strata_recurrent_layer_options *o, int each, int directions) {
    static const struct {
        const char *name, *onnx;
    } functions[] = {{"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}, {"relu", "Relu"}, {"linear", "Affine"}};
    const char *recurrent = o->recurrent_activation ? o->recurrent_activation : "sigmoid";
    const char *activation = o->activation ? o->activation : "tanh", *of[] = {recurrent, activation, activation};
    if (!strcmp(activation, "tanh") && !strcmp(recurrent, "sigmoid")) return;
    StrataOnnx__Attribute *a = strata_onnx_add_attribute(ex, "activations", STRATA_ONNX_ATTRIBUTE_STRINGS);
    if (a) a->strings = strata_onnx_take(ex, (size_t)(each * directions) * sizeof *a->strings);
    for (int i = 0; a && a->strings && i < each * directions; i++)
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
            if (strcmp(functions[f].name, of[i % each])) continue;
            if (f == 3) strata_onnx_refuse(ex, ": a linear activation");
            a->strings[i] = (ProtobufCBinaryData){strlen(functions[f].onnx), (uint8_t *)functions[f].onnx};
            a->n_strings = (size_t)i + 1;
        }
}

const char *strata_onnx_layer_recurrent(strata_onnx_export *ex) {
    static const int orders[2][4] = {{0, 1, 2, 0}, {0, 3, 1, 2}};
    static const char *const names[2][3] = {{"kernel", "recurrent_kernel", "bias"},
                                            {"backward_kernel", "backward_recurrent_kernel", "backward_bias"}};
    const strata_recurrent_layer_options *o = ex->call->options;
    const bool lstm = ex->call->kind[0] == 'l', both = o->bidirectional;
    const int gates = lstm ? 4 : 3, *order = orders[lstm], directions = both ? 2 : 1;
    const int64_t units = o->units, width = gates * units, k = strata_onnx_shape_of(ex, 0).dims[2];
    const char *w = strata_onnx_new_name(ex), *r = strata_onnx_new_name(ex), *b = strata_onnx_new_name(ex);
    float *rows = strata_onnx_add_initializer(ex, w, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, width, k), NULL);
    float *matrix = strata_onnx_add_initializer(ex, r, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, width, units), NULL);
    float *bias = strata_onnx_add_initializer(ex, b, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(directions, 2 * width), NULL);
    for (int way = 0; way < directions && !ex->failed; way++) {
        strata_shape shape;
        gate_rows(strata_onnx_elements_of(ex, names[way][0], &shape), order, gates, units, k, rows + way * width * k);
        gate_rows(strata_onnx_elements_of(ex, names[way][1], &shape), order, gates, units, units, matrix + way * width * units);
        const float *given = strata_onnx_elements_of(ex, names[way][2], &shape);
        for (int half = 0; given && half < (lstm || o->no_reset_after ? 1 : 2); half++)
            for (int g = 0; g < gates; g++)
                for (int64_t u = 0; u < units; u++)
                    bias[way * 2 * width + half * width + g * units + u] = given[half * width + order[g] * units + u];
    }
    const char *inputs[] = {strata_onnx_transposed(ex, strata_onnx_x(ex, 0), (const int64_t[]){1, 0, 2}, 3), w, r, b};
    const char *t = strata_onnx_add_node(ex, lstm ? "LSTM" : "GRU", inputs, 4, NULL);
    StrataOnnx__Node *node = strata_onnx_last_node(ex);
    if (node) node->output = strata_onnx_take(ex, 2 * sizeof(*node->output));
    if (ex->failed) return t;
    node->n_output = 2;
    node->output[0] = (char *)(o->return_sequences ? t : ""), node->output[1] = (char *)(o->return_sequences ? "" : t);
    strata_onnx_set_int(ex, "hidden_size", units);
    if (!lstm) strata_onnx_set_int(ex, "linear_before_reset", !o->no_reset_after);
    if (both) strata_onnx_set_text(ex, "direction", "bidirectional");
    if (!both && o->go_backwards) strata_onnx_set_text(ex, "direction", "reverse");
    set_activations(ex, o, lstm ? 3 : 2, directions);
    if (o->go_backwards && o->return_sequences) strata_onnx_refuse(ex, ": go_backwards with return_sequences");
    if (both && strcmp(o->bidirectional, "concat")) strata_onnx_refuse(ex, ": bidirectional other than concat");
    if (o->return_sequences) /* (T, D, N, U) -> (N, T, D U) */
        return strata_onnx_reshaped(ex, strata_onnx_transposed(ex, t, (const int64_t[]){2, 0, 1, 3}, 4),
                                    (const int64_t[]){0, 0, directions * units}, 3);
    return strata_onnx_reshaped(ex, strata_onnx_transposed(ex, t, (const int64_t[]){1, 0, 2}, 3),
                                (const int64_t[]){0, directions * units}, 2);
}

/* The product of t with the parameter `name`_kernel, plus its bias, if it has one. */
static const char *projected(strata_onnx_export *ex, const char *t, const char *name) {
    char kernel[48], bias[48];
    snprintf(kernel, sizeof kernel, "%s_kernel", name);
    snprintf(bias, sizeof bias, "%s_bias", name);
    return plus(ex, strata_onnx_two(ex, "MatMul", t, strata_onnx_put_weight(ex, kernel)), bias);
}

const char *strata_onnx_layer_attention(strata_onnx_export *ex) {
    static const char *const names[] = {"query", "key", "value"};
    const strata_multi_head_attention_options *o = ex->call->options;
    const strata_shape shape = strata_onnx_shape_of(ex, 0);
    const int64_t t = shape.dims[1], key_dim = o->key_dim ? o->key_dim : shape.dims[2] / o->heads;
    const char *parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = strata_onnx_reshaped(ex, projected(ex, strata_onnx_x(ex, 0), names[i]),
                                        (const int64_t[]){0, t, o->heads, key_dim}, 4);
        parts[i] =
            strata_onnx_transposed(ex, parts[i], i == 1 ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3}, 4);
    }
    const char *scores = strata_onnx_two(ex, "MatMul", parts[0], parts[1]);
    scores = strata_onnx_two(ex, "Mul", scores, strata_onnx_put_number(ex, 1 / sqrt((double)key_dim)));
    if (o->causal) { /* adds a number so low that its exponential is 0 */
        const char *mask = strata_onnx_new_name(ex);
        float *places = strata_onnx_add_initializer(ex, mask, STRATA_ONNX_TYPE_FLOAT, STRATA_SHAPE(t, t), NULL);
        for (int64_t a = 0; places && a < t; a++)
            for (int64_t b = a + 1; b < t; b++) places[a * t + b] = -1e30f;
        scores = strata_onnx_two(ex, "Add", scores, mask);
    }
    const char *y = strata_onnx_two(ex, "MatMul", strata_onnx_activate(ex, "softmax", scores), parts[2]);
    y = strata_onnx_transposed(ex, y, (const int64_t[]){0, 2, 1, 3}, 4);
    return projected(ex, strata_onnx_reshaped(ex, y, (const int64_t[]){0, t, o->heads * key_dim}, 3), "output");
}

const char *strata_onnx_layer_weights(strata_onnx_export *ex) {
    const strata_weights_options *o = ex->call->options;
    const char *name = strata_onnx_put_weight(ex, "value");
    if (!o->dtype || !strcmp(o->dtype, "f32")) return name;
    return strata_onnx_converted(ex, name, !strcmp(o->dtype, "bool") ? STRATA_ONNX_TYPE_BOOL : STRATA_ONNX_TYPE_INT32);
}

const char *strata_onnx_layer_residual(strata_onnx_export *ex) {
    return strata_onnx_activate(ex, ((const strata_residual_options *)ex->call->options)->activation,
                                strata_onnx_two(ex, "Add", strata_onnx_x(ex, 0), strata_onnx_x(ex, 1)));
}

/* ---- the layer op ---- */

static const char *op_window(strata_onnx_export *ex, const strata_op_options *o, const int64_t *numbers) {
    const bool back = strstr(o->op, "transpose");
    const strata_shape kernel = strata_onnx_shape_of(ex, 1), in = strata_onnx_shape_of(ex, 0), out = ex->call->shape;
    const int64_t pads[] = {numbers[4], numbers[6], numbers[5], numbers[7]};
    int64_t more[2];
    const char *x = strata_onnx_moved(ex, strata_onnx_x(ex, 0), 4, true);
    const char *w = strata_onnx_transposed(ex, strata_onnx_x(ex, 1), (const int64_t[]){3, 2, 0, 1}, 4);
    const char *t = strata_onnx_two(ex, back ? "ConvTranspose" : "Conv", x, w);
    strata_onnx_set_window(ex, kernel.dims, numbers, numbers + 2, pads, 2);
    strata_onnx_set_int(ex, "group", numbers[8]);
    for (int d = 0; d < 2; d++)
        more[d] = out.dims[1 + d] -
                  ((in.dims[1 + d] - 1) * numbers[d] + (kernel.dims[d] - 1) * numbers[2 + d] + 1 - pads[d] - pads[2 + d]);
    if (back) strata_onnx_set_ints(ex, "output_padding", more, 2);
    return strata_onnx_moved(ex, t, 4, false);
}

/* A number of the type of x. Integers are limited to those that f32 has. */
static const char *number_like(strata_onnx_export *ex, double number) {
    const strata_dtype dtype = ex->structure.calls[ex->call->inputs[0]].dtype;
    if (strata_dtype_is_float(dtype)) return strata_onnx_put_number(ex, number);
    if (dtype != STRATA_DTYPE_I32 || fabs(number) > 1 << 24)
        strata_onnx_refuse(ex, ": numbers that are not f32, or i32 up to 2^24");
    return strata_onnx_converted(ex, strata_onnx_put_number(ex, number), STRATA_ONNX_TYPE_INT32);
}

const char *strata_onnx_layer_op(strata_onnx_export *ex) {
    const strata_op_options *o = ex->call->options;
    const char *names[STRATA_MAX_LAYER_INPUTS], *x = strata_onnx_x(ex, 0), *t;
    int64_t numbers[2 * STRATA_MAX_NUMBERS] = {0}, axes[STRATA_MAX_RANK];
    const int count = o->numbers.n, rank = strata_onnx_shape_of(ex, 0).rank, n = ex->call->n_inputs;
    for (int i = 0; i < n; i++) names[i] = strata_onnx_x(ex, i);
    for (int i = 0; i < count; i++) numbers[i] = fabs(o->numbers.values[i]) < 1e15 ? (int64_t)o->numbers.values[i] : 0;
    for (int d = 0; d < STRATA_MAX_RANK; d++) axes[d] = d;
    for (int d = 0; d < count && !strcmp(o->op, "transpose"); d++) numbers[d] += numbers[d] < 0 ? rank : 0; /* counted from 0 */
    t = table_node(ex, o->op, names, n, o->numbers.values[0], numbers, count, o->value == 1);
    if (t) return t;
    if (!strcmp(o->op, "square")) return strata_onnx_two(ex, "Mul", x, x);
    if (!strcmp(o->op, "rsqrt")) return strata_onnx_one(ex, "Reciprocal", strata_onnx_one(ex, "Sqrt", x));
    if (!strcmp(o->op, "not_equal")) return strata_onnx_one(ex, "Not", strata_onnx_add_node(ex, "Equal", names, 2, NULL));
    if (!strncmp(o->op, "gelu", 4) || !strcmp(o->op, "silu")) return strata_onnx_activate(ex, o->op, x);
    if (!strcmp(o->op, "clip")) {
        const double low = o->numbers.values[0], high = o->numbers.values[1];
        const bool below = !isinf(low), above = !isinf(high);
        const char *inputs[] = {x, below ? number_like(ex, low) : "", above ? number_like(ex, high) : ""};
        return strata_onnx_add_node(ex, "Clip", inputs, above ? 3 : below ? 2 : 1, NULL);
    }
    if (!strcmp(o->op, "cast")) {
        const bool whole = o->dtype && *o->dtype == 'i', yes_no = o->dtype && !strcmp(o->dtype, "bool");
        if (!whole && !yes_no && o->dtype && strcmp(o->dtype, "f32"))
            strata_onnx_refuse(ex, ": a cast to another type than f32, i32, i64 and bool");
        return strata_onnx_converted(ex, x,
                                     yes_no  ? STRATA_ONNX_TYPE_BOOL
                                     : whole ? STRATA_ONNX_TYPE_INT32
                                             : STRATA_ONNX_TYPE_FLOAT);
    }
    if (!strcmp(o->op, "reshape")) return strata_onnx_reshaped(ex, x, numbers, count);
    if (!strcmp(o->op, "expand")) {
        const char *size = strata_onnx_one(ex, "Shape", names[1]), *sizes[STRATA_MAX_RANK];
        strata_onnx_set_int(ex, "start", 0);
        strata_onnx_set_int(ex, "end", 1);
        for (int d = 0; d < count; d++) sizes[d] = numbers[d] ? strata_onnx_put_ints(ex, &numbers[d], 1) : size;
        t = strata_onnx_add_node(ex, "Concat", sizes, count, NULL);
        strata_onnx_set_int(ex, "axis", 0);
        return strata_onnx_two(ex, "Expand", x, t);
    }
    if (!strcmp(o->op, "slice")) {
        int64_t ends[STRATA_MAX_RANK];
        for (int d = 0; d < rank; d++) ends[d] = numbers[rank + d] == -1 ? INT64_MAX : numbers[d] + numbers[rank + d];
        const char *inputs[] = {x, strata_onnx_put_ints(ex, numbers, rank), strata_onnx_put_ints(ex, ends, rank),
                                strata_onnx_put_ints(ex, axes, rank)};
        return strata_onnx_add_node(ex, "Slice", inputs, 4, NULL);
    }
    if (!strcmp(o->op, "pad")) {
        const char *inputs[] = {x, strata_onnx_put_ints(ex, numbers, count), number_like(ex, strata_number_shown(o->value))};
        return strata_onnx_add_node(ex, "Pad", inputs, 3, NULL);
    }
    if (!strcmp(o->op, "tile")) return strata_onnx_two(ex, "Tile", x, strata_onnx_put_ints(ex, numbers, count));
    if (!strcmp(o->op, "reduce_sum")) {
        t = strata_onnx_two(ex, "ReduceSum", x, strata_onnx_put_ints(ex, count ? numbers : axes, count ? count : rank));
        strata_onnx_set_int(ex, "keepdims", o->value == 1);
        return t;
    }
    if (!strcmp(o->op, "argmax")) {
        t = strata_onnx_one(ex, "ArgMax", x);
        strata_onnx_set_int(ex, "axis", numbers[0]);
        strata_onnx_set_int(ex, "keepdims", 0);
        return strata_onnx_converted(ex, t, STRATA_ONNX_TYPE_INT32);
    }
    if (!strcmp(o->op, "layer_norm")) {
        t = strata_onnx_add_node(ex, "LayerNormalization", names, 3, NULL);
        strata_onnx_set_int(ex, "axis", -1);
        strata_onnx_set_float(ex, "epsilon", strata_number_shown(o->value));
        return t;
    }
    if (!strncmp(o->op, "conv2d", 6)) return op_window(ex, o, numbers);
    strata_onnx_refuse(ex, o->op);
    return x;
}
