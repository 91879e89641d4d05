/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches of a pipeline in flight: the same bits as one after the other, in every order that can run; and what a schedule
 * may not say. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/run/device.h"
#include "strata/ops.h"
#include "tests/support/folder.h"
#include "tests/support/stages.h"

enum { MOST = TEST_STAGES_MOST, M = TEST_STAGES_MICROBATCHES, ACTIONS = 2 * M * MOST };

static strata_device *devices[MOST];
static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static void open_devices(void) {
    test_folder_make();
    for (int r = 0; r < MOST; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
}
static void close_devices(void) {
    test_folder_remove();
    for (int r = 0; r < MOST; r++) strata_device_close(devices[r]);
}
/* The functions of a device, and others in their place. */
static const strata_device_api *whole;
static strata_device_api broken;

TestSuite(flight, .init = open_devices, .fini = close_devices);

static test_stages create(int n_stages, int width, bool skips, int n_slots, int n_carried) {
    test_stages t = {0};
    const test_stages_options opts = {n_stages, width, skips, devices, n_slots, n_carried, NULL};
    OK(test_stages_create(&opts, &t, &err));
    return t;
}

static void expect_equal(const test_stages *t, const test_stages_result *got, const test_stages_result *want, int m,
                         const char *what) {
    for (int i = 0; i < m; i++)
        for (int r = 0; r < t->n; r++)
            cr_assert_eq(got->outputs[i][r], want->outputs[i][r], "%s: micro-batch %d, replica %d: %g, alone: %g", what, i, r,
                         got->outputs[i][r], want->outputs[i][r]);
    for (int r = 0; r < t->n; r++)
        cr_assert_arr_eq(got->sums[r], want->sums[r], sizeof got->sums[r], "%s: the gradients of replica %d", what, r);
}

/* Both orders, with 1 to M micro-batches, equal the micro-batches one after the other. */
static void compare(test_stages *t, const int *counts, int n_counts) {
    for (int i = 0; i < n_counts; i++) {
        const int m = counts[i];
        test_stages_result alone = {0}, got = {0};
        OK(test_stages_run_alone(t, m, &alone, &err));
        cr_assert_neq(alone.sums[0][0], 0);
        for (int gpipe = 0; gpipe < 2; gpipe++) {
            strata_group_action actions[ACTIONS];
            const int n = test_stages_actions(t, gpipe, m, actions), n_slots = gpipe ? m : t->opts.n_stages;
            if (n_slots > t->opts.n_slots || (gpipe && !t->opts.n_carried)) continue;
            OK(test_stages_run(t, actions, n, m, n_slots, &got, &err));
            expect_equal(t, &got, &alone, m, gpipe ? "gpipe" : "1f1b");
        }
    }
}

Test(flight, a_pipeline_has_the_bits_of_its_micro_batches_alone) {
    for (int n_stages = 1; n_stages <= 4; n_stages++)
        for (int skips = 0; skips < 2; skips++) {
            test_stages t = create(n_stages, 1, skips, 8, 8);
            compare(&t, (int[]){1, 2, 3, 8, M}, 5);
            test_stages_destroy(&t);
        }
}

Test(flight, stages_of_several_devices_exchange_values_within_a_phase) {
    for (int n_stages = 2; n_stages <= 3; n_stages++) {
        test_stages t = create(n_stages, 2, n_stages > 2, 6, 6);
        compare(&t, (int[]){1, 4, 6, M}, 4);
        test_stages_destroy(&t);
    }
}

Test(flight, replicas_without_examples_are_ignored_in_their_micro_batches) {
    test_stages t = create(2, 2, false, M, M);
    static test_stages_result all, some;
    bool contributes[M * 4];
    for (int i = 0; i < M * 4; i++) contributes[i] = i % 4 != 1 || i / 4 % 3; /* part 1 of the first stage */
    OK(test_stages_run_alone(&t, M, &all, &err));
    t.contributes = contributes;
    OK(test_stages_run_alone(&t, M, &some, &err));
    for (int m = 0; m < M; m++) cr_expect_eq(all.outputs[m][2] == some.outputs[m][2], m % 3 != 0, "micro-batch %d", m);
    compare(&t, (int[]){2, M}, 2);
    test_stages_destroy(&t);
}

Test(flight, devices_of_other_kinds_take_part) {
    static const char *const ids[3][3] = {
        {"opencl:0", "vulkan:0", "host"}, {"vulkan:0", "host", "opencl:0"}, {"opencl:0.0", "opencl:0.1"}};
    for (int i = 0; i < 3; i++) {
        strata_device *own[3] = {0};
        int n = 0;
        for (int k = 0; k < 3 && ids[i][k]; k++) n += !strata_device_open(ids[i][k], NULL, &own[n], NULL);
        if (n > 1) {
            test_stages t = {0};
            const test_stages_options opts = {n, 1, false, own, 4, 4, NULL};
            OK(test_stages_create(&opts, &t, &err));
            compare(&t, (int[]){1, 4, M}, 3);
            test_stages_destroy(&t);
        }
        for (int k = 0; k < n; k++) strata_device_close(own[k]);
        if (n < 2 && i < 2) cr_skip_test("there is only the host");
    }
}

Test(flight, micro_batches_have_as_many_copies_of_values_between_segments_as_asked) {
    strata_group_action actions[ACTIONS];
    test_stages t = create(3, 1, false, 6, 3), one = create(3, 1, false, 6, 1);
    const strata_executable *first = strata_group_replica(t.group, 0);
    const int64_t carried = strata_plan_bytes(&first->plan, STRATA_ARENA_CARRIED);
    cr_assert_gt(carried, 0);
    cr_expect_eq(strata_executable_get_stats(first).work_bytes,
                 strata_executable_get_stats(strata_group_replica(one.group, 0)).work_bytes + 2 * carried);
    compare(&t, (int[]){2, 3, M}, 3);
    test_stages few = create(4, 1, true, 4, 0);
    for (int r = 0; r < 4; r++) cr_expect_eq(strata_group_replica(few.group, r)->n_carried, 4 - r);
    compare(&few, (int[]){2, 3, M}, 3);
    test_stages_destroy(&few);
    /* One copy: only one micro-batch of a replica can be between its forward and its backward pass. */
    test_stages_result got;
    int n = test_stages_actions(&one, false, 3, actions);
    cr_assert_eq(test_stages_run(&one, actions, n, 3, 3, &got, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "before micro-batch 0 has ended"), "%s", err.message);
    n = test_stages_actions(&one, false, 1, actions);
    OK(test_stages_run(&one, actions, n, 1, 1, &got, &err));
    /* Micro-batches 0 and 3 have the same copy. */
    n = test_stages_actions(&t, true, 6, actions);
    cr_assert_eq(test_stages_run(&t, actions, n, 6, 6, &got, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "of its 3 copies"), "%s", err.message);
    test_stages_destroy(&t);
    test_stages_destroy(&one);
}

Test(flight, memory_is_measured_with_all_copies) {
    strata_graph *graph = NULL;
    strata_program_cost one, three;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_tanh(strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(1000)));
    strata_tensor *y = strata_add(strata_exp(x), strata_all_reduce(x, STRATA_REDUCE_SUM));
    OK(strata_executable_measure_in_flight(devices[0], &y, 1, NULL, 0, NULL, 1, &one, &err));
    OK(strata_executable_measure_in_flight(devices[0], &y, 1, NULL, 0, NULL, 3, &three, &err));
    cr_expect_eq(three.device_bytes - one.device_bytes, 2 * 4096, "%lld and %lld", (long long)one.device_bytes,
                 (long long)three.device_bytes);
    cr_expect_eq(three.flops, one.flops);
    cr_expect_eq(strata_executable_measure_in_flight(devices[0], &y, 1, NULL, 0, NULL, 4, &three, &err), STRATA_INVALID);
    cr_expect_not_null(strstr(err.message, "n_carried is 4; it must be 1..3"), "%s", err.message);
    strata_graph_destroy(graph);
}

static void expect_refused(test_stages *t, const strata_group_action *actions, int n, int m, int n_slots, const char *words) {
    test_stages_result got;
    cr_assert_eq(test_stages_run(t, actions, n, m, n_slots, &got, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
}

Test(flight, schedules_that_cannot_run_are_refused) {
    strata_group_action actions[ACTIONS], own[ACTIONS];
    test_stages t = create(2, 1, false, 4, 4);
    const int n = test_stages_actions(&t, false, 4, actions);
    expect_refused(&t, actions, n - 1, 4, 4, "no action runs segment");
    memcpy(own, actions, sizeof own);
    own[n] = own[n - 1];
    expect_refused(&t, own, n + 1, 4, 4, "for micro-batch 3");
    own[0].first++;
    expect_refused(&t, own, n, 4, 4, "action 0: segments 1 to");
    own[0] = (strata_group_action){2, 0, 0, 1};
    expect_refused(&t, own, n, 4, 4, "replica 2 of 2");
    own[0] = (strata_group_action){0, 4, 0, 1};
    expect_refused(&t, own, n, 4, 4, "micro-batch 4 of 4");
    /* The backward pass of micro-batch 0 is before the forward pass of 1 at the first stage, and behind it at the second. */
    const strata_group_phases p = strata_group_find_phases(t.group, 0, t.stages),
                              q = strata_group_find_phases(t.group, 1, t.stages);
    const strata_group_action crossed[] = {{0, 0, 0, p.backward},
                                           {0, 0, p.backward, p.n_segments},
                                           {0, 1, 0, p.n_segments},
                                           {1, 1, 0, q.n_segments},
                                           {1, 0, 0, q.n_segments}};
    expect_refused(&t, crossed, 5, 2, 2, "waits for ever before segment");
    const int all = test_stages_actions(&t, true, 4, actions);
    expect_refused(&t, actions, all, 4, 3, "never begins on replica 0: the slots are 3");
    expect_refused(&t, actions, all, 4, 5, "in 5 slots; the group has 4");
    compare(&t, (int[]){4}, 1); /* the group is as good as before */
    int slots[4];
    for (int i = 0; i < 4; i++) OK(strata_group_acquire(t.group, &slots[i], &err));
    OK(strata_group_start(t.group, slots[3], 0, &err));
    const strata_group_schedule beside = {
        .actions = actions, .n_actions = n, .n_microbatches = 4, .slots = slots, .n_slots = 3};
    cr_assert_eq(strata_group_run_schedule(t.group, &beside, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "slot 3 of replica 0 still runs"), "%s", err.message);
    test_stages_destroy(&t);
}

/* ---- at the same time ---- */

static strata_device_api watched;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static int n_first, n_second;
static bool alone;

/* The first device's second run does not end before the second device has begun one. */
static strata_status run_beside(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    const struct timespec end = strata_clock_after(60);
    pthread_mutex_lock(&lock);
    n_first++;
    while (n_first == 2 && !n_second && !alone) alone = pthread_cond_timedwait(&changed, &lock, &end);
    pthread_mutex_unlock(&lock);
    return whole->run(program, slot, out_ticket, error);
}

static strata_status run_second(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    pthread_mutex_lock(&lock);
    n_second++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return whole->run(program, slot, out_ticket, error);
}

Test(flight, stages_compute_different_micro_batches_at_the_same_time) {
    strata_group_action actions[ACTIONS];
    test_stages_result got;
    test_stages t = create(2, 1, false, 4, 4);
    const int n = test_stages_actions(&t, true, 4, actions);
    strata_clock_cond_init(&changed);
    whole = devices[0]->api;
    watched = broken = *whole;
    watched.run = run_beside;
    broken.run = run_second;
    devices[0]->api = &watched;
    devices[1]->api = &broken;
    OK(test_stages_run(&t, actions, n, 4, 4, &got, &err));
    cr_expect_not(alone, "the second stage waited for all of the first one's forward passes");
    devices[0]->api = devices[1]->api = whole;
    test_stages_destroy(&t);
}

/* ---- failures ---- */

static int runs_left;

static strata_status run_or_fail(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    if (!runs_left--) return strata_fail(error, STRATA_DEVICE_LOST, "it was taken out");
    return whole->run(program, slot, out_ticket, error);
}

/* Each run of each member fails once. */
Test(flight, a_failure_names_replica_and_micro_batch_and_ends_all) {
    for (int r = 0; r < 3; r++) {
        strata_status status = STRATA_DEVICE_LOST;
        int n_failures = 0;
        for (; status; n_failures++) {
            strata_group_action actions[ACTIONS];
            test_stages_result got;
            test_stages t = create(3, 1, false, 4, 4);
            const int n = test_stages_actions(&t, false, 5, actions);
            whole = devices[r]->api;
            broken = *whole;
            broken.run = run_or_fail;
            devices[r]->api = &broken;
            runs_left = n_failures;
            status = test_stages_run(&t, actions, n, 5, 4, &got, &err);
            devices[r]->api = whole;
            if (status) {
                char words[64];
                snprintf(words, sizeof words, ": replica %d: it was taken out", r);
                cr_assert_eq(status, STRATA_DEVICE_LOST, "%s", err.message);
                cr_assert(strstr(err.message, words) && !strncmp(err.message, "micro-batch ", 12), "%s", err.message);
                cr_assert_eq(test_stages_run(&t, actions, n, 5, 4, &got, &err), STRATA_DEVICE_LOST, "the group failed");
            }
            test_stages_destroy(&t);
        }
        cr_assert_gt(n_failures, 5, "each micro-batch");
    }
}

static strata_status refuse(void *user, int microbatch, int slot, strata_error *error) {
    (void)slot;
    return microbatch == *(int *)user ? strata_fail(error, STRATA_DATA, "no such file") : STRATA_OK;
}

Test(flight, a_callback_that_fails_ends_the_schedule_and_spares_the_group) {
    strata_group_action actions[ACTIONS];
    test_stages t = create(3, 1, false, 4, 4);
    for (int bad = 0; bad < 5; bad++)
        for (int ends = 0; ends < 2; ends++) {
            int slots[3], which = bad;
            for (int i = 0; i < 3; i++) OK(strata_group_acquire(t.group, &slots[i], &err));
            const strata_group_schedule schedule = {.actions = actions,
                                                    .n_actions = test_stages_actions(&t, false, 5, actions),
                                                    .n_microbatches = 5,
                                                    .slots = slots,
                                                    .n_slots = 3,
                                                    .begin = ends ? NULL : refuse,
                                                    .end = ends ? refuse : NULL,
                                                    .user = &which};
            char words[64];
            snprintf(words, sizeof words, "micro-batch %d: no such file", bad);
            cr_assert_eq(strata_group_run_schedule(t.group, &schedule, &err), STRATA_DATA);
            cr_assert_str_eq(err.message, words);
        }
    compare(&t, (int[]){3, 4}, 2);
    test_stages_destroy(&t);
}

/* ---- reports ---- */

Test(flight, counters_and_trace_show_each_micro_batch) {
    strata_group_action actions[ACTIONS];
    test_stages_result got;
    test_stages t = create(2, 1, false, 4, 4);
    char *text = NULL;
    size_t bytes;
    strata_trace *trace = NULL;
    OK(test_stages_run_alone(&t, 6, &got, &err));
    const strata_group_counters alone = strata_group_get_counters(t.group);
    OK(strata_trace_create(test_path("trace.json"), 0, NULL, &trace, &err));
    const int tracks[] = {strata_trace_add_track(trace, "first"), strata_trace_add_track(trace, "second")};
    strata_group_set_trace(t.group, trace, tracks);
    const int n = test_stages_actions(&t, false, 6, actions);
    OK(test_stages_run(&t, actions, n, 6, 2, &got, &err));
    const strata_group_counters both = strata_group_get_counters(t.group);
    cr_expect_eq(both.steps, 12);
    cr_expect_eq(both.bytes_read, 2 * alone.bytes_read);
    cr_expect_eq(both.bytes_written, 2 * alone.bytes_written);
    cr_expect_gt(both.fold_seconds, alone.fold_seconds);
    OK(strata_trace_events(trace, &text, &bytes, &err));
    for (int m = 0; m < 6; m++) {
        char step[64];
        int found = 0;
        snprintf(step, sizeof step, "\"step\":0,\"microbatch\":%d", m);
        for (const char *at = text; (at = strstr(at, step)); at++) found++;
        cr_expect_geq(found, 5, "micro-batch %d: %d slices", m, found); /* at least 3 segments and 2 exchanges */
    }
    cr_expect_not_null(strstr(text, "{\"name\":\"bubble\",\"cat\":\"device\""), "the second stage waits for the first");
    cr_expect_not_null(strstr(text, "\"exchanges of replica 1\""));
    free(text);
    strata_group_set_trace(t.group, NULL, NULL);
    strata_trace_destroy(trace);
    test_stages_destroy(&t);
}

static strata_status run_slowly(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return whole->run(program, slot, out_ticket, error);
}

Test(flight, a_stage_is_idle_when_it_computes_nothing) {
    strata_group_action actions[ACTIONS];
    test_stages_result got;
    test_stages t = create(2, 1, false, 4, 4);
    double all, idle;
    const int n = test_stages_actions(&t, true, 3, actions);
    whole = devices[0]->api;
    broken = *whole;
    broken.run = run_slowly;
    devices[0]->api = &broken;
    OK(test_stages_run(&t, actions, n, 3, 3, &got, &err));
    devices[0]->api = whole;
    idle = strata_group_take_idle(t.group, 1, &all);
    cr_expect(idle > 0 && idle <= all, "idle for %g of %g", idle, all);
    idle = strata_group_take_idle(t.group, 1, &all);
    cr_expect(idle == 0 && all == 0, "it was taken");
    idle = strata_group_take_idle(t.group, 0, &all);
    cr_expect_geq(all - idle, 0.12, "it runs 6 segments of 20 ms: idle for %g of %g", idle, all);
    test_stages_destroy(&t);
}

Test(flight, phases_end_where_values_come_from_later_stages_and_go_to_earlier_ones) {
    test_stages t = create(3, 1, true, 3, 3);
    for (int r = 0; r < 3; r++) {
        const strata_group_phases p = strata_group_find_phases(t.group, r, t.stages);
        cr_expect_eq(p.n_segments, strata_group_replica(t.group, r)->plan.n_segments);
        cr_expect_leq(p.backward, p.weights);
        cr_expect_leq(p.weights, p.n_segments);
        if (r < 2) cr_expect_geq(p.backward, 1, "replica %d has a forward pass", r);
        if (r) cr_expect_gt(p.weights, p.backward, "replica %d sends a gradient back", r);
    }
    test_stages_destroy(&t);
}
