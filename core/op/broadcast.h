/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's broadcasting: shapes are aligned at their last axis; sizes must be equal or 1, missing leading axes count as 1. */
#ifndef STRATA_CORE_OP_BROADCAST_H
#define STRATA_CORE_OP_BROADCAST_H

#include "core/graph/graph.h"

typedef struct strata_broadcast_to_attrs {
    strata_shape shape;
} strata_broadcast_to_attrs;

/* The shape that a and b broadcast to; INVALID naming both and the axis that does not fit. */
STRATA_MUST_USE strata_status strata_broadcast_shape(strata_shape a, const char *a_name, strata_shape b, const char *b_name,
                                                     strata_shape *out_shape, strata_error *err);

/* The gradient of broadcasting: dy, summed over the axes along which `shape` was repeated to dy's shape. */
strata_tensor *strata_sum_to(strata_tensor *dy, strata_shape shape);

#endif
