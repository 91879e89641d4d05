/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients against finite differences: what strata_gradients builds, evaluated by the references, must agree with how the
 * value changes when an input is moved. */
#ifndef STRATA_TESTS_SUPPORT_GRADCHECK_H
#define STRATA_TESTS_SUPPORT_GRADCHECK_H

#include "strata/graph.h"
#include "tests/support/check.h"

/* Builds a float tensor from inputs; `user` is what gradcheck was given (attributes of the case). */
typedef strata_tensor *(*strata_test_build)(strata_tensor *const *x, const void *user);

enum { STRATA_TEST_GRADCHECK_INPUTS = 8 };

/* Checks d sum(y * c) / d x[i] for random fixed c, for every f32 input and each of its elements (small shapes: each costs four
 * evaluations); inputs of other dtypes are fed and held still. f32 only: the other floats share the formulas.
 * Keep values 0.08 away from kinks (strata_test_distinct with gap 0.1 does) and the function tame: its fifth derivative
 * about 1. */
strata_test_result strata_test_gradcheck(strata_test_build build, const void *user, const strata_array *x, int n_x);

#endif
