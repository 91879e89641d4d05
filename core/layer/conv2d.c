/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d: y = activation(x * kernel + bias).   x (N,H,W,C), kernel (KH,KW,C/groups,filters), bias (filters) -> y
 * (N,OH,OW,filters) */
#include <stddef.h>
#include <string.h>

#include "core/layer/window.h"

static strata_conv_layer common(const strata_conv2d_options *opts) {
    return (strata_conv_layer){.filters = opts->filters,
                               .groups = opts->groups,
                               .size = opts->kernel_size,
                               .stride = opts->stride,
                               .dilation = opts->dilation,
                               .n_axes = 2,
                               .padding = opts->padding,
                               .explicit_padding = opts->explicit_padding,
                               .activation = opts->activation,
                               .kernel_initializer = opts->kernel_initializer,
                               .bias_initializer = opts->bias_initializer,
                               .no_bias = opts->no_bias,
                               .kernel_l1 = opts->kernel_l1,
                               .kernel_l2 = opts->kernel_l2};
}

static strata_status conv2d_check(const void *options, strata_error *err) {
    const strata_conv_layer layer = common(options);
    return strata_conv_layer_check(&layer, err);
}

static strata_tensor *conv2d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_conv2d_options *opts = options;
    const strata_conv_layer layer = common(opts);
    strata_conv2d_window window = {.stride = {opts->stride[0], opts->stride[1]},
                                   .dilation = {opts->dilation[0], opts->dilation[1]},
                                   .groups = opts->groups,
                                   .padding = strata_padding_of(opts->padding)};
    memcpy(window.explicit_padding, opts->explicit_padding, sizeof window.explicit_padding);
    strata_tensor *y = strata_conv2d(x, strata_conv_layer_kernel(&layer, context, x), window);
    return strata_conv_layer_finish(&layer, context, y);
}

#define AT(field) offsetof(strata_conv2d_options, field)
const strata_layer_kind strata_layer_conv2d = {
    .name = "conv2d",
    .options_bytes = sizeof(strata_conv2d_options),
    .name_offset = AT(name),
    .options = {{"filters", STRATA_OPTION_INT, AT(filters), 1, 1 << 24, true},
                {"kernel_size", STRATA_OPTION_PAIR, AT(kernel_size), 1, 1 << 20, true},
                {"stride", STRATA_OPTION_PAIR, AT(stride), 1, 1 << 20, false},
                {"padding", STRATA_OPTION_STRING, AT(padding), 0, 0, false},
                STRATA_LAYER_EXPLICIT_PADDING(strata_conv2d_options, 2),
                {"dilation", STRATA_OPTION_PAIR, AT(dilation), 1, 1 << 20, false},
                {"groups", STRATA_OPTION_INT, AT(groups), 1, 1 << 24, false},
                {"activation", STRATA_OPTION_STRING, AT(activation), 0, 0, false},
                {"no_bias", STRATA_OPTION_BOOL, AT(no_bias), 0, 0, false},
                {"kernel_initializer", STRATA_OPTION_STRING, AT(kernel_initializer), 0, 0, false},
                {"bias_initializer", STRATA_OPTION_STRING, AT(bias_initializer), 0, 0, false},
                STRATA_LAYER_PENALTY(strata_conv2d_options)},
    .check = conv2d_check,
    .build = conv2d_build,
};
