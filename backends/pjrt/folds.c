/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions, softmax and the losses that use it, and the sums that metrics need. A row extends along the last axis. */
#include <math.h>

#include "backends/pjrt/rows.h"
#include "core/op/ops.h"
#include "core/op/reduce.h"

static hlo_value reduce_as(pjrt_lowering *l, const strata_tensor *node, const char *name, double start) {
    const strata_reduce_attrs *attrs = node->attrs;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value x = strata_pjrt_number(l, node, 0);
    return strata_hlo_reshape(h, strata_hlo_reduce(h, name, x, start, (int)attrs->axis, (int)attrs->n_axes), node->shape);
}

/* The initial value of a maximum: no number of the type is smaller. */
static double lowest(int type) {
    if (strata_dtype_is_float((strata_dtype)type)) return -INFINITY;
    return type == HLO_I64 ? -0x1p63 : type == HLO_I32 ? INT32_MIN : 0;
}

/* Replaces the extreme by NaN if any element of x is NaN, since jaxlib's vectorized reductions lose it. */
static hlo_value keep_nan(pjrt_lowering *l, const strata_tensor *node, hlo_value extreme) {
    const strata_reduce_attrs *attrs = node->attrs;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value x = strata_pjrt_number(l, node, 0),
                    is_nan = strata_hlo_convert(h, strata_hlo_compare(h, "NE", x, x), HLO_I32);
    const hlo_value n = strata_hlo_reduce(h, "maximum", is_nan, 0, (int)attrs->axis, (int)attrs->n_axes);
    const hlo_value any =
        strata_hlo_compare(h, "NE", strata_hlo_reshape(h, n, node->shape), strata_hlo_fill(h, HLO_I32, node->shape, 0));
    return strata_hlo_select(h, any, strata_hlo_fill(h, HLO_F32, node->shape, (double)NAN), extreme);
}

/* A minimum of integers is computed as the complement of the maximum of their complements, because the initial value of
 * a minimum, INT64_MAX, cannot be represented as a double. */
hlo_value strata_pjrt_reduce(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    const strata_reduce_attrs *attrs = node->attrs;
    hlo *h = strata_pjrt_text_of(l);
    if (node->op == &strata_op_reduce_sum) return reduce_as(l, node, name, 0);
    const bool max = node->op == &strata_op_reduce_max;
    if (strata_dtype_is_float(node->dtype)) return keep_nan(l, node, reduce_as(l, node, name, max ? -INFINITY : INFINITY));
    if (max) return reduce_as(l, node, name, lowest((int)node->dtype));
    const hlo_value turned = strata_hlo_unary(h, "not", strata_pjrt_number(l, node, 0));
    const hlo_value most = strata_hlo_reduce(h, "maximum", turned, lowest(turned.type), (int)attrs->axis, (int)attrs->n_axes);
    return strata_hlo_reshape(h, strata_hlo_unary(h, "not", most), node->shape);
}

hlo_value strata_pjrt_reduce_mean(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    const strata_reduce_attrs *attrs = node->attrs;
    double n = 1;
    for (int64_t d = attrs->axis; d < attrs->axis + attrs->n_axes; d++) n *= (double)node->inputs[0]->shape.dims[d];
    return strata_hlo_with(strata_pjrt_text_of(l), "divide", reduce_as(l, node, name, 0), n);
}

/* The smallest index along the axis at which x is the maximum or NaN. */
static hlo_value first_largest(hlo *h, hlo_value x, int axis) {
    const bool is_float = strata_dtype_is_float((strata_dtype)x.type);
    int axes[STRATA_MAX_RANK];
    if (x.type == HLO_I1) x = strata_hlo_convert(h, x, HLO_I32);
    for (int d = 0, to = 0; d < x.shape.rank; d++)
        if (d != axis) axes[to++] = d;
    const hlo_value most = strata_hlo_spread(h, strata_hlo_reduce(h, "maximum", x, lowest(x.type), axis, 1), x.shape, axes);
    hlo_value is_it = strata_hlo_compare(h, "EQ", x, most);
    if (is_float) is_it = strata_hlo_binary(h, "or", is_it, strata_hlo_compare(h, "NE", x, x));
    const hlo_value place = strata_hlo_iota(h, HLO_I32, x.shape, axis);
    return strata_hlo_reduce(h, "minimum", strata_hlo_select(h, is_it, place, strata_hlo_fill(h, HLO_I32, x.shape, INT32_MAX)),
                             INT32_MAX, axis, 1);
}

hlo_value strata_pjrt_argmax(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const int64_t axis = strata_pjrt_int(node, "axis");
    return first_largest(strata_pjrt_text_of(l), strata_pjrt_number(l, node, 0),
                         (int)(axis < 0 ? axis + node->inputs[0]->shape.rank : axis));
}

/* ---- softmax ---- */

/* Repeats a value for each row along the row. */
static hlo_value along_rows(hlo *h, hlo_value x, strata_shape shape) {
    int axes[STRATA_MAX_RANK];
    for (int d = 0; d < x.shape.rank; d++) axes[d] = d;
    return strata_hlo_spread(h, x, shape, axes);
}

static hlo_value fold_rows(hlo *h, const char *name, hlo_value x, double start) {
    return strata_hlo_reduce(h, name, x, start, x.shape.rank - 1, 1);
}

/* x - log(sum(exp(x))) for each row. */
static hlo_value log_softmax_of(hlo *h, hlo_value x) {
    const hlo_value shifted =
        strata_hlo_binary(h, "subtract", x, along_rows(h, fold_rows(h, "maximum", x, -INFINITY), x.shape));
    const hlo_value sum = fold_rows(h, "add", strata_hlo_unary(h, "exponential", shifted), 0);
    return strata_hlo_binary(h, "subtract", shifted, along_rows(h, strata_hlo_unary(h, "log", sum), x.shape));
}

static hlo_value softmax_of(hlo *h, hlo_value x) {
    const hlo_value shifted =
        strata_hlo_binary(h, "subtract", x, along_rows(h, fold_rows(h, "maximum", x, -INFINITY), x.shape));
    const hlo_value e = strata_hlo_unary(h, "exponential", shifted);
    return strata_hlo_binary(h, "divide", e, along_rows(h, fold_rows(h, "add", e, 0), x.shape));
}

hlo_value strata_pjrt_softmax(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return softmax_of(strata_pjrt_text_of(l), strata_pjrt_number(l, node, 0));
}

hlo_value strata_pjrt_softmax_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value y = strata_pjrt_number(l, node, 0), dy = strata_pjrt_number(l, node, 1);
    const hlo_value sum = fold_rows(h, "add", strata_hlo_binary(h, "multiply", y, dy), 0);
    return strata_hlo_binary(h, "multiply", y, strata_hlo_binary(h, "subtract", dy, along_rows(h, sum, y.shape)));
}

hlo_value strata_pjrt_log_softmax(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return log_softmax_of(strata_pjrt_text_of(l), strata_pjrt_number(l, node, 0));
}

hlo_value strata_pjrt_log_softmax_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value y = strata_pjrt_number(l, node, 0), dy = strata_pjrt_number(l, node, 1);
    const hlo_value sum = along_rows(h, fold_rows(h, "add", dy, 0), y.shape);
    return strata_hlo_binary(h, "subtract", dy, strata_hlo_binary(h, "multiply", strata_hlo_unary(h, "exponential", y), sum));
}

/* ---- losses ---- */

enum { LOGITS, LABELS, DY };

hlo_value strata_pjrt_softmax_cross_entropy(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value log_p = log_softmax_of(h, strata_pjrt_number(l, node, LOGITS));
    return strata_hlo_unary(
        h, "negate", fold_rows(h, "add", strata_hlo_binary(h, "multiply", strata_pjrt_number(l, node, LABELS), log_p), 0));
}

hlo_value strata_pjrt_softmax_cross_entropy_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    enum { OF_LOGITS = 1 };
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value logits = strata_pjrt_number(l, node, LOGITS), labels = strata_pjrt_number(l, node, LABELS);
    const hlo_value dy = along_rows(h, strata_pjrt_number(l, node, DY), logits.shape);
    if (strata_pjrt_int(node, "of") != OF_LOGITS)
        return strata_hlo_binary(h, "multiply", dy, strata_hlo_unary(h, "negate", log_softmax_of(h, logits)));
    const hlo_value weight = along_rows(h, fold_rows(h, "add", labels, 0), logits.shape);
    return strata_hlo_binary(
        h, "multiply", dy,
        strata_hlo_binary(h, "subtract", strata_hlo_binary(h, "multiply", softmax_of(h, logits), weight), labels));
}

/* 1 if the column is the row's label, otherwise 0. */
static hlo_value one_hot(hlo *h, hlo_value labels, strata_shape logits) {
    return strata_hlo_compare(h, "EQ", along_rows(h, labels, logits), strata_hlo_iota(h, labels.type, logits, logits.rank - 1));
}

static hlo_value is_class(hlo *h, hlo_value labels, int64_t classes) {
    const hlo_value least = strata_hlo_compare(h, "GE", labels, strata_hlo_fill(h, labels.type, labels.shape, 0));
    return strata_hlo_binary(
        h, "and", least, strata_hlo_compare(h, "LT", labels, strata_hlo_fill(h, labels.type, labels.shape, (double)classes)));
}

/* The loss of a row is NaN if its label is not a class. */
hlo_value strata_pjrt_sparse_softmax_cross_entropy(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value logits = strata_pjrt_number(l, node, LOGITS), labels = strata_pjrt_operand(l, node, LABELS);
    const hlo_value log_p = log_softmax_of(h, logits), zero = strata_hlo_fill(h, HLO_F32, logits.shape, 0);
    const hlo_value own = fold_rows(h, "add", strata_hlo_select(h, one_hot(h, labels, logits.shape), log_p, zero), 0);
    const hlo_value loss = strata_hlo_unary(h, "negate", own);
    return strata_hlo_select(h, is_class(h, labels, logits.shape.dims[logits.shape.rank - 1]), loss,
                             strata_hlo_fill(h, HLO_F32, loss.shape, (double)NAN));
}

hlo_value strata_pjrt_sparse_softmax_cross_entropy_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value logits = strata_pjrt_number(l, node, LOGITS), labels = strata_pjrt_operand(l, node, LABELS);
    const hlo_value dy =
        strata_hlo_select(h, is_class(h, labels, logits.shape.dims[logits.shape.rank - 1]), strata_pjrt_number(l, node, DY),
                          strata_hlo_fill(h, HLO_F32, labels.shape, (double)NAN));
    const hlo_value own = strata_hlo_convert(h, one_hot(h, labels, logits.shape), HLO_F32);
    return strata_hlo_binary(h, "multiply", along_rows(h, dy, logits.shape),
                             strata_hlo_binary(h, "subtract", softmax_of(h, logits), own));
}

/* ---- metrics ---- */

/* (2): the two numbers one after the other. */
static hlo_value pair(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_concat(
        h, (hlo_value[]){strata_hlo_reshape(h, a, STRATA_SHAPE(1)), strata_hlo_reshape(h, b, STRATA_SHAPE(1))}, 2, 0);
}

static hlo_value count_all(hlo *h, hlo_value x) {
    return strata_hlo_reduce(h, "add", strata_hlo_convert(h, x, HLO_F32), 0, 0, x.shape.rank);
}

hlo_value strata_pjrt_classification_sums(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    enum { LOSSES, OUTPUTS, CLASSES };
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value labels = strata_pjrt_operand(l, node, CLASSES);
    const hlo_value best = strata_hlo_convert(h, first_largest(h, strata_pjrt_operand(l, node, OUTPUTS), 1), labels.type);
    return pair(h, count_all(h, strata_pjrt_operand(l, node, LOSSES)), count_all(h, strata_hlo_compare(h, "EQ", best, labels)));
}

hlo_value strata_pjrt_binary_sums(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    enum { LOSSES, OUTPUTS, ANSWERS };
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value outputs = strata_pjrt_operand(l, node, OUTPUTS), labels = strata_pjrt_operand(l, node, ANSWERS);
    const hlo_value said =
        strata_hlo_compare(h, "GT", outputs, strata_hlo_fill(h, HLO_F32, outputs.shape, strata_pjrt_float(node, "threshold")));
    const hlo_value meant = strata_hlo_compare(h, "GT", labels, strata_hlo_fill(h, HLO_F32, labels.shape, 0.5));
    const hlo_value right = strata_hlo_unary(h, "not", strata_hlo_binary(h, "xor", said, meant));
    return pair(h, count_all(h, strata_pjrt_operand(l, node, LOSSES)),
                strata_hlo_with(h, "divide", count_all(h, right), (double)outputs.shape.dims[1]));
}
