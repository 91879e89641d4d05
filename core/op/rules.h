/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the shape rules of several ops share, with the same messages. */
#ifndef STRATA_CORE_OP_RULES_H
#define STRATA_CORE_OP_RULES_H

#include "core/graph/graph.h"

/* Sets of dtypes, with one bit for each strata_dtype. */
enum {
    STRATA_FLOATS = 1 << STRATA_DTYPE_F32 | 1 << STRATA_DTYPE_F16 | 1 << STRATA_DTYPE_BF16,
    STRATA_INDICES = 1 << STRATA_DTYPE_I32 | 1 << STRATA_DTYPE_I64,
    STRATA_NUMBERS = STRATA_FLOATS | STRATA_INDICES,
    STRATA_ANY_DTYPE = (1 << STRATA_DTYPE_COUNT) - 1
};

/* strata_op.words of an op whose only attribute with words is "dtype", a strata_dtype. */
extern const strata_attr_words strata_dtype_words[];

/* INVALID "x is u8; it must be f32, f16 or bf16" unless the tensor's dtype is one of `allowed`. */
STRATA_MUST_USE strata_status strata_check_dtype(const strata_tensor *tensor, const char *name, unsigned allowed,
                                                 strata_error *err);
/* Fails with INVALID, naming both dtypes, unless they are equal. */
STRATA_MUST_USE strata_status strata_check_same_dtype(const strata_tensor *a, const char *a_name, const strata_tensor *b,
                                                      const char *b_name, strata_error *err);
/* Fails with INVALID, naming both, unless dtypes and shapes are equal. */
STRATA_MUST_USE strata_status strata_check_alike(const strata_tensor *a, const char *a_name, const strata_tensor *b,
                                                 const char *b_name, strata_error *err);
/* INVALID "beta1 is 1; it must be at least 0 and below 1". */
STRATA_MUST_USE strata_status strata_check_rate(double value, const char *name, strata_error *err);
/* Fails with INVALID unless the value is finite and at least 0. */
STRATA_MUST_USE strata_status strata_check_not_negative(double value, const char *name, strata_error *err);
/* Checks the axis and returns it counted from the front. A negative axis counts from the back (-1: the last). */
STRATA_MUST_USE strata_status strata_check_axis(int64_t axis, int rank, int *out_axis, strata_error *err);

#endif
