/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes CRC32C with the crc32 instruction of the processor. It processes 8 bytes in each cycle, but its result is
 * available only after 3 cycles. So three stretches of a block are computed at the same time, and then joined: crc(a b) =
 * shift(crc(a), bytes of b) ^ crc(b), where shift multiplies by x^(8 n) mod the polynomial. */
#include "cluster/wire/crc32c.h"

#include <string.h>

/* For processors without the instruction: four bits at a time, from a table. */
static uint32_t portable(uint32_t crc, const unsigned char *at, size_t n) {
    static const uint32_t table[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3,
                                       0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                       0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};
    for (; n; n--) {
        crc ^= *at++;
        crc = table[crc & 15] ^ (crc >> 4);
        crc = table[crc & 15] ^ (crc >> 4);
    }
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>

/* A block has three stretches of STRETCH bytes. The constants are x^(8 STRETCH - 33) and x^(16 STRETCH - 33) mod the
 * polynomial, with reflected bits. They shift a CRC by one stretch and by two: `shift` computes a carry-less product, and
 * then the crc32 instruction, which multiplies by x^32 and reduces. */
enum { STRETCH = 2048 };
#define SHIFT_ONE 0xa51b6135u
#define SHIFT_TWO 0x82f89c77u

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t shift(uint64_t crc, uint32_t by) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128((int64_t)by), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t n) {
    uint64_t a = crc, word;
    for (; n >= 3 * STRETCH; at += 3 * STRETCH, n -= 3 * STRETCH) {
        uint64_t b = 0, c = 0;
#pragma GCC unroll 8
        for (size_t i = 0; i < STRETCH; i += 8) {
            memcpy(&word, at + i, 8);
            a = _mm_crc32_u64(a, word);
            memcpy(&word, at + STRETCH + i, 8);
            b = _mm_crc32_u64(b, word);
            memcpy(&word, at + 2 * STRETCH + i, 8);
            c = _mm_crc32_u64(c, word);
        }
        a = shift(a, SHIFT_TWO) ^ shift(b, SHIFT_ONE) ^ c;
    }
    for (; n >= 8; at += 8, n -= 8) {
        memcpy(&word, at, 8);
        a = _mm_crc32_u64(a, word);
    }
    uint32_t rest = (uint32_t)a;
    for (; n; n--) rest = _mm_crc32_u8(rest, *at++);
    return rest;
}
#endif

uint32_t strata_crc32c(uint32_t crc, const void *bytes, size_t n_bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return ~by_instruction(~crc, bytes, n_bytes);
#endif
    return ~portable(~crc, bytes, n_bytes);
}
