/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "core/op/attrs.h"
#include "tests/op/op_case.h"

typedef struct layout {
    int n;
    int64_t offsets[4], size;
} layout;

static strata_tensor *pack(strata_tensor *const *x, const void *user) {
    const layout *l = user;
    return strata_pack(x, l->offsets, l->n, l->size);
}

static strata_array part(strata_shape shape, double value) {
    return strata_test_full(STRATA_DTYPE_F32, shape, value);
}

Test(pack, lays_tensors_end_to_end_with_zeros_between) {
    strata_array x[3] = {part(STRATA_SHAPE(2), 1), part(STRATA_SHAPE(1, 3), 2), part(STRATA_SHAPE(), 3)};
    expect_values((op_case){pack, &(layout){3, {1, 3, 8}, 10}, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(10),
                  (double[]){0, 1, 1, 2, 2, 2, 0, 0, 3, 0});
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(pack, is_one_flat_copy_an_operand) {
    strata_array x[3] = {part(STRATA_SHAPE(2, 2), 1), part(STRATA_SHAPE(0, 3), 2), part(STRATA_SHAPE(3), 3)};
    strata_launch launches[MOST_LAUNCHES];
    cr_assert_eq(lower_to((op_case){pack, &(layout){3, {0, 4, 16}, 20}, x, 3}, launches), 2);
    cr_assert_str_eq(launches[0].kernel, "copy_strided");
    cr_assert_eq(launches[0].n_buffers, 2);
    cr_assert_eq(launches[0].offsets[1], 0);
    cr_assert_eq(launches[0].extents[1], 4);
    cr_assert_eq(launches[1].offsets[1], 16);
    cr_assert_eq(launches[1].extents[1], 3);
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(pack, agrees_with_finite_differences) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), -1, 1, 1),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3), -1, 1, 2)};
    expect_gradient((op_case){pack, &(layout){2, {1, 6}, 9}, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(pack, keeps_its_own_copy_of_the_offsets) {
    strata_graph *graph;
    int64_t offsets[] = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(2));
    strata_tensor *y = strata_pack(&x, offsets, 1, 4);
    offsets[0] = 3;
    cr_assert_eq(((const strata_pack_attrs *)y->attrs)->offsets[0], 0);
    cr_assert_eq(((const strata_pack_attrs *)y->attrs)->size, 4);
    cr_assert(y->op->flags & STRATA_OP_SLICES);
    strata_graph_destroy(graph);
}

Test(pack, rejects_overlaps_overruns_and_other_dtypes) {
    strata_array x[2] = {part(STRATA_SHAPE(4), 1), part(STRATA_SHAPE(3), 2)};
    strata_array f16 = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(2), 0);
    expect_rejected((op_case){pack, &(layout){2, {0, 3}, 9}, x, 2},
                    "offsets[1] is 3 and x[1] is (3); it must begin at 4 or later and end by 9");
    expect_rejected((op_case){pack, &(layout){2, {0, 4}, 6}, x, 2}, "offsets[1] is 4");
    expect_rejected((op_case){pack, &(layout){2, {-1, 4}, 9}, x, 2}, "offsets[0] is -1");
    expect_rejected((op_case){pack, &(layout){2, {0, INT64_MAX}, 9}, x, 2}, "offsets[1] is 9223372036854775807");
    expect_rejected((op_case){pack, &(layout){2, {0, 4}, -1}, x, 2}, "is negative");
    expect_rejected((op_case){pack, &(layout){1, {0}, 9}, &f16, 1}, "x[0] is f16; it must be f32");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
    strata_array_finish(&f16);
}
