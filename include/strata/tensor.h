/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types, shapes, and arrays in host memory. Symbolic tensors, the values of a graph, are in graph.h. */
#ifndef STRATA_TENSOR_H
#define STRATA_TENSOR_H

#include <stdbool.h>

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. f16 and bf16 are storage types only: arithmetic on them is done in f32. f16 is IEEE binary16, bf16 the upper
 * half of an f32; both round to nearest even. bool is one byte, 0 or 1. */
typedef enum strata_dtype {
    STRATA_DTYPE_F32 = 0,
    STRATA_DTYPE_F16,
    STRATA_DTYPE_BF16,
    STRATA_DTYPE_I32,
    STRATA_DTYPE_I64,
    STRATA_DTYPE_U8,
    STRATA_DTYPE_BOOL,
    STRATA_DTYPE_COUNT
} strata_dtype;

enum { STRATA_MAX_RANK = 8 };

/* dims[0] is the outermost; elements are stored row-major (C order). rank 0 is a scalar: one element. A dimension may be 0. */
typedef struct strata_shape {
    int rank;
    int64_t dims[STRATA_MAX_RANK];
} strata_shape;

/* "f32", ...; "?" outside the enum. Static memory. */
STRATA_API const char *strata_dtype_name(strata_dtype dtype);
/* Bytes of one element; 0 outside the enum. */
STRATA_API size_t strata_dtype_bytes(strata_dtype dtype);
/* f32, f16, bf16. */
STRATA_API bool strata_dtype_is_float(strata_dtype dtype);
/* Reads "f32", "f16", ... INVALID (with the list of names) for any other text. */
STRATA_API STRATA_MUST_USE strata_status strata_dtype_parse(const char *text, strata_dtype *out_dtype, strata_error *err);

/* STRATA_SHAPE(64, 784), STRATA_SHAPE() for a scalar. Rank at most STRATA_MAX_RANK: one more does not compile. */
#define STRATA_SHAPE(...) \
    ((strata_shape){.rank = (int)(sizeof((int64_t[]){0, ##__VA_ARGS__}) / sizeof(int64_t)) - 1, .dims = {__VA_ARGS__}})

/* Number of elements (1 for a scalar). The shape must be valid (strata_shape_check). */
STRATA_API int64_t strata_shape_elements(strata_shape shape);
STRATA_API bool strata_shape_equal(strata_shape a, strata_shape b);
/* INVALID when the rank is out of range, a dimension negative, or the elements times 16 bytes exceed 2^62. */
STRATA_API STRATA_MUST_USE strata_status strata_shape_check(strata_shape shape, strata_error *err);

/* The shape as text: "(64,784)"; "()" for a scalar. The text is returned by value, so that printf can take it:
 * strata_shape_text(s).text */
typedef struct strata_shape_string {
    char text[STRATA_MAX_RANK * 21 + 4];
} strata_shape_string;
STRATA_API strata_shape_string strata_shape_text(strata_shape shape);

/* An array in host memory: dtype, shape and row-major elements. There are two ways to make one:
 *   strata_array_create   the array owns `data` (64-byte aligned); strata_array_finish frees it
 *   strata_array_view     `data` is borrowed and must outlive the view; finish does nothing to it */
typedef struct strata_array {
    strata_dtype dtype;
    strata_shape shape;
    void *data;
    /* What finish frees; NULL for a view. */
    void *owned;
} strata_array;

STRATA_API STRATA_MUST_USE strata_status strata_array_create(strata_dtype dtype, strata_shape shape, strata_array *out_array,
                                                             strata_error *err);
STRATA_API strata_array strata_array_view(strata_dtype dtype, strata_shape shape, void *data);
STRATA_API void strata_array_finish(strata_array *array); /* NULL and a zeroed array are fine; leaves it zeroed */
STRATA_API size_t strata_array_bytes(const strata_array *array);

/* Reads one element of any dtype as a double, and writes one. Writing rounds floats to nearest even; for integers it truncates
 * and saturates. */
STRATA_API double strata_element_get(strata_dtype dtype, const void *data, int64_t index);
STRATA_API void strata_element_set(strata_dtype dtype, void *data, int64_t index, double value);

/* Convert between f32 and the bits of f16 or bf16. They round to nearest even, and NaN stays NaN. */
STRATA_API uint16_t strata_f16_from_f32(float value);
STRATA_API float strata_f16_to_f32(uint16_t bits);
STRATA_API uint16_t strata_bf16_from_f32(float value);
STRATA_API float strata_bf16_to_f32(uint16_t bits);

#ifdef __cplusplus
}
#endif
#endif
