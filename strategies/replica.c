/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that a replica's function may make while it is traced. */
#include "core/graph/graph.h"
#include "core/op/communication.h"
#include "strategies/context.h"

static int number_of(const strata_replica_context *replica) {
    return strata_strategy_first_function(replica->strategy) + replica->id;
}

int strata_replica_id(const strata_replica_context *replica) {
    ((strata_replica_context *)replica)->asks_id = true;
    return number_of(replica);
}

int strata_replica_num_in_sync(const strata_replica_context *replica) {
    return strata_strategy_n_functions_in_sync(replica->strategy);
}

strata_graph *strata_replica_graph(strata_replica_context *replica) {
    return replica->graph;
}

static void add(strata_replica_context *replica, strata_tensor **list, int *n, strata_tensor *node) {
    if (*n < STRATA_MAX_FUNCTION_NODES)
        list[(*n)++] = node;
    else
        strata_graph_poison(replica->graph, NULL, STRATA_INVALID, "a replica's function updates and returns at most %d values",
                            STRATA_MAX_FUNCTION_NODES);
}

void strata_replica_keep(strata_replica_context *replica, strata_tensor *node) {
    add(replica, replica->updates, &replica->n_updates, node);
}

static strata_tensor *wrong_context(strata_replica_context *replica) {
    return strata_graph_poison(replica->graph, NULL, STRATA_INVALID, "called in the wrong context");
}

strata_tensor *strata_replica_read(strata_replica_context *replica, strata_distributed_variable *variable) {
    if (!strata_need_replica(replica, "strata_replica_read")) return wrong_context(replica);
    if (variable->strategy != replica->strategy)
        return strata_graph_poison(replica->graph, NULL, STRATA_INVALID, "variable %s was made in another strategy's scope",
                                   strata_variable_name(variable->whole));
    strata_tensor *value = strata_variable_read(replica->graph, strata_replica_variable(replica, variable));
    strata_replica_reading *reading = strata_graph_alloc(replica->graph, sizeof *reading);
    if (!reading) return value;
    *reading = (strata_replica_reading){variable, value, replica->readings};
    replica->readings = reading;
    return value;
}

/* Sends the value of the first replica of all workers to all replicas. */
static strata_tensor *from_the_first(strata_replica_context *replica, strata_tensor *x) {
    return strata_broadcast(replica->graph, number_of(replica) == 0 ? x : NULL,
                            (strata_communication_attrs){.dtype = x->dtype, .shape = x->shape, .takes = true});
}

/* Sends a value of one replica to all replicas of this worker. */
static strata_tensor *from_replica(strata_replica_context *replica, int giver, strata_tensor *x, strata_dtype dtype,
                                   strata_shape shape) {
    const bool gives = replica->id == giver;
    strata_tensor *node = strata_broadcast(
        replica->graph, gives ? x : NULL,
        (strata_communication_attrs){.team = {.local = true}, .dtype = dtype, .shape = shape, .takes = !gives});
    if (!gives) return node;
    add(replica, replica->updates, &replica->n_updates, node); /* an update is computed although no output needs it */
    return x;
}

void strata_replica_assign(strata_replica_context *replica, strata_distributed_variable *variable, strata_tensor *value) {
    strata_tensor *copy = strata_replica_read(replica, variable);
    if (strata_tensor_is_poison(copy) || !value || strata_tensor_is_poison(value)) return;
    if (variable->synchronization == STRATA_ON_WRITE && strata_replica_num_in_sync(replica) > 1) {
        if (variable->aggregation == STRATA_AGGREGATION_NONE) {
            strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                                "variable %s is written by its replicas and has no aggregation (ON_WRITE, NONE): say how their "
                                "values become one, or write it in the cross-replica context",
                                strata_variable_name(variable->whole));
            return;
        }
        value = variable->aggregation == STRATA_AGGREGATION_ONLY_FIRST_REPLICA
                    ? from_the_first(replica, value)
                    : strata_all_reduce(
                          value, variable->aggregation == STRATA_AGGREGATION_MEAN ? STRATA_REDUCE_MEAN : STRATA_REDUCE_SUM);
    }
    add(replica, replica->updates, &replica->n_updates, strata_assign(copy, value));
}

/* The replica that makes updates for all; -1: each replica updates its own copy. A device that only stores parameters runs no
 * function, so the first replica makes the updates then. */
static int giver_of(const strata_strategy *strategy) {
    if (!strategy->update.at) return -1;
    return strata_strategy_root(strategy) < strategy->n_replicas ? strata_strategy_root(strategy) : 0;
}

void strata_replica_update_copy(strata_replica_context *replica, strata_variable *own, strata_tensor *update) {
    const int giver = giver_of(replica->strategy);
    if (giver < 0 || replica->id == giver) strata_replica_keep(replica, update);
    /* The workers' devices are of several kinds: all workers use the value of the first one. */
    if (replica->strategy->workers.mixed && !strata_strategy_has_mesh(replica->strategy)) {
        strata_replica_keep(replica, strata_assign(update, from_the_first(replica, update)));
        return;
    }
    if (giver < 0 || replica->strategy->n_replicas == 1) return;
    strata_tensor *updated = from_replica(replica, giver, update, update->dtype, update->shape);
    if (replica->id == giver) return;
    strata_replica_keep(replica, strata_assign(strata_variable_read(replica->graph, own), updated));
}

void strata_replica_update(strata_replica_context *replica, strata_distributed_variable *variable, strata_tensor *update) {
    if (!strata_need_replica(replica, "strata_replica_update") || !update || strata_tensor_is_poison(update)) return;
    strata_replica_update_copy(replica, strata_replica_variable(replica, variable), update);
}

strata_tensor *strata_replica_all_reduce(strata_replica_context *replica, strata_tensor *x, strata_reduction reduction) {
    if (!strata_need_replica(replica, "strata_replica_all_reduce")) return wrong_context(replica);
    return strata_strategy_has_mesh(replica->strategy) ? x : strata_all_reduce(x, reduction);
}

strata_tensor *strata_replica_all_gather(strata_replica_context *replica, strata_tensor *x, int axis) {
    if (!strata_need_replica(replica, "strata_replica_all_gather")) return wrong_context(replica);
    if (!x || strata_tensor_is_poison(x) || strata_strategy_has_mesh(replica->strategy)) return x;
    strata_gather_lengths *gathers = replica->gathers;
    const int call = replica->n_gathers++, id = number_of(replica), n = strata_replica_num_in_sync(replica);
    if (axis < 0 || axis >= x->shape.rank || call >= STRATA_MAX_GATHERS)
        return strata_graph_poison(replica->graph, NULL, STRATA_INVALID,
                                   "all_gather: axis is %d of a value %s; there are at most %d all_gathers in a function", axis,
                                   strata_shape_text(x->shape).text, STRATA_MAX_GATHERS);
    int64_t *lengths = gathers->lengths + call * n;
    if (lengths[id] != x->shape.dims[axis]) gathers->differ = true;
    lengths[id] = x->shape.dims[axis];
    return strata_all_gather_parts(x, (strata_team){0}, axis, lengths, n, id);
}

strata_tensor *strata_replica_all_reduce_rows(strata_replica_context *replica, strata_tensor *values, strata_tensor *indices,
                                              int64_t n_rows) {
    strata_tensor *all = strata_replica_all_gather(replica, values, 0);
    return strata_unsorted_segment_sum(all, strata_replica_all_gather(replica, indices, 0), n_rows);
}

void strata_replica_return(strata_replica_context *replica, strata_tensor *value) {
    if (strata_need_replica(replica, "strata_replica_return")) add(replica, replica->outputs, &replica->n_outputs, value);
}
