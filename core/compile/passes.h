/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes between a user's graph and the plan: a clean copy without dead code, common subexpressions merged, bias, activation
 * and gradient masks fused into matrix products, and element-wise nodes fused into chains. The user's graph is not changed. */
#ifndef STRATA_CORE_PASSES_H
#define STRATA_CORE_PASSES_H

#include "core/graph/graph.h"

/* What the passes ask of the device that the graph is compiled for. */
typedef struct strata_fusion {
    /* Whether the device runs the fused node, and does not prefer its parts. */
    bool (*wants)(void *user, const strata_tensor *node);
    void *user;
} strata_fusion;

/* Makes *out_graph (the caller's to destroy) with what outputs and updates need. new_outputs[i] and new_updates[i] are the
 * counterparts; each new output is a computed node of its own: a leaf, a view, an update or an output asked for twice is
 * copied. A variable's value that is still read after the variable was updated is copied before the update. `fusion` NULL: no
 * nodes are fused. `alone`: there is one replica, so that communication nodes go, and their operands stand for them. */
STRATA_MUST_USE strata_status strata_passes_run(strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                                                int n_updates, const strata_fusion *fusion, bool alone,
                                                strata_graph **out_graph, strata_tensor **new_outputs,
                                                strata_tensor **new_updates, strata_error *err);

/* Element-wise nodes folded into the matrix product that feeds them, in place, where the device wants the result; what they
 * leave behind is dead (core/compile/fusion.c). */
void strata_fuse_epilogues(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                           int n_updates, const strata_fusion *fusion);

/* Element-wise nodes that only element-wise nodes read become one chain with these, where the device wants it
 * (core/compile/chains.c). */
void strata_fuse_chains(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                        int n_updates, const strata_fusion *fusion);

/* `node` computes what `fused` does, which is dead then; it stays as it is where `fused` is the poison, or the device does not
 * want it. */
void strata_fusion_become(const strata_fusion *fusion, strata_tensor *node, const strata_tensor *fused);

#endif
