/* SPDX-License-Identifier: Apache-2.0
 *
 * What one worker computes in each step: rows of batches that all workers read (DATA), or rows of batches of its own, with
 * which the workers together make up each global batch and end together (FILE, HINT, OFF). Without other workers: the batches
 * as they are. */
#ifndef STRATA_CORE_DATA_WORKER_BATCHES_H
#define STRATA_CORE_DATA_WORKER_BATCHES_H

#include "core/data/batches.h"
#include "core/run/strategy.h"

typedef struct strata_worker_batches strata_worker_batches;

/* One step. */
typedef struct strata_worker_step {
    /* Examples of all workers; 0: the end. */
    int64_t n;
    /* This worker's are [first, first + own) of them,. */
    int64_t first;
    /* Maybe none;. */
    int64_t own;
    /* They are rows [offset, offset + own) of this batch. */
    int64_t batch;
    int64_t offset;
    /* Of the batch; 0: this worker has no more. */
    int64_t rows;
} strata_worker_step;

/* Borrows strategy and dataset. All workers create theirs, and call next in step. opts->first is a batch. */
STRATA_MUST_USE strata_status strata_worker_batches_create(const strata_strategy *strategy, const strata_dataset *dataset,
                                                           strata_auto_shard policy, const strata_batches_options *opts,
                                                           strata_worker_batches **out_batches, strata_error *err);
/* As strata_batches_byte_scale. */
float strata_worker_batches_byte_scale(const strata_worker_batches *batches);
STRATA_MUST_USE strata_status strata_worker_batches_next(strata_worker_batches *batches, strata_worker_step *out_step,
                                                         strata_error *err);
/* Rows [first, first + n) of this worker's part of the step. */
void strata_worker_batches_write(const strata_worker_batches *batches, int64_t first, int64_t n, void *const *out_inputs,
                                 void *const *out_targets);
void strata_worker_batches_write_weights(const strata_worker_batches *batches, int64_t first, int64_t n, float *out_weights);
/* Steps of an epoch when that is known, else 0. */
int64_t strata_worker_batches_count(const strata_worker_batches *batches);
void strata_worker_batches_destroy(strata_worker_batches *batches);

#endif
