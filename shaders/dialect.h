/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel dialect. The C preprocessor reads each kernel's source several times at build time:
 *   STRATA_OPENCL   gives OpenCL C 1.2 text
 *   STRATA_GLSL     gives GLSL 450 for Vulkan 1.1; with STRATA_FETCH too, buffers that are read are texel buffers; with
 *                   STRATA_WORDS, elements of 8 bits are parts of 32-bit words, for devices without 8-bit storage
 *   STRATA_META     gives the kernel's launch interface as a C initializer (see shaders.h)
 * The dialect must stay small. Kernels that do not fit into it are families of their own in subfolders. README.md
 * explains how to write a kernel.
 *
 * A kernel file defines four lists and then includes this header once:
 *   #define CONSTANTS(X) X(0, LOCAL_X, 64) X(1, OP, 0)      id, name, default: unsigned, fixed when the kernel is compiled
 *   #define BUFFERS(X)   X(0, READ, T, x) X(1, WRITE, T, y) binding, READ | WRITE | UPDATE (f32, i32), element type, name
 *   #define WORDS(X)     X(uint, n) X(float, alpha)         parameters of a launch; each buffer's `x_offset` comes before
 *   #define LOCALS(X)    X(float, tile, 256)                optional: arrays in local memory; the body begins with LOCAL_ARRAYS
 *                                                           Float i of an array of float4 is LANE(tile, i)
 *   #define MATRIX_UNITS                                    optional: Vulkan's cooperative matrices, in shaders/matrix_units/
 * then helper functions (values only, no pointers), then KERNEL { body }.
 *
 * Element types: f32 f16 bf16 i32 i64 u8 bool, and b8 b16 b32 b64 for kernels that only move bits. VALUE(T) is the type
 * in which a kernel computes: float for f32, f16 and bf16, int for i32, INT64 for i64 and b64, and uint for all
 * others. */
#define PASTE_(a, b)      a##b
#define PASTE(a, b)       PASTE_(a, b)
#define TEXT_(a)          #a
#define TEXT(a)           TEXT_(a)
#define DROP_(first, ...) __VA_ARGS__
#define DROP(...)         DROP_(__VA_ARGS__)

/* Properties of the element types, for use in #if. */
#define IS_FLOAT(T)    PASTE(IS_FLOAT_, T)
#define IS_FLOAT_f32   1
#define IS_FLOAT_f16   1
#define IS_FLOAT_bf16  1
#define IS_FLOAT_i32   0
#define IS_FLOAT_i64   0
#define IS_FLOAT_u8    0
#define IS_FLOAT_bool  0
#define IS_BFLOAT(T)   PASTE(IS_BFLOAT_, T)
#define IS_BFLOAT_f32  0
#define IS_BFLOAT_f16  0
#define IS_BFLOAT_bf16 1
#define IS_SIGNED(T)   PASTE(IS_SIGNED_, T)
#define IS_SIGNED_f32  1
#define IS_SIGNED_f16  1
#define IS_SIGNED_bf16 1
#define IS_SIGNED_i32  1
#define IS_SIGNED_i64  1
#define IS_SIGNED_u8   0
#define IS_SIGNED_bool 0

/* LOAD reads element i of buffer x as a VALUE(T), and STORE writes one, rounded to the element type (to nearest even).
 * Both add the buffer's offset, so index 0 in a kernel is the tensor's first element. */
#define VALUE(T)            PASTE(VALUE_, T)
#define LOAD(T, x, i)       PASTE(LOAD_, T)(x, i)
#define STORE(T, y, i, v)   PASTE(STORE_, T)(y, i, v)
#define VALUE_f32           float
#define VALUE_f16           float
#define VALUE_bf16          float
#define VALUE_i32           int
#define VALUE_i64           INT64
#define VALUE_u8            uint
#define VALUE_bool          uint
#define VALUE_b8            uint
#define VALUE_b16           uint
#define VALUE_b32           uint
#define VALUE_b64           INT64
#define LOAD_f32(x, i)      GET(x, i)
#define LOAD_bf16(x, i)     FLOAT_FROM_BITS(U32(GET(x, i)) << 16)
#define LOAD_i32(x, i)      GET(x, i)
#define LOAD_i64(x, i)      AT(x, i)
#define LOAD_u8(x, i)       U32(GET(x, i))
#define LOAD_bool(x, i)     (U32(GET(x, i)) != 0u ? 1u : 0u)
#define LOAD_b8(x, i)       U32(GET(x, i))
#define LOAD_b16(x, i)      U32(GET(x, i))
#define LOAD_b32(x, i)      GET(x, i)
#define LOAD_b64(x, i)      AT(x, i)
#define STORE_f32(y, i, v)  PUT(y, i, v)
#define STORE_bf16(y, i, v) AT(y, i) = U16(bf16_bits(v))
#define STORE_i32(y, i, v)  PUT(y, i, v)
#define STORE_i64(y, i, v)  AT(y, i) = (v)
#define STORE_u8(y, i, v)   AT(y, i) = U8(v)
#define STORE_bool(y, i, v) AT(y, i) = U8((v) != 0u ? 1u : 0u)
#define STORE_b8(y, i, v)   AT(y, i) = U8(v)
#define STORE_b16(y, i, v)  AT(y, i) = U16(v)
#define STORE_b32(y, i, v)  AT(y, i) = (v)
#define STORE_b64(y, i, v)  AT(y, i) = (v)

/* Special floats are tested by their bits, because a Vulkan driver may assume that NaN never occurs in a comparison. */
#define INFINITE       FLOAT_FROM_BITS(0x7f800000u)
#define NOT_A_NUMBER   FLOAT_FROM_BITS(0x7fc00000u)
#define IS_NAN(v)      ((BITS_FROM_FLOAT(v) & 0x7fffffffu) > 0x7f800000u)
#define IS_FINITE(v)   ((BITS_FROM_FLOAT(v) & 0x7f800000u) != 0x7f800000u)
#define IS_NEGATIVE(v) ((BITS_FROM_FLOAT(v) >> 31) != 0u)

/* FOR_EACH executes its body once for every element i < n (n is at most 2^31), for any number of work-groups. In a
 * work-group of several work-items, neighbouring work-items process neighbouring elements, which is fast on GPUs. A
 * work-group of one work-item processes a contiguous range of elements, which a CPU's compiler vectorizes. Ranges are
 * multiples of 16 elements, a cache line of f32, so that a vector lies in one line and cores share no line. */
#define ELEMENT_RUN(i, n)                                                                                       \
    const uint i##_run = LOCAL_X == 1u ? ((n) + 16u * GLOBAL_SIZE(0) - 1u) / (16u * GLOBAL_SIZE(0)) * 16u : 1u; \
    const uint i##_end = LOCAL_X == 1u ? MIN_U32((GLOBAL_ID(0) + 1u) * i##_run, (n)) : (n);
#define FOR_EACH(i, n) \
    ELEMENT_RUN(i, n)  \
    for (uint i = GLOBAL_ID(0) * i##_run; i < i##_end; i += LOCAL_X == 1u ? 1u : GLOBAL_SIZE(0))
/* FOR_EACH for f32 only. BODY(V, i) processes element i if V is float, and on CPUs elements i .. i + 15 if V is
 * float16. This is for compilers that do not vectorize the loop themselves (Intel's does not if the loop writes a
 * buffer or computes a root). LOADV and STOREV read and write values of type V. */
#define FOR_EACH_WIDE(i, n, BODY)                                   \
    ELEMENT_RUN(i, n)                                               \
    uint i = GLOBAL_ID(0) * i##_run;                                \
    WHOLE_VECTORS(i, BODY)                                          \
    for (; i < i##_end; i += LOCAL_X == 1u ? 1u : GLOBAL_SIZE(0)) { \
        BODY(float, i)                                              \
    }
#define LOADV(V, x, i)        PASTE(LOADV_, V)(x, i)
#define STOREV(V, y, i, v)    PASTE(STOREV_, V)(y, i, v)
#define LOADV_float(x, i)     GET(x, i)
#define STOREV_float(y, i, v) PUT(y, i, v)
/* UNROLL goes before a loop whose bounds are constants, so that arrays which it indexes stay in registers. IN_ORDER goes before
 * a loop that sums floats: Intel's compiler for CPUs would make 16 partial sums of it. */
/* FOR_EACH_GROUP executes its body once for every row < n. All work-items of a group process the same row, so the body
 * may contain barriers. */
#define FOR_EACH_GROUP(row, n) for (uint row = GROUP_ID(0); row < (n); row += GROUPS(0))
/* FOR_EACH_SHARE executes its body once for every i < n, where i is more than an element (a row, a block) and
 * work-groups have one work-item. Each work-group processes a contiguous range, and the lengths of the ranges differ by
 * at most 1. */
#define FOR_EACH_SHARE(i, n)                                                                                 \
    const uint i##_each = (n) / GROUPS(0), i##_more = (n)-i##_each * GROUPS(0), i##_next = GROUP_ID(0) + 1u; \
    const uint i##_end = i##_next * i##_each + i##_next * i##_more / GROUPS(0);                              \
    for (uint i = GROUP_ID(0) * i##_each + GROUP_ID(0) * i##_more / GROUPS(0); i < i##_end; i++)
/* WIDE(i) has 64 bits in OpenCL, so that a CPU's compiler knows that WIDE(i) + k for k = 0, 1 .. are neighbours. i + k
 * in 32 bits might wrap around, which prevents vectorization. */
#define MIN_U32(a, b) ((a) < (b) ? (a) : (b))
#define MAX_U32(a, b) ((a) > (b) ? (a) : (b))

#if defined(STRATA_OPENCL)
#pragma OPENCL FP_CONTRACT OFF
#define INT64               long
#define F32(v)              ((float)(v))
#define I32(v)              ((int)(v))
#define U32(v)              ((uint)(v))
#define I64(v)              ((long)(v))
#define U16(v)              ((ushort)(v))
#define U8(v)               ((uchar)(v))
#define WIDE(i)             ((size_t)(i))
#define BITS_FROM_FLOAT(v)  as_uint(v)
#define FLOAT_FROM_BITS(u)  as_float(u)
#define MULTIPLY_HIGH(a, b) ((uint)(((ulong)(a) * (b)) >> 32))
#define EXACT
#define GLOBAL_ID(d)   ((uint)get_global_id(d))
#define GLOBAL_SIZE(d) ((uint)get_global_size(d))
#define LOCAL_ID(d)    ((uint)get_local_id(d))
#define GROUP_ID(d)    ((uint)get_group_id(d))
#define GROUPS(d)      ((uint)get_num_groups(d))
#define BARRIER        barrier(CLK_LOCAL_MEM_FENCE)
#define UNROLL         _Pragma("unroll")
#define IN_ORDER       _Pragma("clang loop vectorize(disable)")
#define AT(x, i)       (x + x##_offset)[i]
#define GET(x, i)      AT(x, i)
#define PUT(y, i, v)   AT(y, i) = (v)
#define LANE(x, i)     ((__local float *)(x))[i]
#define STORAGE_f32    float
#define STORAGE_f16    half
#define STORAGE_bf16   ushort
#define STORAGE_i32    int
#define STORAGE_i64    long
#define STORAGE_u8     uchar
#define STORAGE_bool   uchar
#define STORAGE_b8     uchar
#define STORAGE_b16    ushort
#define STORAGE_b32    uint
#define STORAGE_b64    long
#define ACCESS_READ    const
#define ACCESS_WRITE
#define ACCESS_UPDATE

#define WHOLE_VECTORS(i, BODY)                 \
    if (LOCAL_X == 1u)                         \
        for (; i + 16u <= i##_end; i += 16u) { \
            BODY(float16, i)                   \
        }
#define LOADV_float16(x, i) vload16(0, x + x##_offset + (i))
/* A store through a packed struct is one instruction. PoCL's vstore16 is four. */
#define STOREV_float16(y, i, v) ((__global struct { float16 all; } __attribute__((packed)) *)(y + y##_offset + (i)))->all = (v)

/* A GPU converts f16 by one instruction. PoCL calls a function for each conversion, so groups of one work-item convert
 * by f16_value and f16_bits, which PoCL's compiler vectorizes. */
#define LOAD_f16(x, i) \
    (LOCAL_X == 1u ? f16_value(((__global const ushort *)(x + x##_offset))[i]) : vload_half(i, x + x##_offset))
#define STORE_f16(y, i, v)                                           \
    if (LOCAL_X == 1u)                                               \
        ((__global ushort *)(y + y##_offset))[i] = U16(f16_bits(v)); \
    else                                                             \
        vstore_half_rte(v, i, y + y##_offset)

#define BUFFER_ARGUMENT(binding, access, T, x) , __global ACCESS_##access PASTE(STORAGE_, T) * x
#define OFFSET_ARGUMENT(binding, access, T, x) , uint x##_offset
#define WORD_ARGUMENT(type, name)              , type name
#define LOCAL_DECLARATION(type, name, count)   __local type name[count];
#define LOCAL_ARRAYS                           LOCALS(LOCAL_DECLARATION)
#define KERNEL_WITH_LOCAL(y)                                                  \
    __kernel __attribute__((reqd_work_group_size(LOCAL_X, y, 1))) void PASTE( \
        strata_, STEM)(DROP(unused BUFFERS(BUFFER_ARGUMENT) BUFFERS(OFFSET_ARGUMENT) WORDS(WORD_ARGUMENT)))
#define KERNEL    KERNEL_WITH_LOCAL(1)
#define KERNEL_2D KERNEL_WITH_LOCAL(LOCAL_Y)
#include "opencl_math.h"

#elif defined(STRATA_GLSL)
/* clang-format off */
#define DIRECTIVE #
DIRECTIVE version 450
DIRECTIVE extension GL_EXT_control_flow_attributes : require
DIRECTIVE extension GL_EXT_shader_16bit_storage : require
DIRECTIVE extension GL_EXT_shader_8bit_storage : require
DIRECTIVE extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#ifdef MATRIX_UNITS
DIRECTIVE extension GL_KHR_cooperative_matrix : require
DIRECTIVE extension GL_KHR_memory_scope_semantics : require
DIRECTIVE extension GL_KHR_shader_subgroup_basic : require
#if IS_BFLOAT(T)
DIRECTIVE extension GL_EXT_bfloat16 : require
#else
DIRECTIVE extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#endif
/* clang-format on */
#define INT64               int64_t
#define F32(v)              float(v)
#define I32(v)              int(v)
#define U32(v)              uint(v)
#define I64(v)              int64_t(v)
#define U16(v)              uint16_t(v)
#define U8(v)               uint8_t(v)
#define WIDE(i)             (i)
#define BITS_FROM_FLOAT(v)  floatBitsToUint(v)
#define FLOAT_FROM_BITS(u)  uintBitsToFloat(u)
#define MULTIPLY_HIGH(a, b) multiply_high(a, b)
#define EXACT               precise
#define GLOBAL_ID(d)        gl_GlobalInvocationID[d]
#define GLOBAL_SIZE(d)      (gl_NumWorkGroups[d] * gl_WorkGroupSize[d])
#define LOCAL_ID(d)         gl_LocalInvocationID[d]
#define GROUP_ID(d)         gl_WorkGroupID[d]
#define GROUPS(d)           gl_NumWorkGroups[d]
#define BARRIER             barrier()
#define UNROLL              [[unroll]]
#define IN_ORDER
#define WHOLE_VECTORS(i, BODY)
#define AT(x, i)           x[x##_offset + (i)]
#define LANE(x, i)         x[(i) / 4u][(i) % 4u]
#define float4             vec4
#define LOAD_f16(x, i)     f16_value(uint(GET(x, i)))
#define STORE_f16(y, i, v) AT(y, i) = uint16_t(f16_bits(v))
#define STORAGE_f32        float
#define STORAGE_f16        uint16_t
#define STORAGE_bf16       uint16_t
#define STORAGE_i32        int
#define STORAGE_i64        int64_t
#define STORAGE_u8         uint8_t
#define STORAGE_bool       uint8_t
#define STORAGE_b8         uint8_t
#define STORAGE_b16        uint16_t
#define STORAGE_b32        uint
#define STORAGE_b64        int64_t
#define ACCESS_READ        readonly
#define ACCESS_WRITE
#define ACCESS_UPDATE
#define CONSTANT_DECLARATION(id, name, value) layout(constant_id = id) const uint name = value;
#define STORED(number, access, T, x)                                               \
    layout(std430, set = 0, binding = number) ACCESS_##access buffer x##_binding { \
        PASTE(STORAGE_, T) x[];                                                    \
    };
#ifdef STRATA_WORDS
/* Elements of 8 bits are read from words, and written by atomics, which change only their own bits of a word that other
 * work-items may write too. Buffer x has a function byte_x if it is read, and put_x if it is written. */
#undef LOAD_u8
#undef LOAD_bool
#undef LOAD_b8
#undef STORE_u8
#undef STORE_bool
#undef STORE_b8
#define LOAD_u8(x, i)       byte_##x(x##_offset + (i))
#define LOAD_bool(x, i)     (byte_##x(x##_offset + (i)) != 0u ? 1u : 0u)
#define LOAD_b8(x, i)       byte_##x(x##_offset + (i))
#define STORE_u8(y, i, v)   put_##y(y##_offset + (i), U32(v))
#define STORE_bool(y, i, v) put_##y(y##_offset + (i), (v) != 0u ? 1u : 0u)
#define STORE_b8(y, i, v)   put_##y(y##_offset + (i), U32(v))
#define GET(x, i)           AT(x, i)
#define PUT(y, i, v)        AT(y, i) = (v)
#define BYTES_READ(number, x)                      \
    STORED(number, READ, b32, x)                   \
    uint byte_##x(uint i) {                        \
        return x[i / 4u] >> 8u * (i % 4u) & 0xffu; \
    }
#define BYTES_WRITE(number, x)                     \
    STORED(number, WRITE, b32, x)                  \
    void put_##x(uint i, uint v) {                 \
        const uint shift = 8u * (i % 4u);          \
        atomicAnd(x[i / 4u], ~(0xffu << shift));   \
        atomicOr(x[i / 4u], (v & 0xffu) << shift); \
    }
#define WORDS_u8(number, access, x)              BYTES_##access(number, x)
#define WORDS_bool(number, access, x)            BYTES_##access(number, x)
#define WORDS_b8(number, access, x)              BYTES_##access(number, x)
#define WORDS_f32(number, access, x)             STORED(number, access, f32, x)
#define WORDS_f16(number, access, x)             STORED(number, access, f16, x)
#define WORDS_bf16(number, access, x)            STORED(number, access, bf16, x)
#define WORDS_i32(number, access, x)             STORED(number, access, i32, x)
#define WORDS_i64(number, access, x)             STORED(number, access, i64, x)
#define WORDS_b16(number, access, x)             STORED(number, access, b16, x)
#define WORDS_b32(number, access, x)             STORED(number, access, b32, x)
#define WORDS_b64(number, access, x)             STORED(number, access, b64, x)
#define BUFFER_DECLARATION(number, access, T, x) PASTE(WORDS_, T)(number, access, x)
#elif defined(STRATA_FETCH)
/* A buffer's access decides how it is bound, as strata_shader_binding_of (shaders.h) reports to the backend. Buffer x
 * has a function fetch_x if it may be read, and put_x if it may be written. */
#define GET(x, i)    fetch_##x(x##_offset + (i))
#define PUT(y, i, v) put_##y(y##_offset + (i), v)
#define FETCHED_AS(number, sampler, value, x)                     \
    layout(set = 0, binding = number) uniform sampler x##_texels; \
    value fetch_##x(uint i) {                                     \
        return texelFetch(x##_texels, int(i)).r;                  \
    }
#define FETCHED_f32(number, x)  FETCHED_AS(number, samplerBuffer, float, x)
#define FETCHED_f16(number, x)  FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_bf16(number, x) FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_i32(number, x)  FETCHED_AS(number, isamplerBuffer, int, x)
#define FETCHED_i64(number, x)  STORED(number, READ, i64, x)
#define FETCHED_u8(number, x)   FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_bool(number, x) FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_b8(number, x)   FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_b16(number, x)  FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_b32(number, x)  FETCHED_AS(number, usamplerBuffer, uint, x)
#define FETCHED_b64(number, x)  STORED(number, READ, b64, x)
#define PUT_AS(value, x)            \
    void put_##x(uint i, value v) { \
        x[i] = v;                   \
    }
#define PUT_f32(x) PUT_AS(float, x)
#define PUT_f16(x)
#define PUT_bf16(x)
#define PUT_i32(x) PUT_AS(int, x)
#define PUT_i64(x)
#define PUT_u8(x)
#define PUT_bool(x)
#define PUT_b8(x)
#define PUT_b16(x)
#define PUT_b32(x)
#define PUT_b64(x)
#define UPDATED_AS(number, format, image, value, texel, x)              \
    layout(set = 0, binding = number, format) uniform image x##_texels; \
    value fetch_##x(uint i) {                                           \
        return imageLoad(x##_texels, int(i)).r;                         \
    }                                                                   \
    void put_##x(uint i, value v) {                                     \
        imageStore(x##_texels, int(i), texel(v));                       \
    }
#define UPDATED_f32(number, x)                   UPDATED_AS(number, r32f, imageBuffer, float, vec4, x)
#define UPDATED_i32(number, x)                   UPDATED_AS(number, r32i, iimageBuffer, int, ivec4, x)
#define DECLARATION_READ(number, T, x)           PASTE(FETCHED_, T)(number, x)
#define DECLARATION_WRITE(number, T, x)          STORED(number, WRITE, T, x) PASTE(PUT_, T)(x)
#define DECLARATION_UPDATE(number, T, x)         PASTE(UPDATED_, T)(number, x)
#define BUFFER_DECLARATION(number, access, T, x) DECLARATION_##access(number, T, x)
#else
#define GET(x, i)                                AT(x, i)
#define PUT(y, i, v)                             AT(y, i) = (v)
#define BUFFER_DECLARATION(number, access, T, x) STORED(number, access, T, x)
#endif
#define OFFSET_DECLARATION(binding, access, T, x) uint x##_offset;
#define WORD_DECLARATION(type, name)              type name;
#define LOCAL_DECLARATION(type, name, count)      shared type name[count];
/* clang-format off */
#define LOCAL_ARRAYS
CONSTANTS(CONSTANT_DECLARATION)
BUFFERS(BUFFER_DECLARATION)
layout(push_constant) uniform launch_words { BUFFERS(OFFSET_DECLARATION) WORDS(WORD_DECLARATION) };
/* clang-format on */
#ifdef LOCALS
LOCALS(LOCAL_DECLARATION)
#endif
#define KERNEL                      \
    layout(local_size_x_id = 0) in; \
    void main()
#define KERNEL_2D                                        \
    layout(local_size_x_id = 0, local_size_y_id = 1) in; \
    void main()
#include "glsl_math.h"

#elif defined(STRATA_META)
/* embed.c copies the text between STRATA_META_BEGIN and STRATA_META_END into the generated table and drops all other
 * text. */
#define META_CONSTANT(id, name, value)         {#name, value},
#define META_BUFFER(binding, access, T, x)     {#x, TEXT(T), PASTE(BYTES_, T), STRATA_SHADER_##access},
#define META_OFFSET(binding, access, T, x)     {TEXT(PASTE(x, _offset)), STRATA_SHADER_UINT},
#define META_WORD(type, name)                  {#name, PASTE(META_TYPE_, type)},
#define META_ONE_CONSTANT(id, name, value)     +1
#define META_ONE_BUFFER(binding, access, T, x) +1
#define META_ONE_WORD(type, name)              +1
#define META_NEEDS(binding, access, T, x)      | PASTE(NEEDS_, T)
#define META_TYPE_uint                         STRATA_SHADER_UINT
#define META_TYPE_int                          STRATA_SHADER_INT
#define META_TYPE_float                        STRATA_SHADER_FLOAT
#define BYTES_f32                              4
#define BYTES_f16                              2
#define BYTES_bf16                             2
#define BYTES_i32                              4
#define BYTES_i64                              8
#define BYTES_u8                               1
#define BYTES_bool                             1
#define BYTES_b8                               1
#define BYTES_b16                              2
#define BYTES_b32                              4
#define BYTES_b64                              8
#define NEEDS_f32                              0
#define NEEDS_f16                              STRATA_SHADER_NEEDS_16BIT_STORAGE
#define NEEDS_bf16                             STRATA_SHADER_NEEDS_16BIT_STORAGE
#define NEEDS_i32                              0
#define NEEDS_i64                              STRATA_SHADER_NEEDS_INT64
#define NEEDS_u8                               STRATA_SHADER_NEEDS_8BIT_STORAGE
#define NEEDS_bool                             STRATA_SHADER_NEEDS_8BIT_STORAGE
#define NEEDS_b8                               STRATA_SHADER_NEEDS_8BIT_STORAGE
#define NEEDS_b16                              STRATA_SHADER_NEEDS_16BIT_STORAGE
#define NEEDS_b32                              0
#define NEEDS_b64                              STRATA_SHADER_NEEDS_INT64
#ifdef MATRIX_UNITS
#define META_UNITS | STRATA_SHADER_NEEDS_MATRIX_UNITS
#else
#define META_UNITS
#endif
/* clang-format off */
STRATA_META_BEGIN
.opencl_entry = TEXT(PASTE(strata_, STEM)),
.needs = 0 BUFFERS(META_NEEDS) META_UNITS,
.n_buffers = 0 BUFFERS(META_ONE_BUFFER),
.buffers = (const strata_shader_buffer[]){BUFFERS(META_BUFFER)},
.n_words = 0 BUFFERS(META_ONE_BUFFER) WORDS(META_ONE_WORD),
.words = (const strata_shader_word[]){BUFFERS(META_OFFSET) WORDS(META_WORD)},
.n_constants = 0 CONSTANTS(META_ONE_CONSTANT),
.constants = (const strata_shader_constant[]){CONSTANTS(META_CONSTANT)},
STRATA_META_END
/* clang-format on */
#endif
