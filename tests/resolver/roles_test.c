/* SPDX-License-Identifier: Apache-2.0
 *
 * STRATA_ROLES: types for the tasks of launchers that only count them. */
#include <criterion/criterion.h>

#include "tests/resolver/resolved.h"

#define TORCH(rank, world) "RANK=" rank, "WORLD_SIZE=" world, "MASTER_ADDR=h", "MASTER_PORT=9"
#define SLURM(rank)                                                                                                  \
    "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n[1-4]", "SLURM_STEP_TASKS_PER_NODE=1(x4)", \
        "SLURM_LOCALID=0", "SLURM_NODEID=" rank, "STRATA_PORT=7"
#define MPI(rank)   "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=3", "STRATA_RENDEZVOUS=h:1"
#define HYDRA(rank) "MPI_LOCALRANKID=0", "PMI_RANK=" rank, "PMI_SIZE=3", "STRATA_RENDEZVOUS=h:1"
#define POD(rank)   "JOB_COMPLETION_INDEX=" rank, "HOSTNAME=j-" rank, "STRATA_WORLD_SIZE=3"

Test(roles, divide_the_tasks_in_a_fixed_order) {
#define ALL "STRATA_ROLES=evaluator=1,ps=2,chief=1"
    tells(VARIABLES(TORCH("0", "6"), ALL),
          "chief x1; worker x2; ps x2; evaluator x1; I am chief:0, rank 0 of 3, local 0 of 1, chief; h:9");
    tells(VARIABLES(TORCH("2", "6"), ALL),
          "chief x1; worker x2; ps x2; evaluator x1; I am worker:1, rank 2 of 3, local 0 of 1; h:9");
    tells(VARIABLES(TORCH("4", "6"), ALL),
          "chief x1; worker x2; ps x2; evaluator x1; I am ps:1, rank -1 of 3, local 0 of 1; h:9");
    tells(VARIABLES(TORCH("5", "6"), ALL),
          "chief x1; worker x2; ps x2; evaluator x1; I am evaluator:0, rank -1 of 3, local 0 of 1, chief; h:9");
}

Test(roles, take_the_addresses_along) {
    tells(VARIABLES(SLURM("3"), "STRATA_ROLES=chief=1,worker=2,ps=1"),
          "chief n1:7; worker n2:7 n3:7; ps n4:7; I am ps:0, rank -1 of 3, local 0 of 1; n1:7");
    tells(VARIABLES(SLURM("1"), "STRATA_ROLES=ps=0,worker=4"),
          "worker n1:7 n2:7 n3:7 n4:7; I am worker:1, rank 1 of 4, local 0 of 1; n1:7");
}

Test(roles, hold_for_each_launcher_that_only_counts) {
    tells(VARIABLES(MPI("2"), "STRATA_ROLES=ps=1"), "worker x2; ps x1; I am ps:0, rank -1 of 2, local 0 of 1; h:1");
    tells(VARIABLES(HYDRA("1"), "STRATA_ROLES=ps=1"), "worker x2; ps x1; I am worker:1, rank 1 of 2, local 0 of 1; h:1");
    tells(VARIABLES(POD("2"), "STRATA_ROLES=ps=1"),
          "worker j-0.j:2222 j-1.j:2222; ps j-2.j:2222; I am ps:0, rank -1 of 2, local 0 of 1; j-0.j:2222");
}

Test(roles, are_not_read_where_types_are_named) {
    const char *line = "worker a:1 b:1; I am worker:1, rank 1 of 2, local 0 of 1; a:1";
    tells(VARIABLES("STRATA_CLUSTER=a:1,b:1", "STRATA_TASK=worker:1", "STRATA_ROLES=ps=1"), line);
    tells(VARIABLES("TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
                    "STRATA_ROLES=ps=1"),
          line);
}

Test(roles, that_do_not_fit_are_refused) {
    static const struct {
        const char *roles, *message;
    } rows[] = {
        {"STRATA_ROLES=server=1",
         "torchrun: STRATA_ROLES has \"server=1\"; it must be TYPE=COUNT, of type chief, worker, ps or "
         "evaluator, as in chief=1,ps=2"},
        {"STRATA_ROLES=ps",
         "torchrun: STRATA_ROLES has \"ps\"; it must be TYPE=COUNT, of type chief, worker, ps or evaluator, as "
         "in chief=1,ps=2"},
        {"STRATA_ROLES=ps=1,",
         "torchrun: STRATA_ROLES has \"\"; it must be TYPE=COUNT, of type chief, worker, ps or evaluator, "
         "as in chief=1,ps=2"},
        {"STRATA_ROLES=ps=-1", "torchrun: STRATA_ROLES has \"ps=-1\"; the count must be a whole number from 0 to 65536"},
        {"STRATA_ROLES=ps=999999999",
         "torchrun: STRATA_ROLES has \"ps=999999999\"; the count must be a whole number from 0 to 65536"},
        {"STRATA_ROLES=ps=", "torchrun: STRATA_ROLES has \"ps=\"; the count must be a whole number from 0 to 65536"},
        {"STRATA_ROLES=ps=1,ps=1", "torchrun: STRATA_ROLES names ps twice"},
        {"STRATA_ROLES=ps=4", "torchrun: STRATA_ROLES is \"ps=4\", 4 tasks in all, but the launcher started 3"},
        {"STRATA_ROLES=worker=1,ps=1",
         "torchrun: STRATA_ROLES is \"worker=1,ps=1\", 2 tasks in all, but the launcher started 3"},
        {"STRATA_ROLES=ps=3", "torchrun: there is neither a chief nor a worker, so nobody trains; add a worker"},
        {"STRATA_ROLES=chief=2", "torchrun: there are 2 tasks of type chief; a cluster has at most one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refuses(VARIABLES(TORCH("1", "3"), rows[i].roles), rows[i].message);
    refuses(VARIABLES("STRATA_ROLES=worker=2"),
            "none: STRATA_ROLES is \"worker=2\", 2 tasks in all, but the launcher started 1");
}
