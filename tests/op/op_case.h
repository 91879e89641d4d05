/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of ops do over and over: build an op over arrays, evaluate it by its reference, and say what was expected.
 * Every expect_ function fails the running Criterion test with the reason. */
#ifndef STRATA_TESTS_OP_OP_CASE_H
#define STRATA_TESTS_OP_OP_CASE_H

#include "core/graph/launch.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/golden.h"
#include "tests/support/gradcheck.h"

/* An op over its operands: each array of x is fed to an input of its dtype and shape. */
typedef struct op_case {
    strata_test_build build;
    const void *user; /* handed to build */
    const strata_array *x;
    int n_x;
} op_case;

/* The value; the caller finishes it. */
strata_array evaluate(op_case c);
/* The value has want's dtype, shape and bits. */
void expect_same(op_case c, strata_array want);
/* As expect_same, but floats may be off by one rounding of their dtype: for golden numbers, whose last bit is
 * another library's. */
void expect_golden(op_case c, const strata_array *want);
/* The value is these numbers, in row-major order. */
void expect_values(op_case c, strata_dtype dtype, strata_shape shape, const double *want);
/* The gradients agree with finite differences. */
void expect_gradient(op_case c);
/* Building fails as INVALID, with `words` in the message. */
void expect_rejected(op_case c, const char *words);

enum { MOST_LAUNCHES = 64 };
/* What `lower` asks for: how many launches; the first MOST_LAUNCHES are copied out (may be NULL). Their tensors are gone. */
int lower_to(op_case c, strata_launch *out_launches);

/* f32, f16, bf16. */
extern const strata_dtype float_dtypes[3];

#endif
