/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what compiled random graphs compute (random_graph_check.h). */
#include "tests/compile/random_graph_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/run/group.h"
#include "strata/executable.h"
#include "strata/ops.h"

enum { RUNS = 2, MOST_RESULTS = MOST_OUTPUTS + LEAVES };

/* What the references computed for the outputs and variables in each run. */
typedef struct answers {
    strata_array outputs[RUNS][MOST_RESULTS + MOST_NODES], variables[RUNS][WIDE_LEAVES];
} answers;

typedef struct trial {
    scene *s;
    strata_device *device;
    int n_leaves, n_outputs, n_updates;
    strata_tensor *outputs[MOST_RESULTS + MOST_NODES];
    /* Whether the bits must be the same. */
    bool exactly[MOST_RESULTS];
    strata_array leaves[WIDE_LEAVES];
    answers want;
    /* The answers if each node's result has some rounding errors more, which a graph may enlarge. */
    answers rounded;
    bool is_rounded;
} trial;

static strata_test_result failed(const char *what, const strata_error *err) {
    return strata_test_bad("%s fails: %s", what, err->message);
}

/* An element may differ by 1e-4 of the largest one, and by what further rounding does. */
static strata_test_result compare(const trial *t, const strata_array *got, const strata_array *want,
                                  const strata_array *rounded, bool exactly) {
    double most = 0, moved = 0;
    for (int64_t i = 0; i < strata_shape_elements(want->shape); i++) {
        const double element = strata_element_get(want->dtype, want->data, i);
        most = fmax(most, fabs(element));
        if (t->is_rounded) moved = fmax(moved, fabs(strata_element_get(want->dtype, rounded->data, i) - element));
    }
    return strata_test_compare(got, want, (strata_test_tolerance){0, exactly ? 0 : 1e-5 + 1e-4 * most + 4 * moved});
}

static strata_variable *variable_of(const trial *t, int leaf) {
    return leaf < LEAVES ? t->s->variables[leaf - INPUTS] : t->s->more[leaf - LEAVES];
}

/* The variables of Adam are the leaves after the first further ones; all others have whole numbers. */
static bool is_exact_variable(int leaf) {
    return leaf < LEAVES + 2 || leaf == WIDE_LEAVES - 1;
}

static strata_status copy(const strata_array *from, strata_array *to, strata_error *err) {
    STRATA_TRY(strata_array_create(from->dtype, from->shape, to, err));
    memcpy(to->data, from->data, strata_array_bytes(from));
    return STRATA_OK;
}

/* ---- what the references compute ---- */

static void choose_exact(trial *t) {
    for (int i = 0; i < t->n_outputs; i++)
        for (int k = 0; k < t->s->n; k++)
            if (t->s->values[k].tensor == t->outputs[i]) t->exactly[i] = t->s->values[k].most != 0;
}

/* Moves numbers that are not whole by a few rounding errors of f32. Whole ones are exact, and ops with jumps take them. */
static void round_again(strata_array *value, void *context) {
    uint64_t *state = context;
    if (value->dtype != STRATA_DTYPE_F32) return;
    float *x = value->data;
    for (int64_t i = 0; i < strata_shape_elements(value->shape); i++)
        if (x[i] != rintf(x[i])) x[i] *= 1 + ((float)(strata_test_next(state) % 5) - 2) * 0x1p-23f;
}

static strata_status evaluate(trial *t, strata_test_feed *feeds, bool rounded, strata_error *err) {
    answers *found = rounded ? &t->rounded : &t->want;
    uint64_t state = 1;
    strata_test_part part = {.outputs = t->outputs,
                             .n_outputs = t->n_outputs + t->n_updates,
                             .feeds = feeds,
                             .n_feeds = t->n_leaves,
                             .change = rounded ? round_again : NULL,
                             .context = &state};
    strata_array now[WIDE_LEAVES] = {{0}};
    strata_status status = STRATA_OK;
    for (int i = 0; i < t->n_leaves; i++) {
        STRATA_TRY_GOTO(copy(&t->leaves[i], &now[i], err));
        feeds[i].value = &now[i];
    }
    for (int run = 0; run < RUNS; run++) {
        part.out_values = found->outputs[run];
        if (part.n_outputs) STRATA_TRY_GOTO(strata_test_eval_parts(&part, 1, err));
        for (int i = INPUTS; i < t->n_leaves; i++) STRATA_TRY_GOTO(copy(&now[i], &found->variables[run][i], err));
    }
cleanup:
    for (int i = 0; i < t->n_leaves; i++) strata_array_finish(&now[i]);
    return status;
}

/* ---- what the program computes ---- */

static strata_status run(strata_executable *exe, strata_group *group, const strata_array *inputs, strata_array *got, int n,
                         strata_error *err) {
    static const char *const names[] = {"a", "b", "c"};
    int slot = 0;
    if (!group) return strata_executable_run(exe, names, inputs, INPUTS, got, n, err);
    STRATA_TRY(strata_group_acquire(group, &slot, err));
    for (int i = 0; i < INPUTS; i++)
        strata_executable_feed(exe, slot, names[i], inputs[i].data, strata_array_bytes(&inputs[i]));
    STRATA_TRY(strata_group_start(group, slot, 0, err));
    STRATA_TRY(strata_group_finish(group, slot, NULL, err));
    STRATA_TRY(strata_group_wait(group, slot, err));
    for (int i = 0; i < n; i++) memcpy(got[i].data, strata_executable_output(exe, slot, i), strata_array_bytes(&got[i]));
    return STRATA_OK;
}

static strata_test_result check_values(const trial *t, int run, const strata_array *got, const char *how) {
    strata_error err = {0};
    strata_test_result same;
    for (int i = 0; i < t->n_outputs; i++) {
        same = compare(t, &got[i], &t->want.outputs[run][i], &t->rounded.outputs[run][i], t->exactly[i]);
        if (!same.ok) return strata_test_bad("%s, run %d, output %d: %.600s", how, run + 1, i, same.text);
    }
    for (int i = INPUTS; i < t->n_leaves; i++) {
        strata_array now = {0};
        strata_status status = strata_array_create(STRATA_DTYPE_F32, t->leaves[i].shape, &now, &err);
        if (!status) status = strata_variable_get(variable_of(t, i), &now, &err);
        if (!status) same = compare(t, &now, &t->want.variables[run][i], &t->rounded.variables[run][i], is_exact_variable(i));
        strata_array_finish(&now);
        if (status) return failed("reading a variable", &err);
        if (!same.ok) return strata_test_bad("%s, run %d, leaf %d: %.600s", how, run + 1, i, same.text);
    }
    return strata_test_ok();
}

/* Runs a program, which has been compiled. */
static strata_test_result check_runs(trial *t, strata_executable *exe, strata_group *group, const char *how) {
    strata_array got[MOST_RESULTS] = {{0}};
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    strata_status status = STRATA_OK;
    for (int i = 0; i < t->n_outputs && !status; i++)
        status = strata_array_create(t->want.outputs[0][i].dtype, t->want.outputs[0][i].shape, &got[i], &err);
    for (int i = INPUTS; i < t->n_leaves && !status; i++) status = strata_variable_set(variable_of(t, i), &t->leaves[i], &err);
    for (int times = 0; times < RUNS && !status && result.ok; times++) {
        status = run(exe, group, t->leaves, got, t->n_outputs, &err);
        if (!status) result = check_values(t, times, got, how);
    }
    for (int i = 0; i < t->n_outputs; i++) strata_array_finish(&got[i]);
    return status ? failed(how, &err) : result;
}

static strata_test_result check_program(trial *t, bool no_fusion) {
    const strata_executable_options opts = {.no_fusion = no_fusion, .n_slots = 1};
    const char *how = no_fusion ? "without fusion" : "with fusion";
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    strata_error err = {0};
    strata_status status;
    if (t->s->divided) {
        status = strata_executable_create_replica(t->device, t->outputs, t->n_outputs, t->s->updates, t->n_updates, &opts, NULL,
                                                  &exe, &err);
        if (!status) status = strata_group_create(&exe, 1, NULL, NULL, &group, &err);
    } else {
        status = strata_executable_create(t->device, t->outputs, t->n_outputs, t->s->updates, t->n_updates, &opts, &exe, &err);
    }
    const strata_test_result result = status ? failed("compiling", &err) : check_runs(t, exe, group, how);
    if (group)
        strata_group_destroy(group);
    else
        strata_executable_destroy(exe);
    return result;
}

static void write_nodes(const trial *t, char *dump, size_t bytes) {
    size_t used = 0;
    for (int i = 0; i < t->s->graph->n_nodes && used + 160 < bytes; i++) {
        const strata_tensor *node = t->s->graph->nodes[i];
        used += (size_t)snprintf(dump + used, bytes - used, "    %d: %s %s %s", node->id, node->op->name,
                                 strata_dtype_name(node->dtype), strata_shape_text(node->shape).text);
        for (int k = 0; k < node->n_inputs && used + 16 < bytes; k++)
            used += (size_t)snprintf(dump + used, bytes - used, " %d", node->inputs[k]->id);
        used += (size_t)snprintf(dump + used, bytes - used, "\n");
    }
    for (int i = 0; i < t->n_outputs && used + 64 < bytes; i++)
        used += (size_t)snprintf(dump + used, bytes - used, "    output %d is %d\n", i, t->outputs[i]->id);
}

static void finish(const trial *t, answers *a) {
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < t->n_outputs + t->n_updates; i++) strata_array_finish(&a->outputs[r][i]);
        for (int i = 0; i < t->n_leaves; i++) strata_array_finish(&a->variables[r][i]);
    }
}

strata_test_result random_graph_check(scene *s, strata_device *device, uint64_t seed, char *dump, size_t bytes) {
    trial t = {.s = s, .device = device, .n_leaves = s->wide ? WIDE_LEAVES : LEAVES};
    strata_test_feed feeds[WIDE_LEAVES];
    strata_error err = {0};
    random_graph_begin(s, device, seed, t.leaves, feeds);
    t.n_outputs = random_graph_outputs(s, t.outputs);
    choose_exact(&t);
    if (s->differentiable) {
        const int n = random_graph_gradients(s, t.outputs, t.n_outputs, t.outputs + t.n_outputs);
        for (int i = 0; i < n; i++) t.exactly[t.n_outputs + i] = false;
        t.n_outputs += n;
    }
    t.n_updates = s->n_updates;
    for (int i = 0; i < t.n_updates; i++) t.outputs[t.n_outputs + i] = s->updates[i];
    if (dump) write_nodes(&t, dump, bytes);
    strata_status status = strata_graph_check(s->graph, &err);
    if (!status) status = evaluate(&t, feeds, false, &err);
    strata_test_result result = status ? failed("the reference", &err) : strata_test_ok();
    for (int no_fusion = 0; no_fusion < 2 && result.ok && t.n_outputs + t.n_updates > 0; no_fusion++) {
        result = check_program(&t, no_fusion);
        if (result.ok || t.is_rounded || !strncmp(result.text, "compiling", strlen("compiling"))) continue;
        status = evaluate(&t, feeds, true, &err);
        t.is_rounded = true;
        result = status ? failed("the reference", &err) : check_program(&t, no_fusion);
    }
    finish(&t, &t.want);
    finish(&t, &t.rounded);
    for (int i = 0; i < t.n_leaves; i++) strata_array_finish(&t.leaves[i]);
    strata_graph_destroy(s->graph);
    for (int i = INPUTS; i < t.n_leaves; i++) strata_variable_destroy(variable_of(&t, i));
    return result;
}
