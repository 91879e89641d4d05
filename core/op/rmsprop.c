/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of RMSprop over flat ranges, in place: formulas in strata/ops.h. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { PARAMETERS, SQUARES, MEAN, VELOCITY, GRADIENTS, STEP };

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"parameters", "squares", "mean", "velocity", "gradients"};
    const strata_rmsprop_attrs *attrs = node->attrs;
    STRATA_TRY(strata_check_rate(attrs->rho, "rho", err));
    STRATA_TRY(strata_check_not_negative(attrs->momentum, "momentum", err));
    STRATA_TRY(strata_check_not_negative(attrs->epsilon, "epsilon", err));
    unsigned variables =
        1u << PARAMETERS | 1u << SQUARES | (attrs->centered ? 1u << MEAN : 0) | (attrs->momentum != 0 ? 1u << VELOCITY : 0);
    return strata_check_update(node, variables, STEP, names, attrs->has_gate, err);
}

static void element(const void *attributes, const float *step, double g, double *p, double *slots) {
    const strata_rmsprop_attrs *attrs = attributes;
    slots[0] = attrs->rho * slots[0] + (1 - attrs->rho) * g * g;
    double spread = slots[0];
    if (attrs->centered) {
        slots[1] = attrs->rho * slots[1] + (1 - attrs->rho) * g;
        spread -= slots[1] * slots[1];
    }
    double change = (double)step[STRATA_STEP_LEARNING_RATE] * g / sqrt(spread + attrs->epsilon);
    if (attrs->momentum != 0) change = slots[2] = attrs->momentum * slots[2] + change;
    *p -= change;
}

static void reference(strata_op_call *call) {
    strata_update_reference(call, 3, element);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_rmsprop_attrs *attrs = node->attrs;
    strata_launch launch;
    STRATA_TRY(strata_update_launch(node, "rmsprop", 3, &launch, err));
    strata_launch_constant_add(&launch, "CENTERED", attrs->centered != 0);
    strata_launch_constant_add(&launch, "MOMENTUM", attrs->momentum != 0);
    STRATA_LAUNCH_FLOATS(&launch, attrs->rho, 1 - attrs->rho, attrs->momentum, attrs->epsilon);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_rmsprop_attrs *attrs = node->attrs;
    strata_update_parts u;
    if (!strata_update_parts_init(&u, node, GRADIENTS)) return NULL;
    strata_tensor *g = node->inputs[GRADIENTS];
    strata_tensor *squares = strata_update_average(&u, SQUARES, strata_square(g), 1 - attrs->rho);
    if (attrs->centered) squares = strata_sub(squares, strata_square(strata_update_average(&u, MEAN, g, 1 - attrs->rho)));
    strata_tensor *spread = strata_sqrt(strata_add(squares, strata_update_number(&u, attrs->epsilon)));
    strata_tensor *change = strata_div(strata_mul(g, strata_update_word(&u, STRATA_STEP_LEARNING_RATE)), spread);
    if (attrs->momentum != 0) {
        strata_tensor *kept = strata_mul(strata_update_part(&u, VELOCITY), strata_update_number(&u, attrs->momentum));
        strata_update_assign(&u, VELOCITY, strata_add(kept, change), &change);
    }
    return strata_update_assign(&u, PARAMETERS, strata_sub(strata_update_part(&u, PARAMETERS), change), NULL);
}

const strata_op strata_op_rmsprop = {
    STRATA_UPDATE_OP(rmsprop, 3, strata_rmsprop_attrs),
    .attrs = {{"rho", STRATA_ATTR_FLOAT, offsetof(strata_rmsprop_attrs, rho)},
              {"momentum", STRATA_ATTR_FLOAT, offsetof(strata_rmsprop_attrs, momentum)},
              {"epsilon", STRATA_ATTR_FLOAT, offsetof(strata_rmsprop_attrs, epsilon)},
              {"centered", STRATA_ATTR_INT, offsetof(strata_rmsprop_attrs, centered)},
              {"has_gate", STRATA_ATTR_INT, offsetof(strata_rmsprop_attrs, has_gate)}},
    .also_writes = 1u << SQUARES | 1u << MEAN | 1u << VELOCITY,
};

strata_tensor *strata_rmsprop(strata_tensor *parameters, strata_tensor *squares, strata_tensor *mean, strata_tensor *velocity,
                              strata_tensor *gradients, strata_tensor *step, strata_tensor *gate, double rho, double momentum,
                              double epsilon) {
    if (parameters && !velocity != (momentum == 0))
        return strata_graph_poison(parameters->graph, &strata_op_rmsprop, STRATA_INVALID,
                                   "momentum is %g; velocity must be a variable when it is above 0 and NULL when it is 0",
                                   momentum);
    strata_rmsprop_attrs attrs = {
        .rho = rho, .momentum = momentum, .epsilon = epsilon, .centered = mean != NULL, .has_gate = gate != NULL};
    strata_tensor *inputs[] = {parameters, squares, mean ? mean : parameters, velocity ? velocity : parameters, gradients,
                               step,       gate};
    return strata_node(NULL, &strata_op_rmsprop, gate ? 7 : 6, inputs, &attrs);
}
