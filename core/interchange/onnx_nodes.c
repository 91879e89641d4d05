/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates products and reductions. */
#include <inttypes.h>

#include "core/interchange/onnx.h"

/* ---- products ---- */

/* Whether the constant `bias` can be the bias of a dense layer: it has one number for each unit, along the last axis, and
 * all are finite. */
static bool is_bias(const strata_onnx_import *im, int bias, int64_t units) {
    if (!strata_onnx_is_constant(im, bias)) return false;
    const strata_array *array = &im->values[bias].array;
    const int rank = array->shape.rank;
    return array->dtype == STRATA_DTYPE_F32 && (rank == 1 || rank == 2) && strata_shape_elements(array->shape) == units &&
           array->shape.dims[rank - 1] == units && strata_onnx_is_finite(array);
}

/* Translates x kernel + bias to a dense layer. kernel: (in, units), or (units, in) if it is transposed. bias 0: there is
 * none. */
static int dense(strata_onnx_import *im, int x, int kernel, bool transposed, int bias) {
    const int64_t units = im->values[kernel].array.shape.dims[transposed ? 0 : 1];
    const strata_dense_options opts = {.units = units, .no_bias = !bias};
    const int y = strata_onnx_layer(im, "dense", &opts, sizeof opts, strata_onnx_in_front(im, x), false);
    strata_onnx_weight_of(im, "kernel", kernel, transposed ? (const int[]){1, 0} : NULL);
    if (bias) strata_onnx_weight_of(im, "bias", strata_onnx_constant_as(im, bias, STRATA_SHAPE(units)), NULL);
    return y;
}

bool strata_onnx_is_matrix(const strata_onnx_import *im, int value) {
    return strata_onnx_is_constant(im, value) && im->values[value].trainable && im->values[value].array.shape.rank == 2;
}

int strata_onnx_node_matmul(strata_onnx_import *im, const int *in) {
    const int a = in[0], b = in[1];
    int bias = 0;
    if (im->folding || !strata_onnx_is_matrix(im, b) || strata_onnx_shape(im, a).rank < 2 || strata_onnx_is_constant(im, a))
        return strata_onnx_simple(im, "matmul", in, 2);
    /* If the only node that uses the product is an Add of a constant, the constant becomes the bias of the layer. */
    const StrataOnnx__Node *add = strata_onnx_only_taker(im, "Add");
    for (size_t i = 0; add && add->n_input == 2 && i < 2 && !bias; i++) {
        const int other = strata_onnx_find(im, add->input[i]);
        if (is_bias(im, other, im->values[b].array.shape.dims[1])) bias = other;
    }
    const int y = dense(im, a, b, false, bias);
    if (!bias) return y;
    strata_onnx_output_ahead(im, add, y);
    return 0;
}

static int scaled(strata_onnx_import *im, int x, double factor) {
    return factor == 1 ? x : strata_onnx_with_number(im, "mul", x, factor);
}

int strata_onnx_node_gemm(strata_onnx_import *im, const int *in) {
    const double alpha = strata_onnx_float(im, "alpha", 1), beta = strata_onnx_float(im, "beta", 1);
    const bool of_a = strata_onnx_int(im, "transA", 0), of_b = strata_onnx_int(im, "transB", 0);
    static const int swapped[] = {1, 0};
    int a = in[0], b = in[1];
    const int c = in[2];
    if (strata_onnx_shape(im, a).rank != 2 || strata_onnx_shape(im, b).rank != 2)
        return strata_onnx_reject(im, STRATA_DATA, "its inputs must be matrices");
    if (!im->folding && strata_onnx_is_matrix(im, b) && !strata_onnx_is_constant(im, a) && !of_a && alpha == 1 &&
        (!c || (beta == 1 && is_bias(im, c, im->values[b].array.shape.dims[of_b ? 0 : 1]))))
        return dense(im, a, b, of_b, c);
    if (of_a) a = strata_onnx_permute(im, a, swapped);
    if (of_b) b = strata_onnx_permute(im, b, swapped);
    const int y = scaled(im, strata_onnx_simple(im, "matmul", (const int[]){a, b}, 2), alpha);
    return c ? strata_onnx_pair(im, "add", y, scaled(im, c, beta)) : y;
}

/* ---- reductions ---- */

int strata_onnx_node_reduce(strata_onnx_import *im, const int *in) {
    /* The ops before and after the sum, for each reduction. */
    static const struct {
        const char *detail, *before, *op, *behind;
    } forms[] = {
        {"sum", NULL, "reduce_sum", NULL},        {"mean", NULL, "reduce_mean", NULL}, {"max", NULL, "reduce_max", NULL},
        {"min", NULL, "reduce_min", NULL},        {"l1", "abs", "reduce_sum", NULL},   {"l2", "square", "reduce_sum", "sqrt"},
        {"square", "square", "reduce_sum", NULL}, {"log", NULL, "reduce_sum", "log"},  {"exp", "exp", "reduce_sum", "log"}};
    const bool keep = strata_onnx_int(im, "keepdims", 1), exponential = !strcmp(im->row->detail, "exp");
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t axes[STRATA_MAX_RANK];
    int x = in[0], n = strata_onnx_axes(im, 1, shape.rank, axes), f = 0, largest = 0;
    while (strcmp(forms[f].detail, im->row->detail)) f++;
    if (!n && strata_onnx_int(im, "noop_with_empty_axes", 0)) { /* only the other ops are performed; log e^x is x */
        if (forms[f].before && !exponential) x = strata_onnx_unary(im, forms[f].before, x);
        return forms[f].behind && !exponential ? strata_onnx_unary(im, forms[f].behind, x) : x;
    }
    for (int d = 0; !n && d < shape.rank; d++) axes[d] = d;
    if (!n) n = shape.rank;
    if (!shape.rank) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "of one number");
    int y = strata_onnx_in_front(im, x);
    if (exponential) { /* log sum e^x = m + log sum e^(x - m), where m is the largest x */
        largest = strata_onnx_with_ints(im, "reduce_max", y, axes, n, true);
        y = strata_onnx_pair(im, "sub", y, largest);
    }
    if (forms[f].before) y = strata_onnx_unary(im, forms[f].before, y);
    y = strata_onnx_with_ints(im, forms[f].op, y, axes, n, keep);
    if (forms[f].behind) y = strata_onnx_unary(im, forms[f].behind, y);
    if (largest && !keep) largest = strata_onnx_with_ints(im, "reduce_max", largest, axes, n, false);
    return largest ? strata_onnx_pair(im, "add", y, largest) : y;
}

int strata_onnx_node_argmax(strata_onnx_import *im, const int *in) {
    const bool least = !strcmp(im->row->detail, "min"), keep = strata_onnx_int(im, "keepdims", 1);
    int x = strata_onnx_in_front(im, in[0]);
    strata_shape shape = strata_onnx_shape(im, x);
    const int64_t axis = strata_onnx_axis(im, 0, shape.rank);
    if (strata_onnx_int(im, "select_last_index", 0))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "select_last_index is not there");
    if (least) x = strata_onnx_unary(im, "neg", x);
    const int y = strata_onnx_with_ints(im, "argmax", x, &axis, 1, 0);
    shape.dims[axis] = 1;
    return keep ? strata_onnx_reshape_to(im, y, shape.dims, shape.rank) : y;
}

/* The value with one axis moved to the end, or, if `back` is true, from the end to this position. */
static int move_axis(strata_onnx_import *im, int value, int axis, bool back) {
    int axes[STRATA_MAX_RANK];
    const int x = strata_onnx_in_front(im, value), rank = strata_onnx_shape(im, x).rank;
    if (axis == rank - 1) return x;
    for (int d = 0; d < rank; d++)
        axes[d] = back ? (d < axis ? d : d == axis ? rank - 1 : d - 1) : d < axis ? d : d < rank - 1 ? d + 1 : axis;
    return strata_onnx_permute(im, x, axes);
}

int strata_onnx_node_top_k(strata_onnx_import *im, const int *in) {
    const StrataOnnx__Attribute *of_k = strata_onnx_attribute(im, "k");
    const int axis = strata_onnx_axis(im, -1, strata_onnx_shape(im, in[0]).rank);
    int64_t k = 0;
    if (of_k)
        k = of_k->i;
    else if (strata_onnx_need_ints(im, "k", 1, 1, &k) != 1)
        return strata_onnx_reject(im, STRATA_DATA, "k is not one number");
    const bool least = !strata_onnx_int(im, "largest", 1);
    int x = move_axis(im, in[0], axis, false);
    if (least) x = strata_onnx_unary(im, "neg", x);
    for (int i = 0; i < 2; i++) {
        int y = strata_onnx_with_ints(im, i ? "top_k_indices" : "top_k", x, &k, 1, 0);
        if (least && !i) y = strata_onnx_unary(im, "neg", y);
        strata_onnx_output(im, i, move_axis(im, y, axis, true));
    }
    return 0;
}

int strata_onnx_node_softmax(strata_onnx_import *im, const int *in) {
    strata_shape shape = strata_onnx_shape(im, in[0]), flat = shape;
    const int axis = strata_onnx_axis(im, im->opset < 13 ? 1 : -1, shape.rank);
    /* Before opset 13, softmax is computed over all axes from this one on, as if they were one axis. */
    if (im->opset < 13 && axis != shape.rank - 1) {
        flat.dims[axis] = strata_onnx_product(shape.dims + axis, shape.rank - axis);
        const int y = strata_onnx_unary(im, im->row->detail, strata_onnx_reshape_to(im, in[0], flat.dims, axis + 1));
        return strata_onnx_reshape_to(im, y, shape.dims, shape.rank);
    }
    return move_axis(im, strata_onnx_unary(im, im->row->detail, move_axis(im, in[0], axis, false)), axis, true);
}
