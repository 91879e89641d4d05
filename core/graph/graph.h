/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the graph, for ops, passes, the planner and backends. Users see include/strata/graph.h. */
#ifndef STRATA_CORE_GRAPH_H
#define STRATA_CORE_GRAPH_H

#include <stdatomic.h>

#include "core/base/export.h"
#include "core/graph/op.h"
#include "strata/graph.h"

/* One node and its single output. Nodes are in creation order, which is a topological order and, for reads and updates of
 * variables, the program's order. Everything here lives in the graph's arena. */
struct strata_tensor {
    strata_graph *graph;
    const strata_op *op;
    /* Index in graph->nodes. */
    int id;
    strata_dtype dtype;
    strata_shape shape;
    int n_inputs;
    strata_tensor **inputs;
    /* op->attrs_bytes bytes; NULL when the op has none. */
    const void *attrs;
    /* NULL: none given. */
    const char *name;
};

struct strata_graph {
    strata_tensor **nodes;
    int n_nodes, nodes_capacity;
    /* Memory of nodes, attributes, names, constants. */
    struct strata_arena_block *blocks;
    /* Result of a building error. */
    strata_tensor poison;
    /* Of the first building error. */
    strata_status status;
    strata_error error;
    char scope[128];
    /* The activation functions of the user's own, for the model whose layers are built in the graph (core/layer/activation.c).
     * NULL: there are none. */
    const struct strata_own_activation *activations;
    /* Retained: the graph that this one was copied from and still points into. */
    strata_graph *parent;
    atomic_int references;
};

/* Zeroed memory that lives as long as the graph, or NULL with the graph poisoned. */
void *strata_graph_alloc(strata_graph *graph, size_t bytes);
char *strata_graph_strdup(strata_graph *graph, const char *text);

/* Keeps `parent` alive as long as `graph`, whose attributes point into its memory. */
void strata_graph_retain(strata_graph *graph, strata_graph *parent);

STRATA_EXPORT_BEGIN
/* Adds a node: checks that no input is NULL or poisoned and all are of one graph, copies `attrs` (op->attrs_bytes), asks the
 * op's shape rule. Returns the poison of the graph on any failure; NULL only when every input is NULL. `graph` may be NULL when
 * n_inputs > 0. */
strata_tensor *strata_node(strata_graph *graph, const strata_op *op, int n_inputs, strata_tensor *const *inputs,
                           const void *attrs);
STRATA_EXPORT_END

/* Records a building error of `op` (NULL: none) unless there is one already, and returns the graph's poison. */
strata_tensor *strata_graph_poison(strata_graph *graph, const strata_op *op, strata_status status, const char *format, ...)
    STRATA_PRINTF(4, 5);
bool strata_tensor_is_poison(const strata_tensor *tensor);

/* Attributes of the three leaves (core/op/leaf.c). */
typedef struct strata_input_attrs {
    const char *name;
} strata_input_attrs;
typedef struct strata_constant_attrs {
    /* shape and dtype are the node's. */
    const void *data;
} strata_constant_attrs;
typedef struct strata_read_attrs {
    strata_variable *variable;
} strata_read_attrs;

#endif
