/* SPDX-License-Identifier: Apache-2.0
 *
 * model_parallel: the devices of all workers, in the order of their ranks, are a mesh. Examples are divided over
 * its axis data, layers over stage, parameters over tensor (core/model/parts.h). */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_model_parallel = {
    .name = "model_parallel", .most_devices = -1, .mesh = STRATA_MESH_OF_JOB, .has_mesh = true};
