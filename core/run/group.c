/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of replicas (group.h). One thread of the host serves all devices: it only submits segments, waits for them, and
 * performs exchanges. Exchanges that have no device in common are performed by threads of their own (lanes.h). */
#include "core/run/group.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/op/ops.h"
#include "core/run/device.h"
#include "core/run/exchange.h"
#include "core/run/lanes.h"

/* When a device is checked first, and how often then, in seconds; the largest share of the time; and how long one check may
 * take: the first one, and one that the caller has requested after some steps. */
static const double FIRST_CHECK = 5, BETWEEN_CHECKS = 60, CHECKS_SHARE = 0.005, FIRST_CHECK_LENGTH = 0.05,
                    STEP_CHECK_LENGTH = 0.1;
static const double WORTH_A_WAIT = 5e-6; /* seconds; a wait for a segment that has already ended takes less */

/* The state of a submitted segment. */
typedef struct submission {
    /* It was submitted, and it is not known to have ended. */
    bool runs;
    /* When it was submitted, and its step, if there is a trace. */
    double at;
    int64_t step;
    /* Its name in the trace, as exchange.label. */
    const strata_trace_label *label;
} submission;

typedef struct member {
    strata_executable *executable;
    /* The segment to submit next. */
    int next;
    /* [exchanges] The index of this replica's communication node in the exchange; -1: it takes no part. */
    int *own;
    /* [exchanges + 1] Segments with smaller numbers need neither this exchange nor a later one. */
    int *limit;
    /* [exchanges + 1] The replica's first exchange with this number or a larger one; the number of exchanges: there is none. */
    int *next_exchange;
    /* Seconds to the first communication, the sum over the `n_timed` steps in which this replica was waited for first. */
    double seconds_to_exchange;
    uint64_t n_timed;
    /* Of segment k in slot s, at index s * n_segments + k. */
    submission *submissions;
    int n_segments;
    /* How many segments were submitted before the last fold. */
    int n_before_fold;
} member;

typedef struct exchange {
    /* The first replica that takes part. */
    int first;
    /* What the cross-device ops prepared for this exchange; NULL: nothing. */
    void *plan;
    /* Its name in the trace, which outlives the group; NULL: not set yet. */
    const strata_trace_label *label;
    /* The workers that take part, of which first_replicas numbers the exchange's members and is owned by the group. n 0: this
     * worker alone, or one message to another worker. */
    strata_workers workers;
} exchange;

/* What a thread needs to perform an exchange. */
typedef struct lane {
    strata_exchange_member *parts; /* [n_replicas] */
    const void **operands;         /* [n_replicas] */
    void **results;                /* [n_replicas] */
    void *scratch;
    double folded; /* seconds of the last exchange, until it is known whether it was hidden */
    int track;     /* in the trace */
    strata_group_counters counters;
} lane;

struct strata_group {
    member *members; /* [n_replicas] */
    exchange *exchanges;
    int n_replicas, n_exchanges;
    /* The replicas' programs contain collectives. They read and write so many bytes in a step, and have taken so long. */
    bool exchanges_inside;
    uint64_t inside_read, inside_written;
    double inside_seconds;
    const strata_cross_device_ops *ops;
    const strata_workers *workers; /* NULL: there are no other workers */
    strata_lanes *order;
    lane *lanes;             /* [strata_lanes_n] */
    bool reads_results;      /* results are in memory that the host reads fast */
    double started;          /* when the current step was started, in seconds */
    int64_t step;            /* the number of the current step */
    int64_t check_every;     /* strata_group_set_check */
    strata_receive *receive; /* strata_group_set_receiver */
    void *receiver;
    /* The slot of the step that is being finished, and the replicas that contribute. */
    int slot;
    const bool *contributes;
    strata_trace *trace;  /* borrowed; NULL: none */
    const int *tracks;    /* [n_replicas] the tracks of the devices in the trace */
    strata_status failed; /* a failure, after which nothing is submitted; written atomically */
    uint64_t steps;
};

static strata_device *device_of(const strata_group *group, int replica) {
    return group->members[replica].executable->device;
}

strata_executable_communication strata_group_communication(const strata_group *group, int replica, int index, int slot) {
    const member *m = &group->members[replica];
    if (m->own[index] >= 0) return strata_executable_get_communication(m->executable, m->own[index], slot);
    return (strata_executable_communication){.after = -1, .before = -1};
}

static const strata_tensor *node_of(const strata_group *group, int index) {
    return strata_group_communication(group, group->exchanges[index].first, index, 0).node;
}

/* ---- create: matching communication nodes to exchanges ---- */

static const strata_communication_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static strata_channel channel_of(const strata_tensor *node) {
    return attrs_of(node)->channel;
}

static bool is_member(const strata_group *group, strata_channel channel, int replica) {
    const int first = group->workers && !channel.local ? group->workers->first_replica : 0;
    return strata_channel_has(channel, first + replica);
}

/* The replica's first communication node that is not part of an exchange yet; NULL: all are. at: how many are. */
static const strata_tensor *front(const strata_group *group, int replica, const int *at) {
    strata_executable *executable = group->members[replica].executable;
    if (at[replica] == executable->plan.n_communications) return NULL;
    return strata_executable_get_communication(executable, at[replica], 0).node;
}

/* A member of the channel whose first unmatched node belongs to another channel, or that has no unmatched node; -1: the first
 * unmatched nodes of all members belong to the channel. */
static int missing(const strata_group *group, strata_channel channel, const int *at) {
    for (int r = 0; r < group->n_replicas; r++) {
        if (!is_member(group, channel, r)) continue;
        const strata_tensor *node = front(group, r, at);
        if (!node || !strata_channel_equal(channel_of(node), channel)) return r;
    }
    return -1;
}

static strata_status check_same(const strata_group *group, int index, strata_error *err) {
    const int first = group->exchanges[index].first;
    const strata_tensor *a = node_of(group, index);
    bool given = false;
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_executable_communication c = strata_group_communication(group, r, index, 0);
        given |= c.after >= 0;
        if (!c.node || r == first) continue;
        const strata_status status = strata_exchange_check(a, c.node, err);
        if (status) return strata_fail_in(err, status, "communication %d of replicas %d and %d", index, first, r);
    }
    if (given || strata_exchange_spans_workers(a, group->workers))
        return STRATA_OK; /* a replica of another worker may contribute the value */
    return strata_fail(err, STRATA_INVALID, "communication %d, %s: no replica gives a value", index, strata_tensor_name(a));
}

/* Finds the next exchange: a channel to which the first unmatched nodes of all its members belong. Of several, it is the one
 * whose members have the fewest exchanges before it, so that workers whose devices make the same exchanges, each in its own
 * channels, choose the same order. */
static strata_status add_exchange(strata_group *group, int *at, strata_error *err) {
    int lacks = -1, has = -1, next = -1;
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_tensor *node = front(group, r, at);
        if (!node || (next >= 0 && at[r] >= at[next])) continue;
        const int without = is_member(group, channel_of(node), r) ? missing(group, channel_of(node), at) : r;
        if (without < 0)
            next = r;
        else if (has < 0)
            has = r, lacks = without;
    }
    if (next >= 0) {
        const strata_channel channel = channel_of(front(group, next, at));
        const int index = group->n_exchanges++;
        group->exchanges[index].first = -1;
        for (int m = 0; m < group->n_replicas; m++) {
            const bool takes_part = is_member(group, channel, m);
            if (takes_part && group->exchanges[index].first < 0) group->exchanges[index].first = m;
            group->members[m].own[index] = takes_part ? at[m]++ : -1;
        }
        return STRATA_OK;
    }
    const strata_tensor *node = front(group, has, at), *other = front(group, lacks, at);
    return strata_fail(
        err, STRATA_INVALID,
        "replica %d has communication %d, %s in channel %lld, of which replica %d is a member and has %s%s there; "
        "the members of a channel must have the same communications in the same order",
        has, at[has], strata_tensor_name(node), (long long)channel_of(node).id, lacks,
        other ? strata_tensor_name(other) : "nothing", other ? " of another channel" : "");
}

static strata_status match(strata_group *group, strata_error *err) {
    static const char no_memory[] = "no host memory for %d communications";
    STRATA_FREED int *at = NULL;
    int total = 0;
    STRATA_TRY(STRATA_NEW(at, group->n_replicas, err, "no host memory for a group"));
    for (int r = 0; r < group->n_replicas; r++) total += group->members[r].executable->plan.n_communications;
    STRATA_TRY(STRATA_NEW(group->exchanges, total, err, no_memory, total));
    for (int r = 0; r < group->n_replicas; r++) STRATA_TRY(STRATA_NEW(group->members[r].own, total, err, no_memory, total));
    for (;;) {
        int left = 0;
        for (int r = 0; r < group->n_replicas; r++) left += front(group, r, at) != NULL;
        if (!left) return STRATA_OK;
        STRATA_TRY(add_exchange(group, at, err));
        STRATA_TRY(check_same(group, group->n_exchanges - 1, err));
    }
}

/* ---- create: the workers of each exchange ---- */

static bool is_message(const strata_tensor *node) {
    return node->op == &strata_op_send || node->op == &strata_op_recv;
}

static bool is_parts(const strata_tensor *node) {
    return node->op == &strata_op_all_gather || node->op == &strata_op_reduce_scatter;
}

/* Sets e->workers.first_replicas to the numbers of the workers' first members, and ranks to those that have members; returns
 * how many have. */
static int count_members(const strata_workers *all, strata_channel channel, exchange *e, int *ranks) {
    int n = 0, *firsts = e->workers.first_replicas;
    for (int w = 0; w < all->n; w++) {
        int members = 0;
        for (int d = all->first_replicas[w]; d < all->first_replicas[w + 1]; d++) members += strata_channel_has(channel, d);
        if (!members) continue;
        firsts[n + 1] = firsts[n] + members;
        ranks[n++] = w;
    }
    return n;
}

/* A gather or a scatter has a part for each device that takes part. */
static strata_status check_parts(const strata_group *group, int index, int n_devices, strata_error *err) {
    const strata_tensor *node = node_of(group, index);
    if (!is_parts(node) || ((const strata_parts_attrs *)node->attrs)->n == n_devices) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "communication %d, %s: it has %lld parts and %d devices take part", index,
                       strata_tensor_name(node), (long long)((const strata_parts_attrs *)node->attrs)->n, n_devices);
}

static strata_status find_workers(strata_group *group, int index, int *ranks, strata_error *err) {
    const strata_workers *all = group->workers;
    const strata_tensor *node = node_of(group, index);
    exchange *e = &group->exchanges[index];
    const int64_t n_members = channel_of(node).n_members;
    if (is_message(node)) return STRATA_OK;
    if (!strata_exchange_spans_workers(node, all))
        return check_parts(group, index, n_members ? (int)n_members : group->n_replicas, err);
    STRATA_TRY(STRATA_NEW(e->workers.first_replicas, all->n + 1, err, "no host memory for %d workers", all->n));
    int *firsts = e->workers.first_replicas;
    const int n = count_members(all, channel_of(node), e, ranks);
    if (channel_of(node).n_members && firsts[n] != channel_of(node).n_members)
        return strata_fail(
            err, STRATA_INVALID,
            "communication %d, %s: its channel has %lld devices, of which the workers have %d; their devices are "
            "numbered 0 to %d",
            index, strata_tensor_name(node), (long long)channel_of(node).n_members, firsts[n], all->n_replicas - 1);
    STRATA_TRY(check_parts(group, index, firsts[n], err));
    /* Exchanges without a device in common may be performed at the same time, so each channel has its own communicator. */
    const strata_channel channel = channel_of(node);
    strata_workers workers = *all;
    const strata_status status = firsts[n] < all->n_replicas
                                     ? all->subset(all, ranks, n, channel.members, (int)channel.n_members, &workers, err)
                                     : STRATA_OK;
    if (status) return strata_fail_in(err, status, "communication %d, %s", index, strata_tensor_name(node));
    e->workers = workers;
    e->workers.first_replicas = firsts;
    e->workers.n_replicas = firsts[n];
    e->workers.first_replica = firsts[e->workers.rank];
    return STRATA_OK;
}

static strata_status find_all_workers(strata_group *group, strata_error *err) {
    STRATA_FREED int *ranks = NULL;
    STRATA_TRY(STRATA_NEW(ranks, group->workers ? group->workers->n : 1, err, "no host memory for workers"));
    for (int e = 0; e < group->n_exchanges; e++) STRATA_TRY(find_workers(group, e, ranks, err));
    return STRATA_OK;
}

static strata_status find_limits(strata_group *group, strata_error *err) {
    const int n = group->n_exchanges;
    for (int r = 0; r < group->n_replicas; r++) {
        member *m = &group->members[r];
        m->n_segments = m->executable->plan.n_segments;
        STRATA_TRY(STRATA_NEW(m->limit, n + 1, err, "no host memory for %d communications", n));
        STRATA_TRY(STRATA_NEW(m->next_exchange, n + 1, err, "no host memory for %d communications", n));
        STRATA_TRY(STRATA_NEW(m->submissions, m->n_segments * m->executable->n_slots, err, "no host memory for %d segments",
                              m->n_segments));
        m->limit[n] = m->n_segments;
        m->next_exchange[n] = n;
        for (int c = n - 1; c >= 0; c--) {
            m->next_exchange[c] = m->own[c] >= 0 ? c : m->next_exchange[c + 1];
            const int before = strata_group_communication(group, r, c, 0).before;
            m->limit[c] = before >= 0 && before < m->limit[c + 1] ? before : m->limit[c + 1];
        }
    }
    return STRATA_OK;
}

/* ---- create: collectives of cores ---- */

/* Collective number `index` of the replica, with its segment; its node is NULL where there are fewer. */
static strata_executable_node collective_of(const strata_group *group, int replica, int index) {
    const strata_executable *exe = group->members[replica].executable;
    for (int i = 0; i < exe->plan.n_schedule; i++) {
        const strata_executable_node node = strata_executable_get_node(exe, i);
        if (strata_is_collective(node.node) && !index--) return node;
    }
    return (strata_executable_node){0};
}

/* Checks that whenever the host waits for a segment, all collectives up to this segment have been
 * submitted on every replica. */
static strata_status check_order(const strata_group *group, strata_error *err) {
    for (int e = 0; e < group->n_exchanges; e++)
        for (int r = 0; r < group->n_replicas; r++) {
            const int after = strata_group_communication(group, r, e, 0).after;
            for (int i = 0;; i++) {
                const strata_executable_node own = collective_of(group, r, i);
                if (!own.node || own.segment > after) break;
                for (int other = 0; other < group->n_replicas; other++)
                    if (collective_of(group, other, i).segment >= group->members[other].limit[e])
                        return strata_fail(err, STRATA_INVALID,
                                           "communication %d, %s: replica %d makes collective %s before it and replica %d "
                                           "behind it; the order must be the same",
                                           e, strata_tensor_name(node_of(group, e)), r, strata_tensor_name(own.node), other);
            }
        }
    return STRATA_OK;
}

/* Checks that all replicas have the same collectives in the same order, and counts their bytes as exchange.c does: each member
 * of a sum gives a whole value and gets a whole one. */
static strata_status check_collectives(strata_group *group, strata_error *err) {
    for (int i = 0, any = true; any; i++) {
        const strata_tensor *first = collective_of(group, 0, i).node;
        any = first != NULL;
        for (int r = 0; r < group->n_replicas; r++) {
            const strata_tensor *own = collective_of(group, r, i).node;
            if (!own != !first)
                return strata_fail(err, STRATA_INVALID, "replicas 0 and %d: one has a collective %s more than the other", r,
                                   strata_tensor_name(own ? own : first));
            if (!own) continue;
            const strata_status status = r ? strata_exchange_check(first, own, err) : STRATA_OK;
            if (status) return strata_fail_in(err, status, "collective %d of replicas 0 and %d", i, r);
            group->inside_read += (uint64_t)strata_shape_elements(own->inputs[0]->shape) * strata_dtype_bytes(own->dtype);
            group->inside_written += (uint64_t)strata_shape_elements(own->shape) * strata_dtype_bytes(own->dtype);
        }
        group->exchanges_inside |= any;
    }
    return group->exchanges_inside ? check_order(group, err) : STRATA_OK;
}

static strata_status prepare_ops(strata_group *group, const strata_cross_device_ops *ops, strata_error *err) {
    group->ops = ops ? ops : &strata_cross_device_host;
    for (int e = 0; e < group->n_exchanges && group->ops->prepare; e++) {
        const strata_tensor *node = node_of(group, e);
        int64_t elements;
        strata_reduction reduction;
        int n_givers = 0;
        if (!strata_exchange_folds(node, &elements, &reduction)) continue;
        for (int r = 0; r < group->n_replicas; r++) n_givers += strata_group_communication(group, r, e, 0).after >= 0;
        /* A mean over workers is divided after the sum over all workers. */
        if (strata_exchange_spans_workers(node, group->workers)) reduction = STRATA_REDUCE_SUM;
        STRATA_TRY(group->ops->prepare(device_of(group, group->exchanges[e].first), attrs_of(node)->dtype, reduction, n_givers,
                                       elements, &group->exchanges[e].plan, err));
    }
    return STRATA_OK;
}

static bool takes_part(const void *user, int index, int replica) {
    const strata_group *group = user;
    return group->members[replica].own[index] >= 0;
}

static strata_status perform(void *user, int number, int index, strata_error *err);

/* Creates the lanes. Cores whose programs wait for each other need all exchanges in order (check_order). */
static strata_status make_lanes(strata_group *group, int64_t scratch_bytes, strata_error *err) {
    const strata_lanes_options opts = {.n_exchanges = group->n_exchanges,
                                       .n_members = group->n_replicas,
                                       .takes_part = takes_part,
                                       .perform = perform,
                                       .user = group,
                                       .in_order = group->exchanges_inside};
    STRATA_TRY(strata_lanes_create(&opts, &group->order, err));
    static const char no_memory[] = "no host memory for sums over workers";
    const int n = group->n_replicas, n_lanes = strata_lanes_n(group->order);
    STRATA_TRY(STRATA_NEW(group->lanes, n_lanes, err, no_memory));
    for (int k = 0; k < n_lanes; k++) {
        lane *l = &group->lanes[k];
        l->track = STRATA_TRACE_HOST;
        STRATA_TRY(STRATA_NEW(l->parts, n, err, no_memory));
        STRATA_TRY(STRATA_NEW(l->operands, n, err, no_memory));
        STRATA_TRY(STRATA_NEW(l->results, n, err, no_memory));
        l->scratch = malloc((size_t)scratch_bytes);
        if (!l->scratch) return strata_fail(err, STRATA_OUT_OF_MEMORY, no_memory);
    }
    return STRATA_OK;
}

static strata_status make_room(strata_group *group, strata_error *err) {
    int64_t most = 1;
    for (int e = 0; e < group->n_exchanges; e++) {
        const int64_t bytes = strata_exchange_scratch_bytes(node_of(group, e), group->workers);
        if (bytes < 0)
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "communication %d, %s: its values are more than memory can hold", e,
                               strata_tensor_name(node_of(group, e)));
        if (bytes > most) most = bytes;
    }
    group->reads_results = true;
    for (int r = 0; r < group->n_replicas; r++)
        group->reads_results &= strata_device_get_info(device_of(group, r))->unified_memory;
    return make_lanes(group, most, err);
}

strata_status strata_group_create(strata_executable *const *replicas, int n_replicas, const strata_workers *workers,
                                  const strata_cross_device_ops *ops, strata_group **out_group, strata_error *err) {
    static const char no_memory[] = "no host memory for a group of %d replicas";
    if (n_replicas < 1) return strata_fail(err, STRATA_INVALID, "a group of %d replicas; it needs one", n_replicas);
    strata_group *group = NULL;
    strata_status status = STRATA_NEW(group, 1, err, no_memory, n_replicas);
    if (!status) status = STRATA_NEW(group->members, n_replicas, err, no_memory, n_replicas);
    if (status) {
        for (int r = 0; r < n_replicas; r++) strata_executable_destroy(replicas[r]);
        strata_group_destroy(group);
        return status;
    }
    group->n_replicas = n_replicas;
    for (int r = 0; r < n_replicas; r++) group->members[r].executable = replicas[r];
    if (workers && workers->n > 1) group->workers = workers;
    status = match(group, err);
    if (!status) status = find_all_workers(group, err);
    if (!status) status = find_limits(group, err);
    if (!status) status = check_collectives(group, err);
    if (!status) status = make_room(group, err);
    if (!status) status = prepare_ops(group, ops, err);
    if (status)
        strata_group_destroy(group);
    else
        *out_group = group;
    return status;
}

void strata_group_destroy(strata_group *group) {
    if (!group) return;
    for (int e = 0; group->ops && group->ops->destroy && e < group->n_exchanges; e++)
        group->ops->destroy(group->exchanges[e].plan);
    for (int e = 0; e < group->n_exchanges; e++) free(group->exchanges[e].workers.first_replicas);
    free(group->exchanges);
    for (int k = 0; group->lanes && k < strata_lanes_n(group->order); k++) {
        free(group->lanes[k].parts);
        free(group->lanes[k].operands);
        free(group->lanes[k].results);
        free(group->lanes[k].scratch);
    }
    free(group->lanes);
    strata_lanes_destroy(group->order);
    for (int r = 0; r < group->n_replicas; r++) {
        strata_executable_destroy(group->members[r].executable);
        free(group->members[r].limit);
        free(group->members[r].next_exchange);
        free(group->members[r].own);
        free(group->members[r].submissions);
    }
    free(group->members);
    free(group);
}

strata_executable *strata_group_replica(const strata_group *group, int replica) {
    return replica >= 0 && replica < group->n_replicas ? group->members[replica].executable : NULL;
}

int strata_group_n_exchanges(const strata_group *group) {
    return group->n_exchanges;
}

int strata_group_n_slots(const strata_group *group) {
    return group->members[0].executable->n_slots;
}

/* Adds all but the number of steps. */
static void add_counters(strata_group_counters *sum, const strata_group_counters *own) {
    sum->bytes_read += own->bytes_read;
    sum->bytes_written += own->bytes_written;
    sum->bytes_sent += own->bytes_sent;
    sum->fold_seconds += own->fold_seconds;
    sum->hidden_seconds += own->hidden_seconds;
    sum->wait_seconds += own->wait_seconds;
}

strata_group_counters strata_group_get_counters(const strata_group *group) {
    strata_group_counters sum = {.steps = group->steps,
                                 .bytes_read = group->steps * group->inside_read,
                                 .bytes_written = group->steps * group->inside_written,
                                 .fold_seconds = group->inside_seconds};
    for (int k = 0; k < strata_lanes_n(group->order); k++) add_counters(&sum, &group->lanes[k].counters);
    return sum;
}

double strata_group_replica_seconds(const strata_group *group, int replica) {
    const member *m = &group->members[replica];
    return m->n_timed ? m->seconds_to_exchange / (double)m->n_timed : 0;
}

void strata_group_add(const strata_group *group, int n_replicas, bool updates, strata_group_totals *totals) {
    const strata_group_counters c = strata_group_get_counters(group);
    double slowest = 0, sum = 0;
    if (updates) totals->sum.steps += c.steps;
    add_counters(&totals->sum, &c);
    if (!n_replicas || c.steps <= totals->most_steps) return;
    totals->most_steps = c.steps;
    for (int r = 0; r < n_replicas; r++) {
        const double spent = strata_group_replica_seconds(group, r);
        sum += spent;
        if (spent > slowest) slowest = spent;
    }
    totals->imbalance = sum > 0 ? slowest * n_replicas / sum : 1;
}

strata_communication_totals strata_group_total(const strata_group_totals *totals) {
    const strata_group_counters *c = &totals->sum;
    return (strata_communication_totals){
        .seconds = c->fold_seconds,
        .hidden = c->fold_seconds > 0 ? c->hidden_seconds / c->fold_seconds : 0,
        .wire_bytes_per_step = c->steps ? (double)c->bytes_sent / (double)c->steps : 0,
        .bytes_per_step = c->steps ? (double)(c->bytes_read + c->bytes_written) / (double)c->steps : 0,
        .imbalance = totals->most_steps ? totals->imbalance : 1};
}

/* ---- a step ---- */

/* The replica whose core has begun fewer collectives than all others; -1: there is no such core, or it is not known. */
static int find_straggler(const strata_group *group, uint64_t *out_reached, uint64_t *out_next) {
    int straggler = -1;
    uint64_t least = UINT64_MAX, next = UINT64_MAX;
    for (int r = 0; r < group->n_replicas && group->exchanges_inside; r++) {
        strata_device *device = device_of(group, r);
        const strata_device_collectives *c = strata_device_get_collectives(device);
        if (!c || !c->reached) return -1;
        const uint64_t reached = c->reached(device);
        if (reached < least) {
            next = least;
            least = reached;
            straggler = r;
        } else if (reached < next) {
            next = reached;
        }
    }
    *out_reached = least;
    *out_next = next;
    return next > least ? straggler : -1;
}

/* Marks cores whose programs wait for a lost core as lost too, so that the host does not wait for the time limit of each. */
static void abandon_cores(const strata_group *group, strata_status status, const strata_error *err) {
    const strata_error unknown = {.status = status, .message = "another core of its system was lost"};
    if (!group->exchanges_inside || (status != STRATA_TIMEOUT && status != STRATA_DEVICE_LOST)) return;
    for (int r = 0; r < group->n_replicas; r++) {
        strata_device *device = device_of(group, r);
        if (device->api->abandon) device->api->abandon(device, err ? err : &unknown);
    }
}

/* Adds the replica to the message, and the core for which other cores wait, and marks the group as failed. */
static strata_status fail(strata_group *group, int replica, strata_status status, strata_error *err) {
    uint64_t reached, next;
    __atomic_store_n(&group->failed, status, __ATOMIC_RELAXED);
    const int straggler = find_straggler(group, &reached, &next);
    abandon_cores(group, status, err);
    if (straggler >= 0 && straggler != replica)
        return strata_fail_in(err, status,
                              "replica %d waits for replica %d, %s, which has come to %llu collectives where all others have "
                              "come to %llu or more",
                              replica, straggler, strata_device_get_info(device_of(group, straggler))->id,
                              (unsigned long long)reached, (unsigned long long)next);
    return strata_fail_in(err, status, "replica %d", replica);
}

static strata_status check_alive(const strata_group *group, strata_error *err) {
    if (!group->failed) return STRATA_OK;
    return strata_fail(err, group->failed, "the group of replicas failed at an earlier step; make it anew");
}

strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    for (int r = 0; r < group->n_replicas; r++) {
        int slot = 0;
        strata_status status = strata_executable_acquire(group->members[r].executable, &slot, err);
        if (status) return fail(group, r, status, err);
        if (r > 0 && slot != *out_slot)
            return strata_fail(err, STRATA_INVALID,
                               "replica %d is at slot %d, replica 0 at %d: one was run outside of its group", r, slot,
                               *out_slot);
        *out_slot = slot;
    }
    return STRATA_OK;
}

/* Submits the replica's next segment for the steps in n slots from `first` on, the first of which is the current step. */
static strata_status submit(strata_group *group, const lane *l, int replica, int first, int n, strata_error *err) {
    member *m = &group->members[replica];
    const int n_slots = m->executable->n_slots;
    const double began = group->trace ? strata_trace_now() : 0;
    for (int i = 0; i < n; i++) {
        submission *s = &m->submissions[(first + i) % n_slots * m->n_segments + m->next];
        s->runs = true;
        s->at = began;
        s->step = group->step + i;
    }
    if (group->trace) m->executable->device->trace_step = group->step;
    const strata_status status = strata_executable_submit_segment(m->executable, first, n, m->next, err);
    if (group->trace) strata_trace_add_named(group->trace, l->track, "submit", group->step, began, strata_trace_now());
    if (status) return fail(group, replica, status, err);
    m->next++;
    return STRATA_OK;
}

/* The name of a segment in traces: its first and last op, "matmul .. adam". */
static const strata_trace_label *segment_label(const strata_group *group, int replica, int segment) {
    const strata_executable *executable = group->members[replica].executable;
    const char *first = "nothing", *last = NULL;
    char name[96];
    for (int i = 0; i < executable->plan.n_schedule; i++) {
        const strata_executable_node node = strata_executable_get_node(executable, i);
        if (node.segment != segment) continue;
        if (!last) first = node.node->op->name;
        last = node.node->op->name;
    }
    snprintf(name, sizeof name, "%s .. %s, with its queueing", first, last ? last : first);
    return strata_trace_add_label(group->trace, name, "", 0, 0);
}

/* Waits for the end of a segment of the replica, and so of all segments before it. *out_waited: how many seconds it waited;
 * NULL: not needed. */
static strata_status wait_for_segment(strata_group *group, const lane *l, int replica, int slot, int segment,
                                      double *out_waited, strata_error *err) {
    member *m = &group->members[replica];
    const double began = strata_trace_now();
    strata_status status = strata_executable_wait_segment(m->executable, slot, segment, err);
    if (status) return fail(group, replica, status, err);
    const double ended = strata_trace_now();
    const bool seen = group->trace && !m->executable->device->trace;
    for (int k = 0; k <= segment; k++) {
        submission *was = &m->submissions[slot * m->n_segments + k];
        if (seen && was->runs) {
            if (!was->label) was->label = segment_label(group, replica, k);
            strata_trace_add(group->trace, group->tracks[replica], was->label, was->step, was->at, ended);
        }
        was->runs = false;
    }
    if (group->trace) strata_trace_add_named(group->trace, l->track, "wait for device", group->step, began, ended);
    if (out_waited) *out_waited = ended - began;
    return STRATA_OK;
}

void strata_group_set_trace(strata_group *group, strata_trace *trace, const int *tracks) {
    group->trace = trace;
    group->tracks = tracks;
    for (int k = 1; k < strata_lanes_n(group->order) && trace; k++) {
        char name[32];
        snprintf(name, sizeof name, "exchanges %d", k);
        group->lanes[k].track = strata_trace_thread_track(trace, name);
    }
}

/* How many segments of a replica are submitted before an exchange is performed. On a device whose `run` returns only after the
 * program has ended, segments that do not need the exchange would delay it, so they are submitted later. */
static int end_before(const strata_group *group, int replica, int index) {
    const member *m = &group->members[replica];
    const bool runs_at_once = m->executable->device->api->buffer_memory != NULL;
    if (index == group->n_exchanges || !runs_at_once || node_of(group, index)->op != &strata_op_send) return m->limit[index];
    const int after = strata_group_communication(group, replica, index, 0).after;
    return after >= 0 && after + 1 < m->limit[index] ? after + 1 : m->limit[index];
}

void strata_group_set_receiver(strata_group *group, strata_receive *receive, void *user) {
    group->receive = receive;
    group->receiver = user;
}

void strata_group_set_check(strata_group *group, int64_t every) {
    group->check_every = every;
}

/* Whether a device is checked before `n` steps, the first of which is `step`. *out_seconds: how long. */
static bool is_check_due(const strata_group *group, strata_device *device, int64_t step, int n, double *out_seconds) {
    const int64_t every = group->check_every;
    if (every < 0 || (!device->api->check && !device->referee)) return false;
    *out_seconds = STEP_CHECK_LENGTH;
    if (every > 0) return step > 0 && (step + n - 1) / every > (step - 1) / every;
    const int64_t next = __atomic_load_n(&device->next_check, __ATOMIC_RELAXED);
    const double now = strata_trace_now();
    if (!next) __atomic_store_n(&device->next_check, (int64_t)((now + FIRST_CHECK) * 1e6), __ATOMIC_RELAXED);
    *out_seconds = next > 0 ? FIRST_CHECK_LENGTH : CHECKS_SHARE * BETWEEN_CHECKS;
    return next && now * 1e6 >= fabs((double)next);
}

/* Checks the devices that are due, on the values of the step in `slot`. */
static strata_status check_devices(strata_group *group, int slot, int64_t step, int n, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        strata_executable *exe = group->members[r].executable;
        strata_device *device = exe->device;
        double seconds;
        if (!is_check_due(group, device, step, n, &seconds)) continue;
        const double began = strata_trace_now();
        const uint32_t random = (uint32_t)(began * 1e6) ^ (uint32_t)step * 2654435761u;
        const strata_status status = strata_executable_recheck(exe, slot, seconds, random, err);
        if (status) return fail(group, r, status, err);
        const double now = strata_trace_now(), next = now + fmax((now - began) / CHECKS_SHARE, BETWEEN_CHECKS);
        __atomic_store_n(&device->next_check, -(int64_t)(next * 1e6), __ATOMIC_RELAXED); /* negative: after the first check */
    }
    return STRATA_OK;
}

/* Submits what replicas can run after exchange `index`, in which they took part; -1: at the beginning of a step, all replicas.
 * Programs that wait for each other must be in the same order on all cores, so no other thread may submit programs to them
 * meanwhile: every group of these cores takes the lock of the first one. */
static strata_status advance(strata_group *group, const lane *l, int index, int slot, int n, strata_error *err) {
    strata_device *first = device_of(group, 0);
    strata_status status = STRATA_OK;
    if (group->exchanges_inside) STRATA_TRY(strata_device_enter(first, err));
    for (int r = 0; r < group->n_replicas; r++) {
        member *m = &group->members[r];
        if (index >= 0 && !takes_part(group, index, r)) continue;
        const int end = end_before(group, r, m->next_exchange[index + 1]);
        while (m->next < end && !status) status = submit(group, l, r, slot, n, err);
    }
    if (group->exchanges_inside) strata_device_leave(first);
    return status;
}

/* Begins n steps, the first of which has the number `step` and is in slot `first`. */
static strata_status begin(strata_group *group, int first, int n, int64_t step, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    STRATA_TRY(check_devices(group, first, step, n, err));
    group->step = step;
    for (int k = 0; k < strata_lanes_n(group->order); k++) group->lanes[k].folded = 0;
    for (int r = 0; r < group->n_replicas; r++) group->members[r].next = 0;
    group->started = strata_trace_now();
    return advance(group, &group->lanes[0], -1, first, n, err);
}

strata_status strata_group_start(strata_group *group, int slot, int64_t step, strata_error *err) {
    return begin(group, slot, 1, step, err);
}

int strata_group_most_steps(const strata_group *group) {
    int most = group->n_exchanges ? 1 : INT_MAX;
    for (int r = 0; r < group->n_replicas; r++) {
        const int own = strata_executable_most_runs(group->members[r].executable);
        most = own < most ? own : most;
    }
    return most;
}

strata_status strata_group_run_steps(strata_group *group, int first, int n, int64_t step, strata_error *err) {
    STRATA_TRY(begin(group, first, n, step, err));
    group->steps += (uint64_t)n;
    return STRATA_OK;
}

/* Waits for the operands of all replicas that contribute one, first for the replica that is to be measured. */
static strata_status wait_for_operands(strata_group *group, lane *l, int index, int slot, strata_error *err) {
    const int n = group->n_replicas, first = (int)(group->steps % (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const int r = (first + i) % n, after = strata_group_communication(group, r, index, slot).after;
        if (after < 0) continue;
        double waited;
        STRATA_TRY(wait_for_segment(group, l, r, slot, after, &waited, err));
        /* The device is still running a segment that it got before the fold, so the fold was hidden. */
        if (after < group->members[r].n_before_fold && waited > WORTH_A_WAIT) {
            l->counters.hidden_seconds += l->folded;
            l->folded = 0;
        }
        if (index == 0 && i == 0) {
            group->members[r].seconds_to_exchange += strata_trace_now() - group->started;
            group->members[r].n_timed++;
        }
    }
    return STRATA_OK;
}

strata_status strata_group_measure(strata_group *group, int slot, strata_error *err) {
    const int r = (int)(group->steps % (uint64_t)group->n_replicas);
    member *m = &group->members[r];
    STRATA_TRY(check_alive(group, err));
    STRATA_TRY(wait_for_segment(group, &group->lanes[0], r, slot, m->next - 1, NULL, err));
    m->seconds_to_exchange += strata_trace_now() - group->started;
    m->n_timed++;
    return STRATA_OK;
}

/* "exchange 0: all_reduce (101770)" */
static const strata_trace_label *exchange_label(strata_group *group, int index) {
    exchange *e = &group->exchanges[index];
    const strata_tensor *node = node_of(group, index);
    const strata_communication_attrs *attrs = attrs_of(node);
    const int n_workers = e->workers.n ? e->workers.n : strata_exchange_spans_workers(node, group->workers) ? 2 : 1;
    char name[256], details[300];
    if (e->label) return e->label;
    snprintf(name, sizeof name, "exchange %d: %s %s", index, node->op->name, strata_shape_text(attrs->shape).text);
    snprintf(details, sizeof details, "\"op\":\"%s\",\"dtype\":\"%s\",\"shape\":\"%s\",\"workers\":%d", node->op->name,
             strata_dtype_name(attrs->dtype), strata_shape_text(attrs->shape).text, n_workers);
    return e->label = strata_trace_add_label(group->trace, name, details, 0, 0);
}

static strata_status carry_out(strata_group *group, lane *l, int index, int slot, const bool *contributes, strata_error *err) {
    const double began = strata_trace_now();
    STRATA_TRY(wait_for_operands(group, l, index, slot, err));
    const double waited = strata_trace_now();
    int n = 0;
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_executable_communication c = strata_group_communication(group, r, index, slot);
        if (!c.node) continue;
        l->parts[n++] = (strata_exchange_member){.node = c.node,
                                                 .operand = c.operand,
                                                 .gives = c.after >= 0,
                                                 .result = c.result,
                                                 .takes = c.before >= 0 && attrs_of(c.node)->takes,
                                                 .counts = !contributes || contributes[r]};
    }
    const strata_workers *workers = group->exchanges[index].workers.n ? &group->exchanges[index].workers : group->workers;
    const strata_exchange_context context = {.workers = workers,
                                             .over_workers = group->exchanges[index].workers.n > 0,
                                             .ops = group->ops,
                                             .plan = group->exchanges[index].plan,
                                             .scratch = l->scratch,
                                             .operands = l->operands,
                                             .results = l->results,
                                             .reads_results = group->reads_results,
                                             .receive = group->receive,
                                             .receiver = group->receiver,
                                             .number = index};
    const uint64_t sent = workers ? workers->bytes_sent(workers) : 0;
    strata_group_counters *counters = &l->counters;
    const strata_status status =
        strata_exchange_run(&context, l->parts, n, &counters->bytes_read, &counters->bytes_written, err);
    if (status) __atomic_store_n(&group->failed, status, __ATOMIC_RELAXED);
    if (status) return status;
    if (workers) counters->bytes_sent += workers->bytes_sent(workers) - sent;
    const double ended = strata_trace_now(), spent = ended - waited;
    if (group->trace) strata_trace_add(group->trace, l->track, exchange_label(group, index), group->step, waited, ended);
    counters->wait_seconds += waited - began;
    counters->fold_seconds += spent;
    l->folded = spent;
    for (int r = 0; r < group->n_replicas; r++)
        if (takes_part(group, index, r)) group->members[r].n_before_fold = group->members[r].next;
    return STRATA_OK;
}

/* Performs an exchange, and submits what its members can run after it. */
static strata_status perform(void *user, int number, int index, strata_error *err) {
    strata_group *group = user;
    lane *l = &group->lanes[number];
    const int slot = group->slot;
    STRATA_TRY(carry_out(group, l, index, slot, group->contributes, err));
    return advance(group, l, index, slot, 1, err);
}

strata_status strata_group_finish(strata_group *group, int slot, const bool *contributes, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    group->slot = slot;
    group->contributes = contributes;
    STRATA_TRY(strata_lanes_run(group->order, err));
    for (int r = 0; r < group->n_replicas && contributes; r++)
        if (!contributes[r]) strata_executable_show_nothing(group->members[r].executable, slot);
    group->steps++;
    return STRATA_OK;
}

strata_status strata_group_wait(strata_group *group, int slot, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        const member *m = &group->members[r];
        if (m->submissions[(slot + 1) * m->n_segments - 1].runs)
            STRATA_TRY(wait_for_segment(group, &group->lanes[0], r, slot, m->n_segments - 1, NULL, err));
        strata_status status = strata_executable_wait(m->executable, slot, err);
        if (status) return fail(group, r, status, err);
    }
    strata_device *first = device_of(group, 0);
    const strata_device_collectives *c = group->exchanges_inside ? strata_device_get_collectives(first) : NULL;
    if (!c || !c->take_seconds) return STRATA_OK;
    STRATA_TRY(strata_device_enter(first, err));
    group->inside_seconds += c->take_seconds(first);
    strata_device_leave(first);
    return STRATA_OK;
}
