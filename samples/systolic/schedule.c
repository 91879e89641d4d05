/* SPDX-License-Identifier: Apache-2.0
 *
 * The cycle model. The chip runs a program by a static schedule, which defines which values are in the on-chip memory at which
 * time, when DMA copies them, and when each unit works on which step. All of this is known when the program is compiled, so
 * the cycles of a run are computed once.
 *
 *   on-chip memory   A value that fits is loaded, or computed there, when a step first needs it, and stays until its last use.
 *                    If there is no room, the value whose next use is farthest away is removed (Belady's rule); one that was
 *                    computed is stored to HBM before. A value larger than a quarter of the memory never stays: it is streamed
 *                    through a staging area at each use.
 *   DMA              HBM's bandwidth is one resource, which copies use in the order of the steps. A load for a step may begin
 *                    when the previous step begins, if there is room for the values of both steps. Copies are made in windows.
 *   units            The arrays, the vector unit and the ring each work on one step at a time. They work on different steps at
 *                    the same time if these do not need each other's results. A step of the arrays also uses the vector unit,
 *                    for its epilogue.
 *   a step           It begins when its operands on the chip are complete, the first window of its loads has arrived, and its
 *                    unit is free. It ends after its unit's cycles, but not before the last load plus the work for one
 *                    window. */
#include <math.h>
#include <stdlib.h>

#include "systolic.h"

/* The most windows of a step's copies, and the bytes to whose multiples values in the on-chip memory are rounded up. */
enum { MOST_WINDOWS = 64, LINE = 512 };

typedef struct resident {
    bool here;
    /* It was computed on the chip, and is not in HBM. */
    bool dirty;
    int64_t offset, bytes;
    /* The cycle at which it is complete, on the chip or in HBM. */
    double ready;
    /* The steps that use it, in ascending order, and how many of these are done. */
    int *uses, n_uses, n_done;
} resident;

typedef struct planner {
    strata_plugin_program *program;
    const chip *chip;
    /* The state of each value; only those of roots are used. */
    resident *values;
    int64_t room, used;
    /* When each unit is free; when the previous step began and ended; and when HBM is free. */
    double free_at[UNITS], before_begin, before_end, hbm_free;
} planner;

static int64_t lines(int64_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

static int next_use(const resident *r) {
    return r->n_done < r->n_uses ? r->uses[r->n_done] : INT32_MAX;
}

/* Returns the lowest offset at which `bytes` are free; -1: there is none. */
static int64_t find_room(const planner *p, int64_t bytes) {
    int64_t at = 0;
    for (int i = 0; i < p->program->n_values;) {
        const resident *r = &p->values[i];
        if (r->here && r->offset < at + bytes && at < r->offset + r->bytes) {
            at = r->offset + r->bytes;
            i = 0;
        } else {
            i++;
        }
    }
    return at + bytes <= p->room ? at : -1;
}

/* Removes from the on-chip memory the value whose next use is farthest away, but none that step k - 1 or k uses. If the value
 * must be stored to HBM, adds its bytes to *stored. */
static bool evict(planner *p, int k, double *stored) {
    resident *worst = NULL;
    for (int i = 0; i < p->program->n_values; i++) {
        resident *r = &p->values[i];
        const bool in_use = r->here && ((r->n_done && r->uses[r->n_done - 1] >= k - 1) || next_use(r) <= k);
        if (!r->here || in_use || (worst && next_use(r) <= next_use(worst))) continue;
        worst = r;
    }
    if (!worst) return false;
    if (worst->dirty && next_use(worst) < INT32_MAX) {
        *stored += (double)worst->bytes;
        p->program->spilled_bytes += worst->bytes;
    }
    worst->here = worst->dirty = false;
    p->used -= worst->bytes;
    return true;
}

/* Makes room for a value that step k needs. Returns false if the value does not stay in the on-chip memory. */
static bool take_room(planner *p, resident *r, int64_t bytes, int k, double *stored) {
    const int64_t wanted = lines(bytes);
    if (wanted > p->room / 4) return false;
    int64_t at;
    while ((at = find_room(p, wanted)) < 0)
        if (!evict(p, k, stored)) return false;
    r->here = true;
    r->offset = at;
    r->bytes = wanted;
    p->used += wanted;
    if (p->used > p->program->onchip_peak) p->program->onchip_peak = p->used;
    return true;
}

static void leave(planner *p, resident *r) {
    if (r->here) p->used -= r->bytes;
    r->here = r->dirty = false;
}

/* Computes how often an operand of a product is read if neither operand stays on the chip. The accumulators of one block of
 * the result fill half of the on-chip memory, and each block needs all its rows of a and all its columns of b. */
static void passes_of(const planner *p, const work *w, int input, bool both, double *passes) {
    *passes = 1;
    if (!w->rows || !both || input > 1) return;
    const double block = sqrt((double)(p->room / 2) / sizeof(float));
    const double n = input == 0 ? (double)w->columns : (double)w->rows;
    *passes = ceil(n / block);
}

/* Loads the operands of step k that are not on the chip. Returns the bytes that are loaded. *ready: when all operands that are
 * on the chip are complete. *prefetched: whether the loads may overlap the previous step. */
static double load_operands(planner *p, int k, const work *w, double *ready, bool *prefetched, double *stored) {
    const step *s = &p->program->steps[k];
    double bytes = 0;
    bool streams[2] = {false, false}, seen;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->n_inputs; i++) {
            const int32_t root = p->program->values[s->in_ids[i]].root;
            const value *v = &p->program->values[root];
            resident *r = &p->values[root];
            seen = false;
            for (int j = 0; j < i; j++) seen = seen || p->program->values[s->in_ids[j]].root == root;
            if (seen) continue;
            if (pass == 0) { /* the first pass finds which operands of a product are too large to stay */
                if (i < 2) streams[i] = !r->here && lines(v->bytes) > p->room / 4;
                continue;
            }
            *ready = r->ready > *ready ? r->ready : *ready;
            if (r->here || v->bytes == 0) continue;
            /* An operand that is a view of a larger value: only the part that the step reads is loaded. */
            const double part = (double)(p->program->values[s->in_ids[i]].bytes);
            if (i == w->sparse_input) {
                bytes += w->touched;
                continue;
            }
            double passes;
            passes_of(p, w, i, streams[0] && streams[1], &passes);
            const int64_t before = p->used;
            if (part >= (double)v->bytes && take_room(p, r, v->bytes, k, stored)) {
                if (p->used < before) *prefetched = false; /* another value had to be removed before */
                bytes += (double)v->bytes;
                r->ready = 0; /* the step waits for its own loads */
            } else {
                bytes += part * passes;
            }
        }
    }
    return bytes;
}

/* Chooses where the result of step k is stored. Returns the bytes that are written to HBM. */
static double keep_result(planner *p, int k, double *stored) {
    const step *s = &p->program->steps[k];
    double bytes = 0;
    for (int i = -1; i < s->n_inputs; i++) { /* inputs that are written in place, and for -1 the result */
        if (i >= 0 && !(i < 32 && s->writes >> i & 1)) continue;
        const int32_t id = i < 0 ? s->out_id : s->in_ids[i];
        const int32_t root = p->program->values[id].root;
        const value *v = &p->program->values[root];
        resident *r = &p->values[root];
        const bool in_place = i >= 0 || s->writes;
        if (i < 0 && in_place) continue; /* the result is one of these inputs */
        const double part = (double)p->program->values[id].bytes;
        if (v->role != STRATA_PLUGIN_TEMPORARY)
            bytes += part;
        else if (r->here || take_room(p, r, v->bytes, k, stored))
            r->dirty = true;
        else
            bytes += part;
    }
    return bytes;
}

static double largest(double a, double b) {
    return a > b ? a : b;
}

static void plan_step(planner *p, int k) {
    const step *s = &p->program->steps[k];
    const chip *chip = p->chip;
    timing *t = &p->program->timings[k];
    work w = {.vector_ops = (double)s->out->n, .sparse_input = -1};
    if (s->op->cost) s->op->cost(s, &w);
    double ready = 0, stored = 0;
    bool prefetched = true;
    const double loads = load_operands(p, k, &w, &ready, &prefetched, &stored), stores = keep_result(p, k, &stored);

    double matrix = chip_matrix_cycles(chip, w.rows, w.columns, w.depth, w.batch);
    if (matrix > 0) matrix += chip_drain_cycles(chip, (double)s->out->n);
    const double vector = chip_vector_cycles(chip, w.vector_ops);
    const double ring = chip_ring_cycles(chip, w.ring_bytes, w.members, w.rounds);
    const unit unit = ring > 0 ? UNIT_RING : matrix > 0 ? UNIT_MATRIX : UNIT_VECTOR;
    const double busy = largest(largest(matrix, vector), ring);
    /* A view, or a pack whose parts are in their places already. */
    const bool idle = busy == 0 && loads == 0 && stores + stored == 0;
    const double cycles = idle ? 0 : busy + chip->step_overhead;
    double windows = ceil(largest(loads, stores) / chip->window_bytes);
    windows = windows < 1 ? 1 : windows > MOST_WINDOWS ? MOST_WINDOWS : windows;

    const double load = chip_hbm_cycles(chip, loads), store = chip_hbm_cycles(chip, stores + stored);
    const double load_begin = largest(p->hbm_free, prefetched ? p->before_begin : p->before_end);
    const double load_end = load_begin + load + (loads > 0 ? chip->hbm_latency : 0);
    if (loads > 0) p->hbm_free = load_begin + load;
    double begin = largest(ready, p->free_at[unit]);
    if (loads > 0) begin = largest(begin, load_begin + chip->hbm_latency + load / windows);
    double end = begin + cycles;
    if (loads > 0) end = largest(end, load_end + cycles / windows);
    const double store_begin = largest(p->hbm_free, begin + cycles / windows);
    double store_end = end;
    if (store > 0) {
        store_end = largest(store_begin + store, end + store / windows) + chip->hbm_latency;
        p->hbm_free = store_end - chip->hbm_latency;
    }
    if (!idle) {
        p->free_at[unit] = end;
        if (matrix > 0 && vector > 0) p->free_at[UNIT_VECTOR] = largest(p->free_at[UNIT_VECTOR], end);
        p->before_begin = begin;
        p->before_end = end;
    }

    for (int i = 0; i < UNITS; i++) t->begin[i] = t->end[i] = begin;
    t->end[unit] = end;
    if (matrix > 0 && vector > 0) t->end[UNIT_VECTOR] = begin + vector;
    t->begin[UNIT_LOAD] = load_begin;
    t->end[UNIT_LOAD] = loads > 0 ? load_end : load_begin;
    t->begin[UNIT_STORE] = store_begin;
    t->end[UNIT_STORE] = store > 0 ? store_end : store_begin;
    t->bytes = loads + stores + stored;
    t->macs = (double)w.rows * (double)w.columns * (double)w.depth * (double)w.batch;

    const int32_t out = p->program->values[s->out_id].root;
    p->values[out].ready = p->values[out].here ? end : store_end;
    for (int i = 0; i < s->n_inputs && i < 32; i++)
        if (s->writes >> i & 1) p->values[p->program->values[s->in_ids[i]].root].ready = end;
    p->program->cycles = largest(p->program->cycles, largest(end, store_end));
    p->program->bytes += t->bytes;
    p->program->macs += t->macs;
}

/* Counts one more use for the values of step k, and removes those that no later step uses. */
static void end_step(planner *p, int k) {
    const step *s = &p->program->steps[k];
    for (int i = -1; i < s->n_inputs; i++) {
        resident *r = &p->values[p->program->values[i < 0 ? s->out_id : s->in_ids[i]].root];
        while (r->n_done < r->n_uses && r->uses[r->n_done] <= k) r->n_done++;
        if (r->n_done == r->n_uses) leave(p, r);
    }
}

static bool list_uses(planner *p) {
    const strata_plugin_program *program = p->program;
    for (int turn = 0; turn < 2; turn++) { /* the first turn counts the uses, the second one lists them */
        for (int k = 0; k < program->n_steps; k++) {
            const step *s = &program->steps[k];
            for (int i = -1; i < s->n_inputs; i++) {
                resident *r = &p->values[program->values[i < 0 ? s->out_id : s->in_ids[i]].root];
                if (turn && (!r->n_done || r->uses[r->n_done - 1] != k)) r->uses[r->n_done++] = k;
                if (!turn) r->n_uses++;
            }
        }
        for (int i = 0; i < program->n_values; i++) {
            resident *r = &p->values[i];
            if (!turn && r->n_uses && !(r->uses = malloc((size_t)r->n_uses * sizeof *r->uses))) return false;
            if (turn) r->n_uses = r->n_done;
            r->n_done = 0;
        }
    }
    return true;
}

bool program_schedule(strata_plugin_program *program, const chip *chip) {
    planner p = {.program = program, .chip = chip, .room = chip->onchip_bytes};
    p.before_begin = p.before_end = p.hbm_free = chip->launch;
    for (int i = 0; i < UNITS; i++) p.free_at[i] = chip->launch;
    p.values = calloc((size_t)program->n_values + 1, sizeof *p.values);
    const bool planned = p.values && list_uses(&p);
    for (int k = 0; k < program->n_steps && planned; k++) {
        plan_step(&p, k);
        end_step(&p, k);
    }
    for (int i = 0; i < program->n_values && p.values; i++) free(p.values[i].uses);
    free(p.values);
    return planned;
}
