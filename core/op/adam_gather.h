/* SPDX-License-Identifier: Apache-2.0
 *
 * adam_gather: Adam over flat ranges, where a part of the gradients is the gradient of a table from which rows were
 * gathered (core/compile/product_updates.c). The inputs are those of adam_product, where the last two are
 *   dy, indices: those of a gather_grad along axis 0
 * For elements offset .. offset + rows inner - 1 the gradient is gather_grad(dy, indices), row by row; these elements of
 * `gradients` are not read. */
#ifndef STRATA_CORE_OP_ADAM_GATHER_H
#define STRATA_CORE_OP_ADAM_GATHER_H

#include "core/op/adam_product.h"
#include "core/op/gather.h"

enum { STRATA_ADAM_GATHER_DY = STRATA_ADAM_PRODUCT_A, STRATA_ADAM_GATHER_INDICES };

typedef struct strata_adam_gather_attrs {
    strata_adam_product_attrs update;
    /* The number of rows of the table. */
    int64_t rows;
} strata_adam_gather_attrs;

/* The sizes of the gather_grad along axis 0 that the node contains; their `outer` is always 1. */
strata_gather_grad_sizes strata_adam_gather_sizes_of(const strata_tensor *node);

/* Returns a copy of the node `adam`, which must have a gate. In this copy, the gradients from element `offset` on are the
 * value of `grad`, a gather_grad along axis 0. */
strata_tensor *strata_adam_gather(const strata_tensor *adam, const strata_tensor *grad, int64_t offset);

#endif
