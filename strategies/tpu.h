/* SPDX-License-Identifier: Apache-2.0
 *
 * A strategy's devices as the cores of one system. */
#ifndef STRATA_STRATEGIES_TPU_H
#define STRATA_STRATEGIES_TPU_H

#include "strategies/kinds.h"

/* Of the devices that the strategy has opened, keeps those of the system that opts->tpu_address names, in the order of their
 * numbers. named: the user has named them, so all must be of it. Fails: INVALID, UNAVAILABLE, UNSUPPORTED, with the systems
 * there are. */
STRATA_MUST_USE strata_status strata_tpu_arrange(strata_strategy *strategy, const strata_strategy_options *opts, bool named,
                                                 char reason[128], strata_error *err);

/* Finds whether the strategy's devices, of any kind of strategy, are cores of one system that exchange by themselves, once its
 * workers are known: fills strategy->cores. */
STRATA_MUST_USE strata_status strata_strategy_find_cores(strata_strategy *strategy, strata_error *err);

#endif
