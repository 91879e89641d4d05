/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the estimates of a plugin's compiler. The public header is strata/ahead.h. */
#ifndef STRATA_BACKENDS_PJRT_AOT_H
#define STRATA_BACKENDS_PJRT_AOT_H

#include "backends/pjrt/plugin.h"
#include "strata/ahead.h"

/* Reads the numbers of a compiler's cost analysis into the estimate. Numbers that it lacks stay unchanged.
 *
 * XLA adds up "optimal_seconds" over the program's ops. One of its own ops for which it has no time (a custom call such
 * as ConcatBitcast, which moves no data) counts as -1 s. So a sum of -2.9998 means three such ops and 0.0002 s for all
 * others. In f32, such a sum is exact to 0.1 us. */
void strata_pjrt_read_costs(const pjrt_cost_args *costs, strata_ahead_topology_estimate *estimate);

#endif
