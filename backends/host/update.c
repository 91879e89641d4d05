/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of the optimizers besides Adam (adam.c) on the host: each has a loop over f32 ranges (update_loops.h) that is limited
 * only by memory bandwidth. For a slot that the settings do not need, the range of the parameters is passed; the loop does not
 * access it as a slot. */
#include "core/op/update.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/op/ops.h"
#include "strata/ops.h"

typedef struct update_ranges {
    float *parameters, *slots[STRATA_MAX_UPDATE_SLOTS];
    const float *gradients, *step;
    int64_t n;
} update_ranges;

typedef struct update_row {
    const strata_op *op;
    int n_slots;
    void (*run)(const strata_op_call *call, const update_ranges *u);
} update_row;

#if defined(__x86_64__)
#define TARGET      __attribute__((target("avx2")))
#define NAMED(name) avx2_##name
#include "backends/host/update_loops.h"
#endif
#define TARGET
#define NAMED(name) portable_##name
#include "backends/host/update_loops.h"

/* The loops for this processor. Their bits are the same: AVX2 alone has no multiply-add. */
static const update_row *find(const strata_op *op) {
    const update_row *rows = portable_rows;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) rows = avx2_rows;
#endif
    for (size_t i = 0; i < sizeof portable_rows / sizeof *portable_rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

bool strata_host_update_takes(const strata_tensor *node) {
    return find(node->op) != NULL;
}

void strata_host_update(const host_call *host) {
    const strata_op_call *call = &host->call;
    const update_row *row = find(call->node->op);
    const int gradients = row->n_slots + 1;
    update_ranges u = {.parameters = call->output,
                       .gradients = call->inputs[gradients],
                       .step = call->inputs[gradients + 1],
                       .n = strata_shape_elements(call->node->inputs[gradients]->shape)};
    for (int k = 0; k < row->n_slots; k++) u.slots[k] = (float *)call->inputs[k + 1]; /* the variables are changed in place */
    if (!strata_gate_is_open(call->node->n_inputs > gradients + 2 ? call->inputs[gradients + 2] : NULL)) return;
    if (!host->rows) row->run(call, &u);
    const int64_t size = host->rows ? host->rows->row : 0;
    for (int64_t at = 0, first = 0, n; host->rows && (n = strata_host_next_rows(host->rows, &at, &first)); at += n) {
        update_ranges some = {
            .parameters = u.parameters + first * size, .gradients = u.gradients + at * size, .step = u.step, .n = n * size};
        for (int k = 0; k < row->n_slots; k++) some.slots[k] = u.slots[k] + first * size;
        row->run(call, &some);
    }
}
