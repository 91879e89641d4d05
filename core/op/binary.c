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

#define ZERO        0.0
#define EXP(x)      exp(x)
#define TANH(x)     tanh(x)
#define ERF(x)      erf(x)
#define EXPM1(x)    expm1(x)
#define SIGMOID(x)  sigmoid_of(x)
#define POW(a, b)   pow(a, b)
#define MIN(a, b)   min_of(a, b)
#define MAX(a, b)   max_of(a, b)
#define ABS(x)      fabs(x)
#define LOG(x)      log(x)
#define EQUAL(a, b) ((a) == (b))
#define LESS(a, b)  ((a) < (b))

#define ROW(dtypes, code, name, expression)                       \
    enum { name##_code = code, name##_dtypes = STRATA_##dtypes }; \
    static double name##_value(double a, double b) {              \
        return expression;                                        \
    }
#define BINARY_NUMBER(code, name, expression) ROW(NUMBERS, code, name, expression)
#define BINARY_FLOAT(code, name, expression)  ROW(FLOATS, code, name, expression)
#define COMPARE(code, name, expression)                   \
    ROW(ANY_DTYPE, code, name, expression)                \
    static int64_t name##_integer(int64_t a, int64_t b) { \
        return expression;                                \
    }
#include "core/op/elementwise.def"

/* The formulas as text. */
static const char formulas[32][320] =
    {
#define BINARY_NUMBER(code, name, expression) [code] = #expression,
#define BINARY_FLOAT                          BINARY_NUMBER
#include "core/op/elementwise.def"
},
                  comparisons[32][40] = {
#define COMPARE(code, name, expression) [code] = #expression,
#include "core/op/elementwise.def"
};

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

/* d(a^b)/da = b a^(b-1), 0 where b is 0 (even at a = 0);  d(a^b)/db = y log a, 0 where a <= 0. */
static void pow_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *a = y->inputs[0], *b = y->inputs[1];
    strata_tensor *zero = scalar_like(a, 0), *one = scalar_like(a, 1);
    strata_tensor *exponent = strata_where(strata_equal(b, zero), one, strata_sub(b, one));
    strata_tensor *logarithm = strata_log(strata_where(strata_greater(a, zero), a, one));
    pass_back(y, strata_mul(dy, strata_mul(b, strata_pow(a, exponent))), strata_mul(dy, strata_mul(y, logarithm)), dx);
}

/* ---- the ops ---- */

/* da and db are built from a, b, y and dy. The last argument is PRIMITIVE or COMPOSED, or STRATA_COMPOSED with another formula of
 * a and b than that of elementwise.def. */
#define BINARY(op, integer, da, db, ...)                                                 \
    static void op##_gradient(strata_tensor *y, strata_tensor *dy, strata_tensor **dx) { \
        strata_tensor *a = y->inputs[0], *b = y->inputs[1];                              \
        (void)a;                                                                         \
        (void)b;                                                                         \
        pass_back(y, da, db, dx);                                                        \
    }                                                                                    \
    BINARY_OP(op, "binary", integer, .gradient = op##_gradient, __VA_ARGS__)
#define COMPARISON(op, ...) BINARY_OP(op, "compare", op##_integer, __VA_ARGS__) BUILDER(op)
#define PRIMITIVE(op)       .formula = formulas[op##_code]
#define COMPOSED(op)        STRATA_COMPOSED(formulas[op##_code])

#define BINARY_OP(op, kernel, integer, ...)                                                                    \
    static strata_status op##_shape(strata_tensor *node, strata_error *err) {                                  \
        return binary_shape(node, op##_dtypes, err);                                                           \
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
                                      .shape = op##_shape,                                                     \
                                      .reference = op##_reference,                                             \
                                      .lower = op##_lower,                                                     \
                                      __VA_ARGS__};

#define BUILDER(op)                                                                    \
    strata_tensor *strata_##op(strata_tensor *a, strata_tensor *b) {                   \
        return strata_node(NULL, &strata_op_##op, 2, (strata_tensor *[]){a, b}, NULL); \
    }

BINARY(add, add_integer, dy, dy, .linearity = STRATA_LINEAR_JOINTLY, PRIMITIVE(add))
BINARY(sub, sub_integer, dy, strata_neg(dy), .linearity = STRATA_LINEAR_JOINTLY, STRATA_COMPOSED("a + -b"))
BINARY(mul, mul_integer, strata_mul(dy, b), strata_mul(dy, a), .linearity = STRATA_LINEAR_EACH, PRIMITIVE(mul))
/* d(a/b)/db = -a / b^2 = -y / b */
BINARY(div, NULL, strata_div(dy, b), strata_neg(strata_div(strata_mul(dy, y), b)), .linearity = STRATA_LINEAR_FIRST,
       PRIMITIVE(div))
BINARY_OP(pow, "binary", NULL, .gradient = pow_gradient, PRIMITIVE(pow))
/* dy passes to the operand that was chosen. NaN is chosen. */
BINARY(min, min_integer, strata_where(strata_less_equal(a, b), dy, scalar_like(dy, 0)),
       strata_where(strata_less_equal(a, b), scalar_like(dy, 0), dy), STRATA_COMPOSED("a <= b ? a : a == a ? b : a"))
BINARY(max, max_integer, strata_where(strata_greater_equal(a, b), dy, scalar_like(dy, 0)),
       strata_where(strata_greater_equal(a, b), scalar_like(dy, 0), dy), STRATA_COMPOSED("a >= b ? a : a == a ? b : a"))
/* The fused gradients are g(a, b) = a f'(b), with a the gradient that arrived and b the activation's output. */
BINARY(relu_grad, NULL, node_of(&strata_op_relu_grad, dy, b), NULL, COMPOSED(relu_grad))
/* a (1 - b^2): the second factor's derivative is -2 b. */
BINARY(tanh_grad, NULL, node_of(&strata_op_tanh_grad, dy, b), strata_mul(strata_mul(dy, a), strata_mul(b, scalar_like(b, -2))),
       COMPOSED(tanh_grad))
/* a b (1 - b): the derivative of b (1 - b) is 1 - 2 b. */
BINARY(sigmoid_grad, NULL, node_of(&strata_op_sigmoid_grad, dy, b),
       strata_mul(strata_mul(dy, a), strata_sub(scalar_like(b, 1), strata_add(b, b))), COMPOSED(sigmoid_grad))
/* With the slope b: da = dy where a > 0, else dy b. db = dy a where a < 0, else 0. */
BINARY(leaky_relu, NULL, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, b)),
       strata_where(strata_less(a, scalar_like(a, 0)), strata_mul(dy, a), scalar_like(a, 0)), COMPOSED(leaky_relu))
/* With the scale b: da = dy where a > 0, else dy (y + b). db = dy (e^a - 1) where a < 0, else 0. */
BINARY(elu, NULL, strata_where(strata_less(scalar_like(a, 0), a), dy, strata_mul(dy, strata_add(y, b))),
       strata_mul(dy, node_of(&strata_op_elu, strata_where(strata_less(a, scalar_like(a, 0)), a, scalar_like(a, 0)),
                              scalar_like(a, 1))),
       COMPOSED(elu))

static const char once[] = "the gradient of this activation is not differentiated again";
BINARY_OP(gelu_grad, "binary", NULL, .no_gradient = once, COMPOSED(gelu_grad))
BINARY_OP(gelu_tanh_grad, "binary", NULL, .no_gradient = once, COMPOSED(gelu_tanh_grad))
BINARY_OP(silu_grad, "binary", NULL, .no_gradient = once, COMPOSED(silu_grad))

strata_tensor *strata_leaky_relu(strata_tensor *x, double slope) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_leaky_relu, x, scalar_like(x, slope));
}

strata_tensor *strata_elu(strata_tensor *x, double scale) {
    if (!x || strata_tensor_is_poison(x)) return x;
    return node_of(&strata_op_elu, x, scalar_like(x, scale));
}
BINARY(sigmoid_cross_entropy, NULL, strata_mul(dy, node_of(&strata_op_sigmoid_sub, a, b)), strata_neg(strata_mul(dy, a)),
       COMPOSED(sigmoid_cross_entropy))
BINARY(sigmoid_sub, NULL, node_of(&strata_op_sigmoid_grad, dy, strata_sigmoid(a)), strata_neg(dy), COMPOSED(sigmoid_sub))
/* All comparisons are composed of less and equal. */
COMPARISON(equal, .formula = comparisons[equal_code])
COMPARISON(not_equal, STRATA_COMPOSED(comparisons[not_equal_code]))
COMPARISON(less, .formula = comparisons[less_code])
COMPARISON(less_equal, STRATA_COMPOSED(comparisons[less_equal_code]))
COMPARISON(greater, STRATA_COMPOSED(comparisons[greater_code]))
COMPARISON(greater_equal, STRATA_COMPOSED(comparisons[greater_equal_code]))

BUILDER(add)
BUILDER(sub)
BUILDER(mul)
BUILDER(div)
BUILDER(pow)
BUILDER(min)
BUILDER(max)
BUILDER(sigmoid_cross_entropy)
