/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of the optimizers on the host: each has a loop over f32 ranges, with the formula of strata/ops.h, that is limited
 * only by memory bandwidth. For a slot that the settings do not need, the range of the parameters is passed; the loop does not
 * access it as a slot. The bits are the same on each x86 processor: AVX2 alone has no multiply-add. */
#include "core/op/update.h"

#include <float.h>
#include <math.h>

#include "backends/host/host.h"
#include "core/op/ops.h"
#include "strata/ops.h"

typedef struct update_ranges {
    float *parameters, *slots[STRATA_MAX_UPDATE_SLOTS];
    const float *gradients, *step;
    int64_t n;
} update_ranges;

#define UPDATE(name) HOST_LOOP(name, "avx2", (const strata_op_call *call, const update_ranges *u), (call, u))

/* Subnormal numbers become 0. The averages of gradients that have become 0 would decay to subnormal numbers, with which
 * many processors compute a hundred times more slowly. */
HOST_INLINE float flushed(float v) {
    return fabsf(v) < FLT_MIN ? 0 : v;
}

HOST_INLINE void adam_loop(const strata_op_call *call, const update_ranges *u) {
    const strata_adam_attrs *attrs = call->node->attrs;
    const float rate = u->step[STRATA_STEP_LEARNING_RATE], epsilon = (float)attrs->epsilon;
    const float by1 = (float)(1 - attrs->beta1), by2 = (float)(1 - attrs->beta2);
    const float shrink = attrs->decay != 0 ? u->step[STRATA_STEP_PLAIN_RATE] * (float)attrs->decay : 0;
    float *restrict p = u->parameters, *restrict m = u->slots[0], *restrict v = u->slots[1];
    const float *restrict g = u->gradients;
    const int64_t n = u->n;
    for (int64_t i = 0; i < n; i++) {
        m[i] = flushed(m[i] + by1 * (g[i] - m[i]));
        v[i] = flushed(v[i] + by2 * (g[i] * g[i] - v[i]));
        p[i] = (p[i] - shrink * p[i]) - rate * m[i] / (sqrtf(v[i]) + epsilon);
    }
}
UPDATE(adam)

HOST_INLINE void sgd_loop(const strata_op_call *call, const update_ranges *u) {
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
UPDATE(sgd)

HOST_INLINE void adagrad_loop(const strata_op_call *call, const update_ranges *u) {
    const strata_adagrad_attrs *attrs = call->node->attrs;
    const float rate = u->step[STRATA_STEP_LEARNING_RATE], epsilon = (float)attrs->epsilon;
    float *restrict p = u->parameters, *restrict squares = u->slots[0];
    for (int64_t i = 0; i < u->n; i++) {
        const float g = u->gradients[i];
        squares[i] += g * g;
        p[i] -= rate * g / sqrtf(squares[i] + epsilon);
    }
}
UPDATE(adagrad)

HOST_INLINE void rmsprop_loop(const strata_op_call *call, const update_ranges *u) {
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
UPDATE(rmsprop)

HOST_INLINE void lamb_loop(const strata_op_call *call, const update_ranges *u) {
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
UPDATE(lamb)

typedef struct update_row {
    const strata_op *op;
    int n_slots;
    void (*run)(const strata_op_call *call, const update_ranges *u);
} update_row;

static const update_row rows[] = {{&strata_op_adam, 2, adam},
                                  {&strata_op_sgd, 1, sgd},
                                  {&strata_op_adagrad, 1, adagrad},
                                  {&strata_op_rmsprop, 3, rmsprop},
                                  {&strata_op_lamb, 3, lamb}};

static const update_row *find(const strata_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static bool takes(const strata_tensor *node) {
    return find(node->op) && strata_host_is_f32(node);
}

static const strata_tensor *gradients_of(const strata_tensor *node) {
    return node->inputs[find(node->op)->n_slots + 1];
}

static int64_t work(const strata_tensor *node) {
    return 2 * strata_shape_elements(gradients_of(node)->shape);
}

/* The n elements of the variables from element `at` on, whose gradients begin at element `gradient`. */
static update_ranges part_of(const update_ranges *u, int n_slots, int64_t at, int64_t gradient, int64_t n) {
    update_ranges part = {.parameters = u->parameters + at, .gradients = u->gradients + gradient, .step = u->step, .n = n};
    for (int k = 0; k < n_slots; k++) part.slots[k] = u->slots[k] + at;
    return part;
}

/* Prefetches a row of the variables. The processor itself prefetches elements after MOST when it sees that the row is read in
 * order. */
static void prefetch(const update_ranges *u, int n_slots, const host_rows *table, int64_t at) {
    enum { LINE = 16, MOST = 64 };
    if (at >= table->n || table->ids[at] < 0 || table->ids[at] >= table->n_rows) return;
    for (int64_t k = table->ids[at] * table->row, end = k + (table->row < MOST ? table->row : MOST); k < end; k += LINE) {
        __builtin_prefetch(u->parameters + k, 1);
        for (int slot = 0; slot < n_slots; slot++) __builtin_prefetch(u->slots[slot] + k, 1);
    }
}

static void update(const host_call *host) {
    enum { AHEAD = 8 };
    const strata_op_call *call = &host->call;
    const update_row *row = find(call->node->op);
    const int gradients = row->n_slots + 1;
    update_ranges u = {.parameters = call->output, .gradients = call->inputs[gradients], .step = call->inputs[gradients + 1]};
    for (int k = 0; k < row->n_slots; k++) u.slots[k] = (float *)call->inputs[k + 1]; /* the variables are changed in place */
    if (!strata_gate_is_open(call->node->n_inputs > gradients + 2 ? call->inputs[gradients + 2] : NULL)) return;
    if (!host->rows) {
        const host_share share = strata_host_share(host, strata_shape_elements(gradients_of(call->node)->shape), 16);
        const update_ranges part = part_of(&u, row->n_slots, share.first, share.first, share.end - share.first);
        row->run(call, &part);
        return;
    }
    const int64_t size = host->rows->row;
    for (int64_t at = 0, first = 0, n; (n = strata_host_next_rows(host->rows, &at, &first)); at += n) {
        prefetch(&u, row->n_slots, host->rows, at + AHEAD);
        const update_ranges part = part_of(&u, row->n_slots, first * size, at * size, n * size);
        row->run(call, &part);
    }
}

const host_fast_op strata_host_updates[] = {{NULL, takes, NULL, update, work}, {0}};
