/* SPDX-License-Identifier: Apache-2.0
 *
 * If workers read separate batches, a worker uses each batch of G rows for as many steps as there are workers: in the step with
 * turn t, worker w computes the rows of share (w + t) mod workers of its batch. So the workers' rows in a step add up to G, and
 * with OFF, where all workers read the same data, they compute different rows in the same step. */
#include "core/data/worker_batches.h"

#include "core/data/stage/stage.h"

struct strata_worker_batches {
    const strata_strategy *strategy;
    strata_dataset *dataset; /* the data of this worker */
    strata_batches *batches;
    bool own; /* this worker reads separate batches; the fields below are for this case */
    strata_worker_step step;
    int64_t batch_size;
    int turn;            /* how many steps have used the current batch */
    bool ended;          /* there are no more batches */
    int64_t counts[][2]; /* [workers] For each worker: its number of examples in the step, and whether it has more */
};

STRATA_OWNER(strata_worker_batches)

strata_status strata_worker_batches_create(const strata_strategy *strategy, const strata_dataset *dataset,
                                           strata_auto_shard policy, const strata_batches_options *opts,
                                           strata_worker_batches **out_batches, strata_error *err) {
    const bool workers = strata_strategy_has_workers(strategy);
    const int n = workers ? strategy->workers.n : 1, rank = workers ? strategy->workers.rank : 0;
    STRATA_OWNED(strata_worker_batches) *b = calloc(1, sizeof *b + (size_t)n * sizeof *b->counts);
    if (!b) return strata_fail(err, STRATA_OUT_OF_MEMORY, "batches: no host memory");
    b->strategy = strategy;
    b->own = workers && strata_auto_shard_resolve(dataset, policy) != STRATA_SHARD_DATA;
    b->step.batch = opts->first - 1;
    b->turn = n - 1;
    b->batch_size = opts->batch;
    STRATA_TRY(strata_dataset_auto_shard(dataset, policy, n, rank, &b->dataset, err));
    STRATA_TRY(strata_batches_create(b->dataset, opts, &b->batches, err));
    *out_batches = strata_released(&b);
    return STRATA_OK;
}

void strata_worker_batches_destroy(strata_worker_batches *batches) {
    if (!batches) return;
    strata_batches_destroy(batches->batches);
    strata_dataset_destroy(batches->dataset);
    free(batches);
}

const strata_batches *strata_worker_batches_batch(const strata_worker_batches *batches) {
    return batches->batches;
}

int64_t strata_worker_batches_count(const strata_worker_batches *batches) {
    const int64_t n = strata_batches_count(batches->dataset, batches->batch_size);
    return batches->own ? n * batches->strategy->workers.n : n;
}

/* How many replicas of worker w have examples if the worker has n. */
static int64_t n_computing(const strata_strategy *strategy, int w, int64_t n) {
    int64_t count = 0, first, own;
    if (strata_strategy_has_workers(strategy)) { /* equal shares */
        const int64_t replicas = strategy->workers.first_replicas[w + 1] - strategy->workers.first_replicas[w];
        return n < replicas ? n : replicas;
    }
    for (int r = 0; r < strategy->n_replicas; r++) {
        strata_strategy_local_share(strategy, n, r, &first, &own);
        count += own > 0 && strata_strategy_is_first_of_share(strategy, r);
    }
    return count;
}

/* Divides the n examples of a step that all workers read. */
static void divide(const strata_strategy *strategy, strata_worker_step *step) {
    const int n_workers = strata_strategy_has_workers(strategy) ? strategy->workers.n : 1;
    step->n_computing = 0;
    if (strata_strategy_mesh_has_workers(strategy)) { /* several workers may have the same share */
        const int n_shares = strata_strategy_num_replicas_in_sync(strategy);
        step->n_computing = step->n < n_shares ? step->n : n_shares;
    }
    for (int w = 0; w < n_workers && !strata_strategy_mesh_has_workers(strategy); w++) {
        strata_strategy_worker_share(strategy, step->n, w, &step->first, &step->own);
        step->n_computing += n_computing(strategy, w, step->own);
    }
    strata_strategy_worker_share(strategy, step->n, strategy->workers.rank, &step->first, &step->own);
    step->offset = step->first;
}

strata_worker_step strata_worker_step_part(const strata_strategy *strategy, const strata_worker_step *step, int k, int m) {
    const int64_t least = step->n / m, larger = step->n % m, before = k * least + (k < larger ? k : larger);
    strata_worker_step part = *step;
    if (m == 1) return part;
    part.n = least + (k < larger);
    divide(strategy, &part);
    part.offset += before;
    return part;
}

/* The next step if all workers read the same batch. */
static strata_status next_shared(strata_worker_batches *b, strata_error *err) {
    strata_worker_step *step = &b->step;
    STRATA_TRY(strata_batches_next(b->batches, &step->n, err));
    divide(b->strategy, step);
    step->rows = step->n;
    step->batch++;
    return STRATA_OK;
}

/* Sets the rows of this worker's separate batches for the next step; none after the last batch. */
static strata_status next_rows(strata_worker_batches *b, strata_error *err) {
    const strata_workers *workers = &b->strategy->workers;
    strata_worker_step *step = &b->step;
    step->own = 0;
    if (!b->ended && ++b->turn == workers->n) {
        b->turn = 0;
        STRATA_TRY(strata_batches_next(b->batches, &step->rows, err));
        step->batch++;
        b->ended = step->rows == 0;
    }
    if (!b->ended)
        strata_strategy_worker_share(b->strategy, step->rows, (workers->rank + b->turn) % workers->n, &step->offset,
                                     &step->own);
    return STRATA_OK;
}

/* Each worker sends the others how many examples it has for this step. A step in which no worker has examples is skipped; the
 * epoch ends when no worker has any left. */
static strata_status next_own(strata_worker_batches *b, strata_error *err) {
    const strata_workers *workers = &b->strategy->workers;
    strata_worker_step *step = &b->step;
    bool more;
    do {
        STRATA_TRY(next_rows(b, err));
        const int64_t mine[2] = {step->own, !b->ended};
        STRATA_TRY(strata_workers_gather(workers, mine, b->counts, sizeof mine, err));
        more = false;
        step->n = step->first = step->n_computing = 0;
        for (int w = 0; w < workers->n; w++) {
            if (w == workers->rank) step->first = step->n;
            step->n += b->counts[w][0];
            step->n_computing += n_computing(b->strategy, w, b->counts[w][0]);
            more |= b->counts[w][1] != 0;
        }
    } while (!step->n && more);
    return STRATA_OK;
}

strata_status strata_worker_batches_next(strata_worker_batches *batches, strata_worker_step *out_step, strata_error *err) {
    STRATA_TRY(batches->own ? next_own(batches, err) : next_shared(batches, err));
    *out_step = batches->step;
    return STRATA_OK;
}
