/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for all resolvers: who is asked first, the rendezvous, the place among the tasks of a host. */
#include "cluster/resolver/resolver.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/resolver/resolved.h"

#define TF    "TF_CONFIG={\"cluster\":{\"worker\":[\"tf:1\",\"tf:2\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"
#define TORCH "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=torch", "MASTER_PORT=1"
#define MPI   "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1"
#define HYDRA "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1", "STRATA_RENDEZVOUS=m:1"
#define SLURM \
    "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=s", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_LOCALID=1"
#define KUBERNETES "JOB_COMPLETION_INDEX=1", "HOSTNAME=k-1", "STRATA_WORLD_SIZE=2"

static void source_is(const char *const *variables, const char *source) {
    strata_cluster_spec spec = resolved(variables);
    cr_expect_str_eq(spec.source, source);
    strata_cluster_spec_finish(&spec);
}

Test(resolver, the_nearest_launcher_decides) {
    source_is(VARIABLES(KUBERNETES, SLURM, HYDRA, MPI, TORCH, TF, "STRATA_CLUSTER=a:1"), "--cluster");
    source_is(VARIABLES(KUBERNETES, SLURM, HYDRA, MPI, TORCH, TF), "TF_CONFIG");
    source_is(VARIABLES(KUBERNETES, SLURM, HYDRA, MPI, TORCH), "torchrun");
    source_is(VARIABLES(KUBERNETES, SLURM, HYDRA, MPI), "Open MPI");
    source_is(VARIABLES(KUBERNETES, SLURM, HYDRA), "MPICH");
    source_is(VARIABLES(KUBERNETES, SLURM, "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=3"), "Slurm"); /* srun for an MPICH */
    source_is(VARIABLES(KUBERNETES, SLURM), "Slurm");
    source_is(VARIABLES(KUBERNETES), "Kubernetes");
    source_is(NO_VARIABLES, "none");
}

Test(resolver, a_rendezvous_that_is_said_wins) {
    strata_cluster_options opts = options_in(VARIABLES(TF, "STRATA_RENDEZVOUS=v:1"));
    tells(VARIABLES(TF, "STRATA_RENDEZVOUS=v:1"), "worker tf:1 tf:2; I am worker:1, rank 1 of 2, local 1 of 2; v:1");
    tells(VARIABLES(TORCH, "STRATA_RENDEZVOUS=v:1"), "worker x2; I am worker:1, rank 1 of 2, local 0 of 1; v:1");
    opts.rendezvous = "o:1";
    strata_cluster_spec spec = resolved_by(opts);
    cr_expect_str_eq(spec.rendezvous, "o:1");
    strata_cluster_spec_finish(&spec);
    opts.rendezvous = "o";
    refuses_by(opts, STRATA_INVALID, "the rendezvous: \"o\" has no port; it must be host:port");
    refuses(VARIABLES(TF, "STRATA_RENDEZVOUS=v"), "STRATA_RENDEZVOUS: \"v\" has no port; it must be host:port");
}

Test(resolver, a_place_on_the_host_that_is_said_wins) {
    tells(VARIABLES(TF, "STRATA_LOCAL_RANK=0", "STRATA_LOCAL_SIZE=1"),
          "worker tf:1 tf:2; I am worker:1, rank 1 of 2, local 0 of 1; tf:1");
    refuses(VARIABLES(TF, "STRATA_LOCAL_RANK=0"),
            "TF_CONFIG: STRATA_LOCAL_SIZE is not set; the launcher sets it, or say who is in the job by --cluster and --task");
    refuses(VARIABLES(TF, "STRATA_LOCAL_RANK=1", "STRATA_LOCAL_SIZE=1"),
            "TF_CONFIG: STRATA_LOCAL_RANK is \"1\"; it must be a whole number from 0 to 0");
}

Test(resolver, addresses_are_found_by_rank) {
    strata_cluster_spec spec = resolved(VARIABLES("STRATA_CLUSTER=chief=a:1;worker=b:1,c:1", "STRATA_TASK=chief"));
    cr_expect_str_eq(strata_cluster_spec_address(&spec, 0), "a:1");
    cr_expect_str_eq(strata_cluster_spec_address(&spec, 2), "c:1");
    cr_expect_null(strata_cluster_spec_address(&spec, 3));
    cr_expect_null(strata_cluster_spec_address(&spec, -1));
    strata_cluster_spec_finish(&spec);
    spec = resolved(VARIABLES(TORCH));
    cr_expect_null(strata_cluster_spec_address(&spec, 0));
    strata_cluster_spec_finish(&spec);
}

Test(resolver, reads_the_process_environment_without_a_lookup) {
    strata_cluster_spec spec;
    cr_assert_eq(strata_cluster_spec_resolve(NULL, &spec, NULL), STRATA_OK);
    cr_expect_eq(spec.world_size, 1);
    strata_cluster_spec_finish(&spec);
}

Test(resolver, types_have_names) {
    cr_expect_str_eq(strata_task_type_name(STRATA_TASK_PS), "ps");
    cr_expect_str_eq(strata_task_type_name(STRATA_TASK_TYPES), "unknown");
}
