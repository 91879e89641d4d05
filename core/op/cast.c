/* SPDX-License-Identifier: Apache-2.0
 *
 * cast: x in another dtype. Float to integer truncates toward zero and saturates, NaN gives 0; integer to integer saturates;
 * anything to bool is x != 0; to a float rounds to nearest even (integers by way of f32).
 * gradient: dy cast back, between floats only. */
#include "core/op/define.h"

typedef struct cast_attrs {
    int64_t dtype; /* strata_dtype */
} cast_attrs;

static strata_status cast_shape(strata_tensor *node, strata_error *err) {
    const cast_attrs *attrs = node->attrs;
    if (attrs->dtype < 0 || attrs->dtype >= STRATA_DTYPE_COUNT)
        return strata_fail(err, STRATA_INVALID, "dtype %d is not known", (int)attrs->dtype);
    node->dtype = (strata_dtype)attrs->dtype;
    return STRATA_OK;
}

static void cast_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_dtype from = node->inputs[0]->dtype;
    if (strata_dtype_is_float(from) && strata_dtype_is_float(node->dtype)) dx[0] = strata_cast(dy, from);
}

static int64_t saturated(strata_dtype dtype, int64_t value) {
    const int64_t least = dtype == STRATA_DTYPE_I32 ? INT32_MIN : 0;
    const int64_t most = dtype == STRATA_DTYPE_I32 ? INT32_MAX : UINT8_MAX;
    if (dtype == STRATA_DTYPE_I64 || dtype == STRATA_DTYPE_BOOL) return value;
    return value < least ? least : value > most ? most : value;
}

static void cast_reference(strata_op_call *call) {
    const strata_dtype from = call->node->inputs[0]->dtype, to = call->node->dtype;
    const void *x = call->inputs[0];
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) {
        if (strata_dtype_is_float(from))
            strata_element_set(to, call->output, i, strata_element_get(from, x, i));
        else if (strata_dtype_is_float(to))
            strata_element_set(to, call->output, i, (float)strata_integer_get(from, x, i));
        else
            strata_integer_set(to, call->output, i, saturated(to, strata_integer_get(from, x, i)));
    }
}

static strata_status cast_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    static const char *const variants[STRATA_DTYPE_COUNT][STRATA_DTYPE_COUNT] = {
        {NULL, "f32_f16", "f32_bf16", "f32_i32", "f32_i64", "f32_u8", "f32_bool"},
        {"f16_f32", NULL, "f16_bf16", "f16_i32", "f16_i64", "f16_u8", "f16_bool"},
        {"bf16_f32", "bf16_f16", NULL, "bf16_i32", "bf16_i64", "bf16_u8", "bf16_bool"},
        {"i32_f32", "i32_f16", "i32_bf16", NULL, "i32_i64", "i32_u8", "i32_bool"},
        {"i64_f32", "i64_f16", "i64_bf16", "i64_i32", NULL, "i64_u8", "i64_bool"},
        {"u8_f32", "u8_f16", "u8_bf16", "u8_i32", "u8_i64", NULL, "u8_bool"},
        {"bool_f32", "bool_f16", "bool_bf16", "bool_i32", "bool_i64", "bool_u8", NULL}};
    const strata_tensor *x = node->inputs[0];
    const int64_t n = strata_shape_elements(node->shape);
    if (x->dtype == node->dtype) {
        strata_copy copy = strata_copy_flat(x, node, 0);
        return strata_copy_lower(&copy, lowering, err);
    }
    strata_launch launch = strata_launch_of(node, "cast", variants[x->dtype][node->dtype]);
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    return strata_lowering_add(lowering, &launch, err);
}

/* Between floats a cast is linear but for rounding. */
static void cast_factors(const strata_tensor *node, strata_factors *factors) {
    strata_factors_row("...->...", node, factors);
    if (strata_dtype_is_float(node->inputs[0]->dtype) && strata_dtype_is_float(node->dtype))
        factors->linearity = STRATA_LINEAR_JOINTLY;
}

const strata_op strata_op_cast = {.name = "cast",
                                  .n_inputs = 1,
                                  .flags = STRATA_OP_ELEMENTWISE,
                                  .attrs_bytes = sizeof(cast_attrs),
                                  .attrs = {{"dtype", STRATA_ATTR_INT, offsetof(cast_attrs, dtype)}},
                                  .words = strata_dtype_words,
                                  .factors = cast_factors,
                                  .shape = cast_shape,
                                  .gradient = cast_gradient,
                                  .reference = cast_reference,
                                  .lower = cast_lower};

strata_tensor *strata_cast(strata_tensor *x, strata_dtype dtype) {
    if (!strata_tensor_is_poison(x) && x->dtype == dtype) return x;
    return strata_node(NULL, &strata_op_cast, 1, &x, &(cast_attrs){.dtype = dtype});
}
