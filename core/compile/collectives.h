/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication that stays inside of programs: where the devices of a channel are cores of one system that exchange values by
 * themselves (strata_device_collectives in core/run/device.h), its all_reduce, all_gather and reduce_scatter nodes compute like
 * any other node, and do not cut the graph into segments. */
#ifndef STRATA_CORE_COLLECTIVES_H
#define STRATA_CORE_COLLECTIVES_H

#include "core/graph/graph.h"

/* The devices of a group, which are all cores of one system. */
typedef struct strata_cores {
    /* Devices; fewer than 2: they exchange nothing by themselves. */
    int n;
    /* [n] Their numbers in the system, ascending. */
    int64_t *numbers;
    /* Bit (1 << dtype): values that every core adds up. */
    uint32_t sum_dtypes;
    /* Channels that are not local have members on other workers. */
    bool has_workers;
} strata_cores;

/* Whose program it is, in one group. */
typedef struct strata_core_place {
    /* NULL: the devices exchange nothing by themselves. */
    const strata_cores *cores;
    /* The device, among the group's. */
    int own;
    /* [cores->n] Whether the device's values count in sums and means; NULL: all do. */
    const bool *counts;
} strata_core_place;

/* Replaces *graph, which it destroys, by one whose communication among the cores is their own, and outputs and updates by their
 * counterparts. Bits are those of the host's exchange:
 *   - a device that does not count gives -0, which changes no sum;
 *   - a mean is the sum, divided by how many count;
 *   - a sum over workers is the cores' sum, which the first core gives to the host's exchange between the workers.
 * What stays the host's: exchanges that are not made in every step, sums of other dtypes, means over workers, means of anything
 * but f32, and parts over workers. place NULL: nothing is done. */
STRATA_MUST_USE strata_status strata_collectives_prepare(const strata_core_place *place, strata_graph **graph,
                                                         strata_tensor **outputs, int n_outputs, strata_tensor **updates,
                                                         int n_updates, strata_error *err);

/* Whether the node is carried out by the cores' own programs. */
bool strata_is_collective(const strata_tensor *node);

#endif
