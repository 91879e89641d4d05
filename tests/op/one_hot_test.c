/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "shaders/shaders.h"
#include "tests/op/op_case.h"

typedef struct request {
    int64_t depth;
    strata_dtype dtype;
} request;

static strata_tensor *one_hot(strata_tensor *const *x, const void *user) {
    const request *r = user;
    return strata_one_hot(x[0], r->depth, r->dtype);
}

Test(one_hot, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    expect_same((op_case){one_hot, &(request){4, STRATA_DTYPE_I32}, strata_golden_get(golden, "indices"), 1},
                *strata_golden_get(golden, "one_hot_4"));
    strata_golden_destroy(golden);
}

Test(one_hot, gives_zeros_for_indices_out_of_range_in_every_dtype) {
    const strata_dtype index_dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (int d = 0; d < 2; d++) {
        strata_array x = strata_test_array(index_dtypes[d], STRATA_SHAPE(4), (double[]){1, -1, 3, 2});
        for (int dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
            op_case c = {one_hot, &(request){3, (strata_dtype)dtype}, &x, 1};
            strata_launch launch;
            expect_values(c, (strata_dtype)dtype, STRATA_SHAPE(4, 3), (double[]){0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
            cr_assert_eq(lower_to(c, &launch), 1);
            cr_assert(strata_shader_find(launch.kernel, launch.variant));
        }
        strata_array_finish(&x);
    }
}

Test(one_hot, takes_no_indices_without_a_launch) {
    strata_array x = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(0), 0);
    strata_array want = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 3), 0);
    op_case c = {one_hot, &(request){3, STRATA_DTYPE_F32}, &x, 1};
    expect_same(c, want);
    cr_assert_eq(lower_to(c, NULL), 0);
    strata_array_finish(&x);
    strata_array_finish(&want);
}

Test(one_hot, gives_the_kernel_the_bits_of_one) {
    strata_array x = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0);
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){one_hot, &(request){3, STRATA_DTYPE_BF16}, &x, 1}, &launch), 1);
    cr_assert_str_eq(launch.variant, "b16_i32");
    cr_assert_eq(launch.words[1].u32, 3);
    cr_assert_eq(launch.words[2].u32, 0x3F80u);
    strata_array_finish(&x);
}

Test(one_hot, rejects_float_indices_and_depths_below_one) {
    strata_array x = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0);
    strata_array f32 = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0);
    strata_array deep = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), 0);
    expect_rejected((op_case){one_hot, &(request){3, STRATA_DTYPE_F32}, &f32, 1}, "indices is f32; it must be i32 or i64");
    expect_rejected((op_case){one_hot, &(request){0, STRATA_DTYPE_F32}, &x, 1}, "depth is 0; it must be 1 to");
    expect_rejected((op_case){one_hot, &(request){3, (strata_dtype)42}, &x, 1}, "dtype 42 is not known");
    expect_rejected((op_case){one_hot, &(request){3, STRATA_DTYPE_F32}, &deep, 1}, "the result would have rank 9");
    strata_array_finish(&x);
    strata_array_finish(&f32);
    strata_array_finish(&deep);
}
