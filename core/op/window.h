/* SPDX-License-Identifier: Apache-2.0
 *
 * A window that slides over the axes H and W of (N, H, W, C): the common part of convolutions and pools. Tap (kh, kw) of the
 * window at output (oh, ow) lies at
 *     h = oh stride[0] + kh dilation[0] - top,   w = ow stride[1] + kw dilation[1] - left
 * and takes part only where 0 <= h < H and 0 <= w < W. */
#ifndef STRATA_CORE_OP_WINDOW_H
#define STRATA_CORE_OP_WINDOW_H

#include "core/graph/graph.h"
#include "strata/ops.h"

enum { STRATA_PAD_TOP, STRATA_PAD_BOTTOM, STRATA_PAD_LEFT, STRATA_PAD_RIGHT };

/* Entry 0 is for H, 1 for W; the rest are 0. */
typedef struct strata_window {
    /* KH and KW. */
    int64_t size[STRATA_MAX_RANK];
    /* At least 1. */
    int64_t stride[STRATA_MAX_RANK];
    /* At least 1. */
    int64_t dilation[STRATA_MAX_RANK];
    /* Top, bottom, left, right. */
    int64_t padding[STRATA_MAX_RANK];
} strata_window;

/* Rows of an op's attribute table for a member `window`, a strata_window, of its attributes. */
#define STRATA_WINDOW_ATTRS(attrs)                                                                                          \
    {"size", STRATA_ATTR_PAIR, offsetof(attrs, window.size)}, {"stride", STRATA_ATTR_PAIR, offsetof(attrs, window.stride)}, \
        {"dilation", STRATA_ATTR_PAIR, offsetof(attrs, window.dilation)}, {                                                 \
        "padding", STRATA_ATTR_QUAD, offsetof(attrs, window.padding)                                                        \
    }

/* The user's options of a window, before the padding is resolved to numbers. 0 in stride and dilation: 1. */
typedef struct strata_window_wish {
    int64_t size[2], stride[2], dilation[2];
    strata_padding padding;
    int64_t explicit_padding[4];
} strata_window_wish;

/* The window over x (N,H,W,C), its padding resolved as TensorFlow does: `same` gives ceil(H / stride) outputs, with the odd
 * element of padding after. Wrong values are reported by strata_window_check. */
strata_window strata_window_over(strata_shape x, strata_window_wish wish);

/* Checks that x is (N,H,W,C), checks the window's numbers, and returns OH and OW of the outputs, both at least 1. `name`: the
 * name of x in messages. */
STRATA_MUST_USE strata_status strata_window_check(const strata_window *window, strata_shape x, const char *name,
                                                  int64_t out_size[2], strata_error *err);
/* OH and OW, for a window that strata_window_check accepted. */
void strata_window_outputs(const strata_window *window, int64_t in_h, int64_t in_w, int64_t out_size[2]);

/* Taps first..end-1 of the window at output `o` that lie inside 0..in-1, along axis d (0: H, 1: W); *out_at: the position of
 * tap 0, which may be outside. */
void strata_window_taps(const strata_window *window, int d, int64_t o, int64_t in, int64_t *out_first, int64_t *out_end,
                        int64_t *out_at);

/* Fails with UNSUPPORTED if the node or an input has more elements than kernels can count (2^31). */
STRATA_MUST_USE strata_status strata_check_countable(const strata_tensor *node, strata_error *err);

#endif
