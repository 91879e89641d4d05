/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes of a plan the device runs, which the host runs for it, and a report of those that neither can run. */
#ifndef STRATA_CORE_NODE_SUPPORT_H
#define STRATA_CORE_NODE_SUPPORT_H

#include "core/compile/passes.h"
#include "core/run/device.h"

/* The queries of the passes, answered by the device. */
strata_device_query strata_node_support_query(strata_device *device);

/* Where one node of a plan runs. */
typedef struct strata_node_support {
    const strata_tensor *node;
    strata_support support;
    /* Why the device does not run it; "" where it does. */
    char reason[256];
} strata_node_support;

typedef strata_status strata_node_support_visit(const strata_node_support *placement, void *user, strata_error *err);

/* Calls `visit` for each of the n nodes, in order, until it fails. */
STRATA_MUST_USE strata_status strata_node_support_each(strata_device *device, const strata_tensor *const *nodes, int n,
                                                       strata_node_support_visit *visit, void *user, strata_error *err);

/* Fails with UNSUPPORTED if one of the n nodes cannot run. The message has a line for each such node, as many as fit. */
STRATA_MUST_USE strata_status strata_node_support_check(strata_device *device, const strata_tensor *const *nodes, int n,
                                                        strata_error *err);

#endif
