/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize: y = float(x) * scale, bytes to f32, rounded once. It does on the device what a dataset otherwise does on the
 * host. No gradient passes, because x is data. */
#include "core/op/define.h"

typedef struct dequantize_attrs {
    double scale;
} dequantize_attrs;

static strata_status dequantize_shape(strata_tensor *node, strata_error *err) {
    STRATA_TRY(strata_check_dtype(node->inputs[0], "x", 1 << STRATA_DTYPE_U8, err));
    node->dtype = STRATA_DTYPE_F32;
    return STRATA_OK;
}

static void dequantize_reference(strata_op_call *call) {
    const uint8_t *x = call->inputs[0];
    float *y = call->output;
    const float scale = (float)((const dequantize_attrs *)call->node->attrs)->scale;
    for (int64_t i = 0, n = strata_shape_elements(call->node->shape); i < n; i++) y[i] = (float)x[i] * scale;
}

static strata_status dequantize_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = strata_launch_of(node, "dequantize", "u8_f32");
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    STRATA_LAUNCH_FLOATS(&launch, ((const dequantize_attrs *)node->attrs)->scale);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *dequantize_compose(strata_tensor *node) {
    const double scale = ((const dequantize_attrs *)node->attrs)->scale;
    return strata_mul(strata_cast(node->inputs[0], STRATA_DTYPE_F32), strata_scalar(node->graph, STRATA_DTYPE_F32, scale));
}

const strata_op strata_op_dequantize = {.name = "dequantize",
                                        .n_inputs = 1,
                                        .flags = STRATA_OP_ELEMENTWISE,
                                        .attrs_bytes = sizeof(dequantize_attrs),
                                        .attrs = {{"scale", STRATA_ATTR_FLOAT, offsetof(dequantize_attrs, scale)}},
                                        .shape = dequantize_shape,
                                        .reference = dequantize_reference,
                                        .compose = dequantize_compose,
                                        .lower = dequantize_lower};

strata_tensor *strata_dequantize(strata_tensor *x, double scale) {
    return strata_node(NULL, &strata_op_dequantize, 1, &x, &(dequantize_attrs){.scale = scale});
}
