/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops: those that StableHLO has, chains of them, and conversions. */
#include "backends/pjrt/lower.h"
#include "core/op/chain.h"
#include "core/op/ops.h"

/* Comparisons have names in capitals. */
hlo_value strata_pjrt_apply(hlo *h, const strata_op *op, const hlo_value *x) {
    const char *name = strata_pjrt_row_of(op)->name;
    if (op->n_inputs == 1) return strata_hlo_unary(h, name, x[0]);
    if (op->n_inputs == 3) return strata_hlo_select(h, x[0], x[1], x[2]);
    return name[0] < 'a' ? strata_hlo_compare(h, name, x[0], x[1]) : strata_hlo_binary(h, name, x[0], x[1]);
}

static const strata_op *step_of(const strata_chain_attrs *attrs, int step) {
    return strata_chain_op((int)(attrs->steps[step] & 255));
}

static const char *refuse_composed(const strata_tensor *node) {
    const strata_chain_attrs *attrs = node->attrs;
    for (int s = 0; s < attrs->n_steps; s++)
        if (!strata_pjrt_row_of(step_of(attrs, s))) return "a step of it is no op of StableHLO";
    return NULL;
}

/* Each step is rounded to the chain's dtype, like a separate op whose result is stored. */
static hlo_value chain(hlo *h, const strata_tensor *node) {
    const strata_chain_attrs *attrs = node->attrs;
    hlo_value values[STRATA_CHAIN_VALUES];
    for (int i = 0; i < node->n_inputs; i++) values[i] = strata_pjrt_number(h, node, i);
    for (int s = 0; s < attrs->n_steps; s++) {
        const strata_op *op = step_of(attrs, s);
        hlo_value x[STRATA_CHAIN_ARGUMENTS];
        for (int i = 0; i < op->n_inputs; i++) x[i] = values[attrs->steps[s] >> (8 + 8 * i) & 255];
        hlo_value y = strata_pjrt_apply(h, op, x);
        if (y.type != HLO_I1) y = strata_hlo_convert(h, strata_pjrt_round(h, y, node->dtype), y.type);
        values[STRATA_CHAIN_OPERANDS + s] = y;
    }
    return values[STRATA_CHAIN_OPERANDS + attrs->n_steps - 1];
}

/* StableHLO does not define conversions of numbers that the type cannot represent. Here NaN becomes 0, and other
 * numbers become the nearest integer of the type. */
static hlo_value saturate(hlo *h, hlo_value x, int type, double least, double most) {
    const hlo_value low = strata_hlo_scalar(h, type, least);
    const hlo_value high =
        type == HLO_I64 ? strata_hlo_data(h, type, STRATA_SHAPE(), &(int64_t){INT64_MAX}) : strata_hlo_scalar(h, type, most);
    hlo_value y = strata_hlo_convert(h, x, type);
    y = strata_hlo_select(h, strata_hlo_compare_with(h, "LE", x, least), low, y);
    y = strata_hlo_select(h, strata_hlo_compare_with(h, "GE", x, most), high, y);
    return strata_hlo_keep(h, strata_hlo_compare(h, "EQ", x, x), y);
}

static hlo_value cast(hlo *h, const strata_tensor *node) {
    static const double least[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_I32] = INT32_MIN, [STRATA_DTYPE_I64] = -0x1p63};
    static const double most[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_I32] = INT32_MAX, [STRATA_DTYPE_I64] = 0x1p63, [STRATA_DTYPE_U8] = UINT8_MAX};
    const strata_dtype from = node->inputs[0]->dtype, to = node->dtype;
    const hlo_value x = strata_pjrt_number(h, node, 0);
    if (to == STRATA_DTYPE_BOOL) return strata_hlo_compare_with(h, "NE", x, 0);
    if (strata_dtype_is_float(to)) return strata_hlo_convert(h, x, HLO_F32);
    if (strata_dtype_is_float(from)) return saturate(h, x, (int)to, least[to], most[to]);
    if (strata_dtype_bytes(from) <= strata_dtype_bytes(to) || to == STRATA_DTYPE_I64) return x;
    return strata_hlo_with(h, "minimum", strata_hlo_with(h, "maximum", x, least[to]), most[to]);
}

#define NAMED(which, text) \
    { .op = &strata_op_##which, .name = text }
const pjrt_row strata_pjrt_elementwise[] = {NAMED(neg, "negate"),
                                            NAMED(abs, "abs"),
                                            NAMED(sign, "sign"),
                                            NAMED(exp, "exponential"),
                                            NAMED(log, "log"),
                                            NAMED(sqrt, "sqrt"),
                                            NAMED(rsqrt, "rsqrt"),
                                            NAMED(tanh, "tanh"),
                                            NAMED(sigmoid, "logistic"),
                                            NAMED(sin, "sine"),
                                            NAMED(cos, "cosine"),
                                            NAMED(add, "add"),
                                            NAMED(sub, "subtract"),
                                            NAMED(mul, "multiply"),
                                            NAMED(div, "divide"),
                                            NAMED(pow, "power"),
                                            NAMED(min, "minimum"),
                                            NAMED(max, "maximum"),
                                            NAMED(equal, "EQ"),
                                            NAMED(not_equal, "NE"),
                                            NAMED(less, "LT"),
                                            NAMED(less_equal, "LE"),
                                            NAMED(greater, "GT"),
                                            NAMED(greater_equal, "GE"),
                                            NAMED(where, "select"),
                                            {.op = &strata_op_chain, .lower = chain, .refuse = refuse_composed},
                                            PJRT_ROW(cast),
                                            {0}};
