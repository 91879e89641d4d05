/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of the replicas' values on the host, in replica order, so that the bits do not depend on timing. */
#ifndef STRATA_CORE_FOLD_H
#define STRATA_CORE_FOLD_H

#include "strata/ops.h"

/* results[j][e] = operands[0][e] + operands[1][e] + ..., divided by n_operands for MEAN, for each j; zeros when n_operands is
 * 0. f16 and bf16 are added in f32. dtype: a float, i32 or i64 (as all_reduce takes). A result may be an operand's own memory.
 * Threads: any. */
void strata_fold(strata_dtype dtype, strata_reduction reduction, const void *const *operands, int n_operands, int64_t elements,
                 void *const *results, int n_results);

/* The same; in_pairs: f32 is added as (x0 + x1) + (x2 + x3), so that in a sum of n values each is rounded lg n times instead of
 * up to n - 1 times. With two or three operands the bits are the same. */
void strata_fold_ordered(strata_dtype dtype, strata_reduction reduction, bool in_pairs, const void *const *operands,
                         int n_operands, int64_t elements, void *const *results, int n_results);

#endif
