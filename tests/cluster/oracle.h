/* SPDX-License-Identifier: Apache-2.0
 *
 * The expected results of collectives. Every rank can compute the elements of every other rank, and reduces them with a scalar
 * loop. */
#ifndef STRATA_TESTS_CLUSTER_ORACLE_H
#define STRATA_TESTS_CLUSTER_ORACLE_H

#include "strata/cluster.h"
#include "tests/support/check.h"

enum { TEST_DTYPES = 7 };
extern const strata_dtype test_dtypes[TEST_DTYPES];

/* One element of an array of any dtype, as a number. */
double test_get(strata_dtype dtype, const void *data, size_t i);
void test_set(strata_dtype dtype, void *data, size_t i, double value);

/* Element i of rank r. Floats have fractions, so that the order of a sum changes its bits. Integers are small, so that products
 * do not overflow. */
double test_value(strata_dtype dtype, int r, size_t i);

/* Writes the first n elements of rank r. */
void test_fill(strata_dtype dtype, int r, void *data, size_t n);

/* Reduces element i of all ranks, in the order of the ranks. Writes the result to `out` as an element of the dtype. */
void test_fold(strata_dtype dtype, strata_reducer reducer, int world, size_t i, uint64_t *out);

/* Checks that `data` contains elements first to first + n - 1 of the reduction. */
strata_test_result test_expect(strata_dtype dtype, strata_reducer reducer, int world, const void *data, size_t first, size_t n);

/* When the check failed, returns its result from the rank's function. */
#define TEST_EXPECT(result)                     \
    do {                                        \
        strata_test_result expected = (result); \
        if (!expected.ok) return expected;      \
    } while (0)

#endif
