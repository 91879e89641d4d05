/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of nodes in traces. */
#ifndef STRATA_CORE_TRACE_NODE_H
#define STRATA_CORE_TRACE_NODE_H

#include "core/base/trace.h"
#include "strata/graph.h"

/* Adds the label of a node to a trace: "matmul (64,128)", with the node's op, name, dtype and shapes, and the kernel
 * that runs it (NULL: not known). parts: the number of slices that the node has in each run; with more than one the
 * GFLOP/s of a slice are not known. Returns NULL if there is no memory. */
const strata_trace_label *strata_trace_node(strata_trace *trace, const strata_tensor *node, const char *kernel, int parts);

#endif
