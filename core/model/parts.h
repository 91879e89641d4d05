/* SPDX-License-Identifier: Apache-2.0
 *
 * Under a mesh (strata_strategy.mesh): the stage of each call of a layer, which part of each parameter each device has, and
 * copying between these parts and whole values. */
#ifndef STRATA_CORE_MODEL_PARTS_H
#define STRATA_CORE_MODEL_PARTS_H

#include "core/model/model.h"

/* Chooses the stages of calls and parameters, and model->placements. Without a mesh it does nothing. */
STRATA_MUST_USE strata_status strata_model_choose_parts(strata_model *model, strata_error *err);
/* Fails with UNSUPPORTED under a mesh, whose devices have parts of the parameters: `call` needs them whole on each. */
STRATA_MUST_USE strata_status strata_model_check_whole(const strata_model *model, const char *call, strata_error *err);
/* Whether calls are at several stages. */
bool strata_model_has_stages(const strata_model *model);
/* Whether devices that have the same parameter update parts of it (ZeRO), in variables of these parts. */
bool strata_model_updates_parts(const strata_model *model, int block);
/* Copies what the replica's variable, a part of a block by this placement, has of the elements [begin, begin + n) of the flat
 * range to `values`, or sets it from there. */
STRATA_MUST_USE strata_status strata_model_copy_part(const strata_model *model, int block, const strata_placement *placement,
                                                     int replica, strata_variable *variable, bool set, int64_t begin, int64_t n,
                                                     float *values, strata_error *err);

#endif
