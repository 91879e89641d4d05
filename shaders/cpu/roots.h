/* SPDX-License-Identifier: Apache-2.0
 *
 * Square roots of ROOTS consecutive vectors. Include it after hits.h.
 *
 * A processor with AVX-512 has one unit for divisions and roots of vectors. In Adam, whose every element needs one of each,
 * this unit is the bottleneck, while the units for multiply-adds idle. So on PoCL only a half of the vectors uses it. The
 * others are computed by multiply-adds from the processor's estimate y of 1 / sqrt(v), whose relative error is below 2^-14:
 *   s = v y,  h = y / 2,  r = 1/2 - s h,  s = s + s r,  h = h + h r,  root = s + h (v - s s)
 * This is the correctly rounded root, the same as the unit's: tried for all 2^24 floats from 1 to 4 (all others are these times
 * a power of 4), with y off by up to 2^-14 in both directions. v - s s must not underflow, so vectors with an element outside
 * 2^-100 .. the largest float use the unit. tests/op/adam_gather_test.c compares them. */
#define ROOTS 4u
#define LEAST 0x0d800000u                  /* the bits of 2^-100 */
#define RANGE ((int)(0x7f800000u - LEAST)) /* number of floats from 2^-100 to below infinity */

/* clang-format off */
static __attribute__((always_inline)) void square_roots(const VEC *v, VEC *root) {
#if LANES == 16
    DIRECTIVE if defined(POCL_DEVICE_ADDRESS_BITS) && defined(__AVX512F__)
    const uint16 most = max(as_uint16(v[2]) - LEAST, as_uint16(v[3]) - LEAST);
    if (__builtin_ia32_ucmpd512_mask(as_int16(most), (int16)(RANGE), 1, (ushort)0xffff) == (ushort)0xffff) { /* all below */
        EACH(k, 2u) root[k] = sqrt(v[k]);
        EACH(k, 2u) {
            const VEC x = v[k + 2u], y = __builtin_ia32_rsqrt14ps512_mask(x, x, (ushort)0xffff);
            const VEC s = x * y, h = 0.5f * y, r = fma(-s, h, (VEC)(0.5f)), closer = fma(s, r, s);
            root[k + 2u] = fma(fma(h, r, h), fma(-closer, closer, x), closer);
        }
        return;
    }
    DIRECTIVE endif
#endif
    EACH(k, ROOTS) root[k] = sqrt(v[k]);
}
/* clang-format on */
