/* SPDX-License-Identifier: Apache-2.0
 *
 * The first half of a step of LAMB over flat ranges: the direction of the step. Its length is computed afterwards from the
 * norms of each parameter. Formulas in strata/ops.h. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { DIRECTION, M, V, PARAMETERS, GRADIENTS, STEP };

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"direction", "m", "v", "parameters", "gradients"};
    const strata_adam_attrs *attrs = node->attrs;
    STRATA_TRY(strata_adam_check(attrs, err));
    return strata_check_update(node, 1u << DIRECTION | 1u << M | 1u << V, STEP, names, attrs->has_gate, err);
}

static void element(const void *attributes, const float *step, double g, double *direction, double *slots) {
    const strata_adam_attrs *attrs = attributes;
    slots[0] += (1 - attrs->beta1) * (g - slots[0]);
    slots[1] += (1 - attrs->beta2) * (g * g - slots[1]);
    double m = slots[0] * (double)step[STRATA_STEP_CORRECTION_1], v = slots[1] * (double)step[STRATA_STEP_CORRECTION_2];
    *direction = m / (sqrt(v) + attrs->epsilon) + attrs->decay * slots[2];
}

/* The reference passes the parameters as a third slot. They are written back unchanged. */
static void reference(strata_op_call *call) {
    strata_update_reference(call, 3, element);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_adam_attrs *attrs = node->attrs;
    strata_launch launch;
    STRATA_TRY(strata_update_launch(node, "lamb", 3, &launch, err));
    launch.writes = 1u << DIRECTION | 1u << M | 1u << V;
    STRATA_LAUNCH_FLOATS(&launch, 1 - attrs->beta1, 1 - attrs->beta2, attrs->epsilon, attrs->decay);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_adam_attrs *attrs = node->attrs;
    strata_update_parts u;
    if (!strata_update_parts_init(&u, node, GRADIENTS)) return NULL;
    strata_tensor *g = node->inputs[GRADIENTS], *p = strata_update_part(&u, PARAMETERS), *m, *v;
    m = strata_update_average(&u, M, g, 1 - attrs->beta1);
    v = strata_update_average(&u, V, strata_square(g), 1 - attrs->beta2);
    m = strata_mul(m, strata_update_word(&u, STRATA_STEP_CORRECTION_1));
    v = strata_mul(v, strata_update_word(&u, STRATA_STEP_CORRECTION_2));
    strata_tensor *direction = strata_div(m, strata_add(strata_sqrt(v), strata_update_number(&u, attrs->epsilon)));
    direction = strata_add(direction, strata_mul(p, strata_update_number(&u, attrs->decay)));
    return strata_update_assign(&u, DIRECTION, direction, NULL);
}

const strata_op strata_op_lamb = {
    STRATA_UPDATE_OP(lamb, 3, strata_adam_attrs),
    .attrs = {STRATA_ADAM_ATTRS(strata_adam_attrs, )},
    .also_writes = 1u << M | 1u << V,
};

strata_tensor *strata_lamb(strata_tensor *direction, strata_tensor *m, strata_tensor *v, strata_tensor *parameters,
                           strata_tensor *gradients, strata_tensor *step, strata_tensor *gate, double beta1, double beta2,
                           double epsilon, double decay) {
    strata_adam_attrs attrs = {.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .decay = decay, .has_gate = gate != NULL};
    strata_tensor *inputs[] = {direction, m, v, parameters, gradients, step, gate};
    return strata_node(NULL, &strata_op_lamb, gate ? 7 : 6, inputs, &attrs);
}
