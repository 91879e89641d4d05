/* SPDX-License-Identifier: Apache-2.0
 *
 * A strategy that is one of several workers of a job. */
#ifndef STRATA_STRATEGIES_WORKERS_H
#define STRATA_STRATEGIES_WORKERS_H

#include "strata/cluster.h"
#include "strategies/kinds.h"

/* Makes the strategy one of the communicator's workers: sends the number of its replicas to the other workers, and receives
 * theirs. Every worker must call it. The communicator is borrowed. */
STRATA_MUST_USE strata_status strata_strategy_join(strata_strategy *strategy, strata_communicator *communicator,
                                                   strata_error *err);

/* If `opts` has no communicator, connects the workers that the environment names (strata_cluster_spec_resolve; STRATA_SECRET).
 * Stores the communicator, which the caller destroys, and this worker's rank on its machine in `opts`. A single worker of a
 * kind that needs no communicator gets none. */
STRATA_MUST_USE strata_status strata_strategy_meet(const strata_strategy_kind *kind, strata_strategy_options *opts,
                                                   strata_error *err);

#endif
