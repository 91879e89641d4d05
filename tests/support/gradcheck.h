/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares gradients with finite differences. The gradient that strata_gradients builds is evaluated with the ops' reference
 * functions. It must agree with the change of the output when an element of an input changes by a small step. */
#ifndef STRATA_TESTS_SUPPORT_GRADCHECK_H
#define STRATA_TESTS_SUPPORT_GRADCHECK_H

#include "strata/graph.h"
#include "tests/support/check.h"

/* Builds a float tensor y from the inputs x. `user` is the pointer that was passed to strata_test_gradcheck, for example the
 * attributes of the op. */
typedef strata_tensor *(*strata_test_build)(strata_tensor *const *x, const void *user);

enum { STRATA_TEST_GRADCHECK_INPUTS = 8 };

/* Checks d sum(y * c) / d x[i] for a random constant c. It checks each element of every f32 input, and needs four evaluations
 * for each, so shapes should be small. Inputs of other dtypes keep their values. Only f32 is checked, because f16 and bf16 use
 * the same formulas. Values must be at least 0.08 away from points at which the function has no derivative, which
 * strata_test_distinct with gap 0.1 ensures, and the fifth derivative of the function must not be much larger than 1. */
strata_test_result strata_test_gradcheck(strata_test_build build, const void *user, const strata_array *x, int n_x);

#endif
