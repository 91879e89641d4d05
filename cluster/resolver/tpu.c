/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a TPU pod slice, from the variables that GKE, LeaderWorkerSet, KubeRay and Cloud TPU's images set:
 * TPU_WORKER_HOSTNAMES has the hosts, separated by commas, and TPU_WORKER_ID (else CLOUD_TPU_TASK_ID) is the position of this
 * host among them. A port after a host belongs to the TPU driver and is ignored; rank 0 listens at STRATA_PORT (2222). */
#include <string.h>

#include "cluster/resolver/resolver.h"

static const char NAME[] = "TPU";

/* Bytes of a host without the port after it; a host with several colons is an IPv6 address. */
static size_t host_length(const char *at, size_t n) {
    const char *colon = memchr(at, ':', n), *end = at + n;
    if (*at == '[') {
        const char *bracket = memchr(at, ']', n);
        return bracket ? (size_t)(bracket + 1 - at) : n;
    }
    return colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1)) ? (size_t)(colon - at) : n;
}

static strata_status add_host(const char *at, size_t n, int port, strata_cluster_spec *spec, strata_error *err) {
    char host[256];
    while (n && *at == ' ') at++, n--;
    while (n && at[n - 1] == ' ') n--;
    if (n) n = host_length(at, n);
    if (!n || n >= sizeof host)
        return strata_fail(err, STRATA_DATA, "%s: host %d of TPU_WORKER_HOSTNAMES %s", NAME,
                           spec->jobs[STRATA_TASK_WORKER].n_tasks, n ? "has more than 255 bytes" : "is empty");
    memcpy(host, at, n);
    host[n] = 0;
    return strata_cluster_spec_add_host(spec, host, port, err);
}

strata_status strata_resolve_tpu(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *id = strata_environment_get(opts, "TPU_WORKER_ID") ? "TPU_WORKER_ID" : "CLOUD_TPU_TASK_ID";
    int port = 0, slices = 0;
    STRATA_TRY(strata_environment_int(opts, NAME, "STRATA_PORT", 1, 65535, 2222, &port, err));
    STRATA_TRY(strata_environment_int(opts, NAME, "MEGASCALE_NUM_SLICES", 1, STRATA_CLUSTER_MAX_TASKS, 1, &slices, err));
    if (slices > 1)
        return strata_fail(
            err, STRATA_DATA,
            "%s: MEGASCALE_NUM_SLICES is %d, and TPU_WORKER_HOSTNAMES has the hosts of one slice; name those of all "
            "slices by --cluster and --task",
            NAME, slices);
    for (const char *at = strata_environment_get(opts, "TPU_WORKER_HOSTNAMES"); at;) {
        const char *comma = strchr(at, ',');
        STRATA_TRY(add_host(at, comma ? (size_t)(comma - at) : strlen(at), port, spec, err));
        at = comma ? comma + 1 : NULL;
    }
    if (!strata_environment_get(opts, id))
        return strata_fail(
            err, STRATA_DATA,
            "%s: TPU_WORKER_HOSTNAMES has %d hosts, and neither TPU_WORKER_ID nor CLOUD_TPU_TASK_ID says which of "
            "them this is",
            NAME, spec->jobs[STRATA_TASK_WORKER].n_tasks);
    spec->local_rank = 0; /* one process drives the chips of a host */
    spec->local_size = 1;
    return strata_environment_int(opts, NAME, id, 0, spec->jobs[STRATA_TASK_WORKER].n_tasks - 1, -1, &spec->task_index, err);
}
