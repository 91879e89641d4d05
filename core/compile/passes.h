/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes on a copy of the user's graph, before the memory plan: dead code is removed, common subexpressions are merged, bias,
 * activation and gradient masks are fused into matrix products, and element-wise nodes are fused into chains. The user's graph
 * is not changed. */
#ifndef STRATA_CORE_PASSES_H
#define STRATA_CORE_PASSES_H

#include "core/compile/piece.h"

/* The queries with which passes find out what the device supports. */
typedef struct strata_device_query {
    /* Whether the device can run the node. */
    strata_support (*supports)(void *user, const strata_tensor *node);
    void *user;
    /* Do not fuse nodes. */
    bool no_fusion;
} strata_device_query;

/* Makes *out_graph, which the caller destroys, with the nodes that outputs and updates need. new_outputs[i] and new_updates[i]
 * correspond to outputs[i] and updates[i]. Each new output is a separate computed node: an output that is a leaf, a view or an
 * update, or that occurs twice, is copied. A variable's value that is used after the variable was updated is copied before the
 * update. `query` NULL: every node counts as supported, and none is fused. Nodes of the op print are replaced by their
 * operands; with `alone` (there is one replica) communication nodes are too. */
STRATA_MUST_USE strata_status strata_passes_run(strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                                                int n_updates, const strata_device_query *query, bool alone,
                                                strata_graph **out_graph, strata_tensor **new_outputs,
                                                strata_tensor **new_updates, strata_error *err);

/* Fuses element-wise nodes into the matrix product whose result they use, where the device supports the fused product. The
 * replaced nodes stay in the graph as dead nodes (core/compile/fusion.c). */
void strata_fuse_epilogues(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                           int n_updates, const strata_device_query *query);

/* Fuses element-wise nodes with the element-wise nodes that use them into chains, where the device supports it
 * (core/compile/chains.c). */
void strata_fuse_chains(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                        int n_updates, const strata_device_query *query);

/* Replaces nodes that the device does not support, or whose parts it runs faster, by compositions of supported nodes, if there
 * are any (core/compile/decompose.c). *out_graph is a new graph, which the caller destroys, and new_outputs and new_updates,
 * which may be the arrays `outputs` and `updates`, are the corresponding tensors. If there was nothing to replace, *out_graph
 * is NULL, and new_outputs and new_updates are copies of the arrays. */
STRATA_MUST_USE strata_status strata_decompose(strata_graph *graph, strata_tensor *const *outputs, int n_outputs,
                                               strata_tensor *const *updates, int n_updates, const strata_device_query *query,
                                               strata_graph **out_graph, strata_tensor **new_outputs,
                                               strata_tensor **new_updates, strata_error *err);
/* For a node that the device does not support: an op in its composition that the device does not support either. NULL: there is
 * no such op, or no composition. Builds the composition in a separate graph. */
const char *strata_decompose_obstacle(const strata_tensor *node, const strata_device_query *query);

/* Changes `node` so that it computes what `fused` computes; `fused` is then dead. `node` is not changed if `fused` is the
 * poison, or if the device does not support it or prefers its parts. */
void strata_fusion_become(strata_tensor *node, const strata_tensor *fused, const strata_device_query *query);

#endif
