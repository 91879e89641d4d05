/* SPDX-License-Identifier: Apache-2.0
 *
 * The dialect's mathematics in OpenCL C: mostly the built-in functions, whose accuracy (exp and log 3 ulp, tanh 5, pow 16) and
 * treatment of NaN and infinity OpenCL guarantees. glsl_math.h has the same names for Vulkan. */
#define FMA(a, b, c) fma(a, b, c)
#define EXP(v)       exp(v)
#define LOG(v)       log(v)
#define SQRT(v)      sqrt(v)
#define RSQRT(v)     rsqrt(v)
#define TANH(v)      tanh(v)
#define POW(a, b)    pow(a, b)
#define ABS(v)       fabs(v)
#define ERF(v)       erf(v)

uint bf16_bits(float v) {
    const uint bits = as_uint(v);
    return IS_NAN(v) ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
