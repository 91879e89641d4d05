/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops: the formulas of core/op/elementwise.def, chains of them, and the ops that have attributes. */
#include "backends/pjrt/lower.h"
#include "core/op/chain.h"
#include "core/op/ops.h"

/* Each step is rounded to the chain's dtype, like a separate op whose result is stored. */
static hlo_value chain(hlo *h, const strata_tensor *node) {
    const strata_chain_attrs *attrs = node->attrs;
    hlo_value values[STRATA_CHAIN_VALUES];
    for (int i = 0; i < node->n_inputs; i++) values[i] = strata_pjrt_number(h, node, i);
    for (int s = 0; s < attrs->n_steps; s++) {
        const strata_op *op = strata_chain_op((int)(attrs->steps[s] & 255));
        hlo_value x[STRATA_CHAIN_ARGUMENTS];
        for (int i = 0; i < op->n_inputs; i++) x[i] = values[attrs->steps[s] >> (8 + 8 * i) & 255];
        hlo_value y = strata_hlo_formula(h, strata_pjrt_row_of(op)->formula, x);
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

static hlo_value clip(hlo *h, const strata_tensor *node) {
    const double low = bound(node->dtype, strata_pjrt_float(node, "low")),
                 high = bound(node->dtype, strata_pjrt_float(node, "high"));
    return strata_hlo_with(h, "minimum", strata_hlo_with(h, "maximum", strata_pjrt_number(h, node, 0), low), high);
}

static hlo_value dequantize(hlo *h, const strata_tensor *node) {
    return strata_hlo_with(h, "multiply", strata_hlo_convert(h, strata_pjrt_operand(h, node, 0), HLO_F32),
                           strata_pjrt_float(node, "scale"));
}

/* StableHLO does not define conversions of numbers that the type cannot represent. Here NaN becomes 0, and other
 * numbers become the nearest integer of the type. */
static hlo_value saturate(hlo *h, hlo_value x, int type, double least, double most) {
    const hlo_value rounded = strata_hlo_convert(h, x, type), low = strata_hlo_scalar(h, type, least);
    const hlo_value high =
        type == HLO_I64 ? strata_hlo_data(h, type, STRATA_SHAPE(), &(int64_t){INT64_MAX}) : strata_hlo_scalar(h, type, most);
    const hlo_value first = strata_hlo_scalar(h, x.type, least), last = strata_hlo_scalar(h, x.type, most);
    return HLO_FORMULA(h, "b != b ? 0 : b >= f ? d : b <= e ? c : a", rounded, x, low, high, first, last);
}

static hlo_value cast(hlo *h, const strata_tensor *node) {
    static const double least[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_I32] = INT32_MIN, [STRATA_DTYPE_I64] = -0x1p63};
    static const double most[STRATA_DTYPE_COUNT] = {
        [STRATA_DTYPE_I32] = INT32_MAX, [STRATA_DTYPE_I64] = 0x1p63, [STRATA_DTYPE_U8] = UINT8_MAX};
    const strata_dtype from = node->inputs[0]->dtype, to = node->dtype;
    const hlo_value x = strata_pjrt_number(h, node, 0);
    if (to == STRATA_DTYPE_BOOL) return HLO_FORMULA(h, "x != 0", x);
    if (strata_dtype_is_float(to)) return strata_hlo_convert(h, x, HLO_F32);
    if (strata_dtype_is_float(from)) return saturate(h, x, (int)to, least[to], most[to]);
    if (strata_dtype_bytes(from) <= strata_dtype_bytes(to) || to == STRATA_DTYPE_I64) return x;
    return strata_hlo_with(h, "minimum", strata_hlo_with(h, "maximum", x, least[to]), most[to]);
}

const pjrt_row strata_pjrt_elementwise[] = {
#define UNARY_NUMBER(code, name, expression) {.op = &strata_op_##name, .formula = #expression},
#define UNARY_FLOAT                          UNARY_NUMBER
#define BINARY_NUMBER                        UNARY_NUMBER
#define BINARY_FLOAT                         UNARY_NUMBER
#define COMPARE                              UNARY_NUMBER
#include "core/op/elementwise.def"
    {.op = &strata_op_where, .formula = "a ? b : c"},
    PJRT_ROW(chain),
    PJRT_ROW(clip),
    PJRT_ROW(dequantize),
    PJRT_ROW(cast),
    {0}};
