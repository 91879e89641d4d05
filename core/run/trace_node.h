/* SPDX-License-Identifier: Apache-2.0
 *
 * How a node is called in a trace. */
#ifndef STRATA_CORE_TRACE_NODE_H
#define STRATA_CORE_TRACE_NODE_H

#include "core/base/trace.h"
#include "strata/graph.h"

/* "matmul (64,128)", with op, name, dtype, shapes and the kernel that runs it (NULL: none is known). parts: how many slices the
 * node has in each run; GFLOP/s are known where it is one. NULL where there is no memory. */
const strata_trace_label *strata_trace_node(strata_trace *trace, const strata_tensor *node, const char *kernel, int parts);

#endif
