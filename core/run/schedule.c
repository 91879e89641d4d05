/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks schedules of pipelines, writes and reads them, and predicts their times, by running their rows without devices. */
#include "core/run/schedule.h"

#include <stdio.h>

#include "core/base/ascii.h"
#include "core/graph/placement.h"

void strata_pipeline_schedule_destroy(strata_pipeline_schedule *schedule) {
    if (!schedule) return;
    if (schedule->actions) free(schedule->actions[0]);
    free(schedule->actions);
    free(schedule->n_actions);
    free(schedule);
}

/* "F0", or with the chunk, "F0.4", if stages have several. */
typedef struct action_name {
    char text[32];
} action_name;

static action_name name_of(const strata_pipeline_schedule *t, strata_action a) {
    action_name name;
    const int n = snprintf(name.text, sizeof name.text, "%c%d", "FBW"[a.kind], a.microbatch);
    if (t->n_chunks > t->n_stages) snprintf(name.text + n, sizeof name.text - (size_t)n, ".%d", a.chunk);
    return name;
}

/* ---- running the rows without devices ---- */

typedef struct walk {
    const strata_pipeline_schedule *schedule;
    /* [n_stages] the next action of each row. The memory of all arrays. */
    int *next;
    /* [3 * n_chunks] how many actions of each kind and chunk were run. They are in the order of the micro-batches. */
    int *n_done;
    /* [n_stages] the stages whose next action may be possible now, and for each stage whether it is among them. */
    int *stack, *on_stack, n_stack;
} walk;

static void walk_finish(walk *w) {
    free(w->next);
}

static void wake(walk *w, int stage) {
    if (!w->on_stack[stage]) w->stack[w->n_stack++] = stage;
    w->on_stack[stage] = 1;
}

static strata_status walk_init(walk *w, const strata_pipeline_schedule *t, strata_error *err) {
    STRATA_TRY(STRATA_NEW(w->next, 3 * ((int64_t)t->n_stages + t->n_chunks), err, "there is no memory to check a schedule"));
    w->schedule = t;
    w->stack = w->next + t->n_stages;
    w->on_stack = w->stack + t->n_stages;
    w->n_done = w->on_stack + t->n_stages;
    for (int s = t->n_stages - 1; s >= 0; s--) wake(w, s);
    return STRATA_OK;
}

static int *n_done(const walk *w, strata_action_kind kind, int chunk) {
    return &w->n_done[(int64_t)kind * w->schedule->n_chunks + chunk];
}

/* The actions that must have ended before `a`; returns how many. */
static int needs(const strata_pipeline_schedule *t, strata_action a, strata_action out[2]) {
    out[0] = out[1] = a;
    if (a.kind == STRATA_ACTION_FORWARD) {
        out[0].chunk--;
        return a.chunk > 0;
    }
    out[0].kind = a.kind == STRATA_ACTION_BACKWARD ? STRATA_ACTION_FORWARD : STRATA_ACTION_BACKWARD;
    out[1].chunk++;
    return a.kind == STRATA_ACTION_BACKWARD && out[1].chunk < t->n_chunks ? 2 : 1;
}

/* Whether the next action of the stage needs one that was not run yet. */
static bool waits(const walk *w, int stage, strata_action *out_need) {
    strata_action before[2];
    const int n = needs(w->schedule, w->schedule->actions[stage][w->next[stage]], before);
    for (int i = 0; i < n; i++) {
        *out_need = before[i];
        if (*n_done(w, before[i].kind, before[i].chunk) <= before[i].microbatch) return true;
    }
    return false;
}

/* Runs an action that is possible now; false: there is none. */
static bool run_one(walk *w, strata_action *out) {
    const strata_pipeline_schedule *t = w->schedule;
    strata_action need;
    for (; w->n_stack; w->on_stack[w->stack[--w->n_stack]] = 0) {
        const int stage = w->stack[w->n_stack - 1];
        if (w->next[stage] == t->n_actions[stage] || waits(w, stage, &need)) continue;
        *out = t->actions[stage][w->next[stage]++];
        ++*n_done(w, out->kind, out->chunk);
        if (out->kind == STRATA_ACTION_FORWARD) wake(w, (stage + 1) % t->n_stages);
        if (out->kind == STRATA_ACTION_BACKWARD) wake(w, (stage + t->n_stages - 1) % t->n_stages);
        return true;
    }
    return false;
}

/* ---- checks ---- */

static strata_status check_size(const strata_pipeline_schedule *t, strata_error *err) {
    int64_t n = 0;
    if (t->n_stages < 1 || t->n_stages > STRATA_MESH_MOST_DEVICES)
        return strata_fail(err, STRATA_DATA, "the schedule has %d stages; it must have 1 to %d", t->n_stages,
                           STRATA_MESH_MOST_DEVICES);
    for (int s = 0; s < t->n_stages; s++) n += t->n_actions[s];
    if (n > STRATA_PIPELINE_MOST_ACTIONS)
        return strata_fail(err, STRATA_DATA, "the schedule has more than %d actions", STRATA_PIPELINE_MOST_ACTIONS);
    if (t->n_chunks < t->n_stages || t->n_microbatches < 1 || t->n_chunks > n)
        return strata_fail(
            err, STRATA_DATA,
            "the schedule has %d chunks, %d micro-batches and %d actions; each stage needs a chunk, and each chunk "
            "actions",
            t->n_chunks, t->n_microbatches, (int)n);
    return STRATA_OK;
}

/* Counts the actions of stage s in w->n_done. */
static strata_status check_row(const walk *w, int s, strata_error *err) {
    const strata_pipeline_schedule *t = w->schedule;
    for (int i = 0; i < t->n_actions[s]; i++) {
        const strata_action a = t->actions[s][i];
        if ((unsigned)a.kind > STRATA_ACTION_WEIGHTS || a.chunk < 0 || a.chunk >= t->n_chunks || a.microbatch < 0 ||
            a.microbatch >= t->n_microbatches)
            return strata_fail(err, STRATA_DATA, "stage %d: there is no micro-batch %d in chunk %d", s, a.microbatch, a.chunk);
        if (a.chunk % t->n_stages != s)
            return strata_fail(err, STRATA_DATA, "stage %d: %s is of chunk %d, which is at stage %d", s, name_of(t, a).text,
                               a.chunk, a.chunk % t->n_stages);
        strata_action next = a;
        next.microbatch = (*n_done(w, a.kind, a.chunk))++;
        if (a.microbatch < next.microbatch)
            return strata_fail(err, STRATA_DATA, "stage %d: %s is there twice", s, name_of(t, a).text);
        if (a.microbatch > next.microbatch)
            return strata_fail(
                err, STRATA_DATA,
                "stage %d: %s comes before %s; micro-batches are in ascending order, so that sums have the same bits", s,
                name_of(t, a).text, name_of(t, next).text);
    }
    return STRATA_OK;
}

static strata_status check_rows(walk *w, strata_error *err) {
    const strata_pipeline_schedule *t = w->schedule;
    bool weights = false;
    for (int s = 0; s < t->n_stages; s++) STRATA_TRY(check_row(w, s, err));
    for (int c = 0; c < t->n_chunks; c++) weights |= *n_done(w, STRATA_ACTION_WEIGHTS, c) > 0;
    for (int k = 0; k < 2 + weights; k++)
        for (int c = 0; c < t->n_chunks; c++) {
            const strata_action missing = {(strata_action_kind)k, c, *n_done(w, (strata_action_kind)k, c)};
            if (missing.microbatch < t->n_microbatches)
                return strata_fail(err, STRATA_DATA, "stage %d: %s is missing", c % t->n_stages, name_of(t, missing).text);
        }
    memset(w->n_done, 0, 3 * (size_t)t->n_chunks * sizeof *w->n_done);
    return STRATA_OK;
}

/* The stage that must go on before this stage, which waits, can; adds both to the text if there is one. */
static int stage_before(const walk *w, int stage, strata_text *text) {
    const strata_pipeline_schedule *t = w->schedule;
    strata_action need = {0};
    waits(w, stage, &need);
    const int before = need.chunk % t->n_stages;
    if (text)
        strata_text_add(text, "%sstage %d waits with %s for %s of stage %d", text->n_bytes ? ", " : "", stage,
                        name_of(t, t->actions[stage][w->next[stage]]).text, name_of(t, need).text, before);
    return before;
}

/* From each stage that waits, one comes to a circle of stages that wait for each other. */
static strata_status check_end(const walk *w, strata_error *err) {
    const strata_pipeline_schedule *t = w->schedule;
    STRATA_FINISHED(strata_text) text = {0};
    int stage = 0;
    while (stage < t->n_stages && w->next[stage] == t->n_actions[stage]) stage++;
    if (stage == t->n_stages) return STRATA_OK;
    for (int i = 0; i < t->n_stages; i++) stage = stage_before(w, stage, NULL);
    const int first = stage;
    do stage = stage_before(w, stage, &text);
    while (stage != first);
    return strata_fail(err, STRATA_DATA, "the schedule never ends: %s", text.bytes ? text.bytes : "stages wait for each other");
}

strata_status strata_pipeline_schedule_check(const strata_pipeline_schedule *schedule, strata_error *err) {
    STRATA_FINISHED(walk) w = {0};
    strata_action a;
    STRATA_TRY(check_size(schedule, err));
    STRATA_TRY(walk_init(&w, schedule, err));
    STRATA_TRY(check_rows(&w, err));
    while (run_one(&w, &a)) continue;
    return check_end(&w, err);
}

/* ---- text ---- */

void strata_pipeline_schedule_write(const strata_pipeline_schedule *schedule, strata_text *text) {
    for (int s = 0; s < schedule->n_stages; s++) {
        strata_text_add(text, "stage %d:", s);
        for (int i = 0; i < schedule->n_actions[s]; i++)
            strata_text_add(text, " %s", name_of(schedule, schedule->actions[s][i]).text);
        strata_text_add(text, "\n");
    }
}

typedef struct reader {
    const char *at;
    int line, n_actions;
    /* The rows, one after the other. */
    strata_action *actions;
    strata_pipeline_schedule *schedule;
} reader;

static void reader_finish(reader *r) {
    free(r->actions);
    strata_pipeline_schedule_destroy(r->schedule);
}

/* Reads a number below `limit`; -1: there is none. */
static int read_number(const char **at, int limit) {
    int64_t number = strata_ascii_is_digit(**at) ? 0 : -1;
    while (strata_ascii_is_digit(**at) && number < limit) number = 10 * number + (*(*at)++ - '0');
    return number < limit ? (int)number : -1;
}

/* The length of what an error message shows of the text at the reader, up to one of the characters. */
static int shown(const reader *r, const char *ends) {
    const size_t length = strcspn(r->at, ends);
    return length < 40 ? (int)length : 40;
}

static strata_status read_action(reader *r, strata_error *err) {
    strata_pipeline_schedule *t = r->schedule;
    const int stage = t->n_stages - 1;
    const char *at = r->at, *kind = strchr("FBW", *at++);
    const int microbatch = kind ? read_number(&at, STRATA_PIPELINE_MOST_MICROBATCHES) : -1;
    const bool has_chunk = *at == '.';
    at += has_chunk;
    const int chunk = has_chunk ? read_number(&at, STRATA_PIPELINE_MOST_ACTIONS) : stage;
    if (microbatch < 0 || chunk < 0 || !strchr(" \t\r\n", *at))
        return strata_fail(
            err, STRATA_DATA,
            "line %d: \"%.*s\" is no action; those of micro-batch 0 (of at most %d) are F0, B0 and W0, or with the "
            "chunk F0.1, B0.1 and W0.1",
            r->line, shown(r, " \t\r\n"), r->at, STRATA_PIPELINE_MOST_MICROBATCHES);
    if (r->n_actions == STRATA_PIPELINE_MOST_ACTIONS)
        return strata_fail(err, STRATA_DATA, "line %d: there are more than %d actions", r->line, STRATA_PIPELINE_MOST_ACTIONS);
    strata_action *a = strata_grow(&r->actions, r->n_actions, sizeof *a);
    if (!a) return strata_fail(err, STRATA_OUT_OF_MEMORY, "there is no memory for the actions of a schedule");
    *a = (strata_action){(strata_action_kind)(kind - "FBW"), chunk, microbatch};
    r->n_actions++;
    t->n_actions[stage]++;
    if (chunk >= t->n_chunks) t->n_chunks = chunk + 1;
    if (microbatch >= t->n_microbatches) t->n_microbatches = microbatch + 1;
    r->at = at;
    return STRATA_OK;
}

/* Reads a line without its end. */
static strata_status read_row(reader *r, strata_error *err) {
    strata_pipeline_schedule *t = r->schedule;
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
    if (!*r->at || *r->at == '\n') return STRATA_OK;
    const bool is_row = !strncmp(r->at, "stage ", strlen("stage "));
    const char *at = r->at + (is_row ? strlen("stage ") : 0);
    const int stage = is_row ? read_number(&at, INT32_MAX) : -1;
    if (stage != t->n_stages || *at != ':')
        return strata_fail(err, STRATA_DATA, "line %d: \"%.*s\" does not begin with \"stage %d:\", as the next row does",
                           r->line, shown(r, "\r\n"), r->at, t->n_stages);
    if (!strata_grow(&t->n_actions, t->n_stages, sizeof *t->n_actions))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "there is no memory for the rows of a schedule");
    t->n_stages++;
    for (r->at = at + 1; r->at += strspn(r->at, " \t\r"), *r->at && *r->at != '\n';) STRATA_TRY(read_action(r, err));
    return STRATA_OK;
}

strata_status strata_pipeline_schedule_read(const char *text, strata_pipeline_schedule **out, strata_error *err) {
    STRATA_FINISHED(reader) r = {.at = text, .line = 1};
    STRATA_TRY(STRATA_NEW(r.schedule, 1, err, "there is no memory for a schedule"));
    strata_pipeline_schedule *t = r.schedule;
    for (;; r.at++, r.line++) {
        STRATA_TRY(read_row(&r, err));
        if (!*r.at) break;
    }
    if (!r.n_actions) return strata_fail(err, STRATA_DATA, "there are no actions, as in \"stage 0: F0 B0\"");
    STRATA_TRY(STRATA_NEW(t->actions, t->n_stages, err, "there is no memory for the rows of a schedule"));
    t->actions[0] = strata_released(&r.actions);
    for (int s = 1; s < t->n_stages; s++) t->actions[s] = t->actions[s - 1] + t->n_actions[s - 1];
    STRATA_TRY(strata_pipeline_schedule_check(t, err));
    *out = strata_released(&r.schedule);
    return STRATA_OK;
}

/* ---- predictions ---- */

/* An action that was run, and when. */
typedef struct run {
    strata_action action;
    int sequence;
    double start, seconds;
} run;

/* In a schedule that was checked. */
static bool has_weights(const strata_pipeline_schedule *t) {
    const int n_own = (t->n_chunks + t->n_stages - 1) / t->n_stages;
    return t->n_actions[0] > 2 * (int64_t)n_own * t->n_microbatches;
}

static int64_t index_of(const strata_pipeline_schedule *t, strata_action a) {
    return ((int64_t)a.kind * t->n_chunks + a.chunk) * t->n_microbatches + a.microbatch;
}

static double seconds_of(const strata_pipeline_schedule *t, const strata_pipeline_costs *costs, strata_action a) {
    const double weights = costs ? costs->weights[a.chunk] : 1;
    if (a.kind == STRATA_ACTION_WEIGHTS) return weights;
    if (a.kind == STRATA_ACTION_FORWARD) return costs ? costs->forward[a.chunk] : 1;
    return (costs ? costs->backward[a.chunk] : 1) + (has_weights(t) ? 0 : weights);
}

/* When an action can start: its stage has ended the one before, and the results that it needs are there. */
static double start_of(const strata_pipeline_schedule *t, const strata_pipeline_costs *costs, const double *ends,
                       double free_from, strata_action a) {
    strata_action before[2];
    const int n = needs(t, a, before);
    double start = free_from;
    for (int i = 0; i < n; i++) {
        const int lower = before[i].chunk < a.chunk ? before[i].chunk : a.chunk;
        const bool sent = before[i].chunk != a.chunk && t->n_stages > 1 && costs && costs->send;
        const double arrival = ends[index_of(t, before[i])] + (sent ? costs->send[lower] : 0);
        if (arrival > start) start = arrival;
    }
    return start;
}

/* Runs all actions, in an order in which each comes after those that it needs; the caller frees the list. */
static strata_status run_all(const strata_pipeline_schedule *t, const strata_pipeline_costs *costs, run **out_runs,
                             int *out_n_runs, strata_error *err) {
    const char *message = "there is no memory to predict the times of a schedule";
    STRATA_FINISHED(walk) w = {0};
    STRATA_FREED double *ends = NULL, *free_from = NULL;
    STRATA_FREED run *runs = NULL;
    int64_t n_actions = 0;
    for (int s = 0; s < t->n_stages; s++) n_actions += t->n_actions[s];
    STRATA_TRY(walk_init(&w, t, err));
    STRATA_TRY(STRATA_NEW(ends, n_actions, err, "%s", message));
    STRATA_TRY(STRATA_NEW(free_from, t->n_stages, err, "%s", message));
    STRATA_TRY(STRATA_NEW(runs, n_actions, err, "%s", message));
    int n = 0;
    for (strata_action a; run_one(&w, &a); n++) {
        const int stage = a.chunk % t->n_stages;
        runs[n] = (run){a, n, start_of(t, costs, ends, free_from[stage], a), seconds_of(t, costs, a)};
        ends[index_of(t, a)] = free_from[stage] = runs[n].start + runs[n].seconds;
    }
    *out_runs = strata_released(&runs);
    *out_n_runs = n;
    return STRATA_OK;
}

/* The values of a micro-batch wait until the last action of the row that needs them. */
static int most_in_flight(const strata_pipeline_schedule *t, int stage) {
    const strata_action_kind last = has_weights(t) ? STRATA_ACTION_WEIGHTS : STRATA_ACTION_BACKWARD;
    int n = 0, most = 0;
    for (int i = 0; i < t->n_actions[stage]; i++) {
        n += t->actions[stage][i].kind == STRATA_ACTION_FORWARD;
        if (n > most) most = n;
        n -= t->actions[stage][i].kind == last;
    }
    return most;
}

/* Micro-batches begin and end in ascending order. */
static strata_status count_slots(const strata_pipeline_schedule *t, const run *runs, int n_runs, int *out, strata_error *err) {
    STRATA_FREED double *begins = NULL, *ends = NULL;
    STRATA_TRY(STRATA_NEW(begins, t->n_microbatches, err, "there is no memory for the micro-batches of a schedule"));
    STRATA_TRY(STRATA_NEW(ends, t->n_microbatches, err, "there is no memory for the micro-batches of a schedule"));
    for (int i = 0; i < n_runs; i++) {
        const strata_action a = runs[i].action;
        const double end = runs[i].start + runs[i].seconds;
        if (a.kind == STRATA_ACTION_FORWARD && !a.chunk) begins[a.microbatch] = runs[i].start;
        if (end > ends[a.microbatch]) ends[a.microbatch] = end;
    }
    *out = 1;
    for (int m = 0, ended = 0; m < t->n_microbatches; m++) {
        while (ended < m && ends[ended] <= begins[m]) ended++;
        if (m - ended + 1 > *out) *out = m - ended + 1;
    }
    return STRATA_OK;
}

strata_status strata_pipeline_schedule_simulate(const strata_pipeline_schedule *schedule, const strata_pipeline_costs *costs,
                                                strata_pipeline_prediction *out, strata_error *err) {
    STRATA_FREED run *runs = NULL;
    int n_runs;
    STRATA_TRY(run_all(schedule, costs, &runs, &n_runs, err));
    strata_pipeline_prediction p = {0};
    STRATA_TRY(count_slots(schedule, runs, n_runs, &p.n_slots, err));
    STRATA_TRY(STRATA_NEW(p.stages, schedule->n_stages, err, "there is no memory for the prediction of a schedule"));
    for (int i = 0; i < n_runs; i++) {
        const double end = runs[i].start + runs[i].seconds;
        if (end > p.seconds) p.seconds = end;
        p.stages[runs[i].action.chunk % schedule->n_stages].busy_seconds += runs[i].seconds;
    }
    for (int s = 0; s < schedule->n_stages; s++) {
        p.stages[s].bubble = p.seconds > 0 ? 1 - p.stages[s].busy_seconds / p.seconds : 0;
        p.stages[s].n_in_flight = most_in_flight(schedule, s);
        p.bubble += p.stages[s].bubble / schedule->n_stages;
    }
    *out = p;
    return STRATA_OK;
}

static int by_start(const void *a, const void *b) {
    const run *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->sequence - y->sequence;
}

strata_status strata_pipeline_schedule_order(const strata_pipeline_schedule *schedule, const strata_pipeline_costs *costs,
                                             strata_action **out_actions, int *out_n_actions, strata_error *err) {
    STRATA_FREED run *runs = NULL;
    int n;
    STRATA_TRY(run_all(schedule, costs, &runs, &n, err));
    qsort(runs, (size_t)n, sizeof *runs, by_start);
    STRATA_TRY(STRATA_NEW(*out_actions, n, err, "there is no memory for the order of a schedule"));
    for (int i = 0; i < n; i++) (*out_actions)[i] = runs[i].action;
    *out_n_actions = n;
    return STRATA_OK;
}
