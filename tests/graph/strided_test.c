/* SPDX-License-Identifier: Apache-2.0
 *
 * Index spaces: strides of broadcast shapes, merging of axes, the split into four inner axes. */
#include <criterion/criterion.h>

#include "core/graph/launch.h"

static strata_strided space_of(int rank, const int64_t *sizes, int n_tensors, const int64_t *strides) {
    strata_strided space = {.rank = rank, .n_tensors = n_tensors};
    for (int d = 0; d < rank; d++) { /* a scalar has neither sizes nor strides */
        space.sizes[d] = sizes[d];
        for (int t = 0; t < n_tensors; t++) space.strides[t][d] = strides[t * rank + d];
    }
    return space;
}

Test(strided, broadcast_strides_are_zero_along_repeated_axes) {
    int64_t strides[STRATA_MAX_RANK];
    strata_broadcast_strides(STRATA_SHAPE(3, 1, 5), STRATA_SHAPE(2, 3, 4, 5), strides);
    const int64_t want[] = {0, 5, 0, 1};
    cr_assert_arr_eq(strides, want, sizeof want);
}

Test(strided, contiguous_tensors_merge_to_one_axis) {
    strata_strided space = space_of(3, (int64_t[]){2, 3, 4}, 2, (int64_t[]){12, 4, 1, 12, 4, 1});
    strata_strided_merge(&space);
    cr_assert_eq(space.rank, 1);
    cr_assert_eq(space.sizes[0], 24);
    cr_assert_eq(space.strides[0][0], 1);
    cr_assert_eq(space.strides[1][0], 1);
}

Test(strided, a_broadcast_axis_stays_apart_where_tensors_disagree) {
    /* A bias row added to a (2,3,4): the first two axes merge for both. */
    strata_strided space = space_of(3, (int64_t[]){2, 3, 4}, 2, (int64_t[]){12, 4, 1, 0, 0, 1});
    strata_strided_merge(&space);
    cr_assert_eq(space.rank, 2);
    cr_assert_eq(space.sizes[0], 6);
    cr_assert_eq(space.sizes[1], 4);
    cr_assert_eq(space.strides[0][0], 4);
    cr_assert_eq(space.strides[1][0], 0);
    cr_assert_eq(space.strides[1][1], 1);
}

Test(strided, axes_of_size_one_are_dropped_whatever_their_stride) {
    strata_strided space = space_of(4, (int64_t[]){1, 3, 1, 4}, 1, (int64_t[]){77, 4, 99, 1});
    strata_strided_merge(&space);
    cr_assert_eq(space.rank, 1);
    cr_assert_eq(space.sizes[0], 12);
    cr_assert_eq(space.strides[0][0], 1);
}

Test(strided, scalars_and_empty_spaces_keep_one_axis) {
    strata_strided scalar = space_of(0, NULL, 0, NULL);
    strata_strided empty = space_of(3, (int64_t[]){2, 0, 3}, 1, (int64_t[]){0, 3, 1});
    strata_strided_merge(&scalar);
    strata_strided_merge(&empty);
    cr_assert_eq(scalar.rank, 1);
    cr_assert_eq(scalar.sizes[0], 1);
    cr_assert_eq(empty.rank, 1);
    cr_assert_eq(empty.sizes[0], 0);
}

/* Counts how often each pair of offsets comes by. */
typedef struct tally {
    int visits, elements;
    int seen[4096];
    bool exact_rank;
} tally;

static strata_status count(const strata_strided *inner, const int64_t *offsets, void *user, strata_error *err) {
    (void)err;
    tally *t = user;
    const int64_t *s = inner->sizes, *stride = inner->strides[0], *other = inner->strides[1];
    t->visits++;
    t->exact_rank = t->exact_rank && inner->rank == STRATA_STRIDED_KERNEL_AXES;
    for (int64_t i = 0; i < s[0] * s[1] * s[2] * s[3]; i++) {
        const int64_t c[4] = {i / s[3] / s[2] / s[1], i / s[3] / s[2] % s[1], i / s[3] % s[2], i % s[3]};
        int64_t first = offsets[0], second = offsets[1];
        for (int d = 0; d < 4; d++) first += c[d] * stride[d], second += c[d] * other[d];
        cr_assert_eq(second, 3 * first); /* the second tensor's strides are thrice the first's */
        t->seen[first]++;
        t->elements++;
    }
    return STRATA_OK;
}

static void walk(int rank, const int64_t *sizes, tally *t) {
    int64_t strides[2 * STRATA_MAX_RANK], stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        strides[rank + d] = 3 * stride;
        stride *= sizes[d];
    }
    strata_strided space = space_of(rank, sizes, 2, strides);
    *t = (tally){.exact_rank = true};
    cr_assert_eq(strata_strided_split(&space, count, t, NULL), STRATA_OK);
    cr_assert_eq(t->elements, stride);
    for (int64_t i = 0; i < stride; i++) cr_assert_eq(t->seen[i], 1, "element %d was seen %d times", (int)i, t->seen[i]);
    cr_assert(t->exact_rank);
}

Test(strided, split_passes_every_element_once) {
    tally t;
    walk(1, (int64_t[]){7}, &t);
    cr_assert_eq(t.visits, 1);
    walk(4, (int64_t[]){2, 3, 4, 5}, &t);
    cr_assert_eq(t.visits, 1);
    walk(5, (int64_t[]){3, 2, 3, 4, 5}, &t);
    cr_assert_eq(t.visits, 3);
    walk(8, (int64_t[]){2, 3, 1, 2, 2, 3, 2, 3}, &t);
    cr_assert_eq(t.visits, 12);
}

static void visit_row(const strata_strided *space, const int64_t *offsets, void *user) {
    (void)space;
    (void)offsets;
    ++*(int *)user;
}

Test(strided, an_empty_space_has_no_part_whichever_axis_is_empty) {
    for (int rank = 1; rank <= STRATA_MAX_RANK; rank++)
        for (int empty = 0; empty < rank; empty++) {
            int64_t sizes[STRATA_MAX_RANK], strides[STRATA_MAX_RANK];
            tally t;
            int rows = 0;
            for (int d = 0; d < rank; d++) sizes[d] = d == empty ? 0 : 2, strides[d] = 1;
            const strata_strided space = space_of(rank, sizes, 1, strides);
            walk(rank, sizes, &t);
            strata_strided_rows(&space, visit_row, &rows);
            cr_expect(!t.visits && !rows, "axis %d of %d: %d parts, %d rows", empty, rank, t.visits, rows);
        }
}

static strata_status fail_second(const strata_strided *inner, const int64_t *offsets, void *user, strata_error *err) {
    (void)inner;
    (void)offsets;
    return ++*(int *)user == 2 ? strata_fail(err, STRATA_UNSUPPORTED, "no more") : STRATA_OK;
}

Test(strided, split_stops_at_the_first_failure) {
    int calls = 0;
    strata_strided space = space_of(5, (int64_t[]){9, 2, 2, 2, 2}, 1, (int64_t[]){16, 8, 4, 2, 1});
    cr_assert_eq(strata_strided_split(&space, fail_second, &calls, NULL), STRATA_UNSUPPORTED);
    cr_assert_eq(calls, 2);
}
