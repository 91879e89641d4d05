/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the channels of rows: 16 channels at a time if a work-group is one work-item (CPUs) and elements are f32,
 * else one by one. The kernel defines ONE(c), which computes channel c of the row, and, if IS_WIDE(T), SIXTEEN(c),
 * which computes channels c .. c + 15. */
#define IS_WIDE(T)       PASTE(IS_WIDE_, T)
#define IS_WIDE_f32      1
#define IS_WIDE_f16      0
#define IS_WIDE_bf16     0
#define SPLAT(V, v)      PASTE(SPLAT_, V)(v)
#define SPLAT_float(v)   (v)
#define SPLAT_float16(v) ((float16)(v))
/* Element i if V is float, elements i .. i + 15 if V is float16. */
#define LOADC(V, x, i)      PASTE(LOADC_, V)(x, i)
#define LOADC_float(x, i)   LOAD(T, x, i)
#define LOADC_float16(x, i) LOADV(float16, x, i)

#if defined(STRATA_OPENCL) && IS_WIDE(T)
#define CHANNELS_AT_ONCE(wide) (LOCAL_X == 1u && (wide) ? 16u : 1u)
#define CHANNELS_OF_ITEM(c, n, wide)                                 \
    if (CHANNELS_AT_ONCE(wide) == 16u && c + 16u <= n) {             \
        SIXTEEN(c)                                                   \
    } else {                                                         \
        const uint c##_end = MIN_U32(c + CHANNELS_AT_ONCE(wide), n); \
        for (; c < c##_end; c++) {                                   \
            ONE(c)                                                   \
        }                                                            \
    }
#else
#define CHANNELS_AT_ONCE(wide)       1u
#define CHANNELS_OF_ITEM(c, n, wide) ONE(c)
#endif
/* Executes its body once for every item below n, for any number of work-groups. A work-group of one work-item processes
 * a contiguous range of items. */
#define FOR_EACH_ITEM(item, n)                                                                                      \
    const uint item##_n = (n), item##_run = LOCAL_X == 1u ? (item##_n + GLOBAL_SIZE(0) - 1u) / GLOBAL_SIZE(0) : 1u; \
    const uint item##_end = LOCAL_X == 1u ? MIN_U32((GLOBAL_ID(0) + 1u) * item##_run, item##_n) : item##_n;         \
    for (uint item = GLOBAL_ID(0) * item##_run; item < item##_end; item += LOCAL_X == 1u ? 1u : GLOBAL_SIZE(0))
/* Executes its last argument, a body in braces, for each of n_rows rows and each item of the row's n channels. An item
 * is 16 channels or one; c is its first channel. */
#define FOR_EACH_CHANNEL(row, c, n_rows, n, wide, ...)                                   \
    const uint c##_items = ((n) + CHANNELS_AT_ONCE(wide) - 1u) / CHANNELS_AT_ONCE(wide); \
    FOR_EACH_ITEM(c##_item, (n_rows)*c##_items) {                                        \
        const uint row = c##_item / c##_items;                                           \
        uint c = (c##_item - row * c##_items) * CHANNELS_AT_ONCE(wide);                  \
        __VA_ARGS__                                                                      \
    }
