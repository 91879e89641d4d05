/* SPDX-License-Identifier: Apache-2.0
 *
 * An indexed job of Kubernetes: JOB_COMPLETION_INDEX is the rank, and pod i is called <job>-i.<service>, where <job>-<index> is
 * HOSTNAME. Kubernetes passes neither the number of pods nor the headless service to a pod, so the pod's template must set:
 *   STRATA_WORLD_SIZE  completions of the job        STRATA_SERVICE  default: the job's name        STRATA_PORT  default:
 *                      2222 */
#include <stdio.h>
#include <string.h>

#include "cluster/resolver/resolver.h"

static strata_status add_pods(const char *job, int n_job, const char *service, int world, int port, strata_cluster_spec *spec,
                              strata_error *err) {
    for (int i = 0; i < world; i++) {
        char address[600];
        int n = snprintf(address, sizeof address, "%.*s-%d.%s:%d", n_job, job, i, service, port);
        if (n < 0 || (size_t)n >= sizeof address)
            return strata_fail(err, STRATA_DATA, "Kubernetes: the name of pod %d is longer than a host's name may be", i);
        STRATA_TRY(strata_cluster_spec_add(spec, STRATA_TASK_WORKER, address, (size_t)n, err));
    }
    return STRATA_OK;
}

strata_status strata_resolve_kubernetes(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *host = strata_environment_get(opts, "HOSTNAME"), *service = strata_environment_get(opts, "STRATA_SERVICE");
    int world = 0, port = 0;
    if (!strata_environment_get(opts, "STRATA_WORLD_SIZE"))
        return strata_fail(
            err, STRATA_DATA,
            "Kubernetes: JOB_COMPLETION_INDEX is set, STRATA_WORLD_SIZE is not; in the pod's template set it to the "
            "job's completions");
    STRATA_TRY(strata_environment_int(opts, "Kubernetes", "STRATA_WORLD_SIZE", 1, STRATA_CLUSTER_MAX_TASKS, -1, &world, err));
    STRATA_TRY(strata_environment_int(opts, "Kubernetes", "JOB_COMPLETION_INDEX", 0, world - 1, -1, &spec->task_index, err));
    STRATA_TRY(strata_environment_int(opts, "Kubernetes", "STRATA_PORT", 1, 65535, 2222, &port, err));
    spec->local_rank = 0; /* each pod counts as a host */
    spec->local_size = 1;
    char end[16];
    int n_end = snprintf(end, sizeof end, "-%d", spec->task_index);
    size_t n_host = host ? strcspn(host, ".") : 0;
    if (n_host <= (size_t)n_end || memcmp(host + n_host - n_end, end, (size_t)n_end) != 0)
        return strata_fail(err, STRATA_DATA,
                           "Kubernetes: HOSTNAME is \"%.100s\"; in an indexed job it must end in %s, the completion index; set "
                           "completionMode: Indexed and no hostname",
                           host ? host : "", end);
    int n_job = (int)n_host - n_end;
    char name[256];
    snprintf(name, sizeof name, "%.*s", n_job, host);
    return add_pods(host, n_job, service ? service : name, world, port, spec, err);
}
