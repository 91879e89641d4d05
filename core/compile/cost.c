/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the cost of nodes from their shapes. Ops with many operations for each element (products, convolutions)
 * count them in their function `flops`. */
#include "core/compile/cost.h"

#include "core/graph/graph.h"

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
