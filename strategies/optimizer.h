/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer of loops of one's own: its settings, its count, and its slots for each variable that it has updated. */
#ifndef STRATA_STRATEGIES_OPTIMIZER_H
#define STRATA_STRATEGIES_OPTIMIZER_H

#include "strategies/context.h"

/* What the optimizer keeps for one variable. */
typedef struct strata_optimizer_memory {
    const strata_distributed_variable *variable;
    /* Elements [begin, end) of the variable that each replica of this worker updates: [n_replicas]. */
    int64_t *begins, *ends;
    /* Each with a copy of end - begin elements on each replica. */
    strata_variable **slots[STRATA_MAX_OPTIMIZER_SLOTS];
    /* With a sharded optimizer: room for the replica's own part of the variable. */
    strata_variable **shards;
    struct strata_optimizer_memory *next;
} strata_optimizer_memory;

struct strata_distributed_optimizer {
    strata_strategy *strategy;
    strata_optimizer settings;
    const strata_optimizer_kind *kind;
    /* Updates that were made. */
    int64_t steps;
    strata_optimizer_memory *memories;
    strata_owned owned;
};

#endif
