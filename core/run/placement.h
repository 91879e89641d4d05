/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: which nodes of a plan the device runs, which the host runs for it, and a report of those that neither can run. */
#ifndef STRATA_CORE_PLACEMENT_H
#define STRATA_CORE_PLACEMENT_H

#include "core/compile/passes.h"
#include "core/run/device.h"

/* The queries of the passes, answered by the device. */
strata_device_query strata_placement_query(strata_device *device);

/* Where one node of a plan runs. */
typedef struct strata_placement {
    const strata_tensor *node;
    strata_support support;
    /* Why the device does not run it; "" where it does. */
    char reason[256];
} strata_placement;

typedef strata_status strata_placement_visit(const strata_placement *placement, void *user, strata_error *err);

/* Calls `visit` for each of the n nodes, in order, until it fails. */
STRATA_MUST_USE strata_status strata_placement_each(strata_device *device, const strata_tensor *const *nodes, int n,
                                                    strata_placement_visit *visit, void *user, strata_error *err);

/* Fails with UNSUPPORTED if one of the n nodes cannot run. The message has a line for each such node, as many as fit. */
STRATA_MUST_USE strata_status strata_placement_check(strata_device *device, const strata_tensor *const *nodes, int n,
                                                     strata_error *err);

#endif
