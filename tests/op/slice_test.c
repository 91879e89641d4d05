/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "core/op/attrs.h"
#include "tests/op/op_case.h"

typedef struct range {
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
} range;

static strata_tensor *slice(strata_tensor *const *x, const void *user) {
    const range *r = user;
    return strata_slice(x[0], r->begin, r->size);
}

Test(slice, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    expect_same((op_case){slice, &(range){{1, 0, 1, 2}, {1, 2, 3, 3}}, strata_golden_get(golden, "x"), 1},
                *strata_golden_get(golden, "slice"));
    strata_golden_destroy(golden);
}

Test(slice, takes_every_dtype_and_nothing_at_all) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x = strata_test_array((strata_dtype)dtype, STRATA_SHAPE(2, 3), (double[]){0, 1, 1, 1, 0, 1});
        strata_array none = strata_test_full((strata_dtype)dtype, STRATA_SHAPE(2, 0), 0);
        op_case empty = {slice, &(range){{0, 3}, {2, 0}}, &x, 1};
        expect_values((op_case){slice, &(range){{0, 1}, {2, 2}}, &x, 1}, (strata_dtype)dtype, STRATA_SHAPE(2, 2),
                      (double[]){1, 1, 0, 1});
        expect_same(empty, none);
        cr_assert_eq(lower_to(empty, NULL), 0);
        strata_array_finish(&x);
        strata_array_finish(&none);
    }
}

Test(slice, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), -1, 1, 1);
    expect_gradient((op_case){slice, &(range){{1, 1}, {2, 2}}, &x, 1});
    strata_array_finish(&x);
}

Test(slice, rejects_ranges_beyond_x) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0);
    expect_rejected((op_case){slice, &(range){{0, 2}, {3, 3}}, &x, 1},
                    "3 elements from 2 on along axis 1 of x, which is (3,4)");
    expect_rejected((op_case){slice, &(range){{-1, 0}, {1, 1}}, &x, 1}, "1 elements from -1 on along axis 0");
    expect_rejected((op_case){slice, &(range){{0, 0}, {-1, 1}}, &x, 1}, "-1 elements from 0 on along axis 0");
    expect_rejected((op_case){slice, &(range){{INT64_MAX, 0}, {INT64_MAX, 1}}, &x, 1}, "along axis 0");
    strata_array_finish(&x);
}

/* Returns the element at which the slice of a (4,3,5) begins if the slice is a view, otherwise -1. */
static int64_t view_of(range r) {
    strata_graph *graph;
    int64_t first = -1;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(4, 3, 5));
    bool is_view = strata_slice_is_view(strata_slice(x, r.begin, r.size), &first);
    strata_graph_destroy(graph);
    return is_view ? first : -1;
}

Test(slice, is_a_view_when_its_elements_follow_one_another) {
    cr_assert_eq(view_of((range){{0, 0, 0}, {4, 3, 5}}), 0);
    cr_assert_eq(view_of((range){{1, 0, 0}, {2, 3, 5}}), 15);
    cr_assert_eq(view_of((range){{2, 1, 0}, {1, 2, 5}}), 35);
    cr_assert_eq(view_of((range){{2, 1, 3}, {1, 1, 2}}), 38);
    cr_assert_eq(view_of((range){{0, 1, 0}, {4, 2, 5}}), -1);
    cr_assert_eq(view_of((range){{0, 0, 0}, {4, 3, 4}}), -1);
    cr_assert_eq(view_of((range){{0, 0, 0}, {1, 2, 4}}), -1);
    cr_assert_eq(view_of((range){{0, 0, 0}, {0, 3, 5}}), -1);
}
