/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the strategy parameter_server that strategy.c calls. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_H

#include "strategies/kinds.h"

/* Whether the options fit the strategy. */
STRATA_MUST_USE strata_status strata_parameter_server_check(const strata_strategy_options *opts, strata_error *err);
/* Finds this task in its cluster, and sets the strategy's trainer. Connections are made only by fit. */
STRATA_MUST_USE strata_status strata_parameter_server_join(strata_strategy *strategy, const strata_strategy_options *opts,
                                                           strata_error *err);
/* The device of this task: for a server the parameter device. NULL: the options or the strategy choose it. */
const char *strata_parameter_server_device(const strata_strategy *strategy, const strata_strategy_options *opts);
/* "worker:1 of a chief, 3 workers and 2 servers": for the strategy's description. */
const char *strata_parameter_server_role(const strata_strategy *strategy);

#endif
