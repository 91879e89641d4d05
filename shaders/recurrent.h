/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by recurrent.kernel and recurrent_grad.kernel. A launch is one time step of all examples. A work-item computes
 * EXAMPLES examples and one unit. In a work-group of one work-item (CPUs) it computes 16 units, as many as a vector has
 * lanes. So V below is float or float16. */
#define EXAMPLES 4u
#define PLANES   (CELL == 0u ? 6u : 5u)
#define GATES    (CELL == 0u ? 4u : 3u)

/* CELL 0 is an LSTM. CELL 1 is a GRU that applies its reset gate after the recurrent product. A GRU that applies it
 * before the product needs two products, one after the other, and thus two launches per time step: CELL 2, then CELL
 * 3. */
#define FIRST_GATE (CELL == 3u ? 2u : 0u)
#define END_GATE   (CELL == 2u ? 2u : GATES)

/* With DROPS 1 each row of `mask` contains, from element `factors` on, the numbers by which h of the previous step is
 * multiplied in products. */
#define FACTOR(V, e, u) LOADV(V, mask, (e)*mask_row + factors + (u))

#define ONE_MINUS(V, v) (SPLAT(V, 1.0f) - (v))

/* `code` is a strata_epilogue_activation. TIMES_SLOPE multiplies v by the function's derivative at the point where its
 * value is y. */
#define ACTIVATE(V, code, v)                                         \
    if (code == 1u) v = (v) < SPLAT(V, 0.0f) ? SPLAT(V, 0.0f) : (v); \
    if (code == 2u) v = TANH(v);                                     \
    if (code == 3u) v = SPLAT(V, 1.0f) / (SPLAT(V, 1.0f) + EXP(-(v)));
#define TIMES_SLOPE(V, code, v, y)                                   \
    if (code == 1u) v = (y) > SPLAT(V, 0.0f) ? (v) : SPLAT(V, 0.0f); \
    if (code == 2u) v = (v)*ONE_MINUS(V, (y) * (y));                 \
    if (code == 3u) v = (v) * (y)*ONE_MINUS(V, y);

/* BODY(V, first example, unit) for all examples and units. */
#if defined(STRATA_OPENCL)
#define EACH_UNIT(BODY, first, u)                                          \
    const uint u##_end = LOCAL_X == 1u ? MIN_U32(u + 16u, units) : u + 1u; \
    if (u + 16u == u##_end) {                                              \
        BODY(float16, first, u)                                            \
    } else {                                                               \
        for (; u < u##_end; u++) {                                         \
            BODY(float, first, u)                                          \
        }                                                                  \
    }
#define UNITS_AT_ONCE (LOCAL_X == 1u ? 16u : 1u)
#else
#define EACH_UNIT(BODY, first, u) BODY(float, first, u)
#define UNITS_AT_ONCE             1u
#endif
#define FOR_EACH_CELL(BODY)                                                \
    const uint columns = (units + UNITS_AT_ONCE - 1u) / UNITS_AT_ONCE;     \
    FOR_EACH_ITEM(item, (examples + EXAMPLES - 1u) / EXAMPLES * columns) { \
        const uint block = item / columns, first = block * EXAMPLES;       \
        uint u = (item - block * columns) * UNITS_AT_ONCE;                 \
        EACH_UNIT(BODY, first, u)                                          \
    }
