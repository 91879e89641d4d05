/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers whose variables say how many processes there are, and which of them this is: torchrun and compatible ones
 * (PyTorchJob), mpirun of Open MPI, and Hydra, the mpirun of MPICH, Intel MPI and MVAPICH. srun also sets PMI_*, but not
 * MPI_LOCAL*, which only Hydra sets.
 *
 * Rank 0 of torchrun is at MASTER_ADDR and MASTER_PORT, or one port above it, if torchrun's agent listens there itself
 * (TORCHELASTIC_USE_AGENT_STORE=True). An mpirun passes no address. If all ranks are on this host, they connect on the
 * loopback, at a port that is derived from the job: Open MPI's name of it (PMIX_NAMESPACE), or the process id of Hydra's proxy,
 * the parent of all ranks, which created the socket PMI_FD. Otherwise the user sets STRATA_RENDEZVOUS (`mpirun -x` of Open
 * MPI). */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "cluster/resolver/resolver.h"

/* The variables of the numbers of processes and of this process, in the job and on this host. */
typedef struct numbers {
    const char *world, *rank, *local_size, *local_rank;
} numbers;

/* local_size may be absent: then it is at least 1, and above local_rank. */
static strata_status read_numbers(const strata_cluster_options *opts, const numbers *n, bool local_size_may_be_absent,
                                  strata_cluster_spec *spec, strata_error *err) {
    int world = 0;
    STRATA_TRY(strata_environment_int(opts, spec->source, n->world, 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, spec->source, n->rank, 0, world - 1, -1, &spec->task_index, err));
    STRATA_TRY(strata_environment_int(opts, spec->source, n->local_size, 1, world, 1, &spec->local_size, err));
    const int most = local_size_may_be_absent ? world : spec->local_size;
    STRATA_TRY(strata_environment_int(opts, spec->source, n->local_rank, 0, most - 1, 0, &spec->local_rank, err));
    if (spec->local_rank >= spec->local_size) spec->local_size = spec->local_rank + 1;
    spec->jobs[STRATA_TASK_WORKER].n_tasks = world;
    return STRATA_OK;
}

strata_status strata_resolve_torchrun(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    static const numbers names = {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"};
    const char *host = strata_environment_get(opts, "MASTER_ADDR"),
               *agent = strata_environment_get(opts, "TORCHELASTIC_USE_AGENT_STORE");
    int port = 0;
    const int taken = agent && !strcmp(agent, "True");
    STRATA_TRY(read_numbers(opts, &names, true, spec, err)); /* not every launcher sets LOCAL_WORLD_SIZE */
    if (!host) return STRATA_OK;
    STRATA_TRY(strata_environment_int(opts, spec->source, "MASTER_PORT", 1, 65535 - taken, -1, &port, err));
    return strata_cluster_spec_meet(spec, host, port + taken, err);
}

/* If not all ranks are on this host, or `job` is not known (""), strata_cluster_spec_resolve requires STRATA_RENDEZVOUS. */
static strata_status meet_on_loopback(const char *job, strata_cluster_spec *spec, strata_error *err) {
    if (spec->local_size < spec->jobs[STRATA_TASK_WORKER].n_tasks || !*job) return STRATA_OK;
    return strata_cluster_spec_meet(spec, "127.0.0.1", strata_port_of(job), err);
}

strata_status strata_resolve_open_mpi(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    static const numbers names = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK"};
    const char *job = strata_environment_get(opts, "PMIX_NAMESPACE");
    STRATA_TRY(read_numbers(opts, &names, false, spec, err));
    return meet_on_loopback(job ? job : "", spec, err);
}

strata_status strata_resolve_mpich(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    static const numbers names = {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"};
    struct ucred proxy = {0}; /* the maker of the socket, also if there are scripts between the proxy and this process */
    socklen_t bytes = sizeof proxy;
    int socket = 0;
    char job[32] = "";
    STRATA_TRY(read_numbers(opts, &names, false, spec, err));
    STRATA_TRY(strata_environment_int(opts, spec->source, "PMI_FD", 0, 1 << 20, 0, &socket, err));
    if (socket && !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &proxy, &bytes) && proxy.pid > 0) /* else it was not inherited */
        snprintf(job, sizeof job, "hydra.%d", (int)proxy.pid);
    return meet_on_loopback(job, spec, err);
}
