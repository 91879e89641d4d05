/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares arrays with a tolerance that fits their dtype, and makes small deterministic random arrays. Nothing here depends on
 * a test framework, so suites and plain programs can both use it. With Criterion:
 *     strata_test_result r = strata_test_compare(&got, &want, tolerance);
 *     cr_assert(r.ok, "%s", r.text); */
#ifndef STRATA_TESTS_SUPPORT_CHECK_H
#define STRATA_TESTS_SUPPORT_CHECK_H

#include "strata/tensor.h"

/* The result of a check. `text` describes the first difference; it is "" when ok is true. */
typedef struct strata_test_result {
    bool ok;
    char text[768];
} strata_test_result;

strata_test_result strata_test_ok(void);
strata_test_result strata_test_bad(const char *format, ...) STRATA_PRINTF(1, 2);

/* Two numbers are close when |got - want| <= absolute + relative |want|. NaN is close to NaN. An infinity is close only to the
 * infinity of the same sign. */
typedef struct strata_test_tolerance {
    double relative, absolute;
} strata_test_tolerance;

/* The tolerance for a result that was computed in f32 and stored as dtype. It is 0 for integers and bool. `terms` is the number
 * of rounding errors that may add up: K for a matmul, the number of elements for a sum, 1 for an element-wise op. The table in
 * check.c gives the reasons for the numbers. */
strata_test_tolerance strata_test_tolerance_of(strata_dtype dtype, int64_t terms);
bool strata_test_close(double got, double want, strata_test_tolerance tolerance);

/* ok when dtype and shape are equal and all elements are close. Otherwise the text gives the number of elements that are not
 * close, the first of them, and the one with the largest error. */
strata_test_result strata_test_compare(const strata_array *got, const strata_array *want, strata_test_tolerance tolerance);
/* ok when dtype, shape and every bit of the elements are equal. */
strata_test_result strata_test_same(const strata_array *got, const strata_array *want);

/* Uniformly distributed values in [low, high): whole numbers for the integer dtypes, 0 or 1 for bool. The same seed gives the
 * same array. When memory runs out, the test program aborts. The caller finishes the array. */
strata_array strata_test_random(strata_dtype dtype, strata_shape shape, double low, double high, uint64_t seed);
/* Floats in random order, of which no two are nearer to each other than `gap`, and none is nearer to 0 than gap / 2. So no
 * element is near a point at which max or relu has no derivative. */
strata_array strata_test_distinct(strata_dtype dtype, strata_shape shape, double gap, uint64_t seed);
/* An array of the given values, in row-major order: strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){1, 2}). */
strata_array strata_test_array(strata_dtype dtype, strata_shape shape, const double *values);
/* A new array of the shape, in which all elements are `value`. */
strata_array strata_test_full(strata_dtype dtype, strata_shape shape, double value);

/* The next number of a pseudo-random sequence (splitmix64): 64 random bits, or a double in [0, 1). The caller sets *state to
 * the seed before the first call. */
uint64_t strata_test_next(uint64_t *state);
double strata_test_next_uniform(uint64_t *state);

#endif
