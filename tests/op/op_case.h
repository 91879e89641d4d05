/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of ops. They build an op for given arrays, evaluate it with its reference function and compare the result.
 * Every expect_ function fails the running Criterion test, with the reason. */
#ifndef STRATA_TESTS_OP_OP_CASE_H
#define STRATA_TESTS_OP_OP_CASE_H

#include "core/graph/launch.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/golden.h"
#include "tests/support/gradcheck.h"

/* An op and its operands. Each array of x is the value of an input with its dtype and shape. */
typedef struct op_case {
    strata_test_build build;
    const void *user; /* an argument of `build` */
    const strata_array *x;
    int n_x;
} op_case;

/* Returns the value of the op. The caller finishes it. */
strata_array evaluate(op_case c);
/* Expects a value with the dtype, shape and bits of `want`. */
void expect_same(op_case c, strata_array want);
/* As expect_same, but floats may differ by one rounding of their dtype. Golden numbers need this, because another library has
 * computed their last bit. */
void expect_golden(op_case c, const strata_array *want);
/* Expects a value of these numbers, in row-major order. */
void expect_values(op_case c, strata_dtype dtype, strata_shape shape, const double *want);
/* Expects gradients that agree with finite differences. */
void expect_gradient(op_case c);
/* Expects that building the op fails as INVALID, with `words` in the message. */
void expect_rejected(op_case c, const char *words);

enum { MOST_LAUNCHES = 64 };
/* Calls the op's function `lower` and returns the number of kernel launches. Copies the first MOST_LAUNCHES of them to
 * out_launches, which may be NULL. The tensors of these launches are no longer valid. */
int lower_to(op_case c, strata_launch *out_launches);

/* f32, f16, bf16. */
extern const strata_dtype float_dtypes[3];

#endif
