/* SPDX-License-Identifier: Apache-2.0
 *
 * For the memory plan: which slices are views of their operand, without a copy. */
#ifndef STRATA_CORE_OP_SLICE_H
#define STRATA_CORE_OP_SLICE_H

#include "core/graph/graph.h"

typedef struct strata_slice_attrs {
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
} strata_slice_attrs;

/* Whether the slice is one range of consecutive elements of its operand, that is, whether all axes before the last axis that is
 * not taken completely have size 1. *out_first_element: the first element of the range. `node` is a slice. */
bool strata_slice_is_view(const strata_tensor *node, int64_t *out_first_element);

#endif
