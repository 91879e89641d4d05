/* SPDX-License-Identifier: Apache-2.0
 *
 * A group runs the executables of a step's replicas, one for each device, together. It performs the communication nodes on the
 * host, between their segments: it folds the values of the replicas in replica order and copies the result to the replicas that
 * receive it.
 *
 * To run a step, call strata_group_acquire, write every replica's inputs in that slot, call strata_group_start and
 * strata_group_finish, and later strata_group_wait before outputs are read. start submits the segments that do not depend on
 * other replicas; while the devices run them, the host may write the inputs of the next step. finish performs the
 * communications, each after those that its members have before it, and when its operands are computed; those without a common
 * member do not wait for each other (core/run/lanes.h). It performs each one only after all segments of its members that do not
 * need it were submitted, so that devices compute during a fold. It returns when the last segment was submitted.
 *
 * If the devices are cores whose programs contain collectives (core/compile/collectives.h), the programs wait for each other.
 * The group then only ensures that all programs are submitted before it waits for one. An error names the core for which the
 * others wait. */
#ifndef STRATA_CORE_GROUP_H
#define STRATA_CORE_GROUP_H

#include "core/base/trace.h"
#include "core/run/cross_device.h"
#include "core/run/executable.h"
#include "core/run/strategy.h"

typedef struct strata_group strata_group;

/* Takes the executables, even on failure; all come from strata_executable_create_replica with the same options. Replicas'
 * communication nodes are matched by team (core/op/communication.h): all members of a team must have the same nodes in
 * the same order.
 * Fails: INVALID, with both nodes, when they have not, when two nodes of one exchange differ in op, dtype or shape, when no
 * replica contributes the value that one receives, and when cores would wait for each other for ever.
 *   workers  borrowed; exchanges in teams that are not local span the replicas of all of them, worker after worker.
 *            NULL: this worker alone
 *   ops      how this worker's values are added up; NULL: on the host, in replica order */
STRATA_MUST_USE strata_status strata_group_create(strata_executable *const *replicas, int n_replicas,
                                                  const strata_workers *workers, const strata_cross_device_ops *ops,
                                                  strata_group **out_group, strata_error *err);
void strata_group_destroy(strata_group *group); /* waits for its runs; NULL is fine */

/* From now on, adds slices for the work of the host to the trace, which is borrowed; NULL: no trace. tracks: [replicas] the
 * tracks of the devices, borrowed. For devices that do not measure times, the group adds their segments, as the host observes
 * them. */
void strata_group_set_trace(strata_group *group, strata_trace *trace, const int *tracks);

/* How often each device compares nodes of a step that is started with the references (strata_executable_recheck). 0, the
 * default: by time, first after a few seconds, then about once a minute, for at most a
 * two-hundredth of the time. Else after each `every` steps; -1: never. If a device computes wrongly, starting the step fails
 * with UNSUPPORTED. */
void strata_group_set_check(strata_group *group, int64_t every);

/* Calls `receive` with each sum that no device of the group and no other worker receives; NULL: it is dropped. */
void strata_group_set_receiver(strata_group *group, strata_receive *receive, void *user);

strata_executable *strata_group_replica(const strata_group *group, int replica);
int strata_group_n_slots(const strata_group *group);
/* The number of exchanges of a step, in an order in which each replica has its own ones, and a replica's part in one; NULL: it
 * takes none. */
int strata_group_n_exchanges(const strata_group *group);
const strata_communication *strata_group_communication(const strata_group *group, int replica, int index);

STRATA_MUST_USE strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err);
/* step: the number of the step since the training began, from 0, for the trace and for checks of devices. */
STRATA_MUST_USE strata_status strata_group_start(strata_group *group, int slot, int64_t step, strata_error *err);
/* contributes[r] false: replica r had no examples, so folds ignore its values, but it receives the results. contributes NULL:
 * all replicas contribute. The slot must be the one that was started last. A failure names the replica; the group submits
 * nothing after it. */
STRATA_MUST_USE strata_status strata_group_finish(strata_group *group, int slot, const bool *contributes, strata_error *err);
/* Waits for one replica, another one in each call, to measure the time of its share of the last step. For groups without
 * communication; other groups measure it when they wait before an exchange. */
STRATA_MUST_USE strata_status strata_group_measure(strata_group *group, int slot, strata_error *err);
STRATA_MUST_USE strata_status strata_group_wait(strata_group *group, int slot, strata_error *err);

/* The most steps that each device can run in one call without the host: 1 if a device does one run in each call, or if the host
 * performs an exchange. */
int strata_group_most_steps(const strata_group *group);
/* Starts and finishes n steps, at most strata_group_most_steps, in the slots first, first + 1, ... (modulo the slots), which
 * were acquired and whose inputs were written. step: the number of the first of these steps. */
STRATA_MUST_USE strata_status strata_group_run_steps(strata_group *group, int first, int n, int64_t step, strata_error *err);

/* Segments [first, end) of a replica, in the run of a micro-batch. */
typedef struct strata_group_action {
    int replica, microbatch;
    int first, end;
} strata_group_action;

/* How several micro-batches run in turns, each of which is a step. */
typedef struct strata_group_schedule {
    /* Each replica runs its actions in this order. Every segment of every replica is in one action for each micro-batch, in
     * ascending order. */
    const strata_group_action *actions;
    int n_actions, n_microbatches;
    /* The slots, which were acquired. Micro-batches take them in the order in which they are first named in `actions`. A slot
     * is used again when all replicas have ended its micro-batch. */
    const int *slots;
    int n_slots;
    /* The number of their step for the trace and for checks of devices, and that of micro-batch 0 in the step. */
    int64_t step;
    int first;
    /* [n_microbatches * n_replicas] Whether replica r has examples in micro-batch m, at index m * n_replicas + r; NULL: all. */
    const bool *contributes;
    /* Called in the caller's thread: to write the inputs of a micro-batch before its first segment is submitted, and to read
     * its outputs, which may be overwritten after the call. NULL: not needed. */
    strata_status (*begin)(void *user, int microbatch, int slot, strata_error *err);
    strata_status (*end)(void *user, int microbatch, int slot, strata_error *err);
    void *user;
} strata_group_schedule;

/* Runs all micro-batches and returns when they have ended; no other slot is in use. Each replica has a thread, which submits
 * its segments and performs the exchanges for whose operands it was the last one to arrive. A segment waits only for the
 * exchanges that it needs. Exchanges of one team keep their order on each worker if its members name their actions in the same
 * order.
 * Fails: INVALID if a segment is missing or named twice, if a replica would wait for ever, if values of two micro-batches would
 * be in the same memory (strata_executable_create_in_flight), and for cores whose programs wait for each other; otherwise with
 * the first failure, after which nothing is submitted, and when nothing runs any more. */
STRATA_MUST_USE strata_status strata_group_run_schedule(strata_group *group, const strata_group_schedule *schedule,
                                                        strata_error *err);

/* How long the replica's device had nothing to run while schedules ran, in seconds, as the host observed it: the bubble.
 * *out_all: how long they ran. Both since the last call for this replica. */
double strata_group_take_idle(strata_group *group, int replica, double *out_all);

/* The parts of a replica's program in a pipeline: the forward pass is segments [0, backward), the backward pass [backward,
 * weights), and [weights, n_segments) what follows the last value that an earlier stage needs. */
typedef struct strata_group_phases {
    int backward, weights, n_segments;
} strata_group_phases;
/* stages: [devices of all workers] the stage of each. The backward pass begins when the replica waits for a value of a later
 * stage, or, at the last stage, with the first segment whose value goes to an earlier one. */
strata_group_phases strata_group_find_phases(const strata_group *group, int replica, const int *stages);

/* The communication of a group since it was created. */
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
/* The mean seconds that replica r took from the start of a step to its first communication, or to its end if there is none. It
 * is measured in the steps in which replica r was waited for first; the replicas take turns. 0: not measured yet. */
double strata_group_replica_seconds(const strata_group *group, int replica);

/* Adds up the counters of several groups, for reports; initialize totals with {0}. n_replicas: how many replicas, from the
 * first on, compute examples; their imbalance in the group with most steps is reported. updates: each run of the group is a
 * training step. */
typedef struct strata_group_totals {
    strata_group_counters sum;
    uint64_t most_steps;
    double imbalance;
} strata_group_totals;
void strata_group_add(const strata_group *group, int n_replicas, bool updates, strata_group_totals *totals);
strata_communication_totals strata_group_total(const strata_group_totals *totals);

#endif
