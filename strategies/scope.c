/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes and contexts. Each thread has its own, as in tf.distribute, so they are stored in a thread-local variable. */
#include "core/graph/graph.h"
#include "strategies/context.h"

static _Thread_local struct {
    strata_strategy *strategy; /* the strategy whose scope the thread has entered; NULL: none */
    int depth;
    const strata_replica_context *replica; /* the replica whose function is traced; NULL: cross-replica context */
} current;

strata_status strata_strategy_enter(strata_strategy *strategy, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_strategy_enter", "enter the scope outside of it", err));
    if (current.strategy && current.strategy != strategy)
        return strata_fail(err, STRATA_INVALID,
                           "strata_strategy_enter: this thread is in the scope of another strategy, %s; scopes of different "
                           "strategies do not nest. Exit that one first",
                           current.strategy->name);
    current.strategy = strategy;
    current.depth++;
    return STRATA_OK;
}

strata_status strata_strategy_exit(strata_strategy *strategy, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_strategy_exit", "exit the scope outside of it", err));
    if (!current.strategy || current.strategy != strategy)
        return strata_fail(err, STRATA_INVALID, "strata_strategy_exit: this thread is not in the scope of strategy %s",
                           strategy->name);
    if (--current.depth == 0) current.strategy = NULL;
    return STRATA_OK;
}

strata_strategy *strata_strategy_current(void) {
    return current.strategy;
}

bool strata_in_cross_replica_context(void) {
    return !current.replica;
}

strata_status strata_need_cross_replica(const char *call, const char *instead, strata_error *err) {
    if (!current.replica) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "%s needs the cross-replica context, and is called in the function of replica %d; %s", call,
                       current.replica->id, instead);
}

bool strata_need_replica(strata_replica_context *replica, const char *call) {
    if (current.replica == replica) return true;
    strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                        "%s needs the context of the replica it is given, and is called %s; call it in the function that "
                        "strata_strategy_run traces",
                        call, current.replica ? "in another replica's" : "in the cross-replica context");
    return false;
}

const strata_replica_context *strata_set_replica(const strata_replica_context *replica) {
    const strata_replica_context *before = current.replica;
    current.replica = replica;
    return before;
}
