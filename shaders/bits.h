/* SPDX-License-Identifier: Apache-2.0
 *
 * BITS makes a constant of any element type from two parameter words. COPY_RUN copies neighbouring elements. */
#define BITS(T, low, high)  PASTE(BITS_, T)(low, high)
#define BITS_b8(low, high)  (low)
#define BITS_b16(low, high) (low)
#define BITS_b32(low, high) (low)
#define BITS_b64(low, high) ((I64(high) << 32) | I64(low))
#define NO_BITS(T)          BITS(T, 0u, 0u)

/* y[to + k] = x[from + k] for k < n, 8 at a time, for groups of one work-item. */
#define COPY_RUN(T, y, to, x, from, n)                                                           \
    {                                                                                            \
        uint done = 0u;                                                                          \
        for (; done + 8u <= (n); done += 8u) {                                                   \
            VALUE(T) part[8];                                                                    \
            UNROLL for (uint k = 0u; k < 8u; k++) part[k] = LOAD(T, x, WIDE((from) + done) + k); \
            UNROLL for (uint k = 0u; k < 8u; k++) STORE(T, y, WIDE((to) + done) + k, part[k]);   \
        }                                                                                        \
        for (; done < (n); done++) STORE(T, y, (to) + done, LOAD(T, x, (from) + done));          \
    }
