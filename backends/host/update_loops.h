/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of update.c, which includes this file once for each instruction set. TARGET is the attribute of the
 * functions, NAMED(f) makes their names. Each loop computes the formula of strata/ops.h in f32 for n elements. The file
 * defines the table NAMED(rows). */

TARGET static void NAMED(sgd)(const strata_op_call *call, const update_ranges *u) {
    const strata_sgd_attrs *attrs = call->node->attrs;
    const float rate = u->step[STRATA_STEP_LEARNING_RATE], momentum = (float)attrs->momentum;
    float *restrict p = u->parameters, *restrict v = u->slots[0];
    if (momentum == 0)
        for (int64_t i = 0; i < u->n; i++) p[i] -= rate * u->gradients[i];
    else
        for (int64_t i = 0; i < u->n; i++) {
            const float g = u->gradients[i];
            v[i] = momentum * v[i] + g;
            p[i] -= rate * (attrs->nesterov ? g + momentum * v[i] : v[i]);
        }
}

TARGET static void NAMED(adagrad)(const strata_op_call *call, const update_ranges *u) {
    const float rate = u->step[STRATA_STEP_LEARNING_RATE];
    const float epsilon = (float)((const strata_adagrad_attrs *)call->node->attrs)->epsilon;
    float *restrict p = u->parameters, *restrict squares = u->slots[0];
    for (int64_t i = 0; i < u->n; i++) {
        const float g = u->gradients[i];
        squares[i] += g * g;
        p[i] -= rate * g / sqrtf(squares[i] + epsilon);
    }
}

TARGET static void NAMED(rmsprop)(const strata_op_call *call, const update_ranges *u) {
    const strata_rmsprop_attrs *attrs = call->node->attrs;
    const float rate = u->step[STRATA_STEP_LEARNING_RATE], rho = (float)attrs->rho, rest = (float)(1 - attrs->rho);
    const float momentum = (float)attrs->momentum, epsilon = (float)attrs->epsilon;
    const bool centered = attrs->centered != 0, moves = attrs->momentum != 0;
    float *p = u->parameters, *squares = u->slots[0], *mean = u->slots[1], *v = u->slots[2];
    for (int64_t i = 0; i < u->n; i++) {
        const float g = u->gradients[i];
        squares[i] = rho * squares[i] + rest * g * g;
        if (centered) mean[i] = rho * mean[i] + rest * g;
        float change = rate * g / sqrtf(squares[i] - (centered ? mean[i] * mean[i] : 0) + epsilon);
        if (moves) change = v[i] = momentum * v[i] + change;
        p[i] -= change;
    }
}

TARGET static void NAMED(lamb)(const strata_op_call *call, const update_ranges *u) {
    const strata_adam_attrs *attrs = call->node->attrs;
    const float by1 = (float)(1 - attrs->beta1), by2 = (float)(1 - attrs->beta2), epsilon = (float)attrs->epsilon;
    const float right1 = u->step[STRATA_STEP_CORRECTION_1], right2 = u->step[STRATA_STEP_CORRECTION_2];
    const float decay = (float)attrs->decay;
    float *restrict direction = u->parameters, *restrict m = u->slots[0], *restrict v = u->slots[1];
    const float *restrict p = u->slots[2];
    for (int64_t i = 0; i < u->n; i++) {
        const float g = u->gradients[i];
        m[i] += by1 * (g - m[i]);
        v[i] += by2 * (g * g - v[i]);
        direction[i] = m[i] * right1 / (sqrtf(v[i] * right2) + epsilon) + decay * p[i];
    }
}

static const update_row NAMED(rows)[] = {{&strata_op_sgd, 1, NAMED(sgd)},
                                         {&strata_op_adagrad, 1, NAMED(adagrad)},
                                         {&strata_op_rmsprop, 3, NAMED(rmsprop)},
                                         {&strata_op_lamb, 3, NAMED(lamb)}};

#undef TARGET
#undef NAMED
