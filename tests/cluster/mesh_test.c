/* SPDX-License-Identifier: Apache-2.0
 *
 * Meshes whose axes span some of the workers: the partitioner's exchanges run between the right devices, in a communicator of
 * the workers that take part. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/partition.h"
#include "core/op/communication.h"
#include "core/run/group.h"
#include "strata/ops.h"
#include "strategies/kinds.h"
#include "tests/cluster/ranks.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"
#include "tests/support/parts.h"

enum { INPUTS = 4, OUTPUTS = 4, STEPS = 3, MOST_DEVICES = 8 };

/* ---- the graph ---- */

/* Two dense layers, of which the first is divided by its columns and the second by its rows, and the gradients of the weights.
 * The examples are divided over "data". */
typedef struct network {
    strata_mesh mesh;
    strata_graph *graph;
    strata_tensor *inputs[INPUTS], *outputs[OUTPUTS];
    /* Of inputs and outputs. */
    strata_placement in[INPUTS], out[OUTPUTS];
} network;

static const int64_t examples[] = {5, 2}, columns[] = {3, 4}, thirds[] = {4, 1, 2}, fourths[] = {2, 2, 1, 2};

/* The 7 examples or columns in as many uneven parts as the axis has devices. */
static strata_dim_split split(const strata_mesh *mesh, int axis, const int64_t *two) {
    const int size = mesh->axes[axis].size;
    return (strata_dim_split){.n_axes = 1, .axes = {axis}, .lengths = size == 2 ? two : size == 3 ? thirds : fourths};
}

static strata_status make_network(network *net, int data, int tensor, strata_error *err) {
    static const char *const names[INPUTS] = {"x", "w", "v", "target"};
    const strata_shape shapes[INPUTS] = {STRATA_SHAPE(7, 6), STRATA_SHAPE(6, 7), STRATA_SHAPE(7, 3), STRATA_SHAPE(7, 3)};
    *net = (network){.mesh = {.n_axes = 2, .axes = {{"data", data}, {"tensor", tensor}}}};
    STRATA_TRY(strata_graph_create(&net->graph, err));
    for (int i = 0; i < INPUTS; i++) net->inputs[i] = strata_input(net->graph, names[i], STRATA_DTYPE_F32, shapes[i]);
    strata_tensor *y =
        strata_matmul(strata_tanh(strata_matmul(net->inputs[0], net->inputs[1], false, false)), net->inputs[2], false, false);
    strata_tensor *loss = strata_reduce_sum(strata_square(strata_sub(y, net->inputs[3])), NULL, 0, false);
    net->outputs[0] = y;
    net->outputs[1] = loss;
    strata_gradients(loss, NULL, net->inputs + 1, 2, net->outputs + 2);
    const strata_dim_split by_example = split(&net->mesh, 0, examples), by_column = split(&net->mesh, 1, columns);
    net->in[0].dims[0] = net->in[3].dims[0] = by_example;
    net->in[1].dims[1] = net->in[2].dims[0] = by_column;
    net->out[2] = net->in[1];
    net->out[3] = net->in[2];
    return strata_graph_check(net->graph, err);
}

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    const network *net = user;
    int i = 0;
    while (net->inputs[i] != leaf) i++;
    return &net->in[i];
}

static strata_array values_of(const network *net, int input, int step) {
    return strata_test_random(STRATA_DTYPE_F32, strata_tensor_shape(net->inputs[input]), -1, 1,
                              (uint64_t)(10 * step + input + 1));
}

/* ---- one worker ---- */

typedef struct layout {
    int data, tensor;
    /* [ranks] The devices of each worker. */
    int devices[TEST_MOST_RANKS];
} layout;

typedef struct worker {
    network net;
    strata_strategy *strategy;
    strata_group *group;
    /* The first of its devices in the mesh, and how many it has. */
    int first, n;
} worker;

static strata_status open_strategy(worker *w, strata_communicator *comm, strata_error *err) {
    strata_device *devices[MOST_DEVICES];
    for (int d = 0; d < w->n; d++) STRATA_TRY(strata_device_open("host", NULL, &devices[d], err));
    STRATA_TRY(strata_strategy_from_devices(devices, w->n, &w->strategy, err));
    STRATA_TRY(strata_strategy_join(w->strategy, comm, err));
    w->first = w->strategy->workers.first_replica;
    return STRATA_OK;
}

static strata_status make_group(worker *w, strata_error *err) {
    strata_partition *partition = NULL;
    strata_executable *parts[MOST_DEVICES];
    const strata_partition_options opts = {.mesh = &w->net.mesh,
                                           .first = w->first,
                                           .n = w->n,
                                           .place = place,
                                           .user = &w->net,
                                           .outputs = w->net.outputs,
                                           .placements = w->net.out,
                                           .n_outputs = OUTPUTS};
    STRATA_TRY(strata_partition_create(&opts, &partition, err));
    strata_status status = STRATA_OK;
    for (int d = 0; d < w->n && !status; d++)
        status = strata_executable_create_replica(w->strategy->devices[d], partition->parts[d].outputs, OUTPUTS, NULL, 0, NULL,
                                                  NULL, &parts[d], err);
    strata_partition_destroy(partition);
    return status ? status : strata_group_create(parts, w->n, &w->strategy->workers, NULL, &w->group, err);
}

static void write_inputs(worker *w, int slot, const strata_array *values) {
    for (int d = 0; d < w->n; d++)
        for (int i = 0; i < INPUTS; i++) {
            strata_executable *exe = strata_group_replica(w->group, d);
            strata_array part = strata_test_part_of(&w->net.mesh, &w->net.in[i], &values[i], w->first + d);
            const int input = strata_executable_input_index(exe, strata_tensor_name(w->net.inputs[i]));
            if (input >= 0 && strata_array_bytes(&part))
                memcpy(strata_executable_input(exe, slot, input), part.data, strata_array_bytes(&part));
            strata_array_finish(&part);
        }
}

static strata_test_result compare(worker *w, int slot, const strata_array *want) {
    strata_test_result result = strata_test_ok();
    for (int d = 0; d < w->n; d++)
        for (int i = 0; i < OUTPUTS; i++) {
            strata_array part = strata_test_part_of(&w->net.mesh, &w->net.out[i], &want[i], w->first + d);
            const float *expected = part.data, *got = strata_executable_output(strata_group_replica(w->group, d), slot, i);
            for (int64_t e = 0; e < strata_shape_elements(part.shape) && result.ok; e++)
                if (fabsf(got[e] - expected[e]) > 1e-5F * (1 + fabsf(expected[e])))
                    result = strata_test_bad("device %d, output %d, element %d is %g, it must be %g", w->first + d, i, (int)e,
                                             (double)got[e], (double)expected[e]);
            strata_array_finish(&part);
        }
    return result;
}

static strata_test_result step(worker *w, int number) {
    strata_error err = {0};
    strata_array values[INPUTS], want[OUTPUTS];
    strata_test_feed feeds[INPUTS];
    int slot = 0;
    for (int i = 0; i < INPUTS; i++) {
        values[i] = values_of(&w->net, i, number);
        feeds[i] = (strata_test_feed){w->net.inputs[i], &values[i]};
    }
    TEST_TRY(strata_test_eval(w->net.outputs, OUTPUTS, feeds, INPUTS, want, &err));
    TEST_TRY(strata_group_acquire(w->group, &slot, &err));
    write_inputs(w, slot, values);
    TEST_TRY(strata_group_start(w->group, slot, number, &err));
    TEST_TRY(strata_group_finish(w->group, slot, NULL, &err));
    TEST_TRY(strata_group_wait(w->group, slot, &err));
    const strata_test_result result = compare(w, slot, want);
    for (int i = 0; i < INPUTS; i++) strata_array_finish(&values[i]);
    for (int i = 0; i < OUTPUTS; i++) strata_array_finish(&want[i]);
    return result;
}

static strata_test_result run(strata_communicator *comm, const void *user) {
    const layout *l = user;
    worker w = {.n = l->devices[strata_communicator_rank(comm)]};
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    TEST_TRY(make_network(&w.net, l->data, l->tensor, &err));
    TEST_TRY(open_strategy(&w, comm, &err));
    /* The second group uses the communicators of the first. */
    for (int group = 0; group < 2 && result.ok; group++) {
        TEST_TRY(make_group(&w, &err));
        for (int number = 0; number < STEPS && result.ok; number++) result = step(&w, number);
        strata_group_destroy(w.group);
    }
    if (result.ok && strata_communicator_barrier(comm, &err)) result = strata_test_bad("%s", err.message);
    strata_strategy_destroy(w.strategy);
    strata_graph_destroy(w.net.graph);
    return result;
}

static void expect_right(const char *transport, int workers, const layout *l) {
    const strata_communicator_options opts = {.stall_seconds = TEST_PATIENCE};
    strata_test_result r = test_ranks(transport, workers, &opts, run, l);
    cr_assert(r.ok, "%s, %d workers, data=%d,tensor=%d: %s", transport, workers, l->data, l->tensor, r.text);
}

Test(mesh, axes_over_four_workers_exchange_between_the_right_two, .timeout = 300) {
    for (int t = 0; test_transport(t) && strcmp(test_transport(t), "tls") != 0; t++)
        expect_right(test_transport(t), 4, &(layout){2, 2, {1, 1, 1, 1}});
}

Test(mesh, workers_may_have_several_devices_of_an_axis, .timeout = 300) {
    const layout layouts[] = {{2, 2, {2, 2}}, {2, 4, {3, 5}}, {4, 2, {2, 4, 2}}, {3, 2, {1, 4, 1}}, {2, 2, {3, 1}}};
    const int workers[] = {2, 2, 3, 3, 2};
    for (int i = 0; i < 5; i++) expect_right("inproc", workers[i], &layouts[i]);
}

/* ---- what is refused ---- */

static strata_test_result gather_in_wrong_team(strata_communicator *comm, const void *user) {
    const int64_t *last = user, members[] = {0, *last}, lengths[] = {2, 2, 2};
    worker w = {.n = 1};
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    TEST_TRY(open_strategy(&w, comm, &err));
    TEST_TRY(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_neg(strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2)));
    strata_tensor *all = strata_all_gather_parts(x, strata_team_make(graph, 1, members, 2), 0, lengths, 3, w.first);
    strata_tensor *y = strata_neg(all);
    TEST_TRY(strata_executable_create_replica(w.strategy->devices[0], &y, 1, NULL, 0, NULL, NULL, &exe, &err));
    strata_graph_destroy(graph);
    const strata_status status = strata_group_create(&exe, 1, &w.strategy->workers, NULL, &w.group, &err);
    strata_strategy_destroy(w.strategy);
    const char *words = *last == 1 ? "3 parts and 2 devices" : w.first ? "of which replica 0 is" : "numbered 0 to 1";
    if (status != STRATA_INVALID || !strstr(err.message, words)) return strata_test_bad("%d: %s", status, err.message);
    return strata_test_ok();
}

/* A team with fewer devices than the value has parts, and one of a device that does not exist, without that of worker 1. */
Test(mesh, a_team_that_does_not_fit_the_workers_is_refused, .timeout = 300) {
    for (int i = 0; i < 2; i++) {
        strata_test_result r = test_ranks("inproc", 2, NULL, gather_in_wrong_team, &(int64_t){i ? 7 : 1});
        cr_assert(r.ok, "%s", r.text);
    }
}
