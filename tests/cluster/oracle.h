/* SPDX-License-Identifier: Apache-2.0
 *
 * What collectives must give: elements that every rank can compute for every other, and their fold by a scalar loop. */
#ifndef STRATA_TESTS_CLUSTER_ORACLE_H
#define STRATA_TESTS_CLUSTER_ORACLE_H

#include "strata/cluster.h"
#include "tests/support/check.h"

enum { TEST_DTYPES = 7, TEST_TRANSPORTS = 4 };
extern const strata_dtype test_dtypes[TEST_DTYPES];
extern const char *const test_transports[TEST_TRANSPORTS]; /* inproc is the first */

/* One element of an array of any dtype, as a number. */
double test_get(strata_dtype dtype, const void *data, size_t i);
void test_set(strata_dtype dtype, void *data, size_t i, double value);

/* Element i of rank r: for floats with fractions, so that the order of a sum shows; for integers small, so that products
 * fit. */
double test_value(strata_dtype dtype, int r, size_t i);

/* The first n elements of rank r. */
void test_fill(strata_dtype dtype, int r, void *data, size_t n);

/* What folding element i in rank order gives, as bits of the dtype in out. */
void test_fold(strata_dtype dtype, strata_reducer reducer, int world, size_t i, uint64_t *out);

/* Whether data holds elements first to first + n - 1 of the fold. */
strata_test_result test_expect(strata_dtype dtype, strata_reducer reducer, int world, const void *data, size_t first, size_t n);

/* Hands what is wrong to the caller of the rank's function. */
#define TEST_EXPECT(result)                     \
    do {                                        \
        strata_test_result expected = (result); \
        if (!expected.ok) return expected;      \
    } while (0)

#endif
