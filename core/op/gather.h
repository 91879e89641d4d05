/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fusion pass and the families of kernels ask of gather_grad (gather.c). */
#ifndef STRATA_CORE_OP_GATHER_H
#define STRATA_CORE_OP_GATHER_H

#include "core/graph/graph.h"

/* dx of a gather_grad as (outer, axis, inner), where each row of dy (outer, n_indices / repeats, inner) stands for `repeats`
 * neighbouring indices. */
typedef struct strata_gather_grad_sizes {
    int64_t outer, axis, inner, n_indices, repeats;
} strata_gather_grad_sizes;
strata_gather_grad_sizes strata_gather_grad_sizes_of(const strata_tensor *node);

/* What `node` is, taking the operand of its dy where dy is a broadcast_to along the indices' last axis, so that nobody stores
 * the repeated rows. NULL where it is not a gather_grad of that form. */
strata_tensor *strata_gather_grad_unrepeated(strata_tensor *node);

#endif
