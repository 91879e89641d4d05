/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes which batch: leases are in a small table, since a worker has at most a few at a time. */
#include "strategies/parameter_server/pace.h"

#include "strategies/memory.h"

/* A unit that is leased, or waits for another worker (worker -1). */
typedef struct lease {
    strata_ps_unit unit;
    int worker;
} lease;

enum { MOST_OF_WORKER = 12 }; /* leases that a worker may have at a time */

typedef struct worker {
    bool there;
    int64_t clock;
    int running;
} worker;

struct strata_ps_pace {
    strata_memory memory;
    strata_ps_pace_options opts;
    worker *workers;
    int64_t epoch, n_steps, next;
    bool stopped;
    /* Sorted by index. */
    lease *leases;
    int n_leases, room;
    int64_t n_finished;
    /* Synchronous: the state of each share [n_shares] of the open step, which is step `next`. */
    enum { FREE, LEASED, FINISHED, EMPTY } * shares;
    strata_ps_close closed;
    bool has_closed;
};

strata_status strata_ps_pace_create(const strata_ps_pace_options *opts, strata_ps_pace **out_pace, strata_error *err) {
    strata_memory memory = {0};
    strata_ps_pace *pace = strata_memory_take(&memory, 1, sizeof *pace);
    const int room = opts->n_workers * MOST_OF_WORKER + opts->n_shares;
    worker *workers = strata_memory_take(&memory, opts->n_workers, sizeof *workers);
    lease *leases = strata_memory_take(&memory, room, sizeof *leases);
    void *shares = strata_memory_take(&memory, opts->n_shares, sizeof *pace->shares);
    if (memory.failed) {
        strata_memory_finish(&memory);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for %d workers", opts->n_workers);
    }
    *pace =
        (strata_ps_pace){.memory = memory, .opts = *opts, .room = room, .workers = workers, .leases = leases, .shares = shares};
    *out_pace = pace;
    return STRATA_OK;
}

void strata_ps_pace_destroy(strata_ps_pace *pace) {
    strata_memory memory = {0};
    if (pace) memory = pace->memory; /* the pace itself is part of it */
    strata_memory_finish(&memory);
}

static bool synchronous(const strata_ps_pace *pace) {
    return pace->opts.pace == STRATA_PACE_SYNCHRONOUS;
}

static int64_t slowest(const strata_ps_pace *pace) {
    int64_t least = INT64_MAX;
    for (int w = 0; w < pace->opts.n_workers; w++)
        if (pace->workers[w].there && pace->workers[w].clock < least) least = pace->workers[w].clock;
    return least == INT64_MAX ? 0 : least;
}

static int64_t fastest(const strata_ps_pace *pace) {
    int64_t most = 0;
    for (int w = 0; w < pace->opts.n_workers; w++)
        if (pace->workers[w].there && pace->workers[w].clock > most) most = pace->workers[w].clock;
    return most;
}

static void open_step(strata_ps_pace *pace) {
    memset(pace->shares, 0, (size_t)pace->opts.n_shares * sizeof *pace->shares);
}

void strata_ps_pace_begin(strata_ps_pace *pace, int64_t epoch, int64_t first, int64_t n_steps) {
    pace->epoch = epoch;
    pace->n_steps = n_steps;
    pace->next = pace->n_finished = first;
    pace->stopped = pace->has_closed = false;
    pace->n_leases = 0;
    open_step(pace);
    const int64_t clock = fastest(pace); /* all workers have reached the end of the epoch before */
    for (int w = 0; w < pace->opts.n_workers; w++) pace->workers[w] = (worker){pace->workers[w].there, clock, 0};
}

int strata_ps_pace_lose(strata_ps_pace *pace, int w) {
    int n = 0, kept = 0;
    if (!pace->workers[w].there) return 0;
    pace->workers[w].there = false;
    for (int i = 0; i < pace->n_leases; i++) {
        lease *l = &pace->leases[i];
        if (l->worker == w) {
            n++;
            l->worker = -1;
            if (synchronous(pace)) {
                if (l->unit.index == pace->next) pace->shares[l->unit.share] = FREE;
                continue;
            }
        }
        pace->leases[kept++] = *l;
    }
    pace->n_leases = kept;
    return n;
}

void strata_ps_pace_join(strata_ps_pace *pace, int w) {
    strata_ps_pace_lose(pace, w);
    pace->workers[w] = (worker){true, slowest(pace), 0};
}

static strata_ps_grant grant(strata_ps_pace *pace, int w, strata_ps_unit unit, lease *l, strata_ps_unit *out_unit) {
    if (!l) {
        if (pace->n_leases == pace->room) return STRATA_PS_WAIT;
        l = &pace->leases[pace->n_leases++];
    }
    *l = (lease){unit, w};
    pace->workers[w].running++;
    *out_unit = unit;
    return STRATA_PS_GRANTED;
}

/* Whether any share of the open step was leased or finished. */
static bool step_began(const strata_ps_pace *pace) {
    for (int i = 0; i < pace->opts.n_shares; i++)
        if (pace->shares[i] != FREE) return true;
    return false;
}

/* Leases the worker's own share of the open step if it is free, else the first free one. A step that has begun is completed,
 * also after a stop was requested. */
static strata_ps_grant ask_for_share(strata_ps_pace *pace, int w, strata_ps_unit *out_unit) {
    int share = w < pace->opts.n_shares && pace->shares[w] == FREE ? w : -1;
    if (pace->next >= pace->n_steps || (pace->stopped && !step_began(pace))) return STRATA_PS_NONE_LEFT;
    if (pace->workers[w].running) return STRATA_PS_WAIT;
    for (int i = 0; i < pace->opts.n_shares && share < 0; i++) {
        const bool own = i < pace->opts.n_workers && pace->workers[i].there && !pace->workers[i].running;
        if (pace->shares[i] == FREE && !own) share = i; /* a share whose own worker is connected and idle is left to it */
    }
    if (share < 0) return STRATA_PS_WAIT;
    const strata_ps_grant given = grant(pace, w, (strata_ps_unit){pace->epoch, pace->next, share}, NULL, out_unit);
    if (given == STRATA_PS_GRANTED) pace->shares[share] = LEASED;
    return given;
}

strata_ps_grant strata_ps_pace_ask(strata_ps_pace *pace, int w, strata_ps_unit *out_unit) {
    const worker *own = &pace->workers[w];
    lease *returned = NULL;
    if (!own->there || own->running == MOST_OF_WORKER) return STRATA_PS_WAIT;
    if (synchronous(pace)) return ask_for_share(pace, w, out_unit);
    for (int i = 0; i < pace->n_leases && !returned; i++)
        if (pace->leases[i].worker < 0) returned = &pace->leases[i];
    if (!returned && (pace->next >= pace->n_steps || pace->stopped)) return STRATA_PS_NONE_LEFT;
    if (pace->opts.pace == STRATA_PACE_BOUNDED && own->clock + own->running - slowest(pace) > pace->opts.staleness)
        return STRATA_PS_WAIT;
    if (returned) return grant(pace, w, returned->unit, returned, out_unit);
    const strata_ps_grant given = grant(pace, w, (strata_ps_unit){pace->epoch, pace->next, 0}, NULL, out_unit);
    if (given == STRATA_PS_GRANTED) pace->next++;
    return given;
}

static bool same(const strata_ps_unit *a, const strata_ps_unit *b) {
    return a->epoch == b->epoch && a->index == b->index && a->share == b->share;
}

/* Ends the open step when enough of its shares are finished. */
static strata_ps_finished finish_share(strata_ps_pace *pace, const strata_ps_unit *unit, bool empty) {
    int n = 0;
    if (unit->index != pace->next) return STRATA_PS_TOO_LATE;
    pace->shares[unit->share] = empty ? EMPTY : FINISHED;
    for (int i = 0; i < pace->opts.n_shares; i++) n += pace->shares[i] >= FINISHED;
    if (n < pace->opts.n_shares - pace->opts.backup) return STRATA_PS_COUNTS;
    pace->closed = (strata_ps_close){.epoch = pace->epoch, .index = pace->next, .scale = 1};
    for (int i = 0; i < pace->opts.n_shares; i++)
        if (pace->shares[i] == FINISHED) pace->closed.counted[i / 8] |= (uint8_t)(1 << (i % 8));
    pace->has_closed = true;
    pace->next++;
    pace->n_finished++;
    open_step(pace);
    return STRATA_PS_ENDS_STEP;
}

strata_ps_finished strata_ps_pace_finish(strata_ps_pace *pace, int w, const strata_ps_unit *unit, bool empty) {
    int at = 0;
    while (at < pace->n_leases && !same(&pace->leases[at].unit, unit)) at++;
    /* A worker that was treated as lost, but was not, may be the first to finish a unit that is now leased to another
     * worker. */
    if (at == pace->n_leases || unit->epoch != pace->epoch) return STRATA_PS_TOO_LATE;
    const int leased_to = pace->leases[at].worker;
    pace->leases[at] = pace->leases[--pace->n_leases];
    if (leased_to >= 0) pace->workers[leased_to].running--;
    if (leased_to == w) pace->workers[w].clock++;
    if (synchronous(pace)) return finish_share(pace, unit, empty);
    pace->n_finished++;
    return STRATA_PS_COUNTS;
}

void strata_ps_pace_stop(strata_ps_pace *pace, bool stopped) {
    pace->stopped = stopped;
}

bool strata_ps_pace_ended(const strata_ps_pace *pace) {
    if (!synchronous(pace)) return !pace->n_leases && (pace->next >= pace->n_steps || pace->stopped);
    if (pace->next >= pace->n_steps) return true; /* nobody waits for shares that are late */
    return pace->stopped && !step_began(pace);
}

int64_t strata_ps_pace_steps(const strata_ps_pace *pace) {
    return pace->n_finished;
}

bool strata_ps_pace_closed(const strata_ps_pace *pace, strata_ps_close *out_close) {
    *out_close = pace->closed;
    return pace->has_closed;
}

int64_t strata_ps_pace_left(const strata_ps_pace *pace) {
    return pace->next < pace->n_steps ? pace->n_steps - pace->next : 0;
}

void strata_ps_pace_count(const strata_ps_pace *pace, strata_parameter_server_totals *totals) {
    totals->spread = fastest(pace) - slowest(pace);
    totals->waiting = 0;
    for (int i = 0; i < pace->n_leases; i++) totals->waiting += pace->leases[i].worker < 0;
    totals->running = pace->n_leases - totals->waiting;
}

int64_t strata_ps_pace_clock(const strata_ps_pace *pace, int w) {
    return pace->workers[w].there ? pace->workers[w].clock : -1;
}

int64_t strata_ps_pace_started(const strata_ps_pace *pace, int w) {
    return pace->workers[w].there ? pace->workers[w].clock + pace->workers[w].running : -1;
}
