/* SPDX-License-Identifier: Apache-2.0
 *
 * Index arithmetic for kernels that access their tensors by sizes and strides (broadcasting, transposition, slices).
 * The index space has at most 4 dimensions, the last one fastest: size_0 x size_1 x size_2 x size_3. Missing dimensions
 * have size 1 and come first. The constant RANK (1 to 4) is the number of dimensions that are in use, counted from the
 * last one, so that a flat tensor costs no division. Strides are in elements, not negative; 0 repeats an element. */
#define SIZE_WORDS(X) X(uint, size_0) X(uint, size_1) X(uint, size_2) X(uint, size_3)
#define STRIDE_WORDS(X, name) \
    X(uint, name##_stride_0) X(uint, name##_stride_1) X(uint, name##_stride_2) X(uint, name##_stride_3)

/* Loops over every element < n once. The outer loop processes runs of `run` elements, which start at element `start`
 * and differ only in the last coordinate. COORDINATES sets `run` and the coordinates c0..c3 of the run's first element;
 * element k of the run is start + k. In work-groups of several work-items a run is one element. In a work-group of one
 * work-item (CPUs) a run is a row or a part of it, so that coordinates are computed once per row and the inner loop
 * vectorizes.
 *   FOR_EACH_RUN(start, n) {
 *       COORDINATES(start)
 *       FOR_EACH_IN_RUN(k) { ... LOAD(T, a_in, STRIDED(a, k)) ... STORE(T, y_out, start + k, y); }
 *   }                                                                                                                      */
#define FOR_EACH_RUN(start, n)                                                            \
    const uint share = LOCAL_X == 1u ? ((n) + GLOBAL_SIZE(0) - 1u) / GLOBAL_SIZE(0) : 1u; \
    const uint end = LOCAL_X == 1u ? MIN_U32((GLOBAL_ID(0) + 1u) * share, (n)) : (n);     \
    uint run = 1u;                                                                        \
    for (uint start = GLOBAL_ID(0) * share; start < end; start += LOCAL_X == 1u ? run : GLOBAL_SIZE(0))
#define COORDINATES(start)                      \
    uint c0 = 0u, c1 = 0u, c2 = 0u, c3 = start; \
    if (RANK > 1u) {                            \
        c2 = c3 / size_3;                       \
        c3 = c3 - c2 * size_3;                  \
    }                                           \
    if (RANK > 2u) {                            \
        c1 = c2 / size_2;                       \
        c2 = c2 - c1 * size_2;                  \
    }                                           \
    if (RANK > 3u) {                            \
        c0 = c1 / size_1;                       \
        c1 = c1 - c0 * size_1;                  \
    }                                           \
    if (LOCAL_X == 1u) run = RANK > 1u ? MIN_U32(end - start, size_3 - c3) : end - start;
#define FOR_EACH_IN_RUN(k) for (uint k = 0u; k < run; k++)
#define STRIDED(name, k) \
    ((c0 * name##_stride_0 + c1 * name##_stride_1 + c2 * name##_stride_2 + c3 * name##_stride_3) + k * name##_stride_3)
