/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun of MPICH and its kin (Hydra: MPICH, Intel MPI, MVAPICH): PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS. The
 * last two are Hydra's alone: srun too sets PMI_*, and then Slurm's own words count. It names neither an address nor the job.
 * When all ranks are on this host they meet on the loopback, at a port made from the process that watches over them, Hydra's
 * proxy, which made the socket PMI_FD; else STRATA_RENDEZVOUS says it, which mpirun passes on. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/socket.h>

#include "cluster/resolver/resolver.h"

static bool present(const strata_cluster_options *opts) {
    return strata_environment_get(opts, "MPI_LOCALRANKID") != NULL;
}

/* The proxy's process id, which scripts between it and us don't change; 0: not known, as over a socket that we did not
 * inherit. */
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
    if (spec->local_size < world || !proxy) return STRATA_OK; /* strata_cluster_spec_resolve asks for STRATA_RENDEZVOUS */
    snprintf(job, sizeof job, "hydra.%d", proxy);
    spec->rendezvous = strata_address_make("127.0.0.1", strata_port_of(job));
    return spec->rendezvous ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
}

const strata_resolver strata_resolver_mpich = {.name = "MPICH", .present = present, .resolve = resolve};
