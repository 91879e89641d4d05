/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's compressed lists and its variables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cluster/resolver/resolver.h"
#include "tests/resolver/resolved.h"

static void expands(const char *text, const char *hosts) {
    strata_host_list list;
    strata_error err = {0};
    char joined[1024] = "";
    cr_assert_eq(strata_host_list_expand("L", text, &list, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < list.n_hosts; i++) {
        if (i) strcat(joined, " ");
        strcat(joined, list.hosts[i]);
    }
    cr_expect_str_eq(joined, hosts);
    strata_host_list_finish(&list);
}

static void rejects_list(const char *text, const char *message) {
    strata_host_list list;
    strata_error err = {0};
    cr_expect_eq(strata_host_list_expand("L", text, &list, &err), STRATA_DATA, "accepted: %s", text);
    cr_expect_str_eq(err.message, message);
    cr_expect_null(list.hosts);
}

Test(host_list, expands_brackets_in_the_order_of_the_text) {
    expands("node", "node");
    expands("n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9");
    expands("gnode[10,20,25-27]", "gnode10 gnode20 gnode25 gnode26 gnode27");
    expands("n[9-11]", "n9 n10 n11");
    expands("n[3,1]", "n3 n1");
}

Test(host_list, keeps_leading_zeros) {
    expands("n[008-011]", "n008 n009 n010 n011");
    expands("n[0-1,00-01]", "n0 n1 n00 n01");
}

Test(host_list, multiplies_several_brackets) {
    expands("rack[1-2]n[01-02]-ib", "rack1n01-ib rack1n02-ib rack2n01-ib rack2n02-ib");
    expands("[1-2][3-4]", "13 14 23 24");
}

Test(host_list, explains_what_is_wrong_and_where) {
    rejects_list("", "L: character 1 of \"\": a host has no name");
    rejects_list("a,,b", "L: character 3 of \"a,,b\": a host has no name");
    rejects_list("a,", "L: character 3 of \"a,\": a host has no name");
    rejects_list("n[1-2", "L: character 1 of \"n[1-2\": a bracket is not closed");
    rejects_list("a,n1]", "L: character 5 of \"a,n1]\": a host's name has no such character");
    rejects_list("n[]", "L: character 3 of \"n[]\": expected a number or a range of numbers, as in 3-5");
    rejects_list("n[1-]", "L: character 3 of \"n[1-]\": expected a number or a range of numbers, as in 3-5");
    rejects_list("n[a]", "L: character 3 of \"n[a]\": expected a number or a range of numbers, as in 3-5");
    rejects_list("n[1,[2]]", "L: character 8 of \"n[1,[2]]\": a host's name has no such character");
    rejects_list("n[5-3]", "L: character 3 of \"n[5-3]\": the range ends before it begins");
    rejects_list("n[1234567890]", "L: character 3 of \"n[1234567890]\": expected a number or a range of numbers, as in 3-5");
    rejects_list("n 1", "L: character 2 of \"n 1\": a host's name has no such character");
    rejects_list("[1][1][1][1][1][1][1][1][1]",
                 "L: character 25 of \"[1][1][1][1][1][1][1][1][1]\": a name has more than 8 brackets");
}

Test(host_list, is_bounded) {
    char name[400];
    strata_host_list list;
    rejects_list("n[1-999999999]", "L: character 15 of \"n[1-999999999]\": the list has more than 65536 hosts");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cr_expect_eq(strata_host_list_expand("L", name, &list, NULL), STRATA_DATA);
    memcpy(name + 250, "[1-2]", 5);
    cr_expect_eq(strata_host_list_expand("L", name, &list, NULL), STRATA_DATA);
}

static void rejects_counts(const char *text, const char *message) {
    int counts[4];
    strata_error err = {0};
    cr_expect_eq(strata_task_counts_expand("T", text, counts, 4, &err), STRATA_DATA, "accepted: %s", text);
    cr_expect_str_eq(err.message, message);
}

Test(task_counts, expand_repetitions) {
    int counts[4];
    cr_assert_eq(strata_task_counts_expand("T", "3(x2),2,1", counts, 4, NULL), STRATA_OK);
    cr_expect_eq(memcmp(counts, ((int[]){3, 3, 2, 1}), sizeof counts), 0);
    cr_assert_eq(strata_task_counts_expand("T", "7(x4)", counts, 4, NULL), STRATA_OK);
    cr_expect_eq(counts[3], 7);
}

Test(task_counts, explain_what_is_wrong) {
    static const char *const wrong[] = {"", "x", "2(x)", "2(3)", "2(x3", "2(x0)", "0(x4)", "1,,2", "2 ,2", "2(x2)2", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char message[100];
        snprintf(message, sizeof message, "T is \"%s\"; it must be numbers of tasks a node, as in 3(x2),1", wrong[i]);
        rejects_counts(wrong[i], message);
    }
    rejects_counts("1(x3)", "T is \"1(x3)\": 3 nodes, but there are 4");
    rejects_counts("1(x999999999)", "T is \"1(x999999999)\": more than the 4 nodes that there are");
    rejects_counts("1,1,1,1,1", "T is \"1,1,1,1,1\": more than the 4 nodes that there are");
}

#define STEP(rank, tasks, nodes, per_node) \
    "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=" tasks, "SLURM_STEP_NODELIST=" nodes, "SLURM_STEP_TASKS_PER_NODE=" per_node

Test(slurm, places_ranks_node_by_node) {
    tells(VARIABLES(STEP("3", "5", "n[9-10],m", "2(x2),1"), "SLURM_LOCALID=1", "SLURM_NODEID=1", "STRATA_PORT=8888"),
          "worker n9:8888 n9:8889 n10:8888 n10:8889 m:8888; I am worker:3, rank 3 of 5, local 1 of 2; n9:8888");
}

Test(slurm, places_ranks_round_the_nodes_when_cyclic) {
    tells(VARIABLES(STEP("1", "4", "a,b", "3,1"), "SLURM_LOCALID=0", "SLURM_NODEID=1", "STRATA_PORT=100",
                    "SLURM_DISTRIBUTION=cyclic"),
          "worker a:100 b:100 a:101 a:102; I am worker:1, rank 1 of 4, local 0 of 1; a:100");
}

Test(slurm, knows_only_the_rendezvous_of_other_orders) {
    tells(VARIABLES(STEP("1", "2", "a,b", "1(x2)"), "SLURM_LOCALID=0", "SLURM_NODEID=1", "STRATA_PORT=100",
                    "SLURM_DISTRIBUTION=plane=2"),
          "worker x2; I am worker:1, rank 1 of 2, local 0 of 1; a:100");
}

Test(slurm, makes_the_port_from_job_and_step) {
    const char *const one[] = {STEP("0", "1", "a", "1"), "SLURM_LOCALID=0", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", NULL};
    const char *const two[] = {STEP("0", "1", "a", "1"), "SLURM_LOCALID=0", "SLURM_JOB_ID=7", "SLURM_STEP_ID=1", NULL};
    strata_cluster_spec a = resolved(one), b = resolved(one), c = resolved(two);
    cr_expect_str_eq(a.rendezvous, b.rendezvous);
    cr_expect_str_neq(a.rendezvous, c.rendezvous);
    strata_cluster_spec_finish(&a);
    strata_cluster_spec_finish(&b);
    strata_cluster_spec_finish(&c);
}

Test(slurm, a_batch_script_outside_of_srun_is_alone) {
    tells(VARIABLES("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[1-4]"),
          "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
}

Test(slurm, explains_what_does_not_fit) {
    refuses(VARIABLES("SLURM_PROCID=0", "SLURM_STEP_NODELIST=a"),
            "Slurm: SLURM_STEP_NUM_TASKS is not set; the launcher sets it, or say who is in the job by --cluster and --task");
    refuses(VARIABLES("SLURM_PROCID=0", "SLURM_STEP_NODELIST=a", "SLURM_STEP_NUM_TASKS=1"),
            "Slurm: SLURM_STEP_TASKS_PER_NODE is not set, SLURM_STEP_NODELIST is; srun sets both");
    refuses(VARIABLES(STEP("4", "4", "a", "4")), "Slurm: SLURM_PROCID is \"4\"; it must be a whole number from 0 to 3");
    refuses(VARIABLES(STEP("0", "4", "a,b", "1(x2)")),
            "Slurm: SLURM_STEP_NUM_TASKS is 4, but SLURM_STEP_TASKS_PER_NODE adds up to 2");
    refuses(VARIABLES(STEP("0", "2", "a,b", "999999999(x2)")),
            "Slurm: SLURM_STEP_NUM_TASKS is 2, but SLURM_STEP_TASKS_PER_NODE adds up to 1999999998");
    refuses(VARIABLES(STEP("0", "2", "a,b", "2")), "SLURM_STEP_TASKS_PER_NODE is \"2\": 1 nodes, but there are 2");
    refuses(VARIABLES(STEP("0", "2", "a[", "2")), "SLURM_STEP_NODELIST: character 1 of \"a[\": a bracket is not closed");
    refuses(VARIABLES(STEP("0", "2", "a", "2"), "STRATA_PORT=65535", "SLURM_LOCALID=0"),
            "Slurm: STRATA_PORT is 65535; with 2 tasks on a node the last port would be beyond 65535");
    refuses(VARIABLES(STEP("0", "2", "a", "2"), "SLURM_LOCALID=2"),
            "Slurm: SLURM_LOCALID is \"2\"; it must be a whole number from 0 to 1");
    refuses(VARIABLES(STEP("0", "2", "a", "2"), "SLURM_NODEID=1"),
            "Slurm: SLURM_NODEID is \"1\"; it must be a whole number from 0 to 0");
}
