/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies whose devices are the cores of one system. */
#ifndef STRATA_STRATEGIES_TPU_H
#define STRATA_STRATEGIES_TPU_H

#include "strategies/kinds.h"

/* Keeps, of the devices that the strategy has opened, those of the system that opts->tpu_address names, in the order of their
 * numbers in the system. named: the user has named the devices, so all of them must belong to the system. Fails: INVALID,
 * UNAVAILABLE, UNSUPPORTED; the message lists the systems. */
STRATA_MUST_USE strata_status strata_tpu_arrange(strata_strategy *strategy, const strata_strategy_options *opts, bool named,
                                                 char reason[128], strata_error *err);

/* Finds out whether the strategy's devices are cores of one system that do collectives themselves, and if so fills
 * strategy->cores. Works for any kind of strategy; called when the strategy's workers are known. */
STRATA_MUST_USE strata_status strata_strategy_find_cores(strata_strategy *strategy, strata_error *err);

#endif
