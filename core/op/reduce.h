/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of reduce_sum, reduce_mean, reduce_max and reduce_min: the reduced axes are neighbours, axis .. axis + n_axes - 1.
 * If they are not, the builders transpose first. */
#ifndef STRATA_CORE_OP_REDUCE_H
#define STRATA_CORE_OP_REDUCE_H

#include "core/op/axes.h"

typedef struct strata_reduce_attrs {
    int64_t axis, n_axes;
    /* 1: the reduced axes are kept, with size 1. */
    int64_t keep_dims;
} strata_reduce_attrs;

/* The order in which shaders/reduce.kernel accumulates along a node's axis: the axis is divided into parts, which a
 * second launch combines, and each part is divided into runs of `run` elements (shaders/rows.h). If there are no runs,
 * `run` is the size of a part. */
typedef struct strata_reduce_order {
    strata_axes axes;
    int64_t parts, run;
} strata_reduce_order;
strata_reduce_order strata_reduce_order_of(const strata_tensor *node);
strata_reduce_order strata_reduce_order_along(strata_axes axes);

/* For ops that sum in parts. The lowering's scratch buffer contains `parts` partial results, each of the node's size, as
 * f32. This adds a launch that sums them in the order of reduce_sum and writes the sum to the node. The node has a float
 * dtype. */
STRATA_MUST_USE strata_status strata_reduce_scratch(const strata_tensor *node, int64_t parts, strata_lowering *lowering,
                                                    strata_error *err);

#endif
