/* SPDX-License-Identifier: Apache-2.0
 *
 * For the memory plan: the positions of a pack's operands in its output, so that they are computed there without a copy. */
#ifndef STRATA_CORE_OP_PACK_H
#define STRATA_CORE_OP_PACK_H

#include "core/graph/graph.h"

typedef struct strata_pack_attrs {
    /* First element of each operand; n_inputs of them, in the graph's memory. */
    const int64_t *offsets;
    /* Elements in all. */
    int64_t size;
} strata_pack_attrs;

#endif
