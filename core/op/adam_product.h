/* SPDX-License-Identifier: Apache-2.0
 *
 * adam_product: Adam over flat ranges, where a part of the gradients is the product a^T b
 * (core/compile/product_updates.c). The inputs are
 *   parameters, m, v, gradients, step, gate, a (K, M), b (K, N)
 * For elements offset .. offset + M N - 1 the gradient is a^T b, row by row; these elements of `gradients` are not read. */
#ifndef STRATA_CORE_OP_ADAM_PRODUCT_H
#define STRATA_CORE_OP_ADAM_PRODUCT_H

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

/* ---- for ops like this one, which compute another part of the gradients (adam_gather.c) ----
 * Their inputs have the same order, with other operands as A and B, and their attributes begin with strata_adam_product_attrs.
 * The part begins at element attrs->offset of the gradients. */
/* Checks all inputs except for A and B. The part has m n elements; `what` names it in messages. */
STRATA_MUST_USE strata_status strata_adam_part_check(strata_tensor *node, const char *what, int64_t m, int64_t n,
                                                     strata_error *err);
/* Computes all elements of the part, and writes them to `part`. */
typedef void strata_adam_part_compute(strata_op_call *call, float *part);
/* The reference: computes the part with `compute`, inserts it into the gradients, and runs Adam. */
void strata_adam_part_reference(strata_op_call *call, strata_adam_part_compute *compute);
/* The composition: an Adam node in whose gradients the elements from attrs->offset on are replaced by `part`, which is
 * flat and not empty. */
strata_tensor *strata_adam_part_compose(strata_tensor *node, strata_tensor *part);

/* Returns a copy of the node `adam`, which must have a gate. In this copy, the gradients from element `offset` on are the
 * product a^T b. */
strata_tensor *strata_adam_product(const strata_tensor *adam, strata_tensor *a, strata_tensor *b, int64_t offset);

#endif
