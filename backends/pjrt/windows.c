/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling. Padding does not influence the results: a maximum begins below all numbers, and an average counts only
 * elements of x.
 *
 * The gradient of a maximum belongs to the first of the largest elements of a window. StableHLO's select_and_scatter
 * finds it if the windows do not overlap and contain no padding. Otherwise it depends on the window which one of equal
 * elements jaxlib chooses, and the op is composed of the taps of its windows. */
#include <math.h>

#include "backends/pjrt/lower.h"
#include "core/op/ops.h"
#include "core/op/pool2d.h"

/* The window over x (in_h, in_w) with the result y (out_h, out_w). */
static hlo_window window_of(const strata_tensor *node, strata_shape x, strata_shape y) {
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    hlo_window w = {.dilation = {1, 1}, .spacing = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.size[d] = window->size[d];
        w.stride[d] = window->stride[d];
        w.padding[d][0] = window->padding[2 * d];
        /* The padding that the last window needs, which may be less than that of the node. */
        const int64_t high = (y.dims[1 + d] - 1) * w.stride[d] + w.size[d] - x.dims[1 + d] - w.padding[d][0];
        w.padding[d][1] = high > 0 ? high : 0;
    }
    return w;
}

static bool has_padding(const hlo_window *w) {
    return w->padding[0][0] || w->padding[0][1] || w->padding[1][0] || w->padding[1][1];
}

static const char *refuse_second(const strata_tensor *node) {
    return node->n_inputs > 1 ? "max_pool2d of a second operand is lowered as its parts" : NULL;
}

static hlo_value max_pool2d(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    return strata_hlo_reduce_window(h, "maximum", x, -INFINITY, &w, node->shape);
}

static const char *refuse_overlapping(const strata_tensor *node) {
    const hlo_window w = window_of(node, node->shape, node->inputs[1]->shape);
    const bool side_by_side = w.stride[0] >= w.size[0] && w.stride[1] >= w.size[1] && !has_padding(&w);
    if (side_by_side && !strata_pjrt_int(node, "rectified")) return NULL;
    return "where windows overlap or have padding, the gradient of max_pool2d is lowered as its parts, at most 256 a window";
}

static hlo_value max_pool2d_grad(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0), dy = strata_pjrt_number(h, node, 1);
    const hlo_window w = window_of(node, x.shape, dy.shape);
    if (!strata_shape_elements(dy.shape)) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    return strata_hlo_max_scatter(h, x, dy, &w);
}

/* x (N, OH, OW, C), divided by the number of elements in each window of an image of the shape. */
static hlo_value divided(hlo *h, hlo_value x, const hlo_window *w, strata_shape image) {
    if (!has_padding(w)) return strata_hlo_with(h, "divide", x, (double)(w->size[0] * w->size[1]));
    const hlo_value ones = strata_hlo_fill(h, HLO_F32, STRATA_SHAPE(1, image.dims[1], image.dims[2], 1), 1);
    const strata_shape counts = STRATA_SHAPE(1, x.shape.dims[1], x.shape.dims[2], 1);
    return strata_hlo_binary(h, "divide", x, strata_hlo_reduce_window(h, "add", ones, 0, w, counts));
}

static hlo_value avg_pool2d(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    return divided(h, strata_hlo_reduce_window(h, "add", x, 0, &w, node->shape), &w, x.shape);
}

/* dx[h] = sum over taps k of share[(h + top - k) / stride]: the shares with stride - 1 zeros between them. */
static hlo_value avg_pool2d_grad(hlo *h, const strata_tensor *node) {
    const hlo_value dy = strata_pjrt_number(h, node, 0);
    const hlo_window forward = window_of(node, node->shape, dy.shape);
    const hlo_value share = divided(h, dy, &forward, node->shape);
    hlo_window w = {.stride = {1, 1}, .dilation = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.size[d] = forward.size[d];
        w.spacing[d] = forward.stride[d];
        w.padding[d][0] = forward.size[d] - 1 - forward.padding[d][0];
        const int64_t spaced = (dy.shape.dims[1 + d] - 1) * forward.stride[d] + 1;
        w.padding[d][1] = node->shape.dims[1 + d] + forward.size[d] - 1 - spaced - w.padding[d][0];
    }
    return strata_hlo_reduce_window(h, "add", share, 0, &w, node->shape);
}

const pjrt_row strata_pjrt_windows[] = {
    {.op = &strata_op_max_pool2d, .lower = max_pool2d, .refuse = refuse_second},
    {.op = &strata_op_max_pool2d_grad, .lower = max_pool2d_grad, .refuse = refuse_overlapping},
    PJRT_ROW(avg_pool2d),
    PJRT_ROW(avg_pool2d_grad),
    {0}};
