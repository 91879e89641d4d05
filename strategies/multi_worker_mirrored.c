/* SPDX-License-Identifier: Apache-2.0
 *
 * multi_worker_mirrored: each worker of a job trains as with mirrored, and the communicator adds the workers' sums in rank
 * order. Every replica of every worker makes the same update of its copy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/subset.h"
#include "strata/cluster_spec.h"
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_multi_worker_mirrored = {
    .name = "multi_worker_mirrored", .most_devices = -1, .mesh = STRATA_MESH_OF_JOB};

static strata_status sum(const strata_workers *workers, strata_dtype dtype, strata_dtype wire, const void *own, void *out_sum,
                         int64_t elements, strata_error *err) {
    const strata_collective what = {
        .kind = STRATA_ALL_REDUCE, .in = own, .out = out_sum, .count = (size_t)elements, .dtype = dtype, .wire = wire};
    return strata_communicator_run(workers->communicator, &what, err);
}

static uint64_t bytes_sent(const strata_workers *workers) {
    return strata_communicator_bytes_sent(workers->communicator);
}

static void at_step(const strata_workers *workers, int64_t step) {
    strata_communicator_set_step(workers->communicator, step);
}

static strata_status broadcast(const strata_workers *workers, strata_dtype dtype, void *data, int64_t elements,
                               strata_error *err) {
    return strata_communicator_broadcast(workers->communicator, data, (size_t)elements, dtype, 0, err);
}

static strata_status reduce_scatter(const strata_workers *workers, strata_dtype dtype, strata_dtype wire, const void *own,
                                    void *out_part, const size_t *counts, strata_error *err) {
    const strata_collective what = {
        .kind = STRATA_REDUCE_SCATTER, .in = own, .out = out_part, .counts = counts, .dtype = dtype, .wire = wire};
    return strata_communicator_run(workers->communicator, &what, err);
}

static strata_status all_gather(const strata_workers *workers, const void *own, void *out_all, const size_t *bytes,
                                strata_error *err) {
    return strata_communicator_all_gather(workers->communicator, own, out_all, 0, bytes, STRATA_DTYPE_U8, err);
}

static strata_status wait_for_message(int peer, strata_request *request, strata_error *err) {
    const strata_status status = strata_request_wait(request, err);
    return status ? strata_fail_in(err, status, "a value between this worker and worker %d", peer) : STRATA_OK;
}

static strata_status send(const strata_workers *workers, int to, int64_t tag, const void *data, size_t bytes,
                          strata_error *err) {
    strata_request *request;
    STRATA_TRY(strata_message_start_send(workers->communicator, data, bytes, to, STRATA_RESERVED_TAGS + tag, &request, err));
    return wait_for_message(to, request, err);
}

static strata_status receive(const strata_workers *workers, int from, int64_t tag, void *data, size_t bytes,
                             strata_error *err) {
    strata_request *request;
    strata_message message = {0};
    STRATA_TRY(strata_message_start_receive(workers->communicator, data, bytes, from, STRATA_RESERVED_TAGS + tag, &message,
                                            &request, err));
    STRATA_TRY(wait_for_message(from, request, err));
    if (message.bytes == bytes) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "worker %d sent %zu bytes with tag %lld; this one receives %zu", from,
                       message.bytes, (long long)tag, bytes);
}

static strata_status subset(const strata_workers *workers, const int *ranks, int n, const int64_t *members, int n_members,
                            strata_workers *out_workers, strata_error *err) {
    strata_communicator *among = NULL;
    STRATA_TRY(strata_communicator_subset(workers->communicator, ranks, n, members, n_members, &among, err));
    *out_workers = *workers;
    out_workers->communicator = among;
    out_workers->rank = strata_communicator_rank(among);
    out_workers->n = n;
    out_workers->first_replicas = NULL;
    return STRATA_OK;
}

/* ---- joining ---- */

/* Compares the devices that make updates on all workers: whether they are of one kind, as within a worker (strategy.c). */
static strata_status compare_devices(strata_strategy *strategy, strata_communicator *communicator, strata_error *err) {
    const strata_device_info *device = strata_device_get_info(strategy->devices[strata_strategy_root(strategy)]);
    char name[512] = "", chiefs[sizeof name];
    snprintf(name, sizeof name, "%s, %s, %s", device->backend, device->name, device->driver);
    memcpy(chiefs, name, sizeof name);
    STRATA_TRY(strata_communicator_broadcast(communicator, chiefs, sizeof chiefs, STRATA_DTYPE_U8, 0, err));
    int32_t differ = memcmp(chiefs, name, sizeof name) != 0;
    STRATA_TRY(strata_communicator_all_reduce(communicator, &differ, 1, STRATA_DTYPE_I32, STRATA_REDUCER_MAX, err));
    strategy->workers.mixed = differ != 0;
    return STRATA_OK;
}

strata_status strata_strategy_meet(const strata_strategy_kind *kind, strata_strategy_options *opts, strata_error *err) {
    const char *secret = getenv("STRATA_SECRET");
    strata_cluster_spec spec = {0};
    STRATA_TRY(strata_cluster_spec_resolve(NULL, &spec, err));
    const strata_communicator_options communicator = {.rank = spec.rank,
                                                      .world = spec.world_size,
                                                      .store = spec.rendezvous,
                                                      .address = strata_cluster_spec_address(&spec, spec.rank),
                                                      .secret = secret,
                                                      .secret_bytes = secret ? strlen(secret) : 0};
    strata_status status = STRATA_OK;
    if (!(kind->mesh == STRATA_MESH_OF_SYSTEM || kind->average || kind->has_mesh) || spec.world_size > 1)
        status = strata_communicator_create(&communicator, &opts->communicator, err);
    if (!opts->local_size) opts->local_rank = spec.local_rank, opts->local_size = spec.local_size;
    strata_cluster_spec_finish(&spec);
    return status;
}

strata_status strata_strategy_join(strata_strategy *strategy, strata_communicator *communicator, strata_error *err) {
    const int world = strata_communicator_world(communicator), rank = strata_communicator_rank(communicator);
    const int own = strategy->n_replicas;
    strata_workers *workers = &strategy->workers;
    *workers = (strata_workers){.rank = rank,
                                .n = world,
                                .sum = sum,
                                .broadcast = broadcast,
                                .reduce_scatter = reduce_scatter,
                                .all_gather = all_gather,
                                .send = send,
                                .receive = receive,
                                .subset = subset,
                                .bytes_sent = bytes_sent,
                                .at_step = at_step,
                                .first_replicas = calloc((size_t)world + 1, sizeof(int)),
                                .share_cores = strata_communicator_shares_cores(communicator),
                                .communicator = communicator};
    if (!workers->first_replicas)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d workers", world);
    STRATA_TRY(strata_communicator_all_gather(communicator, &own, workers->first_replicas + 1, 1, NULL, STRATA_DTYPE_I32, err));
    STRATA_TRY(compare_devices(strategy, communicator, err));
    for (int w = 0; w < world; w++) workers->first_replicas[w + 1] += workers->first_replicas[w];
    workers->first_replica = workers->first_replicas[rank];
    workers->n_replicas = workers->first_replicas[world];
    return STRATA_OK;
}
