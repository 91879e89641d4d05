/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of variables (formulas in core/op), and the sum over replicas. All updates except assignments compute in f32. */
#include <math.h>

#include "backends/pjrt/rows.h"
#include "core/op/communication.h"
#include "core/op/update.h"

static hlo_value times(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "multiply", a, b);
}
static hlo_value plus(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "add", a, b);
}
static hlo_value minus(hlo *h, hlo_value a, hlo_value b) {
    return strata_hlo_binary(h, "subtract", a, b);
}

hlo_value strata_pjrt_assign(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    return strata_pjrt_operand(l, node, 1);
}

hlo_value strata_pjrt_assign_add(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    return strata_hlo_binary(strata_pjrt_text_of(l), name, strata_pjrt_operand(l, node, 0), strata_pjrt_operand(l, node, 1));
}

/* Returns `value` if the gate is finite, otherwise `before`. If the node has no input `index`, there is no gate. */
static hlo_value gated(pjrt_lowering *l, const strata_tensor *node, int index, hlo_value value, hlo_value before) {
    hlo *h = strata_pjrt_text_of(l);
    if (index >= node->n_inputs) return value;
    const hlo_value gate = strata_hlo_reshape(h, strata_pjrt_operand(l, node, index), STRATA_SHAPE());
    const hlo_value open =
        strata_hlo_compare(h, "LT", strata_hlo_unary(h, "abs", gate), strata_hlo_scalar(h, HLO_F32, INFINITY));
    return strata_hlo_select(h, open, value, before);
}

hlo_value strata_pjrt_moving_average(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    enum { STATE, VALUE, RATES, GATE };
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value old = strata_pjrt_operand(l, node, STATE), value = strata_pjrt_operand(l, node, VALUE),
                    rates = strata_pjrt_operand(l, node, RATES);
    const hlo_value whole = strata_hlo_compare(h, "EQ", rates, strata_hlo_fill(h, HLO_F32, rates.shape, 1));
    const hlo_value moved = plus(h, old, times(h, rates, minus(h, value, old)));
    const hlo_value none = strata_hlo_compare(h, "EQ", rates, strata_hlo_fill(h, HLO_F32, rates.shape, 0));
    return gated(l, node, GATE, strata_hlo_select(h, whole, value, strata_hlo_select(h, none, old, moved)), old);
}

/* ---- optimizers: parameters, slots ..., gradients, step [, gate] ---- */

typedef struct update {
    pjrt_lowering *l;
    const strata_tensor *node;
    hlo *h;
    int n_slots;
    /* The number of elements that are updated. A flat gradient may be shorter than the parameters. */
    int64_t n;
    /* The values before the update, and the new values. */
    hlo_value parameters, slots[STRATA_MAX_UPDATE_SLOTS];
    hlo_value gradients, new_parameters, new_slots[STRATA_MAX_UPDATE_SLOTS];
} update;

/* The elements of an operand that are updated. */
static hlo_value updated_part(const update *u, hlo_value x) {
    return strata_shape_equal(x.shape, u->gradients.shape) ? x : strata_hlo_part(u->h, x, 0, u->n);
}

static update begin(pjrt_lowering *l, const strata_tensor *node, int n_slots) {
    update u = {.l = l, .node = node, .h = strata_pjrt_text_of(l), .n_slots = n_slots};
    u.gradients = strata_pjrt_operand(l, node, n_slots + 1);
    u.n = strata_shape_elements(u.gradients.shape);
    u.parameters = updated_part(&u, strata_pjrt_operand(l, node, 0));
    for (int k = 0; k < n_slots; k++) u.slots[k] = u.new_slots[k] = updated_part(&u, strata_pjrt_operand(l, node, k + 1));
    return u;
}

/* The operand with its updated part replaced, if the gate is open. */
static hlo_value whole(const update *u, int i, hlo_value value) {
    const hlo_value before = strata_pjrt_operand(u->l, u->node, i);
    if (!strata_shape_equal(before.shape, value.shape)) {
        const hlo_value rest = strata_hlo_part(u->h, before, u->n, before.shape.dims[0] - u->n);
        value = strata_hlo_concat(u->h, (hlo_value[]){value, rest}, 2, 0);
    }
    return gated(u->l, u->node, u->n_slots + 3, value, before);
}

/* Writes the slots and returns the new parameters. If the settings do not need a slot, the parameters are passed in its
 * place, and nothing is written there. */
static hlo_value end(const update *u) {
    const hlo_value parameters = whole(u, 0, u->new_parameters);
    for (int k = 0; k < u->n_slots; k++)
        if (u->node->inputs[k + 1] != u->node->inputs[0] && u->new_slots[k].id != u->slots[k].id)
            strata_pjrt_write(u->l, u->node, k + 1, whole(u, k + 1, u->new_slots[k]));
    return parameters;
}

/* A number of the optimizer's step. */
static hlo_value step_word(const update *u, int64_t index) {
    return strata_hlo_reshape(u->h, strata_hlo_part(u->h, strata_pjrt_operand(u->l, u->node, u->n_slots + 2), index, 1),
                              STRATA_SHAPE());
}

hlo_value strata_pjrt_sgd(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    update u = begin(l, node, 1);
    const double momentum = strata_pjrt_float(node, "momentum");
    hlo_value change = u.gradients;
    if (momentum != 0) {
        const hlo_value velocity = plus(u.h, strata_hlo_with(u.h, "multiply", u.slots[0], momentum), u.gradients);
        u.new_slots[0] = change = velocity;
        if (strata_pjrt_int(node, "nesterov"))
            change = plus(u.h, u.gradients, strata_hlo_with(u.h, "multiply", velocity, momentum));
    }
    u.new_parameters = minus(u.h, u.parameters, times(u.h, change, step_word(&u, STRATA_STEP_LEARNING_RATE)));
    return end(&u);
}

/* slot + rate (value - slot) */
static hlo_value moved(hlo *h, hlo_value slot, hlo_value value, double rate) {
    return plus(h, slot, strata_hlo_with(h, "multiply", minus(h, value, slot), rate));
}

static void move_moments(update *u) {
    u->new_slots[0] = moved(u->h, u->slots[0], u->gradients, 1 - strata_pjrt_float(u->node, "beta1"));
    u->new_slots[1] =
        moved(u->h, u->slots[1], times(u->h, u->gradients, u->gradients), 1 - strata_pjrt_float(u->node, "beta2"));
}

hlo_value strata_pjrt_adam(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    update u = begin(l, node, 2);
    const double decay = strata_pjrt_float(node, "decay");
    hlo_value p = u.parameters;
    move_moments(&u);
    if (decay != 0) {
        const hlo_value rate = strata_hlo_with(u.h, "multiply", step_word(&u, STRATA_STEP_PLAIN_RATE), decay);
        p = minus(u.h, p, times(u.h, p, rate));
    }
    const hlo_value divisor =
        strata_hlo_with(u.h, "add", strata_hlo_unary(u.h, "sqrt", u.new_slots[1]), strata_pjrt_float(node, "epsilon"));
    const hlo_value change = times(u.h, u.new_slots[0], step_word(&u, STRATA_STEP_LEARNING_RATE));
    u.new_parameters = minus(u.h, p, strata_hlo_binary(u.h, "divide", change, divisor));
    return end(&u);
}

hlo_value strata_pjrt_rmsprop(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    update u = begin(l, node, 3);
    const double rho = strata_pjrt_float(node, "rho"), momentum = strata_pjrt_float(node, "momentum");
    const hlo_value g = u.gradients;
    const hlo_value square = strata_hlo_with(u.h, "multiply", times(u.h, g, g), 1 - rho);
    hlo_value spread = u.new_slots[0] = plus(u.h, strata_hlo_with(u.h, "multiply", u.slots[0], rho), square);
    if (strata_pjrt_int(node, "centered")) {
        u.new_slots[1] =
            plus(u.h, strata_hlo_with(u.h, "multiply", u.slots[1], rho), strata_hlo_with(u.h, "multiply", g, 1 - rho));
        spread = minus(u.h, spread, times(u.h, u.new_slots[1], u.new_slots[1]));
    }
    const hlo_value deviation =
        strata_hlo_unary(u.h, "sqrt", strata_hlo_with(u.h, "add", spread, strata_pjrt_float(node, "epsilon")));
    hlo_value change = strata_hlo_binary(u.h, "divide", times(u.h, g, step_word(&u, STRATA_STEP_LEARNING_RATE)), deviation);
    if (momentum != 0) change = u.new_slots[2] = plus(u.h, strata_hlo_with(u.h, "multiply", u.slots[2], momentum), change);
    u.new_parameters = minus(u.h, u.parameters, change);
    return end(&u);
}

hlo_value strata_pjrt_adagrad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    update u = begin(l, node, 1);
    const hlo_value g = u.gradients;
    u.new_slots[0] = plus(u.h, u.slots[0], times(u.h, g, g));
    const hlo_value deviation =
        strata_hlo_unary(u.h, "sqrt", strata_hlo_with(u.h, "add", u.new_slots[0], strata_pjrt_float(node, "epsilon")));
    const hlo_value change = times(u.h, g, step_word(&u, STRATA_STEP_LEARNING_RATE));
    u.new_parameters = minus(u.h, u.parameters, strata_hlo_binary(u.h, "divide", change, deviation));
    return end(&u);
}

/* Operand 0, which is written, is the direction of the update. The parameters are passed in the place of a third slot. */
hlo_value strata_pjrt_lamb(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    update u = begin(l, node, 3);
    move_moments(&u);
    const hlo_value m = times(u.h, u.new_slots[0], step_word(&u, STRATA_STEP_CORRECTION_1));
    const hlo_value v = times(u.h, u.new_slots[1], step_word(&u, STRATA_STEP_CORRECTION_2));
    const hlo_value divisor = strata_hlo_with(u.h, "add", strata_hlo_unary(u.h, "sqrt", v), strata_pjrt_float(node, "epsilon"));
    const hlo_value decay = strata_hlo_with(u.h, "multiply", u.slots[2], strata_pjrt_float(node, "decay"));
    u.new_parameters = plus(u.h, strata_hlo_binary(u.h, "divide", m, divisor), decay);
    return end(&u);
}

/* ---- between replicas ---- */

const char *strata_pjrt_refuse_some_replicas(const strata_tensor *node) {
    if (!node->n_inputs) return "an all_reduce to which a replica gives nothing has no lowering to StableHLO";
    return NULL;
}

hlo_value strata_pjrt_all_reduce(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const strata_all_reduce_attrs *attrs = node->attrs;
    const hlo_value sum = strata_hlo_all_reduce(h, strata_pjrt_operand(l, node, 0), strata_pjrt_n_replicas(l));
    return attrs->reduction == STRATA_REDUCE_MEAN ? strata_hlo_with(h, "divide", sum, strata_pjrt_n_replicas(l)) : sum;
}
