/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of matmul, for the backends. The operands are a, b, then those of the epilogue (epilogue.h):
 *     out = epilogue of sum_k a[m,k] b[k,n] */
#ifndef STRATA_CORE_OP_MATMUL_H
#define STRATA_CORE_OP_MATMUL_H

#include "core/op/epilogue.h"

typedef struct strata_matmul_attrs {
    /* 0 or 1. */
    int64_t transpose_a, transpose_b;
    strata_epilogue epilogue;
} strata_matmul_attrs;

/* A product as loops: n_batch matrices (M,K) times (K,N). Strides are in elements. */
typedef struct strata_matmul_sizes {
    int64_t m, n, k, n_batch;
    /* Elements from one row to the next in each stored matrix. */
    int64_t a_row, b_row;
    /* Elements from one matrix of the batch to the next; 0: all products use the same matrix. */
    int64_t a_batch, b_batch;
} strata_matmul_sizes;

/* The node must be a valid matmul. */
strata_matmul_sizes strata_matmul_sizes_of(const strata_tensor *node);

/* The launch of matmul.kernel or matmul_registers.kernel for the node. The caller still sets the kernel's name, its tile
 * (WORK_M, WORK_N, TILE_K) and the numbers of work-items. */
strata_launch strata_matmul_launch(const strata_tensor *node);

#endif
