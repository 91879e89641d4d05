/* SPDX-License-Identifier: Apache-2.0
 *
 * adam_gather: Adam over flat ranges, a part of whose gradients is the gradient of a table of rows from which rows were
 * gathered (core/compile/product_updates.c). The inputs are those of adam_product, with
 *   dy, indices: those of a gather_grad along axis 0
 * as the last two. For elements offset .. offset + rows inner - 1 the gradient is gather_grad(dy, indices), row by row; these
 * elements of `gradients` are not read. */
#ifndef STRATA_CORE_OP_ADAM_GATHER_H
#define STRATA_CORE_OP_ADAM_GATHER_H

#include "core/op/adam_product.h"
#include "core/op/gather.h"

enum { STRATA_ADAM_GATHER_DY = STRATA_ADAM_PRODUCT_A, STRATA_ADAM_GATHER_INDICES };

typedef struct strata_adam_gather_attrs {
    strata_adam_product_attrs update;
    /* Of the table. */
    int64_t rows;
} strata_adam_gather_attrs;

/* outer is 1. */
strata_gather_grad_sizes strata_adam_gather_sizes_of(const strata_tensor *node);

/* The node `adam`, which has a gate, with the value of `grad` as gradients from element `offset` on. grad is a gather_grad
 * along axis 0. */
strata_tensor *strata_adam_gather(const strata_tensor *adam, const strata_tensor *grad, int64_t offset);

#endif
