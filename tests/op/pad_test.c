/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

typedef struct margin {
    int64_t before[STRATA_MAX_RANK], after[STRATA_MAX_RANK];
    double value;
} margin;

static strata_tensor *pad(strata_tensor *const *x, const void *user) {
    const margin *m = user;
    return strata_pad(x[0], m->before, m->after, m->value);
}

Test(pad, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    expect_same((op_case){pad, &(margin){{0, 2, 1, 0}, {1, 0, 1, 3}, -7}, strata_golden_get(golden, "x"), 1},
                *strata_golden_get(golden, "pad"));
    strata_golden_destroy(golden);
}

Test(pad, takes_every_dtype) {
    for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x = strata_test_full((strata_dtype)dtype, STRATA_SHAPE(1, 2), 0);
        expect_values((op_case){pad, &(margin){{1, 0}, {0, 1}, 1}, &x, 1}, (strata_dtype)dtype, STRATA_SHAPE(2, 3),
                      (double[]){1, 1, 1, 0, 0, 1});
        strata_array_finish(&x);
    }
}

Test(pad, gives_an_empty_tensor_nothing_but_the_value) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0), 0);
    op_case filled = {pad, &(margin){{1}, {2}, 4}, &x, 1}, none = {pad, &(margin){{0}, {0}, 4}, &x, 1};
    expect_values(filled, STRATA_DTYPE_F32, STRATA_SHAPE(3), (double[]){4, 4, 4});
    expect_same(none, x);
    cr_assert_eq(lower_to(filled, NULL), 1);
    cr_assert_eq(lower_to(none, NULL), 0);
    strata_array_finish(&x);
}

Test(pad, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1);
    expect_gradient((op_case){pad, &(margin){{1, 0}, {0, 2}, 3}, &x, 1});
    strata_array_finish(&x);
}

Test(pad, rejects_margins_below_zero_and_results_too_large) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0);
    expect_rejected((op_case){pad, &(margin){{0, -1}, {0, 0}, 0}, &x, 1}, "-1 before and 0 after along axis 1");
    expect_rejected((op_case){pad, &(margin){{INT64_MAX, 0}, {0, 0}, 0}, &x, 1}, "beyond 2^63");
    expect_rejected((op_case){pad, &(margin){{INT64_C(1) << 62, 0}, {0, 0}, 0}, &x, 1}, "is too large");
    strata_array_finish(&x);
}

Test(pad, fills_with_the_bits_of_its_value_then_copies) {
    strata_array x = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(2), 0);
    strata_array i64 = strata_test_full(STRATA_DTYPE_I64, STRATA_SHAPE(2), 0);
    strata_launch launches[MOST_LAUNCHES];
    cr_assert_eq(lower_to((op_case){pad, &(margin){{1}, {0}, 1}, &x, 1}, launches), 2);
    cr_assert_str_eq(launches[0].kernel, "fill");
    cr_assert_str_eq(launches[0].variant, "b16");
    cr_assert_eq(launches[0].words[1].u32, 0x3C00u);
    cr_assert_str_eq(launches[1].kernel, "copy_strided");
    cr_assert_eq(launches[1].offsets[1], 1);
    cr_assert_eq(lower_to((op_case){pad, &(margin){{1}, {0}, -2}, &i64, 1}, launches), 2);
    cr_assert_eq(launches[0].words[1].u32, 0xFFFFFFFEu);
    cr_assert_eq(launches[0].words[2].u32, 0xFFFFFFFFu);
    strata_array_finish(&x);
    strata_array_finish(&i64);
}
