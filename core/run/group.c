/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of replicas (group.h). One thread of the host serves all devices: it only submits segments, waits for them, and
 * performs exchanges. Exchanges that have no device in common are performed by threads of their own (lanes.h). */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "core/op/ops.h"
#include "core/run/group_state.h"

/* When a device is checked first, and how often then, in seconds; the largest share of the time; and how long one check may
 * take: the first one, and one that the caller has requested after some steps. */
static const double FIRST_CHECK = 5, BETWEEN_CHECKS = 60, CHECKS_SHARE = 0.005, FIRST_CHECK_LENGTH = 0.05,
                    STEP_CHECK_LENGTH = 0.1;
static const double WORTH_A_WAIT = 5e-6; /* seconds; a wait for a segment that has already ended takes less */

typedef strata_group_member member;
typedef strata_group_lane lane;
typedef strata_group_run one_run;

static bool takes_part(const strata_group *group, int index, int replica) {
    return group->exchanges[index].own[replica] >= 0;
}

const strata_communication *strata_group_communication(const strata_group *group, int replica, int index) {
    return strata_exchange_part(&group->exchanges[index], group->members[replica].executable, replica);
}

/* ---- create ---- */

static strata_status prepare_ops(strata_group *group, strata_error *err) {
    for (int e = 0; e < group->n_exchanges && group->ops->prepare; e++) {
        strata_exchange *exchange = &group->exchanges[e];
        int64_t elements;
        strata_reduction reduction;
        int n_givers = 0;
        if (!strata_exchange_folds(exchange->node, &elements, &reduction)) continue;
        for (int r = 0; r < group->n_replicas; r++) n_givers += strata_group_after(group, r, e) >= 0;
        /* A mean over workers is divided after the sum over all workers. */
        if (strata_exchange_spans_workers(exchange->node, group->workers)) reduction = STRATA_REDUCE_SUM;
        const strata_communication_attrs *attrs = exchange->node->attrs;
        STRATA_TRY(group->ops->prepare(strata_group_device(group, exchange->first), attrs->dtype, reduction, n_givers, elements,
                                       &exchange->plan, err));
    }
    return STRATA_OK;
}

static strata_status perform(void *user, int number, int index, strata_error *err);

/* Creates the lanes. Cores whose programs wait for each other need all exchanges in order. */
static strata_status make_lanes(strata_group *group, strata_error *err) {
    const strata_lanes_options opts = {.exchanges = group->exchanges,
                                       .n_exchanges = group->n_exchanges,
                                       .n_members = group->n_replicas,
                                       .perform = perform,
                                       .user = group,
                                       .in_order = group->n_inside > 0};
    int64_t scratch_bytes = 0;
    for (int e = 0; e < group->n_exchanges; e++) {
        const strata_tensor *node = group->exchanges[e].node;
        const int64_t bytes = strata_exchange_scratch_bytes(node, group->workers);
        if (bytes < 0)
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "communication %d, %s: its values are more than memory can hold", e,
                               strata_tensor_name(node));
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    group->scratch_bytes = scratch_bytes;
    STRATA_TRY(strata_lanes_create(&opts, &group->order, err));
    const int n = strata_lanes_n(group->order), most = n > group->n_replicas ? n : group->n_replicas + 1;
    STRATA_TRY(STRATA_TAKE(&group->memory, group->lanes, most, err, "no host memory for %d lanes", most));
    return strata_group_need_lanes(group, n, err);
}

strata_status strata_group_need_lanes(strata_group *group, int n, strata_error *err) {
    const int n_replicas = group->n_replicas;
    bool reads_results = true;
    for (int r = 0; r < n_replicas; r++) reads_results &= strata_device_get_info(strata_group_device(group, r))->unified_memory;
    for (; group->n_lanes < n && !group->memory.failed; group->n_lanes++) {
        strata_exchange_job *job = &group->lanes[group->n_lanes].job;
        group->lanes[group->n_lanes].track = STRATA_TRACE_HOST;
        job->ops = group->ops;
        job->reads_results = reads_results;
        job->receive = group->lanes[0].job.receive;
        job->receiver = group->lanes[0].job.receiver;
        job->members = strata_memory_take(&group->memory, n_replicas, sizeof *job->members);
        job->operands = strata_memory_take(&group->memory, n_replicas, sizeof(*job->operands));
        job->results = strata_memory_take(&group->memory, n_replicas, sizeof(*job->results));
        job->scratch = strata_memory_take(&group->memory, group->scratch_bytes, 1);
    }
    strata_group_set_trace(group, group->trace, group->tracks);
    return group->memory.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for sums over workers") : STRATA_OK;
}

static strata_status build(strata_group *group, strata_executable *const *replicas, strata_error *err) {
    STRATA_TRY(strata_exchanges_match(replicas, group->n_replicas, group->workers, &group->memory, &group->exchanges,
                                      &group->n_exchanges, err));
    STRATA_TRY(strata_exchanges_check_collectives(replicas, group->n_replicas, group->exchanges, group->n_exchanges,
                                                  &group->n_inside, &group->inside_read, &group->inside_written, err));
    for (int r = 0; r < group->n_replicas; r++) {
        member *m = &group->members[r];
        m->n_segments = m->executable->plan.n_segments;
        m->submissions = strata_memory_take(&group->memory, m->n_segments * m->executable->n_slots, sizeof *m->submissions);
    }
    STRATA_TRY(make_lanes(group, err));
    return prepare_ops(group, err);
}

strata_status strata_group_create(strata_executable *const *replicas, int n_replicas, const strata_workers *workers,
                                  const strata_cross_device_ops *ops, strata_group **out_group, strata_error *err) {
    if (n_replicas < 1) return strata_fail(err, STRATA_INVALID, "a group of %d replicas; it needs one", n_replicas);
    strata_group *group = calloc(1, sizeof *group);
    if (group) group->members = strata_memory_take(&group->memory, n_replicas, sizeof *group->members);
    if (!group || !group->members) {
        for (int r = 0; r < n_replicas; r++) strata_executable_destroy(replicas[r]);
        strata_group_destroy(group);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a group of %d replicas", n_replicas);
    }
    group->n_replicas = n_replicas;
    for (int r = 0; r < n_replicas; r++) group->members[r].executable = replicas[r];
    if (workers && workers->n > 1) group->workers = workers;
    group->ops = ops ? ops : strata_cross_device_host;
    const strata_status status = build(group, replicas, err);
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
    strata_lanes_destroy(group->order);
    strata_flights_destroy(group->flights);
    for (int r = 0; r < group->n_replicas; r++) strata_executable_destroy(group->members[r].executable);
    strata_memory_finish(&group->memory);
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
    for (int k = 0; k < group->n_lanes; k++) {
        add_counters(&sum, &group->lanes[k].counters);
        sum.bytes_read += group->lanes[k].job.read;
        sum.bytes_written += group->lanes[k].job.written;
        sum.bytes_sent += group->lanes[k].job.sent;
    }
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
    for (int r = 0; r < group->n_replicas && group->n_inside; r++) {
        strata_device *device = strata_group_device(group, r);
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
    if (!group->n_inside || (status != STRATA_TIMEOUT && status != STRATA_DEVICE_LOST)) return;
    for (int r = 0; r < group->n_replicas; r++) {
        strata_device *device = strata_group_device(group, r);
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
                              replica, straggler, strata_device_get_info(strata_group_device(group, straggler))->id,
                              (unsigned long long)reached, (unsigned long long)next);
    return strata_fail_in(err, status, "replica %d", replica);
}

strata_status strata_group_check_alive(const strata_group *group, strata_error *err) {
    if (!group->failed) return STRATA_OK;
    return strata_fail(err, group->failed, "the group of replicas failed at an earlier step; make it anew");
}

strata_status strata_group_acquire(strata_group *group, int *out_slot, strata_error *err) {
    STRATA_TRY(strata_group_check_alive(group, err));
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

strata_status strata_group_submit(strata_group *group, const lane *l, const one_run *run, int n, int replica, int segment,
                                  strata_error *err) {
    member *m = &group->members[replica];
    const int n_slots = m->executable->n_slots;
    const double began = group->trace ? strata_trace_now() : 0;
    for (int i = 0; i < n && group->trace; i++) {
        strata_group_submission *s = &m->submissions[(run->slot + i) % n_slots * m->n_segments + segment];
        s->at = began;
        s->step = run->step + i;
    }
    if (group->trace) m->executable->device->trace_step = run->step;
    const strata_status status = strata_executable_submit_segment(m->executable, run->slot, n, segment, err);
    if (group->trace) strata_trace_add_named(group->trace, l->track, "submit", run->step, began, strata_trace_now());
    if (status) return fail(group, replica, status, err);
    m->ticket = m->executable->slots[run->slot].ticket;
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

strata_status strata_group_wait_for_segment(strata_group *group, const lane *l, const one_run *run, int replica, int segment,
                                            double *out_waited, strata_error *err) {
    member *m = &group->members[replica];
    const double began = strata_trace_now();
    strata_status status = strata_executable_wait_segment(m->executable, run->slot, segment, err);
    if (status) return fail(group, replica, status, err);
    const double ended = strata_trace_now();
    for (int k = 0; k <= segment && group->trace && !m->executable->device->trace; k++) {
        strata_group_submission *was = &m->submissions[run->slot * m->n_segments + k];
        if (was->at > 0) {
            if (!was->label) was->label = segment_label(group, replica, k);
            strata_trace_add(group->trace, group->tracks[replica], was->label, was->step, was->at, ended);
        }
        was->at = 0;
    }
    if (group->trace) strata_trace_add_named(group->trace, l->track, "wait for device", run->step, began, ended);
    if (out_waited) *out_waited = ended - began;
    return STRATA_OK;
}

void strata_group_set_trace(strata_group *group, strata_trace *trace, const int *tracks) {
    group->trace = trace;
    group->tracks = tracks;
    for (int k = 1; k < group->n_lanes && trace; k++) {
        char name[32];
        snprintf(name, sizeof name, group->flights ? "exchanges of replica %d" : "exchanges %d", group->flights ? k - 1 : k);
        group->lanes[k].track = strata_trace_thread_track(trace, name);
    }
}

/* How many segments of a replica are submitted after exchange `index`, and before its next one is performed. On a device whose
 * `run` returns only after the program has ended, segments that do not need that one would delay it, so they are submitted
 * later. */
static int end_after(const strata_group *group, int replica, int index) {
    const bool runs_at_once = strata_group_device(group, replica)->api->buffer_memory != NULL;
    const int limit = group->exchanges[index + 1].limit[replica];
    int next = index + 1;
    while (runs_at_once && next < group->n_exchanges && !takes_part(group, next, replica)) next++;
    if (!runs_at_once || next == group->n_exchanges || group->exchanges[next].node->op != &strata_op_send) return limit;
    const int after = strata_group_after(group, replica, next);
    return after >= 0 && after + 1 < limit ? after + 1 : limit;
}

void strata_group_set_receiver(strata_group *group, strata_receive *receive, void *user) {
    for (int k = 0; k < group->n_lanes; k++) {
        group->lanes[k].job.receive = receive;
        group->lanes[k].job.receiver = user;
    }
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

strata_status strata_group_check_devices(strata_group *group, const one_run *run, int n, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        strata_executable *exe = group->members[r].executable;
        strata_device *device = exe->device;
        double seconds;
        if (!is_check_due(group, device, run->step, n, &seconds)) continue;
        const double began = strata_trace_now();
        const uint32_t random = (uint32_t)(began * 1e6) ^ (uint32_t)run->step * 2654435761u;
        const strata_status status = strata_executable_recheck(exe, run->slot, seconds, random, err);
        if (status) return fail(group, r, status, err);
        const double now = strata_trace_now(), next = now + fmax((now - began) / CHECKS_SHARE, BETWEEN_CHECKS);
        __atomic_store_n(&device->next_check, -(int64_t)(next * 1e6), __ATOMIC_RELAXED); /* negative: after the first check */
    }
    return STRATA_OK;
}

/* Submits what replicas can run after exchange `index`, in which they took part; -1: at the beginning of a step, all replicas.
 * Programs that wait for each other must be in the same order on all cores, so no other thread may submit programs to them
 * meanwhile: every group of these cores takes the lock of the first one. */
static strata_status advance(strata_group *group, const lane *l, int index, int n, strata_error *err) {
    strata_device *first = strata_group_device(group, 0);
    strata_status status = STRATA_OK;
    if (group->n_inside) STRATA_TRY(strata_device_enter(first, err));
    for (int r = 0; r < group->n_replicas; r++) {
        member *m = &group->members[r];
        if (index >= 0 && !takes_part(group, index, r)) continue;
        const int end = end_after(group, r, index);
        for (; m->next < end && !status; m->next++) status = strata_group_submit(group, l, &group->run, n, r, m->next, err);
    }
    if (group->n_inside) strata_device_leave(first);
    return status;
}

/* Begins n steps, the first of which has the number `step` and is in slot `first`. */
static strata_status begin(strata_group *group, int first, int n, int64_t step, strata_error *err) {
    STRATA_TRY(strata_group_check_alive(group, err));
    group->run = (one_run){.slot = first, .step = step};
    STRATA_TRY(strata_group_check_devices(group, &group->run, n, err));
    for (int k = 0; k < group->n_lanes; k++) group->lanes[k].folded = 0;
    for (int r = 0; r < group->n_replicas; r++) group->members[r].next = 0;
    group->started = strata_trace_now();
    return advance(group, &group->lanes[0], -1, n, err);
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

strata_status strata_group_wait_for_operand(strata_group *group, lane *l, const one_run *run, int replica, int segment,
                                            strata_error *err) {
    const member *m = &group->members[replica];
    double waited;
    STRATA_TRY(strata_group_wait_for_segment(group, l, run, replica, segment, &waited, err));
    l->counters.wait_seconds += waited;
    /* The device is still running a segment that it got before the fold, so the fold was hidden. */
    if (m->executable->tickets[run->slot * m->n_segments + segment] <= m->ticket_before_fold && waited > WORTH_A_WAIT) {
        l->counters.hidden_seconds += l->folded;
        l->folded = 0;
    }
    return STRATA_OK;
}

/* Waits for the operands of all replicas that contribute one, first for the replica that is to be measured. */
static strata_status wait_for_operands(strata_group *group, lane *l, int index, strata_error *err) {
    const int n = group->n_replicas, first = (int)(group->steps % (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const int r = (first + i) % n, after = strata_group_after(group, r, index);
        if (after < 0) continue;
        STRATA_TRY(strata_group_wait_for_operand(group, l, &group->run, r, after, err));
        if (index == 0 && i == 0) {
            group->members[r].seconds_to_exchange += strata_trace_now() - group->started;
            group->members[r].n_timed++;
        }
    }
    return STRATA_OK;
}

strata_status strata_group_measure(strata_group *group, int slot, strata_error *err) {
    const int r = (int)(group->steps % (uint64_t)group->n_replicas);
    const one_run run = {.slot = slot, .step = group->run.step};
    member *m = &group->members[r];
    STRATA_TRY(strata_group_check_alive(group, err));
    STRATA_TRY(strata_group_wait_for_segment(group, &group->lanes[0], &run, r, m->next - 1, NULL, err));
    m->seconds_to_exchange += strata_trace_now() - group->started;
    m->n_timed++;
    return STRATA_OK;
}

/* "exchange 0: all_reduce (101770)" */
static const strata_trace_label *exchange_label(strata_group *group, int index) {
    strata_exchange *e = &group->exchanges[index];
    const strata_communication_attrs *attrs = e->node->attrs;
    const int n_workers = e->workers.n ? e->workers.n : strata_exchange_spans_workers(e->node, group->workers) ? 2 : 1;
    char name[256], details[300];
    if (e->label) return e->label;
    snprintf(name, sizeof name, "exchange %d: %s %s", index, e->node->op->name, strata_shape_text(attrs->shape).text);
    snprintf(details, sizeof details, "\"op\":\"%s\",\"dtype\":\"%s\",\"shape\":\"%s\",\"workers\":%d", e->node->op->name,
             strata_dtype_name(attrs->dtype), strata_shape_text(attrs->shape).text, n_workers);
    return e->label = strata_trace_add_label(group->trace, name, details, 0, 0);
}

/* Sets what the lane's job needs to perform an exchange. */
static void prepare_job(strata_group *group, strata_exchange_job *job, const one_run *run, int index) {
    const strata_exchange *e = &group->exchanges[index];
    job->workers = e->workers.n ? &e->workers : group->workers;
    job->over_workers = e->workers.n > 0;
    job->plan = e->plan;
    job->number = index;
    job->n = 0;
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_communication *c = strata_group_communication(group, r, index);
        const strata_executable *exe = group->members[r].executable;
        if (!c) continue;
        job->members[job->n++] = (strata_exchange_member){
            .node = c->node,
            .operand = c->after < 0 ? NULL : strata_executable_memory(exe, run->slot, c->node->inputs[0], false),
            .gives = c->after >= 0,
            .result = c->before < 0 ? NULL : strata_executable_memory(exe, run->slot, c->node, true),
            .takes = c->before >= 0 && ((const strata_communication_attrs *)c->node->attrs)->takes,
            .counts = !run->contributes || run->contributes[r]};
    }
}

strata_status strata_group_exchange(strata_group *group, lane *l, const one_run *run, int index, strata_error *err) {
    const double began = strata_trace_now();
    prepare_job(group, &l->job, run, index);
    const strata_workers *workers = l->job.workers;
    const uint64_t sent = workers ? workers->bytes_sent(workers) : 0;
    const strata_status status = strata_exchange_run(&l->job, err);
    if (status) __atomic_store_n(&group->failed, status, __ATOMIC_RELAXED);
    if (status) return status;
    if (group->exchanges[index].workers.n) l->counters.bytes_sent += workers->bytes_sent(workers) - sent;
    const double ended = strata_trace_now();
    if (group->trace) strata_trace_add(group->trace, l->track, exchange_label(group, index), run->step, began, ended);
    l->counters.fold_seconds += l->folded = ended - began;
    return STRATA_OK;
}

/* Performs an exchange, and submits what its members can run after it. */
static strata_status perform(void *user, int number, int index, strata_error *err) {
    strata_group *group = user;
    lane *l = &group->lanes[number];
    STRATA_TRY(wait_for_operands(group, l, index, err));
    STRATA_TRY(strata_group_exchange(group, l, &group->run, index, err));
    for (int r = 0; r < group->n_replicas; r++)
        if (takes_part(group, index, r)) group->members[r].ticket_before_fold = group->members[r].ticket;
    return advance(group, l, index, 1, err);
}

strata_status strata_group_finish(strata_group *group, int slot, const bool *contributes, strata_error *err) {
    STRATA_TRY(strata_group_check_alive(group, err));
    group->run.slot = slot;
    group->run.contributes = contributes;
    STRATA_TRY(strata_lanes_run(group->order, err));
    for (int r = 0; r < group->n_replicas && contributes; r++)
        if (!contributes[r]) group->members[r].executable->slots[slot].shows = false; /* it had no examples */
    group->steps++;
    return STRATA_OK;
}

strata_status strata_group_wait(strata_group *group, int slot, strata_error *err) {
    const one_run run = {.slot = slot, .step = group->run.step};
    for (int r = 0; r < group->n_replicas; r++) {
        const member *m = &group->members[r];
        if (m->executable->slots[slot].running)
            STRATA_TRY(strata_group_wait_for_segment(group, &group->lanes[0], &run, r, m->n_segments - 1, NULL, err));
        strata_status status = strata_executable_wait(m->executable, slot, err);
        if (status) return fail(group, r, status, err);
    }
    strata_device *first = strata_group_device(group, 0);
    const strata_device_collectives *c = group->n_inside ? strata_device_get_collectives(first) : NULL;
    if (!c || !c->take_seconds) return STRATA_OK;
    STRATA_TRY(strata_device_enter(first, err));
    group->inside_seconds += c->take_seconds(first);
    strata_device_leave(first);
    return STRATA_OK;
}
