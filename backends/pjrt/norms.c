/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation by channel and by row. The formulas are in core/op/moments.c, batch_norm.c and layer_norm.c. Statistics
 * are computed in f32. */
#include <math.h>

#include "backends/pjrt/rows.h"
#include "core/op/channels.h"

static hlo_value over_rows(hlo *h, hlo_value x) {
    return strata_hlo_reduce(h, "add", x, 0, 0, x.shape.rank - 1);
}

/* (2, C): two numbers for each channel. */
static hlo_value two_rows(hlo *h, hlo_value a, hlo_value b) {
    const strata_shape row = STRATA_SHAPE(1, a.shape.dims[0]);
    return strata_hlo_concat(h, (hlo_value[]){strata_hlo_reshape(h, a, row), strata_hlo_reshape(h, b, row)}, 2, 0);
}

static hlo_value row_of(hlo *h, hlo_value pair, int64_t index) {
    const int64_t channels = pair.shape.dims[1];
    return strata_hlo_reshape(h, strata_hlo_slice(h, pair, (int64_t[]){index, 0}, (int64_t[]){1, channels}),
                              STRATA_SHAPE(channels));
}

static hlo_value inverse_deviation(hlo *h, hlo_value variance, double epsilon) {
    return strata_hlo_unary(h, "rsqrt", strata_hlo_with(h, "add", variance, epsilon));
}

hlo_value strata_pjrt_moments(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value x = strata_pjrt_number(l, node, 0);
    const double rows = (double)strata_channels_of(x.shape).rows;
    const hlo_value mean = strata_hlo_with(h, "divide", over_rows(h, x), rows);
    const hlo_value d = strata_hlo_binary(h, "subtract", x, mean);
    return two_rows(h, mean, strata_hlo_with(h, "divide", over_rows(h, strata_hlo_binary(h, "multiply", d, d)), rows));
}

enum { X, MEAN, VARIANCE, SCALE, SHIFT, SUMS = 4, DY = 5, DY_OF_SUMS = 3 };

hlo_value strata_pjrt_batch_norm(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value r = inverse_deviation(h, strata_pjrt_operand(l, node, VARIANCE), strata_pjrt_float(node, "epsilon"));
    const hlo_value factor = strata_hlo_binary(h, "multiply", strata_pjrt_operand(l, node, SCALE), r);
    const hlo_value d = strata_hlo_binary(h, "subtract", strata_pjrt_number(l, node, X), strata_pjrt_operand(l, node, MEAN));
    return strata_hlo_binary(h, "add", strata_hlo_binary(h, "multiply", d, factor), strata_pjrt_operand(l, node, SHIFT));
}

/* n = (x - mean) r */
static hlo_value normalised(pjrt_lowering *l, const strata_tensor *node, hlo_value r) {
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value d = strata_hlo_binary(h, "subtract", strata_pjrt_number(l, node, X), strata_pjrt_operand(l, node, MEAN));
    return strata_hlo_binary(h, "multiply", d, r);
}

hlo_value strata_pjrt_batch_norm_sums(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value r = inverse_deviation(h, strata_pjrt_operand(l, node, VARIANCE), strata_pjrt_float(node, "epsilon"));
    const hlo_value dy = strata_pjrt_number(l, node, DY_OF_SUMS);
    return two_rows(h, over_rows(h, dy), over_rows(h, strata_hlo_binary(h, "multiply", dy, normalised(l, node, r))));
}

hlo_value strata_pjrt_batch_norm_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const strata_channels c = strata_channels_of(node->shape);
    const hlo_value r = inverse_deviation(h, strata_pjrt_operand(l, node, VARIANCE), strata_pjrt_float(node, "epsilon"));
    const hlo_value factor = strata_hlo_binary(h, "multiply", strata_pjrt_operand(l, node, SCALE), r);
    const hlo_value dy = strata_pjrt_number(l, node, DY), sums = strata_pjrt_operand(l, node, SUMS);
    if (!strata_pjrt_int(node, "own") || !c.rows) return strata_hlo_binary(h, "multiply", dy, factor);
    const hlo_value by_n = strata_hlo_binary(h, "multiply", normalised(l, node, r), row_of(h, sums, 1));
    const hlo_value common =
        strata_hlo_with(h, "multiply", strata_hlo_binary(h, "add", by_n, row_of(h, sums, 0)), 1 / (double)c.rows);
    return strata_hlo_binary(h, "multiply", strata_hlo_binary(h, "subtract", dy, common), factor);
}

/* ---- by row ---- */

/* The mean of each row, repeated along the row. */
static hlo_value row_mean(hlo *h, hlo_value x) {
    const int last = x.shape.rank - 1;
    int axes[STRATA_MAX_RANK];
    for (int d = 0; d < last; d++) axes[d] = d;
    const hlo_value mean = strata_hlo_with(h, "divide", strata_hlo_reduce(h, "add", x, 0, last, 1), (double)x.shape.dims[last]);
    return strata_hlo_spread(h, mean, x.shape, axes);
}

/* n = (x - mean) r; *out_r: r, repeated along each row. */
static hlo_value normalised_rows(pjrt_lowering *l, const strata_tensor *node, hlo_value *out_r) {
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value x = strata_pjrt_number(l, node, 0), d = strata_hlo_binary(h, "subtract", x, row_mean(h, x));
    *out_r = inverse_deviation(h, row_mean(h, strata_hlo_binary(h, "multiply", d, d)), strata_pjrt_float(node, "epsilon"));
    return strata_hlo_binary(h, "multiply", d, *out_r);
}

hlo_value strata_pjrt_layer_norm(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    hlo_value r;
    const hlo_value n = normalised_rows(l, node, &r);
    return strata_hlo_binary(h, "add", strata_hlo_binary(h, "multiply", n, strata_pjrt_operand(l, node, 1)),
                             strata_pjrt_operand(l, node, 2));
}

hlo_value strata_pjrt_layer_norm_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    hlo_value r;
    const hlo_value n = normalised_rows(l, node, &r);
    const hlo_value g = strata_hlo_binary(h, "multiply", strata_pjrt_number(l, node, 2), strata_pjrt_operand(l, node, 1));
    const hlo_value along = strata_hlo_binary(h, "multiply", n, row_mean(h, strata_hlo_binary(h, "multiply", g, n)));
    return strata_hlo_binary(h, "multiply", r,
                             strata_hlo_binary(h, "subtract", strata_hlo_binary(h, "subtract", g, row_mean(h, g)), along));
}
