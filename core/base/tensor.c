/* SPDX-License-Identifier: Apache-2.0
 *
 * Dtypes, shapes, arrays in host memory, and the conversions between f32 and the two 16-bit floats. Ops on arrays are in
 * core/op/; this file does not use graphs or devices. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Strata needs a little-endian processor: model files, kernels and messages have their numbers in that order"
#endif

#include "strata/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
} dtypes[STRATA_DTYPE_COUNT] = {
    [STRATA_DTYPE_F32] = {"f32", 4, true},    [STRATA_DTYPE_F16] = {"f16", 2, true},  [STRATA_DTYPE_BF16] = {"bf16", 2, true},
    [STRATA_DTYPE_I32] = {"i32", 4, false},   [STRATA_DTYPE_I64] = {"i64", 8, false}, [STRATA_DTYPE_U8] = {"u8", 1, false},
    [STRATA_DTYPE_BOOL] = {"bool", 1, false},
};

static bool dtype_known(strata_dtype dtype) {
    return (unsigned)dtype < STRATA_DTYPE_COUNT;
}

const char *strata_dtype_name(strata_dtype dtype) {
    return dtype_known(dtype) ? dtypes[dtype].name : "?";
}

size_t strata_dtype_bytes(strata_dtype dtype) {
    return dtype_known(dtype) ? dtypes[dtype].bytes : 0;
}

bool strata_dtype_is_float(strata_dtype dtype) {
    return dtype_known(dtype) && dtypes[dtype].is_float;
}

strata_status strata_dtype_parse(const char *text, strata_dtype *out_dtype, strata_error *err) {
    char known[STRATA_DTYPE_COUNT * 8] = "";
    for (int i = 0; i < STRATA_DTYPE_COUNT; i++) {
        if (text && strcmp(text, dtypes[i].name) == 0) {
            *out_dtype = (strata_dtype)i;
            return STRATA_OK;
        }
        strcat(strcat(known, i ? ", " : ""), dtypes[i].name);
    }
    return strata_fail(err, STRATA_INVALID, "dtype \"%.64s\" is not known; it must be one of %s", text ? text : "", known);
}

/* ---- shapes ---- */

int64_t strata_shape_elements(strata_shape shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape.rank; i++) elements *= shape.dims[i];
    return elements;
}

bool strata_shape_equal(strata_shape a, strata_shape b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++) {
        if (a.dims[i] != b.dims[i]) return false;
    }
    return true;
}

/* A dimension of 0 counts as 1 here, so that strides and partial products of an accepted shape can't overflow either. */
strata_status strata_shape_check(strata_shape shape, strata_error *err) {
    const int power = sizeof(size_t) < 8 ? 27 : 58; /* so that 8 bytes for each element, and a few more, fit in size_t */
    const int64_t most_elements = INT64_C(1) << power;
    if (shape.rank < 0 || shape.rank > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_INVALID, "rank is %d; it must be 0 to %d", shape.rank, STRATA_MAX_RANK);
    int64_t elements = 1;
    for (int i = 0; i < shape.rank; i++) {
        int64_t dim = shape.dims[i];
        if (dim < 0)
            return strata_fail(err, STRATA_INVALID, "dimension %d of shape %s is negative", i, strata_shape_text(shape).text);
        if (__builtin_mul_overflow(elements, dim ? dim : 1, &elements) || elements > most_elements)
            return strata_fail(err, STRATA_INVALID, "shape %s is too large; the product of its dimensions must be at most 2^%d",
                               strata_shape_text(shape).text, power);
    }
    return STRATA_OK;
}

strata_shape_string strata_shape_text(strata_shape shape) {
    strata_shape_string string = {"("};
    int rank = shape.rank < 0 ? 0 : shape.rank > STRATA_MAX_RANK ? STRATA_MAX_RANK : shape.rank;
    size_t length = 1;
    for (int i = 0; i < rank; i++)
        length +=
            (size_t)snprintf(string.text + length, sizeof string.text - length, "%s%" PRId64, i ? "," : "", shape.dims[i]);
    snprintf(string.text + length, sizeof string.text - length, ")");
    return string;
}

/* ---- arrays ---- */

/* Asks for huge pages. Examples are read in random order, and with pages of 4 KiB a third of the time of a batch is
 * address translation. Only ranges of whole huge pages are asked for, so that no huge page is used for a remainder. */
static void ask_for_huge_pages(char *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)2 << 20, before = (page - (uintptr_t)memory % page) % page;
    if (bytes >= before + page) madvise(memory + before, (bytes - before) / page * page, MADV_HUGEPAGE); /* may be refused */
#else
    (void)memory, (void)bytes;
#endif
}

strata_status strata_array_create(strata_dtype dtype, strata_shape shape, strata_array *out_array, strata_error *err) {
    const size_t alignment = 64;
    *out_array = (strata_array){0};
    if (!dtype_known(dtype)) return strata_fail(err, STRATA_INVALID, "dtype %d is not known", (int)dtype);
    STRATA_TRY(strata_shape_check(shape, err));
    size_t bytes = (size_t)strata_shape_elements(shape) * strata_dtype_bytes(dtype); /* shape_check bounds it */
    void *owned = calloc(1, bytes + alignment);
    if (!owned)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for an array %s %s of %zu bytes",
                           strata_dtype_name(dtype), strata_shape_text(shape).text, bytes);
    ask_for_huge_pages(owned, bytes);
    void *data = (char *)owned + (alignment - (uintptr_t)owned % alignment);
    *out_array = (strata_array){.dtype = dtype, .shape = shape, .data = data, .owned = owned};
    return STRATA_OK;
}

strata_array strata_array_view(strata_dtype dtype, strata_shape shape, void *data) {
    return (strata_array){.dtype = dtype, .shape = shape, .data = data, .owned = NULL};
}

void strata_array_finish(strata_array *array) {
    if (!array) return;
    free(array->owned);
    *array = (strata_array){0};
}

size_t strata_array_bytes(const strata_array *array) {
    return (size_t)strata_shape_elements(array->shape) * strata_dtype_bytes(array->dtype);
}

/* ---- 16-bit floats ----
 * f16: 1 sign, 5 exponent (bias 15), 10 fraction bits. f32: 1, 8 (bias 127), 23. bf16: the upper 16 bits of an f32. */

static uint32_t bits_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value / 2^shift, rounded to nearest, ties to even. shift is 1..31. */
static uint32_t shift_right_rounded(uint32_t value, unsigned shift) {
    uint32_t half = (UINT32_C(1) << (shift - 1)) - 1;
    return (value + half + ((value >> shift) & 1)) >> shift;
}

uint16_t strata_f16_from_f32(float value) {
    uint32_t bits = bits_from_float(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF)); /* NaN, made quiet */
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7C00);                              /* >= 65536, infinity */
    if (magnitude >= 0x38800000) { /* >= 2^-14: a normal f16; a carry out of the fraction rightly raises the exponent */
        return (uint16_t)(sign | shift_right_rounded(magnitude - ((uint32_t)(127 - 15) << 23), 13));
    }
    if (magnitude < 0x33000000) return (uint16_t)sign; /* < 2^-25, half of the least subnormal: 0 */
    uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    return (uint16_t)(sign | shift_right_rounded(significand, 126 - (magnitude >> 23)));
}

float strata_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1F;
    uint32_t fraction = bits & 0x3FF;
    if (exponent == 0x1F) return float_from_bits(sign | 0x7F800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent != 0) return float_from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    float subnormal = (float)fraction * 0x1p-24f; /* exact */
    return sign ? -subnormal : subnormal;
}

uint16_t strata_bf16_from_f32(float value) {
    uint32_t bits = bits_from_float(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, made quiet */
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float strata_bf16_to_f32(uint16_t bits) {
    return float_from_bits((uint32_t)bits << 16);
}

/* ---- one element ---- */

double strata_element_get(strata_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
        case STRATA_DTYPE_F32:
            return ((const float *)data)[index];
        case STRATA_DTYPE_F16:
            return strata_f16_to_f32(((const uint16_t *)data)[index]);
        case STRATA_DTYPE_BF16:
            return strata_bf16_to_f32(((const uint16_t *)data)[index]);
        case STRATA_DTYPE_I32:
            return ((const int32_t *)data)[index];
        case STRATA_DTYPE_I64:
            return (double)((const int64_t *)data)[index];
        case STRATA_DTYPE_U8:
        case STRATA_DTYPE_BOOL:
            return ((const uint8_t *)data)[index];
        case STRATA_DTYPE_COUNT:
            break;
    }
    return NAN;
}

/* Converts to f32 by "round to odd": rounds toward zero, and sets the last bit if anything was lost. If the result is
 * rounded again, to a narrower float, it is the same as if the double was rounded directly. With rounding to nearest in
 * both steps, double -> f32 -> f16, the result can differ. */
static float round_to_odd(double value) {
    float nearest = (float)value;
    if (isnan(value) || (double)nearest == value) return nearest;
    uint32_t bits = bits_from_float(nearest);
    if (fabs((double)nearest) > fabs(value)) bits--;
    return float_from_bits(bits | 1);
}

static int64_t saturate(double value, double lowest, double highest, int64_t least, int64_t most) {
    if (isnan(value)) return 0;
    return value <= lowest ? least : value >= highest ? most : (int64_t)value;
}

void strata_element_set(strata_dtype dtype, void *data, int64_t index, double value) {
    switch (dtype) {
        case STRATA_DTYPE_F32:
            ((float *)data)[index] = (float)value;
            break;
        case STRATA_DTYPE_F16:
            ((uint16_t *)data)[index] = strata_f16_from_f32(round_to_odd(value));
            break;
        case STRATA_DTYPE_BF16:
            ((uint16_t *)data)[index] = strata_bf16_from_f32(round_to_odd(value));
            break;
        case STRATA_DTYPE_I32:
            ((int32_t *)data)[index] = (int32_t)saturate(value, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX);
            break;
        case STRATA_DTYPE_I64:
            ((int64_t *)data)[index] = saturate(value, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX);
            break;
        case STRATA_DTYPE_U8:
            ((uint8_t *)data)[index] = (uint8_t)saturate(value, 0, UINT8_MAX, 0, UINT8_MAX);
            break;
        case STRATA_DTYPE_BOOL:
            ((uint8_t *)data)[index] = value != 0;
            break;
        case STRATA_DTYPE_COUNT:
            break;
    }
}
