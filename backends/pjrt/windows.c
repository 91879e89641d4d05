/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling. Padding takes no part: a maximum begins below all numbers, and an average counts what is there. */
#include <math.h>
#include <stdlib.h>

#include "backends/pjrt/rows.h"
#include "core/op/pool2d.h"

/* The window over x of in_h by in_w, whose result has out_h by out_w. */
static hlo_window window_of(const strata_tensor *node, strata_shape x, strata_shape y) {
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    hlo_window w = {.dilation = {1, 1}, .spacing = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.size[d] = window->size[d];
        w.stride[d] = window->stride[d];
        w.padding[d][0] = window->padding[2 * d];
        /* What the last window needs, which may be less than what was padded. */
        const int64_t high = (y.dims[1 + d] - 1) * w.stride[d] + w.size[d] - x.dims[1 + d] - w.padding[d][0];
        w.padding[d][1] = high > 0 ? high : 0;
    }
    return w;
}

const char *pjrt_refuse_picking(const strata_tensor *node) {
    return node->n_inputs > 1 ? "max_pool2d of a second operand, a gradient's gradient, has no lowering to StableHLO" : NULL;
}

hlo_value pjrt_max_pool2d(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const hlo_value x = pjrt_number(l, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    return hlo_reduce_window(pjrt_text_of(l), "maximum", x, -INFINITY, &w, node->shape);
}

hlo_value pjrt_max_pool2d_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = pjrt_text_of(l);
    const hlo_value x = pjrt_number(l, node, 0), dy = pjrt_number(l, node, 1);
    const hlo_window w = window_of(node, x.shape, dy.shape);
    const hlo_value dx = hlo_max_scatter(h, x, dy, &w);
    return pjrt_int(node, "rectified") ? pjrt_relu_grad(h, NULL, (hlo_value[]){dx, x}) : dx;
}

/* (1, OH, OW, 1): how many elements each window has. */
static hlo_value counts(hlo *h, const strata_tensor *node, strata_shape x, strata_shape y) {
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    const strata_shape shape = STRATA_SHAPE(1, y.dims[1], y.dims[2], 1);
    float *values = malloc((size_t)(y.dims[1] * y.dims[2]) * sizeof *values + 1);
    if (!values) {
        h->text.failed = true;
        return hlo_fill(h, HLO_F32, shape, 1);
    }
    for (int64_t i = 0; i < y.dims[1] * y.dims[2]; i++) {
        int64_t first[2], end[2], at;
        strata_window_taps(window, 0, i / y.dims[2], x.dims[1], &first[0], &end[0], &at);
        strata_window_taps(window, 1, i % y.dims[2], x.dims[2], &first[1], &end[1], &at);
        values[i] = (float)((end[0] - first[0]) * (end[1] - first[1]));
    }
    bool equal = true;
    for (int64_t i = 1; i < y.dims[1] * y.dims[2]; i++) equal = equal && values[i] == values[0];
    const hlo_value result = equal ? hlo_fill(h, HLO_F32, shape, (double)values[0]) : hlo_data(h, HLO_F32, shape, values);
    free(values);
    return result;
}

hlo_value pjrt_avg_pool2d(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = pjrt_text_of(l);
    const hlo_value x = pjrt_number(l, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    return hlo_binary(h, "divide", hlo_reduce_window(h, "add", x, 0, &w, node->shape), counts(h, node, x.shape, node->shape));
}

/* dx[h] = sum over taps k of share[(h + top - k) / stride]: the shares with stride - 1 zeros between them. */
hlo_value pjrt_avg_pool2d_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = pjrt_text_of(l);
    const hlo_value dy = pjrt_number(l, node, 0);
    const hlo_value share = hlo_binary(h, "divide", dy, counts(h, node, node->shape, dy.shape));
    const hlo_window forward = window_of(node, node->shape, dy.shape);
    hlo_window w = {.stride = {1, 1}, .dilation = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.size[d] = forward.size[d];
        w.spacing[d] = forward.stride[d];
        w.padding[d][0] = forward.size[d] - 1 - forward.padding[d][0];
        const int64_t spaced = (dy.shape.dims[1 + d] - 1) * forward.stride[d] + 1;
        w.padding[d][1] = node->shape.dims[1 + d] + forward.size[d] - 1 - spaced - w.padding[d][0];
    }
    return hlo_reduce_window(h, "add", share, 0, &w, node->shape);
}
