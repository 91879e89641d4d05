/* SPDX-License-Identifier: Apache-2.0
 *
 * A small pipeline for tests (stages.h). */
#include "tests/support/stages.h"

#include <string.h>

#include "core/op/communication.h"
#include "strata/ops.h"

enum { ROWS = 3, SIDE = TEST_STAGES_SIDE, THERE = 1, BACK = 101, SKIP = 201, SKIP_BACK = 301, SUM = 401 };
static const strata_dtype f32 = STRATA_DTYPE_F32;

/* ---- graphs ---- */

/* A member of a stage, whose graph is built. */
typedef struct builder {
    const test_stages *t;
    strata_graph *graph;
    int stage, part;
    /* What the program does beside its output. */
    strata_tensor *updates[4];
    int n_updates;
} builder;

static int member(const builder *b, int stage) {
    return stage * b->t->opts.width + b->part;
}

/* The value that `from` sends to `to`; x is NULL at the latter, where the result is the value. */
static strata_tensor *pass(builder *b, strata_tensor *x, int id, int from, int to) {
    const int64_t devices[] = {member(b, from < to ? from : to), member(b, from < to ? to : from)};
    const strata_communication_attrs attrs = {.team = strata_team_make(b->graph, id + 8 * devices[0], devices, 2),
                                              .dtype = f32,
                                              .shape = STRATA_SHAPE(ROWS, SIDE),
                                              .takes = !x};
    strata_tensor *passed = strata_broadcast(b->graph, x, attrs);
    if (x) b->updates[b->n_updates++] = passed;
    return passed;
}

/* A message, which within a worker is a send and a receive. */
static strata_tensor *send(builder *b, strata_tensor *x, int from, int to) {
    if (b->t->opts.workers) return pass(b, x, THERE, from, to);
    return b->updates[b->n_updates++] = strata_send(x, THERE + 8 * member(b, from), member(b, from), member(b, to));
}

static strata_tensor *receive(builder *b, int from, int to) {
    if (b->t->opts.workers) return pass(b, NULL, THERE, from, to);
    return strata_recv(b->graph, f32, STRATA_SHAPE(ROWS, SIDE), THERE + 8 * member(b, from), member(b, from), member(b, to));
}

static strata_tensor *sum_of_stage(const builder *b, strata_tensor *x) {
    const int64_t devices[] = {b->stage * 2, b->stage * 2 + 1};
    if (b->t->opts.width == 1) return x;
    const strata_communication_attrs attrs = {
        .team = strata_team_make(b->graph, SUM + b->stage, devices, 2), .dtype = f32, .shape = x->shape, .takes = true};
    return strata_all_reduce_among(b->graph, x, (strata_all_reduce_attrs){.common = attrs, .reduction = STRATA_REDUCE_SUM});
}

/* Returns the program's output. */
static strata_tensor *build(builder *b) {
    const int last = b->t->opts.n_stages - 1, s = b->stage, own = member(b, s) - b->t->first;
    const bool skips = b->t->opts.skips && last > 1;
    strata_tensor *w = strata_variable_read(b->graph, b->t->weights[own]);
    strata_tensor *x = s ? receive(b, s - 1, s) : strata_input(b->graph, "x", f32, STRATA_SHAPE(ROWS, SIDE));
    strata_tensor *skipped = skips && s == last ? pass(b, NULL, SKIP, 0, last) : NULL;
    strata_tensor *y = strata_tanh(sum_of_stage(b, strata_matmul(skipped ? strata_add(x, skipped) : x, w, false, false)));
    strata_tensor *output = strata_reduce_sum(strata_square(y), NULL, 0, false), *dy = NULL, *d[3];
    if (s < last) {
        send(b, y, s, s + 1);
        if (skips && !s) pass(b, y, SKIP, 0, last);
        dy = pass(b, NULL, BACK, s + 1, s);
        if (skips && !s) dy = strata_add(dy, pass(b, NULL, SKIP_BACK, last, 0));
    }
    strata_gradients(s < last ? y : output, dy, (strata_tensor *[]){w, x, skipped}, 2 + (skipped != NULL), d);
    if (s) pass(b, d[1], BACK, s, s - 1);
    if (skipped) pass(b, d[2], SKIP_BACK, last, 0);
    strata_tensor *sum = strata_variable_read(b->graph, b->t->sums[own]);
    b->updates[b->n_updates++] = strata_assign(sum, strata_add(sum, d[0]));
    return output;
}

static strata_status compile(test_stages *t, int r, strata_executable **out_executable, strata_error *err) {
    const int number = t->first + r;
    builder b = {.t = t, .stage = number / t->opts.width, .part = number % t->opts.width};
    float values[SIDE * SIDE];
    const strata_array weights = strata_array_view(f32, STRATA_SHAPE(SIDE, SIDE), values);
    for (int i = 0; i < SIDE * SIDE; i++) values[i] = (float)((i * 7 + number * 3) % 13) / 12 - 0.5f;
    strata_status status = strata_variable_create(t->opts.devices[r], "w", f32, weights.shape, &t->weights[r], err);
    if (!status) status = strata_variable_create(t->opts.devices[r], "sum", f32, weights.shape, &t->sums[r], err);
    if (!status) status = strata_variable_set(t->weights[r], &weights, err);
    if (!status) status = strata_graph_create(&b.graph, err);
    if (status) return status;
    strata_tensor *output = build(&b);
    const strata_executable_options opts = {.n_slots = t->opts.n_slots};
    const int n_carried = t->opts.n_carried ? t->opts.n_carried : t->opts.n_stages - b.stage;
    status = strata_executable_create_in_flight(t->opts.devices[r], &output, 1, b.updates, b.n_updates, &opts, n_carried,
                                                out_executable, err);
    strata_graph_destroy(b.graph);
    return status;
}

strata_status test_stages_create(const test_stages_options *opts, test_stages *t, strata_error *err) {
    strata_executable *replicas[TEST_STAGES_MOST] = {0};
    strata_status status = STRATA_OK;
    t->opts = *opts;
    const strata_workers *workers = opts->workers;
    t->n = workers ? workers->first_replicas[workers->rank + 1] - workers->first_replica : opts->n_stages * opts->width;
    t->first = workers ? workers->first_replica : 0;
    for (int r = 0; r < t->n && !status; r++) status = compile(t, r, &replicas[r], err);
    for (int r = 0; r < opts->n_stages * opts->width; r++) t->stages[r] = r / opts->width;
    if (!status) return strata_group_create(replicas, t->n, workers, NULL, &t->group, err);
    for (int r = 0; r < t->n; r++) strata_executable_destroy(replicas[r]);
    return status;
}

void test_stages_destroy(test_stages *t) {
    strata_group_destroy(t->group);
    for (int r = 0; r < t->n; r++) {
        strata_variable_destroy(t->weights[r]);
        strata_variable_destroy(t->sums[r]);
    }
}

/* ---- schedules ---- */

int test_stages_actions(const test_stages *t, bool gpipe, int m, strata_group_action *actions) {
    int n = 0;
    for (int r = 0; r < t->n; r++) {
        const strata_group_phases p = strata_group_find_phases(t->group, r, t->stages);
        const int rest = t->opts.n_stages - 1 - t->stages[t->first + r], ahead = gpipe || rest > m ? m : rest;
        for (int i = 0; i < m + ahead; i++) {
            if (i < m) actions[n++] = (strata_group_action){r, i, 0, p.backward};
            if (i >= ahead) actions[n++] = (strata_group_action){r, i - ahead, p.backward, p.n_segments};
        }
    }
    return n;
}

/* ---- running ---- */

static strata_status clear(const test_stages *t, strata_error *err) {
    float zeros[SIDE * SIDE] = {0};
    const strata_array view = strata_array_view(f32, STRATA_SHAPE(SIDE, SIDE), zeros);
    for (int r = 0; r < t->n; r++) STRATA_TRY(strata_variable_set(t->sums[r], &view, err));
    return STRATA_OK;
}

static strata_status read_sums(const test_stages *t, test_stages_result *result, strata_error *err) {
    for (int r = 0; r < t->n; r++) {
        strata_array view = strata_array_view(f32, STRATA_SHAPE(SIDE, SIDE), result->sums[r]);
        STRATA_TRY(strata_variable_get(t->sums[r], &view, err));
    }
    return STRATA_OK;
}

typedef struct context {
    const test_stages *t;
    test_stages_result *result;
} context;

static strata_status begin(void *user, int microbatch, int slot, strata_error *err) {
    const context *c = user;
    (void)err;
    for (int r = 0; r < c->t->n && c->t->first + r < c->t->opts.width; r++) {
        float *x = strata_executable_input(strata_group_replica(c->t->group, r), slot, 0);
        for (int i = 0; i < ROWS * SIDE; i++) x[i] = (float)((microbatch * 5 + i * 3) % 17) / 16 - 0.5f;
    }
    return STRATA_OK;
}

static strata_status end(void *user, int microbatch, int slot, strata_error *err) {
    const context *c = user;
    (void)err;
    for (int r = 0; r < c->t->n; r++)
        c->result->outputs[microbatch][r] =
            *(const float *)strata_executable_output(strata_group_replica(c->t->group, r), slot, 0);
    return STRATA_OK;
}

strata_status test_stages_run_alone(test_stages *t, int m, test_stages_result *result, strata_error *err) {
    context c = {t, result};
    STRATA_TRY(clear(t, err));
    for (int i = 0; i < m; i++) {
        int slot;
        STRATA_TRY(strata_group_acquire(t->group, &slot, err));
        STRATA_TRY(begin(&c, i, slot, err));
        STRATA_TRY(strata_group_start(t->group, slot, i, err));
        STRATA_TRY(strata_group_finish(t->group, slot, t->contributes ? t->contributes + i * t->n : NULL, err));
        STRATA_TRY(strata_group_wait(t->group, slot, err));
        STRATA_TRY(end(&c, i, slot, err));
    }
    return read_sums(t, result, err);
}

strata_status test_stages_run(test_stages *t, const strata_group_action *actions, int n_actions, int m, int n_slots,
                              test_stages_result *result, strata_error *err) {
    context c = {t, result};
    int slots[STRATA_MAX_SLOTS];
    STRATA_TRY(clear(t, err));
    for (int i = 0; i < n_slots; i++) STRATA_TRY(strata_group_acquire(t->group, &slots[i], err));
    const strata_group_schedule schedule = {.actions = actions,
                                            .n_actions = n_actions,
                                            .n_microbatches = m,
                                            .slots = slots,
                                            .n_slots = n_slots,
                                            .contributes = t->contributes,
                                            .begin = begin,
                                            .end = end,
                                            .user = &c};
    STRATA_TRY(strata_group_run_schedule(t->group, &schedule, err));
    return read_sums(t, result, err);
}
