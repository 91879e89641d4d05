/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of max_pool2d and avg_pool2d: a window over (N,H,W,C), applied to each channel by itself. Padding is ignored,
 * and no window may consist only of padding. */
#ifndef STRATA_CORE_OP_POOL2D_H
#define STRATA_CORE_OP_POOL2D_H

#include "core/graph/launch.h"
#include "core/op/window.h"

typedef struct strata_pool2d_attrs {
    strata_window window;
    /* H, W of x for avg_pool2d_grad, because they do not follow from the shape of dy; else 0. */
    int64_t input_size[STRATA_MAX_RANK];
    /* 1: the result of max_pool2d_grad is relu_grad(dx, x). */
    int64_t rectified;
} strata_pool2d_attrs;

/* All sizes of a pooling, computed from one of its nodes. */
typedef struct strata_pool2d_sizes {
    int64_t n, in_h, in_w, out_h, out_w, c;
} strata_pool2d_sizes;

/* Checks that x, called `name` in messages, is (N,H,W,C) of a float dtype and fits the window, and returns y's shape. */
STRATA_MUST_USE strata_status strata_pool2d_check(const strata_window *window, const strata_tensor *x, strata_shape x_shape,
                                                  const char *name, strata_shape *out_shape, strata_error *err);
/* Converts the user's options to a window over x. */
strata_window strata_pool2d_window_over(const strata_tensor *x, strata_pool2d_window opts);
/* Converts 1-D options to 2-D options over (N,1,L,C). */
strata_pool2d_window strata_pool1d_widen(strata_pool1d_window opts);
/* strata_pool1d_open reshapes x (N,L,C) to (N,1,L,C), or records an error in the graph. strata_pool1d_close reshapes y
 * back. */
strata_tensor *strata_pool1d_open(strata_tensor *x, const char *op);
strata_tensor *strata_pool1d_close(strata_tensor *y);

/* A single node for relu_grad(node, x), if `node` is a max_pool2d_grad and x is its own x. This occurs if a relu is pooled, as
 * in most networks. NULL in all other cases. */
strata_tensor *strata_max_pool2d_grad_rectified(strata_tensor *node, const strata_tensor *x);

/* strata_pool2d_taps: the number of elements in a window. strata_pool2d_covers: the most windows that contain the same
 * pixel. They are doubles, because products of very large sizes may exceed 64 bits. */
double strata_pool2d_taps(const strata_window *window);
double strata_pool2d_covers(const strata_window *window);
/* Appends the words that all pooling kernels begin with, the constant CHANNELS and the grid over `pixels` of the result.
 * Fails with UNSUPPORTED if a work-item would make more than 65,000 iterations (`turns`) of its loops, because some drivers
 * silently end loops soon after that. */
STRATA_MUST_USE strata_status strata_pool2d_launch(strata_launch *launch, const strata_window *window,
                                                   const strata_pool2d_sizes *sizes, int64_t pixels, double turns,
                                                   strata_error *err);

#endif
