/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes elements of the integer dtypes for references. It converts them through int64_t, which is exact;
 * strata_element_get converts to double and loses bits beyond 2^53. Also the order of elements of any dtype. */
#ifndef STRATA_CORE_OP_ELEMENT_H
#define STRATA_CORE_OP_ELEMENT_H

#include <math.h>

#include "strata/tensor.h"

/* dtype is i32, i64, u8 or bool. */
static inline int64_t strata_integer_get(strata_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
        case STRATA_DTYPE_I32:
            return ((const int32_t *)data)[index];
        case STRATA_DTYPE_I64:
            return ((const int64_t *)data)[index];
        default:
            return ((const uint8_t *)data)[index];
    }
}

/* Wraps a value that does not fit; for bool anything but 0 is 1. */
static inline void strata_integer_set(strata_dtype dtype, void *data, int64_t index, int64_t value) {
    switch (dtype) {
        case STRATA_DTYPE_I32:
            ((int32_t *)data)[index] = (int32_t)(uint32_t)(uint64_t)value;
            break;
        case STRATA_DTYPE_I64:
            ((int64_t *)data)[index] = value;
            break;
        case STRATA_DTYPE_BOOL:
            ((uint8_t *)data)[index] = value != 0;
            break;
        default:
            ((uint8_t *)data)[index] = (uint8_t)(uint64_t)value;
            break;
    }
}

/* Whether element b is larger than element a; NaN is above all others. */
static inline bool strata_element_above(strata_dtype dtype, const void *x, int64_t b, int64_t a) {
    if (!strata_dtype_is_float(dtype)) return strata_integer_get(dtype, x, b) > strata_integer_get(dtype, x, a);
    const double v = strata_element_get(dtype, x, b), most = strata_element_get(dtype, x, a);
    return !isnan(most) && (v > most || isnan(v));
}

#endif
