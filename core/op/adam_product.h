/* SPDX-License-Identifier: Apache-2.0
 *
 * adam_product: Adam over flat ranges, where a part of the gradients is the product a^T b
 * (core/compile/fusion.c). The inputs are
 *   parameters, m, v, gradients, step, gate, a (K, M), b (K, N)
 * For elements offset .. offset + M N - 1 the gradient is a^T b, row by row; these elements of `gradients` are not read. */
#ifndef STRATA_CORE_OP_ADAM_PRODUCT_H
#define STRATA_CORE_OP_ADAM_PRODUCT_H

#include "core/op/gather.h"
#include "core/op/update.h"

enum {
    STRATA_ADAM_PRODUCT_GRADIENTS = 3,
    STRATA_ADAM_PRODUCT_STEP,
    STRATA_ADAM_PRODUCT_GATE,
    STRATA_ADAM_PRODUCT_A,
    STRATA_ADAM_PRODUCT_B,
    STRATA_ADAM_PRODUCT_INPUTS
};

typedef struct strata_adam_product_attrs {
    /* has_gate is always 1. */
    strata_adam_attrs adam;
    int64_t offset;
} strata_adam_product_attrs;

typedef struct strata_adam_product_sizes {
    int64_t m, n, k;
} strata_adam_product_sizes;

strata_adam_product_sizes strata_adam_product_sizes_of(const strata_tensor *node);

/* Returns a copy of the node `adam`, which must have a gate. In this copy, the gradients from element `offset` on are the
 * product a^T b. */
strata_tensor *strata_adam_product(const strata_tensor *adam, strata_tensor *a, strata_tensor *b, int64_t offset);

/* ---- adam_gather: the same, where the part of the gradients is the gradient of a table from which rows were gathered. The
 * inputs have dy and indices, those of a gather_grad along axis 0, in the place of a and b. For elements offset .. offset +
 * rows inner - 1 the gradient is gather_grad(dy, indices), row by row; these elements of `gradients` are not read. ---- */

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
