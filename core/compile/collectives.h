/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication inside of programs. If the devices of a team are cores of one system that can exchange values
 * themselves (strata_device_collectives in core/run/device.h), their programs compute the team's all_reduce,
 * all_gather and reduce_scatter nodes like other nodes, and these nodes do not divide the graph into segments. */
#ifndef STRATA_CORE_COLLECTIVES_H
#define STRATA_CORE_COLLECTIVES_H

#include "core/compile/walk.h"

/* The devices of a group, which are all cores of one system. */
typedef struct strata_cores {
    /* The number of devices. Fewer than 2: the devices do not exchange values themselves. */
    int n;
    /* The number of the first of them among the devices of all workers (strata_team). */
    int first;
    /* [n] Their numbers in the system, ascending. */
    int64_t *numbers;
    /* Bit (1 << dtype) is set for the dtypes that every core can add up. */
    uint32_t sum_dtypes;
    /* There are other workers, so teams that are not local have members there. */
    bool has_workers;
} strata_cores;

/* The device for which a program is compiled, in a group. */
typedef struct strata_core_place {
    /* NULL: the devices do not exchange values themselves. */
    const strata_cores *cores;
    /* The number of the device in the group. */
    int own;
    /* [cores->n] Whether the device's values count in sums and means; NULL: all do. */
    const bool *counts;
} strata_core_place;

/* Replaces the communication nodes that the cores can perform themselves. Results have the same bits as those of the
 * host's exchange:
 *   - a device whose values do not count contributes -0, which changes no sum;
 *   - a mean is the sum, divided by the number of devices that count;
 *   - a sum over workers is the cores' sum, which the first core contributes to the host's exchange between the
 *     workers.
 * The host still performs exchanges that are not made in every step, sums of other dtypes, means over workers, means of
 * other dtypes than f32, and all_gather and reduce_scatter over workers. place NULL: nothing is changed. */
STRATA_MUST_USE strata_status strata_collectives_prepare(const strata_core_place *place, strata_draft *draft,
                                                         strata_error *err);

/* Whether the cores' own programs perform the node. */
bool strata_is_collective(const strata_tensor *node);

#endif
