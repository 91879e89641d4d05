/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d and avg_pool2d: a window over (N,H,W,C), applied to each channel by itself. Padding is ignored,
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

/* The sizes of a pooling of x (N,H,W,C). */
strata_pool2d_sizes strata_pool2d_sizes_of(const strata_window *window, strata_shape x);

/* A single node for relu_grad(node, x), if `node` is a max_pool2d_grad and x is its own x. This occurs if a relu is pooled, as
 * in most networks. NULL in all other cases. */
strata_tensor *strata_max_pool2d_grad_rectified(strata_tensor *node, const strata_tensor *x);

#endif
