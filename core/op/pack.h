/* SPDX-License-Identifier: Apache-2.0
 *
 * What pack tells the planner, which lets its operands be computed straight into their places. */
#ifndef STRATA_CORE_OP_PACK_H
#define STRATA_CORE_OP_PACK_H

#include "core/graph/graph.h"

typedef struct strata_pack_attrs {
    const int64_t *offsets; /* first element of each operand; n_inputs of them, in the graph's memory */
    int64_t size;           /* elements in all */
} strata_pack_attrs;

#endif
