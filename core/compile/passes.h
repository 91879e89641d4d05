/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes on a copy of the user's graph, before the memory plan: dead code is removed, common subexpressions are merged, bias,
 * activation and gradient masks are fused into matrix products, and element-wise nodes are fused into chains. The user's graph
 * is not changed. */
#ifndef STRATA_CORE_PASSES_H
#define STRATA_CORE_PASSES_H

#include "core/compile/piece.h"
#include "core/compile/walk.h"

/* The queries with which passes find out what the device supports. */
typedef struct strata_device_query {
    /* Whether the device can run the node. */
    strata_support (*supports)(void *user, const strata_tensor *node);
    void *user;
    /* Do not fuse nodes. */
    bool no_fusion;
} strata_device_query;

/* Each pass replaces the draft's graph by a copy, or changes the copy that a pass before it made. */

/* Runs the passes before the memory plan. Each output becomes a separate computed node: one that is a leaf, a view or an
 * update, or that occurs twice, is copied. A variable's value that is used after the variable was updated is copied before the
 * update. Nodes of the op print are replaced by their operands; with `alone` (there is one replica) communication nodes are
 * too. */
STRATA_MUST_USE strata_status strata_passes_run(strata_draft *draft, const strata_device_query *query, bool alone,
                                                strata_error *err);

/* Fuses element-wise nodes into the matrix product whose result they use, where the device supports the fused product. The
 * replaced nodes stay in the graph as dead nodes (core/compile/fusion.c). */
void strata_fuse_epilogues(strata_draft *draft, const strata_device_query *query);

/* Fuses element-wise nodes with the element-wise nodes that use them into chains, where the device supports it
 * (core/compile/chains.c). */
void strata_fuse_chains(strata_draft *draft, const strata_device_query *query);

/* Copies every value that would need memory in two segments: inputs, and results of communication, that several segments use,
 * and operands of communication and outputs that are used later too. A graph without communication is not changed
 * (core/compile/segments.c). */
STRATA_MUST_USE strata_status strata_segments_prepare(strata_draft *draft, strata_error *err);

/* Counts segments while the caller iterates over the nodes in order. Initialize with {0}. strata_segment_of_next returns the
 * segment of the next node; computes: the node is no communication node. */
typedef struct strata_segment_counter {
    int segment;
    /* The last node was a communication node, so the next computing node begins a segment. */
    bool ended;
} strata_segment_counter;
int strata_segment_of_next(strata_segment_counter *counter, bool computes);

/* Replaces nodes that the device does not support, or whose parts it runs faster, by compositions of supported nodes, if there
 * are any; if there are none, the graph is not changed (core/compile/decompose.c). */
STRATA_MUST_USE strata_status strata_decompose(strata_draft *draft, const strata_device_query *query, strata_error *err);
/* For a node that the device does not support: an op in its composition that the device does not support either. NULL: there is
 * no such op, or no composition. Builds the composition in a separate graph. */
const char *strata_decompose_obstacle(const strata_tensor *node, const strata_device_query *query);

/* Changes `node` so that it computes what `fused` computes; `fused` is then dead. `node` is not changed if `fused` is the
 * poison, or if the device does not support it or prefers its parts. */
void strata_fusion_become(strata_tensor *node, const strata_tensor *fused, const strata_device_query *query);

#endif
