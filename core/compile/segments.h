/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: the parts of a replica's graph between communication nodes.
 *
 * Nodes are in program order. A segment ends where a communication node is followed by a node that computes; each segment
 * becomes one program. What a communication node takes is an output of the segment that computes it; what it gives is an input
 * of the first segment that uses it. So segments that do not need a result run on while it is on its way, and a strategy
 * decides how much that is by where it puts its communication nodes. */
#ifndef STRATA_CORE_SEGMENTS_H
#define STRATA_CORE_SEGMENTS_H

#include "core/graph/graph.h"

/* Whether the host carries the node out, between programs. Collectives of a system's cores are not: they compute. */
bool strata_is_communication(const strata_tensor *node);

/* Walks nodes in order and says in which segment each computing one is. Begin with {0}. */
typedef struct strata_segment_counter {
    int segment;
    /* A communication node came after the newest computing one. */
    bool ended;
} strata_segment_counter;
int strata_segment_of_next(strata_segment_counter *counter, bool computes);

/* Puts a copy in place of every value that would have to lie in two segments' memory: inputs and results of communication used
 * in more than one segment, operands of communication and outputs that are used later too. Replaces *graph, which it destroys,
 * by the new graph, and outputs and updates by their counterparts; does nothing to a graph without communication. */
STRATA_MUST_USE strata_status strata_segments_prepare(strata_graph **graph, strata_tensor **outputs, int n_outputs,
                                                      strata_tensor **updates, int n_updates, strata_error *err);

#endif
