/* SPDX-License-Identifier: Apache-2.0
 *
 * model_parallel: the devices are a mesh. Examples are divided over its axis data, layers over stage, parameters over tensor
 * (core/model/parts.h). */
#include "strategies/kinds.h"

const strata_strategy_kind strata_strategy_model_parallel = {.name = "model_parallel", .most_devices = -1, .has_mesh = true};
