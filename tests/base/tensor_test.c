/* SPDX-License-Identifier: Apache-2.0
 *
 * Dtypes, shapes, arrays, and the 16-bit floats against a slow reference in doubles. */
#include "strata/tensor.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Under AddressSanitizer an impossible size must come back as NULL, as from the C library, and not end the program. */
const char *__asan_default_options(void);
__attribute__((weak)) const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `value` rounded to a float of `fraction` fraction bits and least exponent `least`, in doubles; infinity from `limit` on. */
static double rounded(double value, int fraction, int least, double limit) {
    if (value == 0 || !isfinite(value)) return value;
    int exponent = ilogb(value) > least ? ilogb(value) : least;
    double result = ldexp(nearbyint(ldexp(value, fraction - exponent)), exponent - fraction);
    return fabs(result) >= limit ? copysign(INFINITY, value) : result;
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

Test(tensor, dtype_names_go_both_ways) {
    for (int i = 0; i < STRATA_DTYPE_COUNT; i++) {
        strata_dtype dtype = STRATA_DTYPE_COUNT;
        cr_assert_eq(strata_dtype_parse(strata_dtype_name((strata_dtype)i), &dtype, NULL), STRATA_OK);
        cr_assert_eq((int)dtype, i);
        cr_assert_gt(strata_dtype_bytes(dtype), 0);
    }
    strata_error err;
    strata_dtype dtype;
    cr_assert_eq(strata_dtype_parse("f64", &dtype, &err), STRATA_INVALID);
    cr_assert_str_eq(err.message, "dtype \"f64\" is not known; it must be one of f32, f16, bf16, i32, i64, u8, bool");
    cr_assert_eq(strata_dtype_parse(NULL, &dtype, &err), STRATA_INVALID);
    cr_assert_str_eq(strata_dtype_name((strata_dtype)77), "?");
    cr_assert_eq(strata_dtype_bytes((strata_dtype)-1), 0);
    cr_assert(!strata_dtype_is_float(STRATA_DTYPE_I32) && strata_dtype_is_float(STRATA_DTYPE_BF16));
}

Test(tensor, shape_macro_counts_its_dimensions) {
    cr_assert_eq(STRATA_SHAPE().rank, 0);
    cr_assert_eq(STRATA_SHAPE(5).rank, 1);
    cr_assert_eq(STRATA_SHAPE(2, 3, 4).rank, 3);
    cr_assert_eq(strata_shape_elements(STRATA_SHAPE()), 1);
    cr_assert_eq(strata_shape_elements(STRATA_SHAPE(2, 3, 4)), 24);
    cr_assert_eq(strata_shape_elements(STRATA_SHAPE(7, 0)), 0);
    cr_assert(strata_shape_equal(STRATA_SHAPE(2, 3), STRATA_SHAPE(2, 3)));
    cr_assert(!strata_shape_equal(STRATA_SHAPE(2, 3), STRATA_SHAPE(2)));
    cr_assert(!strata_shape_equal(STRATA_SHAPE(2, 3), STRATA_SHAPE(3, 2)));
}

Test(tensor, shape_text_is_readable_at_any_size) {
    cr_assert_str_eq(strata_shape_text(STRATA_SHAPE()).text, "()");
    cr_assert_str_eq(strata_shape_text(STRATA_SHAPE(64, 784)).text, "(64,784)");
    strata_shape longest = {.rank = STRATA_MAX_RANK};
    for (int i = 0; i < STRATA_MAX_RANK; i++) longest.dims[i] = INT64_MIN;
    cr_assert_eq(strlen(strata_shape_text(longest).text), STRATA_MAX_RANK * 20 + 7 + 2);
}

Test(tensor, shape_check_accepts_up_to_2_to_the_62_bytes) {
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(), NULL), STRATA_OK);
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(0, 5), NULL), STRATA_OK);
    const bool wide = sizeof(size_t) == 8; /* else up to 2^27 elements, of 8 bytes */
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(INT64_C(1) << 29, INT64_C(1) << 29), NULL), wide ? STRATA_OK : STRATA_INVALID);
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(1 << 13, 1 << 14), NULL), STRATA_OK);
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(INT64_C(1) << 29, (INT64_C(1) << 29) + 1), NULL), STRATA_INVALID);
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(INT64_MAX, INT64_MAX), NULL), STRATA_INVALID);
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(INT64_MAX, 0, INT64_MAX), NULL), STRATA_INVALID);
    strata_error err;
    cr_assert_eq(strata_shape_check(STRATA_SHAPE(3, -1), &err), STRATA_INVALID);
    cr_assert_str_eq(err.message, "dimension 1 of shape (3,-1) is negative");
    cr_assert_eq(strata_shape_check((strata_shape){.rank = 9}, &err), STRATA_INVALID);
    cr_assert_str_eq(err.message, "rank is 9; it must be 0 to 8");
    cr_assert_eq(strata_shape_check((strata_shape){.rank = -1}, NULL), STRATA_INVALID);
}

Test(tensor, created_arrays_are_aligned_and_zero) {
    strata_array array;
    for (int64_t n = 0; n < 100; n += 33) {
        cr_assert_eq(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(n, 3), &array, NULL), STRATA_OK);
        cr_assert_eq((uintptr_t)array.data % 64, 0);
        cr_assert_eq(strata_array_bytes(&array), (size_t)n * 24);
        for (int64_t i = 0; i < n * 3; i++) cr_assert_eq(((int64_t *)array.data)[i], 0);
        strata_array_finish(&array);
        cr_assert_null(array.data);
        strata_array_finish(&array);
    }
    strata_array_finish(NULL);
}

Test(tensor, array_create_says_what_it_could_not_get) {
    strata_array array;
    strata_error err;
    if (sizeof(size_t) == 8) {
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(INT64_C(1) << 58), &array, &err), STRATA_OUT_OF_MEMORY);
        cr_assert(strstr(err.message, "f32 (288230376151711744)"), "%s", err.message);
        cr_assert_null(array.owned);
    } else { /* bytes that no address reaches are refused, and not counted modulo 2^32 */
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(INT64_C(1) << 30), &array, &err), STRATA_INVALID);
        cr_assert(strstr(err.message, "at most 2^27"), "%s", err.message);
    }
    cr_assert_eq(strata_array_create((strata_dtype)50, STRATA_SHAPE(1), &array, &err), STRATA_INVALID);
    cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(-1), &array, &err), STRATA_INVALID);
}

Test(tensor, finish_leaves_borrowed_data_alone) {
    float data[3] = {1, 2, 3};
    strata_array view = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3), data);
    cr_assert_eq(strata_array_bytes(&view), 12);
    strata_array_finish(&view);
    cr_assert_eq(data[2], 3);
}

Test(tensor, every_f16_has_the_value_that_the_standard_says) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        int exponent = (bits >> 10) & 31, fraction = bits & 1023;
        double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
        if (bits & 0x8000) value = -value;
        float got = strata_f16_to_f32((uint16_t)bits);
        cr_assert(same(got, value), "f16 %04x is %g, must be %g", bits, (double)got, value);
        uint16_t back = strata_f16_from_f32(got);
        cr_assert(isnan(value) ? back == (bits | 0x200) : back == bits, "f16 %04x came back as %04x", bits, back);
    }
}

/* Every exponent, with fractions around each tie, in both signs. */
Test(tensor, f32_to_16_bits_rounds_to_nearest_even) {
    uint32_t random = 1;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (uint32_t i = 0; i < 3000; i++) {
            random = random * 1664525u + 1013904223u;
            uint32_t fraction =
                i < 1000 ? (random >> 9) : ((random >> 9) & ~0x1FFFu) + ((i & 1) ? 0x1000u : 0x8000u) + i % 3 - 1;
            float value = float_of((random & 0x80000000u) | exponent << 23 | (fraction & 0x7FFFFFu));
            double f16 = rounded(value, 10, -14, 65536), bf16 = rounded(value, 7, -126, 0x1p128);
            cr_assert(same(strata_f16_to_f32(strata_f16_from_f32(value)), f16), "f16 of %a", (double)value);
            cr_assert(same(strata_bf16_to_f32(strata_bf16_from_f32(value)), bf16), "bf16 of %a", (double)value);
        }
    }
}

Test(tensor, sixteen_bit_floats_keep_their_special_values) {
    cr_assert_eq(strata_f16_from_f32(65504.0f), 0x7BFF);
    cr_assert_eq(strata_f16_from_f32(65519.996f), 0x7BFF);
    cr_assert_eq(strata_f16_from_f32(65520.0f), 0x7C00);
    cr_assert_eq(strata_f16_from_f32(-INFINITY), 0xFC00);
    cr_assert_eq(strata_f16_from_f32(-0.0f), 0x8000);
    cr_assert_eq(strata_f16_from_f32(0x1p-24f), 0x0001);
    cr_assert_eq(strata_f16_from_f32(0x1p-25f), 0x0000);
    cr_assert_eq(strata_f16_from_f32(0x1.000002p-25f), 0x0001);
    cr_assert_eq(strata_f16_from_f32(0x1.8p-24f), 0x0002);
    cr_assert_eq(strata_f16_from_f32(float_of(0x7F800001)), 0x7E00);
    cr_assert_eq(strata_bf16_from_f32(INFINITY), 0x7F80);
    cr_assert_eq(strata_bf16_from_f32(float_of(0x7F7FFFFF)), 0x7F80);
    cr_assert_eq(strata_bf16_from_f32(float_of(0xFF800001)), 0xFFC0);
    cr_assert_eq(strata_bf16_from_f32(float_of(0x7FFFFFFF)), 0x7FFF);
    cr_assert_eq(bits_of(strata_bf16_to_f32(0x8001)), 0x80010000u);
}

Test(tensor, elements_go_through_double_in_every_dtype) {
    union {
        uint8_t bytes[16];
        int64_t align;
    } memory;
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_element_set((strata_dtype)dtype, memory.bytes, 1, 1.0);
        strata_element_set((strata_dtype)dtype, memory.bytes, 0, 0.0);
        cr_assert_eq(strata_element_get((strata_dtype)dtype, memory.bytes, 1), 1.0);
        cr_assert_eq(strata_element_get((strata_dtype)dtype, memory.bytes, 0), 0.0);
    }
}

static double through(strata_dtype dtype, double value) {
    int64_t memory = 0;
    strata_element_set(dtype, &memory, 0, value);
    return strata_element_get(dtype, &memory, 0);
}

Test(tensor, integers_truncate_and_saturate) {
    cr_assert_eq(through(STRATA_DTYPE_I32, -2.9), -2);
    cr_assert_eq(through(STRATA_DTYPE_I32, 1e30), INT32_MAX);
    cr_assert_eq(through(STRATA_DTYPE_I32, -INFINITY), INT32_MIN);
    cr_assert_eq(through(STRATA_DTYPE_I32, 2147483646.7), 2147483646);
    cr_assert_eq(through(STRATA_DTYPE_I64, 1e300), 0x1p63);
    cr_assert_eq(through(STRATA_DTYPE_I64, -1e300), -0x1p63);
    cr_assert_eq(through(STRATA_DTYPE_I64, 9007199254740993.0), 9007199254740992.0);
    cr_assert_eq(through(STRATA_DTYPE_U8, -1), 0);
    cr_assert_eq(through(STRATA_DTYPE_U8, 255.9), 255);
    cr_assert_eq(through(STRATA_DTYPE_U8, 254.9), 254);
    cr_assert_eq(through(STRATA_DTYPE_I32, NAN), 0);
    cr_assert_eq(through(STRATA_DTYPE_BOOL, -0.25), 1);
    cr_assert_eq(through(STRATA_DTYPE_BOOL, -0.0), 0);
}

/* 1 + 2^-11 is a tie in f16, and 2^-40 above it must round up; by way of f32 the 2^-40 would be lost and the tie go down. */
Test(tensor, a_double_is_rounded_once) {
    cr_assert_eq(through(STRATA_DTYPE_F16, 1 + 0x1p-11), 1.0);
    cr_assert_eq(through(STRATA_DTYPE_F16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
    cr_assert_eq(through(STRATA_DTYPE_F16, -1 - 0x1p-11 - 0x1p-40), -1 - 0x1p-10);
    cr_assert_eq(through(STRATA_DTYPE_F16, 1 + 0x3p-11 - 0x1p-40), 1 + 0x1p-10);
    cr_assert_eq(through(STRATA_DTYPE_BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
    cr_assert_eq(through(STRATA_DTYPE_F16, 1e300), INFINITY);
    cr_assert_eq(through(STRATA_DTYPE_BF16, -1e300), -INFINITY);
    cr_assert_eq(through(STRATA_DTYPE_BF16, 1e-300), 0);
    cr_assert(isnan(through(STRATA_DTYPE_F16, NAN)));
}
