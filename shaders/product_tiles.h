/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplies tiles in local memory, for kernels that compute a matrix product c = a b and differ only in the positions
 * of the elements of a and b: matmul_tiles, conv2d_tiles, conv2d_filter_grad_tiles.
 *
 * A work-group of LOCAL_X x LOCAL_Y work-items computes a tile of c, TILE_M rows by TILE_N columns. TILE_K steps of
 * both operands are in local memory, as vectors of 4, while the next TILE_K steps are loaded from global memory to
 * registers. A work-item computes WORK_M x WORK_N elements in blocks of 4 x 4, so that a vector of each operand is used
 * by 16 multiply-adds. M_OF(i) and N_OF(j) are the rows and columns of its elements. 32 neighbouring work-items compute
 * 8 x 4 blocks, so that together they read few different vectors. WORK_M and WORK_N are multiples of 4, LOCAL_X is 4 or
 * a multiple of 8, LOCAL_Y is a multiple of 4; LOCAL_X LOCAL_Y is a multiple of TILE_K, of TILE_M and of TILE_N.
 *
 * Fold order: each element has one accumulator, sum = fma(a, b, sum), which begins at 0; k ascends, and zeros fill up
 * the last TILE_K steps. No constant changes the bits.
 *
 * The kernel defines A_VALUE(m, k) and B_VALUE(k, n), the elements of the operands (zero beyond the edges), for m <
 * TILE_M, n < TILE_N and k counted from 0. It also defines A_ALONG_K and B_ALONG_K: true if neighbouring work-items
 * fetch elements that are neighbours in k, false if in m (in n). */
#define TILE_M (LOCAL_Y * WORK_M)
#define TILE_N (LOCAL_X * WORK_N)
#define ITEMS  (LOCAL_X * LOCAL_Y)
#define A_STEP \
    (TILE_M / 4u + 1u) /* vectors from one k to the next; the 1 is padding, for fewer bank conflicts of stores along k */
#define B_STEP  (TILE_N / 4u + 1u)
#define A_SHARE (TILE_M * TILE_K / ITEMS) /* elements that a work-item fetches */
#define B_SHARE (TILE_N * TILE_K / ITEMS)
/* ITEM is the number of this work-item among ITEMS; ITEM_X and ITEM_Y are its column and row among LOCAL_X x
 * LOCAL_Y. */
#define ITEM    (LOCAL_ID(1) * LOCAL_X + LOCAL_ID(0))
#define ACROSS  (LOCAL_X < 8u ? LOCAL_X : 8u)
#define ITEM_X  (item % ACROSS + item / (4u * ACROSS) % (LOCAL_X / ACROSS) * ACROSS)
#define ITEM_Y  (item / ACROSS % 4u + item / (4u * LOCAL_X) * 4u)
#define M_OF(i) ((i) / 4u * (LOCAL_Y * 4u) + y * 4u + (i) % 4u)
#define N_OF(j) ((j) / 4u * (LOCAL_X * 4u) + x * 4u + (j) % 4u)

#define TILE_CONSTANTS(X) X(0, LOCAL_X, 16) X(1, LOCAL_Y, 16) X(2, WORK_M, 4) X(3, WORK_N, 4) X(4, TILE_K, 16)
#define TILE_LOCALS(X)    X(float4, a_tile, TILE_K *A_STEP) X(float4, b_tile, TILE_K *B_STEP)

/* The position in its tile of the i-th element that this work-item fetches. */
#define A_K(i) (A_ALONG_K ? item % TILE_K : item / TILE_M + (i) * (ITEMS / TILE_M))
#define A_M(i) (A_ALONG_K ? item / TILE_K + (i) * (ITEMS / TILE_K) : item % TILE_M)
#define B_K(i) (B_ALONG_K ? item % TILE_K : item / TILE_N + (i) * (ITEMS / TILE_N))
#define B_N(i) (B_ALONG_K ? item / TILE_K + (i) * (ITEMS / TILE_K) : item % TILE_N)

#define FETCH_TILES(first)                                                                    \
    UNROLL for (uint i = 0u; i < A_SHARE; i++) a_next[i] = A_VALUE(A_M(i), (first) + A_K(i)); \
    UNROLL for (uint i = 0u; i < B_SHARE; i++) b_next[i] = B_VALUE((first) + B_K(i), B_N(i));
#define STORE_TILES                                                                                       \
    UNROLL for (uint i = 0u; i < A_SHARE; i++) LANE(a_tile, A_K(i) * (A_STEP * 4u) + A_M(i)) = a_next[i]; \
    UNROLL for (uint i = 0u; i < B_SHARE; i++) LANE(b_tile, B_K(i) * (B_STEP * 4u) + B_N(i)) = b_next[i];
#define MULTIPLY_TILES                                                                                                       \
    UNROLL for (uint k = 0u; k < TILE_K; k++) {                                                                              \
        float a_column[WORK_M], b_row[WORK_N];                                                                               \
        UNROLL for (uint i = 0u; i < WORK_M / 4u; i++) {                                                                     \
            const float4 v = a_tile[k * A_STEP + i * LOCAL_Y + y];                                                           \
            a_column[4u * i] = v.x;                                                                                          \
            a_column[4u * i + 1u] = v.y;                                                                                     \
            a_column[4u * i + 2u] = v.z;                                                                                     \
            a_column[4u * i + 3u] = v.w;                                                                                     \
        }                                                                                                                    \
        UNROLL for (uint j = 0u; j < WORK_N / 4u; j++) {                                                                     \
            const float4 v = b_tile[k * B_STEP + j * LOCAL_X + x];                                                           \
            b_row[4u * j] = v.x;                                                                                             \
            b_row[4u * j + 1u] = v.y;                                                                                        \
            b_row[4u * j + 2u] = v.z;                                                                                        \
            b_row[4u * j + 3u] = v.w;                                                                                        \
        }                                                                                                                    \
        UNROLL for (uint i = 0u; i < WORK_M; i++) {                                                                          \
            UNROLL for (uint j = 0u; j < WORK_N; j++) sum[i * WORK_N + j] = FMA(a_column[i], b_row[j], sum[i * WORK_N + j]); \
        }                                                                                                                    \
    }

/* Computes sum[WORK_M * WORK_N] over `steps` steps. before(first) is executed before the steps from `first` on are
 * fetched. At the beginning all work-items must be allowed to write the tiles in local memory; at the end they are
 * again. */
#define PRODUCT_OF_TILES(steps, before)                               \
    float sum[WORK_M * WORK_N], a_next[A_SHARE], b_next[B_SHARE];     \
    UNROLL for (uint i = 0u; i < WORK_M * WORK_N; i++) sum[i] = 0.0f; \
    if ((steps) != 0u) {                                              \
        const uint first = 0u;                                        \
        before(first) FETCH_TILES(first)                              \
    }                                                                 \
    for (uint done = 0u; done < (steps); done += TILE_K) {            \
        const uint first = done + TILE_K;                             \
        STORE_TILES                                                   \
        BARRIER;                                                      \
        if (first < (steps)) {                                        \
            before(first) FETCH_TILES(first)                          \
        }                                                             \
        MULTIPLY_TILES                                                \
        BARRIER;                                                      \
    }
