/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks of every type in one communicator, for each way in which launchers describe a cluster. The world must keep its
 * ranks. A parameter server, which is not a rank of the world, must be able to reply to messages. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "strata/cluster_spec.h"
#include "tests/cluster/ranks.h"

enum { TASKS = 5, CHIEF = 0, FIRST_PS = 3, EVALUATOR = 4 };
static const strata_task_type types[TASKS] = {STRATA_TASK_CHIEF, STRATA_TASK_WORKER, STRATA_TASK_WORKER, STRATA_TASK_PS,
                                              STRATA_TASK_EVALUATOR};
static const int indices[TASKS] = {0, 0, 1, 0, 0};

/* The description of a cluster of a chief, two workers, a ps and an evaluator, as task i finds it. */
typedef struct naming {
    const char *name;
    int task;
    char text[256];
} naming;

static const char *look_up(void *context, const char *variable) {
    naming *n = context;
    if (!strcmp(n->name, "TF_CONFIG") && !strcmp(variable, "TF_CONFIG")) {
        snprintf(n->text, sizeof n->text,
                 "{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"w:1\", \"w:2\"], \"evaluator\": [\"e:1\"], \"chief\": "
                 "[\"c:1\"]}, \"task\": {\"type\": \"%s\", \"index\": %d}}",
                 strata_task_type_name(types[n->task]), indices[n->task]);
        return n->text;
    }
    if (strcmp(n->name, "torchrun") != 0) return NULL;
    snprintf(n->text, sizeof n->text, "%d", n->task);
    if (!strcmp(variable, "RANK")) return n->text;
    if (!strcmp(variable, "WORLD_SIZE")) return "5";
    if (!strcmp(variable, "MASTER_ADDR")) return "c";
    if (!strcmp(variable, "MASTER_PORT")) return "1";
    return strcmp(variable, "STRATA_ROLES") ? NULL : "chief=1,ps=1,evaluator=1";
}

static void resolve(naming *n, strata_cluster_spec *out_spec) {
    strata_error err = {0};
    char task[32];
    snprintf(task, sizeof task, "%s:%d", strata_task_type_name(types[n->task]), indices[n->task]);
    const bool by_hand = !strcmp(n->name, "--cluster");
    const strata_cluster_options opts = {.cluster = by_hand ? "ps=p:1;worker=w:1,w:2;chief=c:1;evaluator=e:1" : NULL,
                                         .task = by_hand ? task : NULL,
                                         .environment = {look_up, n}};
    cr_assert_eq(strata_cluster_spec_resolve(&opts, out_spec, &err), STRATA_OK, "%s: %s", n->name, err.message);
}

Test(roles, every_task_has_a_place_and_the_world_keeps_its_ranks) {
    static const char *const names[] = {"--cluster", "TF_CONFIG", "torchrun"};
    for (int i = 0; i < 3; i++)
        for (int task = 0; task < TASKS; task++) {
            naming n = {names[i], task, ""};
            strata_cluster_spec spec;
            resolve(&n, &spec);
            cr_expect_eq(spec.all_rank, task, "%s: task %d has place %d", n.name, task, spec.all_rank);
            cr_expect_eq(spec.all_size, TASKS);
            cr_expect_eq(spec.world_size, FIRST_PS);
            cr_expect_eq(spec.rank, task < FIRST_PS ? task : -1);
            for (int other = 0; other < TASKS; other++) {
                int index = -7;
                cr_expect_eq(strata_cluster_spec_task(&spec, other, &index), types[other]);
                cr_expect_eq(index, indices[other]);
            }
            cr_expect_eq(strata_cluster_spec_task(&spec, TASKS, NULL), STRATA_TASK_TYPES);
            cr_expect_eq(strata_cluster_spec_task(&spec, -1, NULL), STRATA_TASK_TYPES);
            cr_expect_str_eq(spec.rendezvous, "c:1");
            strata_cluster_spec_finish(&spec);
        }
}

Test(roles, an_evaluator_outside_the_cluster_has_no_place) {
    const strata_cluster_options opts = {.cluster = "worker=w:1,w:2", .task = "evaluator"};
    strata_cluster_spec spec;
    strata_error err = {0};
    cr_assert_eq(strata_cluster_spec_resolve(&opts, &spec, &err), STRATA_OK, "%s", err.message);
    cr_expect_eq(spec.all_rank, -1);
    cr_expect_eq(spec.all_size, 2);
    strata_cluster_spec_finish(&spec);
}

/* The world computes sums, the server counts the requests that it gets, and the evaluator waits for a message of the chief. */
static strata_test_result play(strata_communicator *comm, const void *user) {
    const int place = strata_communicator_rank(comm);
    strata_communicator *world = NULL;
    strata_error err = {0};
    strata_message message;
    float x = 1;
    int value = place;
    (void)user;
    naming n = {"TF_CONFIG", place, ""};
    strata_cluster_spec spec;
    resolve(&n, &spec);
    const int color = spec.rank >= 0 ? 0 : -1, rank = spec.rank;
    strata_cluster_spec_finish(&spec);
    TEST_TRY(strata_communicator_split(comm, color, 0, &world, &err));
    if (rank < 0 && place == FIRST_PS) {
        int sum = 0;
        for (int i = 0; i < 3; i++) {
            TEST_TRY(strata_message_receive(comm, &value, sizeof value, STRATA_ANY, 1, 20, &message, &err));
            sum += value;
        }
        if (sum != 3) return strata_test_bad("the server was asked %d", sum);
        TEST_TRY(strata_message_send(comm, &sum, sizeof sum, CHIEF, 2, 20, &err));
    } else if (rank < 0) {
        TEST_TRY(strata_message_receive(comm, &value, sizeof value, CHIEF, 3, 20, &message, &err));
        if (value != 3) return strata_test_bad("the evaluator was told %d", value);
    } else {
        TEST_TRY(strata_message_send(comm, &value, sizeof value, FIRST_PS, 1, 20, &err));
        TEST_TRY(strata_communicator_all_reduce(world, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
        if (x != 3 || strata_communicator_rank(world) != rank) return strata_test_bad("the world sums %g", (double)x);
    }
    if (rank == 0) {
        TEST_TRY(strata_message_receive(comm, &value, sizeof value, FIRST_PS, 2, 20, &message, &err));
        TEST_TRY(strata_message_send(comm, &value, sizeof value, EVALUATOR, 3, 20, &err));
    }
    TEST_TRY(strata_communicator_barrier(comm, &err));
    strata_communicator_destroy(world);
    return strata_test_ok();
}

Test(roles, tasks_of_all_types_meet_in_one_communicator, .timeout = 300) {
    for (int t = 0; test_transport(t) && strcmp(test_transport(t), "tls") != 0; t++) {
        strata_test_result r = test_ranks(test_transport(t), TASKS, NULL, play, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}
