/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of reduce_sum, reduce_mean, reduce_max and reduce_min: the axes reduced are neighbours, axis .. axis + n_axes - 1.
 * The builders transpose first where they are not. */
#ifndef STRATA_CORE_OP_REDUCE_H
#define STRATA_CORE_OP_REDUCE_H

#include "core/graph/launch.h"
#include "core/op/axes.h"

typedef struct strata_reduce_attrs {
    int64_t axis, n_axes;
    /* 1: the axes stay, with size 1. */
    int64_t keep_dims;
} strata_reduce_attrs;

/* In which order shaders/reduce.kernel folds a node's axis: cut into parts, which a second launch folds, and a part in runs of
 * `run` elements (as many as the part has, where there are none; rows.h). */
typedef struct strata_reduce_order {
    strata_axes axes;
    int64_t parts, run;
} strata_reduce_order;
strata_reduce_order strata_reduce_order_of(const strata_tensor *node);
strata_reduce_order strata_reduce_order_along(strata_axes axes);

/* For ops that sum in parts: a launch that makes the node the sum, as reduce_sum folds a long axis, of `parts` times its
 * elements that lie in the lowering's scratch buffer as f32. The node is of a float dtype. */
STRATA_MUST_USE strata_status strata_reduce_scratch(const strata_tensor *node, int64_t parts, strata_lowering *lowering,
                                                    strata_error *err);

#endif
