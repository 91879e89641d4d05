/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the batches of one epoch of any dataset, for fit, evaluate and predict. The examples of arrays are copied directly
 * into the device's input memory, in the order of the shuffle; the batches of a pipeline are copied there as a whole. */
#ifndef STRATA_CORE_DATA_BATCHES_H
#define STRATA_CORE_DATA_BATCHES_H

#include "core/base/alloc.h"
#include "strata/pipeline.h"

typedef struct strata_batches strata_batches;

/* An input or a target of the model, and the part of a dataset's elements that it comes from. */
typedef struct strata_batch_part {
    /* The index of the part in the elements. */
    int part;
    /* The shape of one example. For a target only the number of elements matters. */
    strata_shape shape;
    /* Integers must be below this number; 0: no limit. */
    int64_t below;
} strata_batch_part;

typedef struct strata_batches_options {
    /* Examples in a batch, unless the dataset has a batch stage. */
    int64_t batch;
    /* Shuffle a dataset of arrays; a pipeline is shuffled by its own stages. */
    bool shuffle;
    uint64_t seed, epoch;
    /* How many examples at the beginning of the epoch are skipped; for a dataset without a batch stage. */
    int64_t skip;
    /* The number of the first batch to read, counted after the skipped examples. */
    int64_t first;
    /* The inputs, and the targets if the dataset has any. */
    int n_inputs, n_targets;
    strata_batch_part inputs[STRATA_MAX_PARTS], targets[STRATA_MAX_PARTS];
    /* If the first part of the elements is stored as u8, write it as u8; see strata_batches_byte_scale. */
    bool bytes;
} strata_batches_options;

/* Borrows the dataset. */
STRATA_MUST_USE strata_status strata_batches_create(const strata_dataset *dataset, const strata_batches_options *opts,
                                                    strata_batches **out_batches, strata_error *err);
/* The factor by which the features, which are written as u8, must be multiplied; 0: they are written in the model's dtype. */
float strata_batches_byte_scale(const strata_batches *batches);
/* Moves to the next batch. *out_n: how many examples it has; 0 at the end. */
STRATA_MUST_USE strata_status strata_batches_next(strata_batches *batches, int64_t *out_n, strata_error *err);
/* Writes the inputs, [n_inputs], and the targets, [n_targets], of the batch's examples [first, first + n). NULL for one of
 * them, or for out_targets, skips it. strata_batches_write_weights writes the weights of the examples, 1 if the dataset has
 * none. */
void strata_batches_write(const strata_batches *batches, int64_t first, int64_t n, void *const *out_inputs,
                          void *const *out_targets);
void strata_batches_write_weights(const strata_batches *batches, int64_t first, int64_t n, float *out_weights);
void strata_batches_destroy(strata_batches *batches);
STRATA_OWNER(strata_batches)

/* The number of batches in an epoch; 0 if it is not known. */
int64_t strata_batches_count(const strata_dataset *dataset, int64_t batch);
/* INVALID for a dataset without end, DATA for one without elements. */
STRATA_MUST_USE strata_status strata_batches_check_size(const strata_dataset *dataset, const char *verb, strata_error *err);

#endif
