/* SPDX-License-Identifier: Apache-2.0
 *
 * What compositions of ops (strata_op.compose) share: constants, and windows cut into their taps, so that convolutions and
 * pools become slices, products and sums. */
#ifndef STRATA_CORE_OP_COMPOSE_H
#define STRATA_CORE_OP_COMPOSE_H

#include "core/op/window.h"

enum {
    /* Elements of a constant or a mask that a composition may need and the op itself does not; beyond it there is none. */
    STRATA_MOST_COMPOSED = 1 << 24,
    /* Taps of a window, times groups of channels: each is some nodes. */
    STRATA_MOST_TAPS = 128
};

/* A constant of the shape with one value; NULL beyond STRATA_MOST_COMPOSED elements. */
strata_tensor *strata_filled(strata_graph *graph, strata_dtype dtype, strata_shape shape, double value);
/* x in f32. */
strata_tensor *strata_wide(strata_tensor *x);
/* Element or row `index` of x along its first axis, without that axis. */
strata_tensor *strata_row_of(strata_tensor *x, int64_t index);

/* An image under a window, as its taps: tap (kh,kw) of all outputs is a tensor (N,OH,OW,C). */
typedef struct strata_taps {
    strata_window window;
    /* N, H, W, C of the image; OH, OW. */
    int64_t n, in[2], c, out[2];
    /* Rows and columns of the image as taps are cut from it: padded, or without what no tap needs. */
    int64_t padded[2];
} strata_taps;

/* False where the window has too many taps. */
bool strata_taps_init(strata_taps *taps, const strata_window *window, strata_shape image);
/* The image x (N,H,W,C), ready for strata_tap; padding has the value. */
strata_tensor *strata_taps_pad(const strata_taps *taps, strata_tensor *x, double value);
strata_tensor *strata_tap(const strata_taps *taps, strata_tensor *padded, int64_t kh, int64_t kw);
/* The transpose of strata_tap: y (N,OH,OW,C) where it came from in the padded image, zeros elsewhere; and of
 * strata_taps_pad: the sum of such as an image. */
strata_tensor *strata_untap(const strata_taps *taps, strata_tensor *y, int64_t kh, int64_t kw);
strata_tensor *strata_taps_crop(const strata_taps *taps, strata_tensor *padded);

#endif
