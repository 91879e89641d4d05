/* SPDX-License-Identifier: Apache-2.0
 *
 * The dialect's mathematics in OpenCL C: mostly the built-in functions, whose accuracy (exp and log 3 ulp, sin and cos 4, tanh
 * 5, pow 16) and treatment of NaN and infinity OpenCL guarantees. glsl_math.h has the same names for Vulkan. */
#define FMA(a, b, c) fma(a, b, c)
#define EXP(v)       exp(v)
#define LOG(v)       log(v)
#define SQRT(v)      sqrt(v)
#define RSQRT(v)     rsqrt(v)
#define TANH(v)      tanh(v)
#define SIN(v)       sin(v)
#define COS(v)       cos(v)
#define POW(a, b)    pow(a, b)
#define ABS(v)       fabs(v)
#define ERF(v)       erf(v)

uint bf16_bits(float v) {
    const uint bits = as_uint(v);
    return IS_NAN(v) ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

/* Conversions of f16 without branches, so that loops over them are vectorized. They do not compute with subnormal
 * floats, so they are also exact on devices that flush these to zero. */
float f16_value(uint h) {
    const uint magnitude = h & 0x7fffu;
    const uint normal =
        (magnitude << 13) + (magnitude < 0x7c00u ? 0x38000000u : 0x70000000u); /* exponent + 112; 31 gives 255 */
    const uint subnormal = as_uint((float)magnitude * 0x1p-24f);
    return as_float(((h & 0x8000u) << 16) | (magnitude < 0x400u ? subnormal : normal));
}

uint f16_bits(float v) {
    const uint bits = as_uint(v), magnitude = bits & 0x7fffffffu;
    const uint bounded = MIN_U32(magnitude, 0x47800000u); /* 65536: rounds to infinity, as 65520 does */
    const uint normal = (bounded - 0x38000000u + 0xfffu + ((bounded >> 13) & 1u)) >> 13;
    const uint subnormal = as_uint(as_float(bounded) + 0.5f) - 0x3f000000u; /* the sum's last bit is 2^-24 */
    const uint number = magnitude < 0x38800000u ? subnormal : normal;
    return ((bits >> 16) & 0x8000u) | (magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x1ffu) : number);
}
