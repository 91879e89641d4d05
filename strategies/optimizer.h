/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer for custom training loops: its settings, its count of updates, and its slots for each variable that it has
 * updated. */
#ifndef STRATA_STRATEGIES_OPTIMIZER_H
#define STRATA_STRATEGIES_OPTIMIZER_H

#include "strategies/context.h"

/* The optimizer's state for one variable. */
typedef struct strata_optimizer_memory {
    /* The variable may be destroyed before the optimizer; its number remains. */
    const strata_distributed_variable *variable;
    int64_t number;
    struct strata_optimizer_memory *next;
    /* [n_replicas] Each replica of this worker updates the elements [begin, end) of the variable, with slots of this size. */
    struct strata_optimizer_part {
        int64_t begin, end;
        strata_variable *slots[STRATA_MAX_OPTIMIZER_SLOTS];
        /* With a sharded optimizer: room for these elements, and for a block of a model the positions of the parameters. */
        strata_variable *shard;
        strata_segments segments;
    } parts[];
} strata_optimizer_memory;

struct strata_distributed_optimizer {
    strata_strategy *strategy;
    strata_optimizer settings;
    const strata_optimizer_kind *kind;
    /* Each replica updates a part of each variable. */
    bool sharded;
    /* The number of updates so far. */
    int64_t steps;
    strata_optimizer_memory *memories;
    strata_owned owned;
};

#endif
