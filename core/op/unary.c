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

#define ROW(dtypes, code, name, expression)                       \
    enum { name##_code = code, name##_dtypes = STRATA_##dtypes }; \
    static double name##_value(double x) {                        \
        return expression;                                        \
    }
#define UNARY_NUMBER(code, name, expression) ROW(NUMBERS, code, name, expression)
#define UNARY_FLOAT(code, name, expression)  ROW(FLOATS, code, name, expression)
#include "core/op/elementwise.def"

/* The formulas as text. */
static const char formulas[32][100] = {
#define UNARY_NUMBER(code, name, expression) [code] = #expression,
#define UNARY_FLOAT                          UNARY_NUMBER
#include "core/op/elementwise.def"
};

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

/* ---- gradients and compositions ---- */

static strata_tensor *scalar_like(strata_tensor *x, double value) {
    return strata_scalar(x->graph, x->dtype, value);
}

/* A node of an op of binary.c that is dy f'(b). */
static strata_tensor *slope(const strata_op *op, strata_tensor *dy, strata_tensor *b) {
    return strata_node(NULL, op, 2, (strata_tensor *[]){dy, b}, NULL);
}

/* Below 1 this is the series of erf; from 1 on it is the rational approximation of erfc in Abramowitz & Stegun, 7.1.26.
 * shaders/glsl_math.h computes it in the same way. */
static strata_tensor *erf_compose(strata_tensor *y) {
    strata_tensor *x = y->inputs[0], *square = strata_mul(x, x), *t = strata_formula("1 / (ABS(x) * 0.3275911 + 1)", &x);
    strata_tensor *series = strata_formula(
        "(((((((((1.3122533e-8 * x - 1.4503852e-7) * x + 1.4589169e-6) * x - 1.3227513e-5) * x + 1.0683761e-4) * x "
        "- 7.5757576e-4) * x + 4.6296296e-3) * x - 2.3809524e-2) * x + 0.1) * x - 0.33333333) * x + 1",
        &square);
    strata_tensor *rational =
        strata_formula("((((1.061405429 * x - 1.453152027) * x + 1.421413741) * x - 0.284496736) * x + 0.254829592) * x", &t);
    return strata_formula("ABS(a) < 1 ? b * a * 1.1283791670955126 : SIGN(a) * (1 - c * EXP(-d))",
                          (strata_tensor *[]){x, series, rational, square});
}

/* ---- the ops ---- */

/* dx is built from x, y and dy. The last argument is PRIMITIVE or COMPOSED, or STRATA_COMPOSED with another formula of x than
 * that of elementwise.def. */
#define UNARY(op, integer, dx_of, ...)                                                   \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *x = y->inputs[0];                                                 \
        (void)x;                                                                         \
        dx[0] = dx_of;                                                                   \
    }                                                                                    \
    UNARY_OP(op, integer, .gradient = op##_gradient, __VA_ARGS__)
#define PRIMITIVE(op) .formula = formulas[op##_code]
#define COMPOSED(op)  STRATA_COMPOSED(formulas[op##_code])
#define UNARY_OP(op, integer, ...)                                                                             \
    static strata_status op##_shape(strata_tensor *node, strata_error *err) {                                  \
        return unary_shape(node, op##_dtypes, err);                                                            \
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
                                      .shape = op##_shape,                                                     \
                                      .reference = op##_reference,                                             \
                                      .lower = op##_lower,                                                     \
                                      __VA_ARGS__};                                                            \
    strata_tensor *strata_##op(strata_tensor *x) {                                                             \
        return strata_node(NULL, &strata_op_##op, 1, &x, NULL);                                                \
    }

UNARY(neg, neg_integer, strata_neg(dy), .linearity = STRATA_LINEAR_JOINTLY, STRATA_COMPOSED("x * -1"))
UNARY(abs, abs_integer, strata_mul(dy, strata_sign(x)), STRATA_COMPOSED("MAX(x, -x)"))
/* Where x is 0 or NaN, the sign is x itself. */
UNARY_OP(sign, sign_integer, STRATA_COMPOSED("x > 0 ? 1 : x < 0 ? -1 : x"))
UNARY(square, square_integer, strata_mul(dy, strata_add(x, x)), COMPOSED(square))
UNARY(exp, NULL, strata_mul(dy, y), PRIMITIVE(exp))
UNARY(log, NULL, strata_div(dy, x), PRIMITIVE(log))
/* 1 / (2 sqrt(x)) */
UNARY(sqrt, NULL, strata_div(dy, strata_add(y, y)), PRIMITIVE(sqrt))
/* -1/2 x^(-3/2) = -1/2 y^3 */
UNARY(rsqrt, NULL, strata_mul(strata_mul(dy, scalar_like(dy, -0.5)), strata_mul(y, strata_square(y))),
      STRATA_COMPOSED("1 / SQRT(x)"))
/* The gradients of these three need y alone. If exp overflows to infinity, sigmoid is 0, as it should be. */
UNARY(tanh, NULL, slope(&strata_op_tanh_grad, dy, y), STRATA_COMPOSED("SIGMOID(x + x) * 2 - 1"))
UNARY(sigmoid, NULL, slope(&strata_op_sigmoid_grad, dy, y), STRATA_COMPOSED("1 / (1 + EXP(-x))"))
UNARY(relu, NULL, slope(&strata_op_relu_grad, dy, y), STRATA_COMPOSED("MAX(x, 0)"))
UNARY(gelu, NULL, slope(&strata_op_gelu_grad, dy, x), COMPOSED(gelu))
UNARY(gelu_tanh, NULL, slope(&strata_op_gelu_tanh_grad, dy, x), COMPOSED(gelu_tanh))
UNARY(silu, NULL, slope(&strata_op_silu_grad, dy, x), COMPOSED(silu))
UNARY(softplus, NULL, strata_mul(dy, strata_sigmoid(x)), COMPOSED(softplus))
/* 2 / sqrt(pi) e^(-x^2) */
UNARY(erf, NULL, strata_mul(dy, strata_mul(strata_exp(strata_neg(strata_square(x))), scalar_like(dy, 1.1283791670955126))),
      PRIMITIVE(erf), .compose = erf_compose)
UNARY(sin, NULL, strata_mul(dy, strata_cos(x)), PRIMITIVE(sin))
UNARY(cos, NULL, strata_neg(strata_mul(dy, strata_sin(x))), PRIMITIVE(cos))
