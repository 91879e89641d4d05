/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for the files in this folder, which kernels.c compiles as one translation unit: numbers, shapes, and loops that
 * compilers vectorize. */
#ifndef SYSTOLIC_OP_HELPERS_H
#define SYSTOLIC_OP_HELPERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../systolic.h"

enum {
    FLOATS = 1 << STRATA_PLUGIN_F32 | 1 << STRATA_PLUGIN_F16 | 1 << STRATA_PLUGIN_BF16,
    WHOLES = 1 << STRATA_PLUGIN_I32 | 1 << STRATA_PLUGIN_I64,
    NUMBERS = FLOATS | WHOLES,
    ANY_DTYPE = NUMBERS | 1 << STRATA_PLUGIN_U8 | 1 << STRATA_PLUGIN_BOOL,
    F32_ALONE = 1 << STRATA_PLUGIN_F32
};

/* ---- numbers ---- */

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds to the nearest bf16, ties to even, and returns it as an f32. A NaN remains a NaN. */
static inline float bf16_nearest(float x) {
    const uint32_t bits = bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    return float_of((bits & 0x7fffffff) > 0x7f800000 ? (bits | 0x400000) & 0xffff0000u : rounded);
}

static inline float bf16_get(uint16_t x) {
    return float_of((uint32_t)x << 16);
}

static inline uint16_t bf16_of(float x) {
    return (uint16_t)(bits_of(bf16_nearest(x)) >> 16);
}

static inline float f16_get(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
}

/* Rounds to the nearest f16, ties to even. Numbers beyond the largest f16 become infinity. */
static inline uint16_t f16_of(float x) {
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000;
    const float size = float_of(bits & 0x7fffffff);
    if (size != size) return (uint16_t)(sign | 0x7e00);
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) return (uint16_t)(sign | (bits_of(size + 0.5f) - bits_of(0.5f)));
    const uint32_t from = bits_of(size);
    return (uint16_t)(sign | (((from + 0xfff + (from >> 13 & 1)) >> 13) - (112u << 10)));
}

/* e^x to about 1 ulp: x = n log 2 + r with |r| <= log(2) / 2, and a polynomial for e^r. Below -87.3 the result is 0. */
static inline float exp_of(float x) {
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding and subtracting it rounds to an integer */
    const float clamped = x < -88.0f ? -88.0f : x > 89.0f ? 89.0f : x;
    const float n = (clamped * 1.44269504f + rounder) - rounder;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float mantissa = p * r * r + r + 1;
    /* 2^n is multiplied in two factors, so that the exponent of each is in range. */
    const int32_t whole = (int32_t)n, half = whole / 2;
    const float y = mantissa * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(whole - half + 127) << 23);
    return x != x ? x : x > 88.72284f ? (float)INFINITY : x < -87.336548f ? 0 : y;
}

static inline float sigmoid_of(float x) {
    const float e = exp_of(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

/* ---- elements of any dtype ---- */

static inline int64_t whole_get(strata_plugin_dtype dtype, const void *data, int64_t i) {
    if (dtype == STRATA_PLUGIN_I32) return ((const int32_t *)data)[i];
    if (dtype == STRATA_PLUGIN_I64) return ((const int64_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

/* Integers that do not fit wrap around. For bool, every number except 0 is stored as 1. */
static inline void whole_set(strata_plugin_dtype dtype, void *data, int64_t i, int64_t x) {
    if (dtype == STRATA_PLUGIN_I32)
        ((int32_t *)data)[i] = (int32_t)(uint32_t)(uint64_t)x;
    else if (dtype == STRATA_PLUGIN_I64)
        ((int64_t *)data)[i] = x;
    else
        ((uint8_t *)data)[i] = dtype == STRATA_PLUGIN_BOOL ? x != 0 : (uint8_t)(uint64_t)x;
}

/* ---- shapes ---- */

static bool same_shape(const array *a, const array *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

/* Whether the inputs first .. first + count - 1 all have this dtype. */
static bool inputs_are(const step *s, int first, int count, strata_plugin_dtype dtype) {
    for (int i = first; i < first + count && i < s->n_inputs; i++)
        if (s->inputs[i]->dtype != dtype) return false;
    return true;
}

/* The product of the sizes of the axes first .. end - 1. */
static int64_t product_of_dims(const array *a, int first, int end) {
    int64_t n = 1;
    for (int d = first; d < end && d < a->rank; d++) n *= a->dims[d];
    return n;
}

static int64_t last_dim(const array *a) {
    return a->rank ? a->dims[a->rank - 1] : 1;
}

/* How many rows an array has, if its last axis is seen as a row. */
static int64_t rows_of(const array *a) {
    return product_of_dims(a, 0, a->rank - 1);
}

static void row_major(const array *a, int64_t *strides) {
    int64_t stride = 1;
    for (int d = a->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= a->dims[d];
    }
}

/* Computes the strides of `from` when it is broadcast to `to`; false: it cannot be broadcast. */
static bool broadcast_strides(const array *from, const array *to, int64_t *strides) {
    int64_t own[MOST_AXES];
    const int missing = to->rank - from->rank;
    if (missing < 0) return false;
    row_major(from, own);
    for (int d = 0; d < to->rank; d++) {
        const int64_t size = d < missing ? 1 : from->dims[d - missing];
        if (size != to->dims[d] && size != 1) return false;
        strides[d] = size == 1 && to->dims[d] != 1 ? 0 : d < missing ? 0 : own[d - missing];
    }
    return true;
}

/* Returns an axis attribute, counted from the front; -1: the array does not have this axis. */
static int axis_of(const step *s, const array *a, const char *name) {
    const int64_t axis = attribute_int(s, name, 0), from_front = axis < 0 ? axis + a->rank : axis;
    return from_front < 0 || from_front >= a->rank ? -1 : (int)from_front;
}

/* Sums floats in 16 lanes, and then adds the lanes in a fixed order. */
static inline double sum_of(const float *x, int64_t n) {
    float lanes[16] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + 16 <= n;) {
        /* only few numbers are added to an f32 lane, which keeps rounding errors small */
        const int64_t end = n - i > 4096 ? i + 4096 : i + (n - i) / 16 * 16;
        for (int j = 0; j < 16; j++) lanes[j] = 0;
        for (; i < end; i += 16)
            for (int j = 0; j < 16; j++) lanes[j] += x[i + j];
        for (int j = 0; j < 16; j++) sum += (double)lanes[j];
    }
    for (; i < n; i++) sum += (double)x[i];
    return sum;
}

#endif
