/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d_transpose: y = activation(transposed convolution of x + bias), by strata_conv2d_transpose.
 * x (N,H,W,C), kernel (KH,KW,filters,C), bias (filters) -> y (N,OH,OW,filters) */
#include <inttypes.h>
#include <stddef.h>

#include "core/graph/graph.h"
#include "core/layer/window.h"

static const int64_t no_padding[4];

static strata_conv_layer common(const strata_conv2d_transpose_options *opts) {
    return (strata_conv_layer){.filters = opts->filters,
                               .groups = 1,
                               .size = opts->kernel_size,
                               .stride = opts->stride,
                               .dilation = opts->dilation,
                               .n_axes = 2,
                               .padding = opts->padding,
                               .explicit_padding = no_padding,
                               .activation = opts->activation,
                               .kernel_initializer = opts->kernel_initializer,
                               .bias_initializer = opts->bias_initializer,
                               .no_bias = opts->no_bias,
                               .kernel_l1 = opts->kernel_l1,
                               .kernel_l2 = opts->kernel_l2};
}

static strata_status check(const void *options, strata_error *err) {
    const strata_conv2d_transpose_options *opts = options;
    const strata_conv_layer layer = common(opts);
    if (strata_padding_of(opts->padding) == STRATA_PADDING_EXPLICIT)
        return strata_fail(err, STRATA_INVALID, "padding is \"explicit\"; it must be valid or same");
    for (int d = 0; d < 2; d++)
        if (opts->output_padding[d] < 0 || opts->output_padding[d] >= strata_or_one(opts->stride[d]))
            return strata_fail(err, STRATA_INVALID,
                               "output_padding is %" PRId64 "; it must be at least 0 and below the stride, %" PRId64,
                               opts->output_padding[d], strata_or_one(opts->stride[d]));
    return strata_conv_layer_check(&layer, err);
}

/* The size of the output along axis d for an input of size `in`, computed as in Keras; -1: the size is not valid. */
static int64_t output_size(const strata_conv2d_transpose_options *opts, int d, int64_t in) {
    const int64_t stride = strata_or_one(opts->stride[d]), more = opts->output_padding[d];
    const bool has_output_padding = opts->output_padding[0] || opts->output_padding[1];
    const int64_t size = (opts->kernel_size[d] - 1) * strata_or_one(opts->dilation[d]) + 1;
    const bool same = strata_padding_of(opts->padding) == STRATA_PADDING_SAME;
    if (in < 1 || in > (INT64_C(1) << 31) / stride) return -1;
    if (has_output_padding) return (in - 1) * stride + size - (same ? 2 * (size / 2) : 0) + more;
    return in * stride + (same || size < stride ? 0 : size - stride);
}

static strata_tensor *build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_conv2d_transpose_options *opts = options;
    const strata_conv_layer layer = common(opts);
    const strata_shape shape = strata_tensor_shape(x);
    strata_graph *graph = strata_tensor_graph(x);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 4)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "x is %s; it must be (images, height, width, channels)",
                                   strata_shape_text(shape).text);
    const int64_t height = output_size(opts, 0, shape.dims[1]), width = output_size(opts, 1, shape.dims[2]);
    if (height < 1 || width < 1)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "x is %s; the outputs would be beyond 2^31 or empty",
                                   strata_shape_text(shape).text);
    const int64_t taps = opts->kernel_size[0] * opts->kernel_size[1], channels = shape.dims[3];
    strata_tensor *kernel = strata_layer_parameter(
        context, graph, "kernel", STRATA_SHAPE(opts->kernel_size[0], opts->kernel_size[1], opts->filters, channels),
        opts->kernel_initializer ? opts->kernel_initializer : "glorot_uniform", taps * opts->filters, taps * channels);
    strata_layer_penalize(context, kernel, opts->kernel_l1, opts->kernel_l2);
    const strata_conv2d_window window = {.stride = {opts->stride[0], opts->stride[1]},
                                         .dilation = {opts->dilation[0], opts->dilation[1]},
                                         .padding = strata_padding_of(opts->padding)};
    strata_tensor *y = strata_conv2d_transpose(x, strata_cast(kernel, strata_tensor_dtype(x)), window, height, width);
    return strata_conv_layer_finish(&layer, context, y);
}

#define AT(field) offsetof(strata_conv2d_transpose_options, field)
const strata_layer_kind strata_layer_conv2d_transpose = {
    .name = "conv2d_transpose",
    .options_bytes = sizeof(strata_conv2d_transpose_options),
    .name_offset = AT(name),
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
    .check = check,
    .build = build,
};
