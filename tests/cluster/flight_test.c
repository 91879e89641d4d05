/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines over several workers: the messages between stages and the exchanges within them, with several micro-batches in
 * flight, have the bits of the same pipeline on one worker. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/op/communication.h"
#include "core/run/device.h"
#include "strata/ops.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"
#include "tests/support/stages.h"

enum { MOST = TEST_STAGES_MOST, M = TEST_STAGES_MICROBATCHES };

typedef struct layout {
    int n_workers, n_stages, width;
    bool skips;
    /* [n_workers] The devices of each. */
    int devices[TEST_MOST_RANKS];
} layout;

static strata_status open_devices(int n, strata_device **devices, strata_error *err) {
    for (int d = 0; d < n; d++) STRATA_TRY(strata_device_open("host", NULL, &devices[d], err));
    return STRATA_OK;
}

static test_stages_options options(const layout *l, strata_device *const *devices, const strata_workers *workers) {
    return (test_stages_options){.n_stages = l->n_stages,
                                 .width = l->width,
                                 .skips = l->skips,
                                 .devices = devices,
                                 .n_slots = M,
                                 .n_carried = M,
                                 .workers = workers};
}

/* What one worker with all devices computes. */
static strata_status compute_alone(const layout *l, test_stages_result *result, strata_error *err) {
    strata_device *devices[MOST] = {0};
    test_stages t = {0};
    STRATA_TRY(open_devices(l->n_stages * l->width, devices, err));
    const test_stages_options opts = options(l, devices, NULL);
    STRATA_TRY(test_stages_create(&opts, &t, err));
    STRATA_TRY(test_stages_run_alone(&t, M, result, err));
    test_stages_destroy(&t);
    for (int d = 0; d < l->n_stages * l->width; d++) strata_device_close(devices[d]);
    return STRATA_OK;
}

static strata_test_result compare(const test_stages *t, const test_stages_result *got, const test_stages_result *want,
                                  const char *what) {
    for (int r = 0; r < t->n; r++) {
        for (int m = 0; m < M; m++)
            if (got->outputs[m][r] != want->outputs[m][t->first + r])
                return strata_test_bad("%s: micro-batch %d of replica %d is %g, not %g", what, m, t->first + r,
                                       got->outputs[m][r], want->outputs[m][t->first + r]);
        if (memcmp(got->sums[r], want->sums[t->first + r], sizeof got->sums[r]))
            return strata_test_bad("%s: the gradients of replica %d", what, t->first + r);
    }
    return strata_test_ok();
}

/* Creates the worker's part of the pipeline. */
static strata_status create(const layout *l, strata_communicator *comm, strata_device **devices, strata_strategy **out_strategy,
                            test_stages *t, strata_error *err) {
    const int n = l->devices[strata_communicator_rank(comm)];
    STRATA_TRY(open_devices(n, devices, err));
    STRATA_TRY(strata_strategy_from_devices(devices, n, out_strategy, err));
    STRATA_TRY(strata_strategy_join(*out_strategy, comm, err));
    const test_stages_options opts = options(l, devices, &(*out_strategy)->workers);
    return test_stages_create(&opts, t, err);
}

static strata_test_result run(strata_communicator *comm, const void *user) {
    const layout *l = user;
    strata_device *devices[MOST];
    strata_strategy *strategy = NULL;
    test_stages t = {0};
    test_stages_result alone = {0}, got = {0};
    strata_group_action actions[2 * M * MOST];
    strata_error err = {0};
    TEST_TRY(compute_alone(l, &alone, &err));
    TEST_TRY(create(l, comm, devices, &strategy, &t, &err));
    TEST_TRY(test_stages_run_alone(&t, M, &got, &err));
    strata_test_result result = compare(&t, &got, &alone, "one after the other");
    const uint64_t sent = strata_group_get_counters(t.group).bytes_sent;
    for (int gpipe = 0; gpipe < 2 && result.ok; gpipe++) {
        const int n = test_stages_actions(&t, gpipe, M, actions);
        memset(&got, 0, sizeof got);
        TEST_TRY(test_stages_run(&t, actions, n, M, gpipe ? M : l->n_stages, &got, &err));
        result = compare(&t, &got, &alone, gpipe ? "gpipe" : "1f1b");
    }
    if (result.ok && (!sent || strata_group_get_counters(t.group).bytes_sent != 3 * sent))
        result = strata_test_bad("%llu bytes sent one after the other, %llu with those in flight", (unsigned long long)sent,
                                 (unsigned long long)strata_group_get_counters(t.group).bytes_sent);
    if (result.ok && strata_communicator_barrier(comm, &err)) result = strata_test_bad("%s", err.message);
    test_stages_destroy(&t);
    strata_strategy_destroy(strategy);
    return result;
}

Test(flight, a_pipeline_over_workers_has_the_bits_of_one_worker, .timeout = 300) {
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    const layout layouts[] = {{2, 2, 1, false, {1, 1}},   {2, 3, 1, true, {2, 1}}, {4, 2, 2, false, {1, 1, 1, 1}},
                              {3, 4, 1, true, {1, 2, 1}}, {2, 3, 2, true, {1, 5}}, {2, 3, 2, false, {2, 4}}};
    const strata_communicator_options opts = {.stall_seconds = 60};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 6; i++) {
            const strata_test_result r = test_ranks(transports[t], layouts[i].n_workers, &opts, run, &layouts[i]);
            cr_assert(r.ok, "%s, layout %d: %s", transports[t], i, r.text);
        }
}

/* ---- messages of one pair ---- */

enum { N = 5 };

/* Worker 0 sends 2 x and 3 x. Worker 1 reads them in the other order: it sends 3 x + 1 back before it reads 2 x, and its output
 * is 2 x + 7. Worker 0's output is 3 x + 1 + x. */
static strata_tensor *build_pair(strata_graph *graph, int rank, strata_tensor **updates) {
    const int64_t devices[] = {0, 1};
    const strata_dtype f32 = STRATA_DTYPE_F32;
    strata_communication_attrs attrs = {
        .team = strata_team_make(graph, 1, devices, 2), .dtype = f32, .shape = STRATA_SHAPE(N), .takes = rank == 1};
    strata_tensor *x = rank ? NULL : strata_input(graph, "x", f32, STRATA_SHAPE(N));
    strata_tensor *two = strata_broadcast(graph, x ? strata_mul(x, strata_scalar(graph, f32, 2)) : NULL, attrs);
    strata_tensor *three = strata_broadcast(graph, x ? strata_mul(x, strata_scalar(graph, f32, 3)) : NULL, attrs);
    updates[0] = two;
    updates[1] = three;
    attrs.takes = rank == 0;
    strata_tensor *back = strata_broadcast(graph, x ? NULL : strata_add(three, strata_scalar(graph, f32, 1)), attrs);
    if (rank) updates[0] = back;
    return x ? strata_add(back, x) : strata_add(two, strata_scalar(graph, f32, 7));
}

typedef struct pair {
    strata_group *group;
    int rank;
    bool right;
} pair;

static strata_status write_pair(void *user, int microbatch, int slot, strata_error *err) {
    const pair *p = user;
    float *x = p->rank ? NULL : strata_executable_input(strata_group_replica(p->group, 0), slot, 0);
    (void)err;
    for (int i = 0; x && i < N; i++) x[i] = (float)(10 * microbatch + i);
    return STRATA_OK;
}

static strata_status read_pair(void *user, int microbatch, int slot, strata_error *err) {
    pair *p = user;
    const float *y = strata_executable_output(strata_group_replica(p->group, 0), slot, 0);
    (void)err;
    for (int i = 0; i < N; i++) {
        const float x = (float)(10 * microbatch + i);
        p->right &= y[i] == (p->rank ? 2 * x + 7 : 4 * x + 1);
    }
    return STRATA_OK;
}

static strata_test_result run_pair(strata_communicator *comm, const void *user) {
    strata_device *device = NULL;
    strata_strategy *strategy = NULL;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_tensor *updates[2];
    strata_error err = {0};
    pair p = {.rank = strata_communicator_rank(comm), .right = true};
    (void)user;
    TEST_TRY(open_devices(1, &device, &err));
    TEST_TRY(strata_strategy_from_devices(&device, 1, &strategy, &err));
    TEST_TRY(strata_strategy_join(strategy, comm, &err));
    TEST_TRY(strata_graph_create(&graph, &err));
    strata_tensor *output = build_pair(graph, p.rank, updates);
    TEST_TRY(strata_executable_create_in_flight(device, &output, 1, updates, p.rank ? 1 : 2, NULL, 3, &exe, &err));
    strata_graph_destroy(graph);
    TEST_TRY(strata_group_create(&exe, 1, &strategy->workers, NULL, &p.group, &err));
    strata_group_action actions[M];
    int slots[3];
    for (int m = 0; m < M; m++) actions[m] = (strata_group_action){0, m, 0, exe->plan.n_segments};
    for (int i = 0; i < 3; i++) TEST_TRY(strata_group_acquire(p.group, &slots[i], &err));
    const strata_group_schedule schedule = {.actions = actions,
                                            .n_actions = M,
                                            .n_microbatches = M,
                                            .slots = slots,
                                            .n_slots = 3,
                                            .begin = write_pair,
                                            .end = read_pair,
                                            .user = &p};
    TEST_TRY(strata_group_run_schedule(p.group, &schedule, &err));
    TEST_TRY(strata_communicator_barrier(comm, &err));
    strata_group_destroy(p.group);
    strata_strategy_destroy(strategy);
    return p.right ? strata_test_ok() : strata_test_bad("wrong values");
}

Test(flight, messages_arrive_in_their_order_whichever_is_read_first, .timeout = 300) {
    const strata_communicator_options opts = {.stall_seconds = 60};
    const strata_test_result r = test_ranks("inproc", 2, &opts, run_pair, NULL);
    cr_assert(r.ok, "%s", r.text);
}

/* ---- a worker fails ---- */

static strata_device_api broken;
static const strata_device_api *whole;
static int runs_left;

static strata_status run_or_fail(strata_program *program, int slot, uint64_t *out_ticket, strata_error *error) {
    if (!runs_left--) return strata_fail(error, STRATA_DEVICE_LOST, "it was taken out");
    return whole->run(program, slot, out_ticket, error);
}

static strata_test_result run_beside_failure(strata_communicator *comm, const void *user) {
    const layout *l = user;
    const int rank = strata_communicator_rank(comm);
    strata_device *devices[MOST];
    strata_strategy *strategy = NULL;
    test_stages t = {0};
    test_stages_result got;
    strata_group_action actions[2 * M * MOST];
    strata_error err = {0};
    TEST_TRY(create(l, comm, devices, &strategy, &t, &err));
    if (rank == 1) {
        whole = devices[0]->api;
        broken = *whole;
        broken.run = run_or_fail;
        devices[0]->api = &broken;
    }
    const int n = test_stages_actions(&t, false, M, actions);
    const strata_status status = test_stages_run(&t, actions, n, M, l->n_stages, &got, &err);
    if (rank == 1) devices[0]->api = whole;
    if (rank == 1 && status) strata_communicator_abort(comm, err.message);
    test_stages_destroy(&t);
    strata_strategy_destroy(strategy);
    if (!status) return strata_test_bad("it ended without the lost device");
    if (!strstr(err.message, "it was taken out")) return strata_test_bad("%d: %s", status, err.message);
    return strata_test_ok();
}

/* The device of the second of three workers is lost before each of its first 9 runs. */
Test(flight, a_device_that_is_lost_ends_the_schedules_of_all_workers, .timeout = 300) {
    const layout l = {3, 3, 1, false, {1, 1, 1}};
    const strata_communicator_options opts = {.stall_seconds = 60};
    for (int k = 0; k < 9; k++) {
        runs_left = k;
        const strata_test_result r = test_ranks("inproc", 3, &opts, run_beside_failure, &l);
        cr_assert(r.ok, "%d runs: %s", k, r.text);
    }
}
