/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model sees of a strategy. Kinds of strategies: strategies/. */
#ifndef STRATA_CORE_STRATEGY_H
#define STRATA_CORE_STRATEGY_H

#include "strata/strategy.h"

struct strata_strategy {
    const char *name; /* of its kind */
    char choice[256];
    strata_device **devices; /* its own; one a replica */
    int n_replicas;
};

#endif
