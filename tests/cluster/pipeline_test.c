/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of different workers that send values to each other: several steps of a pipeline through all workers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/op/communication.h"
#include "core/run/group.h"
#include "strata/ops.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"

enum { WORKERS = 3, LARGE = 300000, STEPS = 4, THERE = 5, BACK = 6 };

/* Worker 0 sends x. Each other worker doubles what it receives and sends it to the next one. Worker 0 receives the last
 * worker's value and negates it. length: the number of elements that a worker receives, which a test may change for one
 * worker. */
static strata_tensor *build(strata_graph *graph, int worker, int64_t length, strata_tensor **out_update) {
    const strata_dtype f32 = STRATA_DTYPE_F32;
    const int next = (worker + 1) % WORKERS, before = (worker + WORKERS - 1) % WORKERS;
    strata_tensor *x, *y;
    if (worker == 0) {
        x = strata_input(graph, "x", f32, STRATA_SHAPE(LARGE));
        *out_update = strata_send_to_worker(strata_mul(x, strata_scalar(graph, f32, 1)), THERE, 0, next);
        y = strata_recv_from_worker(graph, f32, STRATA_SHAPE(length), BACK, 0, before);
        return strata_neg(y);
    }
    x = strata_recv_from_worker(graph, f32, STRATA_SHAPE(LARGE), THERE, 0, before);
    *out_update = strata_send_to_worker(strata_add(x, x), next ? THERE : BACK, 0, next);
    return NULL;
}

static strata_status step(strata_group *group, int64_t number, bool *out_right, strata_error *err) {
    strata_executable *exe = strata_group_replica(group, 0);
    int slot;
    STRATA_TRY(strata_group_acquire(group, &slot, err));
    const int input = strata_executable_input_index(exe, "x");
    float *x = input < 0 ? NULL : strata_executable_input(exe, slot, input);
    for (int i = 0; x && i < LARGE; i++) x[i] = (float)(i % 1000) + (float)number;
    STRATA_TRY(strata_group_start(group, slot, number, err));
    STRATA_TRY(strata_group_finish(group, slot, NULL, err));
    STRATA_TRY(strata_group_wait(group, slot, err));
    const float *y = x ? strata_executable_output(exe, slot, 0) : NULL;
    *out_right = true;
    for (int i = 0; y && i < LARGE; i++) *out_right &= y[i] == -4 * ((float)(i % 1000) + (float)number);
    return STRATA_OK;
}

/* Creates a group of one device of this worker. */
static strata_status create(strata_communicator *comm, strata_device *device, int64_t length, const strata_workers *workers,
                            strata_group **out_group, strata_error *err) {
    strata_graph *graph;
    strata_executable *exe = NULL;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_tensor *update = NULL, *output = build(graph, strata_communicator_rank(comm), length, &update);
    const strata_status status =
        strata_executable_create_replica(device, &output, output != NULL, &update, 1, NULL, NULL, &exe, err);
    strata_graph_destroy(graph);
    return status ? status : strata_group_create(&exe, 1, workers, NULL, out_group, err);
}

static strata_test_result run(strata_communicator *comm, const void *user) {
    const int64_t length = *(const int64_t *)user;
    strata_device *device = NULL;
    strata_strategy *strategy = NULL;
    strata_group *group = NULL;
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    TEST_TRY(strata_device_open("host", NULL, &device, &err));
    TEST_TRY(strata_strategy_from_devices(&device, 1, &strategy, &err));
    TEST_TRY(strata_strategy_join(strategy, comm, &err));
    TEST_TRY(create(comm, device, length, &strategy->workers, &group, &err));
    for (int64_t number = 0; number < STEPS && result.ok; number++) {
        bool right = false;
        const strata_status status = step(group, number, &right, &err);
        if (length != LARGE && strata_communicator_rank(comm) == 0) {
            if (status != STRATA_INVALID || !strstr(err.message, "room for"))
                result = strata_test_bad("a wrong length: %d: %s", status, err.message);
            break;
        }
        if (status || !right) result = strata_test_bad("step %d: %s", (int)number, status ? err.message : "wrong values");
        if (length != LARGE) break;
    }
    if (result.ok && strata_communicator_barrier(comm, &err)) result = strata_test_bad("%s", err.message);
    strata_group_destroy(group);
    strata_strategy_destroy(strategy);
    return result;
}

Test(pipeline, values_go_around_the_workers, .timeout = 300) {
    const strata_communicator_options opts = {.stall_seconds = TEST_PATIENCE};
    const int64_t length = LARGE;
    for (int t = 0; test_transport(t) && strcmp(test_transport(t), "tls") != 0; t++) {
        strata_test_result r = test_ranks(test_transport(t), WORKERS, &opts, run, &length);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

Test(pipeline, a_value_of_another_size_is_refused, .timeout = 300) {
    const strata_communicator_options opts = {.stall_seconds = TEST_PATIENCE};
    const int64_t length = LARGE - 1;
    strata_test_result r = test_ranks("inproc", WORKERS, &opts, run, &length);
    cr_assert(r.ok, "%s", r.text);
}

Test(pipeline, a_worker_that_is_not_there_is_told) {
    strata_device *device = NULL;
    strata_graph *graph = NULL;
    strata_error err = {0};
    strata_executable *exe = NULL;
    strata_group *group = NULL;
    int slot = 0;
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2));
    strata_tensor *sent = strata_send_to_worker(strata_neg(x), 0, 0, 4);
    cr_assert_eq(strata_executable_create_replica(device, NULL, 0, &sent, 1, NULL, NULL, &exe, &err), STRATA_OK, "%s",
                 err.message);
    strata_graph_destroy(graph);
    cr_assert_eq(strata_group_create(&exe, 1, NULL, NULL, &group, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_group_acquire(group, &slot, &err), STRATA_OK);
    cr_assert_eq(strata_group_start(group, slot, 0, &err), STRATA_OK);
    cr_assert_eq(strata_group_finish(group, slot, NULL, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "worker 4"), "%s", err.message);
    strata_group_destroy(group);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2));
    strata_send_to_worker(x, -1, 0, 1);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "team -1"), "%s", err.message);
    strata_graph_destroy(graph);
    strata_device_close(device);
}
