/* SPDX-License-Identifier: Apache-2.0
 *
 * In which context a thread is, and what a replica's function builds. */
#ifndef STRATA_STRATEGIES_CONTEXT_H
#define STRATA_STRATEGIES_CONTEXT_H

#include "core/run/strategy.h"
#include "strata/distribute.h"

struct strata_distributed_variable {
    strata_strategy *strategy;
    strata_synchronization synchronization;
    strata_aggregation aggregation;
    strata_variable **copies; /* [strategy->n_replicas] */
};

enum { STRATA_MAX_FUNCTION_NODES = 256, STRATA_MAX_GATHERS = 32 };

/* Lengths along the axis of the operands of all workers' replicas, n: of gather g and replica r at g * n + r. */
typedef struct strata_gather_lengths {
    int64_t *lengths; /* [STRATA_MAX_GATHERS * n + 1], zeros at first; the last one is room for a word to the other workers */
    bool differ;      /* a replica was traced with another length than stood here */
} strata_gather_lengths;

struct strata_replica_context {
    strata_strategy *strategy;
    int id;
    strata_graph *graph;
    strata_tensor *outputs[STRATA_MAX_FUNCTION_NODES], *updates[STRATA_MAX_FUNCTION_NODES];
    int n_outputs, n_updates;
    strata_gather_lengths *gathers;
    int n_gathers; /* of this trace */
};

/* INVALID, with what to do, unless this thread is in the cross-replica context. Without a scope it is, of no strategy. */
STRATA_MUST_USE strata_status strata_need_cross_replica(const char *call, const char *instead, strata_error *err);
/* Whether the thread is in this replica's context; else poisons its graph. */
bool strata_need_replica(strata_replica_context *replica, const char *call);

/* The thread's replica context while a function is traced: returns the one before, to be set again. */
const strata_replica_context *strata_set_replica(const strata_replica_context *replica);

#endif
