/* SPDX-License-Identifier: Apache-2.0
 *
 * The convolutions: y = activation(x * kernel + bias).   x (N, L or H,W, C), bias (filters) -> y (N, OL or OH,OW, filters)
 *
 *   conv1d, conv2d     kernel (window..., C/groups, filters)
 *   conv2d_transpose   by strata_conv2d_transpose; kernel (KH,KW,filters,C)
 *   depthwise_conv2d   each channel alone, with depth_multiplier filters; kernel (KH,KW,C,multiplier). It is a conv2d with as
 *                      many groups as channels, whose filter is the kernel in the shape (KH,KW,1,C multiplier), with the same
 *                      elements in the same order
 *   separable_conv2d   a depthwise convolution, followed by a 1x1 convolution over all channels (Chollet 2017) */
#include <inttypes.h>

#include "core/graph/graph.h"
#include "core/layer/window.h"

/* The options of any of these layers. The arrays have n_axes elements, explicit_padding two for each axis. An option that a
 * layer does not have is 0 or NULL. */
typedef struct conv {
    int n_axes;
    int64_t filters, groups, multiplier;
    const int64_t *size, *stride, *dilation, *explicit_padding, *output_padding;
    const char *padding_name, *activation, *kernel_initializer, *bias_initializer;
    strata_padding padding;
    bool no_bias;
    double kernel_l1, kernel_l2;
} conv;

/* The option with this name; zeros if the kind of layer does not have it. */
static const void *option_of(const strata_layer_kind *kind, const void *options, const char *name) {
    static const union {
        int64_t integers[4];
        double number;
        const char *text;
        bool flag;
    } none;
    for (const strata_option *o = kind->options; o->name; o++)
        if (!strcmp(o->name, name)) return (const char *)options + o->offset;
    return &none;
}

static conv conv_of(const strata_layer_kind *kind, const void *options) {
    conv c = {.n_axes = kind == &strata_layer_conv1d ? 1 : 2};
    const bool depthwise = kind == &strata_layer_depthwise_conv2d || kind == &strata_layer_separable_conv2d;
    c.filters = *(const int64_t *)option_of(kind, options, "filters");
    c.groups = strata_or_one(*(const int64_t *)option_of(kind, options, "groups"));
    c.multiplier = strata_or_one(*(const int64_t *)option_of(kind, options, "depth_multiplier"));
    c.size = option_of(kind, options, "kernel_size");
    c.stride = option_of(kind, options, "stride");
    c.dilation = option_of(kind, options, "dilation");
    c.explicit_padding = option_of(kind, options, "explicit_padding");
    c.output_padding = option_of(kind, options, "output_padding");
    c.padding_name = *(const char *const *)option_of(kind, options, "padding");
    c.padding = strata_padding_of(c.padding_name);
    c.activation = *(const char *const *)option_of(kind, options, "activation");
    c.kernel_initializer =
        *(const char *const *)option_of(kind, options, depthwise ? "depthwise_initializer" : "kernel_initializer");
    c.bias_initializer = *(const char *const *)option_of(kind, options, "bias_initializer");
    c.no_bias = *(const bool *)option_of(kind, options, "no_bias");
    c.kernel_l1 = *(const double *)option_of(kind, options, "kernel_l1");
    c.kernel_l2 = *(const double *)option_of(kind, options, "kernel_l2");
    return c;
}

static strata_status check(const strata_layer_kind *kind, const void *options, strata_error *err) {
    const conv c = conv_of(kind, options);
    const strata_initializer *ignored;
    if (c.groups > 0 && c.filters % c.groups)
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " filters can't be divided among %" PRId64 " groups", c.filters,
                           c.groups);
    STRATA_TRY(strata_padding_check(c.padding_name, c.explicit_padding, 2 * c.n_axes, err));
    if (c.kernel_initializer) STRATA_TRY(strata_initializer_find(c.kernel_initializer, &ignored, err));
    if (c.bias_initializer) STRATA_TRY(strata_initializer_find(c.bias_initializer, &ignored, err));
    return strata_activation_check(c.activation, err);
}

static strata_conv2d_window window_of(const conv *c, int64_t groups) {
    strata_conv2d_window window = {.stride = {c->stride[0], c->stride[1]},
                                   .dilation = {c->dilation[0], c->dilation[1]},
                                   .groups = groups,
                                   .padding = c->padding};
    memcpy(window.explicit_padding, c->explicit_padding, sizeof window.explicit_padding);
    return window;
}

/* The number of taps of the kernel. As in Keras, the fans of a weight are its taps times the channels. */
static int64_t taps(const conv *c) {
    return c->n_axes == 1 ? c->size[0] : c->size[0] * c->size[1];
}

static int64_t channels_of(const strata_tensor *x) {
    const strata_shape shape = strata_tensor_shape(x);
    return shape.rank ? shape.dims[shape.rank - 1] : 0;
}

/* The kernel of this shape, with its penalties, in the dtype of x. */
static strata_tensor *kernel_of(const conv *c, strata_layer_context *context, strata_tensor *x, const char *name,
                                strata_shape shape, int64_t fan_in, int64_t fan_out) {
    strata_tensor *kernel = strata_layer_parameter(context, strata_tensor_graph(x), name, shape,
                                                   c->kernel_initializer ? c->kernel_initializer : "glorot_uniform",
                                                   taps(c) * fan_in, taps(c) * fan_out);
    strata_layer_penalize(context, kernel, c->kernel_l1, c->kernel_l2);
    return strata_cast(kernel, strata_tensor_dtype(x));
}

/* Adds the bias and applies the activation. */
static strata_tensor *finish(const conv *c, strata_layer_context *context, strata_tensor *y, int64_t filters) {
    if (!c->no_bias) {
        strata_tensor *bias = strata_layer_parameter(context, strata_tensor_graph(y), "bias", STRATA_SHAPE(filters),
                                                     c->bias_initializer ? c->bias_initializer : "zeros", taps(c), filters);
        y = strata_add(y, strata_cast(bias, strata_tensor_dtype(y)));
    }
    return strata_activation_apply(c->activation, y);
}

/* The rows of the options of conv1d and conv2d. number: STRATA_OPTION_INT for one axis, STRATA_OPTION_PAIR for two. */
#define CONV_OPTIONS(type, axes, number)                                                                                    \
    {"filters", STRATA_OPTION_INT, offsetof(type, filters), 1, 1 << 24, true},                                              \
        {"kernel_size", number, offsetof(type, kernel_size), 1, 1 << 20, true},                                             \
        {"stride", number, offsetof(type, stride), 1, 1 << 20, false},                                                      \
        {"padding", STRATA_OPTION_STRING, offsetof(type, padding), 0, 0, false}, STRATA_LAYER_EXPLICIT_PADDING(type, axes), \
        {"dilation", number, offsetof(type, dilation), 1, 1 << 20, false},                                                  \
        {"groups", STRATA_OPTION_INT, offsetof(type, groups), 1, 1 << 24, false},                                           \
        {"activation", STRATA_OPTION_ACTIVATION, offsetof(type, activation), 0, 0, false},                                  \
        {"no_bias", STRATA_OPTION_BOOL, offsetof(type, no_bias), 0, 0, false},                                              \
        {"kernel_initializer", STRATA_OPTION_STRING, offsetof(type, kernel_initializer), 0, 0, false},                      \
        {"bias_initializer", STRATA_OPTION_STRING, offsetof(type, bias_initializer), 0, 0, false}, STRATA_LAYER_PENALTY(type)
#define DEPTHWISE_OPTIONS(type)                                                                                          \
    {"kernel_size", STRATA_OPTION_PAIR, offsetof(type, kernel_size), 1, 1 << 20, true},                                  \
        {"stride", STRATA_OPTION_PAIR, offsetof(type, stride), 1, 1 << 20, false},                                       \
        {"padding", STRATA_OPTION_STRING, offsetof(type, padding), 0, 0, false}, STRATA_LAYER_EXPLICIT_PADDING(type, 2), \
        {"dilation", STRATA_OPTION_PAIR, offsetof(type, dilation), 1, 1 << 20, false},                                   \
        {"depth_multiplier", STRATA_OPTION_INT, offsetof(type, depth_multiplier), 1, 1 << 20, false},                    \
        {"activation", STRATA_OPTION_ACTIVATION, offsetof(type, activation), 0, 0, false},                               \
        {"no_bias", STRATA_OPTION_BOOL, offsetof(type, no_bias), 0, 0, false},                                           \
        {"depthwise_initializer", STRATA_OPTION_STRING, offsetof(type, depthwise_initializer), 0, 0, false}, {           \
        "bias_initializer", STRATA_OPTION_STRING, offsetof(type, bias_initializer), 0, 0, false                          \
    }

#define CHECK(which)                                                             \
    static strata_status which##_check(const void *options, strata_error *err) { \
        return check(&strata_layer_##which, options, err);                       \
    }

/* ---- conv1d, conv2d ---- */

/* x may have too few axes, or channels that the groups do not divide; then the op fails. */
static strata_tensor *plain_kernel(const conv *c, strata_layer_context *context, strata_tensor *x) {
    const int64_t channels = strata_tensor_shape(x).rank ? channels_of(x) : 1, of_group = channels / c->groups;
    strata_shape shape = {.rank = c->n_axes + 2};
    memcpy(shape.dims, c->size, (size_t)c->n_axes * sizeof *shape.dims);
    shape.dims[c->n_axes] = of_group < 1 ? 1 : of_group;
    shape.dims[c->n_axes + 1] = c->filters;
    return kernel_of(c, context, x, "kernel", shape, shape.dims[c->n_axes], c->filters);
}

CHECK(conv1d)
static strata_tensor *conv1d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const conv c = conv_of(&strata_layer_conv1d, options);
    strata_conv1d_window window = {.stride = *c.stride, .dilation = *c.dilation, .groups = c.groups, .padding = c.padding};
    memcpy(window.explicit_padding, c.explicit_padding, sizeof window.explicit_padding);
    return finish(&c, context, strata_conv1d(x, plain_kernel(&c, context, x), window), c.filters);
}

CHECK(conv2d)
static strata_tensor *conv2d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const conv c = conv_of(&strata_layer_conv2d, options);
    return finish(&c, context, strata_conv2d(x, plain_kernel(&c, context, x), window_of(&c, c.groups)), c.filters);
}

const strata_layer_kind strata_layer_conv1d = {
    .name = "conv1d",
    STRATA_LAYER_OPTIONS(strata_conv1d_options),
    .options = {CONV_OPTIONS(strata_conv1d_options, 1, STRATA_OPTION_INT)},
    .check = conv1d_check,
    .build = conv1d_build,
};

const strata_layer_kind strata_layer_conv2d = {
    .name = "conv2d",
    STRATA_LAYER_OPTIONS(strata_conv2d_options),
    .options = {CONV_OPTIONS(strata_conv2d_options, 2, STRATA_OPTION_PAIR)},
    .check = conv2d_check,
    .build = conv2d_build,
};

/* ---- conv2d_transpose ---- */

static strata_status conv2d_transpose_check(const void *options, strata_error *err) {
    const conv c = conv_of(&strata_layer_conv2d_transpose, options);
    if (c.padding == STRATA_PADDING_EXPLICIT)
        return strata_fail(err, STRATA_INVALID, "padding is \"explicit\"; it must be valid or same");
    for (int d = 0; d < 2; d++)
        if (c.output_padding[d] >= strata_or_one(c.stride[d]))
            return strata_fail(err, STRATA_INVALID,
                               "output_padding is %" PRId64 "; it must be at least 0 and below the stride, %" PRId64,
                               c.output_padding[d], strata_or_one(c.stride[d]));
    return check(&strata_layer_conv2d_transpose, options, err);
}

/* The size of the output along axis d for an input of size `in`, computed as in Keras; -1: the size is not valid. */
static int64_t output_size(const conv *c, int d, int64_t in) {
    const int64_t stride = strata_or_one(c->stride[d]), size = (c->size[d] - 1) * strata_or_one(c->dilation[d]) + 1;
    const bool same = c->padding == STRATA_PADDING_SAME;
    if (in < 1 || in > (INT64_C(1) << 31) / stride) return -1;
    if (c->output_padding[0] || c->output_padding[1])
        return (in - 1) * stride + size - (same ? 2 * (size / 2) : 0) + c->output_padding[d];
    return in * stride + (same || size < stride ? 0 : size - stride);
}

static strata_tensor *conv2d_transpose_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const conv c = conv_of(&strata_layer_conv2d_transpose, options);
    const strata_shape shape = strata_tensor_shape(x);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 4)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "x is %s; it must be (images, height, width, channels)",
                                   strata_shape_text(shape).text);
    const int64_t height = output_size(&c, 0, shape.dims[1]), width = output_size(&c, 1, shape.dims[2]);
    if (height < 1 || width < 1)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "x is %s; the outputs would be beyond 2^31 or empty",
                                   strata_shape_text(shape).text);
    const strata_shape kernel = STRATA_SHAPE(c.size[0], c.size[1], c.filters, shape.dims[3]);
    strata_tensor *weights = kernel_of(&c, context, x, "kernel", kernel, c.filters, shape.dims[3]);
    return finish(&c, context, strata_conv2d_transpose(x, weights, window_of(&c, 0), height, width), c.filters);
}

#define AT(field) offsetof(strata_conv2d_transpose_options, field)
const strata_layer_kind strata_layer_conv2d_transpose = {
    .name = "conv2d_transpose",
    STRATA_LAYER_OPTIONS(strata_conv2d_transpose_options),
    .options = {{"filters", STRATA_OPTION_INT, AT(filters), 1, 1 << 24, true},
                {"kernel_size", STRATA_OPTION_PAIR, AT(kernel_size), 1, 1 << 20, true},
                {"stride", STRATA_OPTION_PAIR, AT(stride), 1, 1 << 20, false},
                {"padding", STRATA_OPTION_STRING, AT(padding), 0, 0, false},
                {"output_padding", STRATA_OPTION_PAIR, AT(output_padding), 0, 1 << 20, false},
                {"dilation", STRATA_OPTION_PAIR, AT(dilation), 1, 1 << 20, false},
                {"activation", STRATA_OPTION_ACTIVATION, AT(activation), 0, 0, false},
                {"no_bias", STRATA_OPTION_BOOL, AT(no_bias), 0, 0, false},
                {"kernel_initializer", STRATA_OPTION_STRING, AT(kernel_initializer), 0, 0, false},
                {"bias_initializer", STRATA_OPTION_STRING, AT(bias_initializer), 0, 0, false},
                STRATA_LAYER_PENALTY(strata_conv2d_transpose_options)},
    .check = conv2d_transpose_check,
    .build = conv2d_transpose_build,
};

/* ---- depthwise_conv2d, separable_conv2d ---- */

/* x (N,H,W,C) -> (N,OH,OW,C multiplier), without a bias. `name` is the name of the kernel. */
static strata_tensor *each_channel(const conv *c, strata_layer_context *context, strata_tensor *x, const char *name) {
    const strata_shape shape = strata_tensor_shape(x);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 4 || shape.dims[3] > (1 << 24) / c->multiplier)
        return strata_graph_poison(
            x->graph, NULL, STRATA_INVALID,
            "x is %s; it must be (images, height, width, channels), of less than 2^24 / depth_multiplier",
            strata_shape_text(shape).text);
    const int64_t channels = shape.dims[3];
    const strata_shape own = STRATA_SHAPE(c->size[0], c->size[1], channels, c->multiplier);
    strata_tensor *kernel = kernel_of(c, context, x, name, own, channels, c->multiplier);
    kernel = strata_reshape(kernel, STRATA_SHAPE(c->size[0], c->size[1], 1, channels * c->multiplier));
    return strata_conv2d(x, kernel, window_of(c, channels));
}

CHECK(depthwise_conv2d)
static strata_tensor *depthwise_conv2d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const conv c = conv_of(&strata_layer_depthwise_conv2d, options);
    strata_tensor *y = each_channel(&c, context, x, "kernel");
    return strata_tensor_is_poison(y) ? y : finish(&c, context, y, channels_of(y));
}

const strata_layer_kind strata_layer_depthwise_conv2d = {
    .name = "depthwise_conv2d",
    STRATA_LAYER_OPTIONS(strata_depthwise_conv2d_options),
    .options = {DEPTHWISE_OPTIONS(strata_depthwise_conv2d_options)},
    .check = depthwise_conv2d_check,
    .build = depthwise_conv2d_build,
};

static strata_status separable_conv2d_check(const void *options, strata_error *err) {
    const char *pointwise = ((const strata_separable_conv2d_options *)options)->pointwise_initializer;
    const strata_initializer *ignored;
    if (pointwise) STRATA_TRY(strata_initializer_find(pointwise, &ignored, err));
    return check(&strata_layer_separable_conv2d, options, err);
}

static strata_tensor *separable_conv2d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const conv c = conv_of(&strata_layer_separable_conv2d, options);
    const char *pointwise = ((const strata_separable_conv2d_options *)options)->pointwise_initializer;
    strata_tensor *y = each_channel(&c, context, x, "depthwise_kernel");
    if (strata_tensor_is_poison(y)) return y;
    const int64_t between = channels_of(y);
    strata_tensor *kernel =
        strata_layer_parameter(context, strata_tensor_graph(x), "pointwise_kernel", STRATA_SHAPE(1, 1, between, c.filters),
                               pointwise ? pointwise : "glorot_uniform", between, c.filters);
    y = strata_conv2d(y, strata_cast(kernel, strata_tensor_dtype(y)), (strata_conv2d_window){0});
    return finish(&c, context, y, c.filters);
}

const strata_layer_kind strata_layer_separable_conv2d = {
    .name = "separable_conv2d",
    STRATA_LAYER_OPTIONS(strata_separable_conv2d_options),
    .options = {{"filters", STRATA_OPTION_INT, offsetof(strata_separable_conv2d_options, filters), 1, 1 << 24, true},
                DEPTHWISE_OPTIONS(strata_separable_conv2d_options),
                {"pointwise_initializer", STRATA_OPTION_STRING,
                 offsetof(strata_separable_conv2d_options, pointwise_initializer), 0, 0, false}},
    .check = separable_conv2d_check,
    .build = separable_conv2d_build,
};
