/* SPDX-License-Identifier: Apache-2.0
 *
 * The division of updates among replicas (shards.c). */
#ifndef STRATA_CORE_MODEL_SHARDS_H
#define STRATA_CORE_MODEL_SHARDS_H

#include "core/model/model.h"

/* Decides whether an optimizer is sharded; one without slots has nothing to divide. Fails: INVALID if the strategy requires
 * shards and its devices, or a model with sparse parameters, cannot have them. */
STRATA_MUST_USE strata_status strata_shards_decide(const strata_strategy *strategy, int n_slots, bool sparse, bool *out_sharded,
                                                   strata_error *err);
/* The end of the first r of n shards: about r / n of `size` elements, rounded down to the alignment. whole: the positions of
 * the parameters in these elements, if shards must not divide parameters (NULL: they may); it is then the end of a
 * parameter. */
int64_t strata_shards_cut_at(int64_t size, int r, int n, const strata_segments *whole);
/* Computes the positions of the parameters in [begin, end) of the flat range. Free with strata_shards_free_segments. */
STRATA_MUST_USE strata_status strata_shards_segments(const strata_model *model, int64_t begin, int64_t end,
                                                     strata_segments *out_segments, strata_error *err);
void strata_shards_free_segments(strata_segments *segments);
/* strata_shards_read_slot reads a slot of the optimizer for the whole flat range, (flat_size), from the devices that own
 * parts of it; with shards over several workers, all workers must call it. strata_shards_write_slot writes a slot,
 * or, for -1, the parameters' shards, to these devices. */
STRATA_MUST_USE strata_status strata_shards_read_slot(strata_model *model, int slot, float *values, strata_error *err);
STRATA_MUST_USE strata_status strata_shards_write_slot(strata_model *model, int slot, float *values, strata_error *err);
/* strata_shards_own_range returns the elements of the flat range whose slots are on this worker's devices;
 * strata_shards_read_own_slot reads only these, to their positions in values, (flat_size). */
void strata_shards_own_range(const strata_model *model, int64_t *out_begin, int64_t *out_end);
STRATA_MUST_USE strata_status strata_shards_read_own_slot(strata_model *model, int slot, float *values, strata_error *err);

#endif
