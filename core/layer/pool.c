/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d, avg_pool2d (N,H,W,C) -> (N,OH,OW,C); max_pool1d, avg_pool1d (N,L,C) -> (N,OL,C). */
#include <string.h>

#include "core/layer/window.h"

static strata_status pool2d_check(const void *options, strata_error *err) {
    const strata_pool2d_options *opts = options;
    return strata_padding_check(opts->padding, opts->explicit_padding, 4, err);
}

static strata_status pool1d_check(const void *options, strata_error *err) {
    const strata_pool1d_options *opts = options;
    return strata_padding_check(opts->padding, opts->explicit_padding, 2, err);
}

static strata_pool2d_window window_2d(const strata_pool2d_options *opts) {
    strata_pool2d_window window = {.size = {opts->size[0], opts->size[1]},
                                   .stride = {opts->stride[0], opts->stride[1]},
                                   .padding = strata_padding_of(opts->padding)};
    memcpy(window.explicit_padding, opts->explicit_padding, sizeof window.explicit_padding);
    return window;
}

static strata_pool1d_window window_1d(const strata_pool1d_options *opts) {
    return (strata_pool1d_window){.size = opts->size,
                                  .stride = opts->stride,
                                  .padding = strata_padding_of(opts->padding),
                                  .explicit_padding = {opts->explicit_padding[0], opts->explicit_padding[1]}};
}

#define POOL(which, axes, n_axes, pair)                                                                             \
    static strata_tensor *which##_build(const void *options, strata_layer_context *context, strata_tensor *x) {     \
        (void)context;                                                                                              \
        return strata_##which(x, window_##axes(options));                                                           \
    }                                                                                                               \
    const strata_layer_kind strata_layer_##which = {                                                                \
        .name = #which,                                                                                             \
        STRATA_LAYER_OPTIONS(strata_pool##axes##_options),                                                          \
        .options = {{"size", pair, offsetof(strata_pool##axes##_options, size), 1, 1 << 20, true},                  \
                    {"stride", pair, offsetof(strata_pool##axes##_options, stride), 1, 1 << 20, false},             \
                    {"padding", STRATA_OPTION_STRING, offsetof(strata_pool##axes##_options, padding), 0, 0, false}, \
                    STRATA_LAYER_EXPLICIT_PADDING(strata_pool##axes##_options, n_axes)},                            \
        .check = pool##axes##_check,                                                                                \
        .build = which##_build,                                                                                     \
    }
POOL(max_pool2d, 2d, 2, STRATA_OPTION_PAIR);
POOL(avg_pool2d, 2d, 2, STRATA_OPTION_PAIR);
POOL(max_pool1d, 1d, 1, STRATA_OPTION_INT);
POOL(avg_pool1d, 1d, 1, STRATA_OPTION_INT);
