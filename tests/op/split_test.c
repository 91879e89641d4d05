/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/op/op_case.h"

typedef struct request {
    int n, axis, which;
} request;

static strata_tensor *split(strata_tensor *const *x, const void *user) {
    const request *r = user;
    strata_tensor *parts[8];
    strata_split(x[0], r->n, r->axis, parts);
    return parts[r->which];
}

/* A function of all parts, which treats each of them differently. */
static strata_tensor *weighted(strata_tensor *const *x, const void *user) {
    strata_tensor *parts[3];
    strata_split(x[0], 3, *(const int *)user, parts);
    return strata_add(strata_add(parts[0], strata_square(parts[1])), strata_mul(parts[2], parts[0]));
}

Test(split, matches_numpy) {
    strata_golden *golden = strata_golden_load("move");
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "split_2_%d", i);
        expect_same((op_case){split, &(request){2, 2, i}, strata_golden_get(golden, "x"), 1}, *strata_golden_get(golden, name));
        expect_same((op_case){split, &(request){2, -2, i}, strata_golden_get(golden, "x"), 1},
                    *strata_golden_get(golden, name));
    }
    strata_golden_destroy(golden);
}

Test(split, takes_one_part_and_empty_ones) {
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    strata_array none = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2, 0), 0);
    expect_values((op_case){split, &(request){1, 0, 0}, &x, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    expect_values((op_case){split, &(request){3, 1, 2}, &none, 1}, STRATA_DTYPE_I32, STRATA_SHAPE(2, 0), NULL);
    strata_array_finish(&x);
    strata_array_finish(&none);
}

Test(split, agrees_with_finite_differences) {
    strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 6), -1, 1, 1);
    expect_gradient((op_case){weighted, &(int){0}, &x, 1});
    expect_gradient((op_case){weighted, &(int){1}, &x, 1});
    strata_array_finish(&x);
}

Test(split, rejects_unequal_parts) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 5), 0);
    expect_rejected((op_case){split, &(request){2, 1, 1}, &x, 1},
                    "split: x is (2,5); its axis 1 does not divide into 2 equal parts");
    expect_rejected((op_case){split, &(request){2, 2, 0}, &x, 1}, "split: axis is 2; a tensor of rank 2 has axes -2 to 1");
    strata_array_finish(&x);
}
