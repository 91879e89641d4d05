/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of Slurm (srun): SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE, SLURM_LOCALID. A
 * script of sbatch outside of srun has no SLURM_STEP_*; it is a single process. Task k of a host listens at port base + k. The
 * base is STRATA_PORT, or it is derived from job and step, so that two jobs on a node use different ports. Hosts stay in
 * Slurm's order, in which it numbers tasks: sorting them as text would put n10 before n2. */
#include <stdio.h>

#include "cluster/resolver/resolver.h"
#include "core/base/alloc.h"

static strata_status port_base(const strata_cluster_options *opts, int *out_port, strata_error *err) {
    const char *job = strata_environment_get(opts, "SLURM_JOB_ID"), *step = strata_environment_get(opts, "SLURM_STEP_ID");
    char name[64];
    snprintf(name, sizeof name, "%.30s.%.30s", job ? job : "", step ? step : "");
    return strata_environment_int(opts, "Slurm", "STRATA_PORT", 1, 65535, strata_port_of(name), out_port, err);
}

/* Adds the tasks in the order of their ranks: ranks fill one node after the other (block, the default), or are assigned in turn
 * to the nodes that still have room (cyclic). */
static strata_status add_tasks(const strata_host_list *list, const int *counts, bool cyclic, int world, int port,
                               strata_cluster_spec *spec, strata_error *err) {
    STRATA_FREED int *used = NULL;
    STRATA_TRY(STRATA_NEW(used, list->n_hosts, err, "no memory for %d nodes", list->n_hosts));
    for (int rank = 0, node = 0; rank < world; rank++) {
        while (used[node] == counts[node]) node = (node + 1) % list->n_hosts;
        STRATA_TRY(strata_cluster_spec_add_host(spec, list->hosts[node], port + used[node]++, err));
        if (cyclic) node = (node + 1) % list->n_hosts;
    }
    return STRATA_OK;
}

static strata_status place_tasks(const strata_cluster_options *opts, const strata_host_list *list, const int *counts, int world,
                                 strata_cluster_spec *spec, strata_error *err) {
    const char *order = strata_environment_get(opts, "SLURM_DISTRIBUTION");
    int64_t total = 0;
    int port = 0, node = 0, most = 0;
    for (int i = 0; i < list->n_hosts; i++) {
        total += counts[i];
        if (counts[i] > most) most = counts[i];
    }
    if (total != world)
        return strata_fail(err, STRATA_DATA, "Slurm: SLURM_STEP_NUM_TASKS is %d, but SLURM_STEP_TASKS_PER_NODE adds up to %lld",
                           world, (long long)total);
    STRATA_TRY(port_base(opts, &port, err));
    if (port + most - 1 > 65535)
        return strata_fail(err, STRATA_DATA,
                           "Slurm: STRATA_PORT is %d; with %d tasks on a node the last port would be beyond 65535", port, most);
    STRATA_TRY(strata_environment_int(opts, "Slurm", "SLURM_NODEID", 0, list->n_hosts - 1, 0, &node, err));
    spec->local_size = counts[node];
    STRATA_TRY(strata_environment_int(opts, "Slurm", "SLURM_LOCALID", 0, spec->local_size - 1, -1, &spec->local_rank, err));
    bool cyclic = order && !strncmp(order, "cyclic", 6);
    if (!order || cyclic || !strncmp(order, "block", 5)) return add_tasks(list, counts, cyclic, world, port, spec, err);
    /* with the distributions plane and arbitrary only the host of rank 0 is known */
    spec->jobs[STRATA_TASK_WORKER].n_tasks = world;
    return strata_cluster_spec_meet(spec, list->hosts[0], port, err);
}

strata_status strata_resolve_slurm(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *nodes = strata_environment_get(opts, "SLURM_STEP_NODELIST");
    const char *tasks = strata_environment_get(opts, "SLURM_STEP_TASKS_PER_NODE");
    STRATA_FINISHED(strata_host_list) list = {0};
    STRATA_FREED int *counts = NULL;
    int world = 0;
    STRATA_TRY(strata_environment_int(opts, "Slurm", "SLURM_STEP_NUM_TASKS", 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, "Slurm", "SLURM_PROCID", 0, world - 1, -1, &spec->task_index, err));
    if (!tasks)
        return strata_fail(err, STRATA_DATA,
                           "Slurm: SLURM_STEP_TASKS_PER_NODE is not set, SLURM_STEP_NODELIST is; srun sets both");
    STRATA_TRY(strata_host_list_expand("SLURM_STEP_NODELIST", nodes, &list, err));
    STRATA_TRY(STRATA_NEW(counts, list.n_hosts, err, "no memory for %d nodes", list.n_hosts));
    STRATA_TRY(strata_task_counts_expand("SLURM_STEP_TASKS_PER_NODE", tasks, counts, list.n_hosts, err));
    return place_tasks(opts, &list, counts, world, spec, err);
}
