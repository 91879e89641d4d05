/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes, segments and the plan do alike with the nodes of a graph. */
#ifndef STRATA_CORE_WALK_H
#define STRATA_CORE_WALK_H

#include "core/graph/graph.h"

/* Whether the node's bytes are bytes of its input: a reshape, or a slice that is one run of elements. *out_first_byte (may be
 * NULL): where they begin in it. */
bool strata_is_view(const strata_tensor *node, int64_t *out_first_byte);

/* Sets live[id] for outputs, updates and all that they need. live: [graph->n_nodes], false. uses (may be NULL): zeros, and
 * uses[id] becomes the number of times that live nodes read the value. */
void strata_mark_live(const strata_graph *graph, strata_tensor *const *outputs, int n_outputs, strata_tensor *const *updates,
                      int n_updates, bool *live, int *uses);

/* Adds to `to` a node with the op, attributes, dtype, shape and name of `node`, and these inputs. */
strata_tensor *strata_copy_node(strata_graph *to, const strata_tensor *node, strata_tensor *const *inputs);
/* A computed node that has the value in bytes of its own. */
strata_tensor *strata_copy_value(strata_tensor *value);

#endif
