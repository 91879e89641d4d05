/* SPDX-License-Identifier: Apache-2.0
 *
 * Folds rows (sum, maximum) so that the bits do not depend on the device. The constant TREE selects the order. TREE
 * must depend only on the shape (README.md: 1 for contiguous rows longer than 32 elements):
 *   TREE 0   a work-item owns a row and folds it from the identity, elements ascending
 *   TREE 1   a work-group owns a row. 256 lanes, whatever the group's size: lane l folds elements l, l + 256, ... from the
 *            identity; then lane l takes lane l + 128 for l < 128, l + 64 for l < 64, ..., l + 1 for l = 0
 * A kernel that folds has LOCALS(X) = FOLD_LOCALS(X, type), 256 elements of local memory.
 *
 * If a fold is along columns of memory, then in both orders few work-items execute long loops, and a GPU waits for each
 * load. So there is a third order, in runs. A column is divided into at most 32 runs of 4 ceil(count / 128)
 * neighbouring elements (the last run may be shorter). Each run is folded from the identity, elements ascending; then
 * the results of the runs are folded from the identity, ascending. A work-group folds 8 neighbouring columns, which are
 * 32 bytes of floats, and a lane folds one run of one column. */
#define FOLD_LOCALS(X, type) X(type, lanes, 256)

#define FOR_EACH_ROW(row, n) \
    for (uint row = TREE != 0u ? GROUP_ID(0) : GLOBAL_ID(0); row < (n); row += TREE != 0u ? GROUPS(0) : GLOBAL_SIZE(0))
/* Every column of the row once, divided among the work-items that own the row. */
#define FOR_EACH_COLUMN(i, n) for (uint i = TREE != 0u ? LOCAL_ID(0) : 0u; i < (n); i += TREE != 0u ? LOCAL_X : 1u)

/* result = the fold by COMBINE of `element`, an expression of i, over i = 0 .. count-1. All owners of the row get the result.
 * A group of one work-item (CPUs) loops over the 256 lanes inside, which vectorizes; the order is the same. */
#define FOLD(type, result, identity, count, element, COMBINE)                                               \
    type result = identity;                                                                                 \
    if (TREE == 0u) {                                                                                       \
        IN_ORDER for (uint i = 0u; i < (count); i++) result = COMBINE(result, (element));                   \
    } else {                                                                                                \
        if (LOCAL_X == 1u) {                                                                                \
            for (uint lane = 0u; lane < 256u; lane++) lanes[lane] = identity;                               \
            for (uint first = 0u; first < (count); first += 256u)                                           \
                for (uint i = first; i < MIN_U32(first + 256u, (count)); i++)                               \
                    lanes[i - first] = COMBINE(lanes[i - first], (element));                                \
        } else {                                                                                            \
            for (uint lane = LOCAL_ID(0); lane < 256u; lane += LOCAL_X) {                                   \
                type partial = identity;                                                                    \
                IN_ORDER for (uint i = lane; i < (count); i += 256u) partial = COMBINE(partial, (element)); \
                lanes[lane] = partial;                                                                      \
            }                                                                                               \
        }                                                                                                   \
        BARRIER;                                                                                            \
        for (uint rest = 128u; rest > 0u; rest = rest / 2u) {                                               \
            for (uint lane = LOCAL_ID(0); lane < rest; lane += LOCAL_X)                                     \
                lanes[lane] = COMBINE(lanes[lane], lanes[lane + rest]);                                     \
            BARRIER;                                                                                        \
        }                                                                                                   \
        result = lanes[0];                                                                                  \
        BARRIER;                                                                                            \
    }
#define SUM(a, b) ((a) + (b))

#define RUNS          32u
#define COLUMNS       8u /* RUNS COLUMNS = 256 lanes: run lane / 8, column lane % 8 */
#define RUN_OF(count) (((count) + 4u * RUNS - 1u) / (4u * RUNS) * 4u) /* a multiple of 4: loops load 4 elements at a time */
/* Folds each run of `width` columns (at most 8) to one element of `lanes`. ELEMENT(i) is an expression of i = 0 ..
 * count-1 and of `column`. Four elements are loaded together. */
#define FOLD_RUNS(type, identity, count, ELEMENT, COMBINE)                                                \
    for (uint lane = LOCAL_ID(0); lane < 256u; lane += LOCAL_X) {                                         \
        const uint column = lane % COLUMNS, run = RUN_OF(count);                                          \
        uint i = MIN_U32(lane / COLUMNS * run, (count));                                                  \
        const uint end = column < width ? MIN_U32(i + run, (count)) : i;                                  \
        type so_far = identity;                                                                           \
        IN_ORDER for (; i + 4u <= end; i += 4u) {                                                         \
            const type e0 = ELEMENT(i), e1 = ELEMENT(i + 1u), e2 = ELEMENT(i + 2u), e3 = ELEMENT(i + 3u); \
            so_far = COMBINE(COMBINE(COMBINE(COMBINE(so_far, e0), e1), e2), e3);                          \
        }                                                                                                 \
        IN_ORDER for (; i < end; i++) so_far = COMBINE(so_far, ELEMENT(i));                               \
        lanes[lane] = so_far;                                                                             \
    }                                                                                                     \
    BARRIER;
/* FOR_EACH_RESULT: every column once, divided among the work-items of the group. FOLD_LANES: result = the fold of the
 * column's runs. The kernel must put a BARRIER after the loop. */
#define FOR_EACH_RESULT(column) for (uint column = LOCAL_ID(0); column < width; column += LOCAL_X)
#define FOLD_LANES(type, result, identity, count, COMBINE) \
    type result = identity;                                \
    IN_ORDER for (uint r = 0u; r * RUN_OF(count) < (count); r++) result = COMBINE(result, lanes[r * COLUMNS + column]);
