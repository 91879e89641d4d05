/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards of the optimizer: each replica updates one part of the parameters' flat range and owns the optimizer's slots of that
 * part only (Rajbhandari et al. 2020, "ZeRO", stage 1). An update is element-wise, and norms of parameters are added up from
 * sums of chunks, so its bits do not depend on where the range is divided. */
#include "core/model/shards.h"

/* The reason why updates cannot be sharded under this strategy; NULL: they can. */
static const char *obstacle(const strata_strategy *strategy, bool sparse) {
    if (strategy->average) return "the strategy's replicas make updates of their own";
    if (strategy->update.at) return "one device makes the update for all";
    if (sparse) return "the model has sparse parameters";
    return NULL;
}

strata_status strata_shards_decide(const strata_strategy *strategy, int n_slots, bool sparse, bool *out_sharded,
                                   strata_error *err) {
    const char *reason = obstacle(strategy, sparse);
    const bool asked = strategy->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES;
    *out_sharded = asked && n_slots && strata_strategy_num_replicas_in_sync(strategy) > 1;
    if (!asked || !reason) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "strategy %s: shard_optimizer is YES, but %s; use AUTO or NO", strategy->name,
                       reason);
}

int64_t strata_shards_cut_at(int64_t size, int r, int n, const strata_segments *whole) {
    const int64_t at = size / STRATA_PARAMETER_ALIGNMENT * r / n * STRATA_PARAMETER_ALIGNMENT;
    if (r == n) return size;
    for (int i = 0; whole && at && i < whole->n; i++)
        if ((int64_t)whole->ends[i] * STRATA_SEGMENT_CHUNK >= at) return (int64_t)whole->ends[i] * STRATA_SEGMENT_CHUNK;
    return at;
}

/* ---- segments ---- */

strata_status strata_shards_segments(const strata_model *model, int64_t begin, int64_t end, strata_segments *out_segments,
                                     strata_error *err) {
    const int64_t n_chunks = (end - begin) / STRATA_SEGMENT_CHUNK;
    int32_t *ends = calloc((size_t)model->parameters.n, sizeof *ends), *owner = calloc((size_t)n_chunks + 1, sizeof *owner);
    *out_segments = (strata_segments){.n_chunks = n_chunks, .ends = ends, .owner = owner};
    if (!ends || !owner || n_chunks > INT32_MAX)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for the places of %d parameters",
                           model->parameters.n);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (p->state || p->offset < begin || p->offset >= end) continue;
        int64_t chunk = (p->offset - begin) / STRATA_SEGMENT_CHUNK;
        int64_t last = (p->offset - begin + strata_shape_elements(p->shape) + STRATA_SEGMENT_CHUNK - 1) / STRATA_SEGMENT_CHUNK;
        if (last > n_chunks) last = n_chunks; /* the optimizer computes no norms if a shard may end within a parameter */
        for (; chunk < last; chunk++) owner[chunk] = out_segments->n;
        ends[out_segments->n++] = (int32_t)last;
    }
    return STRATA_OK;
}

void strata_shards_free_segments(strata_segments *segments) {
    free((void *)segments->ends);
    free((void *)segments->owner);
    *segments = (strata_segments){0};
}

/* ---- values ---- */

/* Sends every worker's part of the range to all workers. */
static strata_status gather_over_workers(const strata_model *model, float *values, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    int64_t begin, end;
    STRATA_FREED float *all = NULL;
    STRATA_FREED int64_t *bytes = NULL;
    STRATA_TRY(STRATA_NEW(bytes, workers->n, err, "model: no host memory for a slot"));
    strata_shards_own_range(model, &begin, &end);
    STRATA_TRY(strata_workers_gather_parts(workers, values + begin, (size_t)(end - begin) * sizeof *values, &all, bytes, err));
    memcpy(values, all, (size_t)model->parameters.flat_size * sizeof *all);
    return STRATA_OK;
}

void strata_shards_own_range(const strata_model *model, int64_t *out_begin, int64_t *out_end) {
    const strata_workers *workers = &model->strategy->workers;
    *out_begin = 0;
    *out_end = model->parameters.flat_size;
    if (!model->shards.n || !strata_strategy_has_workers(model->strategy)) return;
    *out_begin = model->shards.begins[workers->first_replicas[workers->rank]];
    *out_end = model->shards.begins[workers->first_replicas[workers->rank + 1]];
}

strata_status strata_shards_read_own_slot(strata_model *model, int slot, float *values, strata_error *err) {
    const int root = strata_strategy_root(model->strategy),
              n = model->shards.n || model->placements ? model->strategy->n_replicas : 1;
    for (int r = 0; r < n; r++) STRATA_TRY(strata_model_copy(model, root + r, slot, false, values, err));
    return STRATA_OK;
}

strata_status strata_shards_read_slot(strata_model *model, int slot, float *values, strata_error *err) {
    if (strata_strategy_mesh_has_workers(model->strategy)) return strata_model_read_slot_parts(model, slot, values, err);
    STRATA_TRY(strata_shards_read_own_slot(model, slot, values, err));
    const bool elsewhere = model->shards.n && strata_strategy_has_workers(model->strategy);
    return elsewhere ? gather_over_workers(model, values, err) : STRATA_OK;
}

strata_status strata_shards_write_slot(strata_model *model, int slot, float *values, strata_error *err) {
    for (int r = 0; r < model->strategy->n_devices; r++) STRATA_TRY(strata_model_copy(model, r, slot, true, values, err));
    return STRATA_OK;
}
