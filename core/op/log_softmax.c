/* SPDX-License-Identifier: Apache-2.0
 *
 * log_softmax over the last axis: y = x - log sum exp x, and its gradient as an op of its own. */
#include <math.h>

#include "core/op/softmax.h"
#include "strata/ops.h"

extern const strata_op strata_op_log_softmax_grad;

static strata_status shape(strata_tensor *node, strata_error *err) {
    STRATA_TRY(strata_check_rows(node->inputs[0], "x", err));
    node->dtype = node->inputs[0]->dtype;
    node->shape = node->inputs[0]->shape;
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_node(NULL, &strata_op_log_softmax_grad, 2, (strata_tensor *[]){node, dy}, NULL);
}

static strata_status reference(const strata_op_call *call, strata_error *err) {
    (void)err;
    strata_rows rows = strata_rows_of(call->node->shape);
    strata_dtype dtype = call->node->dtype;
    for (int64_t row = 0; row < rows.n; row++) {
        double log_sum = strata_row_log_sum_exp(dtype, call->inputs[0], row, rows.c);
        for (int64_t i = row * rows.c; i < (row + 1) * rows.c; i++)
            strata_element_set(dtype, call->output, i, strata_element_get(dtype, call->inputs[0], i) - log_sum);
    }
    return STRATA_OK;
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    return strata_softmax_lower(node, true, lowering, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = strata_less_most_of_rows(node->inputs[0]);
    return strata_sub(x, strata_log(strata_sum_of_rows(strata_exp(x))));
}

const strata_op strata_op_log_softmax = {
    .name = "log_softmax",
    .min_inputs = 1,
    .max_inputs = 1,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

/* ---- log_softmax_grad(y, dy): dx = dy - exp(y) sum_c dy ---- */

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    return strata_check_rows_pair(node, "y", "dy", err);
}

/* By dy: g - sum_c g exp(y);   by y: -g exp(y) sum_c dy. */
static void grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_tensor *weighted = strata_mul(g, strata_exp(node->inputs[0]));
    dx[0] = strata_neg(strata_mul(weighted, strata_sum_of_rows(node->inputs[1])));
    dx[1] = strata_sub(g, strata_sum_of_rows(weighted));
}

static strata_status grad_reference(const strata_op_call *call, strata_error *err) {
    (void)err;
    strata_rows rows = strata_rows_of(call->node->shape);
    strata_dtype dtype = call->node->dtype;
    for (int64_t row = 0; row < rows.n; row++) {
        double sum = 0;
        int64_t first = row * rows.c, end = first + rows.c;
        for (int64_t i = first; i < end; i++) sum += strata_element_get(dtype, call->inputs[1], i);
        for (int64_t i = first; i < end; i++)
            strata_element_set(
                dtype, call->output, i,
                strata_element_get(dtype, call->inputs[1], i) - exp(strata_element_get(dtype, call->inputs[0], i)) * sum);
    }
    return STRATA_OK;
}

static strata_status grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    return strata_softmax_grad_lower(node, true, lowering, err);
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *y = node->inputs[0], *dy = node->inputs[1];
    return strata_sub(dy, strata_mul(strata_exp(y), strata_sum_of_rows(dy)));
}

const strata_op strata_op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .shape = grad_shape,
    .gradient = grad_gradient,
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = grad_lower,
};

strata_tensor *strata_log_softmax(strata_tensor *x) {
    return strata_node(NULL, &strata_op_log_softmax, 1, &x, NULL);
}
