/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas in step with each other (group.h). One thread: devices run by themselves, so all that the host does is submit, wait and fold. */
#include "core/run/group.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/all_reduce.h"

static const double WORTH_A_WAIT = 5e-6; /* seconds; what is over already is found so in less */

/* A segment that was submitted and is not known to be over; at 0: none. */
typedef struct submission {
    double at;
    int64_t step;
} submission;

typedef struct member {
    strata_executable *executable;
    int next;     /* segment to submit */
    int *own;     /* by communication: its number here; -1: it is inside of what this replica does not compute */
    int *limit;   /* by communication: segments below it need neither this one nor a later one */
    double spent; /* seconds to the first communication, in the steps in which it was looked at first */
    uint64_t looks;
    submission *submissions; /* of segment k in slot s at s * n_segments + k */
    int n_segments;
    int had; /* segments that it had been given before the newest fold */
} member;

struct strata_group {
    member *members; /* one a replica */
    int n_replicas, n_communications;
    int fullest;           /* a replica that has them all */
    const void **operands; /* of those who give */
    void **results;        /* of those who take */
    const strata_cross_device_ops *ops;
    void **plans;                  /* of ops, by communication */
    const strata_workers *workers; /* NULL: this one alone */
    void *sum;                     /* with workers: room for the largest value */
    bool reads_results;            /* results lie in the host's own memory: a sum may be made in one */
    double started;                /* the step that is going on */
    int64_t step;                  /* its number */
    double folded;                 /* seconds of the newest fold, until it is known whether it was hidden */
    strata_trace *trace;           /* borrowed; NULL: none */
    strata_status failed;          /* of the first failure; the group is of no use after it */
    strata_group_counters counters;
};

static strata_executable_communication communication(const strata_group *group, int replica, int index, int slot) {
    const member *m = &group->members[replica];
    if (m->own[index] >= 0) return strata_executable_get_communication(m->executable, m->own[index], slot);
    const strata_executable *fullest = group->members[group->fullest].executable;
    return (strata_executable_communication){
        .node = strata_executable_get_communication(fullest, index, slot).node, .after = -1, .before = -1};
}

static const strata_all_reduce_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

/* ---- create ---- */

static strata_status check_same(const strata_group *group, int replica, int index, strata_error *err) {
    const strata_tensor *a = communication(group, 0, index, 0).node, *b = communication(group, replica, index, 0).node;
    const strata_all_reduce_attrs *x = attrs_of(a), *y = attrs_of(b);
    if (a->op == b->op && x->dtype == y->dtype && strata_shape_equal(x->shape, y->shape) && x->reduction == y->reduction &&
        x->every == y->every && !x->merge == !y->merge)
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "communication %d: replica 0 has %s %s %s, replica %d has %s %s %s", index,
                       strata_tensor_name(a), strata_dtype_name(x->dtype), strata_shape_text(x->shape).text, replica,
                       strata_tensor_name(b), strata_dtype_name(y->dtype), strata_shape_text(y->shape).text);
}

static strata_status check_given(const strata_group *group, int index, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++)
        if (communication(group, r, index, 0).after >= 0) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "communication %d, %s: no replica gives a value", index,
                       strata_tensor_name(communication(group, 0, index, 0).node));
}

/* Which of the communications the replica has: all, or all that are not inside. */
static strata_status number_own(strata_group *group, int replica, strata_error *err) {
    const strata_executable *fullest = group->members[group->fullest].executable;
    const int n = strata_executable_n_communications(group->members[replica].executable);
    int *own = group->members[replica].own = calloc((size_t)group->n_communications + 1, sizeof *own), at = 0;
    if (!own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d communications", n);
    for (int c = 0; c < group->n_communications; c++) {
        const bool inside = attrs_of(strata_executable_get_communication(fullest, c, 0).node)->inside;
        own[c] = inside && n < group->n_communications ? -1 : at++;
    }
    if (at == n) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "replica %d has %d communications, replica %d has %d; they must be the same",
                       group->fullest, group->n_communications, replica, n);
}

static strata_status check_replicas(strata_group *group, const strata_workers *workers, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        const int n = strata_executable_n_communications(group->members[r].executable);
        if (n > group->n_communications) group->n_communications = n, group->fullest = r;
    }
    for (int r = 0; r < group->n_replicas; r++) STRATA_TRY(number_own(group, r, err));
    for (int r = 1; r < group->n_replicas; r++)
        for (int c = 0; c < group->n_communications; c++) STRATA_TRY(check_same(group, r, c, err));
    if (workers && workers->n > 1) return STRATA_OK; /* another worker's may give */
    for (int c = 0; c < group->n_communications; c++) STRATA_TRY(check_given(group, c, err));
    return STRATA_OK;
}

static strata_status find_limits(strata_group *group, strata_error *err) {
    const int n = group->n_communications;
    for (int r = 0; r < group->n_replicas; r++) {
        int *limit = group->members[r].limit = calloc((size_t)n + 1, sizeof *limit);
        if (!limit) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d communications", n);
        limit[n] = group->members[r].n_segments = strata_executable_n_segments(group->members[r].executable);
        const size_t runs = (size_t)limit[n] * (size_t)strata_executable_n_slots(group->members[r].executable);
        group->members[r].submissions = calloc(runs, sizeof *group->members[r].submissions);
        if (!group->members[r].submissions)
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d segments", limit[n]);
        for (int c = n - 1; c >= 0; c--) {
            const int before = communication(group, r, c, 0).before;
            limit[c] = before >= 0 && before < limit[c + 1] ? before : limit[c + 1];
        }
    }
    return STRATA_OK;
}

/* Replicas that give a value; *out_sent: one device sends its own to the others, which is no fold. */
static int givers(const strata_group *group, int index, bool *out_sent) {
    int n = 0;
    *out_sent = false;
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_executable_communication c = communication(group, r, index, 0);
        n += c.after >= 0;
        *out_sent |= c.after >= 0 && !attrs_of(c.node)->takes;
    }
    *out_sent = *out_sent && n == 1;
    return n;
}

static strata_status prepare_ops(strata_group *group, const strata_cross_device_ops *ops, strata_error *err) {
    const int n = group->n_communications;
    group->ops = ops ? ops : &strata_cross_device_host;
    if (!group->ops->prepare || !n) return STRATA_OK;
    group->plans = calloc((size_t)n, sizeof(*group->plans));
    if (!group->plans) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for %d communications", n);
    for (int c = 0; c < n; c++) {
        const strata_all_reduce_attrs *attrs = attrs_of(communication(group, 0, c, 0).node);
        bool sent;
        const int n_givers = givers(group, c, &sent);
        if (attrs->merge || sent) continue;
        /* A mean over workers divides behind the sum of all. */
        const strata_reduction reduction = group->workers ? STRATA_REDUCE_SUM : (strata_reduction)attrs->reduction;
        STRATA_TRY(group->ops->prepare(strata_executable_device(group->members[0].executable), attrs->dtype, reduction,
                                       n_givers, strata_shape_elements(attrs->shape), &group->plans[c], err));
    }
    return STRATA_OK;
}

static strata_status make_room(strata_group *group, const strata_workers *workers, strata_error *err) {
    int64_t most = 1;
    if (!workers || workers->n < 2) return STRATA_OK;
    for (int c = 0; c < group->n_communications; c++) {
        const strata_all_reduce_attrs *attrs = attrs_of(communication(group, 0, c, 0).node);
        const int64_t bytes = strata_shape_elements(attrs->shape) * (int64_t)strata_dtype_bytes(attrs->dtype);
        if (bytes > most) most = bytes;
    }
    group->workers = workers;
    group->reads_results = true;
    for (int r = 0; r < group->n_replicas; r++)
        group->reads_results &= strata_device_get_info(strata_executable_device(group->members[r].executable))->unified_memory;
    group->sum = malloc((size_t)most);
    return group->sum ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for sums over workers");
}

strata_status strata_group_create(strata_executable *const *replicas, int n_replicas, const strata_workers *workers,
                                  const strata_cross_device_ops *ops, strata_group **out_group, strata_error *err) {
    strata_group *group = calloc(1, sizeof *group);
    if (group && n_replicas > 0) {
        group->members = calloc((size_t)n_replicas, sizeof *group->members);
        group->operands = calloc((size_t)n_replicas, sizeof(*group->operands));
        group->results = calloc((size_t)n_replicas, sizeof(*group->results));
    }
    if (!group || !group->members || !group->operands || !group->results) {
        for (int r = 0; r < n_replicas; r++) strata_executable_destroy(replicas[r]);
        strata_group_destroy(group);
        if (n_replicas < 1) return strata_fail(err, STRATA_INVALID, "a group of %d replicas; it needs one", n_replicas);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a group of %d replicas", n_replicas);
    }
    group->n_replicas = n_replicas;
    for (int r = 0; r < n_replicas; r++) group->members[r].executable = replicas[r];
    strata_status status = check_replicas(group, workers, err);
    if (!status) status = find_limits(group, err);
    if (!status) status = make_room(group, workers, err);
    if (!status) status = prepare_ops(group, ops, err);
    if (status)
        strata_group_destroy(group);
    else
        *out_group = group;
    return status;
}

void strata_group_destroy(strata_group *group) {
    if (!group) return;
    for (int c = 0; group->plans && c < group->n_communications; c++) group->ops->destroy(group->plans[c]);
    free(group->plans);
    for (int r = 0; r < group->n_replicas; r++) {
        strata_executable_destroy(group->members[r].executable);
        free(group->members[r].limit);
        free(group->members[r].own);
        free(group->members[r].submissions);
    }
    free(group->members);
    free(group->operands);
    free(group->results);
    free(group->sum);
    free(group);
}

int strata_group_n_replicas(const strata_group *group) {
    return group->n_replicas;
}

strata_executable *strata_group_replica(const strata_group *group, int replica) {
    return replica >= 0 && replica < group->n_replicas ? group->members[replica].executable : NULL;
}

int strata_group_n_slots(const strata_group *group) {
    return strata_executable_n_slots(group->members[0].executable);
}

strata_group_counters strata_group_get_counters(const strata_group *group) {
    return group->counters;
}

double strata_group_replica_seconds(const strata_group *group, int replica) {
    const member *m = &group->members[replica];
    return m->looks ? m->spent / (double)m->looks : 0;
}

void strata_group_add(const strata_group *group, int n_replicas, bool updates, strata_group_totals *totals) {
    const strata_group_counters c = group->counters;
    double slowest = 0, sum = 0;
    if (updates) totals->sum.steps += c.steps;
    totals->sum.bytes_read += c.bytes_read;
    totals->sum.bytes_written += c.bytes_written;
    totals->sum.bytes_sent += c.bytes_sent;
    totals->sum.fold_seconds += c.fold_seconds;
    totals->sum.hidden_seconds += c.hidden_seconds;
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

/* Puts the replica before the message, and ends the group. */
static strata_status fail(strata_group *group, int replica, strata_status status, strata_error *err) {
    group->failed = status;
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

/* Submits the replica's segments below `end`. */
static strata_status advance(strata_group *group, int replica, int slot, int end, strata_error *err) {
    member *m = &group->members[replica];
    for (; m->next < end; m->next++) {
        m->submissions[slot * m->n_segments + m->next] = (submission){strata_trace_now(), group->step};
        strata_status status = strata_executable_submit_segment(m->executable, slot, m->next, err);
        if (status) return fail(group, replica, status, err);
    }
    return STRATA_OK;
}

/* Waits for a segment of the replica; it and those before it are over then. Returns the seconds that it waited in *out_waited. */
static strata_status wait_for_segment(strata_group *group, int replica, int slot, int segment, double *out_waited,
                                      strata_error *err) {
    member *m = &group->members[replica];
    const double began = strata_trace_now();
    strata_status status = strata_executable_wait_segment(m->executable, slot, segment, err);
    if (status) return fail(group, replica, status, err);
    const double ended = strata_trace_now();
    for (int k = 0; k <= segment; k++) {
        submission *was = &m->submissions[slot * m->n_segments + k];
        if (was->at > 0) strata_trace_add(group->trace, "segment", k, replica + 1, was->step, was->at, ended);
        was->at = 0;
    }
    *out_waited = ended - began;
    return STRATA_OK;
}

void strata_group_set_trace(strata_group *group, strata_trace *trace) {
    group->trace = trace;
}

strata_status strata_group_start(strata_group *group, int slot, int64_t step, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    group->step = step;
    group->folded = 0;
    group->started = strata_trace_now();
    for (int r = 0; r < group->n_replicas; r++) {
        group->members[r].next = 0;
        STRATA_TRY(advance(group, r, slot, group->members[r].limit[0], err));
    }
    return STRATA_OK;
}

/* Waits for every giver's operand, the one whose turn it is first. */
static strata_status wait_for_operands(strata_group *group, int index, int slot, strata_error *err) {
    const int n = group->n_replicas, first = (int)(group->counters.steps % (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const int r = (first + i) % n, after = communication(group, r, index, slot).after;
        if (after < 0) continue;
        double waited;
        STRATA_TRY(wait_for_segment(group, r, slot, after, &waited, err));
        /* It was still at what it had before the fold: there was work for it all the while. */
        if (after < group->members[r].had && waited > WORTH_A_WAIT) {
            group->counters.hidden_seconds += group->folded;
            group->folded = 0;
        }
        if (index == 0 && i == 0) {
            group->members[r].spent += strata_trace_now() - group->started;
            group->members[r].looks++;
        }
    }
    return STRATA_OK;
}

strata_status strata_group_look(strata_group *group, int slot, strata_error *err) {
    const int r = (int)(group->counters.steps % (uint64_t)group->n_replicas);
    member *m = &group->members[r];
    STRATA_TRY(check_alive(group, err));
    double waited;
    STRATA_TRY(wait_for_segment(group, r, slot, m->next - 1, &waited, err));
    m->spent += strata_trace_now() - group->started;
    m->looks++;
    return STRATA_OK;
}

/* The fold over the replicas of all workers, to this one's results. What a single replica gives is sent from where it is, and the sum is
 * made in the first result's place, where it can be: for small models copies cost as much as the update. */
static strata_status fold_over_workers(strata_group *group, void *plan, const strata_all_reduce_attrs *attrs, int n_operands,
                                       int n_results, strata_error *err) {
    const int64_t elements = strata_shape_elements(attrs->shape);
    const size_t bytes = (size_t)elements * strata_dtype_bytes(attrs->dtype);
    const strata_dtype wire = attrs->gradients ? group->workers->wire : STRATA_DTYPE_F32;
    const uint64_t sent = group->workers->bytes_sent(group->workers);
    const bool in_place = n_results && group->reads_results;
    void *sum = in_place ? group->results[0] : group->sum;
    const void *own = n_operands == 1 ? group->operands[0] : sum;
    float *values = sum, count = (float)n_operands;
    if (n_operands != 1)
        STRATA_TRY(
            group->ops->reduce(plan, attrs->dtype, STRATA_REDUCE_SUM, group->operands, n_operands, elements, &sum, 1, err));
    STRATA_TRY(group->workers->sum(group->workers, attrs->dtype, wire, own, sum, elements, err));
    if (attrs->reduction == STRATA_REDUCE_MEAN) {
        if (attrs->dtype != STRATA_DTYPE_F32)
            return strata_fail(err, STRATA_UNSUPPORTED, "a mean of %s over workers; f32 has one",
                               strata_dtype_name(attrs->dtype));
        STRATA_TRY(group->workers->sum(group->workers, STRATA_DTYPE_F32, STRATA_DTYPE_F32, &count, &count, 1, err));
        for (int64_t i = 0; i < elements; i++) values[i] /= count;
    }
    for (int r = in_place; r < n_results && bytes; r++) memcpy(group->results[r], sum, bytes);
    group->counters.bytes_sent += group->workers->bytes_sent(group->workers) - sent;
    return STRATA_OK;
}

static strata_status carry_out(strata_group *group, int index, int slot, const bool *contributes, strata_error *err) {
    int n_operands = 0, n_results = 0;
    bool sent;
    givers(group, index, &sent);
    const double began = strata_trace_now();
    STRATA_TRY(wait_for_operands(group, index, slot, err));
    const double waited = strata_trace_now();
    const strata_all_reduce_attrs *attrs = attrs_of(communication(group, 0, index, slot).node);
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_executable_communication c = communication(group, r, index, slot);
        if (attrs_of(c.node)->takes && c.before >= 0) group->results[n_results++] = c.result;
        if (c.after >= 0 && (sent || attrs->copy || !contributes || contributes[r])) group->operands[n_operands++] = c.operand;
    }
    const int64_t elements = strata_shape_elements(attrs->shape);
    const uint64_t bytes = (uint64_t)elements * strata_dtype_bytes(attrs->dtype);
    void *plan = group->plans ? group->plans[index] : NULL;
    strata_status status = STRATA_OK;
    if (attrs->merge)
        status = attrs->merge->run(attrs->merge, group->operands, n_operands, group->results, n_results, err);
    else if (group->workers && !sent)
        status = fold_over_workers(group, plan, attrs, n_operands, n_results, err);
    else
        status = (sent ? &strata_cross_device_host : group->ops)
                     ->reduce(plan, attrs->dtype, (strata_reduction)attrs->reduction, group->operands, n_operands, elements,
                              group->results, n_results, err);
    if (status) return group->failed = status;
    const double ended = strata_trace_now(), folded = ended - waited;
    strata_trace_add(group->trace, "wait", index, STRATA_TRACE_HOST, group->step, began, waited);
    strata_trace_add(group->trace, attrs->merge ? "merge" : "exchange", index, STRATA_TRACE_HOST, group->step, waited, ended);
    group->counters.wait_seconds += waited - began;
    group->counters.fold_seconds += folded;
    group->folded = folded;
    for (int r = 0; r < group->n_replicas; r++) group->members[r].had = group->members[r].next;
    group->counters.bytes_read += bytes * (uint64_t)n_operands;
    group->counters.bytes_written += bytes * (uint64_t)n_results;
    return STRATA_OK;
}

/* Each replica's own value is its result, in a step in which the exchange is not made. */
static strata_status keep_own(strata_group *group, int index, int slot, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        const strata_executable_communication c = communication(group, r, index, slot);
        const strata_all_reduce_attrs *attrs = attrs_of(c.node);
        if (c.after < 0 || c.before < 0) continue;
        double waited;
        STRATA_TRY(wait_for_segment(group, r, slot, c.after, &waited, err));
        const size_t bytes = (size_t)strata_shape_elements(attrs->shape) * strata_dtype_bytes(attrs->dtype);
        if (bytes) memcpy(c.result, c.operand, bytes);
    }
    return STRATA_OK;
}

strata_status strata_group_finish(strata_group *group, int slot, const bool *contributes, strata_error *err) {
    STRATA_TRY(check_alive(group, err));
    for (int c = 0; c <= group->n_communications; c++) {
        for (int r = 0; r < group->n_replicas; r++) STRATA_TRY(advance(group, r, slot, group->members[r].limit[c], err));
        if (c == group->n_communications) break;
        const int64_t every = attrs_of(communication(group, 0, c, slot).node)->every;
        STRATA_TRY(every && (group->step + 1) % every ? keep_own(group, c, slot, err)
                                                      : carry_out(group, c, slot, contributes, err));
    }
    group->counters.steps++;
    return STRATA_OK;
}

strata_status strata_group_wait(strata_group *group, int slot, strata_error *err) {
    for (int r = 0; r < group->n_replicas; r++) {
        const member *m = &group->members[r];
        double waited;
        if (m->submissions[(slot + 1) * m->n_segments - 1].at > 0)
            STRATA_TRY(wait_for_segment(group, r, slot, m->n_segments - 1, &waited, err));
        strata_status status = strata_executable_wait(m->executable, slot, err);
        if (status) return fail(group, r, status, err);
    }
    return STRATA_OK;
}
