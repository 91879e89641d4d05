/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of pipelines: generated tables end, take the time and keep the values that the formulas say, and are read back from
 * text as they were written; tables that are wrong are refused with the reason. */
#include "core/run/schedule.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static const char *const names[] = {"gpipe", "1f1b", "interleaved:1", "interleaved:2", "interleaved:3", "zero_bubble"};
enum { N_NAMES = 6, MOST_STAGES = 8, MOST_MICROBATCHES = 64 };

/* For each name, 2 to 8 stages and 1 to 64 micro-batches. */
#define FOR_EACH_SCHEDULE(name, p, m)                                \
    for (int name##_at = 0; name##_at < N_NAMES; name##_at++)        \
        for (const char *name = names[name##_at]; name; name = NULL) \
            for (int p = 2; p <= MOST_STAGES; p++)                   \
                for (int m = 1; m <= MOST_MICROBATCHES; m++)

static strata_pipeline_schedule *create(const char *name, int p, int m) {
    strata_pipeline_schedule *schedule = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_pipeline_schedule_create(name, p, m, &schedule, &err), STRATA_OK, "%s", err.message);
    return schedule;
}

static strata_pipeline_prediction simulate(const char *name, int p, int m) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = create(name, p, m);
    strata_pipeline_prediction prediction;
    strata_error err = {0};
    cr_assert_eq(strata_pipeline_schedule_simulate(schedule, NULL, &prediction, &err), STRATA_OK, "%s", err.message);
    return prediction;
}

/* Whether the text is a schedule; the message otherwise. */
static bool reads(const char *text, strata_error *err) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    *err = (strata_error){0};
    return !strata_pipeline_schedule_read(text, &schedule, err);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* ---- generated tables ---- */

Test(schedule, every_generated_table_is_possible) {
    strata_error err = {0};
    FOR_EACH_SCHEDULE(name, p, m) {
        STRATA_OWNED(strata_pipeline_schedule) *schedule = create(name, p, m);
        cr_assert_eq(strata_pipeline_schedule_check(schedule, &err), STRATA_OK, "%s, %d stages, %d micro-batches: %s", name, p,
                     m, err.message);
        cr_assert_eq(schedule->n_stages, p);
        cr_assert_eq(schedule->n_microbatches, m);
        cr_assert_eq(schedule->n_chunks, strchr(name, ':') ? p * (name[strlen(name) - 1] - '0') : p);
    }
}

static void check_text(const char *name, int stages, int m, const char *want) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = create(name, stages, m);
    STRATA_FINISHED(strata_text) text = {0};
    strata_pipeline_schedule_write(schedule, &text);
    cr_assert_str_eq(text.bytes, want, "%s:\n%s", name, text.bytes);
}

Test(schedule, tables_are_those_of_the_papers) {
    check_text("gpipe", 2, 3, "stage 0: F0 F1 F2 B0 B1 B2\nstage 1: F0 F1 F2 B0 B1 B2\n");
    check_text("1f1b", 3, 4,
               "stage 0: F0 F1 F2 B0 F3 B1 B2 B3\n"
               "stage 1: F0 F1 B0 F2 B1 F3 B2 B3\n"
               "stage 2: F0 B0 F1 B1 F2 B2 F3 B3\n");
    check_text("zero_bubble", 3, 4,
               "stage 0: F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3\n"
               "stage 1: F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3\n"
               "stage 2: F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
    check_text("interleaved:2", 2, 4,
               "stage 0: F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0\n"
               "stage 1: F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1\n");
}

/* The three parts take 1 s each, so a stage without idle time takes 3 m V seconds. */
Test(schedule, idle_times_are_those_of_the_formulas) {
    FOR_EACH_SCHEDULE(name, p, m) {
        const int v = strchr(name, ':') ? name[strlen(name) - 1] - '0' : 1;
        const bool zero_bubble = !strcmp(name, "zero_bubble");
        /* The last stages of zero_bubble run out of weights that fill the time if there are fewer micro-batches than stages. */
        const double idle = !zero_bubble ? 3 * (p - 1) : m >= p ? p - 1 : 2 * p - 1 - m;
        strata_pipeline_prediction prediction = simulate(name, p, m);
        const double got = prediction.seconds - 3 * m * v;
        if (v == 1 || m % p == 0)
            cr_assert_eq(got, idle, "%s, %d stages, %d micro-batches: %g", name, p, m, got);
        else
            cr_assert_leq(got, 3 * v * (p - 1), "%s, %d stages, %d micro-batches: %g", name, p, m, got);
        for (int s = 0; s < p; s++) {
            cr_assert_eq(prediction.stages[s].busy_seconds, 3 * m * v);
            cr_assert_float_eq(prediction.stages[s].bubble, got / prediction.seconds, 1e-12);
            if (!zero_bubble && (v == 1 || m % p == 0))
                cr_assert_float_eq(prediction.stages[s].bubble, (p - 1.0) / (v * m + p - 1), 1e-12);
        }
        free(prediction.stages);
    }
}

Test(schedule, stages_keep_as_many_micro_batches_as_the_formulas_say) {
    FOR_EACH_SCHEDULE(name, p, m) {
        const int v = strchr(name, ':') ? name[strlen(name) - 1] - '0' : 1;
        strata_pipeline_prediction prediction = simulate(name, p, m);
        for (int s = 0; s < p; s++) {
            const int n = prediction.stages[s].n_in_flight, one = least(m, p - s);
            const int most = !strcmp(name, "gpipe")         ? m
                             : !strcmp(name, "zero_bubble") ? least(m, p)
                             : v == 1                       ? one
                                                            : least(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1);
            if (v == 1 || m % p == 0)
                cr_assert_eq(n, most, "%s, %d stages, %d micro-batches: stage %d keeps %d", name, p, m, s, n);
            else
                cr_assert_leq(n, most, "%s, %d stages, %d micro-batches: stage %d keeps %d", name, p, m, s, n);
        }
        free(prediction.stages);
    }
}

static void check_slots(const char *name, int p, int m, int want) {
    strata_pipeline_prediction prediction = simulate(name, p, m);
    cr_assert_eq(prediction.n_slots, want, "%s, %d stages, %d micro-batches: %d slots", name, p, m, prediction.n_slots);
    free(prediction.stages);
}

/* Stage 0 ends a micro-batch of 1f1b last. The others end the weights of zero_bubble later. */
Test(schedule, slots_are_for_micro_batches_that_have_not_ended_everywhere) {
    for (int p = 1; p <= MOST_STAGES; p++)
        for (int m = 1; m <= MOST_MICROBATCHES; m++) {
            check_slots("gpipe", p, m, m);
            check_slots("1f1b", p, m, least(m, p));
        }
    check_slots("zero_bubble", 4, 3, 3);
    check_slots("zero_bubble", 4, 64, 5);
    check_slots("interleaved:2", 4, 64, 8);
}

Test(schedule, is_read_back_as_it_was_written) {
    strata_error err = {0};
    FOR_EACH_SCHEDULE(name, p, m) {
        STRATA_OWNED(strata_pipeline_schedule) *schedule = create(name, p, m), *again = NULL;
        STRATA_FINISHED(strata_text) text = {0}, second = {0};
        strata_pipeline_schedule_write(schedule, &text);
        cr_assert_eq(strata_pipeline_schedule_read(text.bytes, &again, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(again->n_chunks, schedule->n_chunks);
        cr_assert_eq(again->n_microbatches, m);
        strata_pipeline_schedule_write(again, &second);
        cr_assert_str_eq(text.bytes, second.bytes);
    }
}

Test(schedule, names_and_counts_out_of_range_are_refused) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_error err = {0};
    const char *const wrong[] = {
        "",       "1f1", "1f1b:2", "interleaved", "interleaved:", "interleaved:0", "interleaved:2x", "interleaved:99999999999",
        "gpipe:", "zero"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(strata_pipeline_schedule_create(wrong[i], 2, 2, &schedule, &err), STRATA_INVALID, "%s", wrong[i]);
        cr_assert(strstr(err.message, wrong[i]), "%s", err.message);
    }
    cr_assert_eq(strata_pipeline_schedule_create("ring", 2, 2, &schedule, &err), STRATA_INVALID);
    for (int i = 0; i < N_NAMES; i++) cr_assert(strstr(err.message, i == 2 || i == 3 || i == 4 ? "interleaved:V" : names[i]));
    cr_assert_eq(strata_pipeline_schedule_create("gpipe", 0, 2, &schedule, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "0 stages"), "%s", err.message);
    cr_assert_eq(strata_pipeline_schedule_create("gpipe", 4097, 2, &schedule, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "4096"), "%s", err.message);
    cr_assert_eq(strata_pipeline_schedule_create("gpipe", 2, 0, &schedule, &err), STRATA_INVALID);
    cr_assert_eq(strata_pipeline_schedule_create("gpipe", 2, 65537, &schedule, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "65536"), "%s", err.message);
    cr_assert_eq(strata_pipeline_schedule_create("gpipe", 4096, 2049, &schedule, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "actions"), "%s", err.message);
    cr_assert_eq(strata_pipeline_schedule_create("interleaved:16777216", 4096, 65536, &schedule, &err), STRATA_INVALID);
    cr_assert_null(schedule);
}

/* ---- tables from text ---- */

Test(schedule, text_may_have_comments_and_empty_lines) {
    strata_error err;
    cr_assert(reads("# one stage\n\n  stage 0:\tF0  B0 \r\n\n", &err), "%s", err.message);
    cr_assert(reads("stage 0: F0.0 F0.1 B0.1 B0.0 W0.0 W0.1", &err), "%s", err.message);
    /* Without a chunk, an action is of the chunk that has the number of its stage. */
    cr_assert(reads("stage 0: F0 F0.2 B0.2 B0\nstage 1: F0 B0", &err), "%s", err.message);
}

Test(schedule, wrong_text_is_refused_by_line_and_word) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "there are no actions"},
        {"stage 0:\nstage 1:", "there are no actions"},
        {"stage 0: F0 B0\nstage 2: F0 B0", "line 2: \"stage 2: F0 B0\" does not begin with \"stage 1:\""},
        {"stage 0 F0 B0", "line 1: \"stage 0 F0 B0\""},
        {"F0 B0", "line 1: \"F0 B0\""},
        {"stage 0: F0 B0 X1", "line 1: \"X1\" is no action"},
        {"# a\nstage 0: F0 B0x", "line 2: \"B0x\" is no action"},
        {"stage 0: F B0", "line 1: \"F\" is no action"},
        {"stage 0: F0. B0", "line 1: \"F0.\" is no action"},
        {"stage 0: F65536 B0", "line 1: \"F65536\" is no action"},
        {"stage 0: F99999999999999999999 B0", "line 1: \"F99999999999999999999\" is no action"},
        {"stage 0: F0.16777216 B0", "is no action"},
        {"stage 0: F0.9 B0", "10 chunks, 1 micro-batches and 2 actions"},
        {"stage 0: F0 B0\nstage 1:", "1 chunks"},
        {"stage 0: F0 B0\nstage 1: F0.0 B0.1", "stage 1: F0 is of chunk 0, which is at stage 0"},
        {"stage 0: F0 B0 B0", "stage 0: B0 is there twice"},
        {"stage 0: F1 F0 B0 B1", "stage 0: F1 comes before F0"},
        {"stage 0: F0 B0 F1", "stage 0: B1 is missing"},
        {"stage 0: F0 F1 B0 B1\nstage 1: F0 B0", "stage 1: F1 is missing"},
        {"stage 0: F0 B0 F1 B1 W0", "stage 0: W1 is missing"},
        {"stage 0: F0 F0.2 B0 B0.2 W0\nstage 1: F0 B0", "stage 1: W0.1 is missing"},
    };
    strata_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_not(reads(cases[i].text, &err), "%s", cases[i].text);
        cr_assert_eq(err.status, STRATA_DATA);
        cr_assert(strstr(err.message, cases[i].message), "%s\n%s", cases[i].text, err.message);
    }
}

Test(schedule, tables_without_stages_or_with_too_many_are_refused) {
    const strata_pipeline_schedule empty = {0};
    STRATA_FINISHED(strata_text) text = {0};
    strata_error err = {0};
    cr_assert_eq(strata_pipeline_schedule_check(&empty, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "0 stages"), "%s", err.message);
    for (int s = 0; s < 4096; s++) strata_text_add(&text, "stage %d: F0 B0\n", s);
    cr_assert(reads(text.bytes, &err), "%s", err.message);
    strata_text_add(&text, "stage 4096: F0 B0\n");
    cr_assert_not(reads(text.bytes, &err));
    cr_assert(strstr(err.message, "4097 stages; it must have 1 to 4096"), "%s", err.message);
}

Test(schedule, stages_that_wait_for_each_other_for_ever_are_named) {
    strata_error err;
    cr_assert_not(reads("stage 0: B0 F0", &err));
    cr_assert(strstr(err.message, "stage 0 waits with B0 for F0 of stage 0"), "%s", err.message);
    cr_assert_not(reads("stage 0: F0 B0 F1 B1\nstage 1: F0 F1 B0 B1", &err));
    cr_assert(strstr(err.message, "stage 0 waits with B0 for B0 of stage 1, stage 1 waits with F1 for F1 of stage 0"), "%s",
              err.message);
    cr_assert_not(reads("stage 0: F0 W0 B0\nstage 1: F0 B0 W0", &err));
    cr_assert(strstr(err.message, "stage 0 waits with W0 for B0 of stage 0"), "%s", err.message);
    /* Stage 0 waits for stage 1, which waits for itself: only stage 1 is wrong. */
    cr_assert_not(reads("stage 0: F0 B0\nstage 1: B0 F0", &err));
    cr_assert(strstr(err.message, "never ends: stage 1 waits with B0 for F0 of stage 1"), "%s", err.message);
}

/* ---- predictions ---- */

/* Stage 0 forwards for 1 s, sends for 0.5 s; stage 1 forwards for 2 s, and takes 3 s for the gradient of the input and 4 s for
 * that of the parameters; then 0.5 s, and stage 0 takes 2 s and 1 s. */
static const double forward[] = {1, 2}, backward[] = {2, 3}, weights[] = {1, 4}, send[] = {0.5};
static const strata_pipeline_costs costs = {forward, backward, weights, send};

Test(schedule, times_are_added_up_along_the_longest_path) {
    strata_pipeline_prediction p;
    strata_error err = {0};
    for (int split = 0; split < 2; split++) {
        STRATA_OWNED(strata_pipeline_schedule) *schedule = create(split ? "zero_bubble" : "1f1b", 2, 1);
        cr_assert_eq(strata_pipeline_schedule_simulate(schedule, &costs, &p, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(p.seconds, split ? 1 + 0.5 + 2 + 3 + 4 : 1 + 0.5 + 2 + 7 + 0.5 + 3, "%g", p.seconds);
        cr_assert_eq(p.stages[0].busy_seconds, 4);
        cr_assert_eq(p.stages[1].busy_seconds, 9);
        cr_assert_float_eq(p.stages[1].bubble, 1 - 9 / p.seconds, 1e-12);
        free(p.stages);
    }
}

/* Chunks 0 and 2 are at stage 0, chunk 1 is at stage 1. */
Test(schedule, a_stage_may_have_more_chunks_than_another) {
    static const double one[] = {1, 1, 1}, seconds[] = {10, 100};
    const strata_pipeline_costs sent = {one, one, one, seconds};
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_pipeline_prediction p;
    strata_error err = {0};
    cr_assert_eq(
        strata_pipeline_schedule_read("stage 0: F0.0 F0.2 B0.2 W0.2 B0.0 W0.0\nstage 1: F0.1 B0.1 W0.1", &schedule, &err),
        STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_pipeline_schedule_simulate(schedule, &sent, &p, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(p.seconds, 1 + 10 + 1 + 100 + 1 + 1 + 100 + 1 + 10 + 1 + 1, "%g", p.seconds);
    cr_assert_eq(p.stages[0].n_in_flight, 2);
    cr_assert_eq(p.stages[1].n_in_flight, 1);
    free(p.stages);
}

Test(schedule, chunks_of_one_stage_send_nothing) {
    static const double one[] = {1, 1}, seconds[] = {100};
    const strata_pipeline_costs sent = {one, one, one, seconds};
    STRATA_OWNED(strata_pipeline_schedule) *schedule = create("interleaved:2", 1, 1);
    strata_pipeline_prediction p;
    cr_assert_eq(strata_pipeline_schedule_simulate(schedule, &sent, &p, NULL), STRATA_OK);
    cr_assert_eq(p.seconds, 6, "%g", p.seconds);
    cr_assert_eq(p.stages[0].bubble, 0);
    free(p.stages);
}

/* Checks that the actions are all those of the rows, each after those that it needs. */
static void check_order(const strata_pipeline_schedule *t, const strata_action *actions, int n) {
    static bool done[3][3 * MOST_STAGES][MOST_MICROBATCHES];
    int at[MOST_STAGES] = {0};
    memset(done, 0, sizeof done);
    for (int i = 0; i < n; i++) {
        const strata_action a = actions[i], row = t->actions[a.chunk % t->n_stages][at[a.chunk % t->n_stages]++];
        cr_assert(row.kind == a.kind && row.chunk == a.chunk && row.microbatch == a.microbatch);
        if (a.kind == STRATA_ACTION_FORWARD) cr_assert(!a.chunk || done[a.kind][a.chunk - 1][a.microbatch]);
        if (a.kind != STRATA_ACTION_FORWARD) cr_assert(done[a.kind - 1][a.chunk][a.microbatch]);
        if (a.kind == STRATA_ACTION_BACKWARD && a.chunk + 1 < t->n_chunks) cr_assert(done[a.kind][a.chunk + 1][a.microbatch]);
        done[a.kind][a.chunk][a.microbatch] = true;
    }
    for (int s = 0; s < t->n_stages; s++) cr_assert_eq(at[s], t->n_actions[s]);
}

Test(schedule, actions_in_the_order_of_their_starts_come_after_what_they_need) {
    static const double zeros[3 * MOST_STAGES] = {0};
    const strata_pipeline_costs none = {zeros, zeros, zeros, zeros};
    strata_error err = {0};
    FOR_EACH_SCHEDULE(name, p, m)
    for (int free_of_cost = 0; free_of_cost < 2; free_of_cost++) {
        STRATA_OWNED(strata_pipeline_schedule) *schedule = create(name, p, m);
        STRATA_FREED strata_action *actions = NULL;
        int n;
        cr_assert_eq(strata_pipeline_schedule_order(schedule, free_of_cost ? &none : NULL, &actions, &n, &err), STRATA_OK);
        check_order(schedule, actions, n);
    }
}

Test(schedule, actions_of_all_stages_are_merged_by_time) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = create("1f1b", 2, 2);
    STRATA_FREED strata_action *actions = NULL;
    strata_error err = {0};
    int n;
    /* Stage 0: F0 at 0, F1 at 1, B0 at 11, B1 at 20. Stage 1: F0 at 1.5, B0 at 3.5, F1 at 10.5, B1 at 12.5. */
    static const char *const want = "F0.0 F1.0 F0.1 B0.1 F1.1 B0.0 B1.1 B1.0 ";
    STRATA_FINISHED(strata_text) text = {0};
    cr_assert_eq(strata_pipeline_schedule_order(schedule, &costs, &actions, &n, &err), STRATA_OK);
    for (int i = 0; i < n; i++)
        strata_text_add(&text, "%c%d.%d ", "FBW"[actions[i].kind], actions[i].microbatch, actions[i].chunk);
    cr_assert_str_eq(text.bytes, want);
}
