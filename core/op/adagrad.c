/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of Adagrad over flat ranges, in place: formulas in strata/ops.h. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { PARAMETERS, SQUARES, GRADIENTS, STEP };

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"parameters", "squares", "gradients"};
    const strata_adagrad_attrs *attrs = node->attrs;
    STRATA_TRY(strata_check_not_negative(attrs->epsilon, "epsilon", err));
    return strata_check_update(node, 1u << PARAMETERS | 1u << SQUARES, STEP, names, attrs->has_gate, err);
}

static void element(const void *attrs, const float *step, double g, double *p, double *slots) {
    slots[0] += g * g;
    *p -= (double)step[STRATA_STEP_LEARNING_RATE] * g / sqrt(slots[0] + ((const strata_adagrad_attrs *)attrs)->epsilon);
}

static void reference(strata_op_call *call) {
    strata_update_reference(call, 1, element);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_launch launch;
    STRATA_TRY(strata_update_launch(node, "adagrad", 1, &launch, err));
    STRATA_LAUNCH_FLOATS(&launch, ((const strata_adagrad_attrs *)node->attrs)->epsilon);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_update_parts u;
    if (!strata_update_parts_init(&u, node, GRADIENTS)) return NULL;
    strata_tensor *g = node->inputs[GRADIENTS], *squares = strata_add(strata_update_part(&u, SQUARES), strata_square(g));
    strata_update_assign(&u, SQUARES, squares, &squares);
    strata_tensor *epsilon = strata_update_number(&u, ((const strata_adagrad_attrs *)node->attrs)->epsilon);
    strata_tensor *scaled = strata_mul(g, strata_update_word(&u, STRATA_STEP_LEARNING_RATE));
    strata_tensor *change = strata_div(scaled, strata_sqrt(strata_add(squares, epsilon)));
    return strata_update_assign(&u, PARAMETERS, strata_sub(strata_update_part(&u, PARAMETERS), change), NULL);
}

const strata_op strata_op_adagrad = {
    STRATA_UPDATE_OP(adagrad, 1, strata_adagrad_attrs),
    .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(strata_adagrad_attrs, epsilon)},
              {"has_gate", STRATA_ATTR_INT, offsetof(strata_adagrad_attrs, has_gate)}},
    .also_writes = 1u << SQUARES,
};

strata_tensor *strata_adagrad(strata_tensor *parameters, strata_tensor *squares, strata_tensor *gradients, strata_tensor *step,
                              strata_tensor *gate, double epsilon) {
    strata_adagrad_attrs attrs = {.epsilon = epsilon, .has_gate = gate != NULL};
    strata_tensor *inputs[] = {parameters, squares, gradients, step, gate};
    return strata_node(NULL, &strata_op_adagrad, gate ? 5 : 4, inputs, &attrs);
}
