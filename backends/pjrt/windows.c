/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling. Padding does not influence the results: a maximum begins below all numbers, and an average counts only
 * elements of x.
 *
 * The gradient of a maximum belongs to the first of the largest elements of a window. StableHLO's select_and_scatter
 * finds it if the windows do not overlap and contain no padding. Otherwise it depends on the window which one of equal
 * elements jaxlib chooses. Then each tap of the window becomes a slice of x and is compared with the maximum. */
#include <math.h>
#include <stdlib.h>

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

static const char *refuse_large(const strata_tensor *node) {
    enum { MOST_TAPS = 256 };
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    if (node->op == &strata_op_max_pool2d && node->n_inputs == 1) return NULL;
    return window->size[0] > MOST_TAPS / window->size[1]
               ? "the gradient of max_pool2d is lowered to StableHLO for windows of at most 256 elements"
               : NULL;
}

static hlo_value maxima(hlo *h, hlo_value x, const hlo_window *w, strata_shape shape) {
    return strata_hlo_reduce_window(h, "maximum", x, -INFINITY, w, shape);
}

/* The state while the taps of all windows are visited in row-major order. */
typedef struct taps {
    hlo *h;
    const hlo_window *w;
    hlo_value y;
    /* In y's shape: whether an earlier tap was the largest. */
    hlo_value taken;
} taps;

/* The elements of tap k, one for each window, in the shape of `like`. padded: x with its padding. */
static hlo_value tap_of(const taps *t, hlo_value padded, int64_t k, strata_shape like) {
    const int64_t stride[] = {1, t->w->stride[0], t->w->stride[1], 1};
    return strata_hlo_slice(t->h, padded, (int64_t[]){0, k / t->w->size[1], k % t->w->size[1], 0}, like.dims, stride);
}

static hlo_value with_padding(hlo *h, hlo_value x, const hlo_window *w, double value) {
    return strata_hlo_pad(h, x, value, (int64_t[]){0, w->padding[0][0], w->padding[1][0], 0},
                          (int64_t[]){0, w->padding[0][1], w->padding[1][1], 0}, NULL);
}

static bool has_padding(const hlo_window *w) {
    return w->padding[0][0] || w->padding[0][1] || w->padding[1][0] || w->padding[1][1];
}

/* Whether tap k is an element of x and no padding: (1, OH, OW, 1). */
static hlo_value is_inside(const taps *t, strata_shape x, int64_t k) {
    const hlo_value ones = strata_hlo_fill(t->h, HLO_F32, STRATA_SHAPE(1, x.dims[1], x.dims[2], 1), 1);
    const strata_shape shape = STRATA_SHAPE(1, t->y.shape.dims[1], t->y.shape.dims[2], 1);
    return HLO_FORMULA(t->h, "x != 0", tap_of(t, with_padding(t->h, ones, t->w, 0), k, shape));
}

/* Whether tap k is the first largest one of its window. NaN is larger than all numbers. x: the image's shape. Padding is never
 * the first, also where all elements of the window are -infinity. */
static hlo_value is_first(taps *t, strata_shape x, hlo_value padded, int64_t k) {
    hlo *h = t->h;
    hlo_value largest = HLO_FORMULA(h, "a == b || a != a", tap_of(t, padded, k, t->y.shape), t->y);
    if (has_padding(t->w)) largest = strata_hlo_binary(h, "and", largest, is_inside(t, x, k));
    const hlo_value first = k ? strata_hlo_binary(h, "and", largest, strata_hlo_unary(h, "not", t->taken)) : largest;
    t->taken = k ? HLO_FORMULA(h, "a || b", t->taken, largest) : largest;
    return first;
}

/* The largest element of x in each window; with a second operand, the element of this operand at the same place. */
static hlo_value max_pool2d(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    taps t = {.h = h, .w = &w, .y = maxima(h, x, &w, node->shape)};
    if (node->n_inputs == 1) return t.y;
    const hlo_value padded = with_padding(h, x, &w, -INFINITY), values = with_padding(h, strata_pjrt_number(h, node, 1), &w, 0);
    hlo_value picked = strata_hlo_fill(h, HLO_F32, node->shape, 0);
    for (int64_t k = 0; k < w.size[0] * w.size[1]; k++)
        picked = strata_hlo_select(h, is_first(&t, x.shape, padded, k), tap_of(&t, values, k, t.y.shape), picked);
    return picked;
}

static bool side_by_side(const hlo_window *w) {
    return w->stride[0] >= w->size[0] && w->stride[1] >= w->size[1] && !has_padding(w);
}

/* The sum over all taps of the window: for each tap, the gradients dy of the windows in which it is the first largest
 * element, moved to the tap's places in x. */
static hlo_value spread_to_largest(hlo *h, const strata_tensor *node, hlo_value x, hlo_value dy) {
    const hlo_window w = window_of(node, x.shape, dy.shape);
    hlo_value dx = strata_hlo_fill(h, HLO_F32, node->shape, 0);
    if (!strata_shape_elements(dy.shape)) return dx;
    if (side_by_side(&w)) return strata_hlo_max_scatter(h, x, dy, &w);
    taps t = {.h = h, .w = &w, .y = maxima(h, x, &w, dy.shape)};
    const hlo_value padded = with_padding(h, x, &w, -INFINITY);
    for (int64_t k = 0; k < w.size[0] * w.size[1]; k++) {
        const int64_t at[] = {k / w.size[1], k % w.size[1]};
        int64_t before[4] = {0}, after[4] = {0}, between[4] = {0};
        for (int d = 0; d < 2; d++) {
            before[1 + d] = at[d] - w.padding[d][0];
            between[1 + d] = w.stride[d] - 1;
            after[1 + d] = x.shape.dims[1 + d] - before[1 + d] - ((dy.shape.dims[1 + d] - 1) * w.stride[d] + 1);
        }
        const hlo_value share = HLO_FORMULA(h, "b ? a : 0", dy, is_first(&t, x.shape, padded, k));
        dx = HLO_FORMULA(h, "a + b", dx, strata_hlo_pad(h, share, 0, before, after, between));
    }
    return dx;
}

static hlo_value max_pool2d_grad(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const hlo_value dx = spread_to_largest(h, node, x, strata_pjrt_number(h, node, 1));
    return strata_pjrt_int(node, "rectified") ? HLO_FORMULA(h, "b > 0 ? a : 0", dx, x) : dx;
}

/* (1, OH, OW, 1): the number of elements of x in each window. */
static hlo_value counts(hlo *h, const strata_tensor *node, strata_shape x, strata_shape y) {
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    const strata_shape shape = STRATA_SHAPE(1, y.dims[1], y.dims[2], 1);
    float *values = malloc((size_t)(y.dims[1] * y.dims[2]) * sizeof *values + 1);
    if (!values) {
        h->text.failed = true;
        return strata_hlo_fill(h, HLO_F32, shape, 1);
    }
    for (int64_t i = 0; i < y.dims[1] * y.dims[2]; i++) {
        int64_t first[2], end[2], at;
        strata_window_taps(window, 0, i / y.dims[2], x.dims[1], &first[0], &end[0], &at);
        strata_window_taps(window, 1, i % y.dims[2], x.dims[2], &first[1], &end[1], &at);
        values[i] = (float)((end[0] - first[0]) * (end[1] - first[1]));
    }
    bool equal = true;
    for (int64_t i = 1; i < y.dims[1] * y.dims[2]; i++) equal = equal && values[i] == values[0];
    const hlo_value result =
        equal ? strata_hlo_fill(h, HLO_F32, shape, (double)values[0]) : strata_hlo_data(h, HLO_F32, shape, values);
    free(values);
    return result;
}

static hlo_value avg_pool2d(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const hlo_window w = window_of(node, x.shape, node->shape);
    return HLO_FORMULA(h, "a / b", strata_hlo_reduce_window(h, "add", x, 0, &w, node->shape),
                       counts(h, node, x.shape, node->shape));
}

/* dx[h] = sum over taps k of share[(h + top - k) / stride]: the shares with stride - 1 zeros between them. */
static hlo_value avg_pool2d_grad(hlo *h, const strata_tensor *node) {
    const hlo_value dy = strata_pjrt_number(h, node, 0);
    const hlo_value share = HLO_FORMULA(h, "a / b", dy, counts(h, node, node->shape, dy.shape));
    const hlo_window forward = window_of(node, node->shape, dy.shape);
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

const pjrt_row strata_pjrt_windows[] = {{.op = &strata_op_max_pool2d, .lower = max_pool2d, .refuse = refuse_large},
                                        {.op = &strata_op_max_pool2d_grad, .lower = max_pool2d_grad, .refuse = refuse_large},
                                        PJRT_ROW(avg_pool2d),
                                        PJRT_ROW(avg_pool2d_grad),
                                        {0}};
