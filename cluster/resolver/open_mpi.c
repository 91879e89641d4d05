/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun of Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE. mpirun passes no address. If all ranks are on this
 * host, they connect on the loopback, at a port that is derived from the job's name (PMIX_NAMESPACE). Otherwise the user passes
 * the address by `mpirun -x STRATA_RENDEZVOUS=HOST:PORT`. */
#include "cluster/resolver/resolver.h"

static bool present(const strata_cluster_options *opts) {
    return strata_environment_get(opts, "OMPI_COMM_WORLD_RANK") != NULL;
}

static strata_status resolve(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *job = strata_environment_get(opts, "PMIX_NAMESPACE");
    int world = 0;
    STRATA_TRY(strata_environment_int(opts, "Open MPI", "OMPI_COMM_WORLD_SIZE", 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, "Open MPI", "OMPI_COMM_WORLD_RANK", 0, world - 1, -1, &spec->task_index, err));
    STRATA_TRY(strata_environment_int(opts, "Open MPI", "OMPI_COMM_WORLD_LOCAL_SIZE", 1, world, 1, &spec->local_size, err));
    STRATA_TRY(strata_environment_int(opts, "Open MPI", "OMPI_COMM_WORLD_LOCAL_RANK", 0, spec->local_size - 1, 0,
                                      &spec->local_rank, err));
    spec->jobs[STRATA_TASK_WORKER].n_tasks = world;
    if (spec->local_size < world || !job) return STRATA_OK; /* strata_cluster_spec_resolve then requires STRATA_RENDEZVOUS */
    spec->rendezvous = strata_address_make("127.0.0.1", strata_port_of(job));
    return spec->rendezvous ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
}

const strata_resolver strata_resolver_open_mpi = {.name = "Open MPI", .present = present, .resolve = resolve};
