/* SPDX-License-Identifier: Apache-2.0
 *
 * What each op of ONNX becomes, but for those that slide windows or normalize (onnx_windows.c): a table at the end, and a
 * function for each kind of op. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx.h"

static const strata_onnx_row *row_of(const strata_onnx_import *im) {
    return strata_onnx_find_row(im->node->op_type);
}

/* Input `i`, which the node must have. */
static strata_status need(strata_onnx_import *im, int i, int *out) {
    *out = strata_onnx_input(im, i);
    return *out >= 0 ? STRATA_OK : strata_onnx_fail(im, STRATA_DATA, "its input %d is missing", i);
}

static strata_status give(strata_onnx_import *im, int value) {
    return strata_onnx_output(im, 0, value);
}

/* ---- element-wise ---- */

/* Input 0 by an op with up to two numbers; the order of axes stays. */
static strata_status unary_with(strata_onnx_import *im, const char *op, double a, double b, int n, int value, int *out) {
    const strata_op_options opts = {.op = op, .numbers = {.n = n, .values = {a, b}}};
    return strata_onnx_op(im, &opts, &value, 1, im->values[value].behind, out);
}

static strata_status elementwise(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(unary_with(im, row_of(im)->detail, 0, 0, 0, x, &y));
    return give(im, y);
}

/* Two values by an op, in the order of axes that one of them has, where both have the same number of axes. */
static strata_status pair(strata_onnx_import *im, const char *op, int a, int b, int *out) {
    const int rank_a = strata_onnx_shape(im, a).rank, rank_b = strata_onnx_shape(im, b).rank;
    const bool behind = (im->values[a].behind || im->values[b].behind) && (rank_a == rank_b || !rank_a || !rank_b);
    const strata_dtype type_a = strata_onnx_dtype(im, a), type_b = strata_onnx_dtype(im, b);
    int inputs[2] = {a, b};
    for (int i = 0; i < 2; i++)
        STRATA_TRY(behind ? strata_onnx_behind(im, inputs[i], &inputs[i]) : strata_onnx_in_front(im, inputs[i], &inputs[i]));
    /* Constants that are i64 become i32 in the model; a value of the model that is i64 does not exist. */
    if (type_a != type_b && (type_a == STRATA_DTYPE_F32 || type_b == STRATA_DTYPE_F32 || im->folding))
        return strata_onnx_fail(im, STRATA_DATA, "its inputs are %s and %s; they must be of one type",
                                strata_dtype_name(type_a), strata_dtype_name(type_b));
    return strata_onnx_op(im, &(strata_op_options){.op = op}, inputs, 2, behind, out);
}

static strata_status binary(strata_onnx_import *im) {
    int a, b, y;
    STRATA_TRY(need(im, 0, &a));
    STRATA_TRY(need(im, 1, &b));
    STRATA_TRY(pair(im, row_of(im)->detail, a, b, &y));
    return give(im, y);
}

/* Quotients and remainders of integers, which are shape arithmetic: of constants, of which one may be a single number. A
 * quotient is rounded towards 0; a remainder has the divisor's sign, or with fmod the dividend's. */
static strata_status divide_integers(strata_onnx_import *im, int a, int b) {
    const bool remainder = !strcmp(im->node->op_type, "Mod"), of_c = strata_onnx_int(im, "fmod", 0);
    if (!strata_onnx_is_constant(im, a) || !strata_onnx_is_constant(im, b) || strata_onnx_dtype(im, a) != STRATA_DTYPE_I64 ||
        strata_onnx_dtype(im, b) != STRATA_DTYPE_I64)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "of integers that depend on the data");
    const strata_shape left = strata_onnx_shape(im, a), right = strata_onnx_shape(im, b);
    const int64_t n_left = strata_shape_elements(left), n_right = strata_shape_elements(right);
    strata_array y;
    int out;
    if (!n_left || !n_right) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "empty tensors are not there");
    if (n_left != n_right && n_left != 1 && n_right != 1)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "of integers in two shapes");
    const bool like_left = n_left > n_right || (n_left == n_right && left.rank >= right.rank);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I64, like_left ? left : right, &y, im->err));
    const int64_t n = strata_shape_elements(y.shape);
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = ((const int64_t *)im->values[a].array.data)[n_left == 1 ? 0 : i];
        const int64_t by = ((const int64_t *)im->values[b].array.data)[n_right == 1 ? 0 : i];
        if (by == 0 || (by == -1 && x == INT64_MIN)) {
            strata_array_finish(&y);
            return strata_onnx_fail(im, STRATA_DATA, "%" PRId64 " is divided by %" PRId64, x, by);
        }
        const int64_t rest = x % by;
        ((int64_t *)y.data)[i] = !remainder ? x / by : rest && !of_c && (rest < 0) != (by < 0) ? rest + by : rest;
    }
    STRATA_TRY(strata_onnx_constant(im, &y, false, &out));
    return give(im, out);
}

static strata_status divide(strata_onnx_import *im) {
    int a, b, y;
    STRATA_TRY(need(im, 0, &a));
    STRATA_TRY(need(im, 1, &b));
    if (strata_onnx_dtype(im, a) != STRATA_DTYPE_F32) return divide_integers(im, a, b);
    if (*im->node->op_type == 'M') return strata_onnx_fail(im, STRATA_UNSUPPORTED, "remainders are there of integers alone");
    STRATA_TRY(pair(im, "div", a, b, &y));
    return give(im, y);
}

/* The exponent may have another type. */
static strata_status power(strata_onnx_import *im) {
    int a, b, y;
    double exponent;
    STRATA_TRY(need(im, 0, &a));
    STRATA_TRY(need(im, 1, &b));
    if (strata_onnx_dtype(im, a) != STRATA_DTYPE_F32)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "powers of integers are not there");
    if (strata_onnx_is_constant(im, b) && strata_shape_elements(im->values[b].array.shape) == 1) {
        STRATA_TRY(strata_onnx_number(im, b, &exponent));
        if (exponent == 2 && im->values[b].array.shape.rank <= strata_onnx_shape(im, a).rank) {
            STRATA_TRY(unary_with(im, "square", 0, 0, 0, a, &y));
            return give(im, y);
        }
    }
    if (strata_onnx_dtype(im, b) != STRATA_DTYPE_F32)
        STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "cast", .dtype = "f32"}, &b, 1, im->values[b].behind, &b));
    STRATA_TRY(pair(im, "pow", a, b, &y));
    return give(im, y);
}

/* Min, Max, Sum, Mean: any number of inputs. */
static strata_status variadic(strata_onnx_import *im) {
    const char *op = row_of(im)->detail;
    const size_t n = im->node->n_input;
    int y, count;
    STRATA_TRY(need(im, 0, &y));
    for (size_t i = 1; i < n; i++) {
        int b;
        STRATA_TRY(need(im, (int)i, &b));
        STRATA_TRY(pair(im, strcmp(op, "mean") ? op : "add", y, b, &y));
    }
    if (!strcmp(op, "mean") && n > 1) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1.0 / (double)n, &count));
        STRATA_TRY(pair(im, "mul", y, count, &y));
    }
    return give(im, y);
}

/* Bools as numbers 0 and 1: and is the smaller, or the larger, xor whether they differ. */
static strata_status logical(strata_onnx_import *im) {
    const char *op = row_of(im)->detail;
    int a, b, y, zero;
    STRATA_TRY(need(im, 0, &a));
    if (!strcmp(op, "not")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_BOOL, 0, &zero));
        STRATA_TRY(pair(im, "equal", a, zero, &y));
        return give(im, y);
    }
    STRATA_TRY(need(im, 1, &b));
    if (!strcmp(op, "not_equal")) {
        STRATA_TRY(pair(im, op, a, b, &y));
        return give(im, y);
    }
    const strata_op_options number = {.op = "cast", .dtype = "f32"}, back = {.op = "cast", .dtype = "bool"};
    STRATA_TRY(strata_onnx_op(im, &number, &a, 1, im->values[a].behind, &a));
    STRATA_TRY(strata_onnx_op(im, &number, &b, 1, im->values[b].behind, &b));
    STRATA_TRY(pair(im, op, a, b, &y));
    STRATA_TRY(strata_onnx_op(im, &back, &y, 1, im->values[y].behind, &y));
    return give(im, y);
}

/* A composition in one op after the other, of a value and numbers: "x*a", as a list of steps. */
typedef struct step {
    const char *op;
    /* The second operand: a number, or the node's input where `by_x`. */
    double number;
    bool by_x, alone;
} step;
static strata_status compose(strata_onnx_import *im, int x, const step *steps, int n) {
    int y = x, b;
    for (int i = 0; i < n; i++) {
        if (steps[i].alone) {
            STRATA_TRY(unary_with(im, steps[i].op, 0, 0, 0, y, &y));
            continue;
        }
        b = x;
        if (!steps[i].by_x) STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, steps[i].number, &b));
        STRATA_TRY(pair(im, steps[i].op, y, b, &y));
    }
    return give(im, y);
}

static strata_status reciprocal(strata_onnx_import *im) {
    int x, one, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1, &one));
    STRATA_TRY(pair(im, "div", one, x, &y));
    return give(im, y);
}

static strata_status softsign(strata_onnx_import *im) {
    int x, y, one;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1, &one));
    STRATA_TRY(unary_with(im, "abs", 0, 0, 0, x, &y));
    STRATA_TRY(pair(im, "add", y, one, &y));
    STRATA_TRY(pair(im, "div", x, y, &y));
    return give(im, y);
}

/* max(0, min(1, alpha x + beta)), and for HardSwish times x. */
static strata_status hard_sigmoid(strata_onnx_import *im) {
    const bool swish = !strcmp(row_of(im)->detail, "swish");
    const double alpha = swish ? 1.0 / 6 : strata_onnx_float(im, "alpha", 0.2),
                 beta = swish ? 0.5 : strata_onnx_float(im, "beta", 0.5);
    int x, y, b;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, alpha, &b));
    STRATA_TRY(pair(im, "mul", x, b, &y));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, beta, &b));
    STRATA_TRY(pair(im, "add", y, b, &y));
    STRATA_TRY(unary_with(im, "clip", 0, 1, 2, y, &y));
    if (swish) STRATA_TRY(pair(im, "mul", y, x, &y));
    return give(im, y);
}

static strata_status mish(strata_onnx_import *im) {
    int x;
    STRATA_TRY(need(im, 0, &x));
    return compose(im, x, (const step[]){{"softplus", 0, false, true}, {"tanh", 0, false, true}, {"mul", 0, true, false}}, 3);
}

static strata_status swish(strata_onnx_import *im) {
    int x;
    STRATA_TRY(need(im, 0, &x));
    return compose(
        im, x,
        (const step[]){
            {"mul", strata_onnx_float(im, "alpha", 1), false, false}, {"sigmoid", 0, false, true}, {"mul", 0, true, false}},
        3);
}

/* gamma * elu(x) with alpha below 0. */
static strata_status selu(strata_onnx_import *im) {
    int x, y, b;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, strata_onnx_float(im, "gamma", 1.05070102214813232421875), &b));
    STRATA_TRY(unary_with(im, "elu", strata_onnx_float(im, "alpha", 1.67326319217681884765625), 0, 1, x, &y));
    STRATA_TRY(pair(im, "mul", y, b, &y));
    return give(im, y);
}

/* max(0, x) + min(0, alpha (e^(x / alpha) - 1)) is alpha elu(x / alpha). */
static strata_status celu(strata_onnx_import *im) {
    const double alpha = strata_onnx_float(im, "alpha", 1);
    int x, y, b;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, alpha, &b));
    STRATA_TRY(pair(im, "div", x, b, &y));
    STRATA_TRY(unary_with(im, "elu", 1, 0, 1, y, &y));
    STRATA_TRY(pair(im, "mul", y, b, &y));
    return give(im, y);
}

static strata_status thresholded(strata_onnx_import *im) {
    int x, alpha, zero, more, inputs[3], y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, strata_onnx_float(im, "alpha", 1), &alpha));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 0, &zero));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    STRATA_TRY(pair(im, "greater", x, alpha, &more));
    inputs[0] = more, inputs[1] = x, inputs[2] = zero;
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return give(im, y);
}

static strata_status with_alpha(strata_onnx_import *im) {
    const bool leaky = !strcmp(row_of(im)->detail, "leaky_relu");
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(unary_with(im, row_of(im)->detail, strata_onnx_float(im, "alpha", leaky ? 0.01 : 1), 0, 1, x, &y));
    return give(im, y);
}

/* x < 0 ? slope x : x = max(x, 0) + slope min(x, 0) */
static strata_status prelu(strata_onnx_import *im) {
    int x, slope, zero, above, below, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(need(im, 1, &slope));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 0, &zero));
    STRATA_TRY(pair(im, "max", x, zero, &above));
    STRATA_TRY(pair(im, "min", x, zero, &below));
    STRATA_TRY(pair(im, "mul", below, slope, &below));
    STRATA_TRY(pair(im, "add", above, below, &y));
    return give(im, y);
}

static strata_status gelu(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(unary_with(im, strata_onnx_text_is(im, "approximate", "tanh", false) ? "gelu_tanh" : "gelu", 0, 0, 0, x, &y));
    return give(im, y);
}

static strata_status clip(strata_onnx_import *im) {
    double bounds[2] = {strata_onnx_float(im, "min", -HUGE_VAL), strata_onnx_float(im, "max", HUGE_VAL)};
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    for (int i = 0; i < 2; i++)
        if (strata_onnx_input(im, 1 + i) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1 + i), &bounds[i]));
    if (bounds[0] > bounds[1]) bounds[0] = bounds[1]; /* as numpy: the upper bound counts */
    STRATA_TRY(unary_with(im, "clip", bounds[0], bounds[1], 2, x, &y));
    return give(im, y);
}

static strata_status where(strata_onnx_import *im) {
    int inputs[3], y;
    for (int i = 0; i < 3; i++) {
        STRATA_TRY(need(im, i, &inputs[i]));
        STRATA_TRY(strata_onnx_in_front(im, inputs[i], &inputs[i]));
    }
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return give(im, y);
}

static strata_status identity(strata_onnx_import *im) {
    int x;
    STRATA_TRY(need(im, 0, &x));
    return give(im, x);
}

static strata_status dropout(strata_onnx_import *im) {
    double rate = strata_onnx_float(im, "ratio", 0.5), training = 0;
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    if (strata_onnx_is_taken(im, 1)) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its mask is not there");
    if (strata_onnx_input(im, 1) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1), &rate));
    if (strata_onnx_input(im, 2) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 2), &training));
    if (training != 0 && rate != 0) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "with training_mode its result is random");
    if (!(rate > 0 && rate < 1) || im->folding) return give(im, x);
    STRATA_TRY(
        strata_onnx_layer(im, &strata_layer_dropout, &(strata_dropout_options){.rate = rate}, x, im->values[x].behind, &y));
    return give(im, y);
}

static strata_status cast(strata_onnx_import *im) {
    const bool like = !strcmp(im->node->op_type, "CastLike");
    strata_dtype dtype;
    int x, other, y;
    STRATA_TRY(need(im, 0, &x));
    if (like) {
        STRATA_TRY(need(im, 1, &other));
        dtype = strata_onnx_dtype(im, other);
    } else {
        STRATA_TRY(strata_onnx_dtype_of((int)strata_onnx_int(im, "to", 0), &dtype, "to", im->err));
        const int64_t to = strata_onnx_int(im, "to", 0);
        if (to != 1 && to != 6 && to != 7 && to != 9 && to != 11)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                    "to element type %" PRId64 ": floats are f32 here, integers 32 bits", to);
    }
    if (dtype == STRATA_DTYPE_I64 && !im->folding) dtype = STRATA_DTYPE_I32;
    if (dtype == strata_onnx_dtype(im, x)) return give(im, x);
    const strata_op_options opts = {.op = "cast", .dtype = strata_dtype_name(dtype)};
    STRATA_TRY(strata_onnx_op(im, &opts, &x, 1, im->values[x].behind, &y));
    return give(im, y);
}

/* ---- products ---- */

/* Whether the constant `bias` is what dense adds: as many numbers as units, along the last axis. */
static bool is_bias(const strata_onnx_import *im, int bias, int64_t units) {
    if (!strata_onnx_is_constant(im, bias)) return false;
    const strata_shape shape = im->values[bias].array.shape;
    return im->values[bias].array.dtype == STRATA_DTYPE_F32 && shape.rank >= 1 && strata_shape_elements(shape) == units &&
           shape.dims[shape.rank - 1] == units && shape.rank <= 2;
}

/* x kernel + bias as a dense layer. kernel: (in, units), taken. bias -1: none. */
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

static bool is_matrix(const strata_onnx_import *im, int value) {
    return strata_onnx_is_constant(im, value) && im->values[value].trainable && im->values[value].array.shape.rank == 2;
}

static strata_status matmul(strata_onnx_import *im) {
    int a, b, y, bias = -1;
    STRATA_TRY(need(im, 0, &a));
    STRATA_TRY(need(im, 1, &b));
    if (im->folding || !is_matrix(im, b) || strata_onnx_shape(im, a).rank < 2 || strata_onnx_is_constant(im, a)) {
        STRATA_TRY(strata_onnx_simple(im, "matmul", a, b, &y));
        return give(im, y);
    }
    /* An Add behind it that nothing else interferes with is the layer's bias. */
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
    return bias >= 0 ? STRATA_OK : give(im, y);
}

static strata_status scaled(strata_onnx_import *im, int x, double factor, int *out) {
    int number;
    *out = x;
    if (factor == 1) return STRATA_OK;
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, factor, &number));
    return pair(im, "mul", x, number, out);
}

static strata_status gemm(strata_onnx_import *im) {
    const double alpha = strata_onnx_float(im, "alpha", 1), beta = strata_onnx_float(im, "beta", 1);
    const bool of_a = strata_onnx_int(im, "transA", 0), of_b = strata_onnx_int(im, "transB", 0);
    static const int swapped[] = {1, 0}, same[] = {0, 1};
    int a, b, y;
    STRATA_TRY(need(im, 0, &a));
    STRATA_TRY(need(im, 1, &b));
    int c = strata_onnx_input(im, 2);
    if (strata_onnx_shape(im, a).rank != 2 || strata_onnx_shape(im, b).rank != 2)
        return strata_onnx_fail(im, STRATA_DATA, "its inputs must be matrices");
    if (!im->folding && is_matrix(im, b) && !strata_onnx_is_constant(im, a) && !of_a && alpha == 1) {
        const int64_t units = im->values[b].array.shape.dims[of_b ? 0 : 1];
        if (c < 0 || (beta == 1 && is_bias(im, c, units))) {
            strata_array kernel;
            STRATA_TRY(strata_onnx_permute_array(&im->values[b].array, of_b ? swapped : same, &kernel, im->err));
            STRATA_TRY(dense(im, a, &kernel, c, &y));
            return give(im, y);
        }
    }
    if (of_a) STRATA_TRY(strata_onnx_permute(im, a, swapped, &a));
    if (of_b) STRATA_TRY(strata_onnx_permute(im, b, swapped, &b));
    STRATA_TRY(strata_onnx_simple(im, "matmul", a, b, &y));
    STRATA_TRY(scaled(im, y, alpha, &y));
    if (c >= 0) {
        STRATA_TRY(scaled(im, c, beta, &c));
        STRATA_TRY(pair(im, "add", y, c, &y));
    }
    return give(im, y);
}

/* ---- shapes ---- */

/* Input 0 by an op with whole numbers, with channels in front. */
static strata_status with_ints(strata_onnx_import *im, const char *op, int x, const int64_t *numbers, int n, double value,
                               int *out) {
    strata_op_options opts = {.op = op, .value = value, .numbers = {.n = n}};
    if (n > STRATA_MAX_NUMBERS) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    for (int i = 0; i < n; i++) opts.numbers.values[i] = (double)numbers[i];
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    return strata_onnx_op(im, &opts, &x, 1, false, out);
}

static bool has_batch(const strata_onnx_import *im, int64_t number) {
    return im->batched && !im->folding && number && number % STRATA_ONNX_BATCH == 0;
}

static int64_t product_of(const int64_t *dims, int n) {
    int64_t product = 1;
    for (int i = 0; i < n; i++) product *= dims[i] > 0 && product < INT64_MAX / dims[i] ? dims[i] : 1;
    return product;
}

/* x in another shape, whose sizes may be multiples of the batch: such a one becomes "what the others leave". */
static strata_status reshape_to(strata_onnx_import *im, int x, int64_t *to, int n, int *out) {
    const strata_shape from = strata_onnx_shape(im, x);
    int open = -1;
    for (int d = 0; d < n; d++) open = to[d] == -1 ? d : open;
    for (int d = 0; d < n; d++) {
        if (!has_batch(im, to[d])) continue;
        if (d < from.rank && to[d] == from.dims[d])
            to[d] = 0;
        else if (open < 0)
            to[open = d] = -1;
        else
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "two of its sizes depend on the batch");
    }
    /* A file with a fixed batch has that number where the batch is meant. */
    if (im->batched && !im->folding && im->fixed_batch && n && to[0] == im->fixed_batch && from.rank &&
        from.dims[0] == STRATA_ONNX_BATCH) {
        if (open < 0 && product_of(to + 1, n - 1) != product_of(from.dims + 1, from.rank - 1)) {
            to[0] = -1;
        } else {
            to[0] = 0;
        }
    }
    return with_ints(im, "reshape", x, to, n, 0, out);
}

static strata_status reshape(strata_onnx_import *im) {
    int64_t to[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_ints(im, "shape", 1, STRATA_MAX_RANK, to, &n));
    for (int d = 0; d < n && strata_onnx_int(im, "allowzero", 0); d++)
        if (!to[d]) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "empty tensors are not there");
    STRATA_TRY(reshape_to(im, x, to, n, &y));
    return give(im, y);
}

static strata_status flatten(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 1), to[2];
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis > shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (axis == 1 && !im->folding && !strata_onnx_is_constant(im, x)) {
        STRATA_TRY(strata_onnx_in_front(im, x, &x));
        STRATA_TRY(strata_onnx_layer(im, &strata_layer_flatten, &(strata_flatten_options){0}, x, false, &y));
        return give(im, y);
    }
    to[0] = axis ? -1 : 1;
    to[1] = axis ? product_of(shape.dims + axis, shape.rank - (int)axis) : -1;
    STRATA_TRY(with_ints(im, "reshape", x, to, 2, 0, &y));
    return give(im, y);
}

static strata_status read_axes(strata_onnx_import *im, int input, int rank, int64_t *axes, int *out_n) {
    STRATA_TRY(strata_onnx_ints(im, "axes", input, STRATA_MAX_RANK, axes, out_n));
    for (int i = 0; i < *out_n; i++) {
        if (axes[i] < 0) axes[i] += rank;
        if (axes[i] < 0 || axes[i] >= rank)
            return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axes[i], rank);
    }
    return STRATA_OK;
}

static bool is_among(const int64_t *axes, int n, int64_t axis) {
    for (int i = 0; i < n; i++)
        if (axes[i] == axis) return true;
    return false;
}

static strata_status squeeze(strata_onnx_import *im) {
    const bool add = !strcmp(im->node->op_type, "Unsqueeze");
    int64_t axes[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    int x, n, y, rank, k = 0;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(strata_onnx_ints(im, "axes", 1, STRATA_MAX_RANK, axes, &n));
    rank = add ? shape.rank + n : shape.rank;
    if (rank > STRATA_MAX_RANK) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than %d axes", STRATA_MAX_RANK);
    STRATA_TRY(read_axes(im, 1, rank, axes, &n));
    const bool all = !add && !n;
    rank = 0;
    for (int d = 0; d < (add ? shape.rank + n : shape.rank); d++) {
        const bool named = is_among(axes, n, d) || (all && shape.dims[d] == 1);
        if (!add && named && shape.dims[d] != 1)
            return strata_onnx_fail(im, STRATA_DATA, "axis %d has size %" PRId64 ", not 1", d, shape.dims[d]);
        if (add && !named && k >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "an axis is named twice");
        if (add || !named) to[rank++] = add && named ? 1 : shape.dims[add ? k++ : d];
    }
    STRATA_TRY(reshape_to(im, x, to, rank, &y));
    return give(im, y);
}

static strata_status transpose(strata_onnx_import *im) {
    int64_t perm[STRATA_MAX_RANK];
    int axes[STRATA_MAX_RANK], x, n, y;
    bool seen[STRATA_MAX_RANK] = {0};
    STRATA_TRY(need(im, 0, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    STRATA_TRY(strata_onnx_ints(im, "perm", -1, STRATA_MAX_RANK, perm, &n));
    if (n && n != rank) return strata_onnx_fail(im, STRATA_DATA, "perm has %d axes; its input has %d", n, rank);
    for (int d = 0; d < rank; d++) {
        const int64_t axis = n ? perm[d] : rank - 1 - d;
        if (axis < 0 || axis >= rank || seen[axis]) return strata_onnx_fail(im, STRATA_DATA, "perm is no order of its axes");
        seen[axis] = true;
        axes[d] = (int)axis;
    }
    /* To channels behind, or back: the other order of the same value, which may be there already. */
    bool to_behind = rank >= 3 && axes[0] == 0 && axes[rank - 1] == 1,
         to_front = rank >= 3 && axes[0] == 0 && axes[1] == rank - 1;
    for (int d = 1; d < rank - 1; d++) {
        to_behind = to_behind && axes[d] == d + 1;
        to_front = to_front && axes[d + 1] == d;
    }
    if (to_behind && !strata_onnx_is_constant(im, x) && im->values[x].behind) {
        STRATA_TRY(strata_onnx_output(im, 0, x));
        const int named = strata_onnx_find(im, im->node->output[0]);
        im->values[named].behind = false;
        im->values[named].other = 0;
        return STRATA_OK;
    }
    if (to_front && !strata_onnx_is_constant(im, x) && !im->values[x].behind) {
        STRATA_TRY(strata_onnx_output(im, 0, x));
        const int named = strata_onnx_find(im, im->node->output[0]);
        im->values[named].behind = true;
        im->values[named].other = 0;
        return STRATA_OK;
    }
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    STRATA_TRY(strata_onnx_permute(im, x, axes, &y));
    return give(im, y);
}

static strata_status concat(strata_onnx_import *im) {
    int inputs[STRATA_MAX_LAYER_INPUTS], y;
    const size_t n = im->node->n_input;
    if (n > STRATA_MAX_LAYER_INPUTS)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it has %zu inputs; at most %d", n, STRATA_MAX_LAYER_INPUTS);
    for (size_t i = 0; i < n; i++) {
        STRATA_TRY(need(im, (int)i, &inputs[i]));
        STRATA_TRY(strata_onnx_in_front(im, inputs[i], &inputs[i]));
    }
    if (!n) return strata_onnx_fail(im, STRATA_DATA, "it has no inputs");
    const int rank = strata_onnx_shape(im, inputs[0]).rank;
    int64_t axis = strata_onnx_int(im, "axis", 1);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
        return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there; there are %d", axis, rank);
    strata_op_options opts = {.op = "concat", .numbers = {.n = 1, .values = {(double)axis}}};
    STRATA_TRY(strata_onnx_op(im, &opts, inputs, (int)n, false, &y));
    return give(im, y);
}

/* Elements [begin, begin + size) along an axis; size -1: all behind begin. */
static strata_status slice_axis(strata_onnx_import *im, int x, int axis, int64_t begin, int64_t size, int *out) {
    const int rank = strata_onnx_shape(im, x).rank;
    int64_t numbers[2 * STRATA_MAX_RANK];
    for (int d = 0; d < rank; d++) numbers[d] = d == axis ? begin : 0;
    for (int d = 0; d < rank; d++) numbers[rank + d] = d == axis ? size : -1;
    return with_ints(im, "slice", x, numbers, 2 * rank, 0, out);
}

static strata_status split(strata_onnx_import *im) {
    int64_t sizes[64], begin = 0;
    int x, n, y;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    STRATA_TRY(strata_onnx_ints(im, "split", 1, 64, sizes, &n));
    const int64_t parts = (int64_t)im->node->n_output;
    if (!n) {
        if (parts < 1 || parts > 64) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "%" PRId64 " parts; 1 to 64", parts);
        const int64_t each = (shape.dims[axis] + parts - 1) / parts;
        for (n = 0; n < parts; n++) sizes[n] = n + 1 < parts ? each : shape.dims[axis] - each * (parts - 1);
    }
    if (n != parts) return strata_onnx_fail(im, STRATA_DATA, "%d sizes for %" PRId64 " outputs", n, parts);
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "part %d has size %" PRId64, i, sizes[i]);
        if (axis == 0 && shape.dims[0] == STRATA_ONNX_BATCH && im->batched)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it divides the batch");
        STRATA_TRY(slice_axis(im, x, (int)axis, begin, sizes[i], &y));
        STRATA_TRY(strata_onnx_output(im, i, y));
        begin += sizes[i];
    }
    return STRATA_OK;
}

/* x[indices] along an axis, for constant indices. */
static strata_status pick(strata_onnx_import *im, int x, int axis, int indices, int *out) {
    const strata_op_options opts = {.op = "gather", .numbers = {.n = 1, .values = {axis}}};
    int inputs[2] = {x, indices};
    STRATA_TRY(strata_onnx_in_front(im, x, &inputs[0]));
    return strata_onnx_op(im, &opts, inputs, 2, false, out);
}

static strata_status slice(strata_onnx_import *im) {
    int64_t starts[STRATA_MAX_RANK], ends[STRATA_MAX_RANK], axes[STRATA_MAX_RANK], steps[STRATA_MAX_RANK];
    int x, n, n_ends, n_axes, n_steps, y;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(strata_onnx_ints(im, "starts", 1, STRATA_MAX_RANK, starts, &n));
    STRATA_TRY(strata_onnx_ints(im, "ends", 2, STRATA_MAX_RANK, ends, &n_ends));
    STRATA_TRY(read_axes(im, 3, shape.rank, axes, &n_axes));
    STRATA_TRY(strata_onnx_ints(im, "steps", 4, STRATA_MAX_RANK, steps, &n_steps));
    if (n_ends != n || (n_axes && n_axes != n) || (n_steps && n_steps != n) || n > shape.rank)
        return strata_onnx_fail(im, STRATA_DATA, "%d starts, %d ends, %d axes and %d steps do not belong together", n, n_ends,
                                n_axes, n_steps);
    y = x;
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i] : i;
        const int64_t size = shape.dims[axis], step = n_steps ? steps[i] : 1;
        int64_t from = starts[i], to = ends[i];
        if (!step || step > INT32_MAX || step < -INT32_MAX) return strata_onnx_fail(im, STRATA_DATA, "step %" PRId64, step);
        const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
        if (from < 0) from = from < -size ? least : from + size;
        if (to < 0) to = to < -size ? least : to + size;
        from = from < 0 ? 0 : from > most ? most : from;
        to = to < least ? least : to > most ? most : to;
        const int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
        if (count < 1)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it leaves nothing of axis %d; empty tensors are not there", axis);
        if (step == 1 && from == 0 && to == size) continue;
        if (im->batched && !im->folding && size == STRATA_ONNX_BATCH)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "it takes some examples of the batch");
        if (step == 1) {
            STRATA_TRY(slice_axis(im, y, axis, from, to == size ? -1 : count, &y));
            continue;
        }
        if (count > 1 << 20) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "steps over more than 2^20 elements");
        strata_array list;
        int indices;
        STRATA_TRY(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(count), &list, im->err));
        for (int64_t k = 0; k < count; k++) ((int64_t *)list.data)[k] = from + k * step;
        STRATA_TRY(strata_onnx_constant(im, &list, false, &indices));
        STRATA_TRY(pick(im, y, axis, indices, &y));
    }
    return give(im, y);
}

static strata_status gather(strata_onnx_import *im) {
    int x, indices, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(need(im, 1, &indices));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    const bool table = !im->folding && axis == 0 && is_matrix(im, x) && !strata_onnx_is_constant(im, indices);
    STRATA_TRY(strata_onnx_in_front(im, indices, &indices));
    if (table && strata_onnx_dtype(im, indices) == STRATA_DTYPE_I32) {
        const strata_embedding_options opts = {.vocabulary = shape.dims[0], .units = shape.dims[1]};
        const strata_array *rows = &im->values[x].array;
        strata_array copy;
        STRATA_TRY(strata_onnx_permute_array(rows, (const int[]){0, 1}, &copy, im->err));
        strata_status status = strata_onnx_layer(im, &strata_layer_embedding, &opts, indices, false, &y);
        if (!status) status = strata_onnx_weight_of(im, "embeddings", &copy);
        strata_array_finish(&copy);
        return status ? status : give(im, y);
    }
    STRATA_TRY(pick(im, x, (int)axis, indices, &y));
    return give(im, y);
}

/* The batch's size in the wanted shape is 0 in the op: that of axis 0 of an input of the model. */
static strata_status expand_to(strata_onnx_import *im, int x, const int64_t *to, int n, int *out) {
    strata_op_options opts = {.op = "expand", .numbers = {.n = n}};
    int inputs[2] = {x, -1};
    if (im->folding) {
        STRATA_TRY(strata_onnx_integers(im, (const int64_t[]){0}, 1, &inputs[1]));
    } else {
        for (int i = 0; i < im->n_values && inputs[1] < 0; i++)
            if (!im->values[i].constant && im->values[i].value && im->values[i].value->layer < 0) inputs[1] = i;
    }
    for (int d = 0; d < n; d++) {
        if (has_batch(im, to[d]) && to[d] != STRATA_ONNX_BATCH)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "a size is a multiple of the batch");
        opts.numbers.values[d] = has_batch(im, to[d]) ? 0 : (double)to[d];
    }
    STRATA_TRY(strata_onnx_in_front(im, x, &inputs[0]));
    return strata_onnx_op(im, &opts, inputs, 2, false, out);
}

static strata_status expand(strata_onnx_import *im) {
    int64_t wanted[STRATA_MAX_RANK], to[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_ints(im, NULL, 1, STRATA_MAX_RANK, wanted, &n));
    const strata_shape shape = strata_onnx_shape(im, x);
    const int rank = n > shape.rank ? n : shape.rank;
    for (int d = 0; d < rank; d++) {
        const int64_t a = d < rank - shape.rank ? 1 : shape.dims[d - (rank - shape.rank)],
                      b = d < rank - n ? 1 : wanted[d - (rank - n)];
        to[d] = b == 1 || (b == im->fixed_batch && a == STRATA_ONNX_BATCH) ? a : b;
        if (to[d] < 1) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "to a size of %" PRId64, to[d]);
    }
    STRATA_TRY(expand_to(im, x, to, rank, &y));
    return give(im, y);
}

static strata_status tile(strata_onnx_import *im) {
    int64_t times[STRATA_MAX_RANK];
    int x, n, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_ints(im, "repeats", 1, STRATA_MAX_RANK, times, &n));
    if (n != strata_onnx_shape(im, x).rank) return strata_onnx_fail(im, STRATA_DATA, "it has %d repeats", n);
    for (int i = 0; i < n; i++)
        if (times[i] < 1 || has_batch(im, times[i]))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "repeats of %" PRId64, times[i]);
    STRATA_TRY(with_ints(im, "tile", x, times, n, 0, &y));
    return give(im, y);
}

static strata_status pad(strata_onnx_import *im) {
    int64_t given[2 * STRATA_MAX_RANK], pads[2 * STRATA_MAX_RANK] = {0}, axes[STRATA_MAX_RANK];
    int x, n, n_axes, y;
    double value = strata_onnx_float(im, "value", 0);
    STRATA_TRY(need(im, 0, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    if (!strata_onnx_text_is(im, "mode", "constant", true))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "only the mode \"constant\" is there");
    STRATA_TRY(strata_onnx_ints(im, "pads", 1, 2 * STRATA_MAX_RANK, given, &n));
    STRATA_TRY(read_axes(im, 3, rank, axes, &n_axes));
    if (strata_onnx_input(im, 2) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 2), &value));
    const int count = n_axes ? n_axes : rank;
    if (n != 2 * count) return strata_onnx_fail(im, STRATA_DATA, "it has %d pads for %d axes", n, count);
    y = x;
    bool cuts = false;
    for (int i = 0; i < n; i++) {
        const int axis = n_axes ? (int)axes[i % count] : i % count;
        pads[(i < count ? 0 : rank) + axis] = given[i];
        cuts |= given[i] < 0;
        if (given[i] > INT32_MAX) return strata_onnx_fail(im, STRATA_DATA, "a pad of %" PRId64, given[i]);
    }
    if (cuts) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "pads below 0 are not there");
    STRATA_TRY(with_ints(im, "pad", x, pads, 2 * rank, value, &y));
    return give(im, y);
}

static strata_status shape_of(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t start = strata_onnx_int(im, "start", 0), end = strata_onnx_int(im, "end", shape.rank);
    start = start < 0 ? start + shape.rank : start;
    end = end < 0 ? end + shape.rank : end;
    start = start < 0 ? 0 : start > shape.rank ? shape.rank : start;
    end = end < start ? start : end > shape.rank ? shape.rank : end;
    STRATA_TRY(strata_onnx_integers(im, shape.dims + start, (int)(end - start), &y));
    return give(im, y);
}

static strata_status size_of(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_I64, (double)strata_shape_elements(strata_onnx_shape(im, x)), &y));
    return give(im, y);
}

static strata_status constant(strata_onnx_import *im) {
    const StrataOnnx__Attribute *a = im->node->n_attribute == 1 ? im->node->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    strata_array array;
    int y;
    if (!strcmp(name, "value") && a->t) {
        STRATA_TRY(strata_onnx_read_tensor(a->t, im->path, &array, im->err));
        STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    } else if (!strcmp(name, "value_float")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, a->f, &y));
    } else if (!strcmp(name, "value_int")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_I64, 0, &y));
        ((int64_t *)im->values[y].array.data)[0] = a->i;
    } else if (!strcmp(name, "value_ints")) {
        if (a->n_ints > 1 << 24) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^24 integers");
        STRATA_TRY(strata_onnx_integers(im, a->ints, (int)a->n_ints, &y));
    } else if (!strcmp(name, "value_floats")) {
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE((int64_t)a->n_floats), &array, im->err));
        if (a->n_floats) memcpy(array.data, a->floats, a->n_floats * sizeof *a->floats);
        STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    } else {
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its value is no tensor and no number");
    }
    return give(im, y);
}

/* A number in a shape, which may have the batch: then it is a number that is expanded. */
static strata_status constant_of_shape(strata_onnx_import *im) {
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, "value");
    int64_t to[STRATA_MAX_RANK];
    strata_array number;
    int n, one, y;
    bool open = false;
    STRATA_TRY(strata_onnx_ints(im, NULL, 0, STRATA_MAX_RANK, to, &n));
    if (a && a->t)
        STRATA_TRY(strata_onnx_read_tensor(a->t, im->path, &number, im->err));
    else
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(), &number, im->err));
    if (!(a && a->t)) *(float *)number.data = 0;
    if (strata_shape_elements(number.shape) != 1) {
        strata_array_finish(&number);
        return strata_onnx_fail(im, STRATA_DATA, "its value must be one number");
    }
    number.shape = STRATA_SHAPE();
    STRATA_TRY(strata_onnx_constant(im, &number, false, &one));
    for (int d = 0; d < n; d++) {
        if (to[d] < 0) return strata_onnx_fail(im, STRATA_DATA, "a size of %" PRId64, to[d]);
        open |= im->batched && to[d] && to[d] % STRATA_ONNX_BATCH == 0;
    }
    if (!open && product_of(to, n) > 1 << 28) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^28 elements");
    if (!open) {
        STRATA_TRY(expand_to(im, one, to, n, &y));
        return give(im, y);
    }
    return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its shape has the batch");
}

static strata_status range(strata_onnx_import *im) {
    double from, to, by;
    int y, in[3];
    strata_array array;
    for (int i = 0; i < 3; i++) STRATA_TRY(need(im, i, &in[i]));
    STRATA_TRY(strata_onnx_number(im, in[0], &from));
    STRATA_TRY(strata_onnx_number(im, in[1], &to));
    STRATA_TRY(strata_onnx_number(im, in[2], &by));
    const strata_dtype dtype = strata_onnx_dtype(im, in[0]);
    const double n = by == 0 ? -1 : ceil((to - from) / by);
    if (!(n >= 0 && n < 1 << 24))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                "from %g to %g by %g: up to 2^24 numbers that do not depend on the batch", from, to, by);
    if (im->batched && fabs(to) >= STRATA_ONNX_BATCH)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its end depends on the batch");
    STRATA_TRY(strata_array_create(dtype, STRATA_SHAPE((int64_t)n), &array, im->err));
    for (int64_t i = 0; i < (int64_t)n; i++) strata_element_set(dtype, array.data, i, from + (double)i * by);
    STRATA_TRY(strata_onnx_constant(im, &array, false, &y));
    return give(im, y);
}

/* The part above or below a diagonal: x where a constant mask is true. */
static strata_status trilu(strata_onnx_import *im) {
    const bool upper = strata_onnx_int(im, "upper", 1);
    double k = 0;
    int inputs[3], y;
    strata_array mask;
    STRATA_TRY(need(im, 0, &inputs[1]));
    if (strata_onnx_input(im, 1) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1), &k));
    STRATA_TRY(strata_onnx_in_front(im, inputs[1], &inputs[1]));
    const strata_shape shape = strata_onnx_shape(im, inputs[1]);
    if (shape.rank < 2) return strata_onnx_fail(im, STRATA_DATA, "its input is no matrix");
    const int64_t rows = shape.dims[shape.rank - 2], columns = shape.dims[shape.rank - 1];
    if (rows > 1 << 14 || columns > 1 << 14) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "more than 2^14 rows or columns");
    STRATA_TRY(strata_array_create(STRATA_DTYPE_BOOL, STRATA_SHAPE(rows, columns), &mask, im->err));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ((uint8_t *)mask.data)[i * columns + j] = upper ? (double)(j - i) >= k : (double)(j - i) <= k;
    STRATA_TRY(strata_onnx_constant(im, &mask, false, &inputs[0]));
    STRATA_TRY(strata_onnx_scalar(
        im, strata_onnx_dtype(im, inputs[1]) == STRATA_DTYPE_I32 ? STRATA_DTYPE_I64 : strata_onnx_dtype(im, inputs[1]), 0,
        &inputs[2]));
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return give(im, y);
}

/* Blocks of channels to places, and back: a reshape, a transpose and a reshape. */
static strata_status depth_space(strata_onnx_import *im) {
    const bool to_space = !strcmp(im->node->op_type, "DepthToSpace");
    const bool crd = strata_onnx_text_is(im, "mode", "CRD", false);
    const int64_t b = strata_onnx_int(im, "blocksize", 0);
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape s = strata_onnx_shape(im, x);
    if (s.rank != 4 || b < 1 || b > 1 << 10 || (to_space ? s.dims[1] % (b * b) : s.dims[2] % b || s.dims[3] % b))
        return strata_onnx_fail(im, STRATA_DATA, "%s does not divide into blocks of %" PRId64, strata_shape_text(s).text, b);
    const int64_t c = s.dims[1], h = s.dims[2], w = s.dims[3];
    int64_t first[6] = {0, b, b, c / (b * b), h, w}, last[4] = {0, c / (b * b), h * b, w * b};
    const int dcr[] = {0, 3, 4, 1, 5, 2}, crd_axes[] = {0, 1, 4, 2, 5, 3}, back[] = {0, 3, 5, 1, 2, 4},
              crd_back[] = {0, 1, 3, 5, 2, 4};
    const int *axes = to_space ? (crd ? crd_axes : dcr) : crd ? crd_back : back;
    if (crd && to_space) first[1] = c / (b * b), first[3] = b;
    if (!to_space) {
        const int64_t split_places[6] = {0, c, h / b, b, w / b, b}, deep[4] = {0, c * b * b, h / b, w / b};
        memcpy(first, split_places, sizeof first);
        memcpy(last, deep, sizeof last);
    }
    STRATA_TRY(with_ints(im, "reshape", x, first, 6, 0, &y));
    STRATA_TRY(strata_onnx_permute(im, y, axes, &y));
    STRATA_TRY(with_ints(im, "reshape", y, last, 4, 0, &y));
    return give(im, y);
}

/* ---- reductions ---- */

static strata_status reduce_by(strata_onnx_import *im, const char *op, int x, const int64_t *axes, int n, bool keep, int *out) {
    return with_ints(im, op, x, axes, n, keep, out);
}

static strata_status reduce(strata_onnx_import *im) {
    /* What is done before and behind the sum. */
    static const struct {
        const char *detail, *before, *op, *behind;
    } forms[] = {
        {"sum", NULL, "reduce_sum", NULL},        {"mean", NULL, "reduce_mean", NULL}, {"max", NULL, "reduce_max", NULL},
        {"min", NULL, "reduce_min", NULL},        {"l1", "abs", "reduce_sum", NULL},   {"l2", "square", "reduce_sum", "sqrt"},
        {"square", "square", "reduce_sum", NULL}, {"log", NULL, "reduce_sum", "log"},  {"exp", "exp", "reduce_sum", "log"}};
    const char *detail = row_of(im)->detail;
    const bool keep = strata_onnx_int(im, "keepdims", 1);
    int64_t axes[STRATA_MAX_RANK];
    int x, n, y, f = 0, largest = -1;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(read_axes(im, 1, shape.rank, axes, &n));
    if (!n && strata_onnx_int(im, "noop_with_empty_axes", 0)) return give(im, x);
    if (!n)
        for (; n < shape.rank; n++) axes[n] = n;
    while (strcmp(forms[f].detail, detail)) f++;
    if (!shape.rank) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "of one number");
    STRATA_TRY(strata_onnx_in_front(im, x, &y));
    if (!strcmp(detail, "exp")) { /* log sum e^x = m + log sum e^(x - m) with the largest x as m */
        STRATA_TRY(reduce_by(im, "reduce_max", y, axes, n, true, &largest));
        STRATA_TRY(pair(im, "sub", y, largest, &y));
    }
    if (forms[f].before) STRATA_TRY(unary_with(im, forms[f].before, 0, 0, 0, y, &y));
    STRATA_TRY(reduce_by(im, forms[f].op, y, axes, n, keep, &y));
    if (forms[f].behind) STRATA_TRY(unary_with(im, forms[f].behind, 0, 0, 0, y, &y));
    if (largest >= 0 && !keep) STRATA_TRY(reduce_by(im, "reduce_max", largest, axes, n, false, &largest));
    if (largest >= 0) STRATA_TRY(pair(im, "add", y, largest, &y));
    return give(im, y);
}

static strata_status argmax(strata_onnx_import *im) {
    const bool least = !strcmp(im->node->op_type, "ArgMin"), keep = strata_onnx_int(im, "keepdims", 1);
    int64_t to[STRATA_MAX_RANK];
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", 0);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (strata_onnx_int(im, "select_last_index", 0))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "select_last_index is not there");
    if (least) STRATA_TRY(unary_with(im, "neg", 0, 0, 0, x, &x));
    STRATA_TRY(with_ints(im, "argmax", x, &axis, 1, 0, &y));
    if (!keep) return give(im, y);
    for (int d = 0; d < shape.rank; d++) to[d] = d == axis ? 1 : shape.dims[d];
    STRATA_TRY(reshape_to(im, y, to, shape.rank, &y));
    return give(im, y);
}

/* The value with one axis moved to the end, or back from it. */
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
    STRATA_TRY(need(im, 0, &x));
    STRATA_TRY(strata_onnx_ints(im, "k", 1, 1, &k, &n));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", -1);
    const StrataOnnx__Attribute *of_k = strata_onnx_attribute(im, "k");
    if (of_k) k = of_k->i, n = 1;
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank || n != 1) return strata_onnx_fail(im, STRATA_DATA, "axis or k is not right");
    const bool least = !strata_onnx_int(im, "largest", 1);
    STRATA_TRY(move_axis(im, x, axis, false, &x));
    if (least) STRATA_TRY(unary_with(im, "neg", 0, 0, 0, x, &x));
    for (int i = 0; i < 2; i++) {
        STRATA_TRY(with_ints(im, i ? "top_k_indices" : "top_k", x, &k, 1, 0, &y));
        if (least && !i) STRATA_TRY(unary_with(im, "neg", 0, 0, 0, y, &y));
        STRATA_TRY(move_axis(im, y, axis, true, &y));
        STRATA_TRY(strata_onnx_output(im, i, y));
    }
    return STRATA_OK;
}

static strata_status softmax(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", im->opset < 13 ? 1 : -1), to[STRATA_MAX_RANK];
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (im->opset < 13 && axis != shape.rank - 1) { /* before opset 13 all axes from this one on are one */
        int64_t flat[STRATA_MAX_RANK];
        for (int d = 0; d < axis; d++) flat[d] = shape.dims[d];
        flat[axis] = product_of(shape.dims + axis, shape.rank - (int)axis);
        for (int d = 0; d < shape.rank; d++) to[d] = shape.dims[d];
        STRATA_TRY(reshape_to(im, x, flat, (int)axis + 1, &y));
        STRATA_TRY(unary_with(im, row_of(im)->detail, 0, 0, 0, y, &y));
        STRATA_TRY(reshape_to(im, y, to, shape.rank, &y));
        return give(im, y);
    }
    STRATA_TRY(move_axis(im, x, axis, false, &y));
    STRATA_TRY(unary_with(im, row_of(im)->detail, 0, 0, 0, y, &y));
    STRATA_TRY(move_axis(im, y, axis, true, &y));
    return give(im, y);
}

/* ---- the table ---- */

#define UNARY(onnx, op) \
    { onnx, elementwise, op }
#define BINARY(onnx, op) \
    { onnx, binary, op }
static const strata_onnx_row rows[] = {UNARY("Neg", "neg"),
                                       UNARY("Abs", "abs"),
                                       UNARY("Sign", "sign"),
                                       UNARY("Exp", "exp"),
                                       UNARY("Log", "log"),
                                       UNARY("Sqrt", "sqrt"),
                                       UNARY("Sin", "sin"),
                                       UNARY("Cos", "cos"),
                                       UNARY("Erf", "erf"),
                                       UNARY("Tanh", "tanh"),
                                       UNARY("Sigmoid", "sigmoid"),
                                       UNARY("Relu", "relu"),
                                       UNARY("Softplus", "softplus"),
                                       BINARY("Add", "add"),
                                       BINARY("Sub", "sub"),
                                       BINARY("Mul", "mul"),
                                       {"Div", divide, NULL},
                                       {"Mod", divide, NULL},
                                       BINARY("Equal", "equal"),
                                       BINARY("Less", "less"),
                                       BINARY("LessOrEqual", "less_equal"),
                                       BINARY("Greater", "greater"),
                                       BINARY("GreaterOrEqual", "greater_equal"),
                                       {"Pow", power, NULL},
                                       {"Min", variadic, "min"},
                                       {"Max", variadic, "max"},
                                       {"Sum", variadic, "add"},
                                       {"Mean", variadic, "mean"},
                                       {"And", logical, "min"},
                                       {"Or", logical, "max"},
                                       {"Xor", logical, "not_equal"},
                                       {"Not", logical, "not"},
                                       {"Reciprocal", reciprocal, NULL},
                                       {"Softsign", softsign, NULL},
                                       {"HardSigmoid", hard_sigmoid, ""},
                                       {"HardSwish", hard_sigmoid, "swish"},
                                       {"Mish", mish, NULL},
                                       {"Swish", swish, NULL},
                                       {"Selu", selu, NULL},
                                       {"Celu", celu, NULL},
                                       {"ThresholdedRelu", thresholded, NULL},
                                       {"LeakyRelu", with_alpha, "leaky_relu"},
                                       {"Elu", with_alpha, "elu"},
                                       {"PRelu", prelu, NULL},
                                       {"Gelu", gelu, NULL},
                                       {"Clip", clip, NULL},
                                       {"Where", where, NULL},
                                       {"Identity", identity, NULL},
                                       {"Dropout", dropout, NULL},
                                       {"Cast", cast, NULL},
                                       {"CastLike", cast, NULL},
                                       {"MatMul", matmul, NULL},
                                       {"Gemm", gemm, NULL},
                                       {"Reshape", reshape, NULL},
                                       {"Flatten", flatten, NULL},
                                       {"Squeeze", squeeze, NULL},
                                       {"Unsqueeze", squeeze, NULL},
                                       {"Transpose", transpose, NULL},
                                       {"Concat", concat, NULL},
                                       {"Split", split, NULL},
                                       {"Slice", slice, NULL},
                                       {"Gather", gather, NULL},
                                       {"Expand", expand, NULL},
                                       {"Tile", tile, NULL},
                                       {"Pad", pad, NULL},
                                       {"Shape", shape_of, NULL},
                                       {"Size", size_of, NULL},
                                       {"Constant", constant, NULL},
                                       {"ConstantOfShape", constant_of_shape, NULL},
                                       {"Range", range, NULL},
                                       {"Trilu", trilu, NULL},
                                       {"DepthToSpace", depth_space, NULL},
                                       {"SpaceToDepth", depth_space, NULL},
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

const strata_onnx_row *strata_onnx_find_row(const char *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].op, op)) return &rows[i];
    return NULL;
}
