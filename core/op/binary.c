/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops of two operands of one dtype, with NumPy broadcasting: arithmetic (y of the operands' dtype), comparisons (y
 * is bool) and the fused gradients of activations. The formulas are the binary and comparison rows of elementwise.def, which
 * shaders/binary.kernel and compare.kernel read too. Gradients are summed back over broadcast axes. */
#include <math.h>

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

#define ZERO         0.0
#define EXP(x)       exp(x)
#define TANH(x)      tanh(x)
#define ERF(x)       erf(x)
#define EXPM1(x)     expm1(x)
#define SIGMOID(x)   sigmoid_of(x)
#define DIVIDE(a, b) ((a) / (b))
#define POW(a, b)    pow(a, b)
#define MIN(a, b)    min_of(a, b)
#define MAX(a, b)    max_of(a, b)
#define ABS(x)       fabs(x)
#define LOG(x)       log(x)
#define EQUAL(a, b)  ((a) == (b))
#define LESS(a, b)   ((a) < (b))

#define ROW(code, name, expression)                  \
    enum { name##_code = code };                     \
    static double name##_value(double a, double b) { \
        return expression;                           \
    }
#define BINARY_NUMBER ROW
#define BINARY_FLOAT  ROW
#define COMPARE(code, name, expression)                   \
    enum { name##_code = code };                          \
    static double name##_value(double a, double b) {      \
        return expression;                                \
    }                                                     \
    static int64_t name##_integer(int64_t a, int64_t b) { \
        return expression;                                \
    }
#include "core/op/elementwise.def"

/* The formulas for integers. Overflow wraps around. */
static int64_t add_integer(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static int64_t sub_integer(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static int64_t mul_integer(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
static int64_t min_integer(int64_t a, int64_t b) {
    return b < a ? b : a;
}
static int64_t max_integer(int64_t a, int64_t b) {
    return a < b ? b : a;
}

/* ---- rule, truth, launch ---- */

typedef double real_function(double a, double b);
typedef int64_t integer_function(int64_t a, int64_t b); /* NULL where the op takes floats only */

/* Comparisons, which take any dtype, give bool. */
static strata_status binary_shape(strata_tensor *node, unsigned allowed, strata_error *err) {
    const strata_tensor *a = node->inputs[0], *b = node->inputs[1];
    STRATA_TRY(strata_check_dtype(a, "a", allowed, err));
    STRATA_TRY(strata_check_same_dtype(a, "a", b, "b", err));
    if (allowed == STRATA_ANY_DTYPE) node->dtype = STRATA_DTYPE_BOOL;
    return strata_broadcast_shape(a->shape, "a", b->shape, "b", &node->shape, err);
}

/* The index space over which the op loops; tensors 0, 1 and 2 are a, b and y. */
static strata_strided binary_space(const strata_tensor *node) {
    strata_strided space = {.rank = node->shape.rank, .n_tensors = 3};
    for (int d = 0; d < node->shape.rank; d++) space.sizes[d] = node->shape.dims[d];
    strata_broadcast_strides(node->inputs[0]->shape, node->shape, space.strides[0]);
    strata_broadcast_strides(node->inputs[1]->shape, node->shape, space.strides[1]);
    strata_row_major_strides(node->shape, space.strides[2]);
    strata_strided_merge(&space);
    return space;
}

typedef struct evaluation {
    const strata_op_call *call;
    real_function *real;
    integer_function *integer;
} evaluation;

static void evaluate_row(const strata_strided *space, const int64_t *offsets, void *user) {
    const evaluation *e = user;
    const strata_dtype from = e->call->node->inputs[0]->dtype, to = e->call->node->dtype;
    const void *a = e->call->inputs[0], *b = e->call->inputs[1];
    const int last = space->rank - 1;
    int64_t at_a = offsets[0], at_b = offsets[1], y = offsets[2]; /* y is contiguous */
    for (int64_t j = 0; j < space->sizes[last]; j++, y++, at_a += space->strides[0][last], at_b += space->strides[1][last]) {
        if (strata_dtype_is_float(from))
            strata_element_set(to, e->call->output, y,
                               e->real(strata_element_get(from, a, at_a), strata_element_get(from, b, at_b)));
        else
            strata_integer_set(to, e->call->output, y,
                               e->integer(strata_integer_get(from, a, at_a), strata_integer_get(from, b, at_b)));
    }
}

static void binary_reference(const strata_op_call *call, real_function *real, integer_function *integer) {
    evaluation e = {call, real, integer};
    const strata_strided space = binary_space(call->node);
    strata_strided_rows(&space, evaluate_row, &e);
}

static strata_status binary_lower(const strata_tensor *node, const char *kernel, int code, strata_lowering *lowering,
                                  strata_error *err) {
    strata_launch launch = strata_launch_of(node, kernel, strata_dtype_name(node->inputs[0]->dtype));
    const strata_strided space = binary_space(node);
    strata_launch_constant_add(&launch, "OP", code);
    return strata_strided_lower(&launch, &space, 2, lowering, err);
}

/* ---- gradients: da and db from dy, a and b and y ---- */

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

#define GRADIENT(op, da, db)                                                             \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *a = y->inputs[0], *b = y->inputs[1];                              \
        (void)a;                                                                         \
        (void)b;                                                                         \
        pass_back(y, da, db, dx);                                                        \
    }

GRADIENT(add, dy, dy)
GRADIENT(sub, dy, strata_neg(dy))
GRADIENT(mul, strata_mul(dy, b), strata_mul(dy, a))
/* d(a/b)/db = -a / b^2 = -y / b */
GRADIENT(div, strata_div(dy, b), strata_neg(strata_div(strata_mul(dy, y), b)))

/* d(a^b)/da = b a^(b-1), 0 where b is 0 (even at a = 0);  d(a^b)/db = y log a, 0 where a <= 0. */
static void pow_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1];
    strata_tensor *zero = scalar_like(a, 0), *one = scalar_like(a, 1);
    strata_tensor *exponent = strata_where(strata_equal(b, zero), one, strata_sub(b, one));
    strata_tensor *logarithm = strata_log(strata_where(strata_greater(a, zero), a, one));
    pass_back(y, strata_mul(dy, strata_mul(b, strata_pow(a, exponent))), strata_mul(dy, strata_mul(y, logarithm)), dx);
}

/* dy passes to the operand that was chosen. */
GRADIENT(min, strata_where(strata_less_equal(a, b), dy, scalar_like(dy, 0)),
         strata_where(strata_less_equal(a, b), scalar_like(dy, 0), dy))
GRADIENT(max, strata_where(strata_greater_equal(a, b), dy, scalar_like(dy, 0)),
         strata_where(strata_greater_equal(a, b), scalar_like(dy, 0), dy))
/* The fused gradients are g(a, b) = a f'(b), with a the gradient that arrived and b the activation's output. */
GRADIENT(relu_grad, node_of(&strata_op_relu_grad, dy, b), NULL)
/* a (1 - b^2): the second factor's derivative is -2 b. */
GRADIENT(tanh_grad, node_of(&strata_op_tanh_grad, dy, b), strata_mul(strata_mul(dy, a), strata_mul(b, scalar_like(b, -2))))
/* a b (1 - b): the derivative of b (1 - b) is 1 - 2 b. */
GRADIENT(sigmoid_grad, node_of(&strata_op_sigmoid_grad, dy, b),
         strata_mul(strata_mul(dy, a), strata_sub(scalar_like(b, 1), strata_add(b, b))))
/* With the slope b: da = dy where a > 0, else dy b. db = dy a where a < 0, else 0. */
GRADIENT(leaky_relu, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, b)),
         strata_where(strata_less(a, scalar_like(a, 0)), strata_mul(dy, a), scalar_like(a, 0)))
/* With the scale b: da = dy where a > 0, else dy (y + b). db = dy (e^a - 1) where a < 0, else 0. */
GRADIENT(elu, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, strata_add(y, b))),
         strata_mul(dy, node_of(&strata_op_elu, strata_where(strata_less(a, scalar_like(a, 0)), a, scalar_like(a, 0)),
                                scalar_like(a, 1))))
GRADIENT(sigmoid_cross_entropy, strata_mul(dy, node_of(&strata_op_sigmoid_sub, a, b)), strata_neg(strata_mul(dy, a)))
GRADIENT(sigmoid_sub, node_of(&strata_op_sigmoid_grad, dy, strata_sigmoid(a)), strata_neg(dy))

/* ---- compositions: y from a and b ---- */

#define COMPOSITION(op, expression)                         \
    static strata_tensor *op##_compose(strata_tensor *y) {  \
        strata_tensor *a = y->inputs[0], *b = y->inputs[1]; \
        return expression;                                  \
    }

/* Chooses a where the comparison holds or a is NaN, else b. */
static strata_tensor *choice(strata_tensor *a_is_it, strata_tensor *a, strata_tensor *b) {
    return strata_where(a_is_it, a, strata_where(strata_equal(a, a), b, a));
}

COMPOSITION(sub, strata_add(a, strata_neg(b)))
COMPOSITION(min, choice(strata_less_equal(a, b), a, b))
COMPOSITION(max, choice(strata_greater_equal(a, b), a, b))
COMPOSITION(relu_grad, strata_where(strata_greater(b, scalar_like(y, 0)), a, scalar_like(y, 0)))
COMPOSITION(tanh_grad, strata_mul(a, strata_sub(scalar_like(y, 1), strata_square(b))))
COMPOSITION(sigmoid_grad, strata_mul(strata_mul(a, b), strata_sub(scalar_like(y, 1), b)))
COMPOSITION(leaky_relu, strata_where(strata_less(a, scalar_like(y, 0)), strata_mul(a, b), a))
COMPOSITION(elu,
            strata_where(strata_less(a, scalar_like(y, 0)), strata_mul(b, strata_sub(strata_exp(a), scalar_like(y, 1))), a))
COMPOSITION(sigmoid_sub, strata_sub(strata_sigmoid(a), b))
/* All comparisons are composed of less and equal. */
COMPOSITION(not_equal, strata_equal(strata_equal(a, b), scalar_like(y, 0)))
COMPOSITION(less_equal, strata_where(strata_less(a, b), scalar_like(y, 1), strata_equal(a, b)))
COMPOSITION(greater, strata_less(b, a))
COMPOSITION(greater_equal, strata_less_equal(b, a))

/* a ((1 + erf(b / sqrt 2)) / 2 + b exp(-b^2 / 2) / sqrt(2 pi)) */
static strata_tensor *gelu_grad_compose(strata_tensor *y) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1], *half = scalar_like(y, 0.5);
    strata_tensor *e = strata_erf(strata_mul(b, scalar_like(y, 0.70710678)));
    strata_tensor *bell =
        strata_mul(strata_exp(strata_mul(strata_square(b), scalar_like(y, -0.5))), scalar_like(y, 0.39894228));
    return strata_mul(a, strata_add(strata_mul(half, strata_add(e, scalar_like(y, 1))), strata_mul(b, bell)));
}
/* With t = tanh(k (b + c b^3)):   a ((1 + t) / 2 + b / 2 (1 - t^2) k (1 + 3 c b^2)) */
static strata_tensor *gelu_tanh_grad_compose(strata_tensor *y) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1], *one = scalar_like(y, 1), *half = scalar_like(y, 0.5);
    strata_tensor *squared = strata_square(b), *k = scalar_like(y, 0.79788456);
    strata_tensor *inner = strata_mul(b, strata_add(one, strata_mul(squared, scalar_like(y, 0.044715))));
    strata_tensor *t = strata_tanh(strata_mul(inner, k));
    strata_tensor *slope = strata_mul(strata_sub(one, strata_square(t)), strata_mul(k, strata_mul(half, b)));
    slope = strata_mul(slope, strata_add(one, strata_mul(squared, scalar_like(y, 0.134145))));
    return strata_mul(a, strata_add(strata_mul(half, strata_add(one, t)), slope));
}
static strata_tensor *silu_grad_compose(strata_tensor *y) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1], *one = scalar_like(y, 1), *s = strata_sigmoid(b);
    return strata_mul(strata_mul(a, s), strata_add(one, strata_mul(b, strata_sub(one, s))));
}
static strata_tensor *sigmoid_cross_entropy_compose(strata_tensor *y) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1];
    strata_tensor *tail = strata_log(strata_add(strata_exp(strata_neg(strata_abs(a))), scalar_like(y, 1)));
    return strata_add(strata_sub(strata_max(a, scalar_like(y, 0)), strata_mul(a, b)), tail);
}

/* ---- the ops ---- */

#define BINARY(op, allowed, integer, gradient_function, composition) \
    BINARY_OP(op, "binary", STRATA_LINEAR_NOT, allowed, integer, gradient_function, NULL, composition)
#define BINARY_LINEAR(op, linear, allowed, integer, gradient_function, composition) \
    BINARY_OP(op, "binary", STRATA_LINEAR_##linear, allowed, integer, gradient_function, NULL, composition)
#define COMPARISON(op, composition) \
    BINARY_OP(op, "compare", STRATA_LINEAR_NOT, STRATA_ANY_DTYPE, op##_integer, NULL, NULL, composition) BUILDER(op)
#define BINARY_OP(op, kernel, linear, allowed, integer, gradient_function, why_not, composition)               \
    static strata_status op##_shape(strata_tensor *node, strata_error *err) {                                  \
        return binary_shape(node, allowed, err);                                                               \
    }                                                                                                          \
    static void op##_reference(strata_op_call *call) {                                                         \
        binary_reference(call, op##_value, integer);                                                           \
    }                                                                                                          \
    static strata_status op##_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) { \
        return binary_lower(node, kernel, op##_code, lowering, err);                                           \
    }                                                                                                          \
    const strata_op strata_op_##op = {.name = #op,                                                             \
                                      .n_inputs = 2,                                                           \
                                      .flags = STRATA_OP_ELEMENTWISE,                                          \
                                      .linearity = linear,                                                     \
                                      .shape = op##_shape,                                                     \
                                      .gradient = gradient_function,                                           \
                                      .no_gradient = why_not,                                                  \
                                      .reference = op##_reference,                                             \
                                      .compose = composition,                                                  \
                                      .lower = op##_lower};

#define BUILDER(op)                                                                    \
    strata_tensor *strata_##op(strata_tensor *a, strata_tensor *b) {                   \
        return strata_node(NULL, &strata_op_##op, 2, (strata_tensor *[]){a, b}, NULL); \
    }

BINARY_LINEAR(add, JOINTLY, STRATA_NUMBERS, add_integer, add_gradient, NULL)
BINARY_LINEAR(sub, JOINTLY, STRATA_NUMBERS, sub_integer, sub_gradient, sub_compose)
BINARY_LINEAR(mul, EACH, STRATA_NUMBERS, mul_integer, mul_gradient, NULL)
BINARY_LINEAR(div, FIRST, STRATA_FLOATS, NULL, div_gradient, NULL)
BINARY(pow, STRATA_FLOATS, NULL, pow_gradient, NULL)
BINARY(min, STRATA_NUMBERS, min_integer, min_gradient, min_compose)
BINARY(max, STRATA_NUMBERS, max_integer, max_gradient, max_compose)
BINARY(relu_grad, STRATA_FLOATS, NULL, relu_grad_gradient, relu_grad_compose)
BINARY(tanh_grad, STRATA_FLOATS, NULL, tanh_grad_gradient, tanh_grad_compose)
BINARY(sigmoid_grad, STRATA_FLOATS, NULL, sigmoid_grad_gradient, sigmoid_grad_compose)
BINARY(leaky_relu, STRATA_FLOATS, NULL, leaky_relu_gradient, leaky_relu_compose)
BINARY(elu, STRATA_FLOATS, NULL, elu_gradient, elu_compose)

static const char once[] = "the gradient of this activation is not differentiated again";
BINARY_OP(gelu_grad, "binary", STRATA_LINEAR_NOT, STRATA_FLOATS, NULL, NULL, once, gelu_grad_compose)
BINARY_OP(gelu_tanh_grad, "binary", STRATA_LINEAR_NOT, STRATA_FLOATS, NULL, NULL, once, gelu_tanh_grad_compose)
BINARY_OP(silu_grad, "binary", STRATA_LINEAR_NOT, STRATA_FLOATS, NULL, NULL, once, silu_grad_compose)

strata_tensor *strata_leaky_relu(strata_tensor *x, double slope) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_leaky_relu, x, scalar_like(x, slope));
}

strata_tensor *strata_elu(strata_tensor *x, double scale) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_elu, x, scalar_like(x, scale));
}
BINARY(sigmoid_cross_entropy, STRATA_FLOATS, NULL, sigmoid_cross_entropy_gradient, sigmoid_cross_entropy_compose)
BINARY(sigmoid_sub, STRATA_FLOATS, NULL, sigmoid_sub_gradient, sigmoid_sub_compose)
COMPARISON(equal, NULL)
COMPARISON(not_equal, not_equal_compose)
COMPARISON(less, NULL)
COMPARISON(less_equal, less_equal_compose)
COMPARISON(greater, greater_compose)
COMPARISON(greater_equal, greater_equal_compose)

BUILDER(add)
BUILDER(sub)
BUILDER(mul)
BUILDER(div)
BUILDER(pow)
BUILDER(min)
BUILDER(max)
BUILDER(sigmoid_cross_entropy)
