/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions, softmax and the losses that use it, and the sums that metrics need. A row extends along the last axis. */
#include <math.h>

#include "backends/pjrt/lower.h"
#include "core/op/ops.h"
#include "core/op/reduce.h"

static hlo_value reduce_as(hlo *h, const strata_tensor *node, const char *name, hlo_value x, double start) {
    const strata_reduce_attrs *attrs = node->attrs;
    return strata_hlo_fold(h, name, x, start, (int)attrs->axis, (int)attrs->n_axes);
}

/* The initial value of a maximum: no number of the type is smaller. */
static double lowest(int type) {
    if (strata_dtype_is_float((strata_dtype)type)) return -INFINITY;
    return type == HLO_I64 ? -0x1p63 : type == HLO_I32 ? INT32_MIN : 0;
}

static hlo_value reduce_sum(hlo *h, const strata_tensor *node) {
    return reduce_as(h, node, "add", strata_pjrt_number(h, node, 0), 0);
}

static hlo_value reduce_mean(hlo *h, const strata_tensor *node) {
    const strata_reduce_attrs *attrs = node->attrs;
    double n = 1;
    for (int64_t d = attrs->axis; d < attrs->axis + attrs->n_axes; d++) n *= (double)node->inputs[0]->shape.dims[d];
    return strata_hlo_with(h, "divide", reduce_sum(h, node), n);
}

/* The result is NaN if any element of x is NaN, which jaxlib's vectorized reductions lose. A minimum of integers is computed as
 * the complement of the maximum of their complements, because the initial value of a minimum, INT64_MAX, cannot be represented
 * as a double. */
static hlo_value extreme(hlo *h, const strata_tensor *node, bool max) {
    const hlo_value x = strata_pjrt_number(h, node, 0), nan = strata_hlo_scalar(h, HLO_F32, (double)NAN);
    if (strata_dtype_is_float(node->dtype)) {
        const hlo_value most = reduce_as(h, node, max ? "maximum" : "minimum", x, max ? -INFINITY : INFINITY);
        const hlo_value n_nan = reduce_as(h, node, "maximum", strata_hlo_convert(h, HLO_FORMULA(h, "x != x", x), HLO_I32), 0);
        return HLO_FORMULA(h, "a != 0 ? b : c", n_nan, nan, most);
    }
    if (max) return reduce_as(h, node, "maximum", x, lowest(x.type));
    return strata_hlo_unary(h, "not", reduce_as(h, node, "maximum", strata_hlo_unary(h, "not", x), lowest(x.type)));
}

static hlo_value reduce_max(hlo *h, const strata_tensor *node) {
    return extreme(h, node, true);
}

static hlo_value reduce_min(hlo *h, const strata_tensor *node) {
    return extreme(h, node, false);
}

/* The smallest index along the axis at which x is the maximum or NaN. */
static hlo_value first_largest(hlo *h, hlo_value x, int axis) {
    const bool is_float = strata_dtype_is_float((strata_dtype)x.type);
    if (x.type == HLO_I1) x = strata_hlo_convert(h, x, HLO_I32);
    const hlo_value most = strata_hlo_fold(h, "maximum", x, lowest(x.type), axis, 1);
    const hlo_value is_it = HLO_FORMULA(h, is_float ? "a == b || a != a" : "a == b", x, most);
    const hlo_value place = strata_hlo_iota(h, HLO_I32, x.shape, axis), none = strata_hlo_scalar(h, HLO_I32, INT32_MAX);
    return strata_hlo_fold(h, "minimum", strata_hlo_select(h, is_it, place, none), INT32_MAX, axis, 1);
}

static hlo_value argmax(hlo *h, const strata_tensor *node) {
    return first_largest(h, strata_pjrt_number(h, node, 0), strata_pjrt_axis(node));
}

/* ---- softmax ---- */

static hlo_value fold_rows(hlo *h, const char *name, hlo_value x, double start) {
    return strata_hlo_fold(h, name, x, start, x.shape.rank - 1, 1);
}

/* A value for each row, in the shape (rows..., 1). */
static hlo_value per_row(hlo *h, hlo_value x) {
    strata_shape shape = x.shape;
    shape.dims[shape.rank++] = 1;
    return strata_hlo_reshape(h, x, shape);
}

static hlo_value shifted(hlo *h, hlo_value x) {
    return HLO_FORMULA(h, "a - b", x, fold_rows(h, "maximum", x, -INFINITY));
}

/* x - log(sum(exp(x))) for each row. */
static hlo_value log_softmax_of(hlo *h, hlo_value x) {
    const hlo_value s = shifted(h, x);
    return HLO_FORMULA(h, "a - LOG(b)", s, fold_rows(h, "add", HLO_FORMULA(h, "EXP(x)", s), 0));
}

static hlo_value softmax_of(hlo *h, hlo_value x) {
    const hlo_value e = HLO_FORMULA(h, "EXP(x)", shifted(h, x));
    return HLO_FORMULA(h, "a / b", e, fold_rows(h, "add", e, 0));
}

static hlo_value softmax(hlo *h, const strata_tensor *node) {
    return softmax_of(h, strata_pjrt_number(h, node, 0));
}

static hlo_value softmax_grad(hlo *h, const strata_tensor *node) {
    const hlo_value y = strata_pjrt_number(h, node, 0), dy = strata_pjrt_number(h, node, 1);
    return HLO_FORMULA(h, "a * (b - c)", y, dy, fold_rows(h, "add", HLO_FORMULA(h, "a * b", y, dy), 0));
}

static hlo_value log_softmax(hlo *h, const strata_tensor *node) {
    return log_softmax_of(h, strata_pjrt_number(h, node, 0));
}

static hlo_value log_softmax_grad(hlo *h, const strata_tensor *node) {
    const hlo_value y = strata_pjrt_number(h, node, 0), dy = strata_pjrt_number(h, node, 1);
    return HLO_FORMULA(h, "a - EXP(b) * c", dy, y, fold_rows(h, "add", dy, 0));
}

/* ---- losses ---- */

enum { LOGITS, LABELS, DY };

static hlo_value softmax_cross_entropy(hlo *h, const strata_tensor *node) {
    const hlo_value log_p = log_softmax_of(h, strata_pjrt_number(h, node, LOGITS));
    return HLO_FORMULA(h, "-x", fold_rows(h, "add", HLO_FORMULA(h, "a * b", strata_pjrt_number(h, node, LABELS), log_p), 0));
}

static hlo_value softmax_cross_entropy_grad(hlo *h, const strata_tensor *node) {
    enum { OF_LOGITS = 1 };
    const hlo_value logits = strata_pjrt_number(h, node, LOGITS), labels = strata_pjrt_number(h, node, LABELS);
    const hlo_value dy = per_row(h, strata_pjrt_number(h, node, DY));
    if (strata_pjrt_int(node, "of") != OF_LOGITS) return HLO_FORMULA(h, "a * -b", dy, log_softmax_of(h, logits));
    return HLO_FORMULA(h, "a * (b * c - d)", dy, softmax_of(h, logits), fold_rows(h, "add", labels, 0), labels);
}

/* Whether the column is the row's label, and whether the label is a class, for each row. */
static hlo_value one_hot(hlo *h, hlo_value labels, strata_shape logits) {
    return HLO_FORMULA(h, "a == b", strata_hlo_iota(h, labels.type, logits, logits.rank - 1), labels);
}

static hlo_value is_class(hlo *h, hlo_value labels, strata_shape logits) {
    const hlo_value classes = strata_hlo_scalar(h, labels.type, (double)logits.dims[logits.rank - 1]);
    return strata_hlo_binary(h, "and", HLO_FORMULA(h, "x >= 0", labels), HLO_FORMULA(h, "a < b", labels, classes));
}

/* The loss of a row is NaN if its label is not a class. */
static hlo_value sparse_softmax_cross_entropy(hlo *h, const strata_tensor *node) {
    const hlo_value logits = strata_pjrt_number(h, node, LOGITS), labels = per_row(h, strata_pjrt_operand(h, node, LABELS));
    const hlo_value log_p = log_softmax_of(h, logits), nan = strata_hlo_scalar(h, HLO_F32, (double)NAN);
    const hlo_value own = HLO_FORMULA(h, "a ? b : 0", one_hot(h, labels, logits.shape), log_p);
    return HLO_FORMULA(h, "a ? -b : c", is_class(h, labels, logits.shape), fold_rows(h, "add", own, 0), nan);
}

static hlo_value sparse_softmax_cross_entropy_grad(hlo *h, const strata_tensor *node) {
    const hlo_value logits = strata_pjrt_number(h, node, LOGITS), labels = per_row(h, strata_pjrt_operand(h, node, LABELS));
    const hlo_value dy = per_row(h, strata_pjrt_number(h, node, DY)), nan = strata_hlo_scalar(h, HLO_F32, (double)NAN);
    const hlo_value own = strata_hlo_convert(h, one_hot(h, labels, logits.shape), HLO_F32);
    return HLO_FORMULA(h, "(a ? b : c) * (d - e)", is_class(h, labels, logits.shape), dy, nan, softmax_of(h, logits), own);
}

/* ---- metrics ---- */

/* (2): the two numbers one after the other. */
static hlo_value pair(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_concat(
        h, (hlo_value[]){strata_hlo_reshape(h, a, STRATA_SHAPE(1)), strata_hlo_reshape(h, b, STRATA_SHAPE(1))}, 2, 0);
}

static hlo_value count_all(hlo *h, hlo_value x) {
    return strata_hlo_fold(h, "add", strata_hlo_convert(h, x, HLO_F32), 0, 0, x.shape.rank);
}

enum { LOSSES, OUTPUTS, ANSWERS };

static hlo_value classification_sums(hlo *h, const strata_tensor *node) {
    const hlo_value labels = strata_pjrt_operand(h, node, ANSWERS), outputs = strata_pjrt_operand(h, node, OUTPUTS);
    const hlo_value best =
        strata_hlo_reshape(h, strata_hlo_convert(h, first_largest(h, outputs, 1), labels.type), labels.shape);
    return pair(h, count_all(h, strata_pjrt_operand(h, node, LOSSES)), count_all(h, HLO_FORMULA(h, "a == b", best, labels)));
}

static hlo_value binary_sums(hlo *h, const strata_tensor *node) {
    const hlo_value outputs = strata_pjrt_operand(h, node, OUTPUTS), labels = strata_pjrt_operand(h, node, ANSWERS);
    const hlo_value said = HLO_FORMULA(h, "a > b", outputs, strata_pjrt_constant(h, node, "threshold"));
    const hlo_value wrong = strata_hlo_binary(h, "xor", said, HLO_FORMULA(h, "x > 0.5", labels));
    return pair(h, count_all(h, strata_pjrt_operand(h, node, LOSSES)),
                strata_hlo_with(h, "divide", count_all(h, HLO_FORMULA(h, "!x", wrong)), (double)outputs.shape.dims[1]));
}

const pjrt_row strata_pjrt_folds[] = {PJRT_ROW(reduce_sum),
                                      PJRT_ROW(reduce_mean),
                                      PJRT_ROW(reduce_max),
                                      PJRT_ROW(reduce_min),
                                      PJRT_ROW(argmax),
                                      PJRT_ROW(softmax),
                                      PJRT_ROW(softmax_grad),
                                      PJRT_ROW(log_softmax),
                                      PJRT_ROW(log_softmax_grad),
                                      PJRT_ROW(softmax_cross_entropy),
                                      PJRT_ROW(softmax_cross_entropy_grad),
                                      PJRT_ROW(sparse_softmax_cross_entropy),
                                      PJRT_ROW(sparse_softmax_cross_entropy_grad),
                                      PJRT_ROW(classification_sums),
                                      PJRT_ROW(binary_sums),
                                      {0}};
