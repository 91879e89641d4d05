/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates schedules of pipelines by name. All are one loop: some forwards, then backwards and forwards in turns. They differ
 * in how many forwards come first, in the chunk of each action, and in whether WEIGHTS are apart. */
#include "core/base/ascii.h"
#include "core/graph/placement.h"
#include "core/run/schedule.h"

typedef struct generator {
    const char *name;
    bool has_chunks, has_weights;
    /* How many forwards stage s has before the forward that its first backward follows. */
    int (*warm_up)(int n_stages, int n_chunks, int s, int n);
} generator;

static int all(int n_stages, int n_chunks, int s, int n) {
    (void)n_stages, (void)n_chunks, (void)s;
    return n;
}

/* The first backward reaches stage s when it has sent so many micro-batches to the stages behind it. */
static int until_the_first_backward(int n_stages, int n_chunks, int s, int n) {
    (void)n_chunks, (void)n;
    return n_stages - 1 - s;
}

/* Narayanan et al., section 2.2 of arXiv:2104.04473, 2021. */
static int over_all_chunks(int n_stages, int n_chunks, int s, int n) {
    if (n_chunks == n_stages) return until_the_first_backward(n_stages, n_chunks, s, n);
    return n_chunks + n_stages - 2 - 2 * s;
}

static const generator generators[] = {
    {"gpipe", false, false, all},
    {"1f1b", false, false, until_the_first_backward},
    {"interleaved", true, false, over_all_chunks},
    {"zero_bubble", false, true, until_the_first_backward},
};

/* Finds the generator and how many chunks each stage has. NULL: there is none of this name. */
static const generator *find(const char *name, int *out_chunks) {
    const size_t length = strcspn(name, ":");
    for (size_t i = 0; i < sizeof generators / sizeof *generators; i++) {
        const generator *g = &generators[i];
        if (strlen(g->name) != length || strncmp(g->name, name, length) || (name[length] == ':') != g->has_chunks) continue;
        const char *at = name + length + g->has_chunks;
        *out_chunks = g->has_chunks ? 0 : 1;
        while (strata_ascii_is_digit(*at) && *out_chunks <= STRATA_PIPELINE_MOST_ACTIONS)
            *out_chunks = 10 * *out_chunks + (*at++ - '0');
        return *at || !*out_chunks ? NULL : g;
    }
    return NULL;
}

/* Adds the action at a position of row s: groups of n_stages micro-batches pass through one chunk after the other, since a
 * micro-batch is back at the stage, for its next chunk, when the others of its group were there. */
static void add(const strata_pipeline_schedule *t, int s, strata_action_kind kind, int position, strata_action **next) {
    const int pass = position % t->n_chunks / t->n_stages, last = t->n_chunks / t->n_stages - 1;
    const int microbatch = position / t->n_chunks * t->n_stages + position % t->n_stages;
    const int chunk = (kind == STRATA_ACTION_FORWARD ? pass : last - pass) * t->n_stages + s;
    if (microbatch < t->n_microbatches) *(*next)++ = (strata_action){kind, chunk, microbatch};
}

/* The loop is that of full groups. If the last group has fewer micro-batches, the actions of those that do not exist are left
 * out, which no other action waits for. */
static void fill_row(const strata_pipeline_schedule *t, const generator *g, int s) {
    const int n_groups = (t->n_microbatches + t->n_stages - 1) / t->n_stages, n = n_groups * t->n_chunks;
    const int warm_up = g->warm_up(t->n_stages, t->n_chunks, s, n);
    strata_action *next = t->actions[s];
    int n_forward = 0, n_weights = 0;
    for (int i = 0; i < n; i++) {
        while (n_forward < n && n_forward <= warm_up + i) add(t, s, STRATA_ACTION_FORWARD, n_forward++, &next);
        add(t, s, STRATA_ACTION_BACKWARD, i, &next);
        /* Later stages have fewer forwards before the first backward, and so much more before the first WEIGHTS that n_stages
         * micro-batches wait at each stage, as at the first one of 1f1b. */
        if (g->has_weights && i >= s) add(t, s, STRATA_ACTION_WEIGHTS, n_weights++, &next);
    }
    while (g->has_weights && n_weights < n) add(t, s, STRATA_ACTION_WEIGHTS, n_weights++, &next);
}

strata_status strata_pipeline_schedule_create(const char *name, int n_stages, int n_microbatches,
                                              strata_pipeline_schedule **out, strata_error *err) {
    const char *message = "there is no memory for the schedule of a pipeline";
    STRATA_OWNED(strata_pipeline_schedule) *t = NULL;
    int n_own = 0;
    const generator *g = find(name, &n_own);
    if (!g)
        return strata_fail(
            err, STRATA_INVALID,
            "the schedule is \"%s\"; it must be gpipe, 1f1b, interleaved:V (V chunks at each stage), or zero_bubble", name);
    if (n_stages < 1 || n_stages > STRATA_MESH_MOST_DEVICES)
        return strata_fail(err, STRATA_INVALID, "the schedule has %d stages; it must have 1 to %d", n_stages,
                           STRATA_MESH_MOST_DEVICES);
    if (n_microbatches < 1 || n_microbatches > STRATA_PIPELINE_MOST_MICROBATCHES)
        return strata_fail(err, STRATA_INVALID, "the schedule has %d micro-batches; it must have 1 to %d", n_microbatches,
                           STRATA_PIPELINE_MOST_MICROBATCHES);
    const int64_t each = (int64_t)(g->has_weights ? 3 : 2) * n_microbatches;
    if (n_own > STRATA_PIPELINE_MOST_ACTIONS / n_stages / each)
        return strata_fail(err, STRATA_INVALID,
                           "%s with %d stages and %d micro-batches has more than %d actions; take fewer micro-batches", name,
                           n_stages, n_microbatches, STRATA_PIPELINE_MOST_ACTIONS);
    strata_action *actions;
    STRATA_TRY(STRATA_NEW(t, 1, err, "%s", message));
    *t = (strata_pipeline_schedule){n_stages, n_stages * n_own, n_microbatches, NULL, NULL};
    STRATA_TRY(STRATA_NEW(t->n_actions, n_stages, err, "%s", message));
    STRATA_TRY(STRATA_NEW(t->actions, n_stages, err, "%s", message));
    STRATA_TRY(STRATA_NEW(actions, t->n_chunks * each, err, "%s", message));
    for (int s = 0; s < n_stages; s++) {
        t->n_actions[s] = (int)(n_own * each);
        t->actions[s] = actions + (int64_t)s * t->n_actions[s];
        fill_row(t, g, s);
    }
    *out = strata_released(&t);
    return STRATA_OK;
}
