/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows the values of print nodes. An executable adds the operands of its print nodes to its outputs, after those of
 * the caller, and passes their values to the device's on_print when a run was waited for. */
#ifndef STRATA_CORE_RUN_PRINT_H
#define STRATA_CORE_RUN_PRINT_H

#include "core/compile/walk.h"
#include "core/op/attrs.h"
#include "core/run/device.h"

/* The print nodes of a graph that outputs and updates need, in the order of the graph. n 0: there are none. */
typedef struct strata_prints {
    /* The array is the caller's, to be freed; the nodes are borrowed from the graph. */
    strata_tensor **nodes;
    int n;
} strata_prints;

/* Adds the print nodes to the draft's outputs. Finds none if the device has no on_print. */
STRATA_MUST_USE strata_status strata_prints_find(const strata_device *device, strata_draft *draft, strata_prints *out_prints,
                                                 strata_error *err);

/* Shows the value of a print node after run number `run`, if the node prints in this run. data: the elements; NULL:
 * there are none. */
void strata_print_show(const strata_device *device, const strata_tensor *node, uint64_t run, const void *data);

#endif
