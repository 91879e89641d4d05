/* SPDX-License-Identifier: Apache-2.0
 *
 * What fit, evaluate and predict read: the batches of one epoch of any dataset, one after the other. Arrays are gathered
 * straight into the device's input memory; the batches of a pipeline are copied there. */
#ifndef STRATA_CORE_DATA_BATCHES_H
#define STRATA_CORE_DATA_BATCHES_H

#include "strata/pipeline.h"

typedef struct strata_batches strata_batches;

/* An input or a target that is taken from each element. */
typedef struct strata_batch_part {
    /* Which part of the elements. */
    int part;
    /* Of one example. Of a target, only the number of its elements is looked at. */
    strata_shape shape;
    /* Integers are below; 0: any. */
    int64_t below;
} strata_batch_part;

typedef struct strata_batches_options {
    /* Examples, where the dataset does not say. */
    int64_t batch;
    /* Of arrays; a pipeline is shuffled by its own stages. */
    bool shuffle;
    uint64_t seed, epoch;
    /* Examples at the beginning of the epoch that are left out, of a dataset that does not batch by itself. */
    int64_t skip;
    /* batch to begin with, behind these. */
    int64_t first;
    /* The inputs, and the targets where the dataset has some. */
    int n_inputs, n_targets;
    strata_batch_part inputs[STRATA_MAX_PARTS], targets[STRATA_MAX_PARTS];
    /* The first part of elements, where it is stored as bytes, is written as such: see strata_batches_byte_scale. */
    bool bytes;
} strata_batches_options;

/* Borrows the dataset. */
STRATA_MUST_USE strata_status strata_batches_create(const strata_dataset *dataset, const strata_batches_options *opts,
                                                    strata_batches **out_batches, strata_error *err);
/* What its u8 features are to be multiplied by; 0: they are written as numbers. */
float strata_batches_byte_scale(const strata_batches *batches);
/* Goes to the next batch; *out_n: its examples, 0 at the end. */
STRATA_MUST_USE strata_status strata_batches_next(strata_batches *batches, int64_t *out_n, strata_error *err);
/* Writes the inputs, [n_inputs], and the targets, [n_targets], of its examples [first, first + n). A NULL, for
 * one of them or for all targets, means that it is not wanted. And what the examples weigh, 1 where the dataset does not say
 * it. */
void strata_batches_write(const strata_batches *batches, int64_t first, int64_t n, void *const *out_inputs,
                          void *const *out_targets);
void strata_batches_write_weights(const strata_batches *batches, int64_t first, int64_t n, float *out_weights);
void strata_batches_destroy(strata_batches *batches);

/* Batches of an epoch when that is known, else 0. */
int64_t strata_batches_count(const strata_dataset *dataset, int64_t batch);
/* INVALID for a dataset without end, DATA for one without elements. */
STRATA_MUST_USE strata_status strata_batches_check_size(const strata_dataset *dataset, const char *verb, strata_error *err);

#endif
