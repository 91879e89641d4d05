/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods that add up the values of a worker's replicas. */
#include "core/run/cross_device.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/run/fold.h"
#include "strata/executable.h"
#include "strata/strategy.h"

/* ---- host: one pass over all operands, in replica order. tree: in pairs. Both by core/run/fold.h ---- */

static strata_status add_in_order(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                                  int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err) {
    (void)plan, (void)err;
    strata_fold(dtype, reduction, operands, n_operands, elements, results, n_results);
    return STRATA_OK;
}

static strata_status add_in_pairs(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                                  int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err) {
    (void)plan, (void)err;
    strata_fold_ordered(dtype, reduction, true, operands, n_operands, elements, results, n_results);
    return STRATA_OK;
}

/* ---- device: operands are copied to the first replica's device, which adds them in replica order, and the sum is copied to
 * the replicas that receive it. The addition runs after the work that was submitted to the device before, so it overlaps less
 * with computation than a fold on the host does. It is meant for devices whose memory is far faster than the host's ---- */

typedef struct plan {
    strata_graph *graph;
    strata_executable *executable;
    int n_operands;
} plan;

static void destroy(void *user) {
    plan *p = user;
    if (!p) return;
    strata_executable_destroy(p->executable);
    strata_graph_destroy(p->graph);
    free(p);
}

/* f16 and bf16 are added in f32. */
static strata_tensor *sum(strata_graph *graph, strata_dtype dtype, strata_reduction reduction, int n, int64_t elements) {
    const bool small = dtype == STRATA_DTYPE_F16 || dtype == STRATA_DTYPE_BF16;
    strata_tensor *total = NULL;
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        strata_tensor *x = strata_input(graph, name, dtype, STRATA_SHAPE(elements));
        if (small) x = strata_cast(x, STRATA_DTYPE_F32);
        total = total ? strata_add(total, x) : x;
    }
    if (reduction == STRATA_REDUCE_MEAN) total = strata_div(total, strata_scalar(graph, strata_tensor_dtype(total), n));
    return small ? strata_cast(total, dtype) : total;
}

static strata_status prepare(strata_device *device, strata_dtype dtype, strata_reduction reduction, int n_operands,
                             int64_t elements, void **out_plan, strata_error *err) {
    if (n_operands < 2 || !elements) return STRATA_OK;
    plan *p;
    STRATA_TRY(STRATA_NEW(p, 1, err, "no host memory for a sum of replicas"));
    *out_plan = p;
    p->n_operands = n_operands;
    STRATA_TRY(strata_graph_create(&p->graph, err));
    strata_tensor *total = sum(p->graph, dtype, reduction, n_operands, elements);
    const strata_executable_options opts = {.n_slots = 1};
    return strata_executable_create(device, &total, 1, NULL, 0, &opts, &p->executable, err);
}

static strata_status add_on_device(void *user, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                                   int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err) {
    const plan *p = user;
    const size_t bytes = (size_t)elements * strata_dtype_bytes(dtype);
    if (!p || n_operands != p->n_operands) { /* a replica had no examples */
        strata_fold(dtype, reduction, operands, n_operands, elements, results, n_results);
        return STRATA_OK;
    }
    int slot = 0;
    STRATA_TRY(strata_executable_acquire(p->executable, &slot, err));
    for (int i = 0; i < n_operands; i++) memcpy(strata_executable_input(p->executable, slot, i), operands[i], bytes);
    STRATA_TRY(strata_executable_submit(p->executable, slot, err));
    STRATA_TRY(strata_executable_wait(p->executable, slot, err));
    for (int j = 0; j < n_results; j++) memcpy(results[j], strata_executable_output(p->executable, slot, 0), bytes);
    return STRATA_OK;
}

/* ---- the table ---- */

static const strata_cross_device_ops table[] = {
    {.name = "host", .reduce = add_in_order},
    {.name = "tree", .reduce = add_in_pairs},
    {.name = "device", .prepare = prepare, .destroy = destroy, .reduce = add_on_device},
};
const strata_cross_device_ops *const strata_cross_device_host = &table[0];

const char *const strata_cross_device_names[] = {"host", "tree", "device", NULL};

strata_status strata_cross_device_find(const char *name, const strata_cross_device_ops **out_ops, strata_error *err) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!name || !strcmp(table[i].name, name)) {
            *out_ops = &table[i];
            return STRATA_OK;
        }
    return strata_fail(err, STRATA_INVALID, "there are no cross-device ops \"%s\"; there are: host, tree, device", name);
}
