/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates ONNX's element-wise ops, including logical ops, casts and compositions of several ops. */
#include <inttypes.h>
#include <math.h>

#include "core/interchange/onnx.h"

int strata_onnx_unary(strata_onnx_import *im, const char *op, int value) {
    return strata_onnx_op(im, &(strata_op_options){.op = op}, &value, 1, im->values[value].behind);
}

int strata_onnx_cast(strata_onnx_import *im, const char *dtype, int value) {
    return strata_onnx_op(im, &(strata_op_options){.op = "cast", .dtype = dtype}, &value, 1, im->values[value].behind);
}

/* Applies an op with n numbers of its own (the first of a, b). */
static int with_options(strata_onnx_import *im, const char *op, int value, int n, double a, double b) {
    const strata_op_options opts = {.op = op, .numbers = {.n = n, .values = {a, b}}};
    return strata_onnx_op(im, &opts, &value, 1, im->values[value].behind);
}

int strata_onnx_pair(strata_onnx_import *im, const char *op, int a, int b) {
    const int rank_a = strata_onnx_shape(im, a).rank, rank_b = strata_onnx_shape(im, b).rank;
    const bool behind = (im->values[a].behind || im->values[b].behind) && (rank_a == rank_b || !rank_a || !rank_b);
    const strata_dtype type_a = strata_onnx_dtype(im, a), type_b = strata_onnx_dtype(im, b);
    int inputs[2] = {a, b};
    for (int i = 0; i < 2; i++) inputs[i] = behind ? strata_onnx_behind(im, inputs[i]) : strata_onnx_in_front(im, inputs[i]);
    /* In the model a constant of i64 becomes i32, and no other value is i64. So i32 and i64 may be mixed here. */
    if (type_a != type_b && (type_a == STRATA_DTYPE_F32 || type_b == STRATA_DTYPE_F32 || im->folding))
        return strata_onnx_reject(im, STRATA_DATA, "its inputs are %s and %s; they must be of one type",
                                  strata_dtype_name(type_a), strata_dtype_name(type_b));
    return strata_onnx_op(im, &(strata_op_options){.op = op}, inputs, 2, behind);
}

int strata_onnx_with_number(strata_onnx_import *im, const char *op, int value, double number) {
    return strata_onnx_pair(im, op, value, strata_onnx_scalar(im, STRATA_DTYPE_F32, number));
}

int strata_onnx_node_unary(strata_onnx_import *im, const int *in) {
    return strata_onnx_unary(im, im->row->detail, in[0]);
}

int strata_onnx_node_binary(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, im->row->detail, in[0], in[1]);
}

/* Quotients and remainders of integers. They occur in shape arithmetic, so both operands must be constants; one of them
 * may be a single number. A quotient is rounded towards 0. A remainder has the sign of the divisor, or with fmod that of
 * the dividend. */
static int divide_integers(strata_onnx_import *im, int a, int b, bool remainder) {
    const bool of_c = strata_onnx_int(im, "fmod", 0);
    if (!strata_onnx_is_constant(im, a) || !strata_onnx_is_constant(im, b) || strata_onnx_dtype(im, a) != STRATA_DTYPE_I64 ||
        strata_onnx_dtype(im, b) != STRATA_DTYPE_I64)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "of integers that depend on the data");
    const strata_shape left = strata_onnx_shape(im, a), right = strata_onnx_shape(im, b);
    const int64_t n_left = strata_shape_elements(left), n_right = strata_shape_elements(right);
    int64_t *y;
    if (!n_left || !n_right) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "empty tensors are not there");
    if (n_left != n_right && n_left != 1 && n_right != 1)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "of integers in two shapes");
    const bool like_left = n_left > n_right || (n_left == n_right && left.rank >= right.rank);
    const int made = strata_onnx_new_constant(im, STRATA_DTYPE_I64, like_left ? left : right, &y);
    for (int64_t i = 0; made && i < (like_left ? n_left : n_right); i++) {
        const int64_t x = ((const int64_t *)im->values[a].array.data)[n_left == 1 ? 0 : i];
        const int64_t by = ((const int64_t *)im->values[b].array.data)[n_right == 1 ? 0 : i];
        if (by == 0 || (by == -1 && x == INT64_MIN))
            return strata_onnx_reject(im, STRATA_DATA, "%" PRId64 " is divided by %" PRId64, x, by);
        const int64_t rest = x % by;
        y[i] = !remainder ? x / by : rest && !of_c && (rest < 0) != (by < 0) ? rest + by : rest;
    }
    return made;
}

int strata_onnx_node_divide(strata_onnx_import *im, const int *in) {
    const bool remainder = !strcmp(im->row->detail, "mod");
    if (strata_onnx_dtype(im, in[0]) != STRATA_DTYPE_F32) return divide_integers(im, in[0], in[1], remainder);
    if (remainder) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "remainders are there of integers alone");
    return strata_onnx_pair(im, "div", in[0], in[1]);
}

/* The exponent may have another type than the base. */
int strata_onnx_node_power(strata_onnx_import *im, const int *in) {
    const int a = in[0], b = in[1];
    if (strata_onnx_dtype(im, a) != STRATA_DTYPE_F32)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "powers of integers are not there");
    if (strata_onnx_is_constant(im, b) && strata_shape_elements(im->values[b].array.shape) == 1 &&
        strata_onnx_number(im, 1, 0) == 2 && im->values[b].array.shape.rank <= strata_onnx_shape(im, a).rank)
        return strata_onnx_unary(im, "square", a);
    const bool is_float = strata_onnx_dtype(im, b) == STRATA_DTYPE_F32;
    return strata_onnx_pair(im, "pow", a, is_float ? b : strata_onnx_cast(im, "f32", b));
}

/* Applies an op to any number of inputs. */
static int fold_inputs(strata_onnx_import *im, const char *op) {
    int y = strata_onnx_need(im, 0);
    for (size_t i = 1; i < im->node->n_input; i++) y = strata_onnx_pair(im, op, y, strata_onnx_need(im, (int)i));
    return y;
}

int strata_onnx_node_variadic(strata_onnx_import *im, const int *in) {
    (void)in;
    return fold_inputs(im, im->row->detail);
}

int strata_onnx_node_mean(strata_onnx_import *im, const int *in) {
    const size_t n = im->node->n_input;
    return n > 1 ? strata_onnx_with_number(im, "mul", fold_inputs(im, "add"), 1.0 / (double)n) : in[0];
}

int strata_onnx_node_is_nan(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "not_equal", in[0], in[0]);
}

int strata_onnx_node_is_infinite(strata_onnx_import *im, const int *in) {
    const bool above = strata_onnx_int(im, "detect_positive", 1), below = strata_onnx_int(im, "detect_negative", 1);
    const int x = above && below ? strata_onnx_unary(im, "abs", in[0]) : in[0];
    /* No number is above infinity. */
    return strata_onnx_with_number(im, above || below ? "equal" : "greater", x, above || !below ? HUGE_VAL : -HUGE_VAL);
}

/* Converts bools to the numbers 0 and 1: `and` is their minimum, `or` their maximum. */
int strata_onnx_node_logical(strata_onnx_import *im, const int *in) {
    const int a = strata_onnx_cast(im, "f32", in[0]), b = strata_onnx_cast(im, "f32", in[1]);
    return strata_onnx_cast(im, "bool", strata_onnx_pair(im, im->row->detail, a, b));
}

int strata_onnx_node_not(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "equal", in[0], strata_onnx_scalar(im, STRATA_DTYPE_BOOL, 0));
}

int strata_onnx_node_reciprocal(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "div", strata_onnx_scalar(im, STRATA_DTYPE_F32, 1), in[0]);
}

/* x / (1 + |x|) */
int strata_onnx_node_softsign(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "div", in[0], strata_onnx_with_number(im, "add", strata_onnx_unary(im, "abs", in[0]), 1));
}

/* max(0, min(1, alpha x + beta)) */
static int hard_sigmoid(strata_onnx_import *im, int x, double alpha, double beta) {
    const int y = strata_onnx_with_number(im, "add", strata_onnx_with_number(im, "mul", x, alpha), beta);
    return with_options(im, "clip", y, 2, 0, 1);
}

int strata_onnx_node_hard_sigmoid(strata_onnx_import *im, const int *in) {
    return hard_sigmoid(im, in[0], strata_onnx_float(im, "alpha", 0.2), strata_onnx_float(im, "beta", 0.5));
}

int strata_onnx_node_hard_swish(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "mul", hard_sigmoid(im, in[0], 1.0 / 6, 0.5), in[0]);
}

int strata_onnx_node_mish(strata_onnx_import *im, const int *in) {
    return strata_onnx_pair(im, "mul", strata_onnx_unary(im, "tanh", strata_onnx_unary(im, "softplus", in[0])), in[0]);
}

int strata_onnx_node_swish(strata_onnx_import *im, const int *in) {
    const int scaled = strata_onnx_with_number(im, "mul", in[0], strata_onnx_float(im, "alpha", 1));
    return strata_onnx_pair(im, "mul", strata_onnx_unary(im, "sigmoid", scaled), in[0]);
}

int strata_onnx_node_leaky_relu(strata_onnx_import *im, const int *in) {
    return with_options(im, "leaky_relu", in[0], 1, strata_onnx_float(im, "alpha", 0.01), 0);
}

/* alpha is the factor for x below 0. */
static int elu(strata_onnx_import *im, int x, double alpha) {
    return with_options(im, "elu", x, 1, alpha, 0);
}

int strata_onnx_node_elu(strata_onnx_import *im, const int *in) {
    return elu(im, in[0], strata_onnx_float(im, "alpha", 1));
}

/* gamma * elu(x) */
int strata_onnx_node_selu(strata_onnx_import *im, const int *in) {
    const int y = elu(im, in[0], strata_onnx_float(im, "alpha", 1.67326319217681884765625));
    return strata_onnx_with_number(im, "mul", y, strata_onnx_float(im, "gamma", 1.05070102214813232421875));
}

/* max(0, x) + min(0, alpha (e^(x / alpha) - 1)) is alpha elu(x / alpha). */
int strata_onnx_node_celu(strata_onnx_import *im, const int *in) {
    const int alpha = strata_onnx_scalar(im, STRATA_DTYPE_F32, strata_onnx_float(im, "alpha", 1));
    return strata_onnx_pair(im, "mul", elu(im, strata_onnx_pair(im, "div", in[0], alpha), 1), alpha);
}

int strata_onnx_node_thresholded(strata_onnx_import *im, const int *in) {
    const int x = strata_onnx_in_front(im, in[0]), zero = strata_onnx_scalar(im, STRATA_DTYPE_F32, 0);
    const int more = strata_onnx_with_number(im, "greater", x, strata_onnx_float(im, "alpha", 1));
    return strata_onnx_simple(im, "where", (const int[]){more, x, zero}, 3);
}

/* x < 0 ? slope x : x = max(x, 0) + slope min(x, 0) */
int strata_onnx_node_prelu(strata_onnx_import *im, const int *in) {
    const int zero = strata_onnx_scalar(im, STRATA_DTYPE_F32, 0), above = strata_onnx_pair(im, "max", in[0], zero);
    const int below = strata_onnx_pair(im, "mul", strata_onnx_pair(im, "min", in[0], zero), in[1]);
    return strata_onnx_pair(im, "add", above, below);
}

int strata_onnx_node_gelu(strata_onnx_import *im, const int *in) {
    return strata_onnx_unary(im, strata_onnx_text_is(im, "approximate", "tanh", false) ? "gelu_tanh" : "gelu", in[0]);
}

int strata_onnx_node_clip(strata_onnx_import *im, const int *in) {
    double bounds[2] = {strata_onnx_number(im, 1, strata_onnx_float(im, "min", -HUGE_VAL)),
                        strata_onnx_number(im, 2, strata_onnx_float(im, "max", HUGE_VAL))};
    int x = in[0];
    for (int i = 0; i < 2; i++) { /* the layer's clip compares, and no number is below or above NaN */
        if (!isnan(bounds[i])) continue;
        x = strata_onnx_with_number(im, i ? "min" : "max", x, NAN);
        bounds[i] = i ? HUGE_VAL : -HUGE_VAL;
    }
    if (bounds[0] > bounds[1]) bounds[0] = bounds[1]; /* like numpy: the upper bound has priority */
    return with_options(im, "clip", x, 2, bounds[0], bounds[1]);
}

int strata_onnx_node_where(strata_onnx_import *im, const int *in) {
    return strata_onnx_simple(im, "where", in, 3);
}

int strata_onnx_node_identity(strata_onnx_import *im, const int *in) {
    (void)im;
    return in[0];
}

int strata_onnx_node_dropout(strata_onnx_import *im, const int *in) {
    const double rate = strata_onnx_number(im, 1, strata_onnx_float(im, "ratio", 0.5)), training = strata_onnx_number(im, 2, 0);
    const strata_dropout_options opts = {.rate = rate};
    if (strata_onnx_is_taken(im, 1)) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its mask is not there");
    if (training != 0 && rate != 0)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "with training_mode its result is random");
    if (!(rate > 0 && rate < 1) || im->folding) return in[0];
    return strata_onnx_layer(im, "dropout", &opts, sizeof opts, in[0], im->values[in[0]].behind);
}

static int cast_to(strata_onnx_import *im, int x, strata_dtype dtype) {
    if (dtype == STRATA_DTYPE_I64 && !im->folding) dtype = STRATA_DTYPE_I32;
    return dtype == strata_onnx_dtype(im, x) ? x : strata_onnx_cast(im, strata_dtype_name(dtype), x);
}

int strata_onnx_node_cast(strata_onnx_import *im, const int *in) {
    const int64_t to = strata_onnx_int(im, "to", 0);
    switch (to) {
        case STRATA_ONNX_TYPE_FLOAT:
        case STRATA_ONNX_TYPE_DOUBLE:
            return cast_to(im, in[0], STRATA_DTYPE_F32);
        case STRATA_ONNX_TYPE_INT32:
        case STRATA_ONNX_TYPE_INT64:
            return cast_to(im, in[0], STRATA_DTYPE_I64);
        case STRATA_ONNX_TYPE_BOOL:
            return cast_to(im, in[0], STRATA_DTYPE_BOOL);
        default:
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "to the element type %s: floats are f32 here, integers 32 bits",
                                      strata_onnx_type_name(to));
    }
}

int strata_onnx_node_cast_like(strata_onnx_import *im, const int *in) {
    return cast_to(im, in[0], strata_onnx_dtype(im, in[1]));
}
