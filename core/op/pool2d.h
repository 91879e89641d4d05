/* SPDX-License-Identifier: Apache-2.0
 *
 * What max_pool2d and avg_pool2d share: a window over (N,H,W,C), each channel by itself. Padding never takes part, and no
 * window may lie in the padding alone. */
#ifndef STRATA_CORE_OP_POOL2D_H
#define STRATA_CORE_OP_POOL2D_H

#include "core/graph/launch.h"
#include "core/op/window.h"

typedef struct strata_pool2d_attrs {
    strata_window window;
    /* H, W of x, for avg_pool2d_grad: dy does not tell; else 0. */
    int64_t input_size[STRATA_MAX_RANK];
    /* max_pool2d_grad: 1 where its result then went through relu_grad(dx, x). */
    int64_t rectified;
} strata_pool2d_attrs;

/* Sizes of the pooling that one of the nodes belongs to. */
typedef struct strata_pool2d_sizes {
    int64_t n, in_h, in_w, out_h, out_w, c;
} strata_pool2d_sizes;

/* Checks x (N,H,W,C) called `name` of any float dtype under the window, and gives y's shape. */
STRATA_MUST_USE strata_status strata_pool2d_check(const strata_window *window, const strata_tensor *x, strata_shape x_shape,
                                                  const char *name, strata_shape *out_shape, strata_error *err);
/* The window of a user's options over x. */
strata_window strata_pool2d_window_over(const strata_tensor *x, strata_pool2d_window opts);
/* 1-D options as 2-D ones over (N,1,L,C). */
strata_pool2d_window strata_pool1d_widen(strata_pool1d_window opts);
/* x (N,L,C) as (N,1,L,C), or poison; and y back. */
strata_tensor *strata_pool1d_open(strata_tensor *x, const char *op);
strata_tensor *strata_pool1d_close(strata_tensor *y);

/* What relu_grad(node, x) is, where `node` is a max_pool2d_grad and x its own x: the pooled values are then relu's, as in most
 * networks. NULL where they are not that. */
strata_tensor *strata_max_pool2d_grad_rectified(strata_tensor *node, const strata_tensor *x);

/* Elements of a window, and how many outputs' windows cover a pixel, at most. Doubles, since the products of wild sizes leave
 * 64 bits. */
double strata_pool2d_taps(const strata_window *window);
double strata_pool2d_covers(const strata_window *window);
/* Appends the words that all pooling kernels begin with, the constant CHANNELS and the grid over `pixels` of the result.
 * UNSUPPORTED when a work-item would make more than 65,000 `turns` of its loops: some drivers end them soon after, in
 * silence. */
STRATA_MUST_USE strata_status strata_pool2d_launch(strata_launch *launch, const strata_window *window,
                                                   const strata_pool2d_sizes *sizes, int64_t pixels, double turns,
                                                   strata_error *err);

#endif
