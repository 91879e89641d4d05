/* SPDX-License-Identifier: Apache-2.0
 *
 * torchrun and compatible launchers (PyTorchJob): RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK, LOCAL_WORLD_SIZE.
 * If torchrun's agent listens at MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE=True), rank 0 listens one port above it. */
#include <string.h>

#include "cluster/resolver/resolver.h"

static bool present(const strata_cluster_options *opts) {
    return strata_environment_get(opts, "RANK") && strata_environment_get(opts, "WORLD_SIZE");
}

static strata_status resolve(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *host = strata_environment_get(opts, "MASTER_ADDR"),
               *agent = strata_environment_get(opts, "TORCHELASTIC_USE_AGENT_STORE");
    int world = 0, port = 0, taken = agent && !strcmp(agent, "True");
    STRATA_TRY(strata_environment_int(opts, "torchrun", "WORLD_SIZE", 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, "torchrun", "RANK", 0, world - 1, -1, &spec->task_index, err));
    STRATA_TRY(strata_environment_int(opts, "torchrun", "LOCAL_WORLD_SIZE", 1, world, 1, &spec->local_size, err));
    STRATA_TRY(strata_environment_int(opts, "torchrun", "LOCAL_RANK", 0, world - 1, 0, &spec->local_rank, err));
    if (spec->local_rank >= spec->local_size)
        spec->local_size = spec->local_rank + 1; /* not every launcher sets LOCAL_WORLD_SIZE */
    spec->jobs[STRATA_TASK_WORKER].n_tasks = world;
    if (!host) return STRATA_OK;
    STRATA_TRY(strata_environment_int(opts, "torchrun", "MASTER_PORT", 1, 65535 - taken, -1, &port, err));
    spec->rendezvous = strata_address_make(host, port + taken);
    return spec->rendezvous ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
}

const strata_resolver strata_resolver_torchrun = {.name = "torchrun", .present = present, .resolve = resolve};
