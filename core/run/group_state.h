/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a group, and what group.c, which runs one step at a time, shares with flight.c, which runs several. */
#ifndef STRATA_CORE_RUN_GROUP_STATE_H
#define STRATA_CORE_RUN_GROUP_STATE_H

#include "core/run/device.h"
#include "core/run/exchange.h"
#include "core/run/group.h"
#include "core/run/lanes.h"

/* A submitted segment that is not known to have ended, for the trace. */
typedef struct strata_group_submission {
    /* When it was submitted, in seconds, and its step; 0: it has ended, or there is no trace. */
    double at;
    int64_t step;
    /* Its name in the trace; NULL: not set yet. */
    const strata_trace_label *label;
} strata_group_submission;

typedef struct strata_group_member {
    strata_executable *executable;
    /* In a step: the segment to submit next. */
    int next;
    /* The tickets of the last segment that was submitted, and of the last one before the last fold. */
    uint64_t ticket, ticket_before_fold;
    /* Of segment k in slot s, at index s * n_segments + k. */
    strata_group_submission *submissions;
    int n_segments;
    /* Seconds to the first communication, the sum over the `n_timed` steps in which this replica was waited for first. */
    double seconds_to_exchange;
    uint64_t n_timed;
    /* How long schedules ran, and how long the device had nothing to run meanwhile, since strata_group_take_idle. */
    double scheduled_seconds, idle_seconds;
} strata_group_member;

/* What a thread needs to perform an exchange. */
typedef struct strata_group_lane {
    strata_exchange_job job;
    double folded; /* seconds of the last exchange, until it is known whether it was hidden */
    int track;     /* in the trace */
    strata_group_counters counters;
} strata_group_lane;

/* A step, or a micro-batch, that is in a slot. */
typedef struct strata_group_run {
    int slot;
    /* Its number for the trace: that of a step, or a strata_trace_microbatch. */
    int64_t step;
    /* [n_replicas] The replicas that contribute; NULL: all. */
    const bool *contributes;
} strata_group_run;

struct strata_group {
    strata_memory memory;
    strata_group_member *members; /* [n_replicas] */
    int n_replicas;
    strata_exchange *exchanges; /* [n_exchanges + 1], as strata_exchanges_match makes them */
    int n_exchanges;
    /* How many collectives each replica's programs contain, the bytes that all read and write in a step, and how long they have
     * taken. */
    int n_inside;
    uint64_t inside_read, inside_written;
    double inside_seconds;
    const strata_cross_device_ops *ops;
    const strata_workers *workers; /* NULL: there are no other workers */
    strata_lanes *order;
    /* [n_lanes] Of the threads that perform exchanges; lane 0 is the caller's. There is room for one of each replica in
     * addition, which flight.c uses. */
    strata_group_lane *lanes;
    int n_lanes;
    int64_t scratch_bytes;          /* of each lane */
    double started;                 /* when the current step was started, in seconds */
    int64_t check_every;            /* strata_group_set_check */
    strata_group_run run;           /* the step that was started last */
    struct strata_flights *flights; /* flight.c; NULL: no schedule was run */
    strata_trace *trace;            /* borrowed; NULL: none */
    const int *tracks;              /* [n_replicas] the tracks of the devices in the trace */
    strata_status failed;           /* a failure, after which nothing is submitted; written atomically */
    uint64_t steps;
};

static inline strata_device *strata_group_device(const strata_group *group, int replica) {
    return group->members[replica].executable->device;
}

/* The segment of the replica for which an exchange waits; -1: it gives no value. */
static inline int strata_group_after(const strata_group *group, int replica, int index) {
    const strata_communication *c = strata_group_communication(group, replica, index);
    return c ? c->after : -1;
}

STRATA_MUST_USE strata_status strata_group_check_alive(const strata_group *group, strata_error *err);
/* Checks the devices that are due, on the values in the slot of the first of n runs; nothing runs. */
STRATA_MUST_USE strata_status strata_group_check_devices(strata_group *group, const strata_group_run *run, int n,
                                                         strata_error *err);
/* Prepares the first n lanes. */
STRATA_MUST_USE strata_status strata_group_need_lanes(strata_group *group, int n, strata_error *err);
/* Submits a segment of the replica for n runs in the slots from the run's on, the first of which is `run`. */
STRATA_MUST_USE strata_status strata_group_submit(strata_group *group, const strata_group_lane *lane,
                                                  const strata_group_run *run, int n, int replica, int segment,
                                                  strata_error *err);
/* Waits for the end of a segment of the replica, and so of all its segments that were submitted before. *out_waited: how many
 * seconds it waited; NULL: not needed. */
STRATA_MUST_USE strata_status strata_group_wait_for_segment(strata_group *group, const strata_group_lane *lane,
                                                            const strata_group_run *run, int replica, int segment,
                                                            double *out_waited, strata_error *err);
/* The same before the exchange to which the segment gives a value. */
STRATA_MUST_USE strata_status strata_group_wait_for_operand(strata_group *group, strata_group_lane *lane,
                                                            const strata_group_run *run, int replica, int segment,
                                                            strata_error *err);
/* Performs an exchange whose operands are computed. */
STRATA_MUST_USE strata_status strata_group_exchange(strata_group *group, strata_group_lane *lane, const strata_group_run *run,
                                                    int index, strata_error *err);
void strata_flights_destroy(struct strata_flights *flights); /* NULL is fine */

#endif
