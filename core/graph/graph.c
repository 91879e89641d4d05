/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds graphs: the constructor of nodes, and the first building error, which the graph keeps. Ops are in core/op/,
 * differentiation is in core/compile/gradient.c. */
#include "core/graph/graph.h"

#include <stdio.h>

static const strata_op poison_op = {.name = "poison", .flags = STRATA_OP_LEAF};

strata_status strata_graph_create(strata_graph **out_graph, strata_error *err) {
    strata_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return strata_fail(err, STRATA_OUT_OF_MEMORY, "graph: no memory for %zu bytes", sizeof *graph);
    atomic_init(&graph->references, 1);
    graph->poison = (strata_tensor){.graph = graph, .op = &poison_op, .id = -1};
    *out_graph = graph;
    return STRATA_OK;
}

void strata_graph_destroy(strata_graph *graph) {
    if (!graph || atomic_fetch_sub(&graph->references, 1) > 1) return;
    strata_graph_destroy(graph->parent);
    strata_memory_free(&graph->memory);
    free(graph->nodes);
    free(graph);
}

strata_status strata_graph_derive(strata_graph *parent, strata_graph **out_graph, strata_error *err) {
    STRATA_TRY(strata_graph_create(out_graph, err));
    atomic_fetch_add(&parent->references, 1);
    (*out_graph)->parent = parent;
    return STRATA_OK;
}

strata_status strata_graph_check(const strata_graph *graph, strata_error *err) {
    if (!graph) return strata_fail(err, STRATA_INVALID, "graph: it is NULL; create it with strata_graph_create");
    if (graph->status) return strata_fail(err, graph->status, "%s", graph->error.message);
    return STRATA_OK;
}

void strata_graph_set_scope(strata_graph *graph, const char *scope) {
    if (graph) snprintf(graph->scope, sizeof graph->scope, "%s", scope ? scope : "");
}

static strata_tensor *poison(strata_graph *graph, const strata_op *op, strata_status status, const char *format,
                             va_list arguments) {
    if (graph->status) return &graph->poison;
    graph->status = strata_fail_v(&graph->error, status, format, arguments);
    if (op) strata_fail_in(&graph->error, status, "%s", op->name);
    if (graph->scope[0]) strata_fail_in(&graph->error, status, "%s", graph->scope);
    return &graph->poison;
}

strata_tensor *strata_graph_poison(strata_graph *graph, const strata_op *op, strata_status status, const char *format, ...) {
    if (!graph) return NULL;
    va_list arguments;
    va_start(arguments, format);
    strata_tensor *result = poison(graph, op, status, format, arguments);
    va_end(arguments);
    return result;
}

strata_tensor *strata_graph_fail(strata_graph *graph, strata_status status, const char *format, ...) {
    if (!graph) return NULL;
    va_list arguments;
    va_start(arguments, format);
    strata_tensor *result = poison(graph, NULL, status ? status : STRATA_INVALID, format, arguments);
    va_end(arguments);
    return result;
}

bool strata_tensor_is_poison(const strata_tensor *tensor) {
    return !tensor || tensor == &tensor->graph->poison;
}

void *strata_graph_alloc(strata_graph *graph, size_t bytes) {
    void *memory = strata_memory_take(&graph->memory, 1, bytes);
    if (!memory) strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "graph: no memory for %zu bytes", bytes);
    return memory;
}

char *strata_graph_strdup(strata_graph *graph, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = strata_graph_alloc(graph, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Returns the graph to which all inputs belong. If they belong to several graphs, or if one is NULL, it poisons a
 * graph. */
static strata_graph *inputs_graph(strata_graph *graph, const strata_op *op, int n_inputs, strata_tensor *const *inputs) {
    for (int i = 0; i < n_inputs && !graph; i++)
        if (inputs[i]) graph = inputs[i]->graph;
    for (int i = 0; i < n_inputs && graph; i++) {
        if (!inputs[i])
            strata_graph_poison(graph, op, STRATA_INVALID, "operand %d is NULL", i);
        else if (inputs[i]->graph != graph)
            strata_graph_poison(graph, op, STRATA_INVALID, "operand %d belongs to another graph", i);
    }
    return graph;
}

strata_status strata_infer(strata_tensor *node, strata_error *err) {
    if (node->n_inputs) node->dtype = node->inputs[0]->dtype;
    if (node->n_inputs) node->shape = node->inputs[0]->shape;
    return node->op->shape ? node->op->shape(node, err) : STRATA_OK;
}

strata_tensor *strata_node(strata_graph *graph, const strata_op *op, int n_inputs, strata_tensor *const *inputs,
                           const void *attrs) {
    graph = inputs_graph(graph, op, n_inputs, inputs);
    if (!graph) return NULL;
    if (graph->status) return &graph->poison;
    if (n_inputs < op->n_inputs || (op->optional_inputs >= 0 && n_inputs > op->n_inputs + op->optional_inputs))
        return strata_graph_poison(graph, op, STRATA_INVALID, "takes at least %d operand(s), was given %d", op->n_inputs,
                                   n_inputs);
    strata_tensor *node = strata_graph_alloc(graph, sizeof *node);
    strata_tensor **own_inputs = node && n_inputs ? strata_graph_alloc(graph, (size_t)n_inputs * sizeof *own_inputs) : NULL;
    void *own_attrs = node && op->attrs_bytes ? strata_graph_alloc(graph, op->attrs_bytes) : NULL;
    if (graph->status) return &graph->poison;
    if (n_inputs) memcpy(own_inputs, inputs, (size_t)n_inputs * sizeof *own_inputs);
    if (own_attrs && attrs) memcpy(own_attrs, attrs, op->attrs_bytes);
    *node = (strata_tensor){
        .graph = graph, .op = op, .id = graph->n_nodes, .n_inputs = n_inputs, .inputs = own_inputs, .attrs = own_attrs};

    strata_error err = {0};
    strata_status status = strata_infer(node, &err);
    if (!status) status = strata_shape_check(node->shape, &err);
    if (status) return strata_graph_poison(graph, op, status, "%s", err.message);
    if (!strata_grow(&graph->nodes, graph->n_nodes, sizeof(*graph->nodes)))
        return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "graph: no memory for %d nodes", graph->n_nodes + 1);
    graph->nodes[graph->n_nodes++] = node;
    return node;
}

strata_status strata_reference(strata_op_call call, strata_error *err) {
    call.status = STRATA_OK;
    call.err = err;
    call.node->op->reference(&call);
    return call.status;
}

void *strata_call_alloc(strata_op_call *call, int64_t n, size_t bytes) {
    void *memory = calloc((size_t)n + 1, bytes);
    if (!memory) call->status = strata_fail(call->err, STRATA_OUT_OF_MEMORY, "no host memory for %lld numbers", (long long)n);
    return memory;
}

double strata_node_flops(const strata_tensor *node) {
    if (node->op->flops) return node->op->flops(node);
    return node->op->flags & STRATA_OP_ELEMENTWISE ? (double)strata_shape_elements(node->shape) : 0;
}

double strata_node_moved_bytes(const strata_tensor *node) {
    if (node->op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW | STRATA_OP_SLICES)) return 0;
    double bytes = (double)strata_tensor_bytes(node);
    for (int i = 0; i < node->n_inputs; i++)
        bytes += (double)strata_tensor_bytes(node->inputs[i]) * (node->op->also_writes >> i & 1 ? 2 : 1);
    return bytes;
}

double strata_graph_flops(const strata_graph *graph, int first) {
    double sum = 0;
    for (int id = first; id < graph->n_nodes; id++) sum += strata_node_flops(graph->nodes[id]);
    return sum;
}

strata_shape strata_tensor_shape(const strata_tensor *tensor) {
    return tensor ? tensor->shape : (strata_shape){0};
}

strata_dtype strata_tensor_dtype(const strata_tensor *tensor) {
    return tensor ? tensor->dtype : STRATA_DTYPE_F32;
}

strata_graph *strata_tensor_graph(const strata_tensor *tensor) {
    return tensor ? tensor->graph : NULL;
}

strata_tensor *strata_tensor_set_name(strata_tensor *tensor, const char *name) {
    if (!strata_tensor_is_poison(tensor) && name) tensor->name = strata_graph_strdup(tensor->graph, name);
    return tensor;
}

const char *strata_tensor_name(const strata_tensor *tensor) {
    if (!tensor) return "NULL";
    return tensor->name ? tensor->name : tensor->op->name;
}
