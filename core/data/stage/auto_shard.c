/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the dataset of one of several workers: the same stages over the worker's share of the files, or with the worker's shard
 * in the place of a shard_hint stage. The stages after such a change are created again with a copy of their state. The other
 * stages are shared with the original dataset. */

#include "core/data/dataset.h"
#include "core/data/stage/stage.h"

typedef struct sharding {
    strata_auto_shard policy;
    int64_t n, worker;
} sharding;

static bool has_files(const strata_dataset *dataset) {
    if (dataset->n_files > 0) return true;
    for (int i = 0; i < dataset->n_parents; i++)
        if (has_files(dataset->parents[i])) return true;
    return false;
}

strata_auto_shard strata_auto_shard_resolve(const strata_dataset *dataset, strata_auto_shard policy) {
    if (policy != STRATA_SHARD_AUTO) return policy;
    return has_files(dataset) ? STRATA_SHARD_FILE : STRATA_SHARD_DATA;
}

static strata_status shard_files(const sharding *s, const strata_dataset *dataset, strata_dataset **out, strata_error *err) {
    if (dataset->n_files < s->n)
        return strata_fail(err, STRATA_INVALID,
                           "auto_shard: FILE divides %lld files among %lld workers, and each needs one; use DATA, or as many "
                           "files as workers",
                           (long long)dataset->n_files, (long long)s->n);
    return dataset->stage->shard_files(dataset, s->n, s->worker, out, err);
}

/* Creates the dataset's stage with other parents, which it takes, also on failure. */
static strata_status rebuild(const strata_dataset *dataset, strata_dataset **parents, strata_dataset **out, strata_error *err) {
    const strata_stage *stage = dataset->stage;
    strata_dataset *made = NULL;
    strata_status status = strata_stage_create(stage, parents, dataset->n_parents, dataset->state, dataset->state_bytes,
                                               &dataset->spec, &made, err);
    for (int i = 0; i < dataset->n_parents && status; i++) strata_dataset_destroy(parents[i]);
    if (status) return status;
    made->n_shuffles = dataset->n_shuffles;
    made->n_classes = dataset->n_classes;
    /* If the stage has as many elements as its parent had, the new stage has as many as its new parent. Otherwise its size is
     * not known before an iteration. */
    if (dataset->n_parents != 1 || dataset->n != dataset->parents[0]->n) made->n = STRATA_SIZE_UNKNOWN;
    if (dataset->n == STRATA_SIZE_INFINITE) made->n = STRATA_SIZE_INFINITE;
    if (stage->renew) stage->renew(made);
    *out = made;
    return STRATA_OK;
}

/* Takes the parent, also on failure. */
static strata_status replace_hint(const sharding *s, strata_dataset *parent, strata_dataset **out, strata_error *err) {
    STRATA_OWNED(strata_dataset) *made = parent;
    const int64_t before = parent->n;
    STRATA_TRY(strata_dataset_shard_required(&made, s->n, s->worker, err));
    if (before >= 0 && before < s->n)
        return strata_fail(err, STRATA_INVALID, "shard_hint: %lld elements for %lld workers; there must be one for each",
                           (long long)before, (long long)s->n);
    *out = strata_released(&made);
    return STRATA_OK;
}

static strata_status rewrite(const sharding *s, strata_dataset *dataset, strata_dataset **out, strata_error *err) {
    strata_dataset *parents[STRATA_MAX_PARENTS] = {NULL};
    strata_status status = STRATA_OK;
    bool changed = false;
    if (s->policy == STRATA_SHARD_FILE && dataset->n_files > 0) return shard_files(s, dataset, out, err);
    for (int i = 0; i < dataset->n_parents && !status; i++) {
        status = rewrite(s, dataset->parents[i], &parents[i], err);
        changed |= parents[i] != dataset->parents[i];
    }
    if (!status && s->policy == STRATA_SHARD_HINT && dataset->stage == &strata_stage_shard_hint)
        return replace_hint(s, parents[0], out, err);
    if (!status && changed) return rebuild(dataset, parents, out, err);
    for (int i = 0; i < dataset->n_parents; i++) strata_dataset_destroy(parents[i]);
    if (!status) *out = strata_dataset_retain(dataset);
    return status;
}

strata_status strata_dataset_auto_shard(const strata_dataset *dataset, strata_auto_shard policy, int64_t n, int64_t worker,
                                        strata_dataset **out_dataset, strata_error *err) {
    if (n < 1 || worker < 0 || worker >= n)
        return strata_fail(err, STRATA_INVALID, "auto_shard: worker %lld of %lld; it must be 0 to n - 1", (long long)worker,
                           (long long)n);
    if ((unsigned)policy > STRATA_SHARD_OFF)
        return strata_fail(err, STRATA_INVALID, "auto_shard: there is no policy %d", (int)policy);
    const sharding s = {strata_auto_shard_resolve(dataset, policy), n, worker};
    strata_dataset *whole = (strata_dataset *)dataset; /* only its reference count changes */
    if (s.policy == STRATA_SHARD_FILE && !has_files(dataset))
        return strata_fail(
            err, STRATA_INVALID,
            "auto_shard: FILE needs a source that reads files (strata_dataset_from_files), and the data have none; use DATA");
    if (s.policy == STRATA_SHARD_DATA || s.policy == STRATA_SHARD_OFF) {
        *out_dataset = strata_dataset_retain(whole);
        return STRATA_OK;
    }
    STRATA_TRY(rewrite(&s, whole, out_dataset, err));
    if (s.policy != STRATA_SHARD_HINT || *out_dataset != whole) return STRATA_OK;
    strata_dataset_destroy(*out_dataset);
    return strata_fail(
        err, STRATA_INVALID,
        "auto_shard: HINT needs a strata_dataset_shard_hint in the pipeline, and there is none; add one, or use DATA");
}
