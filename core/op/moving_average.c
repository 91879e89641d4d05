/* SPDX-License-Identifier: Apache-2.0
 *
 * moving_average: state += rates (value - state), element by element, in place; with a rate of 1 the state becomes exactly the
 * value, and with a rate of 0 it does not change, even if it is infinite. All are f32 of one shape; gate as for the optimizers:
 * an f32 scalar, and nothing is changed unless it is finite. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { STATE, VALUE, RATES, GATE };

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"state", "value", "rates", "gate"};
    const strata_tensor *state = node->inputs[STATE];
    if (!strata_variable_behind(state))
        return strata_fail(err, STRATA_INVALID, "state is the result of %s; it must come from strata_variable_read",
                           state->op->name);
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *x = node->inputs[i];
        STRATA_TRY(strata_check_dtype(x, names[i], 1u << STRATA_DTYPE_F32, err));
        if (i < GATE && !strata_shape_equal(x->shape, state->shape))
            return strata_fail(err, STRATA_INVALID, "state is %s, %s is %s; they must be equal",
                               strata_shape_text(state->shape).text, names[i], strata_shape_text(x->shape).text);
    }
    if (node->n_inputs > GATE && strata_shape_elements(node->inputs[GATE]->shape) != 1)
        return strata_fail(err, STRATA_INVALID, "gate is %s; it must be one number",
                           strata_shape_text(node->inputs[GATE]->shape).text);
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    const float *value = call->inputs[VALUE], *rates = call->inputs[RATES];
    float *state = call->output;
    if (!strata_gate_is_open(call->node->n_inputs > GATE ? call->inputs[GATE] : NULL)) return;
    int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) {
        const double old = (double)state[i], v = (double)value[i], rate = (double)rates[i];
        if (rate != 0) state[i] = rate == 1 ? value[i] : (float)(old + rate * (v - old));
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const bool gated = node->n_inputs > GATE;
    const int64_t n = strata_shape_elements(node->shape);
    strata_launch launch = {.kernel = "moving_average",
                            .variant = "f32",
                            .n_buffers = 4,
                            .buffers = {node, node->inputs[VALUE], node->inputs[RATES], gated ? node->inputs[GATE] : NULL},
                            .writes = 1};
    strata_launch_constant_add(&launch, "GATE", gated);
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *state = node->inputs[STATE], *value = node->inputs[VALUE], *rates = node->inputs[RATES];
    strata_tensor *moved = strata_add(state, strata_mul(rates, strata_sub(value, state)));
    strata_tensor *is_all = strata_equal(rates, strata_scalar(node->graph, STRATA_DTYPE_F32, 1));
    strata_tensor *is_none = strata_equal(rates, strata_scalar(node->graph, STRATA_DTYPE_F32, 0));
    strata_tensor *next = strata_where(is_all, value, strata_where(is_none, state, moved));
    if (node->n_inputs > GATE) next = strata_where(strata_update_open(node->inputs[GATE]), next, state);
    return strata_assign(state, next);
}

/* Linear in state and value together. */
static void factors(const strata_tensor *node, strata_factors *factors) {
    strata_factors_row("...->...", node, factors);
    factors->linear_operands = 1u << STATE | 1u << VALUE;
}

const strata_op strata_op_moving_average = {.name = "moving_average",
                                            .n_inputs = 3,
                                            .optional_inputs = 1,
                                            .flags = STRATA_OP_UPDATE,
                                            .factors = factors,
                                            .linearity = STRATA_LINEAR_JOINTLY,
                                            .shape = shape,
                                            .no_gradient = "it changes a variable",
                                            .reference = reference,
                                            .compose = compose,
                                            .lower = lower};

strata_tensor *strata_moving_average(strata_tensor *state, strata_tensor *value, strata_tensor *rates, strata_tensor *gate) {
    strata_tensor *inputs[] = {state, value, rates, gate};
    return strata_node(NULL, &strata_op_moving_average, gate ? 4 : 3, inputs, NULL);
}
