/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows that one worker computes in each step. With DATA all workers read the same batches, and each computes a part of the
 * rows. With FILE, HINT and OFF each worker reads separate batches; in each step the workers' rows together are one global
 * batch, and all workers end in the same step. With a single worker the rows are the whole batch. */
#ifndef STRATA_CORE_DATA_WORKER_BATCHES_H
#define STRATA_CORE_DATA_WORKER_BATCHES_H

#include "core/data/batches.h"
#include "core/run/strategy.h"

typedef struct strata_worker_batches strata_worker_batches;

/* What this worker computes in one step. */
typedef struct strata_worker_step {
    /* How many examples all workers have together; 0: the epoch has ended. */
    int64_t n;
    /* This worker computes the examples [first, first + own) of these; own may be 0. */
    int64_t first;
    int64_t own;
    /* They are the rows [offset, offset + own) of the batch with this number. */
    int64_t batch;
    int64_t offset;
    /* How many rows that batch has; 0: this worker has no batch any more. */
    int64_t rows;
    /* How many replicas of all workers have examples. */
    int64_t n_computing;
} strata_worker_step;

/* Micro-batch k of m of a step of a strategy whose workers read the same batches; the sizes differ by at most one. n 0: the
 * step has fewer examples than micro-batches. */
strata_worker_step strata_worker_step_part(const strata_strategy *strategy, const strata_worker_step *step, int k, int m);

/* Borrows strategy and dataset. All workers create one, and call next equally often. opts->first is the number of a batch. */
STRATA_MUST_USE strata_status strata_worker_batches_create(const strata_strategy *strategy, const strata_dataset *dataset,
                                                           strata_auto_shard policy, const strata_batches_options *opts,
                                                           strata_worker_batches **out_batches, strata_error *err);
STRATA_MUST_USE strata_status strata_worker_batches_next(strata_worker_batches *batches, strata_worker_step *out_step,
                                                         strata_error *err);
/* The batch of which this worker computes rows [offset, offset + own) in the step; borrowed. */
const strata_batches *strata_worker_batches_batch(const strata_worker_batches *batches);
/* The number of steps in an epoch; 0 if it is not known. */
int64_t strata_worker_batches_count(const strata_worker_batches *batches);
void strata_worker_batches_destroy(strata_worker_batches *batches);

#endif
