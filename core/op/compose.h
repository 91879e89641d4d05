/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for gradients and compositions of ops (strata_op.compose): constants, broadcasting, and windows that are split into
 * their taps, so that convolutions and pools become slices, products and sums. */
#ifndef STRATA_CORE_OP_COMPOSE_H
#define STRATA_CORE_OP_COMPOSE_H

#include "core/op/window.h"

enum {
    /* The most elements of a constant or mask that is needed only by a composition; if more are needed, the op has no
     * composition. */
    STRATA_MOST_COMPOSED = 1 << 24,
    /* The most taps of a window times groups of channels, since each of them becomes several nodes. */
    STRATA_MOST_TAPS = 256
};

/* A constant of the shape whose elements all have this value; NULL if it would have more than STRATA_MOST_COMPOSED
 * elements. */
strata_tensor *strata_filled(strata_graph *graph, strata_dtype dtype, strata_shape shape, double value);
/* x converted to f32. */
strata_tensor *strata_wide(strata_tensor *x);

/* The value of a formula of values[], whose letters are a, b, c, ..., and x for the first one. It has the operators and words
 * of core/op/elementwise.def, and comparisons. It must be correct. */
strata_tensor *strata_formula(const char *formula, strata_tensor *const *values);
/* strata_op.compose of an op with a formula. */
strata_tensor *strata_formula_compose(strata_tensor *node);
/* Members of the table of an element-wise op: it is composed of a formula of its operands. */
#define STRATA_COMPOSED(text) .formula = (text), .compose = strata_formula_compose

/* ---- NumPy's broadcasting: shapes are aligned at their last axis; sizes must be equal or 1, missing leading axes count as 1
 * ---- */

typedef struct strata_broadcast_to_attrs {
    strata_shape shape;
} strata_broadcast_to_attrs;

/* The shape that a and b broadcast to; INVALID naming both and the axis that does not fit. */
STRATA_MUST_USE strata_status strata_broadcast_shape(strata_shape a, const char *a_name, strata_shape b, const char *b_name,
                                                     strata_shape *out_shape, strata_error *err);

/* The gradient of broadcasting: dy, summed over the axes along which `shape` was repeated to dy's shape. */
strata_tensor *strata_sum_to(strata_tensor *dy, strata_shape shape);

/* ---- taps ---- */

/* A window over an image, divided into its taps. Tap (kh,kw) of all outputs is a tensor (N,OH,OW,C). */
typedef struct strata_taps {
    strata_window window;
    /* n, in and c are N, (H,W) and C of the image; out is (OH,OW). */
    int64_t n, in[2], c, out[2];
    /* The rows and columns of the image from which taps are sliced: the image with its padding, but without rows and
     * columns that no tap needs. */
    int64_t padded[2];
} strata_taps;

/* Returns false if the window has more than STRATA_MOST_TAPS taps. */
bool strata_taps_init(strata_taps *taps, const strata_window *window, strata_shape image);
/* Prepares the image x (N,H,W,C) for strata_tap. Padding has the value `value`. */
strata_tensor *strata_taps_pad(const strata_taps *taps, strata_tensor *x, double value);
strata_tensor *strata_tap(const strata_taps *taps, strata_tensor *padded, int64_t kh, int64_t kw);
/* The transposes of strata_tap and strata_taps_pad: the first writes y (N,OH,OW,C) to the positions of its tap in the padded
 * image, with zeros elsewhere; the second converts a sum of such tensors to an image. */
strata_tensor *strata_untap(const strata_taps *taps, strata_tensor *y, int64_t kh, int64_t kw);
strata_tensor *strata_taps_crop(const strata_taps *taps, strata_tensor *padded);

#endif
