/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-device ops: methods that compute the sum or mean of the values of a worker's replicas. A new method needs a
 * row in cross_device.c and a name in strata_cross_device_names (strata/strategy.h). */
#ifndef STRATA_CORE_CROSS_DEVICE_H
#define STRATA_CORE_CROSS_DEVICE_H

#include "core/graph/graph.h"
#include "strata/device.h"
#include "strata/ops.h"

typedef struct strata_cross_device_ops {
    const char *name;
    /* Called once for each communication, before the first step. Prepares, on the first replica's device, what `reduce`
     * needs for n_operands operands. *out_plan may stay NULL. prepare and destroy are NULL if the method needs no
     * preparation. */
    strata_status (*prepare)(strata_device *device, strata_dtype dtype, strata_reduction reduction, int n_operands,
                             int64_t elements, void **out_plan, strata_error *err);
    void (*destroy)(void *plan); /* NULL is fine */
    /* Like strata_fold, but the method chooses the order of the additions, which must depend only on n_operands. Must
     * not allocate or compile. */
    strata_status (*reduce)(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                            int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err);
} strata_cross_device_ops;

extern const strata_cross_device_ops *const strata_cross_device_host;

/* Finds the method with this name; NULL: "host". Fails: INVALID if there is none, with the names of all methods. */
STRATA_MUST_USE strata_status strata_cross_device_find(const char *name, const strata_cross_device_ops **out_ops,
                                                       strata_error *err);

#endif
