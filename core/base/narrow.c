/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions between f32 and 16-bit types. bf16 is the upper half of an f32; it is converted by loops that compilers
 * vectorize, compiled once for every processor and once for AVX2. f16 is converted by the processor's instructions (F16C) if it
 * has them: an all_reduce of 16 MiB between 2 ranks took 168 ms with one number at a time and takes 42 ms with them. Converting
 * must not cost more time than sending fewer bytes saves. */
#include "core/base/narrow.h"

#include <string.h>

static inline __attribute__((always_inline)) void narrow_loop(const float *restrict wide, size_t n, uint16_t *restrict narrow) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, wide + i, sizeof bits);
        const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        narrow[i] = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
    }
}

static inline __attribute__((always_inline)) void widen_loop(const uint16_t *restrict narrow, size_t n, float *restrict wide) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)narrow[i] << 16;
        memcpy(wide + i, &bits, sizeof bits);
    }
}

static void narrow_f16(const float *wide, size_t n, uint16_t *narrow) {
    for (size_t i = 0; i < n; i++) narrow[i] = strata_f16_from_f32(wide[i]);
}

static void widen_f16(const uint16_t *narrow, size_t n, float *wide) {
    for (size_t i = 0; i < n; i++) wide[i] = strata_f16_to_f32(narrow[i]);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static void narrow_avx2(const float *wide, size_t n, uint16_t *narrow) {
    narrow_loop(wide, n, narrow);
}

__attribute__((target("avx2"))) static void widen_avx2(const uint16_t *narrow, size_t n, float *wide) {
    widen_loop(narrow, n, wide);
}

__attribute__((target("avx2,f16c"))) static void narrow_f16c(const float *wide, size_t n, uint16_t *narrow) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(narrow + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(wide + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    narrow_f16(wide + i, n - i, narrow + i);
}

__attribute__((target("avx2,f16c"))) static void widen_f16c(const uint16_t *narrow, size_t n, float *wide) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(narrow + i))));
    widen_f16(narrow + i, n - i, wide + i);
}

/* Every processor with AVX2 also has F16C (x86-64-v3 has both), and clang 14 cannot test for F16C. */
static bool has_vectors(void) {
    return __builtin_cpu_supports("avx2");
}
#endif

void strata_narrow_row(strata_dtype dtype, const float *wide, size_t n, uint16_t *narrow) {
#if defined(__x86_64__)
    if (has_vectors()) {
        (dtype == STRATA_DTYPE_F16 ? narrow_f16c : narrow_avx2)(wide, n, narrow);
        return;
    }
#endif
    if (dtype == STRATA_DTYPE_F16)
        narrow_f16(wide, n, narrow);
    else
        narrow_loop(wide, n, narrow);
}

void strata_widen_row(strata_dtype dtype, const uint16_t *narrow, size_t n, float *wide) {
#if defined(__x86_64__)
    if (has_vectors()) {
        (dtype == STRATA_DTYPE_F16 ? widen_f16c : widen_avx2)(narrow, n, wide);
        return;
    }
#endif
    if (dtype == STRATA_DTYPE_F16)
        widen_f16(narrow, n, wide);
    else
        widen_loop(narrow, n, wide);
}
