/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *print(strata_tensor *const *x, const void *user) {
    return strata_print(x[0], user);
}

Test(print, is_its_operand_of_any_dtype) {
    for (strata_dtype dtype = 0; dtype < STRATA_DTYPE_COUNT; dtype++) {
        strata_array x = strata_test_random(dtype, STRATA_SHAPE(3, 5), -4, 4, 1);
        expect_same((op_case){print, NULL, &x, 1}, x);
        strata_array_finish(&x);
    }
}

Test(print, passes_the_gradient) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), -1, 1, 1);
    expect_gradient((op_case){print, NULL, &x, 1});
    strata_array_finish(&x);
}

Test(print, refuses_options_out_of_range) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0);
    expect_rejected((op_case){print, &(strata_print_options){.every = -1}, &x, 1}, "every is -1");
    expect_rejected((op_case){print, &(strata_print_options){.first = -1}, &x, 1}, "first is -1");
    expect_rejected((op_case){print, &(strata_print_options){.first = 65}, &x, 1}, "0 to 64");
    strata_array_finish(&x);
}
