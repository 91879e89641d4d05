/* SPDX-License-Identifier: Apache-2.0
 *
 * What fit, evaluate and predict read: the batches of one epoch of any dataset, one after the other. Arrays are gathered
 * straight into the device's input memory; the batches of a pipeline are copied there. */
#ifndef STRATA_CORE_DATA_BATCHES_H
#define STRATA_CORE_DATA_BATCHES_H

#include "strata/pipeline.h"

typedef struct strata_batches strata_batches;

typedef struct strata_batches_options {
    /* Examples, where the dataset does not say. */
    int64_t batch;
    /* Of arrays; a pipeline is shuffled by its own stages. */
    bool shuffle;
    uint64_t seed, epoch;
    /* batch to begin with. */
    int64_t first;
    /* Of one example: every batch must have it. */
    strata_shape input;
    /* Numbers in the labels of one example; 0: 1. */
    int64_t label_size;
    /* Integer features are below; 0: any. */
    int64_t n_tokens;
    /* Integer labels are below; 0: any. */
    int64_t n_classes;
    /* Features that are stored as bytes are written as such: see strata_batches_byte_scale. */
    bool bytes;
} strata_batches_options;

/* Borrows the dataset. */
STRATA_MUST_USE strata_status strata_batches_create(const strata_dataset *dataset, const strata_batches_options *opts,
                                                    strata_batches **out_batches, strata_error *err);
/* What its u8 features are to be multiplied by; 0: they are written as numbers. */
float strata_batches_byte_scale(const strata_batches *batches);
/* Goes to the next batch; *out_n: its examples, 0 at the end. */
STRATA_MUST_USE strata_status strata_batches_next(strata_batches *batches, int64_t *out_n, strata_error *err);
/* Writes features and labels (NULL: not wanted) of its examples [first, first + n); and what they weigh, 1 where the dataset
 * does not say it. */
void strata_batches_write(const strata_batches *batches, int64_t first, int64_t n, void *out_features, void *out_labels);
void strata_batches_write_weights(const strata_batches *batches, int64_t first, int64_t n, float *out_weights);
void strata_batches_destroy(strata_batches *batches);

/* Batches of an epoch when that is known, else 0. */
int64_t strata_batches_count(const strata_dataset *dataset, int64_t batch);
/* INVALID for a dataset without end, DATA for one without elements. */
STRATA_MUST_USE strata_status strata_batches_check_size(const strata_dataset *dataset, const char *verb, strata_error *err);

#endif
