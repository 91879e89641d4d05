/* SPDX-License-Identifier: Apache-2.0
 *
 * Array comparison and random arrays for tests. Evaluating graphs is in eval.c, gradients in gradcheck.c. */
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

strata_test_result strata_test_ok(void) {
    return (strata_test_result){.ok = true};
}

strata_test_result strata_test_bad(const char *format, ...) {
    strata_test_result result = {.ok = false};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result.text, sizeof result.text, format, arguments);
    va_end(arguments);
    return result;
}

static const struct {
    /* Allowed error relative to the value: half a unit in the last place, times the number of roundings. */
    double rounding;
    /* Allowed error of values near 0. */
    double absolute;
} precision[STRATA_DTYPE_COUNT] = {
    /* Eight roundings: OpenCL and Vulkan allow exp, log, tanh and division errors of 3 to 8 half units in the last place. */
    [STRATA_DTYPE_F32] = {0x1p-24 * 8, 1e-6},
    /* Values are computed in f32 and rounded once, when they are stored. Two f32 values on either side of a tie are rounded to
     * neighbours, so the tolerance is two roundings. */
    [STRATA_DTYPE_F16] = {0x1p-11 * 2, 0x1p-14 * 2}, /* 2^-14 is the smallest normal number; devices may flush others to 0 */
    [STRATA_DTYPE_BF16] = {0x1p-8 * 2, 1e-6},
    /* Integers and bool are exact. */
};

strata_test_tolerance strata_test_tolerance_of(strata_dtype dtype, int64_t terms) {
    strata_test_tolerance tolerance = {precision[dtype].rounding, precision[dtype].absolute};
    if (!strata_dtype_is_float(dtype)) return tolerance;
    /* The errors of many f32 additions add up like a random walk, to the square root of their number. The sum itself may be
     * near 0, so the absolute tolerance grows as well. */
    double walk = sqrt((double)(terms > 1 ? terms : 1));
    tolerance.relative += precision[STRATA_DTYPE_F32].rounding * (walk - 1);
    tolerance.absolute += precision[STRATA_DTYPE_F32].absolute * (walk - 1);
    return tolerance;
}

bool strata_test_close(double got, double want, strata_test_tolerance tolerance) {
    if (isnan(want)) return isnan(got);
    if (isinf(want) || isinf(got)) return got == want;
    return fabs(got - want) <= tolerance.absolute + tolerance.relative * fabs(want);
}

/* The position of a flat index in the shape, such as "(1,0,3)". */
static strata_shape_string position_text(strata_shape shape, int64_t index) {
    strata_shape position = shape;
    for (int i = shape.rank - 1; i >= 0; i--) {
        position.dims[i] = index % shape.dims[i];
        index /= shape.dims[i];
    }
    return strata_shape_text(position);
}

static strata_test_result compare_kind(const strata_array *got, const strata_array *want) {
    if (got->dtype == want->dtype && strata_shape_equal(got->shape, want->shape)) return strata_test_ok();
    return strata_test_bad("got %s %s, expected %s %s", strata_dtype_name(got->dtype), strata_shape_text(got->shape).text,
                           strata_dtype_name(want->dtype), strata_shape_text(want->shape).text);
}

strata_test_result strata_test_compare(const strata_array *got, const strata_array *want, strata_test_tolerance tolerance) {
    strata_test_result kind = compare_kind(got, want);
    if (!kind.ok) return kind;
    int64_t n = strata_shape_elements(want->shape), n_wrong = 0, first = 0, worst = 0;
    double worst_difference = -1;
    for (int64_t i = 0; i < n; i++) {
        double g = strata_element_get(got->dtype, got->data, i), w = strata_element_get(want->dtype, want->data, i);
        if (strata_test_close(g, w, tolerance)) continue;
        double difference = isfinite(g) && isfinite(w) ? fabs(g - w) : INFINITY;
        if (n_wrong++ == 0) first = i;
        if (difference > worst_difference) worst_difference = difference, worst = i;
    }
    if (n_wrong == 0) return strata_test_ok();
    return strata_test_bad("%" PRId64 " of %" PRId64
                           " elements of %s %s differ by more than %g + %g of the value; first at %s: got %.9g, expected "
                           "%.9g; worst at %s: got %.9g, expected %.9g",
                           n_wrong, n, strata_dtype_name(want->dtype), strata_shape_text(want->shape).text, tolerance.absolute,
                           tolerance.relative, position_text(want->shape, first).text,
                           strata_element_get(got->dtype, got->data, first), strata_element_get(want->dtype, want->data, first),
                           position_text(want->shape, worst).text, strata_element_get(got->dtype, got->data, worst),
                           strata_element_get(want->dtype, want->data, worst));
}

strata_test_result strata_test_same(const strata_array *got, const strata_array *want) {
    strata_test_result kind = compare_kind(got, want);
    if (!kind.ok) return kind;
    size_t bytes = strata_dtype_bytes(want->dtype);
    int64_t n = strata_shape_elements(want->shape), n_wrong = 0, first = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *g = (const char *)got->data + (size_t)i * bytes, *w = (const char *)want->data + (size_t)i * bytes;
        if (memcmp(g, w, bytes) != 0 && n_wrong++ == 0) first = i;
    }
    if (n_wrong == 0) return strata_test_ok();
    return strata_test_bad(
        "%" PRId64 " of %" PRId64 " elements of %s %s differ in bits; first at %s: got %.17g, expected %.17g", n_wrong, n,
        strata_dtype_name(want->dtype), strata_shape_text(want->shape).text, position_text(want->shape, first).text,
        strata_element_get(got->dtype, got->data, first), strata_element_get(want->dtype, want->data, first));
}

/* ---- arrays ---- */

uint64_t strata_test_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double strata_test_next_uniform(uint64_t *state) {
    return (double)(strata_test_next(state) >> 11) * 0x1p-53;
}

static strata_array create(strata_dtype dtype, strata_shape shape) {
    strata_array array;
    strata_error err;
    if (strata_array_create(dtype, shape, &array, &err)) {
        fprintf(stderr, "a test's array: %s\n", err.message);
        abort();
    }
    return array;
}

strata_array strata_test_random(strata_dtype dtype, strata_shape shape, double low, double high, uint64_t seed) {
    strata_array array = create(dtype, shape);
    int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) {
        double value = low + (high - low) * strata_test_next_uniform(&seed);
        if (dtype == STRATA_DTYPE_BOOL) value = (double)(strata_test_next(&seed) & 1);
        if (!strata_dtype_is_float(dtype)) value = floor(value);
        strata_element_set(dtype, array.data, i, value);
    }
    return array;
}

strata_array strata_test_distinct(strata_dtype dtype, strata_shape shape, double gap, uint64_t seed) {
    strata_array array = create(dtype, shape);
    int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(dtype, array.data, i, ((double)(i - n / 2) + 0.5) * gap);
    for (int64_t i = n - 1; i > 0; i--) { /* Fisher-Yates */
        int64_t j = (int64_t)(strata_test_next(&seed) % (uint64_t)(i + 1));
        double a = strata_element_get(dtype, array.data, i), b = strata_element_get(dtype, array.data, j);
        strata_element_set(dtype, array.data, i, b);
        strata_element_set(dtype, array.data, j, a);
    }
    return array;
}

strata_array strata_test_array(strata_dtype dtype, strata_shape shape, const double *values) {
    strata_array array = create(dtype, shape);
    int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(dtype, array.data, i, values[i]);
    return array;
}

strata_array strata_test_full(strata_dtype dtype, strata_shape shape, double value) {
    strata_array array = create(dtype, shape);
    int64_t n = strata_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(dtype, array.data, i, value);
    return array;
}
