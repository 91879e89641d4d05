/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes of a graph cost, for summaries and for what a step could be bounded by. */
#ifndef STRATA_CORE_COST_H
#define STRATA_CORE_COST_H

#include "strata/graph.h"

/* Additions and multiplications of one run of the node, a multiply-add as two: what its op says, else one for each element of
 * an element-wise op's output, else 0. */
double strata_node_flops(const strata_tensor *node);
/* Bytes that one run reads and writes when each input is read once, whole, and each output (Adam's are three) written once. 0
 * for leaves and views, and for a pack, whose inputs are computed into their place. */
double strata_node_moved_bytes(const strata_tensor *node);
/* The sum of strata_node_flops over the graph's nodes from id `first` on. */
double strata_graph_flops(const strata_graph *graph, int first);

#endif
