/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the translation of an ONNX op, and translates products and reductions. onnx_elementwise.c, onnx_shapes.c and
 * onnx_windows.c translate other kinds of ops. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx.h"

/* ---- products ---- */

/* Whether the constant `bias` can be the bias of a dense layer: it has one number for each unit, along the last axis, and
 * all are finite. */
static bool is_bias(const strata_onnx_import *im, int bias, int64_t units) {
    if (!strata_onnx_is_constant(im, bias)) return false;
    const strata_shape shape = im->values[bias].array.shape;
    return im->values[bias].array.dtype == STRATA_DTYPE_F32 && shape.rank >= 1 && strata_shape_elements(shape) == units &&
           shape.dims[shape.rank - 1] == units && shape.rank <= 2 && strata_onnx_is_finite(&im->values[bias].array);
}

/* Translates x kernel + bias to a dense layer. kernel: (in, units), which this function finishes. bias -1: there is none. */
static strata_status dense(strata_onnx_import *im, int x, strata_array *kernel, int bias, int *out) {
    const int64_t units = kernel->shape.dims[1];
    const strata_dense_options opts = {.units = units, .no_bias = bias < 0};
    strata_status status = strata_onnx_in_front(im, x, &x);
    if (!status) status = strata_onnx_layer(im, &strata_layer_dense, &opts, x, false, out);
    if (!status) status = strata_onnx_weight_of(im, "kernel", kernel);
    if (!status && bias >= 0) {
        strata_array row = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(units), im->values[bias].array.data);
        status = strata_onnx_weight_of(im, "bias", &row);
    }
    strata_array_finish(kernel);
    return status;
}

bool strata_onnx_is_matrix(const strata_onnx_import *im, int value) {
    return strata_onnx_is_constant(im, value) && im->values[value].trainable && im->values[value].array.shape.rank == 2;
}

static strata_status matmul(strata_onnx_import *im) {
    int a, b, y, bias = -1;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    if (im->folding || !strata_onnx_is_matrix(im, b) || strata_onnx_shape(im, a).rank < 2 || strata_onnx_is_constant(im, a)) {
        STRATA_TRY(strata_onnx_simple(im, "matmul", a, b, &y));
        return strata_onnx_give(im, y);
    }
    /* If the only node that uses the product is an Add of a constant, the constant becomes the bias of the layer. */
    const StrataOnnx__Node *add = strata_onnx_only_taker(im, "Add");
    const int64_t units = im->values[b].array.shape.dims[1];
    for (size_t i = 0; add && add->n_input == 2 && i < 2 && bias < 0; i++) {
        const int other = strata_onnx_find(im, add->input[i]);
        if (other >= 0 && is_bias(im, other, units)) bias = other;
    }
    strata_array kernel;
    STRATA_TRY(strata_onnx_permute_array(&im->values[b].array, (const int[]){0, 1}, &kernel, im->err));
    STRATA_TRY(dense(im, a, &kernel, bias, &y));
    if (bias >= 0) STRATA_TRY(strata_onnx_output_ahead(im, add, y));
    return bias >= 0 ? STRATA_OK : strata_onnx_give(im, y);
}

static strata_status scaled(strata_onnx_import *im, int x, double factor, int *out) {
    int number;
    *out = x;
    if (factor == 1) return STRATA_OK;
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, factor, &number));
    return strata_onnx_pair(im, "mul", x, number, out);
}

static strata_status gemm(strata_onnx_import *im) {
    const double alpha = strata_onnx_float(im, "alpha", 1), beta = strata_onnx_float(im, "beta", 1);
    const bool of_a = strata_onnx_int(im, "transA", 0), of_b = strata_onnx_int(im, "transB", 0);
    static const int swapped[] = {1, 0}, same[] = {0, 1};
    int a, b, y;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    int c = strata_onnx_input(im, 2);
    if (strata_onnx_shape(im, a).rank != 2 || strata_onnx_shape(im, b).rank != 2)
        return strata_onnx_fail(im, STRATA_DATA, "its inputs must be matrices");
    if (!im->folding && strata_onnx_is_matrix(im, b) && !strata_onnx_is_constant(im, a) && !of_a && alpha == 1) {
        const int64_t units = im->values[b].array.shape.dims[of_b ? 0 : 1];
        if (c < 0 || (beta == 1 && is_bias(im, c, units))) {
            strata_array kernel;
            STRATA_TRY(strata_onnx_permute_array(&im->values[b].array, of_b ? swapped : same, &kernel, im->err));
            STRATA_TRY(dense(im, a, &kernel, c, &y));
            return strata_onnx_give(im, y);
        }
    }
    if (of_a) STRATA_TRY(strata_onnx_permute(im, a, swapped, &a));
    if (of_b) STRATA_TRY(strata_onnx_permute(im, b, swapped, &b));
    STRATA_TRY(strata_onnx_simple(im, "matmul", a, b, &y));
    STRATA_TRY(scaled(im, y, alpha, &y));
    if (c >= 0) {
        STRATA_TRY(scaled(im, c, beta, &c));
        STRATA_TRY(strata_onnx_pair(im, "add", y, c, &y));
    }
    return strata_onnx_give(im, y);
}

/* ---- reductions ---- */

static strata_status reduce_by(strata_onnx_import *im, const char *op, int x, const int64_t *axes, int n, bool keep, int *out) {
    return strata_onnx_with_ints(im, op, x, axes, n, keep, out);
}

static strata_status reduce(strata_onnx_import *im) {
    /* The ops before and after the sum, for each reduction. */
    static const struct {
        const char *detail, *before, *op, *behind;
    } forms[] = {
        {"sum", NULL, "reduce_sum", NULL},        {"mean", NULL, "reduce_mean", NULL}, {"max", NULL, "reduce_max", NULL},
        {"min", NULL, "reduce_min", NULL},        {"l1", "abs", "reduce_sum", NULL},   {"l2", "square", "reduce_sum", "sqrt"},
        {"square", "square", "reduce_sum", NULL}, {"log", NULL, "reduce_sum", "log"},  {"exp", "exp", "reduce_sum", "log"}};
    const char *detail = strata_onnx_row_of(im)->detail;
    const bool keep = strata_onnx_int(im, "keepdims", 1);
    int64_t axes[STRATA_MAX_RANK];
    int x, n, y, f = 0, largest = -1;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(strata_onnx_axes(im, 1, shape.rank, axes, &n));
    while (strcmp(forms[f].detail, detail)) f++;
    if (!n && strata_onnx_int(im, "noop_with_empty_axes", 0)) { /* only the other ops are performed; log e^x is x */
        const bool all = strcmp(detail, "exp");
        if (forms[f].before && all) STRATA_TRY(strata_onnx_unary(im, forms[f].before, 0, 0, 0, x, &x));
        if (forms[f].behind && all) STRATA_TRY(strata_onnx_unary(im, forms[f].behind, 0, 0, 0, x, &x));
        return strata_onnx_give(im, x);
    }
    if (!n)
        for (; n < shape.rank; n++) axes[n] = n;
    if (!shape.rank) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "of one number");
    STRATA_TRY(strata_onnx_in_front(im, x, &y));
    if (!strcmp(detail, "exp")) { /* log sum e^x = m + log sum e^(x - m), where m is the largest x */
        STRATA_TRY(reduce_by(im, "reduce_max", y, axes, n, true, &largest));
        STRATA_TRY(strata_onnx_pair(im, "sub", y, largest, &y));
    }
    if (forms[f].before) STRATA_TRY(strata_onnx_unary(im, forms[f].before, 0, 0, 0, y, &y));
    STRATA_TRY(reduce_by(im, forms[f].op, y, axes, n, keep, &y));
    if (forms[f].behind) STRATA_TRY(strata_onnx_unary(im, forms[f].behind, 0, 0, 0, y, &y));
    if (largest >= 0 && !keep) STRATA_TRY(reduce_by(im, "reduce_max", largest, axes, n, false, &largest));
    if (largest >= 0) STRATA_TRY(strata_onnx_pair(im, "add", y, largest, &y));
    return strata_onnx_give(im, y);
}

static strata_status argmax(strata_onnx_import *im) {
    const bool least = !strcmp(im->node->op_type, "ArgMin"), keep = strata_onnx_int(im, "keepdims", 1);
    int64_t to[STRATA_MAX_RANK];
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (strata_onnx_int(im, "select_last_index", 0))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "select_last_index is not there");
    if (least) STRATA_TRY(strata_onnx_unary(im, "neg", 0, 0, 0, x, &x));
    STRATA_TRY(strata_onnx_with_ints(im, "argmax", x, &axis, 1, 0, &y));
    if (!keep) return strata_onnx_give(im, y);
    for (int d = 0; d < shape.rank; d++) to[d] = d == axis ? 1 : shape.dims[d];
    STRATA_TRY(strata_onnx_reshape_to(im, y, to, shape.rank, &y));
    return strata_onnx_give(im, y);
}

/* The value with one axis moved to the end, or, if `back` is true, from the end to this position. */
static strata_status move_axis(strata_onnx_import *im, int x, int64_t axis, bool back, int *out) {
    int axes[STRATA_MAX_RANK];
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    *out = x;
    if (axis == rank - 1) return STRATA_OK;
    for (int d = 0; d < rank; d++)
        axes[d] = back ? (d < axis ? d : d == axis ? rank - 1 : d - 1) : d < axis ? d : d < rank - 1 ? d + 1 : (int)axis;
    return strata_onnx_permute(im, x, axes, out);
}

static strata_status top_k(strata_onnx_import *im) {
    int64_t k;
    int x, y, n;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need_ints(im, "k", 1, 1, &k, &n));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", -1);
    const StrataOnnx__Attribute *of_k = strata_onnx_attribute(im, "k");
    if (of_k) k = of_k->i, n = 1;
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank || n != 1) return strata_onnx_fail(im, STRATA_DATA, "axis or k is not right");
    const bool least = !strata_onnx_int(im, "largest", 1);
    STRATA_TRY(move_axis(im, x, axis, false, &x));
    if (least) STRATA_TRY(strata_onnx_unary(im, "neg", 0, 0, 0, x, &x));
    for (int i = 0; i < 2; i++) {
        STRATA_TRY(strata_onnx_with_ints(im, i ? "top_k_indices" : "top_k", x, &k, 1, 0, &y));
        if (least && !i) STRATA_TRY(strata_onnx_unary(im, "neg", 0, 0, 0, y, &y));
        STRATA_TRY(move_axis(im, y, axis, true, &y));
        STRATA_TRY(strata_onnx_output(im, i, y));
    }
    return STRATA_OK;
}

static strata_status softmax(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", im->opset < 13 ? 1 : -1), to[STRATA_MAX_RANK];
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    /* Before opset 13, softmax is computed over all axes from this one on, as if they were one axis. */
    if (im->opset < 13 && axis != shape.rank - 1) {
        int64_t flat[STRATA_MAX_RANK];
        for (int d = 0; d < axis; d++) flat[d] = shape.dims[d];
        flat[axis] = strata_onnx_product(shape.dims + axis, shape.rank - (int)axis);
        for (int d = 0; d < shape.rank; d++) to[d] = shape.dims[d];
        STRATA_TRY(strata_onnx_reshape_to(im, x, flat, (int)axis + 1, &y));
        STRATA_TRY(strata_onnx_unary(im, strata_onnx_row_of(im)->detail, 0, 0, 0, y, &y));
        STRATA_TRY(strata_onnx_reshape_to(im, y, to, shape.rank, &y));
        return strata_onnx_give(im, y);
    }
    STRATA_TRY(move_axis(im, x, axis, false, &y));
    STRATA_TRY(strata_onnx_unary(im, strata_onnx_row_of(im)->detail, 0, 0, 0, y, &y));
    STRATA_TRY(move_axis(im, y, axis, true, &y));
    return strata_onnx_give(im, y);
}

/* ---- the table ---- */

static const strata_onnx_row rows[] = {{"MatMul", matmul, NULL},
                                       {"Gemm", gemm, NULL},
                                       {"ReduceSum", reduce, "sum"},
                                       {"ReduceMean", reduce, "mean"},
                                       {"ReduceMax", reduce, "max"},
                                       {"ReduceMin", reduce, "min"},
                                       {"ReduceL1", reduce, "l1"},
                                       {"ReduceL2", reduce, "l2"},
                                       {"ReduceSumSquare", reduce, "square"},
                                       {"ReduceLogSum", reduce, "log"},
                                       {"ReduceLogSumExp", reduce, "exp"},
                                       {"ArgMax", argmax, NULL},
                                       {"ArgMin", argmax, NULL},
                                       {"TopK", top_k, NULL},
                                       {"Softmax", softmax, "softmax"},
                                       {"LogSoftmax", softmax, "log_softmax"},
                                       {"Conv", strata_onnx_conv, NULL},
                                       {"ConvTranspose", strata_onnx_conv_transpose, NULL},
                                       {"MaxPool", strata_onnx_pool, "max"},
                                       {"AveragePool", strata_onnx_pool, "avg"},
                                       {"GlobalMaxPool", strata_onnx_global_pool, "reduce_max"},
                                       {"GlobalAveragePool", strata_onnx_global_pool, "reduce_mean"},
                                       {"BatchNormalization", strata_onnx_batch_norm, NULL},
                                       {"LayerNormalization", strata_onnx_layer_norm, NULL},
                                       {"RMSNormalization", strata_onnx_layer_norm, "rms"},
                                       {"InstanceNormalization", strata_onnx_group_norm, "instance"},
                                       {"GroupNormalization", strata_onnx_group_norm, ""},
                                       {"LSTM", strata_onnx_recurrent, "lstm"},
                                       {"GRU", strata_onnx_recurrent, "gru"}};

static const strata_onnx_rows own = {rows, sizeof rows / sizeof *rows};

const strata_onnx_row *strata_onnx_find_row(const char *op) {
    const strata_onnx_rows *const tables[] = {&own, &strata_onnx_elementwise_rows, &strata_onnx_shape_rows};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->n; i++)
            if (!strcmp(tables[t]->rows[i].op, op)) return &tables[t]->rows[i];
    return NULL;
}
