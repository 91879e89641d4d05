/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun of MPICH and related programs (Hydra: MPICH, Intel MPI, MVAPICH): PMI_RANK, PMI_SIZE, MPI_LOCALRANKID,
 * MPI_LOCALNRANKS. Only Hydra sets the last two: srun also sets PMI_*, and then Slurm's variables are used. mpirun passes
 * neither an address nor the name of the job. If all ranks are on this host, they connect on the loopback. The port is derived
 * from the process id of Hydra's proxy, the parent of all ranks, which created the socket PMI_FD. Otherwise the user sets
 * STRATA_RENDEZVOUS, which mpirun passes on. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/socket.h>

#include "cluster/resolver/resolver.h"

static bool present(const strata_cluster_options *opts) {
    return strata_environment_get(opts, "MPI_LOCALRANKID") != NULL;
}

/* The proxy's process id, also if there are scripts between the proxy and this process; 0: not known, for example if the socket
 * was not inherited. */
static int proxy_of(int socket) {
    struct ucred maker = {0};
    socklen_t bytes = sizeof maker;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &bytes) || maker.pid < 0 ? 0 : (int)maker.pid;
}

static strata_status resolve(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    int world = 0, socket = 0;
    char job[32];
    STRATA_TRY(strata_environment_int(opts, "MPICH", "PMI_SIZE", 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, "MPICH", "PMI_RANK", 0, world - 1, -1, &spec->task_index, err));
    STRATA_TRY(strata_environment_int(opts, "MPICH", "MPI_LOCALNRANKS", 1, world, 1, &spec->local_size, err));
    STRATA_TRY(strata_environment_int(opts, "MPICH", "MPI_LOCALRANKID", 0, spec->local_size - 1, -1, &spec->local_rank, err));
    STRATA_TRY(strata_environment_int(opts, "MPICH", "PMI_FD", 0, 1 << 20, 0, &socket, err));
    spec->jobs[STRATA_TASK_WORKER].n_tasks = world;
    const int proxy = socket ? proxy_of(socket) : 0;
    if (spec->local_size < world || !proxy) return STRATA_OK; /* strata_cluster_spec_resolve then requires STRATA_RENDEZVOUS */
    snprintf(job, sizeof job, "hydra.%d", proxy);
    spec->rendezvous = strata_address_make("127.0.0.1", strata_port_of(job));
    return spec->rendezvous ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
}

const strata_resolver strata_resolver_mpich = {.name = "MPICH", .present = present, .resolve = resolve};
