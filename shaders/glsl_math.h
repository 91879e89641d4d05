/* SPDX-License-Identifier: Apache-2.0
 *
 * The dialect's mathematics in GLSL. Vulkan promises little for its own functions (exp 3 + 2|x| ulp, log 2^-21 absolute near 1,
 * sin and cos 2^-11, pow and tanh by formulas that overflow; NaN may be assumed away; half conversion may round toward zero),
 * so these are written out with correctly rounded adds and multiplies, in a fixed order, and give a few ulp on every driver.
 * Polynomial coefficients are those of the Cephes library's single-precision functions. opencl_math.h has the same names.
 *
 * Not covered: subnormal results, which a Vulkan device may flush to zero. */
#define FMA(a, b, c) fma(a, b, c)
#define EXP(v)       exp_f32(v)
#define LOG(v)       log_f32(v)
#define SQRT(v)      sqrt_f32(v)
#define RSQRT(v)     inversesqrt(v)
#define TANH(v)      tanh_f32(v)
#define SIN(v)       sin_f32(v)
#define COS(v)       cos_f32(v)
#define POW(a, b)    pow_f32(a, b)
#define ABS(v)       abs(v)
#define ERF(v)       erf_f32(v)

#include "turn.h"

uint multiply_high(uint a, uint b) {
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}

uint bf16_bits(float v) {
    const uint bits = floatBitsToUint(v);
    return IS_NAN(v) ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

float f16_value(uint h) {
    const uint sign = (h & 0x8000u) << 16;
    const uint exponent = (h >> 10) & 31u;
    const uint mantissa = h & 0x3ffu;
    if (exponent == 31u) return uintBitsToFloat(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0u) return uintBitsToFloat(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    return uintBitsToFloat(sign | floatBitsToUint(float(mantissa) * 5.9604644775390625e-8f)); /* mantissa 2^-24 */
}

uint f16_bits(float v) {
    const uint bits = floatBitsToUint(v);
    const uint sign = (bits >> 16) & 0x8000u;
    const uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu); /* NaN stays NaN */
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;                               /* 65520 and more */
    if (magnitude >= 0x38800000u) return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
    if (magnitude < 0x33000000u) return sign; /* below 2^-25; 2^-25 itself ties to zero through the rule below */
    const uint shift = 126u - (magnitude >> 23);
    const uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint half_ulp = 1u << (shift - 1u);
    const uint kept = mantissa >> shift;
    const uint rest = mantissa & ((1u << shift) - 1u);
    return sign | (kept + uint(rest > half_ulp || (rest == half_ulp && (kept & 1u) != 0u)));
}

/* v 2^n for -252 <= n <= 254: two steps, each a power of two that f32 can hold. */
float scale_by_power_of_two(float v, int n) {
    const int half_n = n / 2;
    return v * uintBitsToFloat(uint(half_n + 127) << 23) * uintBitsToFloat(uint(n - half_n + 127) << 23);
}

/* e^(v + low), low much smaller than v and -104 <= v <= 89: n = round(v / ln 2), then a polynomial of v - n ln 2, which lies
 * in [-0.35, 0.35]. ln 2 is subtracted in two parts, the first of which has 9 bits so that its product with n is exact. */
float exp_sum(float v, float low) {
    precise float n = floor(v * 1.44269504f + 0.5f);
    precise float r = (v - n * 0.693359375f) - n * -2.12194440e-4f;
    r = r + low;
    precise float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r * r + r) + 1.0f;
    return scale_by_power_of_two(p, int(n));
}

float exp_f32(float v) {
    if (IS_NAN(v)) return v;
    if (v > 88.8f) return INFINITE;
    if (v < -104.0f) return 0.0f;
    return exp_sum(v, 0.0f);
}

/* v = m 2^e with m in [sqrt(1/2), sqrt 2); returns m - 1 and writes e. v is finite and positive. */
float split_exponent(float v, out float e) {
    uint bits = floatBitsToUint(v);
    int exponent = -126;
    if (bits < 0x00800000u) { /* a subnormal's bits are the number in units of 2^-149 */
        bits = floatBitsToUint(float(bits));
        exponent -= 149;
    }
    exponent += int(bits >> 23);
    float m = uintBitsToFloat((bits & 0x7fffffu) | 0x3f000000u);
    if (m < 0.707106781f) {
        exponent -= 1;
        m += m;
    }
    e = float(exponent);
    return m - 1.0f;
}

/* (log(1 + m) - m + m^2 / 2) for m in [-0.3, 0.42]; z = m^2. */
float log_tail(float m, float z) {
    precise float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return p * m * z;
}

float log_f32(float v) {
    if (IS_NAN(v)) return v;
    if ((floatBitsToUint(v) & 0x7fffffffu) == 0u) return -INFINITE;
    if (IS_NEGATIVE(v)) return NOT_A_NUMBER;
    if (!IS_FINITE(v)) return v;
    float e;
    precise float m = split_exponent(v, e);
    precise float z = m * m;
    precise float p = log_tail(m, z);
    p = p + e * -2.12194440e-4f;
    p = p - 0.5f * z;
    p = m + p;
    p = p + e * 0.693359375f;
    return p;
}

float sqrt_f32(float v) {
    return v == 0.0f ? v : sqrt(v);
}

/* Small v by an odd polynomial; else 1 - 2 / (e^2|v| + 1), which is 1 where the exponential would overflow. */
float tanh_f32(float v) {
    if (IS_NAN(v)) return v;
    const float a = abs(v);
    precise float t;
    if (a < 0.625f) {
        const float z = v * v;
        t = -5.70498872745e-3f;
        t = t * z + 2.06390887954e-2f;
        t = t * z - 5.37397155531e-2f;
        t = t * z + 1.33314422036e-1f;
        t = t * z - 3.33332819422e-1f;
        return t * z * v + v;
    }
    t = a > 9.5f ? 1.0f : 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
    return v < 0.0f ? -t : t;
}

/* a b = product + error exactly (Veltkamp's splitting; |a|, |b| below 2^115). */
float product_error(float a, float b, float product) {
    precise float t = a * 4097.0f;
    precise float a_high = t - (t - a);
    precise float a_low = a - a_high;
    t = b * 4097.0f;
    precise float b_high = t - (t - b);
    precise float b_low = b - b_high;
    precise float e = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    return e;
}

/* a^b for finite a > 0, a != 1, finite b != 0: e^(b log a) with the logarithm as a sum high + low of about 30 bits. */
float pow_positive(float a, float b) {
    float e;
    precise float m = split_exponent(a, e);
    precise float square = m * m;
    precise float square_low = product_error(m, m, square);
    precise float s = m - 0.5f * square;
    precise float low = ((m - s) - 0.5f * square) - 0.5f * square_low;
    low = low + log_tail(m, square);
    low = low + e * -2.12194440e-4f;
    precise float t = e * 0.693359375f;
    precise float high = t + s;
    precise float part = high - t;
    low = low + ((t - (high - part)) + (s - part));
    t = high + low;
    low = low - (t - high);
    high = t;
    precise float p = b * high;
    if (p > 88.8f) return INFINITE;
    if (p < -104.0f) return 0.0f;
    precise float p_low = product_error(b, high, p);
    p_low = p_low + b * low;
    return exp_sum(p, p_low);
}

/* As powf of C: 1 for b = 0 or a = 1 even when the other is NaN; a negative base needs an integral exponent, else NaN. */
float pow_f32(float a, float b) {
    if (b == 0.0f || a == 1.0f) return 1.0f;
    if (IS_NAN(a)) return a;
    if (IS_NAN(b)) return b;
    const float size = abs(b);
    const bool integral = size >= 8388608.0f || floor(size) == size;
    const bool odd = size < 16777216.0f && integral && (uint(size) & 1u) != 0u;
    const float sign = IS_NEGATIVE(a) && odd ? -1.0f : 1.0f;
    const float base = abs(a);
    if (base == 0.0f) return b > 0.0f ? sign * 0.0f : sign * INFINITE;
    if (base == 1.0f && !IS_FINITE(b)) return 1.0f;
    if (!IS_FINITE(b)) return (base > 1.0f) == (b > 0.0f) ? INFINITE : 0.0f;
    if (!IS_FINITE(a)) return b > 0.0f ? sign * INFINITE : sign * 0.0f;
    if (a < 0.0f && !integral) return NOT_A_NUMBER;
    if (base == 1.0f) return sign;
    return sign * pow_positive(base, b);
}

/* Below 1 the series of erf, 2 / sqrt(pi) times the sum of (-1)^k v^(2k+1) / (k! (2k+1)), of which 11 terms leave 1e-9; from
 * there on 1 minus the rational approximation of erfc in Abramowitz & Stegun 7.1.26 times e^(-v^2), within 2e-7. */
float erf_f32(float v) {
    if (IS_NAN(v)) return v;
    const float a = abs(v);
    precise float p;
    if (a < 1.0f) {
        const float z = v * v;
        p = 1.3122533e-8f;
        p = p * z - 1.4503852e-7f;
        p = p * z + 1.4589169e-6f;
        p = p * z - 1.3227513e-5f;
        p = p * z + 1.0683761e-4f;
        p = p * z - 7.5757576e-4f;
        p = p * z + 4.6296296e-3f;
        p = p * z - 2.3809524e-2f;
        p = p * z + 0.1f;
        p = p * z - 0.33333333f;
        p = p * z + 1.0f;
        return p * v * 1.12837917f;
    }
    if (a > 4.0f) return v < 0.0f ? -1.0f : 1.0f;
    const float t = 1.0f / (1.0f + 0.3275911f * a);
    p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    p = 1.0f - p * t * exp_f32(-a * a);
    return v < 0.0f ? -p : p;
}

/* 2 / pi in words of 32 bits, after a word of zeros: 2 / pi is the sum of two_over_pi[k] 2^(-32 k). */
const uint two_over_pi[8] =
    uint[8](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);

/* Word k of 2 / pi times 2^shift, 0 <= shift < 32. */
uint two_over_pi_word(uint k, uint shift) {
    return (two_over_pi[k] << shift) | ((two_over_pi[k + 1u] >> 1) >> (31u - shift));
}

/* |v| = axis pi / 2 + a whole number of turns + the result, which lies in [-pi/4, pi/4]; v is finite. Payne and Hanek (1983):
 * |v| is m 2^(e - 32). m is multiplied only by those 96 bits of 2 / pi that determine the quarter turn and its
 * fraction. The products with the bits before them are whole turns, since m is a multiple of 2^8. */
float reduce_angle(float v, out uint axis) {
    const uint bits = floatBitsToUint(v) & 0x7fffffffu;
    axis = 0u;
    if (bits < 0x3f490fdbu) return abs(v); /* pi / 4 */
    const uint m = (bits << 8) | 0x80000000u;
    const uint e = (bits >> 23) - 126u;
    uint whole, high_low, middle_high, middle_low, carry_low, carry_high, carry;
    umulExtended(m, two_over_pi_word(e >> 5, e & 31u), whole, high_low);
    umulExtended(m, two_over_pi_word((e >> 5) + 1u, e & 31u), middle_high, middle_low);
    /* The fraction of a quarter turn: high 2^-32 + low 2^-64. */
    uint low = uaddCarry(middle_low, multiply_high(m, two_over_pi_word((e >> 5) + 2u, e & 31u)), carry_low);
    uint high = uaddCarry(high_low, middle_high, carry_high);
    high = uaddCarry(high, carry_low, carry);
    const bool next = (high >> 31) != 0u; /* nearer to the next axis */
    axis = whole + carry_high + carry + uint(next);
    if (next) {
        low = ~low + 1u;
        high = ~high + uint(low == 0u);
    }
    precise float a = (float(high) + float(low) * 2.3283064e-10f) * 3.6572957e-10f; /* 2^-32; pi / 2 * 2^-32 */
    return next ? -a : a;
}

float sin_f32(float v) {
    if (IS_NAN(v)) return v;
    if (!IS_FINITE(v)) return NOT_A_NUMBER;
    uint axis;
    const float a = reduce_angle(v, axis);
    const float sine = turned_cosine(a, axis + 3u);
    return IS_NEGATIVE(v) ? -sine : sine;
}

float cos_f32(float v) {
    if (IS_NAN(v)) return v;
    if (!IS_FINITE(v)) return NOT_A_NUMBER;
    uint axis;
    const float a = reduce_angle(v, axis);
    return turned_cosine(a, axis);
}
