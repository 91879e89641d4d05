/* SPDX-License-Identifier: Apache-2.0
 *
 * For the memory plan: which slices are views of their operand, without a copy. */
#ifndef STRATA_CORE_OP_SLICE_H
#define STRATA_CORE_OP_SLICE_H

#include "core/graph/graph.h"

typedef struct strata_slice_attrs {
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
} strata_slice_attrs;

/* Whether the slice is one run of consecutive elements of its operand (it cuts one axis at most, behind axes of size 1 only);
 * *out_first_element is where it begins. `node` is a slice. */
bool strata_slice_is_view(const strata_tensor *node, int64_t *out_first_element);

#endif
