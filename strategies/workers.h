/* SPDX-License-Identifier: Apache-2.0
 *
 * A strategy as one worker of several. */
#ifndef STRATA_STRATEGIES_WORKERS_H
#define STRATA_STRATEGIES_WORKERS_H

#include "strata/cluster.h"
#include "strategies/kinds.h"

/* Tells the others how many replicas there are here, and learns theirs: every worker calls it. The communicator is borrowed. */
STRATA_MUST_USE strata_status strata_strategy_join(strata_strategy *strategy, strata_communicator *communicator,
                                                   strata_error *err);

/* Connects the workers that the environment names (strata_cluster_spec_resolve; STRATA_SECRET), where `opts` has no
 * communicator: puts it there, with this worker's place on its machine. The caller destroys it. There is none for a single
 * worker of a kind that needs none. */
STRATA_MUST_USE strata_status strata_strategy_meet(const strata_strategy_kind *kind, strata_strategy_options *opts,
                                                   strata_error *err);

#endif
