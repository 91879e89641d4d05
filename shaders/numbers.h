/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the names that core/op/elementwise.def uses, for the element type T of the kernel that includes this file.
 * Functions of floats return NaN for NaN. The result of a row is an EXACT_VALUE, so that no compiler contracts two
 * operations to one with a single rounding, and each kernel computes the same bits. */
#if IS_FLOAT(T)
#define EXACT_VALUE EXACT VALUE(T)
float max_f32(float a, float b) {
    return IS_NAN(a) ? a : IS_NAN(b) ? b : a < b ? b : a;
}
float min_f32(float a, float b) {
    return IS_NAN(a) ? a : IS_NAN(b) ? b : b < a ? b : a;
}
/* 1 / (1 + e^-x), by the exponential that cannot overflow. */
float sigmoid_f32(float x) {
    const float e = EXP(-ABS(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
float sign_f32(float x) {
    return IS_NAN(x) ? x : x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
}
/* e^x - 1 for x below 0, by tanh, without its cancellation near 0. */
float expm1_f32(float x) {
    const float t = TANH(0.5f * x);
    return 2.0f * t / (1.0f - t);
}
/* log(1 + x) for x in 0..1: the rounding of 1 + x is taken out again (Kahan). */
float log1p_f32(float x) {
    EXACT float u = 1.0f + x;
    EXACT float d = u - 1.0f;
    return d == 0.0f ? x : LOG(u) * x / d;
}
#define EXPM1(x) expm1_f32(x)
#define LOG1P(x) log1p_f32(x)
#define ZERO     0.0f
/* A Vulkan driver may make a maximum of v < 0 ? 0 : v, and lose NaN. */
#define RELU(x)     (IS_NAN(x) ? (x) : (x) < 0.0f ? 0.0f : (x))
#define MAX(a, b)   max_f32(a, b)
#define MIN(a, b)   min_f32(a, b)
#define SIGMOID(x)  sigmoid_f32(x)
#define SIGN(x)     sign_f32(x)
#define EQUAL(a, b) (!IS_NAN(a) && !IS_NAN(b) && (a) == (b))
#define LESS(a, b)  (!IS_NAN(a) && !IS_NAN(b) && (a) < (b))
#else
#define EXACT_VALUE VALUE(T)
#undef ABS
#define ZERO        PASTE(ZERO_, T)
#define ZERO_i32    0
#define ZERO_i64    I64(0)
#define ZERO_u8     0u
#define ZERO_bool   0u
#define MAX(a, b)   ((a) < (b) ? (b) : (a))
#define MIN(a, b)   ((b) < (a) ? (b) : (a))
/* abs is the built-in function: if it is written by hand, clang makes an instruction of it that Oclgrind 21.10 does not
 * support. */
#define ABS(x)      PASTE(ABS_, T)(x)
#define ABS_i32(x)  I32(abs(x))
#define ABS_i64(x)  I64(abs(x))
#define SIGN(x)     PASTE(SIGN_, T)(x)
#define SIGN_i32(x) ((x) < 0 ? -1 : I32((x) > 0))
#define SIGN_i64(x) ((x) < I64(0) ? I64(-1) : I64((x) > I64(0)))
#define EQUAL(a, b) ((a) == (b))
#define LESS(a, b)  ((a) < (b))
#endif
