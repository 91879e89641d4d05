/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar oracle reduces one element at a time, in the order of the ranks. */
#include "tests/cluster/oracle.h"

#include <string.h>

#include "cluster/collective/fold.h"

const strata_dtype test_dtypes[TEST_DTYPES] = {STRATA_DTYPE_F32, STRATA_DTYPE_F64, STRATA_DTYPE_F16, STRATA_DTYPE_BF16,
                                               STRATA_DTYPE_I32, STRATA_DTYPE_I64, STRATA_DTYPE_U8};

double test_get(strata_dtype dtype, const void *data, size_t i) {
    return dtype == STRATA_DTYPE_F64 ? ((const double *)data)[i] : strata_element_get(dtype, data, (int64_t)i);
}

void test_set(strata_dtype dtype, void *data, size_t i, double value) {
    if (dtype == STRATA_DTYPE_F64)
        ((double *)data)[i] = value;
    else
        strata_element_set(dtype, data, (int64_t)i, value);
}

double test_value(strata_dtype dtype, int r, size_t i) {
    uint64_t state = (uint64_t)r * 1000003u + i;
    const uint64_t bits = strata_test_next(&state);
    if (dtype == STRATA_DTYPE_F64 || strata_dtype_is_float(dtype)) return (double)(bits % 2001) / 300.0 - 3.0;
    return (double)(bits % 4);
}

void test_fill(strata_dtype dtype, int r, void *data, size_t n) {
    for (size_t i = 0; i < n; i++) test_set(dtype, data, i, test_value(dtype, r, i));
}

static double combine(strata_reducer reducer, double a, double b) {
    switch (reducer) {
        case STRATA_REDUCER_MAX:
            return a > b ? a : b;
        case STRATA_REDUCER_MIN:
            return a < b ? a : b;
        case STRATA_REDUCER_PROD:
            return a * b;
        default:
            return a + b;
    }
}

void test_fold(strata_dtype dtype, strata_reducer reducer, int world, size_t i, uint64_t *out) {
    const bool in_f32 = strata_dtype_is_float(dtype);
    uint64_t stored = 0;
    double sum = 0;
    for (int r = 0; r < world; r++) {
        test_set(dtype, &stored, 0, test_value(dtype, r, i));
        const double value = test_get(dtype, &stored, 0);
        sum = r ? combine(reducer, sum, value) : value;
        if (in_f32) sum = (double)(float)sum;
    }
    if (dtype == STRATA_DTYPE_U8) sum = (double)((uint64_t)sum & 255);
    if (dtype == STRATA_DTYPE_I32) sum = (double)(int32_t)(uint32_t)(uint64_t)sum;
    if (reducer == STRATA_REDUCER_MEAN) sum = in_f32 ? (double)((float)sum / (float)world) : sum / world;
    *out = 0;
    test_set(dtype, out, 0, sum);
}

strata_test_result test_expect(strata_dtype dtype, strata_reducer reducer, int world, const void *data, size_t first,
                               size_t n) {
    const size_t size = strata_wire_dtype_bytes(dtype), step = n > 5000 ? 37 : 1;
    /* of many elements it checks every 37th and the last one */
    for (size_t i = 0; i < n; i = i + step < n || i == n - 1 ? i + step : n - 1) {
        uint64_t want;
        test_fold(dtype, reducer, world, first + i, &want);
        if (memcmp((const char *)data + i * size, &want, size) != 0)
            return strata_test_bad("%s element %zu of %zu is %.9g, not %.9g", strata_wire_dtype_name(dtype), i, n,
                                   test_get(dtype, data, i), test_get(dtype, &want, 0));
    }
    return strata_test_ok();
}
