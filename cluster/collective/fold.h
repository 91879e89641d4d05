/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of the cluster library, and folds (sums and other reductions) in rank order. A fold's *sum type* is f32 for f16
 * and bf16, else the dtype itself. */
#ifndef STRATA_CLUSTER_COLLECTIVE_FOLD_H
#define STRATA_CLUSTER_COLLECTIVE_FOLD_H

#include "strata/cluster.h"

/* Like strata_dtype_name and strata_dtype_bytes, but they also support f64. */
const char *strata_wire_dtype_name(strata_dtype dtype);
size_t strata_wire_dtype_bytes(strata_dtype dtype);

/* Fails with INVALID if the reducer does not support the dtype. */
STRATA_MUST_USE strata_status strata_fold_check(strata_dtype dtype, strata_reducer reducer, strata_error *err);

/* out[i] = operands[0][i] + operands[1][i] + ... in this order (or the reducer's operation), divided by n_operands for MEAN.
 * out may be one of the operands. n_operands >= 1. */
void strata_fold_ranks(strata_dtype dtype, strata_reducer reducer, const void *const *operands, int n_operands, size_t elements,
                       void *out);

/* The same fold in steps, for sums that are passed between ranks: widen the first operand, add the others, finish. */
strata_dtype strata_fold_sum_type(strata_dtype dtype);
void strata_fold_widen(strata_dtype dtype, const void *operand, size_t elements, void *sum);
void strata_fold_add(strata_dtype dtype, strata_reducer reducer, const void *sum, const void *operand, size_t elements,
                     void *out_sum);
/* `sum` may be `out` if the sum type and the dtype are equal. */
void strata_fold_finish(strata_dtype dtype, strata_reducer reducer, const void *sum, int n_operands, size_t elements,
                        void *out);

#endif
