/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs several micro-batches of a group in turns, as a schedule says (strata_group_run_schedule).
 *
 * Nouns. A *flight* is a micro-batch that is in a slot. A *walker* is the thread that runs the actions of one replica. It
 * *arrives* at an exchange of a flight when the value that its replica gives is computed; the last walker to arrive performs
 * the exchange. Replicas that give no value arrive only where all members must take part: at exchanges of several workers'
 * devices, and where none of this worker's gives one. The *position* of an arrival is 2 k before segment k is submitted, and
 * 2 k + 1 when it has ended.
 *
 * A walker submits a segment before it waits for the one before, so that the device has work meanwhile, unless the new segment
 * needs an exchange that was not performed. Only the walker of a replica waits for its device. The caller's thread begins and
 * ends flights. Before all that, the schedule is tried without devices, which finds replicas that would wait for ever. */
#include <pthread.h>
#include <signal.h>

#include "core/base/clock.h"
#include "core/op/ops.h"
#include "core/run/group_state.h"

typedef struct arrival {
    int exchange, position;
} arrival;

typedef struct flight {
    /* -1: none is in the slot. */
    int microbatch;
    strata_group_run run;
    /* [n_replicas] How many of its arrivals each replica has made. */
    int *n_made;
    /* [n_exchanges] How many replicas have arrived, and whether it was performed. */
    int *n_arrived;
    bool *done;
    /* How many replicas have ended it. */
    int n_ended;
} flight;

typedef struct strata_flights flights;

typedef struct walker {
    flights *f;
    int replica;
    pthread_t thread;
    /* [n_arrivals] The replica's arrivals in each flight, by position. */
    arrival *arrivals;
    int n_arrivals;
    /* The flight of the segment that was submitted last; NULL: it was waited for, if anything needs it. */
    flight *newest;
    int segment;
    double ended; /* when it had run all its actions, in seconds */
    /* While the schedule is tried: the action and the segment that are next, and, for each copy of the carried values, the
     * micro-batch whose they are. */
    int action, next, *copies;
    /* Values are carried from segment to segment. */
    bool carries;
} walker;

struct strata_flights {
    strata_group *group;
    strata_memory memory;
    const strata_group_schedule *schedule;
    walker *walkers; /* [n_replicas] */
    flight *flights; /* [slots of the group] */
    int *n_needed;   /* [n_exchanges] how many replicas arrive */
    int *order;      /* [n_microbatches] of the schedule: the micro-batches in the order in which they are first named */
    int *rank;       /* [n_microbatches] their indices in it */
    int n_begun;     /* while the schedule is tried: how many of them have begun */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    strata_status failed;
    strata_error error;
};

static const strata_communication *part(const flights *f, int replica, int exchange) {
    return strata_group_communication(f->group, replica, exchange);
}

static int n_segments(const flights *f, int replica) {
    return f->group->members[replica].n_segments;
}

static flight *flight_of(const flights *f, int microbatch) {
    return &f->flights[f->rank[microbatch] % f->schedule->n_slots];
}

/* ---- arrivals ---- */

static bool arrives(const flights *f, int replica, int exchange) {
    const strata_communication *c = part(f, replica, exchange);
    bool given = false;
    for (int r = 0; r < f->group->n_replicas; r++) given |= strata_group_after(f->group, r, exchange) >= 0;
    return c && (c->after >= 0 || !given || f->group->exchanges[exchange].workers.n);
}

/* Whether two exchanges of the replica must keep their order: those of one communicator, and messages of one team in the same
 * direction. */
static bool keep_order(const walker *w, int a, int b) {
    const strata_group *group = w->f->group;
    const strata_communication *c = part(w->f, w->replica, a), *d = part(w->f, w->replica, b);
    const strata_communication_attrs *x = c->node->attrs, *y = d->node->attrs;
    const bool collective = group->exchanges[a].workers.n && group->exchanges[b].workers.n;
    const bool messages = strata_exchange_is_message(c->node, group->workers) &&
                          strata_exchange_is_message(d->node, group->workers) && (c->after >= 0) == (d->after >= 0);
    return (collective || messages) && strata_team_equal(x->team, y->team);
}

/* The position at which the replica must arrive at the latest. What it neither gives nor reads takes place after those before
 * it if other workers' devices wait for the replica, else at the end. */
static int latest_position(const walker *w, int exchange) {
    const strata_communication *c = part(w->f, w->replica, exchange);
    int position = 0;
    if (c->after >= 0) return 2 * c->after + 1;
    if (c->before >= 0) return 2 * c->before;
    if (!w->f->group->exchanges[exchange].workers.n) return 2 * n_segments(w->f, w->replica) - 1;
    for (int i = 0; i < w->n_arrivals; i++)
        if (w->arrivals[i].position > position) position = w->arrivals[i].position;
    return position;
}

/* Moves arrivals so that exchanges that must keep their order do: what is only received earlier, and what is given later. */
static void order_arrivals(walker *w) {
    arrival *own = w->arrivals;
    for (int i = w->n_arrivals - 1; i >= 0; i--)
        for (int j = i + 1; j < w->n_arrivals && strata_group_after(w->f->group, w->replica, own[i].exchange) < 0; j++)
            if (own[j].position < own[i].position && keep_order(w, own[i].exchange, own[j].exchange))
                own[i].position = own[j].position;
    for (int i = 0; i < w->n_arrivals; i++)
        for (int j = 0; j < i; j++)
            if (own[j].position > own[i].position && keep_order(w, own[j].exchange, own[i].exchange))
                own[i].position = own[j].position;
    for (int i = 1; i < w->n_arrivals; i++) {
        const arrival next = own[i];
        int at = i;
        for (; at && own[at - 1].position > next.position; at--) own[at] = own[at - 1];
        own[at] = next;
    }
}

static void find_arrivals(flights *f, walker *w) {
    for (int e = 0; e < f->group->n_exchanges; e++) {
        if (!arrives(f, w->replica, e)) continue;
        const int position = latest_position(w, e);
        w->arrivals[w->n_arrivals++] = (arrival){e, position};
        f->n_needed[e]++;
    }
    order_arrivals(w);
}

/* The exchange at which the replica arrives next, at this position at the latest; -1: there is none. */
static int next_arrival(const walker *w, flight *fl, int position) {
    int *made = &fl->n_made[w->replica];
    if (*made == w->n_arrivals || w->arrivals[*made].position > position) return -1;
    return w->arrivals[(*made)++].exchange;
}

/* Whether all exchanges that the segment needs were performed. */
static bool is_ready(const flights *f, const flight *fl, int replica, int segment) {
    for (int e = 0; e < f->group->n_exchanges && f->group->exchanges[e].limit[replica] <= segment; e++) {
        const strata_communication *c = part(f, replica, e);
        if (c && c->before >= 0 && c->before <= segment && !fl->done[e]) return false;
    }
    return true;
}

static void reset(const flights *f, flight *fl, int microbatch) {
    memset(fl->n_made, 0, (size_t)f->group->n_replicas * sizeof *fl->n_made);
    memset(fl->n_arrived, 0, (size_t)f->group->n_exchanges * sizeof *fl->n_arrived);
    memset(fl->done, 0, (size_t)f->group->n_exchanges * sizeof *fl->done);
    fl->n_ended = 0;
    fl->microbatch = microbatch;
}

/* ---- create and destroy ---- */

void strata_flights_destroy(flights *f) {
    if (!f) return;
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    strata_memory_finish(&f->memory);
    free(f);
}

static void take_memory(flights *f) {
    const int n = f->group->n_replicas, n_exchanges = f->group->n_exchanges, n_slots = strata_group_n_slots(f->group);
    f->n_needed = strata_memory_take(&f->memory, n_exchanges, sizeof *f->n_needed);
    f->walkers = strata_memory_take(&f->memory, n, sizeof *f->walkers);
    f->flights = strata_memory_take(&f->memory, n_slots, sizeof *f->flights);
    for (int s = 0; s < n_slots && f->flights; s++) {
        f->flights[s].n_made = strata_memory_take(&f->memory, n, sizeof *f->flights->n_made);
        f->flights[s].n_arrived = strata_memory_take(&f->memory, n_exchanges, sizeof *f->flights->n_arrived);
        f->flights[s].done = strata_memory_take(&f->memory, n_exchanges, sizeof *f->flights->done);
    }
    for (int r = 0; r < n && f->walkers; r++) {
        const int n_copies = f->group->members[r].executable->n_carried;
        const bool carries = strata_plan_bytes(&f->group->members[r].executable->plan, STRATA_ARENA_CARRIED) > 0;
        f->walkers[r] = (walker){.f = f, .replica = r, .carries = carries};
        f->walkers[r].arrivals = strata_memory_take(&f->memory, n_exchanges, sizeof *f->walkers->arrivals);
        f->walkers[r].copies = strata_memory_take(&f->memory, n_copies, sizeof *f->walkers->copies);
    }
}

static strata_status create(strata_group *group, flights **out_flights, strata_error *err) {
    static const char no_memory[] = "no host memory for the micro-batches of %d replicas";
    flights *f;
    STRATA_TRY(STRATA_NEW(f, 1, err, no_memory, group->n_replicas));
    pthread_mutex_init(&f->lock, NULL);
    strata_clock_cond_init(&f->changed);
    f->group = group;
    take_memory(f);
    if (f->memory.failed) {
        strata_flights_destroy(f);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, no_memory, group->n_replicas);
    }
    for (int r = 0; r < group->n_replicas; r++) find_arrivals(f, &f->walkers[r]);
    *out_flights = f;
    return STRATA_OK;
}

/* ---- checking a schedule ---- */

static strata_status check_slots(const flights *f, strata_error *err) {
    const strata_group_schedule *s = f->schedule;
    const int n = strata_group_n_slots(f->group);
    if (s->n_microbatches < 0 || s->n_slots < 1 || s->n_slots > n)
        return strata_fail(err, STRATA_INVALID, "a schedule of %d micro-batches in %d slots; the group has %d slots",
                           s->n_microbatches, s->n_slots, n);
    for (int i = 0; i < s->n_slots; i++) {
        bool bad = s->slots[i] < 0 || s->slots[i] >= n;
        for (int j = 0; j < i; j++) bad |= s->slots[i] == s->slots[j];
        if (bad)
            return strata_fail(err, STRATA_INVALID, "schedule: slot %d is not one of %d, or is named twice", s->slots[i], n);
    }
    for (int r = 0; r < f->group->n_replicas; r++)
        for (int i = 0; i < n; i++)
            if (f->group->members[r].executable->slots[i].running)
                return strata_fail(err, STRATA_INVALID, "schedule: slot %d of replica %d still runs; wait for it first", i, r);
    return STRATA_OK;
}

/* Checks that the actions have each segment once and in order, and finds the order of the micro-batches. next: [micro-batches *
 * replicas] zeros. */
static strata_status check_actions(flights *f, int *next, strata_error *err) {
    const strata_group_schedule *s = f->schedule;
    const int n = f->group->n_replicas;
    int n_named = 0;
    for (int m = 0; m < s->n_microbatches; m++) f->rank[m] = -1;
    for (int i = 0; i < s->n_actions; i++) {
        const strata_group_action *a = &s->actions[i];
        if (a->replica < 0 || a->replica >= n || a->microbatch < 0 || a->microbatch >= s->n_microbatches)
            return strata_fail(err, STRATA_INVALID, "action %d: replica %d of %d, micro-batch %d of %d", i, a->replica, n,
                               a->microbatch, s->n_microbatches);
        int *at = &next[a->microbatch * n + a->replica];
        if (a->first != *at || a->end < a->first || a->end > n_segments(f, a->replica))
            return strata_fail(
                err, STRATA_INVALID,
                "action %d: segments %d to %d of replica %d for micro-batch %d; segment %d of %d is its next one", i, a->first,
                a->end - 1, a->replica, a->microbatch, *at, n_segments(f, a->replica));
        *at = a->end;
        if (f->rank[a->microbatch] < 0) f->order[f->rank[a->microbatch] = n_named++] = a->microbatch;
    }
    for (int i = 0; i < s->n_microbatches * n; i++)
        if (next[i] < n_segments(f, i % n))
            return strata_fail(err, STRATA_INVALID, "schedule: no action runs segment %d of replica %d for micro-batch %d",
                               next[i], i % n, i / n);
    return STRATA_OK;
}

/* Begins the flights whose slots are free. */
static void try_begin(flights *f) {
    while (f->n_begun < f->schedule->n_microbatches) {
        flight *fl = flight_of(f, f->order[f->n_begun]);
        if (fl->microbatch >= 0 && fl->n_ended < f->group->n_replicas) return;
        reset(f, fl, f->order[f->n_begun++]);
    }
}

static void try_arrivals(const walker *w, flight *fl, int position) {
    for (int e; (e = next_arrival(w, fl, position)) >= 0;)
        if (++fl->n_arrived[e] == w->f->n_needed[e]) fl->done[e] = true;
}

/* Sets w->action to the replica's next action with segments; returns false if there is none. */
static bool find_action(walker *w) {
    const strata_group_schedule *s = w->f->schedule;
    for (; w->action < s->n_actions; w->action++) {
        const strata_group_action *a = &s->actions[w->action];
        if (a->replica == w->replica && a->first < a->end) return true;
    }
    return false;
}

/* Runs the replica's next segment, if it need not wait. */
static strata_status try_segment(walker *w, bool *out_ran, strata_error *err) {
    flights *f = w->f;
    const strata_group_action *a = &f->schedule->actions[w->action];
    const int segment = a->first + w->next, n_copies = f->group->members[w->replica].executable->n_carried;
    int *copy = &w->copies[f->rank[a->microbatch] % n_copies];
    flight *fl = flight_of(f, a->microbatch);
    *out_ran = false;
    try_begin(f);
    if (fl->microbatch != a->microbatch) return STRATA_OK;
    try_arrivals(w, fl, 2 * segment);
    if (!is_ready(f, fl, w->replica, segment)) return STRATA_OK;
    if (w->carries && *copy >= 0 && *copy != a->microbatch)
        return strata_fail(
            err, STRATA_INVALID,
            "schedule: replica %d begins micro-batch %d before micro-batch %d has ended, which has the same of its "
            "%d copies of values between segments",
            w->replica, a->microbatch, *copy, n_copies);
    *copy = segment + 1 < n_segments(f, w->replica) ? a->microbatch : -1;
    try_arrivals(w, fl, 2 * segment + 1);
    fl->n_ended += segment + 1 == n_segments(f, w->replica);
    *out_ran = true;
    if (segment + 1 < a->end) {
        w->next++;
    } else {
        w->action++;
        w->next = 0;
    }
    return STRATA_OK;
}

static strata_status explain_wait(walker *w, strata_error *err) {
    const flights *f = w->f;
    const strata_group_action *a = &f->schedule->actions[w->action];
    const flight *fl = flight_of(f, a->microbatch);
    if (fl->microbatch != a->microbatch)
        return strata_fail(
            err, STRATA_INVALID,
            "schedule: micro-batch %d never begins on replica %d: the slots are %d, and micro-batch %d does not end",
            a->microbatch, w->replica, f->schedule->n_slots, f->order[f->n_begun - f->schedule->n_slots]);
    int e = 0;
    for (const strata_communication *c; e < f->group->n_exchanges; e++)
        if ((c = part(f, w->replica, e)) && c->before >= 0 && c->before <= a->first + w->next && !fl->done[e]) break;
    return strata_fail(err, STRATA_INVALID,
                       "schedule: replica %d waits for ever before segment %d of micro-batch %d, for exchange %d, %s",
                       w->replica, a->first + w->next, a->microbatch, e, strata_tensor_name(f->group->exchanges[e].node));
}

/* Runs the schedule without devices. */
static strata_status try_schedule(flights *f, strata_error *err) {
    const int n = f->group->n_replicas;
    f->n_begun = 0;
    for (int s = 0; s < strata_group_n_slots(f->group); s++) f->flights[s].microbatch = -1;
    for (int r = 0; r < n; r++) {
        walker *w = &f->walkers[r];
        w->action = w->next = 0;
        for (int i = 0; i < f->group->members[r].executable->n_carried; i++) w->copies[i] = -1;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < n; r++)
            for (bool ran = true; ran && find_action(&f->walkers[r]); moved |= ran)
                STRATA_TRY(try_segment(&f->walkers[r], &ran, err));
    }
    for (int r = 0; r < n; r++)
        if (find_action(&f->walkers[r])) return explain_wait(&f->walkers[r], err);
    return STRATA_OK;
}

static strata_status check(flights *f, strata_error *err) {
    const strata_group_schedule *s = f->schedule;
    int *next;
    STRATA_FREED int *memory = NULL;
    STRATA_TRY(check_slots(f, err));
    STRATA_TRY(STRATA_NEW(memory, (int64_t)s->n_microbatches * f->group->n_replicas, err, "no host memory for %d micro-batches",
                          s->n_microbatches));
    next = memory;
    STRATA_TRY(check_actions(f, next, err));
    return try_schedule(f, err);
}

/* ---- walkers ---- */

static void note(flights *f, strata_status status, const strata_error *err) {
    pthread_mutex_lock(&f->lock);
    if (!f->failed) {
        f->failed = status;
        f->error = *err;
    }
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static strata_group_lane *lane_of(const walker *w) {
    return &w->f->group->lanes[1 + w->replica];
}

static strata_status arrive_at(const walker *w, flight *fl, int e, strata_error *err) {
    flights *f = w->f;
    strata_group_member *member = &f->group->members[w->replica];
    const int after = strata_group_after(f->group, w->replica, e);
    if (after >= 0) STRATA_TRY(strata_group_wait_for_operand(f->group, lane_of(w), &fl->run, w->replica, after, err));
    pthread_mutex_lock(&f->lock);
    const bool last = ++fl->n_arrived[e] == f->n_needed[e];
    pthread_mutex_unlock(&f->lock);
    if (!last) return STRATA_OK;
    const strata_status status = strata_group_exchange(f->group, lane_of(w), &fl->run, e, err);
    if (status) return strata_fail_in(err, status, "replica %d", w->replica);
    member->ticket_before_fold = member->ticket;
    pthread_mutex_lock(&f->lock);
    fl->done[e] = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return STRATA_OK;
}

static strata_status arrive(const walker *w, flight *fl, int position, strata_error *err) {
    strata_status status = STRATA_OK;
    for (int e; !status && (e = next_arrival(w, fl, position)) >= 0;) status = arrive_at(w, fl, e, err);
    return status ? strata_fail_in(err, status, "micro-batch %d", fl->microbatch) : STRATA_OK;
}

/* Waits for what others need of the segment that was submitted last, and passes it on. */
static strata_status pass_on(walker *w, flight *fl, int segment, strata_error *err) {
    flights *f = w->f;
    if (!fl) return STRATA_OK;
    STRATA_TRY(arrive(w, fl, 2 * segment + 1, err));
    if (segment + 1 < n_segments(f, w->replica)) return STRATA_OK;
    const strata_status status = strata_group_wait_for_segment(f->group, lane_of(w), &fl->run, w->replica, segment, NULL, err);
    if (status) return strata_fail_in(err, status, "micro-batch %d", fl->microbatch);
    pthread_mutex_lock(&f->lock);
    fl->n_ended++;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return STRATA_OK;
}

/* Waits until the flight has begun, and, unless segment is -1, until the segment can be submitted. Returns what has failed
 * meanwhile. wait false: returns at once. */
static strata_status wait_until_ready(const walker *w, const flight *fl, int microbatch, int segment, bool wait,
                                      bool *out_ready) {
    flights *f = w->f;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        *out_ready = fl->microbatch == microbatch && (segment < 0 || is_ready(f, fl, w->replica, segment));
        if (*out_ready || !wait || f->failed) break;
        pthread_cond_wait(&f->changed, &f->lock);
    }
    const strata_status failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    return failed;
}

/* In the trace, the time in which a device has nothing to run is a slice of its row. */
static void add_bubble(const walker *w, int64_t step, double began, double ended) {
    const strata_group *group = w->f->group;
    group->members[w->replica].idle_seconds += ended - began;
    if (group->trace) strata_trace_add_named(group->trace, group->tracks[w->replica], "bubble", step, began, ended);
}

/* Waits until the segment can be submitted, while the device has nothing to run. */
static strata_status await(const walker *w, flight *fl, int microbatch, int segment, strata_error *err) {
    const double began = strata_trace_now();
    bool ready;
    STRATA_TRY(wait_until_ready(w, fl, microbatch, -1, true, &ready));
    STRATA_TRY(arrive(w, fl, 2 * segment, err));
    STRATA_TRY(wait_until_ready(w, fl, microbatch, segment, true, &ready));
    add_bubble(w, fl->run.step, began, strata_trace_now());
    return STRATA_OK;
}

static strata_status run_segment(walker *w, int microbatch, int segment, strata_error *err) {
    flights *f = w->f;
    flight *fl = flight_of(f, microbatch), *newest = w->newest;
    bool ready;
    STRATA_TRY(wait_until_ready(w, fl, microbatch, segment, false, &ready));
    if (!ready) {
        w->newest = NULL;
        /* The slices of a device's row are added in order, and a bubble comes next. */
        if (newest && f->group->trace)
            STRATA_TRY(strata_group_wait_for_segment(f->group, lane_of(w), &newest->run, w->replica, w->segment, NULL, err));
        STRATA_TRY(pass_on(w, newest, w->segment, err));
        newest = NULL;
        STRATA_TRY(await(w, fl, microbatch, segment, err));
    }
    const strata_status status = strata_group_submit(f->group, lane_of(w), &fl->run, 1, w->replica, segment, err);
    if (status) return strata_fail_in(err, status, "micro-batch %d", microbatch);
    const int before = w->segment;
    w->newest = fl;
    w->segment = segment;
    return pass_on(w, newest, before, err);
}

static void *walk(void *user) {
    walker *w = user;
    const strata_group_schedule *s = w->f->schedule;
    strata_error err = {0};
    strata_status status = STRATA_OK;
    for (int i = 0; i < s->n_actions && !status; i++) {
        const strata_group_action *a = &s->actions[i];
        if (a->replica != w->replica) continue;
        for (int k = a->first; k < a->end && !status; k++) status = run_segment(w, a->microbatch, k, &err);
    }
    if (!status) status = pass_on(w, w->newest, w->segment, &err);
    if (status) note(w->f, status, &err);
    w->ended = strata_trace_now();
    return NULL;
}

/* Starts the walkers; *out_n: how many. Signals are left to the program's threads. */
static strata_status start(flights *f, int *out_n, strata_error *err) {
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (*out_n = 0; *out_n < f->group->n_replicas && !code;) {
        walker *w = &f->walkers[*out_n];
        w->newest = NULL;
        code = pthread_create(&w->thread, NULL, walk, w);
        *out_n += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "a schedule of %d replicas needs a thread each; the system started %d",
                       f->group->n_replicas, *out_n);
}

/* ---- the caller ---- */

static strata_status begin(flights *f, int rank, strata_error *err) {
    const strata_group_schedule *s = f->schedule;
    strata_group *group = f->group;
    const int m = f->order[rank], slot = s->slots[rank % s->n_slots];
    strata_group_run run = {
        .slot = slot, .step = s->step, .contributes = s->contributes ? s->contributes + m * group->n_replicas : NULL};
    for (int r = 0; r < group->n_replicas; r++) strata_executable_place_run(group->members[r].executable, slot, rank);
    if (s->begin) STRATA_TRY(s->begin(s->user, m, slot, err));
    if (!rank) STRATA_TRY(strata_group_check_devices(group, &run, 1, err));
    run.step = strata_trace_microbatch(s->step, s->first + m);
    for (int r = 0; r < group->n_replicas; r++) {
        strata_executable *exe = group->members[r].executable;
        strata_executable_begin_run(exe, slot);
        if (run.contributes && !run.contributes[r]) exe->slots[slot].shows = false; /* it has no examples */
    }
    flight *fl = flight_of(f, m);
    pthread_mutex_lock(&f->lock);
    reset(f, fl, m);
    fl->run = run;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return STRATA_OK;
}

static strata_status end(flights *f, int rank, strata_error *err) {
    const strata_group_schedule *s = f->schedule;
    const int m = f->order[rank], slot = s->slots[rank % s->n_slots];
    const flight *fl = flight_of(f, m);
    pthread_mutex_lock(&f->lock);
    while (fl->n_ended < f->group->n_replicas && !f->failed) pthread_cond_wait(&f->changed, &f->lock);
    const strata_status failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    if (failed) return failed;
    for (int r = 0; r < f->group->n_replicas; r++) strata_executable_end_run(f->group->members[r].executable, slot);
    return s->end ? s->end(s->user, m, slot, err) : STRATA_OK;
}

/* Begins and ends all flights. *out_rank: where it failed. */
static strata_status attend(flights *f, int *out_rank, strata_error *err) {
    const int n = f->schedule->n_microbatches, n_slots = f->schedule->n_slots;
    for (int i = 0; i < n + n_slots; i++) {
        *out_rank = i - n_slots;
        if (i >= n_slots && i - n_slots < n) STRATA_TRY(end(f, i - n_slots, err));
        *out_rank = i;
        if (i < n) STRATA_TRY(begin(f, i, err));
    }
    return STRATA_OK;
}

/* Waits for all that was submitted. */
static void abandon(const flights *f) {
    const strata_group_schedule *s = f->schedule;
    for (int r = 0; r < f->group->n_replicas; r++) {
        strata_executable *exe = f->group->members[r].executable;
        for (int i = 0; i < s->n_slots; i++) exe->slots[s->slots[i]].shows = false;
        for (int i = 0; i < s->n_slots; i++) (void)!strata_executable_wait(exe, s->slots[i], NULL);
    }
}

static strata_status run(flights *f, strata_error *err) {
    strata_error own = {0};
    int n_threads, rank = 0;
    const double began = strata_trace_now();
    f->failed = STRATA_OK;
    for (int s = 0; s < strata_group_n_slots(f->group); s++) f->flights[s].microbatch = -1;
    strata_status status = start(f, &n_threads, &own);
    if (!status && (status = attend(f, &rank, &own))) strata_fail_in(&own, status, "micro-batch %d", f->order[rank]);
    if (status) note(f, status, &own);
    for (int r = 0; r < n_threads; r++) pthread_join(f->walkers[r].thread, NULL);
    const double ended = strata_trace_now();
    for (int r = 0; r < n_threads; r++) {
        add_bubble(&f->walkers[r], f->schedule->step, f->walkers[r].ended, ended);
        f->group->members[r].scheduled_seconds += ended - began;
    }
    if (!f->failed) {
        f->group->steps += (uint64_t)f->schedule->n_microbatches;
        return STRATA_OK;
    }
    abandon(f);
    if (err) *err = f->error;
    return f->failed;
}

strata_status strata_group_run_schedule(strata_group *group, const strata_group_schedule *schedule, strata_error *err) {
    STRATA_FREED int *orders = NULL;
    const int n = schedule->n_microbatches > 0 ? schedule->n_microbatches : 0;
    STRATA_TRY(strata_group_check_alive(group, err));
    if (group->n_inside)
        return strata_fail(err, STRATA_INVALID, "schedule: the programs of these devices exchange %d values themselves",
                           group->n_inside);
    if (!group->flights) STRATA_TRY(create(group, &group->flights, err));
    STRATA_TRY(strata_group_need_lanes(group, group->n_replicas + 1, err));
    STRATA_TRY(STRATA_NEW(orders, 2 * (int64_t)n, err, "no host memory for %d micro-batches", n));
    flights *f = group->flights;
    f->schedule = schedule;
    f->order = orders;
    f->rank = orders + n;
    STRATA_TRY(check(f, err));
    for (int k = 0; k < group->n_lanes; k++) group->lanes[k].folded = 0;
    return run(f, err);
}

double strata_group_take_idle(strata_group *group, int replica, double *out_all) {
    strata_group_member *member = &group->members[replica];
    const double idle = member->idle_seconds;
    *out_all = member->scheduled_seconds;
    member->idle_seconds = member->scheduled_seconds = 0;
    return idle;
}

/* ---- phases ---- */

/* Whether the value of the exchange that the replica receives comes from a later stage. Of the devices of other workers, it is
 * not known which one gives it. */
static bool comes_from_later(const strata_group *group, int exchange, int replica, const int *stages) {
    const strata_communication *c = strata_group_communication(group, replica, exchange);
    const strata_team team = ((const strata_communication_attrs *)c->node->attrs)->team;
    const int first = group->workers ? group->workers->first_replica : 0, own = stages[first + replica];
    const int n_all = group->workers ? group->workers->n_replicas : group->n_replicas;
    bool given = c->after >= 0, later = false, all = true;
    for (int r = 0; r < group->n_replicas; r++) {
        if (r == replica || strata_group_after(group, r, exchange) < 0) continue;
        given = true;
        later |= stages[first + r] > own;
    }
    for (int d = 0; d < n_all && !given; d++)
        if (d != first + replica && strata_team_has(team, d)) all &= stages[d] > own;
    return given ? later : all;
}

static bool goes_to_earlier(const strata_group *group, int exchange, int replica, const int *stages) {
    const strata_communication *c = strata_group_communication(group, replica, exchange);
    const strata_team team = ((const strata_communication_attrs *)c->node->attrs)->team;
    const int first = group->workers ? group->workers->first_replica : 0;
    const int n_all = group->workers ? group->workers->n_replicas : group->n_replicas;
    bool earlier = false;
    for (int d = 0; d < n_all; d++) {
        const int r = d - first;
        const bool here = r >= 0 && r < group->n_replicas;
        const strata_communication *other = here && r != replica ? strata_group_communication(group, r, exchange) : NULL;
        if (here ? other && other->before >= 0 : strata_team_has(team, d)) earlier |= stages[d] < stages[first + replica];
    }
    return earlier;
}

strata_group_phases strata_group_find_phases(const strata_group *group, int replica, const int *stages) {
    const int n = group->members[replica].n_segments;
    int later = n, first_back = n, last_back = -1;
    for (int e = 0; e < group->n_exchanges; e++) {
        const strata_communication *c = strata_group_communication(group, replica, e);
        if (!c) continue;
        if (c->before >= 0 && c->before < later && comes_from_later(group, e, replica, stages)) later = c->before;
        if (c->after < 0 || !goes_to_earlier(group, e, replica, stages)) continue;
        if (c->after < first_back) first_back = c->after;
        if (c->after > last_back) last_back = c->after;
    }
    const int backward = later < n ? later : first_back;
    return (strata_group_phases){
        .backward = backward, .weights = last_back + 1 > backward ? last_back + 1 : backward, .n_segments = n};
}
