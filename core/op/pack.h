/* SPDX-License-Identifier: Apache-2.0
 *
 * For the memory plan: the positions of a pack's operands in its output, so that they are computed there without a copy. */
#ifndef STRATA_CORE_OP_PACK_H
#define STRATA_CORE_OP_PACK_H

#include "core/graph/graph.h"

typedef struct strata_pack_attrs {
    /* The element of the output at which each operand begins; n_inputs entries, in the graph's memory. */
    const int64_t *offsets;
    /* The number of elements of the output. */
    int64_t size;
} strata_pack_attrs;

#endif
