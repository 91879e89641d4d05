/* SPDX-License-Identifier: Apache-2.0
 *
 * first_index and unique for indices that repeat, that are all equal, and that are out of range, and for no indices. */
#include <criterion/criterion.h>

#include "tests/op/op_case.h"

static strata_tensor *first_index(strata_tensor *const *x, const void *user) {
    return strata_first_index(x[0], *(const int *)user);
}

static strata_tensor *unique(strata_tensor *const *x, const void *user) {
    strata_tensor *inverse;
    return strata_unique(x[0], *(const int *)user, &inverse);
}

static strata_tensor *inverse(strata_tensor *const *x, const void *user) {
    strata_tensor *places;
    strata_unique(x[0], *(const int *)user, &places);
    return places;
}

static void gives(strata_shape shape, const double *x, int n, const double *first, const double *ids, const double *places) {
    const strata_dtype dtypes[] = {STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (int d = 0; d < 2; d++) {
        strata_array value = strata_test_array(dtypes[d], shape, x);
        expect_values((op_case){first_index, &n, &value, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(n), first);
        expect_values((op_case){unique, &n, &value, 1}, dtypes[d], STRATA_SHAPE(strata_shape_elements(shape)), ids);
        expect_values((op_case){inverse, &n, &value, 1}, STRATA_DTYPE_I32, shape, places);
        strata_array_finish(&value);
    }
}

Test(first_index, and_unique_find_where_numbers_come_first) {
    gives(STRATA_SHAPE(2, 3), (double[]){4, 0, 4, 2, 0, 4}, 5, (double[]){2, 0, 4, 0, 1}, (double[]){4, 0, -1, 2, -1, -1},
          (double[]){0, 1, 0, 3, 1, 0});
}

Test(first_index, of_one_number_that_repeats) {
    gives(STRATA_SHAPE(4), (double[]){1, 1, 1, 1}, 2, (double[]){0, 1}, (double[]){1, -1, -1, -1}, (double[]){0, 0, 0, 0});
}

Test(first_index, leaves_out_what_is_out_of_range) {
    gives(STRATA_SHAPE(5), (double[]){3, -1, 0, 100, 0}, 3, (double[]){3, 0, 0}, (double[]){-1, -1, 0, -1, -1},
          (double[]){-1, -1, 2, -1, 2});
}

Test(first_index, of_nothing) {
    gives(STRATA_SHAPE(0), NULL, 2, (double[]){0, 0}, NULL, NULL);
    gives(STRATA_SHAPE(2), (double[]){0, 1}, 0, NULL, (double[]){-1, -1}, (double[]){-1, -1});
}

Test(first_index, rejects_floats_and_counts_below_zero) {
    strata_array floats = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 0);
    strata_array whole = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(3), 0);
    expect_rejected((op_case){first_index, &(int){2}, &floats, 1}, "x is f32");
    expect_rejected((op_case){first_index, &(int){-1}, &whole, 1}, "n is -1");
    strata_array_finish(&floats);
    strata_array_finish(&whole);
}
