/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-device ops: how the values of a worker's replicas become their sum or mean. A new way is core/cross_device/<name>.c
 * with its row in cross_device.c and its name in strata_cross_device_names (strata/strategy.h). */
#ifndef STRATA_CORE_CROSS_DEVICE_H
#define STRATA_CORE_CROSS_DEVICE_H

#include "core/graph/graph.h"
#include "strata/device.h"
#include "strata/ops.h"

typedef struct strata_cross_device_ops {
    const char *name;
    /* Once for each communication, before the first step: whatever it will need for n operands on the first replica's device.
     * *out_plan may stay NULL. prepare and destroy are NULL where nothing is needed. */
    strata_status (*prepare)(strata_device *device, strata_dtype dtype, strata_reduction reduction, int n_operands,
                             int64_t elements, void **out_plan, strata_error *err);
    void (*destroy)(void *plan); /* NULL is fine */
    /* As strata_fold, in an order of additions of its own that depends on n_operands alone. Allocates and compiles nothing. */
    strata_status (*reduce)(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                            int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err);
} strata_cross_device_ops;

extern const strata_cross_device_ops strata_cross_device_host, strata_cross_device_tree, strata_cross_device_device;

/* INVALID: there is none of that name, with those there are. NULL: "host". */
STRATA_MUST_USE strata_status strata_cross_device_find(const char *name, const strata_cross_device_ops **out_ops,
                                                       strata_error *err);

#endif
