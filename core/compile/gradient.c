/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation: one loop over the nodes from y back to the leaves, which calls the gradient function of each
 * node's op. Where it enters nodes that are to be computed again (strata_graph_recompute), it adds copies of them, and gradient
 * functions get the copies. The nodes of a program run in the order of their ids, so the copies run where the gradients of
 * these nodes begin, and the memory of the original values is free between their last use in the forward pass and then. */
#include "core/compile/walk.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"
#include "strata/ops.h"

/* needed[id]: node id lies on a path from one of x to y. */
static void mark_needed(const strata_graph *graph, strata_tensor *const *x, int n_x, int y_id, bool *needed) {
    for (int i = 0; i < n_x; i++)
        if (x[i]->id <= y_id) needed[x[i]->id] = true;
    for (int id = 0; id <= y_id; id++) {
        const strata_tensor *node = graph->nodes[id];
        for (int i = 0; i < node->n_inputs && !needed[id]; i++) needed[id] = needed[node->inputs[i]->id];
    }
}

/* ---- values that are computed again ---- */

void strata_graph_recompute(strata_graph *graph, int first) {
    strata_recomputed *range = strata_graph_alloc(graph, sizeof *range);
    if (!range) return;
    while (graph->recomputed && graph->recomputed->first >= first) graph->recomputed = graph->recomputed->next;
    *range = (strata_recomputed){first, graph->n_nodes, graph->recomputed};
    graph->recomputed = range;
}

/* What a copy reads instead of x: the copy of x, or an alias of x if there is none. A copy that read the same values as the
 * original would be merged with it. Integers have no aliases, so that what depends on indices alone is computed once. */
static strata_tensor *read_again(strata_tensor *x, int first, strata_tensor *const *again) {
    if (x->id >= first && again[x->id] != x) return again[x->id];
    return strata_dtype_is_float(x->dtype) && x->op != &strata_op_constant ? strata_alias(x) : x;
}

/* Whether a node of the range stays the only one: leaves, exchanges with other replicas and updates are not repeated, and a
 * view of a value that is kept needs no memory. */
static bool is_kept(const strata_tensor *node, int first, strata_tensor *const *again) {
    if (!node->n_inputs || (node->op->flags & (STRATA_OP_COMMUNICATION | STRATA_OP_UPDATE))) return true;
    const strata_tensor *x = node->inputs[0];
    return strata_is_view(node, NULL) && (x->id < first || again[x->id] == x);
}

/* Sets again[id] to a copy of each node of the range, or to the node itself. Values that the host prints are printed once. */
static void compute_again(strata_graph *graph, const strata_recomputed *range, int y_id, strata_tensor **again) {
    for (int id = range->first; id < range->end && id <= y_id; id++) {
        strata_tensor *node = again[id] = graph->nodes[id];
        if (is_kept(node, range->first, again)) continue;
        strata_tensor **inputs = strata_graph_alloc(graph, ((size_t)node->n_inputs + 1) * sizeof *inputs);
        if (!inputs) return;
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = read_again(node->inputs[i], range->first, again);
        again[id] = node->op == &strata_op_print ? inputs[0] : strata_copy_node(graph, node, inputs);
    }
}

/* ---- the loop ---- */

/* Adds the gradients that `node` passes to its needed inputs, given dy = grads[node->id]. values: the node itself, or its copy
 * with copied operands. */
static void propagate(strata_tensor *node, strata_tensor *values, const bool *needed, strata_tensor **grads) {
    strata_tensor **dx = strata_graph_alloc(node->graph, (size_t)node->n_inputs * sizeof *dx);
    if (node->op->no_gradient) {
        strata_graph_poison(node->graph, node->op, STRATA_UNSUPPORTED, "it cannot be differentiated: %s",
                            node->op->no_gradient);
        return;
    }
    if (!node->op->gradient || !dx) return;
    node->op->gradient(values, grads[node->id], dx);
    for (int i = 0; i < node->n_inputs; i++) {
        int input = node->inputs[i]->id;
        if (!dx[i] || !needed[input] || !strata_dtype_is_float(node->inputs[i]->dtype)) continue;
        grads[input] = grads[input] ? strata_add(grads[input], dx[i]) : dx[i];
    }
}

static strata_tensor *zeros_like(strata_tensor *x) {
    return strata_broadcast_to(strata_scalar(x->graph, x->dtype, 0), x->shape);
}

/* The loop; the caller provides scratch memory. Gradient functions add nodes after y, so the ids of nodes up to y do not
 * change. */
static void walk(strata_tensor *y, strata_tensor *dy, strata_tensor *const *x, int n_x, bool *needed, strata_tensor **grads,
                 strata_tensor **again, strata_tensor **out_dx) {
    strata_graph *graph = y->graph;
    const strata_recomputed *range = graph->recomputed;
    mark_needed(graph, x, n_x, y->id, needed);
    grads[y->id] = dy ? dy : strata_broadcast_to(strata_scalar(graph, y->dtype, 1), y->shape);
    for (int id = y->id; id >= 0 && !graph->status; id--) {
        strata_tensor *node = graph->nodes[id];
        if (!needed[id] || !grads[id] || !node->n_inputs) continue;
        while (range && range->first > id) range = range->next;
        if (range && id < range->end && !again[id]) compute_again(graph, range, y->id, again);
        if (graph->status) break;
        propagate(node, again[id] && again[id]->op == node->op ? again[id] : node, needed, grads);
    }
    for (int i = 0; i < n_x; i++) {
        strata_tensor *found = x[i]->id <= y->id ? grads[x[i]->id] : NULL;
        out_dx[i] = graph->status ? &graph->poison : found ? found : zeros_like(x[i]);
    }
}

void strata_gradients(strata_tensor *y, strata_tensor *dy, strata_tensor *const *x, int n_x, strata_tensor **out_dx) {
    strata_graph *graph = strata_tensor_graph(y);
    for (int i = 0; i < n_x; i++) out_dx[i] = graph ? &graph->poison : NULL;
    if (!graph || graph->status) return;
    if (!strata_dtype_is_float(y->dtype)) {
        strata_graph_poison(graph, NULL, STRATA_INVALID, "gradients: y is %s; only floats have gradients",
                            strata_dtype_name(y->dtype));
        return;
    }
    if (dy && (strata_tensor_is_poison(dy) || !strata_shape_equal(dy->shape, y->shape) || dy->dtype != y->dtype)) {
        strata_graph_poison(graph, NULL, STRATA_INVALID, "gradients: dy is %s %s, y is %s %s; they must be alike",
                            strata_dtype_name(dy->dtype), strata_shape_text(dy->shape).text, strata_dtype_name(y->dtype),
                            strata_shape_text(y->shape).text);
        return;
    }
    for (int i = 0; i < n_x; i++)
        if (!x[i] || x[i]->graph != graph || strata_tensor_is_poison(x[i]) || !strata_dtype_is_float(x[i]->dtype)) {
            strata_graph_poison(graph, NULL, STRATA_INVALID, "gradients: x[%d] is not a float tensor of y's graph", i);
            return;
        }
    bool *needed = strata_graph_alloc(graph, (size_t)y->id + 1);
    strata_tensor **grads = strata_graph_alloc(graph, ((size_t)y->id + 1) * sizeof *grads);
    strata_tensor **again = strata_graph_alloc(graph, ((size_t)y->id + 1) * sizeof *again);
    if (needed && grads && again) walk(y, dy, x, n_x, needed, grads, again, out_dx);
}
