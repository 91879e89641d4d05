/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates ONNX's element-wise ops, including logical ops, casts and compositions of several ops. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/interchange/onnx.h"

strata_status strata_onnx_unary(strata_onnx_import *im, const char *op, double a, double b, int n, int value, int *out) {
    const strata_op_options opts = {.op = op, .numbers = {.n = n, .values = {a, b}}};
    return strata_onnx_op(im, &opts, &value, 1, im->values[value].behind, out);
}

static strata_status elementwise(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_unary(im, strata_onnx_row_of(im)->detail, 0, 0, 0, x, &y));
    return strata_onnx_give(im, y);
}

strata_status strata_onnx_pair(strata_onnx_import *im, const char *op, int a, int b, int *out) {
    const int rank_a = strata_onnx_shape(im, a).rank, rank_b = strata_onnx_shape(im, b).rank;
    const bool behind = (im->values[a].behind || im->values[b].behind) && (rank_a == rank_b || !rank_a || !rank_b);
    const strata_dtype type_a = strata_onnx_dtype(im, a), type_b = strata_onnx_dtype(im, b);
    int inputs[2] = {a, b};
    for (int i = 0; i < 2; i++)
        STRATA_TRY(behind ? strata_onnx_behind(im, inputs[i], &inputs[i]) : strata_onnx_in_front(im, inputs[i], &inputs[i]));
    /* In the model a constant of i64 becomes i32, and no other value is i64. So i32 and i64 may be mixed here. */
    if (type_a != type_b && (type_a == STRATA_DTYPE_F32 || type_b == STRATA_DTYPE_F32 || im->folding))
        return strata_onnx_fail(im, STRATA_DATA, "its inputs are %s and %s; they must be of one type",
                                strata_dtype_name(type_a), strata_dtype_name(type_b));
    return strata_onnx_op(im, &(strata_op_options){.op = op}, inputs, 2, behind, out);
}

static strata_status binary(strata_onnx_import *im) {
    int a, b, y;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    STRATA_TRY(strata_onnx_pair(im, strata_onnx_row_of(im)->detail, a, b, &y));
    return strata_onnx_give(im, y);
}

/* Quotients and remainders of integers. They occur in shape arithmetic, so both operands must be constants; one of them
 * may be a single number. A quotient is rounded towards 0. A remainder has the sign of the divisor, or with fmod that of
 * the dividend. */
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
    return strata_onnx_give(im, out);
}

static strata_status divide(strata_onnx_import *im) {
    int a, b, y;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    if (strata_onnx_dtype(im, a) != STRATA_DTYPE_F32) return divide_integers(im, a, b);
    if (*im->node->op_type == 'M') return strata_onnx_fail(im, STRATA_UNSUPPORTED, "remainders are there of integers alone");
    STRATA_TRY(strata_onnx_pair(im, "div", a, b, &y));
    return strata_onnx_give(im, y);
}

/* The exponent may have another type than the base. */
static strata_status power(strata_onnx_import *im) {
    int a, b, y;
    double exponent;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    if (strata_onnx_dtype(im, a) != STRATA_DTYPE_F32)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "powers of integers are not there");
    if (strata_onnx_is_constant(im, b) && strata_shape_elements(im->values[b].array.shape) == 1) {
        STRATA_TRY(strata_onnx_number(im, b, &exponent));
        if (exponent == 2 && im->values[b].array.shape.rank <= strata_onnx_shape(im, a).rank) {
            STRATA_TRY(strata_onnx_unary(im, "square", 0, 0, 0, a, &y));
            return strata_onnx_give(im, y);
        }
    }
    if (strata_onnx_dtype(im, b) != STRATA_DTYPE_F32)
        STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "cast", .dtype = "f32"}, &b, 1, im->values[b].behind, &b));
    STRATA_TRY(strata_onnx_pair(im, "pow", a, b, &y));
    return strata_onnx_give(im, y);
}

/* Min, Max, Sum and Mean, which have any number of inputs. */
static strata_status variadic(strata_onnx_import *im) {
    const char *op = strata_onnx_row_of(im)->detail;
    const size_t n = im->node->n_input;
    int y, count;
    STRATA_TRY(strata_onnx_need(im, 0, &y));
    for (size_t i = 1; i < n; i++) {
        int b;
        STRATA_TRY(strata_onnx_need(im, (int)i, &b));
        STRATA_TRY(strata_onnx_pair(im, strcmp(op, "mean") ? op : "add", y, b, &y));
    }
    if (!strcmp(op, "mean") && n > 1) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1.0 / (double)n, &count));
        STRATA_TRY(strata_onnx_pair(im, "mul", y, count, &y));
    }
    return strata_onnx_give(im, y);
}

static strata_status is_nan(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_pair(im, "not_equal", x, x, &y));
    return strata_onnx_give(im, y);
}

static strata_status is_infinite(strata_onnx_import *im) {
    const bool above = strata_onnx_int(im, "detect_positive", 1), below = strata_onnx_int(im, "detect_negative", 1);
    int x, y, infinity;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    if (above && below) STRATA_TRY(strata_onnx_unary(im, "abs", 0, 0, 0, x, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, above || !below ? HUGE_VAL : -HUGE_VAL, &infinity));
    if (above || below) {
        STRATA_TRY(strata_onnx_pair(im, "equal", x, infinity, &y));
    } else { /* no number is above infinity */
        STRATA_TRY(strata_onnx_pair(im, "greater", x, infinity, &y));
    }
    return strata_onnx_give(im, y);
}

/* Converts bools to the numbers 0 and 1: `and` is their minimum, `or` their maximum, and `xor` is whether they differ. */
static strata_status logical(strata_onnx_import *im) {
    const char *op = strata_onnx_row_of(im)->detail;
    int a, b, y, zero;
    STRATA_TRY(strata_onnx_need(im, 0, &a));
    if (!strcmp(op, "not")) {
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_BOOL, 0, &zero));
        STRATA_TRY(strata_onnx_pair(im, "equal", a, zero, &y));
        return strata_onnx_give(im, y);
    }
    STRATA_TRY(strata_onnx_need(im, 1, &b));
    if (!strcmp(op, "not_equal")) {
        STRATA_TRY(strata_onnx_pair(im, op, a, b, &y));
        return strata_onnx_give(im, y);
    }
    const strata_op_options number = {.op = "cast", .dtype = "f32"}, back = {.op = "cast", .dtype = "bool"};
    STRATA_TRY(strata_onnx_op(im, &number, &a, 1, im->values[a].behind, &a));
    STRATA_TRY(strata_onnx_op(im, &number, &b, 1, im->values[b].behind, &b));
    STRATA_TRY(strata_onnx_pair(im, op, a, b, &y));
    STRATA_TRY(strata_onnx_op(im, &back, &y, 1, im->values[y].behind, &y));
    return strata_onnx_give(im, y);
}

/* A step of a composition: it applies an op to the result of the previous step. */
typedef struct step {
    const char *op;
    /* The second operand: `number`, or the node's input if by_x is true. If `alone` is true, the op has no second
     * operand. */
    double number;
    bool by_x, alone;
} step;
static strata_status compose(strata_onnx_import *im, int x, const step *steps, int n) {
    int y = x, b;
    for (int i = 0; i < n; i++) {
        if (steps[i].alone) {
            STRATA_TRY(strata_onnx_unary(im, steps[i].op, 0, 0, 0, y, &y));
            continue;
        }
        b = x;
        if (!steps[i].by_x) STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, steps[i].number, &b));
        STRATA_TRY(strata_onnx_pair(im, steps[i].op, y, b, &y));
    }
    return strata_onnx_give(im, y);
}

static strata_status reciprocal(strata_onnx_import *im) {
    int x, one, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1, &one));
    STRATA_TRY(strata_onnx_pair(im, "div", one, x, &y));
    return strata_onnx_give(im, y);
}

static strata_status softsign(strata_onnx_import *im) {
    int x, y, one;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 1, &one));
    STRATA_TRY(strata_onnx_unary(im, "abs", 0, 0, 0, x, &y));
    STRATA_TRY(strata_onnx_pair(im, "add", y, one, &y));
    STRATA_TRY(strata_onnx_pair(im, "div", x, y, &y));
    return strata_onnx_give(im, y);
}

/* max(0, min(1, alpha x + beta)); for HardSwish this is multiplied by x. */
static strata_status hard_sigmoid(strata_onnx_import *im) {
    const bool swish = !strcmp(strata_onnx_row_of(im)->detail, "swish");
    const double alpha = swish ? 1.0 / 6 : strata_onnx_float(im, "alpha", 0.2),
                 beta = swish ? 0.5 : strata_onnx_float(im, "beta", 0.5);
    int x, y, b;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, alpha, &b));
    STRATA_TRY(strata_onnx_pair(im, "mul", x, b, &y));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, beta, &b));
    STRATA_TRY(strata_onnx_pair(im, "add", y, b, &y));
    STRATA_TRY(strata_onnx_unary(im, "clip", 0, 1, 2, y, &y));
    if (swish) STRATA_TRY(strata_onnx_pair(im, "mul", y, x, &y));
    return strata_onnx_give(im, y);
}

static strata_status mish(strata_onnx_import *im) {
    int x;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    return compose(im, x, (const step[]){{"softplus", 0, false, true}, {"tanh", 0, false, true}, {"mul", 0, true, false}}, 3);
}

static strata_status swish(strata_onnx_import *im) {
    int x;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    return compose(
        im, x,
        (const step[]){
            {"mul", strata_onnx_float(im, "alpha", 1), false, false}, {"sigmoid", 0, false, true}, {"mul", 0, true, false}},
        3);
}

/* gamma * elu(x), where alpha is the factor of elu for x below 0. */
static strata_status selu(strata_onnx_import *im) {
    int x, y, b;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, strata_onnx_float(im, "gamma", 1.05070102214813232421875), &b));
    STRATA_TRY(strata_onnx_unary(im, "elu", strata_onnx_float(im, "alpha", 1.67326319217681884765625), 0, 1, x, &y));
    STRATA_TRY(strata_onnx_pair(im, "mul", y, b, &y));
    return strata_onnx_give(im, y);
}

/* max(0, x) + min(0, alpha (e^(x / alpha) - 1)) is alpha elu(x / alpha). */
static strata_status celu(strata_onnx_import *im) {
    const double alpha = strata_onnx_float(im, "alpha", 1);
    int x, y, b;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, alpha, &b));
    STRATA_TRY(strata_onnx_pair(im, "div", x, b, &y));
    STRATA_TRY(strata_onnx_unary(im, "elu", 1, 0, 1, y, &y));
    STRATA_TRY(strata_onnx_pair(im, "mul", y, b, &y));
    return strata_onnx_give(im, y);
}

static strata_status thresholded(strata_onnx_import *im) {
    int x, alpha, zero, more, inputs[3], y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, strata_onnx_float(im, "alpha", 1), &alpha));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 0, &zero));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    STRATA_TRY(strata_onnx_pair(im, "greater", x, alpha, &more));
    inputs[0] = more, inputs[1] = x, inputs[2] = zero;
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return strata_onnx_give(im, y);
}

static strata_status with_alpha(strata_onnx_import *im) {
    const bool leaky = !strcmp(strata_onnx_row_of(im)->detail, "leaky_relu");
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(
        strata_onnx_unary(im, strata_onnx_row_of(im)->detail, strata_onnx_float(im, "alpha", leaky ? 0.01 : 1), 0, 1, x, &y));
    return strata_onnx_give(im, y);
}

/* x < 0 ? slope x : x = max(x, 0) + slope min(x, 0) */
static strata_status prelu(strata_onnx_import *im) {
    int x, slope, zero, above, below, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need(im, 1, &slope));
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, 0, &zero));
    STRATA_TRY(strata_onnx_pair(im, "max", x, zero, &above));
    STRATA_TRY(strata_onnx_pair(im, "min", x, zero, &below));
    STRATA_TRY(strata_onnx_pair(im, "mul", below, slope, &below));
    STRATA_TRY(strata_onnx_pair(im, "add", above, below, &y));
    return strata_onnx_give(im, y);
}

static strata_status gelu(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(
        strata_onnx_unary(im, strata_onnx_text_is(im, "approximate", "tanh", false) ? "gelu_tanh" : "gelu", 0, 0, 0, x, &y));
    return strata_onnx_give(im, y);
}

static strata_status clip(strata_onnx_import *im) {
    double bounds[2] = {strata_onnx_float(im, "min", -HUGE_VAL), strata_onnx_float(im, "max", HUGE_VAL)};
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    for (int i = 0; i < 2; i++)
        if (strata_onnx_input(im, 1 + i) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1 + i), &bounds[i]));
    for (int i = 0; i < 2; i++) { /* the layer's clip compares, and no number is below or above NaN */
        int nan;
        if (!isnan(bounds[i])) continue;
        STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, NAN, &nan));
        STRATA_TRY(strata_onnx_pair(im, i ? "min" : "max", x, nan, &x));
        bounds[i] = i ? HUGE_VAL : -HUGE_VAL;
    }
    if (bounds[0] > bounds[1]) bounds[0] = bounds[1]; /* like numpy: the upper bound has priority */
    STRATA_TRY(strata_onnx_unary(im, "clip", bounds[0], bounds[1], 2, x, &y));
    return strata_onnx_give(im, y);
}

static strata_status where(strata_onnx_import *im) {
    int inputs[3], y;
    for (int i = 0; i < 3; i++) {
        STRATA_TRY(strata_onnx_need(im, i, &inputs[i]));
        STRATA_TRY(strata_onnx_in_front(im, inputs[i], &inputs[i]));
    }
    STRATA_TRY(strata_onnx_op(im, &(strata_op_options){.op = "where"}, inputs, 3, false, &y));
    return strata_onnx_give(im, y);
}

static strata_status identity(strata_onnx_import *im) {
    int x;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    return strata_onnx_give(im, x);
}

static strata_status dropout(strata_onnx_import *im) {
    double rate = strata_onnx_float(im, "ratio", 0.5), training = 0;
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    if (strata_onnx_is_taken(im, 1)) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its mask is not there");
    if (strata_onnx_input(im, 1) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 1), &rate));
    if (strata_onnx_input(im, 2) >= 0) STRATA_TRY(strata_onnx_number(im, strata_onnx_input(im, 2), &training));
    if (training != 0 && rate != 0) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "with training_mode its result is random");
    if (!(rate > 0 && rate < 1) || im->folding) return strata_onnx_give(im, x);
    STRATA_TRY(
        strata_onnx_layer(im, &strata_layer_dropout, &(strata_dropout_options){.rate = rate}, x, im->values[x].behind, &y));
    return strata_onnx_give(im, y);
}

static strata_status cast(strata_onnx_import *im) {
    const bool like = !strcmp(im->node->op_type, "CastLike");
    strata_dtype dtype;
    int x, other, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    if (like) {
        STRATA_TRY(strata_onnx_need(im, 1, &other));
        dtype = strata_onnx_dtype(im, other);
    } else {
        const int64_t to = strata_onnx_int(im, "to", 0);
        if (to != 1 && to != 6 && to != 7 && to != 9 && to != 11)
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "to the element type %s: floats are f32 here, integers 32 bits",
                                    strata_onnx_type_name(to));
        STRATA_TRY(strata_onnx_dtype_of((int)to, &dtype, "to", im->err));
    }
    if (dtype == STRATA_DTYPE_I64 && !im->folding) dtype = STRATA_DTYPE_I32;
    if (dtype == strata_onnx_dtype(im, x)) return strata_onnx_give(im, x);
    const strata_op_options opts = {.op = "cast", .dtype = strata_dtype_name(dtype)};
    STRATA_TRY(strata_onnx_op(im, &opts, &x, 1, im->values[x].behind, &y));
    return strata_onnx_give(im, y);
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
                                       {"IsNaN", is_nan, NULL},
                                       {"IsInf", is_infinite, NULL},
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
                                       {"CastLike", cast, NULL}};

const strata_onnx_rows strata_onnx_elementwise_rows = {rows, sizeof rows / sizeof *rows};
