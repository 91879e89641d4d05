/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops of one operand: y_i = f(x_i), of x's shape and dtype. The formulas are the unary rows of elementwise.def,
 * which shaders/unary.kernel reads too; gradients are below. clip and cast have attributes and files of their own. */
#include <math.h>

#include "core/op/define.h"
#include "core/op/ops.h"

/* ---- the formulas, in double ---- */

static double sigmoid_of(double x) {
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static double sign_of(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}

#define ABS(x)     fabs(x)
#define EXP(x)     exp(x)
#define LOG(x)     log(x)
#define SQRT(x)    sqrt(x)
#define RSQRT(x)   (1 / sqrt(x))
#define TANH(x)    tanh(x)
#define SIN(x)     sin(x)
#define COS(x)     cos(x)
#define SIGMOID(x) sigmoid_of(x)
#define SIGN(x)    sign_of(x)
#define ERF(x)     erf(x)
#define LOG1P(x)   log1p(x)
#define RELU(x)    ((x) < 0 ? 0 : (x))
#define ZERO       0.0

#define ROW(code, name, expression)        \
    enum { name##_code = code };           \
    static double name##_value(double x) { \
        return expression;                 \
    }
#define UNARY_NUMBER ROW
#define UNARY_FLOAT  ROW
#include "core/op/elementwise.def"

/* The formulas for integers, where overflow wraps around. NULL: the op is only for floats. */
typedef int64_t integer_function(int64_t x);

static int64_t neg_integer(int64_t x) {
    return (int64_t)(0 - (uint64_t)x);
}
static int64_t abs_integer(int64_t x) {
    return x < 0 ? neg_integer(x) : x;
}
static int64_t sign_integer(int64_t x) {
    return (x > 0) - (x < 0);
}
static int64_t square_integer(int64_t x) {
    return (int64_t)((uint64_t)x * (uint64_t)x);
}

/* ---- rule, truth, launch ---- */

static strata_status unary_shape(strata_tensor *node, unsigned allowed, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    return strata_check_dtype(x, "x", allowed, err);
}

static void unary_reference(const strata_op_call *call, double (*real)(double), integer_function *integer) {
    const strata_dtype dtype = call->node->dtype;
    const int64_t n = strata_shape_elements(call->node->shape);
    const void *x = call->inputs[0];
    for (int64_t i = 0; i < n; i++) {
        if (strata_dtype_is_float(dtype))
            strata_element_set(dtype, call->output, i, real(strata_element_get(dtype, x, i)));
        else
            strata_integer_set(dtype, call->output, i, integer(strata_integer_get(dtype, x, i)));
    }
}

static strata_status unary_lower(const strata_tensor *node, int code, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = strata_launch_of(node, "unary", strata_dtype_name(node->dtype));
    strata_launch_constant_add(&launch, "OP", code);
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- gradients: dx from dy, x and y ---- */

static strata_tensor *scalar_like(strata_tensor *x, double value) {
    return strata_scalar(x->graph, x->dtype, value);
}

/* A node of an op of binary.c that is dy f'(b). */
static strata_tensor *slope(const strata_op *op, strata_tensor *dy, strata_tensor *b) {
    return strata_node(NULL, op, 2, (strata_tensor *[]){dy, b}, NULL);
}

#define GRADIENT(op, expression)                                                         \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *x = y->inputs[0];                                                 \
        (void)x;                                                                         \
        dx[0] = expression;                                                              \
    }

GRADIENT(neg, strata_neg(dy))
GRADIENT(abs, strata_mul(dy, strata_sign(x)))
GRADIENT(square, strata_mul(dy, strata_add(x, x)))
GRADIENT(exp, strata_mul(dy, y))
GRADIENT(log, strata_div(dy, x))
/* 1 / (2 sqrt(x)) */
GRADIENT(sqrt, strata_div(dy, strata_add(y, y)))
/* -1/2 x^(-3/2) = -1/2 y^3 */
GRADIENT(rsqrt, strata_mul(strata_mul(dy, scalar_like(dy, -0.5)), strata_mul(y, strata_square(y))))
/* These three need y alone. */
GRADIENT(tanh, slope(&strata_op_tanh_grad, dy, y))
GRADIENT(sigmoid, slope(&strata_op_sigmoid_grad, dy, y))
GRADIENT(relu, slope(&strata_op_relu_grad, dy, y))
GRADIENT(gelu, slope(&strata_op_gelu_grad, dy, x))
GRADIENT(gelu_tanh, slope(&strata_op_gelu_tanh_grad, dy, x))
GRADIENT(silu, slope(&strata_op_silu_grad, dy, x))
GRADIENT(softplus, strata_mul(dy, strata_sigmoid(x)))
/* 2 / sqrt(pi) e^(-x^2) */
GRADIENT(erf, strata_mul(dy, strata_mul(strata_exp(strata_neg(strata_square(x))), scalar_like(dy, 1.1283791670955126))))
GRADIENT(sin, strata_mul(dy, strata_cos(x)))
GRADIENT(cos, strata_neg(strata_mul(dy, strata_sin(x))))

/* ---- compositions: y from x ---- */

#define COMPOSITION(op, expression)                        \
    static strata_tensor *op##_compose(strata_tensor *y) { \
        strata_tensor *x = y->inputs[0];                   \
        return expression;                                 \
    }

COMPOSITION(neg, strata_mul(x, scalar_like(x, -1)))
COMPOSITION(abs, strata_max(x, strata_neg(x)))
/* Where x is 0 or NaN, the sign is x itself. */
COMPOSITION(sign, strata_where(strata_greater(x, scalar_like(x, 0)), scalar_like(x, 1),
                               strata_where(strata_less(x, scalar_like(x, 0)), scalar_like(x, -1), x)))
COMPOSITION(square, strata_mul(x, x))
COMPOSITION(rsqrt, strata_div(scalar_like(x, 1), strata_sqrt(x)))
/* 2 / (1 + exp(-2 x)) - 1 */
COMPOSITION(tanh, strata_sub(strata_mul(strata_sigmoid(strata_add(x, x)), scalar_like(x, 2)), scalar_like(x, 1)))
/* If exp overflows to infinity, the result is 0, as it should be. */
COMPOSITION(sigmoid, strata_div(scalar_like(x, 1), strata_add(scalar_like(x, 1), strata_exp(strata_neg(x)))))
COMPOSITION(relu, strata_max(x, scalar_like(x, 0)))
COMPOSITION(silu, strata_mul(x, strata_sigmoid(x)))
COMPOSITION(gelu, strata_mul(strata_mul(x, scalar_like(x, 0.5)),
                             strata_add(strata_erf(strata_mul(x, scalar_like(x, 0.70710678))), scalar_like(x, 1))))
/* max(x, 0) + log(1 + exp(-|x|)) */
COMPOSITION(softplus,
            strata_add(strata_relu(x), strata_log(strata_add(strata_exp(strata_neg(strata_abs(x))), scalar_like(x, 1)))))

static strata_tensor *gelu_tanh_compose(strata_tensor *y) {
    strata_tensor *x = y->inputs[0];
    strata_tensor *cubic = strata_add(x, strata_mul(strata_mul(strata_square(x), x), scalar_like(x, 0.044715)));
    strata_tensor *t = strata_tanh(strata_mul(cubic, scalar_like(x, 0.79788456)));
    return strata_mul(strata_mul(x, scalar_like(x, 0.5)), strata_add(t, scalar_like(x, 1)));
}

/* ---- the ops ---- */

#define UNARY(op, allowed, integer, gradient_function, composition) \
    UNARY_OP(op, STRATA_LINEAR_NOT, allowed, integer, gradient_function, composition)
#define UNARY_OP(op, linear, allowed, integer, gradient_function, composition)                                 \
    static strata_status op##_shape(strata_tensor *node, strata_error *err) {                                  \
        return unary_shape(node, allowed, err);                                                                \
    }                                                                                                          \
    static void op##_reference(strata_op_call *call) {                                                         \
        unary_reference(call, op##_value, integer);                                                            \
    }                                                                                                          \
    static strata_status op##_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) { \
        return unary_lower(node, op##_code, lowering, err);                                                    \
    }                                                                                                          \
    const strata_op strata_op_##op = {.name = #op,                                                             \
                                      .n_inputs = 1,                                                           \
                                      .flags = STRATA_OP_ELEMENTWISE,                                          \
                                      .linearity = linear,                                                     \
                                      .shape = op##_shape,                                                     \
                                      .gradient = gradient_function,                                           \
                                      .reference = op##_reference,                                             \
                                      .compose = composition,                                                  \
                                      .lower = op##_lower};                                                    \
    strata_tensor *strata_##op(strata_tensor *x) {                                                             \
        return strata_node(NULL, &strata_op_##op, 1, &x, NULL);                                                \
    }

UNARY_OP(neg, STRATA_LINEAR_JOINTLY, STRATA_NUMBERS, neg_integer, neg_gradient, neg_compose)
UNARY(abs, STRATA_NUMBERS, abs_integer, abs_gradient, abs_compose)
UNARY(sign, STRATA_NUMBERS, sign_integer, NULL, sign_compose)
UNARY(square, STRATA_NUMBERS, square_integer, square_gradient, square_compose)
UNARY(exp, STRATA_FLOATS, NULL, exp_gradient, NULL)
UNARY(log, STRATA_FLOATS, NULL, log_gradient, NULL)
UNARY(sqrt, STRATA_FLOATS, NULL, sqrt_gradient, NULL)
UNARY(rsqrt, STRATA_FLOATS, NULL, rsqrt_gradient, rsqrt_compose)
UNARY(tanh, STRATA_FLOATS, NULL, tanh_gradient, tanh_compose)
UNARY(sigmoid, STRATA_FLOATS, NULL, sigmoid_gradient, sigmoid_compose)
UNARY(relu, STRATA_FLOATS, NULL, relu_gradient, relu_compose)
UNARY(gelu, STRATA_FLOATS, NULL, gelu_gradient, gelu_compose)
UNARY(gelu_tanh, STRATA_FLOATS, NULL, gelu_tanh_gradient, gelu_tanh_compose)
UNARY(silu, STRATA_FLOATS, NULL, silu_gradient, silu_compose)
UNARY(softplus, STRATA_FLOATS, NULL, softplus_gradient, softplus_compose)
UNARY(erf, STRATA_FLOATS, NULL, erf_gradient, NULL)
UNARY(sin, STRATA_FLOATS, NULL, sin_gradient, NULL)
UNARY(cos, STRATA_FLOATS, NULL, cos_gradient, NULL)
