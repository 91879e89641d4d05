/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of Adam or AdamW over flat ranges, in place: formulas in strata/ops.h. The bias corrections are included in the
 * step's learning rate, so nothing here depends on the number of the step. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { PARAMETERS, M, V, GRADIENTS, STEP };

strata_status strata_adam_check(const strata_adam_attrs *attrs, strata_error *err) {
    if (!(attrs->beta1 >= 0 && attrs->beta1 < 1 && attrs->beta2 >= 0 && attrs->beta2 < 1))
        return strata_fail(err, STRATA_INVALID, "beta1 is %g, beta2 is %g; they must be at least 0 and below 1", attrs->beta1,
                           attrs->beta2);
    STRATA_TRY(strata_check_not_negative(attrs->epsilon, "epsilon", err));
    return strata_check_not_negative(attrs->decay, "decay", err);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"parameters", "m", "v", "gradients"};
    const strata_adam_attrs *attrs = node->attrs;
    STRATA_TRY(strata_adam_check(attrs, err));
    return strata_check_update(node, 1u << PARAMETERS | 1u << M | 1u << V, STEP, names, attrs->has_gate, err);
}

void strata_adam_element(const void *attributes, const float *step, double g, double *p, double *slots) {
    const strata_adam_attrs *attrs = attributes;
    slots[0] += (1 - attrs->beta1) * (g - slots[0]);
    slots[1] += (1 - attrs->beta2) * (g * g - slots[1]);
    if (attrs->decay != 0) *p -= (double)step[STRATA_STEP_PLAIN_RATE] * attrs->decay * *p;
    *p -= (double)step[STRATA_STEP_LEARNING_RATE] * slots[0] / (sqrt(slots[1]) + attrs->epsilon);
}

static void reference(strata_op_call *call) {
    strata_update_reference(call, 2, strata_adam_element);
}

strata_status strata_adam_lower(const strata_tensor *node, int64_t first, int64_t n, strata_lowering *lowering,
                                strata_error *err) {
    const strata_adam_attrs *attrs = node->attrs;
    strata_launch launch;
    if (n == 0) return STRATA_OK;
    STRATA_TRY(strata_update_launch(node, "adam", 2, &launch, err));
    launch.n_words = 0; /* the caller's range has n elements; strata_update_launch set the number of all gradients */
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    for (int i = PARAMETERS; i <= GRADIENTS; i++) {
        launch.offsets[i] = first;
        launch.extents[i] = n;
    }
    strata_launch_constant_add(&launch, "DECAY", attrs->decay != 0);
    STRATA_LAUNCH_FLOATS(&launch, 1 - attrs->beta1, 1 - attrs->beta2, attrs->epsilon, attrs->decay);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    return strata_adam_lower(node, 0, strata_shape_elements(node->inputs[GRADIENTS]->shape), lowering, err);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_adam_attrs *attrs = node->attrs;
    strata_update_parts u;
    if (!strata_update_parts_init(&u, node, GRADIENTS)) return NULL;
    strata_tensor *g = node->inputs[GRADIENTS], *p = strata_update_part(&u, PARAMETERS), *m, *v;
    m = strata_update_average(&u, M, g, 1 - attrs->beta1);
    v = strata_update_average(&u, V, strata_square(g), 1 - attrs->beta2);
    if (attrs->decay != 0) {
        strata_tensor *rate =
            strata_mul(strata_update_word(&u, STRATA_STEP_PLAIN_RATE), strata_update_number(&u, attrs->decay));
        p = strata_sub(p, strata_mul(p, rate));
    }
    strata_tensor *spread = strata_add(strata_sqrt(v), strata_update_number(&u, attrs->epsilon));
    strata_tensor *change = strata_div(strata_mul(m, strata_update_word(&u, STRATA_STEP_LEARNING_RATE)), spread);
    return strata_update_assign(&u, PARAMETERS, strata_sub(p, change), NULL);
}

const strata_op strata_op_adam = {
    STRATA_UPDATE_OP(adam, 2, strata_adam_attrs),
    .attrs = {STRATA_ADAM_ATTRS(strata_adam_attrs, )},
    .also_writes = 1u << M | 1u << V,
};

strata_tensor *strata_adamw(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                            strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon,
                            double decay) {
    strata_adam_attrs attrs = {.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .decay = decay, .has_gate = gate != NULL};
    strata_tensor *inputs[] = {parameters, m, v, gradients, step, gate};
    return strata_node(NULL, &strata_op_adam, gate ? 6 : 5, inputs, &attrs);
}

strata_tensor *strata_adam(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                           strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon) {
    return strata_adamw(parameters, m, v, gradients, step, gate, beta1, beta2, epsilon, 0);
}
