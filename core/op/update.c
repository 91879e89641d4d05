/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the optimizers' ops (update.h). */
#include "core/op/update.h"

#include "core/op/define.h"

extern const strata_op strata_op_read, strata_op_gather, strata_op_slice;

const strata_variable *strata_variable_behind(const strata_tensor *tensor) {
    while (tensor->op->flags & STRATA_OP_UPDATE) tensor = tensor->inputs[0];
    return tensor->op == &strata_op_read ? ((const strata_read_attrs *)tensor->attrs)->variable : NULL;
}

/* The variable that a range may change in place. The range is the value of the variable, or rows gathered from it. */
static const strata_variable *variable_of_range(const strata_tensor *range) {
    while (range->op->flags & STRATA_OP_UPDATE) range = range->inputs[0];
    if (range->op != &strata_op_gather) return strata_variable_behind(range);
    for (range = range->inputs[0]; range->op == &strata_op_slice || range->op->flags & STRATA_OP_VIEW;)
        range = range->inputs[0];
    return strata_variable_behind(range);
}

static strata_status check_variables(const strata_tensor *node, unsigned variables, const char *const *names,
                                     strata_error *err) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (!(variables >> i & 1)) continue;
        const strata_variable *variable = variable_of_range(node->inputs[i]);
        if (!variable)
            return strata_fail(err, STRATA_INVALID,
                               "%s is the result of %s; it is changed in place, so it must come from "
                               "strata_variable_read",
                               names[i], node->inputs[i]->op->name);
        for (int j = 0; j < i; j++)
            if (variables >> j & 1 && variable_of_range(node->inputs[j]) == variable)
                return strata_fail(err, STRATA_INVALID, "%s and %s are one variable; they must be two", names[j], names[i]);
    }
    return STRATA_OK;
}

strata_status strata_check_update(strata_tensor *node, unsigned variables, int n_ranges, const char *const *names,
                                  bool has_gate, strata_error *err) {
    const strata_tensor *first = node->inputs[0], *step = node->inputs[n_ranges];
    STRATA_TRY(check_variables(node, variables, names, err));
    for (int i = 0; i < n_ranges; i++) {
        const strata_tensor *range = node->inputs[i];
        STRATA_TRY(strata_check_dtype(range, names[i], 1u << STRATA_DTYPE_F32, err));
        const bool shorter = i == n_ranges - 1 && range->shape.rank == 1 && first->shape.rank == 1 &&
                             range->shape.dims[0] < first->shape.dims[0];
        if (!shorter && !strata_shape_equal(range->shape, first->shape))
            return strata_fail(err, STRATA_INVALID, "%s is %s, %s is %s; they must be equal", names[0],
                               strata_shape_text(first->shape).text, names[i], strata_shape_text(range->shape).text);
    }
    STRATA_TRY(strata_check_dtype(step, "step", 1u << STRATA_DTYPE_F32, err));
    if (!strata_shape_equal(step->shape, STRATA_SHAPE(STRATA_STEP_WORDS)))
        return strata_fail(err, STRATA_INVALID, "step is %s; it must be (%d)", strata_shape_text(step->shape).text,
                           STRATA_STEP_WORDS);
    if (!has_gate) return STRATA_OK;
    const strata_tensor *gate = node->inputs[n_ranges + 1];
    STRATA_TRY(strata_check_dtype(gate, "gate", 1u << STRATA_DTYPE_F32, err));
    if (strata_shape_elements(gate->shape) == 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "gate is %s; it must be one number", strata_shape_text(gate->shape).text);
}

void strata_update_factors(const strata_tensor *node, strata_factors *factors) {
    if (!strata_shape_equal(node->inputs[node->op->n_inputs - 2]->shape, node->shape)) return; /* fewer gradients */
    for (int i = 0; i <= node->n_inputs; i++) {
        const bool is_range = i < node->op->n_inputs - 1 || i == node->n_inputs;
        const strata_tensor *range = i < node->n_inputs ? node->inputs[i] : node;
        for (int d = 0; d < node->shape.rank && is_range && strata_shape_equal(range->shape, node->shape); d++)
            strata_factors_set(factors, node, i, d, d);
    }
}

bool strata_gate_is_open(const void *gate) {
    return !gate || isfinite(*(const float *)gate);
}

void strata_update_reference(const strata_op_call *call, int n_slots, strata_update_element *element) {
    const strata_tensor *node = call->node;
    const float *gradients = call->inputs[n_slots + 1], *step = call->inputs[n_slots + 2];
    float *parameters = call->output, *slots[STRATA_MAX_UPDATE_SLOTS];
    if (!strata_gate_is_open(node->n_inputs > n_slots + 3 ? call->inputs[n_slots + 3] : NULL)) return;
    for (int k = 0; k < n_slots; k++) slots[k] = (float *)call->inputs[k + 1];
    for (int64_t i = 0; i < strata_shape_elements(node->inputs[n_slots + 1]->shape); i++) {
        double parameter = (double)parameters[i], values[STRATA_MAX_UPDATE_SLOTS];
        for (int k = 0; k < n_slots; k++) values[k] = (double)slots[k][i];
        element(node->attrs, step, (double)gradients[i], &parameter, values);
        for (int k = 0; k < n_slots; k++)
            if (node->inputs[k + 1] != node->inputs[0]) slots[k][i] = (float)values[k];
        parameters[i] = (float)parameter;
    }
}

strata_status strata_update_launch(const strata_tensor *node, const char *kernel, int n_slots, strata_launch *out_launch,
                                   strata_error *err) {
    const int n_inputs = n_slots + 4; /* including the gate */
    *out_launch = (strata_launch){.kernel = kernel, .variant = "f32", .n_buffers = n_inputs, .writes = 1};
    out_launch->buffers[0] = node;
    for (int i = 1; i < n_inputs; i++) {
        const bool left_out = i >= node->n_inputs || (i <= n_slots && node->inputs[i] == node->inputs[0]);
        if (left_out) continue;
        out_launch->buffers[i] = node->inputs[i];
        if (i <= n_slots) out_launch->writes |= 1u << i;
    }
    strata_launch_constant_add(out_launch, "GATE", node->n_inputs >= n_inputs);
    return strata_launch_flat(out_launch, strata_shape_elements(node->inputs[n_slots + 1]->shape), err);
}

/* ---- compositions ---- */

strata_tensor *strata_update_open(strata_tensor *gate) {
    strata_tensor *most = strata_scalar(gate->graph, STRATA_DTYPE_F32, INFINITY);
    return strata_less(strata_abs(strata_reshape(gate, STRATA_SHAPE())), most);
}

bool strata_update_parts_init(strata_update_parts *parts, strata_tensor *node, int gradients) {
    *parts = (strata_update_parts){.node = node, .n = strata_shape_elements(node->inputs[gradients]->shape)};
    for (int i = 0; i < gradients; i++) {
        const bool written = i == 0 || node->op->also_writes >> i & 1;
        if (written && !strata_variable_behind(node->inputs[i])) return false;
    }
    if (node->n_inputs > gradients + 2) parts->open = strata_update_open(node->inputs[gradients + 2]);
    return true;
}

static strata_tensor *first_elements(const strata_update_parts *parts, strata_tensor *whole) {
    if (parts->n == strata_shape_elements(whole->shape)) return whole;
    return strata_slice(whole, (int64_t[]){0}, &parts->n);
}

strata_tensor *strata_update_part(const strata_update_parts *parts, int index) {
    return first_elements(parts, parts->node->inputs[index]);
}

strata_tensor *strata_update_word(const strata_update_parts *parts, int word) {
    const strata_tensor *node = parts->node;
    strata_tensor *step = node->inputs[node->n_inputs - (parts->open ? 2 : 1)];
    return strata_reshape(strata_slice(step, (int64_t[]){word}, (int64_t[]){1}), STRATA_SHAPE());
}

strata_tensor *strata_update_number(const strata_update_parts *parts, double value) {
    return strata_scalar(parts->node->graph, STRATA_DTYPE_F32, value);
}

strata_tensor *strata_update_assign(const strata_update_parts *parts, int index, strata_tensor *value,
                                    strata_tensor **out_part) {
    strata_tensor *whole = parts->node->inputs[index];
    const int64_t rest = strata_shape_elements(whole->shape) - parts->n;
    if (parts->open) value = strata_where(parts->open, value, strata_update_part(parts, index));
    if (rest) {
        strata_tensor *both[] = {value, strata_slice(whole, &parts->n, &rest)};
        value = strata_concat(both, 2, 0);
    }
    strata_tensor *assigned = strata_assign(whole, value);
    if (out_part) *out_part = first_elements(parts, assigned);
    return assigned;
}

strata_tensor *strata_update_average(const strata_update_parts *parts, int index, strata_tensor *value, double rate) {
    strata_tensor *old = strata_update_part(parts, index), *updated;
    strata_tensor *change = strata_mul(strata_sub(value, old), strata_update_number(parts, rate));
    strata_update_assign(parts, index, strata_add(old, change), &updated);
    return updated;
}
