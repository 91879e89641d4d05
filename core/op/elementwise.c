/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops of one operand, y_i = f(x_i), and of two operands of one dtype with NumPy broadcasting: arithmetic (y of
 * the operands' dtype), comparisons (y is bool) and gradients of activations. The formulas are the rows of elementwise.def,
 * which the kernels read too; gradients are below, and are summed back over broadcast axes. clip, cast and where have files of
 * their own. */
#include "core/op/chain.h"
#include "core/op/define.h"
#include "core/op/ops.h"

/* ---- the formulas, in double ---- */

static double max_of(double a, double b) {
    return isnan(a) ? a : isnan(b) ? b : a < b ? b : a;
}

static double min_of(double a, double b) {
    return isnan(a) ? a : isnan(b) ? b : b < a ? b : a;
}

static double sigmoid_of(double x) {
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static double sign_of(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}

#define ABS(x)      fabs(x)
#define EXP(x)      exp(x)
#define LOG(x)      log(x)
#define SQRT(x)     sqrt(x)
#define RSQRT(x)    (1 / sqrt(x))
#define TANH(x)     tanh(x)
#define SIN(x)      sin(x)
#define COS(x)      cos(x)
#define SIGMOID(x)  sigmoid_of(x)
#define SIGN(x)     sign_of(x)
#define ERF(x)      erf(x)
#define EXPM1(x)    expm1(x)
#define LOG1P(x)    log1p(x)
#define RELU(x)     ((x) < 0 ? 0 : (x))
#define POW(a, b)   pow(a, b)
#define MIN(a, b)   min_of(a, b)
#define MAX(a, b)   max_of(a, b)
#define EQUAL(a, b) ((a) == (b))
#define LESS(a, b)  ((a) < (b))
#define ZERO        0.0

/* The formulas for floats and for integers, where overflow wraps around. An op of one operand does not read b. */
typedef double real_function(double a, double b);
typedef int64_t integer_function(int64_t a, int64_t b);

#define REAL(name, a, b, expression)                 \
    static double name##_value(double a, double b) { \
        (void)b;                                     \
        return expression;                           \
    }
#define INTEGER(name, expression)                         \
    static int64_t name##_integer(int64_t a, int64_t b) { \
        (void)b;                                          \
        return (int64_t)(expression);                     \
    }
#define ROW(dtypes, code, name) enum { name##_code = code, name##_dtypes = STRATA_##dtypes };
#define UNARY_NUMBER(code, name, expression) \
    ROW(NUMBERS, code, name)                 \
    REAL(name, x, unused, expression)
#define UNARY_FLOAT(code, name, expression) \
    ROW(FLOATS, code, name)                 \
    REAL(name, x, unused, expression)
#define BINARY_NUMBER(code, name, expression) \
    ROW(NUMBERS, code, name)                  \
    REAL(name, a, b, expression)
#define BINARY_FLOAT(code, name, expression) \
    ROW(FLOATS, code, name)                  \
    REAL(name, a, b, expression)
#define COMPARE(code, name, expression) \
    ROW(ANY_DTYPE, code, name)          \
    REAL(name, a, b, expression)        \
    INTEGER(name, expression)
#include "core/op/elementwise.def"
INTEGER(neg, 0 - (uint64_t)a)
INTEGER(abs, a < 0 ? 0 - (uint64_t)a : (uint64_t)a)
INTEGER(sign, (a > 0) - (a < 0))
INTEGER(square, (uint64_t)a *(uint64_t)a)
INTEGER(add, (uint64_t)a + (uint64_t)b)
INTEGER(sub, (uint64_t)a - (uint64_t)b)
INTEGER(mul, (uint64_t)a *(uint64_t)b)
INTEGER(min, b < a ? b : a)
INTEGER(max, a < b ? b : a)

/* The formulas as text. */
enum { UNARY_ROWS, BINARY_ROWS, COMPARE_ROWS };
static const char formulas[][32][320] = {
#define UNARY_NUMBER(code, name, expression)  [UNARY_ROWS][code] = #expression,
#define UNARY_FLOAT                           UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression) [BINARY_ROWS][code] = #expression,
#define BINARY_FLOAT                          BINARY_NUMBER
#define COMPARE(code, name, expression)       [COMPARE_ROWS][code] = #expression,
#include "core/op/elementwise.def"
};

/* ---- rule, truth, launch ---- */

/* Comparisons, which take any dtype, give bool. */
static strata_status shape_of(strata_tensor *node, unsigned allowed, strata_error *err) {
    const strata_tensor *a = node->inputs[0], *b = node->inputs[node->n_inputs - 1];
    STRATA_TRY(strata_check_dtype(a, node->n_inputs > 1 ? "a" : "x", allowed, err));
    STRATA_TRY(strata_check_same_dtype(a, "a", b, "b", err));
    if (allowed == STRATA_ANY_DTYPE) node->dtype = STRATA_DTYPE_BOOL;
    return strata_broadcast_shape(a->shape, "a", b->shape, "b", &node->shape, err);
}

typedef struct evaluation {
    const strata_op_call *call;
    real_function *real;
    integer_function *integer;
} evaluation;

static void evaluate_row(const strata_strided *space, const int64_t *offsets, void *user) {
    const evaluation *e = user;
    const strata_tensor *node = e->call->node;
    const int last = space->rank - 1, second = node->n_inputs - 1;
    const strata_dtype from = node->inputs[0]->dtype, to = node->dtype;
    const void *a = e->call->inputs[0], *b = e->call->inputs[second];
    int64_t at_a = offsets[0], at_b = offsets[second], y = offsets[node->n_inputs]; /* y is contiguous */
    for (int64_t j = 0; j < space->sizes[last]; j++, y++) {
        if (strata_dtype_is_float(from))
            strata_element_set(to, e->call->output, y,
                               e->real(strata_element_get(from, a, at_a), strata_element_get(from, b, at_b)));
        else
            strata_integer_set(to, e->call->output, y,
                               e->integer(strata_integer_get(from, a, at_a), strata_integer_get(from, b, at_b)));
        at_a += space->strides[0][last];
        at_b += space->strides[second][last];
    }
}

static void evaluate(const strata_op_call *call, real_function *real, integer_function *integer) {
    evaluation e = {call, real, integer};
    const strata_strided space = strata_elementwise_space(call->node);
    strata_strided_rows(&space, evaluate_row, &e);
}

static strata_status lower_to(const strata_tensor *node, const char *kernel, int code, strata_lowering *lowering,
                              strata_error *err) {
    strata_launch launch = strata_launch_of(node, kernel, strata_dtype_name(node->inputs[0]->dtype));
    const strata_strided space = strata_elementwise_space(node);
    strata_launch_constant_add(&launch, "OP", code);
    if (node->n_inputs > 1) return strata_strided_lower(&launch, &space, 2, lowering, err);
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- gradients and compositions ---- */

static strata_tensor *scalar_like(strata_tensor *x, double value) {
    return strata_scalar(x->graph, x->dtype, value);
}

/* Sums the gradients da and db, which have y's shape, over the axes along which a or b was broadcast. NULL stays NULL. */
static void pass_back(strata_tensor *y, strata_tensor *da, strata_tensor *db, strata_tensor **dx) {
    dx[0] = da ? strata_sum_to(da, y->inputs[0]->shape) : NULL;
    dx[1] = db ? strata_sum_to(db, y->inputs[1]->shape) : NULL;
}

static strata_tensor *node_of(const strata_op *op, strata_tensor *a, strata_tensor *b) {
    return strata_node(NULL, op, 2, (strata_tensor *[]){a, b}, NULL);
}

/* d(a^b)/da = b a^(b-1), 0 where b is 0 (even at a = 0);  d(a^b)/db = y log a, 0 where a <= 0. */
static void pow_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1];
    strata_tensor *zero = scalar_like(a, 0), *one = scalar_like(a, 1);
    strata_tensor *exponent = strata_where(strata_equal(b, zero), one, strata_sub(b, one));
    strata_tensor *logarithm = strata_log(strata_where(strata_greater(a, zero), a, one));
    pass_back(y, strata_mul(dy, strata_mul(b, strata_pow(a, exponent))), strata_mul(dy, strata_mul(y, logarithm)), dx);
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

/* kernel: unary, binary or compare. The last arguments are other members of the op's table. */
#define OP(op, kernel, inputs, integer, ...)                                                                   \
    static strata_status op##_shape(strata_tensor *node, strata_error *err) {                                  \
        return shape_of(node, op##_dtypes, err);                                                               \
    }                                                                                                          \
    static void op##_reference(strata_op_call *call) {                                                         \
        evaluate(call, op##_value, integer);                                                                   \
    }                                                                                                          \
    static strata_status op##_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) { \
        return lower_to(node, kernel, op##_code, lowering, err);                                               \
    }                                                                                                          \
    const strata_op strata_op_##op = {.name = #op,                                                             \
                                      .n_inputs = inputs,                                                      \
                                      .flags = STRATA_OP_ELEMENTWISE,                                          \
                                      .shape = op##_shape,                                                     \
                                      .reference = op##_reference,                                             \
                                      .lower = op##_lower,                                                     \
                                      __VA_ARGS__};
#define UNARY_BUILDER(op)                                       \
    strata_tensor *strata_##op(strata_tensor *x) {              \
        return strata_node(NULL, &strata_op_##op, 1, &x, NULL); \
    }
#define BUILDER(op)                                                  \
    strata_tensor *strata_##op(strata_tensor *a, strata_tensor *b) { \
        return node_of(&strata_op_##op, a, b);                       \
    }
#define PRIMITIVE(op, family) .formula = formulas[family##_ROWS][op##_code]
#define COMPOSED(op, family)  STRATA_COMPOSED(formulas[family##_ROWS][op##_code])

/* dx is built from x, y and dy. The last arguments are PRIMITIVE or COMPOSED, or STRATA_COMPOSED with another formula of x than
 * that of elementwise.def. */
#define UNARY(op, integer, dx_of, ...)                                                   \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *x = y->inputs[0];                                                 \
        (void)x;                                                                         \
        dx[0] = dx_of;                                                                   \
    }                                                                                    \
    OP(op, "unary", 1, integer, .gradient = op##_gradient, __VA_ARGS__) UNARY_BUILDER(op)

UNARY(neg, neg_integer, strata_neg(dy), .linearity = STRATA_LINEAR_JOINTLY, STRATA_COMPOSED("x * -1"))
UNARY(abs, abs_integer, strata_mul(dy, strata_sign(x)), STRATA_COMPOSED("MAX(x, -x)"))
/* Where x is 0 or NaN, the sign is x itself. */
OP(sign, "unary", 1, sign_integer, STRATA_COMPOSED("x > 0 ? 1 : x < 0 ? -1 : x"))
UNARY_BUILDER(sign)
UNARY(square, square_integer, strata_mul(dy, strata_add(x, x)), COMPOSED(square, UNARY))
UNARY(exp, NULL, strata_mul(dy, y), PRIMITIVE(exp, UNARY))
UNARY(log, NULL, strata_div(dy, x), PRIMITIVE(log, UNARY))
/* 1 / (2 sqrt(x)) */
UNARY(sqrt, NULL, strata_div(dy, strata_add(y, y)), PRIMITIVE(sqrt, UNARY))
/* -1/2 x^(-3/2) = -1/2 y^3 */
UNARY(rsqrt, NULL, strata_mul(strata_mul(dy, scalar_like(dy, -0.5)), strata_mul(y, strata_square(y))),
      STRATA_COMPOSED("1 / SQRT(x)"))
/* The gradients of these three need y alone. If exp overflows to infinity, sigmoid is 0, as it should be. */
UNARY(tanh, NULL, node_of(&strata_op_tanh_grad, dy, y), STRATA_COMPOSED("SIGMOID(x + x) * 2 - 1"))
UNARY(sigmoid, NULL, node_of(&strata_op_sigmoid_grad, dy, y), STRATA_COMPOSED("1 / (1 + EXP(-x))"))
UNARY(relu, NULL, node_of(&strata_op_relu_grad, dy, y), STRATA_COMPOSED("MAX(x, 0)"))
UNARY(gelu, NULL, node_of(&strata_op_gelu_grad, dy, x), COMPOSED(gelu, UNARY))
UNARY(gelu_tanh, NULL, node_of(&strata_op_gelu_tanh_grad, dy, x), COMPOSED(gelu_tanh, UNARY))
UNARY(silu, NULL, node_of(&strata_op_silu_grad, dy, x), COMPOSED(silu, UNARY))
UNARY(softplus, NULL, strata_mul(dy, strata_sigmoid(x)), COMPOSED(softplus, UNARY))
/* 2 / sqrt(pi) e^(-x^2) */
UNARY(erf, NULL, strata_mul(dy, strata_mul(strata_exp(strata_neg(strata_square(x))), scalar_like(dy, 1.1283791670955126))),
      PRIMITIVE(erf, UNARY), .compose = erf_compose)
UNARY(sin, NULL, strata_mul(dy, strata_cos(x)), PRIMITIVE(sin, UNARY))
UNARY(cos, NULL, strata_neg(strata_mul(dy, strata_sin(x))), PRIMITIVE(cos, UNARY))

/* The same with da and db, from a, b, y and dy. */
#define BINARY(op, integer, da, db, ...)                                                 \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *a = y->inputs[0], *b = y->inputs[1];                              \
        (void)a;                                                                         \
        (void)b;                                                                         \
        pass_back(y, da, db, dx);                                                        \
    }                                                                                    \
    OP(op, "binary", 2, integer, .gradient = op##_gradient, __VA_ARGS__)
#define COMPARISON(op, composition) OP(op, "compare", 2, op##_integer, composition(op, COMPARE)) BUILDER(op)

BINARY(add, add_integer, dy, dy, .linearity = STRATA_LINEAR_JOINTLY, PRIMITIVE(add, BINARY))
BINARY(sub, sub_integer, dy, strata_neg(dy), .linearity = STRATA_LINEAR_JOINTLY, STRATA_COMPOSED("a + -b"))
BINARY(mul, mul_integer, strata_mul(dy, b), strata_mul(dy, a), .linearity = STRATA_LINEAR_EACH, PRIMITIVE(mul, BINARY))
/* d(a/b)/db = -a / b^2 = -y / b */
BINARY(div, NULL, strata_div(dy, b), strata_neg(strata_div(strata_mul(dy, y), b)), .linearity = STRATA_LINEAR_FIRST,
       PRIMITIVE(div, BINARY))
OP(pow, "binary", 2, NULL, .gradient = pow_gradient, PRIMITIVE(pow, BINARY))
/* dy passes to the operand that was chosen. NaN is chosen. */
BINARY(min, min_integer, strata_where(strata_less_equal(a, b), dy, scalar_like(dy, 0)),
       strata_where(strata_less_equal(a, b), scalar_like(dy, 0), dy), STRATA_COMPOSED("a <= b ? a : a == a ? b : a"))
BINARY(max, max_integer, strata_where(strata_greater_equal(a, b), dy, scalar_like(dy, 0)),
       strata_where(strata_greater_equal(a, b), scalar_like(dy, 0), dy), STRATA_COMPOSED("a >= b ? a : a == a ? b : a"))
/* The fused gradients are g(a, b) = a f'(b), with a the gradient that arrived and b the activation's output. */
BINARY(relu_grad, NULL, node_of(&strata_op_relu_grad, dy, b), NULL, COMPOSED(relu_grad, BINARY))
/* a (1 - b^2): the second factor's derivative is -2 b. */
BINARY(tanh_grad, NULL, node_of(&strata_op_tanh_grad, dy, b), strata_mul(strata_mul(dy, a), strata_mul(b, scalar_like(b, -2))),
       COMPOSED(tanh_grad, BINARY))
/* a b (1 - b): the derivative of b (1 - b) is 1 - 2 b. */
BINARY(sigmoid_grad, NULL, node_of(&strata_op_sigmoid_grad, dy, b),
       strata_mul(strata_mul(dy, a), strata_sub(scalar_like(b, 1), strata_add(b, b))), COMPOSED(sigmoid_grad, BINARY))
/* With the slope b: da = dy where a > 0, else dy b. db = dy a where a < 0, else 0. */
BINARY(leaky_relu, NULL, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, b)),
       strata_where(strata_less(a, scalar_like(a, 0)), strata_mul(dy, a), scalar_like(a, 0)), COMPOSED(leaky_relu, BINARY))
/* With the scale b: da = dy where a > 0, else dy (y + b). db = dy (e^a - 1) where a < 0, else 0. */
BINARY(elu, NULL, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, strata_add(y, b))),
       strata_mul(dy, node_of(&strata_op_elu, strata_where(strata_less(a, scalar_like(a, 0)), a, scalar_like(a, 0)),
                              scalar_like(a, 1))),
       COMPOSED(elu, BINARY))

static const char once[] = "the gradient of this activation is not differentiated again";
OP(gelu_grad, "binary", 2, NULL, .no_gradient = once, COMPOSED(gelu_grad, BINARY))
OP(gelu_tanh_grad, "binary", 2, NULL, .no_gradient = once, COMPOSED(gelu_tanh_grad, BINARY))
OP(silu_grad, "binary", 2, NULL, .no_gradient = once, COMPOSED(silu_grad, BINARY))

strata_tensor *strata_leaky_relu(strata_tensor *x, double slope) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_leaky_relu, x, scalar_like(x, slope));
}

strata_tensor *strata_elu(strata_tensor *x, double scale) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_elu, x, scalar_like(x, scale));
}
BINARY(sigmoid_cross_entropy, NULL, strata_mul(dy, node_of(&strata_op_sigmoid_sub, a, b)), strata_neg(strata_mul(dy, a)),
       COMPOSED(sigmoid_cross_entropy, BINARY))
BINARY(sigmoid_sub, NULL, node_of(&strata_op_sigmoid_grad, dy, strata_sigmoid(a)), strata_neg(dy),
       COMPOSED(sigmoid_sub, BINARY))
/* All comparisons are composed of less and equal. */
COMPARISON(equal, PRIMITIVE)
COMPARISON(not_equal, COMPOSED)
COMPARISON(less, PRIMITIVE)
COMPARISON(less_equal, COMPOSED)
COMPARISON(greater, COMPOSED)
COMPARISON(greater_equal, COMPOSED)

BUILDER(add)
BUILDER(sub)
BUILDER(mul)
BUILDER(div)
BUILDER(pow)
BUILDER(min)
BUILDER(max)
BUILDER(sigmoid_cross_entropy)
