/* SPDX-License-Identifier: Apache-2.0
 *
 * local_sgd: each replica of each worker trains on its own examples with its own parameters, states and optimizer slots, as if
 * it were alone. After every k updates all replicas get the mean of their parameters and states (Stich 2019). */
#include "core/op/communication.h"
#include "strategies/kinds.h"

static strata_tensor *average(const strata_step_replica *replica, strata_tensor *own) {
    (void)replica;
    return strata_all_reduce(own, STRATA_REDUCE_MEAN);
}

const strata_strategy_kind strata_strategy_local_sgd = {
    .name = "local_sgd", .most_devices = -1, .mesh = STRATA_MESH_OF_JOB, .update = {.own = 1}, .average = average};
