/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes of the op print show: an executable makes the values that they look at outputs behind its own, and hands them to
 * the device's on_print when a run has been waited for. */
#ifndef STRATA_CORE_RUN_PRINT_H
#define STRATA_CORE_RUN_PRINT_H

#include "core/op/print.h"
#include "core/run/device.h"

/* The print nodes of a graph that outputs and updates need, in the order of the graph. n 0: there are none. */
typedef struct strata_prints {
    /* Borrowed from the graph. */
    strata_tensor **nodes;
    int n;
} strata_prints;

/* Finds none where the device has no on_print. Roots that are NULL are left to the passes, which refuse them. */
STRATA_MUST_USE strata_status strata_prints_find(const strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                 strata_tensor *const *updates, int n_updates, strata_prints *out_prints,
                                                 strata_error *err);
void strata_prints_finish(strata_prints *prints); /* a zeroed one is fine */

/* Shows the value of a print node after run `run`, if that is one of its runs. data: the elements; NULL: there are none. */
void strata_print_show(const strata_device *device, const strata_tensor *node, uint64_t run, const void *data);

#endif
