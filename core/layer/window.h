/* SPDX-License-Identifier: Apache-2.0
 *
 * What the layers that slide a window share. */
#ifndef STRATA_CORE_LAYER_WINDOW_H
#define STRATA_CORE_LAYER_WINDOW_H

#include "core/layer/layer.h"

/* "valid", "same", "explicit"; NULL or "": valid. Unknown names are caught by strata_padding_check. */
strata_padding strata_padding_of(const char *name);
/* n: of explicit_padding's numbers, which only "explicit" may have. */
STRATA_MUST_USE strata_status strata_padding_check(const char *name, const int64_t *explicit_padding, int n, strata_error *err);
/* A layer's option for them; axes 1 or 2. */
#define STRATA_LAYER_EXPLICIT_PADDING(type, axes) \
    { "explicit_padding", STRATA_OPTION_BORDER_##axes##D, offsetof(type, explicit_padding), 0, 1 << 20, false }

/* What conv1d and conv2d ask of their options alike; size: of the kernel, n_axes of them. */
typedef struct strata_conv_layer {
    int64_t filters, groups;
    const int64_t *size, *stride, *dilation, *explicit_padding;
    int n_axes;
    const char *padding, *activation, *kernel_initializer, *bias_initializer;
    bool no_bias;
    double kernel_l1, kernel_l2;
} strata_conv_layer;

STRATA_MUST_USE strata_status strata_conv_layer_check(const strata_conv_layer *layer, strata_error *err);
/* The kernel, with its penalties: (size..., channels of a group, filters) for x (N, ..., channels). */
strata_tensor *strata_conv_layer_kernel(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *x);
/* Bias and activation. */
strata_tensor *strata_conv_layer_finish(const strata_conv_layer *layer, strata_layer_context *context, strata_tensor *y);

/* 1 where an option was not given. */
static inline int64_t strata_or_one(int64_t value) {
    return value ? value : 1;
}

#endif
