/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation by channel and by row. The formulas are in core/op/moments.c, batch_norm.c and layer_norm.c. Statistics
 * are computed in f32. */
#include "backends/pjrt/lower.h"
#include "core/op/channels.h"
#include "core/op/ops.h"

/* (C): the sum of each channel. */
static hlo_value sums_of(hlo *h, hlo_value x) {
    const int rows = x.shape.rank - 1;
    return strata_hlo_reshape(h, strata_hlo_fold(h, "add", x, 0, 0, rows), STRATA_SHAPE(x.shape.dims[rows]));
}

/* (2, C): two numbers for each channel. */
static hlo_value two_rows(hlo *h, hlo_value a, hlo_value b) {
    const strata_shape row = STRATA_SHAPE(1, a.shape.dims[0]);
    return strata_hlo_concat(h, (hlo_value[]){strata_hlo_reshape(h, a, row), strata_hlo_reshape(h, b, row)}, 2, 0);
}

static hlo_value row_of(hlo *h, hlo_value pair, int64_t index) {
    const int64_t channels = pair.shape.dims[1];
    return strata_hlo_reshape(h, strata_hlo_slice(h, pair, (int64_t[]){index, 0}, (int64_t[]){1, channels}, NULL),
                              STRATA_SHAPE(channels));
}

static hlo_value moments(hlo *h, const strata_tensor *node) {
    const hlo_value x = strata_pjrt_number(h, node, 0);
    const double rows = (double)strata_channels_of(x.shape).rows;
    const hlo_value mean = strata_hlo_with(h, "divide", sums_of(h, x), rows);
    const hlo_value squares = HLO_FORMULA(h, "x * x", HLO_FORMULA(h, "a - b", x, mean));
    return two_rows(h, mean, strata_hlo_with(h, "divide", sums_of(h, squares), rows));
}

enum { X, MEAN, VARIANCE, SCALE, SHIFT, SUMS = 4, DY = 5, DY_OF_SUMS = 3 };

/* 1 / the deviation of each channel. */
static hlo_value inverse_deviation(hlo *h, const strata_tensor *node) {
    return HLO_FORMULA(h, "RSQRT(a + b)", strata_pjrt_operand(h, node, VARIANCE), strata_pjrt_constant(h, node, "epsilon"));
}

static hlo_value batch_norm(hlo *h, const strata_tensor *node) {
    return HLO_FORMULA(h, "(a - b) * (c * d) + e", strata_pjrt_number(h, node, X), strata_pjrt_operand(h, node, MEAN),
                       strata_pjrt_operand(h, node, SCALE), inverse_deviation(h, node), strata_pjrt_operand(h, node, SHIFT));
}

static hlo_value normalised(hlo *h, const strata_tensor *node) {
    return HLO_FORMULA(h, "(a - b) * c", strata_pjrt_number(h, node, X), strata_pjrt_operand(h, node, MEAN),
                       inverse_deviation(h, node));
}

static hlo_value batch_norm_sums(hlo *h, const strata_tensor *node) {
    const hlo_value dy = strata_pjrt_number(h, node, DY_OF_SUMS);
    return two_rows(h, sums_of(h, dy), sums_of(h, HLO_FORMULA(h, "a * b", dy, normalised(h, node))));
}

static hlo_value batch_norm_grad(hlo *h, const strata_tensor *node) {
    const strata_channels c = strata_channels_of(node->shape);
    const hlo_value dy = strata_pjrt_number(h, node, DY), sums = strata_pjrt_operand(h, node, SUMS);
    const hlo_value factor = HLO_FORMULA(h, "a * b", strata_pjrt_operand(h, node, SCALE), inverse_deviation(h, node));
    if (!strata_pjrt_int(node, "own") || !c.rows) return HLO_FORMULA(h, "a * b", dy, factor);
    return HLO_FORMULA(h, "(a - (b * c + d) * e) * f", dy, normalised(h, node), row_of(h, sums, 1), row_of(h, sums, 0),
                       strata_hlo_scalar(h, HLO_F32, 1 / (double)c.rows), factor);
}

/* ---- by row ---- */

static hlo_value row_mean(hlo *h, hlo_value x) {
    const int last = x.shape.rank - 1;
    return strata_hlo_with(h, "divide", strata_hlo_fold(h, "add", x, 0, last, 1), (double)x.shape.dims[last]);
}

/* n = (x - mean) r; *out_r: r. */
static hlo_value normalised_rows(hlo *h, const strata_tensor *node, hlo_value *out_r) {
    const hlo_value x = strata_pjrt_number(h, node, 0), d = HLO_FORMULA(h, "a - b", x, row_mean(h, x));
    *out_r = HLO_FORMULA(h, "RSQRT(a + b)", row_mean(h, HLO_FORMULA(h, "x * x", d)), strata_pjrt_constant(h, node, "epsilon"));
    return HLO_FORMULA(h, "a * b", d, *out_r);
}

static hlo_value layer_norm(hlo *h, const strata_tensor *node) {
    hlo_value r;
    return HLO_FORMULA(h, "a * b + c", normalised_rows(h, node, &r), strata_pjrt_operand(h, node, 1),
                       strata_pjrt_operand(h, node, 2));
}

static hlo_value layer_norm_grad(hlo *h, const strata_tensor *node) {
    hlo_value r;
    const hlo_value n = normalised_rows(h, node, &r);
    const hlo_value g = HLO_FORMULA(h, "a * b", strata_pjrt_number(h, node, 2), strata_pjrt_operand(h, node, 1));
    return HLO_FORMULA(h, "a * (b - c - d * e)", r, g, row_mean(h, g), n, row_mean(h, HLO_FORMULA(h, "a * b", g, n)));
}

const pjrt_row strata_pjrt_norms[] = {PJRT_ROW(moments),
                                      PJRT_ROW(batch_norm),
                                      PJRT_ROW(batch_norm_sums),
                                      PJRT_ROW(batch_norm_grad),
                                      PJRT_ROW(layer_norm),
                                      PJRT_ROW(layer_norm_grad),
                                      {0}};
