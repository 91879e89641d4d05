/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for passes, segments and the plan, which iterate over the nodes of a graph. */
#ifndef STRATA_CORE_WALK_H
#define STRATA_CORE_WALK_H

#include "core/graph/graph.h"

/* Whether the node is a view, whose bytes are bytes of its input: a reshape, or a slice of contiguous elements. *out_first_byte
 * (may be NULL): the offset in the input. */
bool strata_is_view(const strata_tensor *node, int64_t *out_first_byte);

/* Sets live[id] for outputs, updates and all nodes on which they, and nodes that are live already, depend. uses (may be NULL):
 * zeros, and uses[id] becomes the number of times that live nodes read the value. */
void strata_mark_live(const strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                      int n_updates, bool *live, int *uses);

/* For each node from `first` to `last`, whether `last` depends on it; memory of the graph. NULL: there is none. */
bool *strata_find_needed(strata_graph *graph, int first, int last);

/* Whether the update changes the memory of its input i. False for other ops. */
bool strata_is_written(const strata_tensor *node, int i);

/* Whether the node would have the same value if `later`, a later node of its graph, computed it: neither `later` nor an update
 * in between changes what the node reads. */
bool strata_may_move(const strata_tensor *node, const strata_tensor *later);

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
