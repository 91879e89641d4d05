/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops: the formulas of core/op/elementwise.def, chains of them, and the three ops that have attributes. */
#include <math.h>

#include "backends/pjrt/rows.h"
#include "core/op/chain.h"

static hlo_value times(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "multiply", a, b);
}
static hlo_value plus(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "add", a, b);
}
static hlo_value minus(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "subtract", a, b);
}
static hlo_value zero_like(hlo *h, hlo_value x) {
    return strata_hlo_fill(h, x.type, x.shape, 0);
}
/* number - x */
static hlo_value from(hlo *h, double number, hlo_value x) {
    return minus(h, strata_hlo_fill(h, x.type, x.shape, number), x);
}
static hlo_value below_zero(hlo *h, hlo_value x) {
    return strata_hlo_compare(h, "LT", x, zero_like(h, x));
}

hlo_value strata_pjrt_unary(hlo *h, const char *name, const hlo_value *x) {
    return strata_hlo_unary(h, name, x[0]);
}
hlo_value strata_pjrt_binary(hlo *h, const char *name, const hlo_value *x) {
    return strata_hlo_binary(h, name, x[0], x[1]);
}
hlo_value strata_pjrt_compare(hlo *h, const char *name, const hlo_value *x) {
    return strata_hlo_compare(h, name, x[0], x[1]);
}
hlo_value strata_pjrt_where(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return strata_hlo_select(h, x[0], x[1], x[2]);
}
hlo_value strata_pjrt_square(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, x[0], x[0]);
}
hlo_value strata_pjrt_relu(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return strata_hlo_with(h, "maximum", x[0], 0);
}

/* coefficients[0] belongs to the highest power. */
static hlo_value polynomial(hlo *h, hlo_value x, const double *coefficients, int n) {
    hlo_value p = strata_hlo_fill(h, x.type, x.shape, coefficients[0]);
    for (int i = 1; i < n; i++) p = strata_hlo_with(h, "add", times(h, p, x), coefficients[i]);
    return p;
}

/* StableHLO has no erf. Below 1 this is its series; from 1 on it is the rational approximation of erfc in Abramowitz &
 * Stegun, 7.1.26. shaders/glsl_math.h computes it in the same way. */
static hlo_value erf_of(hlo *h, hlo_value x) {
    static const double series[] = {1.3122533e-8, -1.4503852e-7, 1.4589169e-6, -1.3227513e-5, 1.0683761e-4, -7.5757576e-4,
                                    4.6296296e-3, -2.3809524e-2, 0.1,          -0.33333333,   1.0};
    static const double rational[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0};
    const hlo_value a = strata_hlo_unary(h, "abs", x), square = times(h, x, x);
    const hlo_value small = strata_hlo_with(h, "multiply", times(h, polynomial(h, square, series, 11), x), 1.1283791670955126);
    const hlo_value one = strata_hlo_fill(h, x.type, x.shape, 1);
    const hlo_value t =
        strata_hlo_binary(h, "divide", one, strata_hlo_with(h, "add", strata_hlo_with(h, "multiply", a, 0.3275911), 1));
    const hlo_value decay = strata_hlo_unary(h, "exponential", strata_hlo_unary(h, "negate", square));
    const hlo_value large =
        times(h, strata_hlo_unary(h, "sign", x), from(h, 1, times(h, polynomial(h, t, rational, 6), decay)));
    return strata_hlo_select(h, strata_hlo_compare(h, "LT", a, one), small, large);
}

hlo_value strata_pjrt_erf(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return erf_of(h, x[0]);
}

/* (1 + erf(x / sqrt 2)) / 2 */
static hlo_value normal_below(hlo *h, hlo_value x) {
    return strata_hlo_with(h, "multiply",
                           strata_hlo_with(h, "add", erf_of(h, strata_hlo_with(h, "multiply", x, 0.7071067811865476)), 1), 0.5);
}

hlo_value strata_pjrt_gelu(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, x[0], normal_below(h, x[0]));
}

hlo_value strata_pjrt_gelu_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    const hlo_value b = x[1], decay = strata_hlo_unary(h, "exponential", strata_hlo_with(h, "multiply", times(h, b, b), -0.5));
    const hlo_value slope = times(h, strata_hlo_with(h, "multiply", b, 0.3989422804014327), decay);
    return times(h, x[0], plus(h, normal_below(h, b), slope));
}

/* tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static hlo_value gelu_tanh_of(hlo *h, hlo_value x) {
    const hlo_value cube = strata_hlo_with(h, "multiply", times(h, times(h, x, x), x), 0.044715);
    return strata_hlo_unary(h, "tanh", strata_hlo_with(h, "multiply", plus(h, x, cube), 0.7978845608028654));
}

hlo_value strata_pjrt_gelu_tanh(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, strata_hlo_with(h, "multiply", x[0], 0.5), strata_hlo_with(h, "add", gelu_tanh_of(h, x[0]), 1));
}

hlo_value strata_pjrt_gelu_tanh_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    const hlo_value b = x[1], t = gelu_tanh_of(h, b);
    const hlo_value inner = strata_hlo_with(h, "add", strata_hlo_with(h, "multiply", times(h, b, b), 0.134145), 1);
    const hlo_value slope =
        times(h, times(h, strata_hlo_with(h, "multiply", b, 0.3989422804014327), from(h, 1, times(h, t, t))), inner);
    return times(h, x[0], plus(h, strata_hlo_with(h, "multiply", strata_hlo_with(h, "add", t, 1), 0.5), slope));
}

hlo_value strata_pjrt_silu(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, x[0], strata_hlo_unary(h, "logistic", x[0]));
}

hlo_value strata_pjrt_silu_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    const hlo_value s = strata_hlo_unary(h, "logistic", x[1]);
    return times(h, times(h, x[0], s), strata_hlo_with(h, "add", times(h, x[1], from(h, 1, s)), 1));
}

/* log(1 + e^-|x|) */
static hlo_value log_of_decay(hlo *h, hlo_value x) {
    const hlo_value decay = strata_hlo_unary(h, "exponential", strata_hlo_unary(h, "negate", strata_hlo_unary(h, "abs", x)));
    return strata_hlo_unary(h, "log_plus_one", decay);
}

hlo_value strata_pjrt_softplus(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return plus(h, strata_hlo_with(h, "maximum", x[0], 0), log_of_decay(h, x[0]));
}

hlo_value strata_pjrt_relu_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return strata_hlo_select(h, strata_hlo_compare(h, "GT", x[1], zero_like(h, x[1])), x[0], zero_like(h, x[0]));
}

hlo_value strata_pjrt_tanh_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, x[0], from(h, 1, times(h, x[1], x[1])));
}

hlo_value strata_pjrt_sigmoid_grad(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return times(h, times(h, x[0], x[1]), from(h, 1, x[1]));
}

hlo_value strata_pjrt_leaky_relu(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return strata_hlo_select(h, below_zero(h, x[0]), times(h, x[0], x[1]), x[0]);
}

hlo_value strata_pjrt_elu(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return strata_hlo_select(h, below_zero(h, x[0]), times(h, x[1], strata_hlo_unary(h, "exponential_minus_one", x[0])), x[0]);
}

hlo_value strata_pjrt_sigmoid_cross_entropy(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return plus(h, minus(h, strata_hlo_with(h, "maximum", x[0], 0), times(h, x[0], x[1])), log_of_decay(h, x[0]));
}

hlo_value strata_pjrt_sigmoid_sub(hlo *h, const char *name, const hlo_value *x) {
    (void)name;
    return minus(h, strata_hlo_unary(h, "logistic", x[0]), x[1]);
}

/* ---- nodes ---- */

/* Each step is rounded to the chain's dtype, like a separate op whose result is stored. */
hlo_value strata_pjrt_chain(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    const strata_chain_attrs *attrs = node->attrs;
    hlo *h = strata_pjrt_text_of(l);
    hlo_value values[STRATA_CHAIN_VALUES];
    for (int i = 0; i < node->n_inputs; i++) values[i] = strata_pjrt_number(l, node, i);
    for (int s = 0; s < attrs->n_steps; s++) {
        const strata_op *op = strata_chain_op((int)(attrs->steps[s] & 255));
        const pjrt_row *row = strata_pjrt_row_of(op);
        hlo_value x[STRATA_CHAIN_ARGUMENTS];
        for (int i = 0; i < op->n_inputs; i++) x[i] = values[attrs->steps[s] >> (8 + 8 * i) & 255];
        hlo_value y = row->element(h, row->name, x);
        if (y.type != HLO_I1) y = strata_hlo_convert(h, strata_pjrt_round(h, y, node->dtype), y.type);
        values[STRATA_CHAIN_OPERANDS + s] = y;
    }
    return values[STRATA_CHAIN_OPERANDS + attrs->n_steps - 1];
}

/* The nearest bound that the dtype can represent. */
static double bound(strata_dtype dtype, double value) {
    if (strata_dtype_is_float(dtype)) return value;
    return value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value;
}

hlo_value strata_pjrt_clip(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value raised =
        strata_hlo_with(h, "maximum", strata_pjrt_number(l, node, 0), bound(node->dtype, strata_pjrt_float(node, "low")));
    return strata_hlo_with(h, "minimum", raised, bound(node->dtype, strata_pjrt_float(node, "high")));
}

hlo_value strata_pjrt_dequantize(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    return strata_hlo_with(h, "multiply", strata_hlo_convert(h, strata_pjrt_operand(l, node, 0), HLO_F32),
                           strata_pjrt_float(node, "scale"));
}

/* StableHLO does not define conversions of numbers that the type cannot represent. Here NaN becomes 0, and other
 * numbers become the nearest integer of the type. */
static hlo_value saturate(hlo *h, hlo_value x, int type, double least, double most) {
    const hlo_value rounded = strata_hlo_convert(h, x, type);
    const hlo_value low = strata_hlo_fill(h, type, x.shape, least);
    const hlo_value high = type == HLO_I64 ? strata_hlo_data(h, type, STRATA_SHAPE(), &(int64_t){INT64_MAX})
                                           : strata_hlo_fill(h, type, x.shape, most);
    const hlo_value above = strata_hlo_compare(h, "GE", x, strata_hlo_fill(h, x.type, x.shape, most));
    const hlo_value below = strata_hlo_compare(h, "LE", x, strata_hlo_fill(h, x.type, x.shape, least));
    const hlo_value inside = strata_hlo_select(h, above, high, strata_hlo_select(h, below, low, rounded));
    return strata_hlo_select(h, strata_hlo_compare(h, "NE", x, x), zero_like(h, rounded), inside);
}

hlo_value strata_pjrt_cast(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    static const double least[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_I32] = INT32_MIN, [STRATA_DTYPE_I64] = -0x1p63};
    static const double most[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_I32] = INT32_MAX, [STRATA_DTYPE_I64] = 0x1p63, [STRATA_DTYPE_U8] = UINT8_MAX};
    const strata_dtype from_dtype = node->inputs[0]->dtype, to = node->dtype;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value x = strata_pjrt_number(l, node, 0);
    if (to == STRATA_DTYPE_BOOL) return strata_hlo_compare(h, "NE", x, zero_like(h, x));
    if (strata_dtype_is_float(to)) return strata_hlo_convert(h, x, HLO_F32);
    if (strata_dtype_is_float(from_dtype)) return saturate(h, x, (int)to, least[to], most[to]);
    if (strata_dtype_bytes(from_dtype) <= strata_dtype_bytes(to) || to == STRATA_DTYPE_I64)
        return strata_hlo_convert(h, x, (int)to);
    const hlo_value raised = strata_hlo_with(h, "maximum", x, least[to]);
    return strata_hlo_convert(h, strata_hlo_with(h, "minimum", raised, most[to]), (int)to);
}
