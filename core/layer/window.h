/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the layers that slide a window over their input: convolutions and pools. */
#ifndef STRATA_CORE_LAYER_WINDOW_H
#define STRATA_CORE_LAYER_WINDOW_H

#include "core/layer/layer.h"

/* The padding for "valid", "same" or "explicit"; NULL and "" are valid. Unknown names must be rejected by
 * strata_padding_check before. */
strata_padding strata_padding_of(const char *name);
/* Checks the name and the n numbers of explicit_padding, which may be other than 0 only for "explicit". */
STRATA_MUST_USE strata_status strata_padding_check(const char *name, const int64_t *explicit_padding, int n, strata_error *err);
/* The row for the option explicit_padding of a layer that slides along 1 or 2 axes. */
#define STRATA_LAYER_EXPLICIT_PADDING(type, axes) \
    { "explicit_padding", STRATA_OPTION_BORDER_##axes##D, offsetof(type, explicit_padding), 0, 1 << 20, false }

/* The common options of conv1d and conv2d. The arrays have n_axes elements. */
typedef struct strata_conv_layer {
    int64_t filters, groups;
    const int64_t *size, *stride, *dilation, *explicit_padding;
    int n_axes;
    const char *padding, *activation, *kernel_initializer, *bias_initializer;
    bool no_bias;
    double kernel_l1, kernel_l2;
} strata_conv_layer;

/* Makes a strata_conv_layer of a layer's options. */
#define STRATA_CONV_LAYER_OF(opts, axes, size_of, stride_of, dilation_of)  \
    ((strata_conv_layer){.filters = (opts)->filters,                       \
                         .groups = (opts)->groups,                         \
                         .size = size_of,                                  \
                         .stride = stride_of,                              \
                         .dilation = dilation_of,                          \
                         .n_axes = axes,                                   \
                         .padding = (opts)->padding,                       \
                         .explicit_padding = (opts)->explicit_padding,     \
                         .activation = (opts)->activation,                 \
                         .kernel_initializer = (opts)->kernel_initializer, \
                         .bias_initializer = (opts)->bias_initializer,     \
                         .no_bias = (opts)->no_bias,                       \
                         .kernel_l1 = (opts)->kernel_l1,                   \
                         .kernel_l2 = (opts)->kernel_l2})
/* The rows for these options in a layer's table. number: STRATA_OPTION_INT for one axis, STRATA_OPTION_PAIR for two. */
#define STRATA_CONV_LAYER_OPTIONS(type, axes, number)                                                                       \
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

STRATA_MUST_USE strata_status strata_conv_layer_check(const strata_conv_layer *layer, strata_error *err);
/* The kernel (size..., channels of a group, filters) for x (N, ..., channels). Adds its penalties. */
strata_tensor *strata_conv_layer_kernel(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *x);
/* Adds the bias and applies the activation. */
strata_tensor *strata_conv_layer_finish(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *y);

/* The value of an option whose default is 1: 0 means that it was not given. */
static inline int64_t strata_or_one(int64_t value) {
    return value ? value : 1;
}

#endif
