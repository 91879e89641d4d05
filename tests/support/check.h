/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing arrays with a tolerance that fits their dtype, and small deterministic random arrays. No test framework is named
 * here, so that suites and plain programs share it: `strata_test_result r = strata_test_compare(..); cr_assert(r.ok, "%s",
 * r.text);` */
#ifndef STRATA_TESTS_SUPPORT_CHECK_H
#define STRATA_TESTS_SUPPORT_CHECK_H

#include "strata/tensor.h"

/* What a check found; `text` is "" when ok. */
typedef struct strata_test_result {
    bool ok;
    char text[768];
} strata_test_result;

strata_test_result strata_test_ok(void);
strata_test_result strata_test_bad(const char *format, ...) STRATA_PRINTF(1, 2);

/* |got - want| <= absolute + relative |want|. NaN equals NaN, infinities equal themselves only. */
typedef struct strata_test_tolerance {
    double relative, absolute;
} strata_test_tolerance;

/* For a result that was computed in f32 and stored as dtype; 0 for integers and bool. `terms` is how many roundings may add up
 * (the K of a matmul, the elements of a sum; 1 for element-wise). The reasons stand beside the table in check.c. */
strata_test_tolerance strata_test_tolerance_of(strata_dtype dtype, int64_t terms);
bool strata_test_close(double got, double want, strata_test_tolerance tolerance);

/* Same dtype and shape, every element close; the text names the first and the worst element that are not, and how many. */
strata_test_result strata_test_compare(const strata_array *got, const strata_array *want, strata_test_tolerance tolerance);
/* The same elements, bit for bit. */
strata_test_result strata_test_same(const strata_array *got, const strata_array *want);

/* Values in [low, high): uniform, integers for the integer dtypes, 0 or 1 for bool. The same seed gives the same array.
 * Memory that runs out aborts the test program. The caller finishes the array. */
strata_array strata_test_random(strata_dtype dtype, strata_shape shape, double low, double high, uint64_t seed);
/* Floats in random order, no two nearer than `gap` and none nearer to 0 than gap / 2: away from the kinks of max and relu. */
strata_array strata_test_distinct(strata_dtype dtype, strata_shape shape, double gap, uint64_t seed);
/* The values given, in row-major order: strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){1, 2}). */
strata_array strata_test_array(strata_dtype dtype, strata_shape shape, const double *values);
/* A new array of the shape, all elements `value`. */
strata_array strata_test_full(strata_dtype dtype, strata_shape shape, double value);

/* The next 64 bits of a sequence (splitmix64), and a double in [0, 1). */
uint64_t strata_test_next(uint64_t *state);
double strata_test_next_uniform(uint64_t *state);

#endif
