/* SPDX-License-Identifier: Apache-2.0
 *
 * depthwise_conv2d convolves each channel alone, with depth_multiplier filters. It is a conv2d with as many groups as
 * channels, whose filter is the kernel (KH,KW,C,multiplier) in the shape (KH,KW,1,C multiplier), with the same elements
 * in the same order. separable_conv2d is a depthwise convolution, followed by a 1x1 convolution over all channels
 * (Chollet 2017). */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/layer/window.h"

/* The options that both layers have. */
typedef struct depthwise {
    const int64_t *size, *stride, *dilation, *explicit_padding;
    int64_t multiplier;
    const char *padding, *activation, *initializer;
    bool no_bias;
} depthwise;
#define DEPTHWISE_OF(opts)                                                                                                    \
    ((depthwise){(opts)->kernel_size, (opts)->stride, (opts)->dilation, (opts)->explicit_padding,                             \
                 strata_or_one((opts)->depth_multiplier), (opts)->padding, (opts)->activation, (opts)->depthwise_initializer, \
                 (opts)->no_bias})
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

/* The options as those of a convolution, for the functions that check them and that add bias and activation. */
static strata_conv_layer conv_layer(const depthwise *d, int64_t filters, const char *bias_initializer) {
    return (strata_conv_layer){.filters = filters,
                               .groups = 1,
                               .size = d->size,
                               .stride = d->stride,
                               .dilation = d->dilation,
                               .explicit_padding = d->explicit_padding,
                               .n_axes = 2,
                               .padding = d->padding,
                               .activation = d->activation,
                               .kernel_initializer = d->initializer,
                               .bias_initializer = bias_initializer,
                               .no_bias = d->no_bias};
}

/* x (N,H,W,C) -> (N,OH,OW,C multiplier), without a bias. `name` is the name of the kernel. */
static strata_tensor *convolved(const depthwise *d, strata_layer_context *context, strata_tensor *x, const char *name) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 4 || shape.dims[3] > (1 << 24) / d->multiplier)
        return strata_graph_poison(
            graph, NULL, STRATA_INVALID,
            "x is %s; it must be (images, height, width, channels), of less than 2^24 / depth_multiplier",
            strata_shape_text(shape).text);
    const int64_t channels = shape.dims[3], taps = d->size[0] * d->size[1];
    strata_conv2d_window window = {.stride = {d->stride[0], d->stride[1]},
                                   .dilation = {d->dilation[0], d->dilation[1]},
                                   .groups = channels,
                                   .padding = strata_padding_of(d->padding)};
    memcpy(window.explicit_padding, d->explicit_padding, sizeof window.explicit_padding);
    strata_tensor *kernel =
        strata_layer_parameter(context, graph, name, STRATA_SHAPE(d->size[0], d->size[1], channels, d->multiplier),
                               d->initializer ? d->initializer : "glorot_uniform", taps * channels, taps * d->multiplier);
    kernel = strata_reshape(kernel, STRATA_SHAPE(d->size[0], d->size[1], 1, channels * d->multiplier));
    return strata_conv2d(x, strata_cast(kernel, strata_tensor_dtype(x)), window);
}

static int64_t channels_of(const strata_tensor *x) {
    const strata_shape shape = strata_tensor_shape(x);
    return shape.rank ? shape.dims[shape.rank - 1] : 0;
}

/* ---- depthwise_conv2d ---- */

static strata_status depthwise_check(const void *options, strata_error *err) {
    const strata_depthwise_conv2d_options *opts = options;
    const depthwise d = DEPTHWISE_OF(opts);
    const strata_conv_layer layer = conv_layer(&d, 1, opts->bias_initializer);
    if (d.multiplier < 1)
        return strata_fail(err, STRATA_INVALID, "depth_multiplier is %" PRId64 "; it must be at least 1", d.multiplier);
    return strata_conv_layer_check(&layer, err);
}

static strata_tensor *depthwise_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_depthwise_conv2d_options *opts = options;
    const depthwise d = DEPTHWISE_OF(opts);
    strata_tensor *y = convolved(&d, context, x, "kernel");
    const strata_conv_layer layer = conv_layer(&d, channels_of(y), opts->bias_initializer);
    return strata_tensor_is_poison(y) ? y : strata_conv_layer_finish(&layer, context, y);
}

const strata_layer_kind strata_layer_depthwise_conv2d = {
    .name = "depthwise_conv2d",
    .options_bytes = sizeof(strata_depthwise_conv2d_options),
    .name_offset = offsetof(strata_depthwise_conv2d_options, name),
    .options = {DEPTHWISE_OPTIONS(strata_depthwise_conv2d_options)},
    .check = depthwise_check,
    .build = depthwise_build,
};

/* ---- separable_conv2d ---- */

static strata_status separable_check(const void *options, strata_error *err) {
    const strata_separable_conv2d_options *opts = options;
    const strata_initializer *ignored;
    const depthwise d = DEPTHWISE_OF(opts);
    const strata_conv_layer layer = conv_layer(&d, opts->filters, opts->bias_initializer);
    if (d.multiplier < 1)
        return strata_fail(err, STRATA_INVALID, "depth_multiplier is %" PRId64 "; it must be at least 1", d.multiplier);
    if (opts->pointwise_initializer) STRATA_TRY(strata_initializer_find(opts->pointwise_initializer, &ignored, err));
    return strata_conv_layer_check(&layer, err);
}

static strata_tensor *separable_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_separable_conv2d_options *opts = options;
    const depthwise d = DEPTHWISE_OF(opts);
    const strata_conv_layer layer = conv_layer(&d, opts->filters, opts->bias_initializer);
    strata_tensor *y = convolved(&d, context, x, "depthwise_kernel");
    if (strata_tensor_is_poison(y)) return y;
    const int64_t between = channels_of(y);
    strata_tensor *kernel = strata_layer_parameter(
        context, strata_tensor_graph(x), "pointwise_kernel", STRATA_SHAPE(1, 1, between, opts->filters),
        opts->pointwise_initializer ? opts->pointwise_initializer : "glorot_uniform", between, opts->filters);
    y = strata_conv2d(y, strata_cast(kernel, strata_tensor_dtype(y)), (strata_conv2d_window){0});
    return strata_conv_layer_finish(&layer, context, y);
}

const strata_layer_kind strata_layer_separable_conv2d = {
    .name = "separable_conv2d",
    .options_bytes = sizeof(strata_separable_conv2d_options),
    .name_offset = offsetof(strata_separable_conv2d_options, name),
    .options = {{"filters", STRATA_OPTION_INT, offsetof(strata_separable_conv2d_options, filters), 1, 1 << 24, true},
                DEPTHWISE_OPTIONS(strata_separable_conv2d_options),
                {"pointwise_initializer", STRATA_OPTION_STRING,
                 offsetof(strata_separable_conv2d_options, pointwise_initializer), 0, 0, false}},
    .check = separable_check,
    .build = separable_build,
};
