/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes between a user's graph and the plan: a clean copy without dead code, common subexpressions merged, and bias,
 * activation and gradient masks fused into matrix products. The user's graph is not changed. */
#ifndef STRATA_CORE_PASSES_H
#define STRATA_CORE_PASSES_H

#include "core/graph/graph.h"

/* Makes *out_graph (the caller's to destroy) with what outputs and updates need. new_outputs[i] and new_updates[i] are the
 * counterparts; each new output is a computed node of its own: a leaf, a view, an update or an output asked for twice is
 * copied. A variable's value that is still read after the variable was updated is copied before the update. `alone`: there is
 * one replica, so that communication nodes go, and their operands stand for them. */
STRATA_MUST_USE strata_status strata_passes_run(strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                                                int n_updates, bool no_fusion, bool alone, strata_graph **out_graph,
                                                strata_tensor **new_outputs, strata_tensor **new_updates, strata_error *err);

/* Element-wise nodes folded into the matrix product that feeds them, in place; what they leave behind is dead
 * (core/compile/fusion.c).
 */
void strata_fuse_epilogues(strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                           int n_updates);

#endif
