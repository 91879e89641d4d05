/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of replicas with parameters of their own (own.c, strata_strategy_has_own). */
#ifndef STRATA_CORE_MODEL_OWN_H
#define STRATA_CORE_MODEL_OWN_H

#include "core/model/model.h"

/* strata_model_own_size: the number of elements of a replica's values: parameters, states, slots, the epoch's sums and the loss
 * scale. strata_model_gather_own returns those of all replicas of all workers, (replicas, size), which the caller frees; every
 * worker must call it. strata_model_write_own sets them. */
int64_t strata_model_own_size(const strata_model *model);
STRATA_MUST_USE strata_status strata_model_gather_own(strata_model *model, float **out_values, strata_error *err);
STRATA_MUST_USE strata_status strata_model_write_own(strata_model *model, const float *values, strata_error *err);
/* Forgets `interrupted`, since the model has got other values. */
void strata_model_forget_interrupted(strata_model *model);
/* strata_model_join sets the parameters and states of all replicas of this worker to their mean, if they are apart.
 * *out_apart: the values before, which strata_model_separate sets again and frees; NULL: they were equal. */
STRATA_MUST_USE strata_status strata_model_join(strata_model *model, float **out_apart, strata_error *err);
STRATA_MUST_USE strata_status strata_model_separate(strata_model *model, float *apart, strata_error *err);
/* All workers take the smallest of their loss scales. */
STRATA_MUST_USE strata_status strata_model_share_scale(strata_model *model, strata_error *err);

#endif
