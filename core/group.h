/* SPDX-License-Identifier: Apache-2.0
 *
 * A group: the executables of a step's replicas, one a device, run together. Communication nodes are carried out here, on the host, between
 * their segments: each replica's operand is folded in replica order and the result is given to all.
 *
 * A step: strata_group_acquire, fill every replica's inputs in that slot, strata_group_submit, and later strata_group_wait before outputs are
 * read. Segments that need no result run while the host folds: submit returns when the last segment has been submitted. */
#ifndef STRATA_CORE_GROUP_H
#define STRATA_CORE_GROUP_H

#include "core/executable.h"

typedef struct strata_group strata_group;

/* Takes the executables, even on failure; all come from strata_executable_create_replica with the same options. INVALID, with both sides,
 * when two replicas' communication nodes differ in number, kind, dtype or shape. */
STRATA_MUST_USE strata_status strata_group_create(strata_executable *const *replicas, int n_replicas, strata_group **out_group,
                                                  strata_error *err);
void strata_group_destroy(strata_group *group); /* waits for its runs; NULL is fine */

int strata_group_n_replicas(const strata_group *group);
strata_executable *strata_group_replica(const strata_group *group, int replica);

STRATA_MUST_USE strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err);
/* contributes[r] false: replica r had no examples; what it computed is left out of every fold, and it receives the results. NULL: all do.
 * A failure names the replica, and ends the group: nothing more is submitted. */
STRATA_MUST_USE strata_status strata_group_submit(strata_group *group, int slot, const bool *contributes, strata_error *err);
STRATA_MUST_USE strata_status strata_group_wait(strata_group *group, int slot, strata_error *err);

/* What the group has communicated since it was made. */
typedef struct strata_group_counters {
    uint64_t bytes_read, bytes_written; /* by folds, of all replicas' memory */
    double fold_seconds;                /* in folds */
    double wait_seconds;                /* for the devices, before folds */
} strata_group_counters;
strata_group_counters strata_group_get_counters(const strata_group *group);

#endif
