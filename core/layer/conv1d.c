/* SPDX-License-Identifier: Apache-2.0
 *
 * conv1d: y = activation(x * kernel + bias).   x (N,L,C), kernel (W,C/groups,filters), bias (filters) -> y (N,OL,filters) */
#include <stddef.h>
#include <string.h>

#include "core/layer/window.h"

static strata_conv_layer common(const strata_conv1d_options *opts) {
    return STRATA_CONV_LAYER_OF(opts, 1, &opts->kernel_size, &opts->stride, &opts->dilation);
}

static strata_status conv1d_check(const void *options, strata_error *err) {
    const strata_conv_layer layer = common(options);
    return strata_conv_layer_check(&layer, err);
}

static strata_tensor *conv1d_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_conv1d_options *opts = options;
    const strata_conv_layer layer = common(opts);
    strata_conv1d_window window = {.stride = opts->stride,
                                   .dilation = opts->dilation,
                                   .groups = opts->groups,
                                   .padding = strata_padding_of(opts->padding)};
    memcpy(window.explicit_padding, opts->explicit_padding, sizeof window.explicit_padding);
    strata_tensor *y = strata_conv1d(x, strata_conv_layer_kernel(&layer, context, x), window);
    return strata_conv_layer_finish(&layer, context, y);
}

const strata_layer_kind strata_layer_conv1d = {
    .name = "conv1d",
    .options_bytes = sizeof(strata_conv1d_options),
    .name_offset = offsetof(strata_conv1d_options, name),
    .options = {STRATA_CONV_LAYER_OPTIONS(strata_conv1d_options, 1, STRATA_OPTION_INT)},
    .check = conv1d_check,
    .build = conv1d_build,
};
