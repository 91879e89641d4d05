/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplies tiles by matrix units (VK_KHR_cooperative_matrix), for kernels that compute a matrix product c = a b and
 * differ only in the positions of the elements of a and b: matmul, conv2d and conv2d_filter_grad of this folder. One
 * instruction of a subgroup adds the product of a UNIT_M x UNIT_K and a UNIT_K x UNIT_N matrix of f16 or bf16 to one of
 * f32.
 *
 * A work-group computes a tile of c, TILE_M rows by TILE_N columns. It has GROUPS_M x GROUPS_N subgroups, and each owns
 * UNITS_M x UNITS_N such matrices of sums. TILE_K steps of both operands are in local memory, in pairs of 16-bit
 * values, while the next TILE_K steps are loaded to registers. A row of pairs is along k or across it, like the rows of
 * the operand in memory. LOCAL_X is GROUPS_M GROUPS_N times the size of a subgroup. UNIT_M, UNIT_N and UNIT_K are
 * multiples of 8, LOCAL_X divides TILE_M TILE_K / 2 and TILE_N TILE_K / 2, and it is a multiple of TILE_K / 2, TILE_M /
 * 2 and TILE_N / 2. So all pairs that a work-item fetches of an operand are in one column of pairs.
 *
 * T f32 (only if the user allows other last bits) splits each operand into two matrices of f16. Powers of two p and q
 * bring the largest finite values of a's rows and b's columns that the work-group has seen so far into [2^14, 2^15).
 * Then p a = ah + al and q b = bh + bl, where ah and bh are p a and q b in f16, and al and bl are the rests in f16. The
 * result is the sum of ah bh + ah bl + al bh, divided by p q. When p or q becomes smaller, the sums so far are
 * multiplied by the same factor. Infinities become NaN. Errors: ../README.md.
 *
 * Fold order: a part's steps ascending, by UNIT_K; within a unit it is the device's own. Tiles do not change it.
 *
 * The kernel defines its lists, with UNIT_CONSTANTS, CONSTANTS from number 8 on, and UNIT_LOCALS, and includes this header,
 * which includes the dialect. Then it defines
 *     A_ALONG_K, B_ALONG_K  whether the operand's rows in memory run along k
 *     FETCH_TILES(k)        sets a_next[i] for i < A_SHARE to the pair in row A_LINE(i) and column A_COLUMN of a's tile whose
 *                           first step is k, with zeros beyond the edges; and in the same way b_next[i] for i < B_SHARE
 *     RESULT(m, n, v)       stores the sum v of the tile's row m and column n, if c has them */
#define MATRIX_UNITS
#define UNIT_CONSTANTS(X) \
    X(0, LOCAL_X, 128)    \
    X(1, UNIT_M, 16) X(2, UNIT_N, 16) X(3, UNIT_K, 16) X(4, GROUPS_M, 2) X(5, GROUPS_N, 2) X(6, UNITS_M, 1) X(7, UNITS_N, 1)
/* A tile in local memory is a matrix of pairs. Each row is padded by PAD pairs, so that the rows of a unit begin in
 * different banks. */
#define TILE_M       (GROUPS_M * UNITS_M * UNIT_M)
#define TILE_N       (GROUPS_N * UNITS_N * UNIT_N)
#define TILE_K       (2u * UNIT_K)
#define ITEMS        LOCAL_X
#define PAD          4u
#define ROOM(across) ((across)*TILE_K / 2u + PAD * ((across) + TILE_K))
#define UNIT_LOCALS(X)                   \
    X(uint, a_tile, SPLIT *ROOM(TILE_M)) \
    X(uint, b_tile, SPLIT *ROOM(TILE_N)) X(float, results, GROUPS_M *GROUPS_N *UNIT_M *UNIT_N) X(uint, largest, 2)
/* Number of 16-bit matrices whose sum is an operand. */
#define SPLIT         (1u + IS_SPLIT(T))
#define IS_SPLIT(T)   PASTE(IS_SPLIT_, T)
#define IS_SPLIT_f16  0
#define IS_SPLIT_bf16 0
#define IS_SPLIT_f32  1
#include "../dialect.h"
#include "../epilogue.h"
#include "../numbers.h"

#define ELEMENT      PASTE(ELEMENT_, T)
#define ELEMENT_f16  float16_t
#define ELEMENT_f32  float16_t
#define ELEMENT_bf16 bfloat16_t

/* The two values of a pair that is in registers, after its load and before its store to local memory. */
#if IS_SPLIT(T)
#define PAIR                   vec2
#define PAIR_OF(first, second) vec2(first, second)
#define RAW(x, i)              GET(x, i)
#define NO_VALUE               0.0f
#else
#define PAIR                   uint
#define PAIR_OF(first, second) ((first) | (second) << 16)
#define RAW(x, i)              U32(GET(x, i))
#define NO_VALUE               0u
#endif

/* ROW: pairs in a row of a tile. STRIDE: pairs from one row to the next. SHARE: pairs that a work-item fetches. COLUMN,
 * LINE(i) and PLACE(i): the column, row and position in the tile of the i-th of these. */
#define A_ROW      (A_ALONG_K ? TILE_K / 2u : TILE_M / 2u)
#define B_ROW      (B_ALONG_K ? TILE_K / 2u : TILE_N / 2u)
#define A_STRIDE   (A_ROW + PAD)
#define B_STRIDE   (B_ROW + PAD)
#define A_SHARE    (TILE_M * TILE_K / 2u / LOCAL_X)
#define B_SHARE    (TILE_N * TILE_K / 2u / LOCAL_X)
#define A_COLUMN   (item % A_ROW)
#define B_COLUMN   (item % B_ROW)
#define A_LINE(i)  (item / A_ROW + (i) * (LOCAL_X / A_ROW))
#define B_LINE(i)  (item / B_ROW + (i) * (LOCAL_X / B_ROW))
#define A_PLACE(i) (A_LINE(i) * A_STRIDE + A_COLUMN)
#define B_PLACE(i) (B_LINE(i) * B_STRIDE + B_COLUMN)

/* Declares the number of this work-item, and the first unit of its subgroup in a tile. */
#define FIND_ITEM                                                                                     \
    const uint item = LOCAL_ID(0), subgroup = gl_SubgroupID, lanes = LOCAL_X / (GROUPS_M * GROUPS_N); \
    const uint unit_m = subgroup / GROUPS_N * UNITS_M, unit_n = subgroup % GROUPS_N * UNITS_N;

/* Sets x_next for an operand x (X is A or B) that is a matrix in a buffer, whose rows begin at x_start + row x_stride.
 * The first step of the tile is k, and its first row of c (for b: column of c) is first_across. Elements from k_end or
 * across_end on are zeros. */
#define FETCH_MATRIX(x, buffer, X, first_across, across_end, k, k_end)                                            \
    {                                                                                                             \
        const uint line_end = X##_ALONG_K ? (across_end) : (k_end);                                               \
        const uint column_end = X##_ALONG_K ? (k_end) : (across_end);                                             \
        const uint column = (X##_ALONG_K ? (k) : (first_across)) + 2u * X##_COLUMN;                               \
        UNROLL for (uint i = 0u; i < X##_SHARE; i++) {                                                            \
            const uint line = (X##_ALONG_K ? (first_across) : (k)) + X##_LINE(i);                                 \
            const uint at = x##_start + line * x##_stride + column;                                               \
            x##_next[i] = PAIR_OF(line < line_end && column < column_end ? RAW(buffer, at) : NO_VALUE,            \
                                  line < line_end && column + 1u < column_end ? RAW(buffer, at + 1u) : NO_VALUE); \
        }                                                                                                         \
    }

#if IS_SPLIT(T)
/* Returns the larger of `most` and the bits of the pair's largest finite absolute value. */
uint larger(uint most, vec2 pair) {
    const uint x = BITS_FROM_FLOAT(pair.x) & 0x7fffffffu, y = BITS_FROM_FLOAT(pair.y) & 0x7fffffffu;
    const uint more = x < 0x7f800000u && x > most ? x : most;
    return y < 0x7f800000u && y > more ? y : more;
}
/* The exponent of the power of two that brings a number of these bits into [2^14, 2^15); 100 at most. */
int scale_of(uint bits) {
    const int exponent = 14 - (I32(bits >> 23) - 127);
    return exponent < 100 ? exponent : 100;
}
/* 2^exponent, for exponents of f32's normal numbers; below them 2^-126. */
float power_of_two(int exponent) {
    return FLOAT_FROM_BITS(U32((exponent < -126 ? -126 : exponent) + 127) << 23);
}
#define STORE_SPLIT(tile, room, place, pair, power)                          \
    {                                                                        \
        const vec2 value = (pair) * (power);                                 \
        const uint high = packHalf2x16(value);                               \
        tile[place] = high;                                                  \
        tile[(room) + (place)] = packHalf2x16(value - unpackHalf2x16(high)); \
    }
#define BEGIN_TILES                    \
    int a_scale = 100, b_scale = 100;  \
    if (item < 2u) largest[item] = 0u; \
    BARRIER;
/* A barrier and then STORE_TILES must follow. */
#define FIND_LARGEST                                                                         \
    {                                                                                        \
        uint a_largest = 0u, b_largest = 0u;                                                 \
        UNROLL for (uint i = 0u; i < A_SHARE; i++) a_largest = larger(a_largest, a_next[i]); \
        UNROLL for (uint i = 0u; i < B_SHARE; i++) b_largest = larger(b_largest, b_next[i]); \
        atomicMax(largest[0], a_largest);                                                    \
        atomicMax(largest[1], b_largest);                                                    \
    }
#define STORE_TILES(is_first)                                                                                            \
    {                                                                                                                    \
        const int scale_before = a_scale + b_scale;                                                                      \
        a_scale = scale_of(largest[0]);                                                                                  \
        b_scale = scale_of(largest[1]);                                                                                  \
        if (!(is_first) && a_scale + b_scale != scale_before) {                                                          \
            const float ratio = power_of_two(a_scale + b_scale - scale_before);                                          \
            UNROLL for (uint i = 0u; i < UNITS_M * UNITS_N; i++) sum[i] = sum[i] * ratio;                                \
        }                                                                                                                \
        const float a_power = power_of_two(a_scale), b_power = power_of_two(b_scale);                                    \
        UNROLL for (uint i = 0u; i < A_SHARE; i++) STORE_SPLIT(a_tile, ROOM(TILE_M), A_PLACE(i), a_next[i], a_power)     \
            UNROLL for (uint i = 0u; i < B_SHARE; i++) STORE_SPLIT(b_tile, ROOM(TILE_N), B_PLACE(i), b_next[i], b_power) \
    }
#define END_TILES                           \
    const int scale = -(a_scale + b_scale); \
    const float unscale_1 = power_of_two(scale / 2), unscale_2 = power_of_two(scale - scale / 2);
#define UNSCALED(v) ((v)*unscale_1 * unscale_2)
#else
#define BEGIN_TILES
#define FIND_LARGEST
#define STORE_TILES(is_first)                                                  \
    UNROLL for (uint i = 0u; i < A_SHARE; i++) a_tile[A_PLACE(i)] = a_next[i]; \
    UNROLL for (uint i = 0u; i < B_SHARE; i++) b_tile[B_PLACE(i)] = b_next[i];
#define END_TILES
#define UNSCALED(v) (v)
#endif

/* The rests bl of b (the second half of its units) are multiplied only by the main part ah of a. */
#define MULTIPLY_TILES                                                                                                         \
    UNROLL for (uint k = 0u; k < TILE_K; k += UNIT_K) {                                                                        \
        coopmat<ELEMENT, gl_ScopeSubgroup, UNIT_M, UNIT_K, gl_MatrixUseA> a_unit[SPLIT * UNITS_M];                             \
        UNROLL for (uint i = 0u; i < SPLIT * UNITS_M; i++) {                                                                   \
            const uint m = (unit_m + i % UNITS_M) * UNIT_M, room = i / UNITS_M * ROOM(TILE_M);                                 \
            if (A_ALONG_K)                                                                                                     \
                coopMatLoad(a_unit[i], a_tile, room + m * A_STRIDE + k / 2u, A_STRIDE, gl_CooperativeMatrixLayoutRowMajor);    \
            else                                                                                                               \
                coopMatLoad(a_unit[i], a_tile, room + k * A_STRIDE + m / 2u, A_STRIDE, gl_CooperativeMatrixLayoutColumnMajor); \
        }                                                                                                                      \
        UNROLL for (uint j = 0u; j < SPLIT * UNITS_N; j++) {                                                                   \
            const uint n = (unit_n + j % UNITS_N) * UNIT_N, room = j / UNITS_N * ROOM(TILE_N);                                 \
            coopmat<ELEMENT, gl_ScopeSubgroup, UNIT_K, UNIT_N, gl_MatrixUseB> b_unit;                                          \
            if (B_ALONG_K)                                                                                                     \
                coopMatLoad(b_unit, b_tile, room + n * B_STRIDE + k / 2u, B_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);    \
            else                                                                                                               \
                coopMatLoad(b_unit, b_tile, room + k * B_STRIDE + n / 2u, B_STRIDE, gl_CooperativeMatrixLayoutRowMajor);       \
            UNROLL for (uint i = 0u; i < (j < UNITS_N ? SPLIT * UNITS_M : UNITS_M); i++) {                                     \
                const uint at = i % UNITS_M * UNITS_N + j % UNITS_N;                                                           \
                sum[at] = coopMatMulAdd(a_unit[i], b_unit, sum[at]);                                                           \
            }                                                                                                                  \
        }                                                                                                                      \
    }

/* Computes the sums of the steps begin .. end - 1. begin and end are the same for all work-items. */
#define PRODUCT_OF_TILES(begin, end)                                                                  \
    coopmat<float, gl_ScopeSubgroup, UNIT_M, UNIT_N, gl_MatrixUseAccumulator> sum[UNITS_M * UNITS_N]; \
    PAIR a_next[A_SHARE], b_next[B_SHARE];                                                            \
    UNROLL for (uint i = 0u; i < UNITS_M * UNITS_N; i++) sum[i] =                                     \
        coopmat<float, gl_ScopeSubgroup, UNIT_M, UNIT_N, gl_MatrixUseAccumulator>(0.0f);              \
    BEGIN_TILES                                                                                       \
    for (uint k_next = (begin);; k_next += TILE_K) {                                                  \
        if (k_next < (end)) {                                                                         \
            FETCH_TILES(k_next)                                                                       \
        }                                                                                             \
        if (k_next > (begin)) {                                                                       \
            MULTIPLY_TILES                                                                            \
        }                                                                                             \
        if (k_next >= (end)) break;                                                                   \
        FIND_LARGEST                                                                                  \
        BARRIER;                                                                                      \
        STORE_TILES(k_next == (begin))                                                                \
        BARRIER;                                                                                      \
    }                                                                                                 \
    END_TILES

/* Passes each sum to RESULT. Each subgroup passes one unit after the other through local memory. */
#define STORE_RESULTS                                                                    \
    UNROLL for (uint i = 0u; i < UNITS_M * UNITS_N; i++) {                               \
        const uint slot = subgroup * UNIT_M * UNIT_N;                                    \
        coopMatStore(sum[i], results, slot, UNIT_N, gl_CooperativeMatrixLayoutRowMajor); \
        subgroupBarrier();                                                               \
        for (uint e = gl_SubgroupInvocationID; e < UNIT_M * UNIT_N; e += lanes) {        \
            const uint row = (unit_m + i / UNITS_N) * UNIT_M + e / UNIT_N;               \
            const uint column = (unit_n + i % UNITS_N) * UNIT_N + e % UNIT_N;            \
            float v = UNSCALED(results[slot + e]);                                       \
            RESULT(row, column, v)                                                       \
        }                                                                                \
        subgroupBarrier();                                                               \
    }
