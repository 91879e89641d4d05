/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients in buckets. The gradient program of a large model sends a bucket as soon as the backward pass has computed it,
 * beginning with the last layers. The worker pushes the bucket's shards to the servers while the device computes the next one.
 * Servers store these parts, and apply them with the push at the end of the unit. Without that push, for example because a
 * gradient is not finite, the parts are not used. */
#include <stdlib.h>
#include <string.h>

#include "strategies/parameter_server/worker.h"

bool strata_ps_all_finite(const float *values, int64_t n) {
    uint32_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        wrong |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !wrong;
}

static bool lies_in(const strata_ps_shard *shard, const struct strata_gradient_bucket *bucket) {
    return shard->first >= bucket->begin && shard->first < bucket->end;
}

/* Fills a part for a server; n shards, all of which lie in the bucket. Shards are parts of one parameter, and buckets end
 * between parameters, so a shard lies in one bucket. */
static strata_status prepare_part(const strata_ps_worker *w, int server, const struct strata_gradient_bucket *bucket, int n,
                                  strata_ps_part *part, int *out_n_pieces, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const strata_dtype wire = w->task->wire;
    const strata_ps_part_ask ask = {.group = server, .attempt = w->buckets.attempt};
    int64_t elements = 0;
    for (int i = 0; i < plan->sizes[server].n_dense; i++) elements += lies_in(&shards[i], bucket) ? shards[i].n : 0;
    part->head = malloc(sizeof ask + (size_t)n * sizeof(int32_t));
    part->pieces = malloc((size_t)n * sizeof *part->pieces);
    part->narrow = malloc(wire == STRATA_DTYPE_F32 ? 1 : (size_t)elements * strata_dtype_bytes(wire));
    if (!part->head || !part->pieces || !part->narrow) return strata_ps_worker_no_memory(err);
    memcpy(part->head, &ask, sizeof ask);
    unsigned char *at = part->narrow;
    for (int32_t i = 0, k = 0; i < plan->sizes[server].n_dense; i++) {
        if (!lies_in(&shards[i], bucket)) continue;
        const float *values = w->unit.sums_of_dense + shards[i].first;
        const size_t bytes = (size_t)shards[i].n * strata_dtype_bytes(wire);
        memcpy(part->head + sizeof ask + (size_t)k * sizeof i, &i, sizeof i);
        part->pieces[k++] = (struct iovec){wire == STRATA_DTYPE_F32 ? (void *)values : at, bytes}; /* only read */
        if (wire == STRATA_DTYPE_F32) continue;
        strata_ps_narrow(wire, values, shards[i].n, at);
        at += bytes;
    }
    *out_n_pieces = n;
    return STRATA_OK;
}

static strata_status push_part(strata_ps_worker *w, int server, const struct strata_gradient_bucket *bucket,
                               strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    strata_rpc_client *client = NULL;
    int n = 0, n_pieces = 0;
    for (int i = 0; i < plan->sizes[server].n_dense; i++) n += lies_in(&shards[i], bucket);
    if (!n) return STRATA_OK;
    strata_ps_part *part = &w->buckets.parts[w->buckets.n_parts++];
    STRATA_TRY(prepare_part(w, server, bucket, n, part, &n_pieces, err));
    const strata_rpc_ask ask = {.method = STRATA_PS_PART,
                                .head = part->head,
                                .head_bytes = sizeof(strata_ps_part_ask) + (size_t)n * sizeof(int32_t),
                                .body = part->pieces,
                                .n_body = n_pieces,
                                .what = "a part of a push"};
    STRATA_TRY(strata_ps_reach(w, server, &client, err));
    STRATA_TRY(strata_rpc_client_start(client, &ask, NULL, STRATA_PS_CALL_SECONDS, &part->request, err));
    for (int i = 0; i < n_pieces; i++) w->reports.now.bytes += (int64_t)part->pieces[i].iov_len;
    w->buckets.n_parted[server] += n;
    return STRATA_OK;
}

/* A failure to push the bucket is reported with the final push. */
void strata_ps_take_bucket(void *task, int k, const void *data, size_t bytes) {
    strata_ps_worker *w = ((const strata_ps_task *)task)->worker;
    if (!w || !w->buckets.layout) return;
    const struct strata_gradient_bucket *bucket = &w->buckets.layout->buckets[k];
    const int64_t dense = w->model->parameters.dense_size, n = (int64_t)(bytes / sizeof(float));
    const int64_t rest = dense - bucket->begin, own = n < rest ? n : rest;
    const float *values = data;
    float *sums = w->unit.sums_of_dense + bucket->begin;
    if (w->buckets.first_batch) memcpy(sums, values, (size_t)own * sizeof *sums);
    for (int64_t i = 0; i < own && !w->buckets.first_batch; i++) sums[i] += values[i];
    if (!w->buckets.streams || w->buckets.stopped || w->buckets.status) return;
    w->buckets.stopped = !strata_ps_all_finite(sums, own);
    for (int s = 0; s < w->links.n_servers && !w->buckets.stopped && !w->buckets.status; s++)
        w->buckets.status = push_part(w, s, bucket, &w->buckets.error);
}

/* Whether the unit's buckets may be pushed before all of its gradients are known. This is not possible if a loss scale or the
 * norm of all gradients scales them, or if this norm is reported. */
static bool may_stream(const strata_ps_worker *w) {
    enum { MOST_SHARDS = (STRATA_RPC_HEAD_BYTES - (int)sizeof(strata_ps_part_ask)) / (int)sizeof(int32_t) };
    const bool needs_norm = (w->model->optimizer.clip_global_norm > 0 || w->model->measures_norm) && !w->task->pace.n_shares;
    for (int s = 0; s < w->links.n_servers; s++)
        if (w->fit->plan.sizes[s].n_dense > MOST_SHARDS) return false;
    return !needs_norm && !(w->model->scale.value > 0);
}

void strata_ps_begin_buckets(strata_ps_worker *w, const strata_model_program *program, bool first, bool last) {
    const strata_status ignored = strata_ps_finish_parts(w, NULL); /* parts of an earlier unit that was not pushed */
    (void)ignored;
    w->task->worker = w;
    w->buckets.layout = &program->layout;
    w->buckets.first_batch = first;
    w->buckets.streams = last && program->layout.n_buckets && may_stream(w);
    w->buckets.stopped = false;
    w->buckets.status = STRATA_OK;
    memset(w->buckets.n_parted, 0, (size_t)w->links.n_servers * sizeof *w->buckets.n_parted);
    if (w->buckets.streams) w->buckets.attempt++;
}

strata_status strata_ps_finish_parts(strata_ps_worker *w, strata_error *err) {
    strata_status status = w->buckets.status ? strata_fail(err, w->buckets.status, "%s", w->buckets.error.message) : STRATA_OK;
    for (int i = 0; i < w->buckets.n_parts; i++) {
        strata_ps_part *part = &w->buckets.parts[i];
        const strata_status one = part->request ? strata_rpc_request_wait(part->request, status ? NULL : err) : STRATA_OK;
        if (!status) status = one;
        free(part->head);
        free(part->pieces);
        free(part->narrow);
        *part = (strata_ps_part){0};
    }
    w->buckets.n_parts = 0;
    return status;
}

bool strata_ps_was_parted(const strata_ps_worker *w, int server) {
    const int n = w->fit->plan.sizes[server].n_dense;
    return n > 0 && w->buckets.streams && !w->buckets.stopped && w->buckets.n_parted[server] == n;
}
