/* SPDX-License-Identifier: Apache-2.0
 *
 * where: y = condition ? a : b, the three broadcast together.
 * gradient: a gets dy where the condition is true, and b where it is false, else 0; both are summed over broadcast axes. */
#include "core/op/chain.h"
#include "core/op/define.h"

static strata_status where_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *condition = node->inputs[0], *a = node->inputs[1], *b = node->inputs[2];
    strata_shape values;
    STRATA_TRY(strata_check_dtype(condition, "condition", 1 << STRATA_DTYPE_BOOL, err));
    STRATA_TRY(strata_check_same_dtype(a, "a", b, "b", err));
    STRATA_TRY(strata_broadcast_shape(a->shape, "a", b->shape, "b", &values, err));
    node->dtype = a->dtype;
    return strata_broadcast_shape(condition->shape, "condition", values, "a with b", &node->shape, err);
}

static void where_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *condition = node->inputs[0], *zero = strata_scalar(dy->graph, dy->dtype, 0);
    dx[1] = strata_sum_to(strata_where(condition, dy, zero), node->inputs[1]->shape);
    dx[2] = strata_sum_to(strata_where(condition, zero, dy), node->inputs[2]->shape);
}

static void choose_row(const strata_strided *space, const int64_t *offsets, void *user) {
    const strata_op_call *call = user;
    const size_t bytes = strata_dtype_bytes(call->node->dtype);
    const uint8_t *condition = call->inputs[0];
    const int last = space->rank - 1;
    char *y = (char *)call->output + (size_t)offsets[3] * bytes; /* y is contiguous */
    for (int64_t j = 0; j < space->sizes[last]; j++, y += bytes) {
        const int taken = condition[offsets[0] + j * space->strides[0][last]] ? 1 : 2;
        const char *source = call->inputs[taken];
        memcpy(y, source + (size_t)(offsets[taken] + j * space->strides[taken][last]) * bytes, bytes);
    }
}

static void where_reference(strata_op_call *call) {
    const strata_strided space = strata_elementwise_space(call->node);
    strata_strided_rows(&space, choose_row, call);
}

static strata_status where_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_launch launch = strata_launch_of(node, "where", strata_bits_variant(node->dtype));
    const strata_strided space = strata_elementwise_space(node);
    return strata_strided_lower(&launch, &space, 3, lowering, err);
}

static void where_factors(const strata_tensor *node, strata_factors *factors) {
    strata_factors_row("...->...", node, factors);
    factors->linearity = STRATA_LINEAR_JOINTLY;
    factors->linear_operands = 1 << 1 | 1 << 2;
}

const strata_op strata_op_where = {.name = "where",
                                   .n_inputs = 3,
                                   .flags = STRATA_OP_ELEMENTWISE,
                                   .factors = where_factors,
                                   .shape = where_shape,
                                   .gradient = where_gradient,
                                   .reference = where_reference,
                                   .lower = where_lower};

strata_tensor *strata_where(strata_tensor *condition, strata_tensor *a, strata_tensor *b) {
    return strata_node(NULL, &strata_op_where, 3, (strata_tensor *[]){condition, a, b}, NULL);
}
