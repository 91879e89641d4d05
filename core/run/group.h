/* SPDX-License-Identifier: Apache-2.0
 *
 * A group: the executables of a step's replicas, one a device, run together. Communication nodes are carried out here, on the
 * host, between
 * their segments: what replicas give is folded in replica order and handed to those that take it.
 *
 * A step: strata_group_acquire, fill every replica's inputs in that slot, strata_group_start, strata_group_finish, and later
 * strata_group_wait before outputs are read. start submits what needs no other replica; while the devices are at it the host
 * may prepare the next step's inputs. finish carries the communications out, in order, each after everything that does not need
 * it has been submitted, so that devices have work during a fold; it returns when the last segment has been submitted.
 *
 * Where devices are cores that exchange by themselves (core/compile/collectives.h), their programs wait for each other, and the
 * group only sees to it that all of them are submitted before it waits for one. A failure then names the core that the others
 * wait for. */
#ifndef STRATA_CORE_GROUP_H
#define STRATA_CORE_GROUP_H

#include "core/base/trace.h"
#include "core/run/cross_device.h"
#include "core/run/executable.h"
#include "core/run/strategy.h"

typedef struct strata_group strata_group;

/* Takes the executables, even on failure; all come from strata_executable_create_replica with the same options. Replicas'
 * communication nodes are matched by channel (core/op/communication.h): all members of a channel must have the same nodes in
 * the same order.
 * Fails: INVALID, with both sides, when they do not, when two nodes of one exchange differ in op, dtype or shape, when nobody
 * gives what one takes, and when cores would wait for each other for ever.
 *   workers  borrowed; exchanges in channels that are not local span the replicas of all of them, worker after worker.
 *            NULL: this worker alone
 *   ops      how this worker's values are added up; NULL: on the host, in replica order */
STRATA_MUST_USE strata_status strata_group_create(strata_executable *const *replicas, int n_replicas,
                                                  const strata_workers *workers, const strata_cross_device_ops *ops,
                                                  strata_group **out_group, strata_error *err);
void strata_group_destroy(strata_group *group); /* waits for its runs; NULL is fine */

/* Slices of what the host does are added to it from now on: borrowed; NULL: none. tracks: [replicas] of their devices, where
 * segments are added of devices that do not tell times themselves, as the host saw them; borrowed. */
void strata_group_set_trace(strata_group *group, strata_trace *trace, const int *tracks);

int strata_group_n_replicas(const strata_group *group);
strata_executable *strata_group_replica(const strata_group *group, int replica);
int strata_group_n_slots(const strata_group *group);
/* The exchanges of a step, in the order in which they are carried out, and a replica's node of one; its node is NULL, and after
 * and before are -1, where the replica takes no part. */
int strata_group_n_exchanges(const strata_group *group);
strata_executable_communication strata_group_communication(const strata_group *group, int replica, int index, int slot);

STRATA_MUST_USE strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err);
/* step: its number since the training began, from 0, for exchanges that are not made in each, and the trace. */
STRATA_MUST_USE strata_status strata_group_start(strata_group *group, int slot, int64_t step, strata_error *err);
/* contributes[r] false: replica r had no examples; what it computed is left out of every fold of several replicas' values, and
 * it receives the results. NULL: all do. The slot is the one that was started last. A failure names the replica, and ends the
 * group: nothing more is submitted. */
STRATA_MUST_USE strata_status strata_group_finish(strata_group *group, int slot, const bool *contributes, strata_error *err);
/* Waits for one replica, each in its turn, to measure what its share of the step that was finished last takes: for groups that
 * communicate nothing, as the others learn it by the way. */
STRATA_MUST_USE strata_status strata_group_look(strata_group *group, int slot, strata_error *err);
STRATA_MUST_USE strata_status strata_group_wait(strata_group *group, int slot, strata_error *err);

/* How many steps the group takes in one call of each device, with nothing to do for the host in between: 1 where a device takes
 * one run a call, or where the host carries an exchange out. */
int strata_group_most_steps(const strata_group *group);
/* Starts and finishes n steps, at most as many as that, in the slots first, first + 1, ... (modulo the slots), which were
 * acquired and filled. step: of the first of them. */
STRATA_MUST_USE strata_status strata_group_run_steps(strata_group *group, int first, int n, int64_t step, strata_error *err);

/* What the group has communicated since it was made. */
typedef struct strata_group_counters {
    uint64_t steps;
    /* Bytes of all replicas' memory that exchanges read and wrote. */
    uint64_t bytes_read, bytes_written;
    /* Bytes that were sent to other workers. */
    uint64_t bytes_sent;
    /* Seconds spent in exchanges. */
    double fold_seconds;
    /* The part of these seconds in which a device was still computing what it had been given before the exchange. */
    double hidden_seconds;
    /* Seconds in which the host waited for devices before exchanges. */
    double wait_seconds;
} strata_group_counters;
strata_group_counters strata_group_get_counters(const strata_group *group);
/* Mean seconds that replica r took from the start of a step to its first communication or, when there is none, its end, over
 * the steps in which it was looked at first; the replicas take turns. 0: not looked at yet. */
double strata_group_replica_seconds(const strata_group *group, int replica);

/* Counters of several groups, {0} at first, added up for the user. n_replicas: the first ones compute, and the imbalance is
 * theirs in the group with most steps; 0: none does. updates: its runs are steps of the user's. */
typedef struct strata_group_totals {
    strata_group_counters sum;
    uint64_t most_steps;
    double imbalance;
} strata_group_totals;
void strata_group_add(const strata_group *group, int n_replicas, bool updates, strata_group_totals *totals);
strata_communication_totals strata_group_total(const strata_group_totals *totals);

#endif
