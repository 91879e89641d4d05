/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of softmax, log_softmax and the cross entropies: rows of C logits along the last axis. */
#ifndef STRATA_CORE_OP_SOFTMAX_H
#define STRATA_CORE_OP_SOFTMAX_H

#include "core/op/channels.h"

/* log sum exp of row `row` of x, in double and without overflow. -infinity if a row has no elements. */
double strata_row_log_sum_exp(strata_dtype dtype, const void *x, int64_t row, int64_t c);

/* Shape rule for an input `x`, which must be a float tensor with at least one axis. */
STRATA_MUST_USE strata_status strata_check_rows(const strata_tensor *x, const char *name, strata_error *err);
/* Shape rule for ops like softmax_grad: both inputs must have the same dtype and shape, which become those of the node. */
STRATA_MUST_USE strata_status strata_check_rows_pair(strata_tensor *node, const char *a_name, const char *b_name,
                                                     strata_error *err);
/* Shape rule for an input `x` that must have one value for each row of logits. */
STRATA_MUST_USE strata_status strata_check_per_row(const strata_tensor *x, const char *name, const strata_tensor *logits,
                                                   strata_error *err);
/* The shape without its last axis. */
strata_shape strata_shape_of_rows(strata_shape shape);
/* The lowering of a cross entropy (logits, labels), or of its gradient, which has the operand dy too. passes: see
 * strata_launch_rows. */
STRATA_MUST_USE strata_status strata_cross_entropy_lower(const strata_tensor *node, const char *kernel, const char *variant,
                                                         int gradient, int passes, strata_lowering *lowering,
                                                         strata_error *err);
/* A value for each row of x as a column, which is broadcast along the row. */
strata_tensor *strata_column_of(strata_tensor *value, strata_shape x);
/* The sum over the last axis, which is kept with size 1. */
strata_tensor *strata_sum_of_rows(strata_tensor *x);

#endif
