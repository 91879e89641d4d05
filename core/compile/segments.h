/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: the parts of a replica's graph between communication nodes.
 *
 * Nodes are in program order. A segment ends where a communication node is followed by a node that computes; each segment
 * becomes one program. The operand of a communication node is an output of the segment that computes it, and its result is an
 * input of the first segment that uses it. Segments that do not need the result can run during the exchange; a strategy
 * determines which those are by the position of its communication nodes. */
#ifndef STRATA_CORE_SEGMENTS_H
#define STRATA_CORE_SEGMENTS_H

#include "core/graph/graph.h"

/* Whether the host performs the node, between programs. Not for collectives of the cores of a system, which run inside of
 * programs. */
bool strata_is_communication(const strata_tensor *node);

/* Counts segments while the caller iterates over the nodes in order. Initialize with {0}. strata_segment_of_next returns the
 * segment of the next node; computes: the node is no communication node. */
typedef struct strata_segment_counter {
    int segment;
    /* The last node was a communication node, so the next computing node begins a segment. */
    bool ended;
} strata_segment_counter;
int strata_segment_of_next(strata_segment_counter *counter, bool computes);

/* Copies every value that would need memory in two segments: inputs, and results of communication, that several segments use,
 * and operands of communication and outputs that are used later too. Replaces *graph by a new graph and destroys the old one,
 * and replaces outputs and updates by the corresponding tensors. A graph without communication is not changed. */
STRATA_MUST_USE strata_status strata_segments_prepare(strata_graph **graph, strata_tensor **outputs, int n_outputs,
                                                      strata_tensor **updates, int n_updates, strata_error *err);

#endif
