/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the graph, for ops, passes, the memory planner and backends. The public header is strata/graph.h. */
#ifndef STRATA_CORE_GRAPH_H
#define STRATA_CORE_GRAPH_H

#include <stdatomic.h>

#include "core/base/alloc.h"
#include "core/base/memory.h"
#include "core/graph/op.h"
#include "strata/graph.h"

/* A node, and at the same time its only output. Nodes are in the order of their creation. This is a topological order, and the
 * order in which reads and updates of variables take place. The graph owns all memory of nodes. */
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
    /* The name that strata_tensor_set_name set; NULL: none. */
    const char *name;
};

/* Nodes [first, end) of a graph: a call of a layer. */
typedef struct strata_recomputed {
    int first, end;
    /* Nodes before them. */
    struct strata_recomputed *next;
} strata_recomputed;

struct strata_graph {
    strata_tensor **nodes;
    int n_nodes;
    /* The nodes that gradients compute again (strata_graph_recompute), the last ones first. */
    strata_recomputed *recomputed;
    /* Memory of nodes, attributes, names, constants. */
    strata_memory memory;
    /* The tensor that is returned after a building error. */
    strata_tensor poison;
    /* The first building error. */
    strata_status status;
    strata_error error;
    char scope[128];
    /* The activation functions that the program has registered, for the model whose layers are built in the graph
     * (core/layer/activation.c). NULL: none. */
    const struct strata_own_activation *activations;
    /* The graph that this one was copied from, to whose memory its nodes point; retained. */
    strata_graph *parent;
    atomic_int references;
};

/* Zeroed memory that lives as long as the graph, or NULL with the graph poisoned. */
void *strata_graph_alloc(strata_graph *graph, size_t bytes);
char *strata_graph_strdup(strata_graph *graph, const char *text);

/* An empty graph for copies of nodes of `parent`. It retains `parent`, to whose memory their attributes point. */
STRATA_MUST_USE strata_status strata_graph_derive(strata_graph *parent, strata_graph **out_graph, strata_error *err);

/* Adds a node. Checks that no input is NULL or poisoned and that all are of one graph, copies `attrs` (op->attrs_bytes), and
 * calls the op's shape rule. On any failure it returns the graph's poison, or NULL if every input is NULL. `graph` may be NULL
 * if n_inputs > 0. */
strata_tensor *strata_node(strata_graph *graph, const strata_op *op, int n_inputs, strata_tensor *const *inputs,
                           const void *attrs);
/* Sets the node's dtype and shape by the shape rule of its op, or fails with the wrong values. */
STRATA_MUST_USE strata_status strata_infer(strata_tensor *node, strata_error *err);
/* Records a building error of `op` (NULL: none) unless there is one already, and returns the graph's poison. */
strata_tensor *strata_graph_poison(strata_graph *graph, const strata_op *op, strata_status status, const char *format, ...)
    STRATA_PRINTF(4, 5);
bool strata_tensor_is_poison(const strata_tensor *tensor);

/* Gradients that are built later (strata_gradients) compute the nodes from id `first` on again, from the values that these read
 * from earlier nodes, instead of keeping what they need of them since the forward pass. The bits are the same. */
void strata_graph_recompute(strata_graph *graph, int first);

static inline int64_t strata_tensor_bytes(const strata_tensor *tensor) {
    return strata_shape_elements(tensor->shape) * (int64_t)strata_dtype_bytes(tensor->dtype);
}

/* The number of additions and multiplications of one run of the node; a multiply-add counts as two. The op's `flops`
 * computes it. Without `flops` it is one for each element of the output of an element-wise op, and 0 for other ops. */
double strata_node_flops(const strata_tensor *node);
/* The bytes that one run reads and writes if each input is read once as a whole, and each output (Adam has three) is
 * written once. 0 for leaves and views, and for a pack, whose inputs are computed directly at their places in it. */
double strata_node_moved_bytes(const strata_tensor *node);
/* The sum of strata_node_flops over the graph's nodes from id `first` on. */
double strata_graph_flops(const strata_graph *graph, int first);

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

STRATA_OWNER(strata_graph)

#endif
