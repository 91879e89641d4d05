/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d, avg_pool2d (N,H,W,C) -> (N,OH,OW,C); max_pool1d, avg_pool1d (N,L,C) -> (N,OL,C). */
#include <inttypes.h>
#include <stddef.h>

#include "core/layer/window.h"

static strata_status check_size(int64_t size, const char *padding, strata_error *err) {
    if (size < 1) return strata_fail(err, STRATA_INVALID, "size is %" PRId64 "; it must be at least 1", size);
    return strata_padding_check(padding, err);
}

static strata_status pool2d_check(const void *options, strata_error *err) {
    const strata_pool2d_options *opts = options;
    STRATA_TRY(check_size(opts->size[0], opts->padding, err));
    return check_size(opts->size[1], opts->padding, err);
}

static strata_status pool1d_check(const void *options, strata_error *err) {
    const strata_pool1d_options *opts = options;
    return check_size(opts->size, opts->padding, err);
}

static strata_pool2d_window window_2d(const strata_pool2d_options *opts) {
    return (strata_pool2d_window){.size = {opts->size[0], opts->size[1]},
                                  .stride = {opts->stride[0], opts->stride[1]},
                                  .padding = strata_padding_of(opts->padding)};
}

static strata_pool1d_window window_1d(const strata_pool1d_options *opts) {
    return (strata_pool1d_window){.size = opts->size, .stride = opts->stride, .padding = strata_padding_of(opts->padding)};
}

#define POOL(which, axes, pair)                                                                                      \
    static strata_tensor *which##_build(const void *options, strata_layer_context *context, strata_tensor *x) {      \
        (void)context;                                                                                               \
        return strata_##which(x, window_##axes(options));                                                            \
    }                                                                                                                \
    const strata_layer_kind strata_layer_##which = {                                                                 \
        .name = #which,                                                                                              \
        .options_bytes = sizeof(strata_pool##axes##_options),                                                        \
        .name_offset = offsetof(strata_pool##axes##_options, name),                                                  \
        .options = {{"size", pair, offsetof(strata_pool##axes##_options, size), 1, 1 << 20, true},                   \
                    {"stride", pair, offsetof(strata_pool##axes##_options, stride), 1, 1 << 20, false},              \
                    {"padding", STRATA_OPTION_STRING, offsetof(strata_pool##axes##_options, padding), 0, 0, false}}, \
        .check = pool##axes##_check,                                                                                 \
        .build = which##_build,                                                                                      \
    }
POOL(max_pool2d, 2d, STRATA_OPTION_PAIR);
POOL(avg_pool2d, 2d, STRATA_OPTION_PAIR);
POOL(max_pool1d, 1d, STRATA_OPTION_INT);
POOL(avg_pool1d, 1d, STRATA_OPTION_INT);
