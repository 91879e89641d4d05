/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of the operations that compute each element from the elements at its place. */
#include <math.h>

#include "core/frontend/pjrt/lowering.h"

bool strata_lower_is_number_dtype(strata_dtype dtype) {
    return strata_dtype_is_float(dtype) || dtype == STRATA_DTYPE_I32 || dtype == STRATA_DTYPE_I64;
}

strata_tensor *strata_lower_scalar(strata_tensor *like, double value) {
    return strata_scalar(strata_tensor_graph(like), strata_tensor_dtype(like), value);
}

static strata_status refuse_dtype(strata_tensor *x, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED, "there is no such function of %s; convert its operands to f32",
                       strata_dtype_name(strata_tensor_dtype(x)));
}

/* ---- functions of floats ---- */

/* Zeros, whose sign strata_sign loses, and NaN are their own sign. */
strata_tensor *strata_lower_sign(strata_tensor *x) {
    strata_tensor *sign = strata_sign(x);
    if (!strata_dtype_is_float(strata_tensor_dtype(x))) return sign;
    return strata_where(strata_equal(x, strata_lower_scalar(x, 0)), x, sign);
}

strata_tensor *strata_lower_is_finite(strata_tensor *x) {
    return strata_less(strata_abs(x), strata_lower_scalar(x, INFINITY));
}

/* r is a rounded x, right where |x| < 2^23; all larger floats are whole. A zero gets the sign of x. */
static strata_tensor *rounded(strata_tensor *x, strata_tensor *r) {
    strata_tensor *zero = strata_lower_scalar(x, 0);
    r = strata_where(strata_equal(r, zero), strata_mul(x, zero), r);
    return strata_where(strata_less(strata_abs(x), strata_lower_scalar(x, 0x1p23)), r, x);
}

static strata_tensor *truncated(strata_tensor *x) {
    return strata_cast(strata_cast(x, STRATA_DTYPE_I32), STRATA_DTYPE_F32);
}

static strata_tensor *indicator(strata_tensor *condition) {
    return strata_cast(condition, STRATA_DTYPE_F32);
}

strata_tensor *strata_lower_floor(strata_tensor *x) {
    strata_tensor *t = truncated(x);
    return rounded(x, strata_sub(t, indicator(strata_greater(t, x))));
}

strata_tensor *strata_lower_ceil(strata_tensor *x) {
    strata_tensor *t = truncated(x);
    return rounded(x, strata_add(t, indicator(strata_less(t, x))));
}

/* The sign of |x| rounded is that of x. */
static strata_tensor *with_sign_of(strata_tensor *x, strata_tensor *magnitude) {
    return rounded(x, strata_where(strata_less(x, strata_lower_scalar(x, 0)), strata_neg(magnitude), magnitude));
}

/* Between 2^23 and 2^24 floats are the whole numbers, so the sum is rounded to one of these. */
strata_tensor *strata_lower_round_even(strata_tensor *x) {
    strata_tensor *shift = strata_lower_scalar(x, 0x1p23);
    return with_sign_of(x, strata_sub(strata_add(strata_abs(x), shift), shift));
}

strata_tensor *strata_lower_round_away(strata_tensor *x) {
    strata_tensor *magnitude = strata_abs(x), *t = truncated(magnitude);
    strata_tensor *is_up = strata_greater_equal(strata_sub(magnitude, t), strata_lower_scalar(x, 0.5));
    return with_sign_of(x, strata_add(t, indicator(is_up)));
}

static strata_tensor *is_small(strata_tensor *x) {
    return strata_less(strata_abs(x), strata_lower_scalar(x, 0.5));
}

/* log(1 + x): near 0 the rounding of u = 1 + x is taken out again, log(u) x / (u - 1) (Kahan). */
strata_tensor *strata_lower_log_plus_one(strata_tensor *x) {
    strata_tensor *one = strata_lower_scalar(x, 1), *u = strata_add(one, x), *log = strata_log(u);
    strata_tensor *near = strata_div(strata_mul(log, x), strata_sub(u, one));
    return strata_where(is_small(x), strata_where(strata_equal(u, one), x, near), log);
}

/* e^x - 1: near 0 it is 2 t / (1 - t), where t = tanh(x / 2). */
strata_tensor *strata_lower_exponential_minus_one(strata_tensor *x) {
    strata_tensor *one = strata_lower_scalar(x, 1), *t = strata_tanh(strata_mul(x, strata_lower_scalar(x, 0.5)));
    strata_tensor *near = strata_div(strata_add(t, t), strata_sub(one, t));
    return strata_where(is_small(x), near, strata_sub(strata_exp(x), one));
}

strata_tensor *strata_lower_tan(strata_tensor *x) {
    return strata_div(strata_sin(x), strata_cos(x));
}

/* ---- combinations ---- */

strata_tensor *strata_lower_signed_zero(int kind, strata_tensor *extreme, strata_tensor *inverse) {
    strata_tensor *zero = strata_lower_scalar(extreme, 0), *negative = strata_lower_scalar(extreme, -0.0);
    strata_tensor *is_positive = kind == LOWER_MAXIMUM ? strata_greater(inverse, zero) : strata_greater_equal(inverse, zero);
    return strata_where(strata_equal(extreme, zero), strata_where(is_positive, zero, negative), extreme);
}

static strata_tensor *extreme(int kind, strata_tensor *a, strata_tensor *b) {
    two_function *function = kind == LOWER_MAXIMUM ? strata_max : strata_min;
    strata_tensor *y = function(a, b);
    if (!strata_dtype_is_float(strata_tensor_dtype(a))) return y;
    strata_tensor *one = strata_lower_scalar(a, 1);
    return strata_lower_signed_zero(kind, y, function(strata_div(one, a), strata_div(one, b)));
}

strata_tensor *strata_lower_combine(int kind, strata_tensor *a, strata_tensor *b) {
    const strata_dtype dtype = strata_tensor_dtype(a);
    if (dtype == STRATA_DTYPE_BOOL && (kind == LOWER_ADD || kind == LOWER_MAXIMUM || kind == LOWER_OR))
        return strata_where(a, strata_lower_scalar(a, 1), b);
    if (dtype == STRATA_DTYPE_BOOL) return strata_where(a, b, strata_lower_scalar(a, 0));
    if (!strata_lower_is_number_dtype(dtype)) return NULL;
    if (kind == LOWER_ADD) return strata_add(a, b);
    if (kind == LOWER_MULTIPLY) return strata_mul(a, b);
    return kind == LOWER_MAXIMUM || kind == LOWER_MINIMUM ? extreme(kind, a, b) : NULL;
}

bool strata_lower_is_identity(int kind, strata_dtype dtype, const lowered *value) {
    const double most = strata_dtype_is_float(dtype) ? INFINITY : dtype == STRATA_DTYPE_I32 ? INT32_MAX : 0x1p63;
    const double least = strata_dtype_is_float(dtype) ? -INFINITY : dtype == STRATA_DTYPE_I32 ? INT32_MIN : -0x1p63;
    if (!value->is_number) return false;
    if (dtype == STRATA_DTYPE_BOOL)
        return value->number == (kind == LOWER_MULTIPLY || kind == LOWER_MINIMUM || kind == LOWER_AND);
    if (kind == LOWER_ADD || kind == LOWER_MULTIPLY) return value->number == (kind == LOWER_MULTIPLY);
    return value->number == (kind == LOWER_MAXIMUM ? least : most);
}

/* Of equal operands strata_max and strata_min return the first. A number that is given at the right place therefore decides the
 * sign of a zero without further nodes; relu is such a maximum. */
static strata_tensor *extreme_of(int kind, const lowered *a, const lowered *b) {
    two_function *function = kind == LOWER_MAXIMUM ? strata_max : strata_min;
    if (!a->is_number && !b->is_number) return extreme(kind, a->tensor, b->tensor);
    const lowered *number = a->is_number ? a : b, *other = a->is_number ? b : a;
    const bool is_first = (kind == LOWER_MAXIMUM) == !signbit(number->number);
    return is_first ? function(number->tensor, other->tensor) : function(other->tensor, number->tensor);
}

strata_status strata_lower_combination(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 2, err));
    const lowered *a = call->in[0], *b = call->in[1];
    const bool is_extreme = call->combination == LOWER_MAXIMUM || call->combination == LOWER_MINIMUM;
    if (is_extreme && strata_lower_is_number_dtype(strata_tensor_dtype(a->tensor)))
        call->out[0].tensor = extreme_of(call->combination, a, b);
    else
        call->out[0].tensor = strata_lower_combine(call->combination, a->tensor, b->tensor);
    return call->out[0].tensor ? STRATA_OK : refuse_dtype(a->tensor, err);
}

/* ---- rules ---- */

strata_status strata_lower_unary(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 1, err));
    call->out[0].tensor = call->one(call->in[0]->tensor);
    return STRATA_OK;
}

/* A composition, which is computed in f32 and rounded once. */
strata_status strata_lower_float(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 1, err));
    strata_tensor *x = call->in[0]->tensor;
    if (!strata_dtype_is_float(strata_tensor_dtype(x))) return refuse_dtype(x, err);
    call->out[0].tensor = strata_cast(call->one(strata_cast(x, STRATA_DTYPE_F32)), strata_tensor_dtype(x));
    return STRATA_OK;
}

strata_status strata_lower_binary(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 2, err));
    call->out[0].tensor = call->two(call->in[0]->tensor, call->in[1]->tensor);
    return STRATA_OK;
}

strata_status strata_lower_not(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 1, err));
    strata_tensor *x = call->in[0]->tensor;
    if (strata_tensor_dtype(x) != STRATA_DTYPE_BOOL) return refuse_dtype(x, err);
    call->out[0].tensor = strata_equal(x, strata_lower_scalar(x, 0));
    return STRATA_OK;
}

strata_status strata_lower_xor(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 2, err));
    strata_tensor *x = call->in[0]->tensor;
    if (strata_tensor_dtype(x) != STRATA_DTYPE_BOOL) return refuse_dtype(x, err);
    call->out[0].tensor = strata_not_equal(x, call->in[1]->tensor);
    return STRATA_OK;
}

strata_status strata_lower_compare(const lower_call *call, strata_error *err) {
    static const struct {
        const char *direction;
        two_function *function;
    } directions[] = {{"EQ", strata_equal},   {"NE", strata_not_equal},  {"GE", strata_greater_equal},
                      {"GT", strata_greater}, {"LE", strata_less_equal}, {"LT", strata_less}};
    const strata_program_attribute *direction = strata_program_find(call->program, call->op, "comparison_direction");
    const strata_program_attribute *type = strata_program_find(call->program, call->op, "compare_type");
    STRATA_TRY(strata_lower_operands(call, 2, err));
    if (type && type->kind == STRATA_PROGRAM_ENUM && !strcmp(type->text, "TOTALORDER"))
        return strata_fail(err, STRATA_UNSUPPORTED, "floats are compared in their total order, for which Strata has no op");
    const char *wanted = direction && direction->kind == STRATA_PROGRAM_ENUM ? direction->text : "";
    for (size_t i = 0; i < sizeof directions / sizeof directions[0]; i++)
        if (!strcmp(directions[i].direction, wanted))
            call->out[0].tensor = directions[i].function(call->in[0]->tensor, call->in[1]->tensor);
    return call->out[0].tensor ? STRATA_OK : strata_fail(err, STRATA_DATA, "it has no comparison_direction");
}

strata_status strata_lower_select(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 3, err));
    strata_tensor *condition = call->in[0]->tensor;
    if (call->in[0]->shape.rank == 0) condition = strata_reshape(condition, strata_lower_ones(call->out[0].shape.rank));
    call->out[0].tensor = strata_where(condition, call->in[1]->tensor, call->in[2]->tensor);
    return STRATA_OK;
}

/* min(max(x, low), high). */
strata_status strata_lower_clamp(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 3, err));
    lowered bounds[] = {*call->in[0], *call->in[2]}, x = *call->in[1];
    if (!strata_lower_is_number_dtype(strata_tensor_dtype(x.tensor))) return refuse_dtype(x.tensor, err);
    for (int i = 0; i < 2; i++) {
        if (bounds[i].shape.rank == 0) bounds[i].tensor = strata_reshape(bounds[i].tensor, strata_lower_ones(x.shape.rank));
        x.tensor = extreme_of(i ? LOWER_MINIMUM : LOWER_MAXIMUM, &x, &bounds[i]);
        x.is_number = false;
    }
    call->out[0].tensor = x.tensor;
    return STRATA_OK;
}

strata_status strata_lower_convert(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 1, err));
    const lowered *x = call->in[0];
    const strata_dtype from = strata_tensor_dtype(x->tensor), to = call->out_dtypes[0];
    const bool is_narrower = strata_dtype_bytes(to) < strata_dtype_bytes(from);
    if (is_narrower && !strata_dtype_is_float(from) && !strata_dtype_is_float(to) && to != STRATA_DTYPE_BOOL)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "XLA keeps the lower bits of a wider integer, and Strata's cast saturates; convert by way of f32 if "
                           "the numbers are small");
    call->out[0].tensor = strata_cast(x->tensor, to);
    call->out[0].is_number = x->is_number;
    if (x->is_number) {
        int64_t element = 0;
        strata_element_set(to, &element, 0, x->number);
        call->out[0].number = strata_element_get(to, &element, 0);
        call->out[0].is_number = to != STRATA_DTYPE_I64 || fabs(x->number) <= 0x1p53;
    }
    return STRATA_OK;
}

/* To the digits of bf16 and back; for others the numbers near 0 differ. */
strata_status strata_lower_reduce_precision(const lower_call *call, strata_error *err) {
    int64_t exponent, mantissa;
    STRATA_TRY(strata_lower_operands(call, 1, err));
    STRATA_TRY(strata_lower_integer(call, "exponent_bits", &exponent, err));
    STRATA_TRY(strata_lower_integer(call, "mantissa_bits", &mantissa, err));
    strata_tensor *x = call->in[0]->tensor;
    const bool is_f32 = strata_tensor_dtype(x) == STRATA_DTYPE_F32;
    if (exponent == 8 && ((is_f32 && mantissa == 23) || strata_tensor_dtype(x) == STRATA_DTYPE_BF16) && mantissa >= 7)
        call->out[0].tensor = x;
    else if (is_f32 && exponent == 8 && mantissa == 7)
        call->out[0].tensor = strata_cast(strata_cast(x, STRATA_DTYPE_BF16), STRATA_DTYPE_F32);
    else
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%d bits of exponent and %d of mantissa; only those of bf16 and f32 are supported", (int)exponent,
                           (int)mantissa);
    return STRATA_OK;
}
