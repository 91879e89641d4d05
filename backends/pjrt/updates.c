/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of variables (formulas in core/op), and the sum over replicas. Optimizers compute in f32. */
#include <math.h>

#include "backends/pjrt/lower.h"
#include "core/op/communication.h"
#include "core/op/ops.h"
#include "core/op/update.h"

static hlo_value assign(hlo *h, const strata_tensor *node) {
    return strata_pjrt_operand(h, node, 1);
}

/* Returns `value` if the gate is finite, otherwise `before`. If the node has no input `index`, there is no gate. */
static hlo_value gated(hlo *h, const strata_tensor *node, int index, hlo_value value, hlo_value before) {
    if (index >= node->n_inputs) return value;
    const hlo_value gate = strata_hlo_reshape(h, strata_pjrt_operand(h, node, index), STRATA_SHAPE());
    const hlo_value is_open = strata_hlo_compare_with(h, "LT", strata_hlo_unary(h, "abs", gate), INFINITY);
    return strata_hlo_select(h, is_open, value, before);
}

static hlo_value add(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "add", a, b);
}

static hlo_value subtract(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "subtract", a, b);
}

static hlo_value multiply(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "multiply", a, b);
}

/* change / sqrt(square), and change / (sqrt(square) + epsilon). */
static hlo_value over_root(hlo *h, hlo_value change, hlo_value square) {
    return strata_hlo_binary(h, "divide", change, strata_hlo_unary(h, "sqrt", square));
}

static hlo_value over_root_and(hlo *h, hlo_value change, hlo_value square, hlo_value epsilon) {
    return strata_hlo_binary(h, "divide", change, add(h, strata_hlo_unary(h, "sqrt", square), epsilon));
}

/* ---- optimizers: parameters, slots ..., gradients, step [, gate] ---- */

typedef struct update {
    hlo *h;
    const strata_tensor *node;
    int n_slots;
    /* The number of elements that are updated. A flat gradient may be shorter than the parameters. */
    int64_t n;
    /* The values before the update, and the new values. */
    hlo_value parameters, slots[STRATA_MAX_UPDATE_SLOTS];
    hlo_value gradients, new_slots[STRATA_MAX_UPDATE_SLOTS];
} update;

/* The elements of operand i that are updated. */
static hlo_value updated_part(const update *u, int i) {
    const hlo_value x = strata_pjrt_operand(u->h, u->node, i);
    return strata_shape_equal(x.shape, u->gradients.shape) ? x : strata_hlo_part(u->h, x, 0, u->n);
}

static update begin(hlo *h, const strata_tensor *node, int n_slots) {
    update u = {.h = h, .node = node, .n_slots = n_slots};
    u.gradients = strata_pjrt_operand(h, node, n_slots + 1);
    u.n = strata_shape_elements(u.gradients.shape);
    u.parameters = updated_part(&u, 0);
    for (int k = 0; k < n_slots; k++) u.slots[k] = u.new_slots[k] = updated_part(&u, k + 1);
    return u;
}

/* The operand with its updated part replaced, if the gate is open. */
static hlo_value whole(const update *u, int i, hlo_value value) {
    const hlo_value before = strata_pjrt_operand(u->h, u->node, i);
    if (!strata_shape_equal(before.shape, value.shape)) {
        const hlo_value rest = strata_hlo_part(u->h, before, u->n, before.shape.dims[0] - u->n);
        value = strata_hlo_concat(u->h, (hlo_value[]){value, rest}, 2, 0);
    }
    return gated(u->h, u->node, u->n_slots + 3, value, before);
}

/* Writes the slots and returns the new parameters. If the settings do not need a slot, the parameters are passed in its
 * place, and nothing is written there. */
static hlo_value end(const update *u, hlo_value new_parameters) {
    const hlo_value parameters = whole(u, 0, new_parameters);
    for (int k = 0; k < u->n_slots; k++)
        if (u->node->inputs[k + 1] != u->node->inputs[0] && u->new_slots[k].id != u->slots[k].id)
            strata_pjrt_write(u->h, u->node, k + 1, whole(u, k + 1, u->new_slots[k]));
    return parameters;
}

/* A number of the optimizer's step. */
static hlo_value step_word(const update *u, int64_t index) {
    return strata_hlo_reshape(u->h, strata_hlo_part(u->h, strata_pjrt_operand(u->h, u->node, u->n_slots + 2), index, 1),
                              STRATA_SHAPE());
}

static hlo_value constant(const update *u, const char *name) {
    return strata_hlo_scalar(u->h, HLO_F32, strata_pjrt_float(u->node, name));
}

static hlo_value sgd(hlo *h, const strata_tensor *node) {
    update u = begin(h, node, 1);
    const hlo_value g = u.gradients, momentum = constant(&u, "momentum");
    hlo_value change = g;
    if (strata_pjrt_float(node, "momentum") != 0) {
        change = u.new_slots[0] = add(h, multiply(h, u.slots[0], momentum), g);
        if (strata_pjrt_int(node, "nesterov")) change = add(h, g, multiply(h, u.new_slots[0], momentum));
    }
    return end(&u, subtract(h, u.parameters, multiply(h, change, step_word(&u, STRATA_STEP_LEARNING_RATE))));
}

/* The averages of the gradients and of their squares. */
static void move_moments(update *u) {
    static const char *const betas[] = {"beta1", "beta2"};
    hlo_value power = u->gradients;
    for (int k = 0; k < 2; k++, power = multiply(u->h, power, u->gradients)) {
        const hlo_value rate = strata_hlo_scalar(u->h, HLO_F32, 1 - strata_pjrt_float(u->node, betas[k]));
        u->new_slots[k] = add(u->h, u->slots[k], multiply(u->h, subtract(u->h, power, u->slots[k]), rate));
    }
}

static hlo_value adam(hlo *h, const strata_tensor *node) {
    update u = begin(h, node, 2);
    hlo_value p = u.parameters;
    move_moments(&u);
    if (strata_pjrt_float(node, "decay") != 0)
        p = subtract(h, p, multiply(h, p, multiply(h, step_word(&u, STRATA_STEP_PLAIN_RATE), constant(&u, "decay"))));
    const hlo_value change = multiply(h, u.new_slots[0], step_word(&u, STRATA_STEP_LEARNING_RATE));
    return end(&u, subtract(h, p, over_root_and(h, change, u.new_slots[1], constant(&u, "epsilon"))));
}

static hlo_value rmsprop(hlo *h, const strata_tensor *node) {
    update u = begin(h, node, 3);
    const hlo_value g = u.gradients, rho = constant(&u, "rho"),
                    rest = strata_hlo_scalar(h, HLO_F32, 1 - strata_pjrt_float(node, "rho"));
    hlo_value spread = u.new_slots[0] = add(h, multiply(h, u.slots[0], rho), multiply(h, multiply(h, g, g), rest));
    if (strata_pjrt_int(node, "centered")) {
        u.new_slots[1] = add(h, multiply(h, u.slots[1], rho), multiply(h, g, rest));
        spread = subtract(h, spread, multiply(h, u.new_slots[1], u.new_slots[1]));
    }
    hlo_value change = multiply(h, g, step_word(&u, STRATA_STEP_LEARNING_RATE));
    change = over_root(h, change, add(h, spread, constant(&u, "epsilon")));
    if (strata_pjrt_float(node, "momentum") != 0)
        change = u.new_slots[2] = add(h, multiply(h, u.slots[2], constant(&u, "momentum")), change);
    return end(&u, subtract(h, u.parameters, change));
}

static hlo_value adagrad(hlo *h, const strata_tensor *node) {
    update u = begin(h, node, 1);
    u.new_slots[0] = add(h, u.slots[0], multiply(h, u.gradients, u.gradients));
    const hlo_value change = multiply(h, u.gradients, step_word(&u, STRATA_STEP_LEARNING_RATE));
    return end(&u, subtract(h, u.parameters, over_root(h, change, add(h, u.new_slots[0], constant(&u, "epsilon")))));
}

/* Operand 0, which is written, is the direction of the update. The parameters are passed in the place of a third slot. */
static hlo_value lamb(hlo *h, const strata_tensor *node) {
    update u = begin(h, node, 3);
    move_moments(&u);
    const hlo_value m = multiply(h, u.new_slots[0], step_word(&u, STRATA_STEP_CORRECTION_1));
    const hlo_value v = multiply(h, u.new_slots[1], step_word(&u, STRATA_STEP_CORRECTION_2));
    return end(&u, add(h, over_root_and(h, m, v, constant(&u, "epsilon")), multiply(h, u.slots[2], constant(&u, "decay"))));
}

/* ---- between replicas ---- */

static const char *refuse_some_replicas(const strata_tensor *node) {
    return node->n_inputs ? NULL : "an all_reduce to which a replica gives nothing has no lowering to StableHLO";
}

static hlo_value all_reduce(hlo *h, const strata_tensor *node) {
    const strata_all_reduce_attrs *attrs = node->attrs;
    const hlo_value sum = strata_hlo_all_reduce(h, strata_pjrt_operand(h, node, 0), strata_pjrt_n_replicas(h));
    return attrs->reduction == STRATA_REDUCE_MEAN ? strata_hlo_with(h, "divide", sum, strata_pjrt_n_replicas(h)) : sum;
}

const pjrt_row strata_pjrt_updates[] = {PJRT_ROW(assign),
                                        PJRT_ROW(sgd),
                                        PJRT_ROW(adam),
                                        PJRT_ROW(rmsprop),
                                        PJRT_ROW(adagrad),
                                        PJRT_ROW(lamb),
                                        {.op = &strata_op_all_reduce, .lower = all_reduce, .refuse = refuse_some_replicas},
                                        {0}};
