/* SPDX-License-Identifier: Apache-2.0
 *
 * fma_chain: y[i] = x[i] after `steps` times y = fma(y, 0.999, 0.001).  x is f32 of any shape.
 * Its result is not needed: 2 * elements * steps operations with almost no memory traffic measure the rate of a device's
 * multiply-add units. `strata bench` compares the speed of products with this rate. It has no gradient. */
#include "core/op/attrs.h"
#include "core/op/define.h"

enum {
    CHAINS = 8,        /* elements that a work-item of shaders/fma_chain.kernel computes */
    MOST_STEPS = 60000 /* some drivers silently end a kernel's loops after 65,535 iterations (shaders/README.md) */
};

static strata_status fma_chain_shape(strata_tensor *node, strata_error *err) {
    const strata_fma_chain_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    STRATA_TRY(strata_check_dtype(x, "x", 1 << STRATA_DTYPE_F32, err));
    if (attrs->steps < 0 || attrs->steps > MOST_STEPS)
        return strata_fail(err, STRATA_INVALID, "steps is %" PRId64 "; it must be from 0 to %d", attrs->steps, MOST_STEPS);
    return STRATA_OK;
}

static void fma_chain_reference(strata_op_call *call) {
    const strata_fma_chain_attrs *attrs = call->node->attrs;
    const int64_t n = strata_shape_elements(call->node->shape);
    const float *x = call->inputs[0];
    float *y = call->output;
    for (int64_t i = 0; i < n; i++) {
        float value = x[i];
        for (int64_t s = 0; s < attrs->steps; s++) value = fmaf(value, STRATA_FMA_CHAIN_FACTOR, STRATA_FMA_CHAIN_TERM);
        y[i] = value;
    }
}

static strata_status fma_chain_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_fma_chain_attrs *attrs = node->attrs;
    const int64_t n = strata_shape_elements(node->shape);
    strata_launch launch = strata_launch_of(node, "fma_chain", strata_dtype_name(node->dtype));
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    STRATA_LAUNCH_INTS(&launch, attrs->steps);
    launch.global[0] = (n + CHAINS - 1) / CHAINS;
    launch.turns = 0;
    return strata_lowering_add(lowering, &launch, err);
}

const strata_op strata_op_fma_chain = {.name = "fma_chain",
                                       .n_inputs = 1,
                                       .flags = STRATA_OP_ELEMENTWISE,
                                       .attrs_bytes = sizeof(strata_fma_chain_attrs),
                                       .attrs = {{"steps", STRATA_ATTR_INT, offsetof(strata_fma_chain_attrs, steps)}},
                                       .shape = fma_chain_shape,
                                       .no_gradient = "it only measures a device's multiply-adds",
                                       .reference = fma_chain_reference,
                                       .lower = fma_chain_lower};

strata_tensor *strata_fma_chain(strata_tensor *x, int64_t steps) {
    return strata_node(NULL, &strata_op_fma_chain, 1, &x, &(strata_fma_chain_attrs){steps});
}
