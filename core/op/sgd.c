/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of stochastic gradient descent over flat ranges, in place: formulas in strata/ops.h. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { PARAMETERS, VELOCITY, GRADIENTS, STEP };

static bool has_velocity(const strata_tensor *node) {
    return ((const strata_sgd_attrs *)node->attrs)->momentum != 0;
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"parameters", "velocity", "gradients"};
    const strata_sgd_attrs *attrs = node->attrs;
    STRATA_TRY(strata_check_not_negative(attrs->momentum, "momentum", err));
    if (attrs->nesterov && !has_velocity(node)) return strata_fail(err, STRATA_INVALID, "nesterov needs momentum, which is 0");
    return strata_check_update(node, has_velocity(node) ? 3 : 1, STEP, names, attrs->has_gate, err);
}

static void element(const void *attributes, const float *step, double g, double *p, double *slots) {
    const strata_sgd_attrs *attrs = attributes;
    double change = g;
    if (attrs->momentum != 0) {
        slots[0] = attrs->momentum * slots[0] + g;
        change = attrs->nesterov ? g + attrs->momentum * slots[0] : slots[0];
    }
    *p -= (double)step[STRATA_STEP_LEARNING_RATE] * change;
}

static void reference(strata_op_call *call) {
    strata_update_reference(call, 1, element);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_sgd_attrs *attrs = node->attrs;
    strata_launch launch;
    STRATA_TRY(strata_update_launch(node, "sgd", 1, &launch, err));
    strata_launch_constant_add(&launch, "MOMENTUM", has_velocity(node));
    strata_launch_constant_add(&launch, "NESTEROV", attrs->nesterov != 0);
    STRATA_LAUNCH_FLOATS(&launch, attrs->momentum);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_sgd_attrs *attrs = node->attrs;
    strata_update_parts u;
    if (!strata_update_parts_init(&u, node, GRADIENTS)) return NULL;
    strata_tensor *g = node->inputs[GRADIENTS], *change = g, *v;
    if (has_velocity(node)) {
        strata_tensor *momentum = strata_update_number(&u, attrs->momentum);
        strata_update_assign(&u, VELOCITY, strata_add(strata_mul(strata_update_part(&u, VELOCITY), momentum), g), &v);
        change = attrs->nesterov ? strata_add(g, strata_mul(v, momentum)) : v;
    }
    change = strata_mul(change, strata_update_word(&u, STRATA_STEP_LEARNING_RATE));
    return strata_update_assign(&u, PARAMETERS, strata_sub(strata_update_part(&u, PARAMETERS), change), NULL);
}

const strata_op strata_op_sgd = {
    STRATA_UPDATE_OP(sgd, 1, strata_sgd_attrs),
    .attrs = {{"momentum", STRATA_ATTR_FLOAT, offsetof(strata_sgd_attrs, momentum)},
              {"nesterov", STRATA_ATTR_INT, offsetof(strata_sgd_attrs, nesterov)},
              {"has_gate", STRATA_ATTR_INT, offsetof(strata_sgd_attrs, has_gate)}},
    .also_writes = 1u << VELOCITY,
};

strata_tensor *strata_sgd(strata_tensor *parameters, strata_tensor *velocity, strata_tensor *gradients, strata_tensor *step,
                          strata_tensor *gate, double momentum, bool nesterov) {
    if (parameters && !velocity && momentum > 0)
        return strata_graph_poison(parameters->graph, &strata_op_sgd, STRATA_INVALID,
                                   "velocity is NULL; with momentum %g it must be a variable", momentum);
    if (parameters && velocity && momentum == 0)
        return strata_graph_poison(parameters->graph, &strata_op_sgd, STRATA_INVALID,
                                   "velocity is given; with momentum 0 it must be NULL");
    strata_sgd_attrs attrs = {.momentum = momentum, .nesterov = nesterov, .has_gate = gate != NULL};
    strata_tensor *inputs[] = {parameters, velocity ? velocity : parameters, gradients, step, gate};
    return strata_node(NULL, &strata_op_sgd, gate ? 5 : 4, inputs, &attrs);
}
