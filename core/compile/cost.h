/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of nodes, for summaries and for bounds on the time of a step. */
#ifndef STRATA_CORE_COST_H
#define STRATA_CORE_COST_H

#include "strata/graph.h"

/* The number of additions and multiplications of one run of the node; a multiply-add counts as two. The op's `flops`
 * computes it. Without `flops` it is one for each element of the output of an element-wise op, and 0 for other ops. */
double strata_node_flops(const strata_tensor *node);
/* The bytes that one run reads and writes if each input is read once as a whole, and each output (Adam has three) is
 * written once. 0 for leaves and views, and for a pack, whose inputs are computed directly at their places in it. */
double strata_node_moved_bytes(const strata_tensor *node);
/* The sum of strata_node_flops over the graph's nodes from id `first` on. */
double strata_graph_flops(const strata_graph *graph, int first);

#endif
