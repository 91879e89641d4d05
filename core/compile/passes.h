/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes between a user's graph and the plan: a clean copy without dead code, common subexpressions merged, bias, activation
 * and gradient masks fused into matrix products, and element-wise nodes fused into chains. The user's graph is not changed. */
#ifndef STRATA_CORE_PASSES_H
#define STRATA_CORE_PASSES_H

#include "core/compile/piece.h"

/* What the passes ask of the device that the graph is compiled for. */
typedef struct strata_device_query {
    /* Whether the device can run the node. */
    strata_support (*supports)(void *user, const strata_tensor *node);
    void *user;
    /* No nodes are fused. */
    bool no_fusion;
} strata_device_query;

/* Makes *out_graph (the caller's to destroy) with what outputs and updates need. new_outputs[i] and new_updates[i] are the
 * counterparts; each new output is a computed node of its own: a leaf, a view, an update or an output asked for twice is
 * copied. A variable's value that is still read after the variable was updated is copied before the update. `query` NULL:
 * every node is taken to run, and none is fused. Nodes of the op print go, and their operands stand for them; `alone`: there is
 * one replica, so that communication nodes go in the same way. */
STRATA_MUST_USE strata_status strata_passes_run(strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                                                int n_updates, const strata_device_query *query, bool alone,
                                                strata_graph **out_graph, strata_tensor **new_outputs,
                                                strata_tensor **new_updates, strata_error *err);

/* Element-wise nodes folded into the matrix product that feeds them, in place, where the device runs that; what they leave
 * behind is dead (core/compile/fusion.c). */
void strata_fuse_epilogues(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                           int n_updates, const strata_device_query *query);

/* If the node is an adam that may compute the product which is a part of its gradients itself, it does from now on, where the
 * device runs that (core/compile/product_updates.c). uses: how often each value is read, by id. */
void strata_fuse_product_update(strata_tensor *adam, const int *uses, const strata_device_query *query);

/* Element-wise nodes that only element-wise nodes read become one chain with these, where the device supports it
 * (core/compile/chains.c). */
void strata_fuse_chains(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                        int n_updates, const strata_device_query *query);

/* Nodes that the device lacks, or whose parts it runs better, are replaced by compositions of those that it has, where there
 * are such. *out_graph is the new graph (the caller's to destroy), and new_outputs and new_updates, which may be the arrays
 * `outputs` and `updates`, are the counterparts. NULL: there was nothing to replace, and the others are copies
 * (core/compile/decompose.c). */
STRATA_MUST_USE strata_status strata_decompose(strata_graph *graph, strata_tensor *const *outputs, int n_outputs,
                                               strata_tensor *const *updates, int n_updates, const strata_device_query *query,
                                               strata_graph **out_graph, strata_tensor **new_outputs,
                                               strata_tensor **new_updates, strata_error *err);
/* Of a node that the device lacks and that has a composition: an op of it that the device lacks too. NULL: there is none, or no
 * composition. Builds in a graph of its own. */
const char *strata_decompose_obstacle(const strata_tensor *node, const strata_device_query *query);

/* `node` computes what `fused` does, which is dead then; it stays as it is where `fused` is the poison, or the device lacks it
 * or prefers its parts. */
void strata_fusion_become(strata_tensor *node, const strata_tensor *fused, const strata_device_query *query);

#endif
