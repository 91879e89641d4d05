/* SPDX-License-Identifier: Apache-2.0
 *
 * What all passes and the plan share: drafts, and helpers that iterate over the nodes of a graph. */
#ifndef STRATA_CORE_WALK_H
#define STRATA_CORE_WALK_H

#include "core/graph/graph.h"

/* A graph on its way to a program. */
typedef struct strata_draft {
    /* Retained. A pass replaces it by a graph that retains it. */
    strata_graph *graph;
    /* The values that the host reads, and the updates of variables. */
    strata_tensor **outputs, **updates;
    int n_outputs, n_updates;
} strata_draft;

/* Begins a draft, which strata_draft_finish ends also after a failure. Fails: INVALID for roots that are NULL or of several
 * graphs, or if there are none; with the error of a graph that could not be built. */
STRATA_MUST_USE strata_status strata_draft_begin(strata_draft *draft, strata_tensor *const *outputs, int n_outputs,
                                                 strata_tensor *const *updates, int n_updates, strata_error *err);
/* Takes `to`, a copy of the draft's graph, in its place, also on failure. By the id of an old output or update: what it has
 * become. Fails with the error of `to`. */
STRATA_MUST_USE strata_status strata_draft_replace(strata_draft *draft, strata_graph *to, strata_tensor *const *outputs,
                                                   strata_tensor *const *updates, strata_error *err);
void strata_draft_finish(strata_draft *draft); /* a zeroed struct is fine */

/* Whether the host performs the node, between programs. Not for collectives of the cores of a system, which run inside of
 * programs. */
bool strata_is_communication(const strata_tensor *node);

/* Whether the node is a view, whose bytes are bytes of its input: a reshape, or a slice of contiguous elements. *out_first_byte
 * (may be NULL): the offset in the input. */
bool strata_is_view(const strata_tensor *node, int64_t *out_first_byte);

/* Sets live[id] for outputs, updates and collectives (all cores must run them, also one that does not need the result), and for
 * all nodes on which they, and nodes that are live already, depend. uses (may be NULL): zeros, and uses[id] becomes the number
 * of times that live nodes read the value. */
void strata_mark_live(const strata_draft *draft, bool *live, int *uses);

/* For each node from `first` to `last`, whether `last` depends on it; memory of the graph. NULL: there is none. */
bool *strata_find_needed(strata_graph *graph, int first, int last);

/* Whether the update changes the memory of its input i. False for other ops. */
bool strata_is_written(const strata_tensor *node, int i);

/* Whether the node would have the same value if `later`, a later node of its graph, computed it: neither `later` nor an update
 * in between changes what the node reads. */
bool strata_may_move(const strata_tensor *node, const strata_tensor *later);

/* Whether two nodes of a graph compute the same: they have the same op, attributes and inputs. Constants are compared by their
 * elements. */
bool strata_same_value(const strata_tensor *a, const strata_tensor *b);
static inline bool strata_is_narrow(const strata_tensor *x) {
    return x->dtype == STRATA_DTYPE_F16 || x->dtype == STRATA_DTYPE_BF16;
}
/* Builds the node with f32 operands and rounds its result; NULL if no operand is f16 or bf16, and for casts and updates. */
strata_tensor *strata_node_in_f32(const strata_tensor *node);

/* Adds to `to` a node with the op, attributes, dtype, shape and name of `node`, and these inputs. */
strata_tensor *strata_copy_node(strata_graph *to, const strata_tensor *node, strata_tensor *const *inputs);
/* The same, with mapped[id] in the place of each input of that id. */
strata_tensor *strata_copy_mapped(strata_graph *to, const strata_tensor *node, strata_tensor *const *mapped);
/* Adds a leaf of the tensor's dtype and shape. If updates have written the tensor, or an update may, it is a read of the
 * variable, because the shape rules of updates require one; else it is an input without a name. */
strata_tensor *strata_stand_in(strata_graph *graph, const strata_tensor *tensor);
/* Adds a node that copies the value to memory of its own. */
strata_tensor *strata_copy_value(strata_tensor *value);

#endif
