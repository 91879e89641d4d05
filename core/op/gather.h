/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions and attributes of gather_grad and gather_mean (gather.c) for the fusion pass and for the families of kernels. */
#ifndef STRATA_CORE_OP_GATHER_H
#define STRATA_CORE_OP_GATHER_H

#include "core/op/reduce.h"

/* Views dx of a gather_grad as (outer, axis, inner), and dy as (outer, n_indices / repeats, inner). Each row of dy is
 * used for `repeats` neighbouring indices. */
typedef struct strata_gather_grad_sizes {
    int64_t outer, axis, inner, n_indices, repeats;
} strata_gather_grad_sizes;
strata_gather_grad_sizes strata_gather_grad_sizes_of(const strata_tensor *node);

/* The attributes of gather_grad: the axis of x, counted from the front, and the size of x along it. */
typedef struct strata_gather_grad_attrs {
    int64_t axis, size;
} strata_gather_grad_attrs;

/* For a gather_grad whose dy is a broadcast_to along the last axis of the indices: a node of the same value that reads the
 * operand of that broadcast, so that the repeated rows are not stored. NULL for any other node. */
strata_tensor *strata_gather_grad_unrepeated(strata_tensor *node);

/* The table has `rows` rows. order.axes describes `outer` means of n rows with `inner` elements each; `order` is the
 * order in which shaders/reduce.kernel would add these rows. */
typedef struct strata_gather_mean_sizes {
    int64_t rows;
    strata_reduce_order order;
} strata_gather_mean_sizes;
strata_gather_mean_sizes strata_gather_mean_sizes_of(const strata_tensor *node);

/* For a reduce_mean along the indices' last axis of a gather along the first axis: a node of the same value, which stores no
 * gathered rows. NULL for any other node. */
strata_tensor *strata_gather_mean_of(strata_tensor *node);

#endif
