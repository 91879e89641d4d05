/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_sum, reduce_mean, reduce_max and reduce_min compared with NumPy, their gradients, and how long axes are divided
 * for a device. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/op/op_case.h"

typedef strata_tensor *(*reduction)(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);

typedef struct reduce_case {
    reduction reduce;
    const char *axes; /* digits, such as "02", or "all" */
    bool keep_dims;
} reduce_case;

static const struct {
    const char *name;
    reduction reduce;
} reductions[4] = {
    {"sum", strata_reduce_sum}, {"max", strata_reduce_max}, {"min", strata_reduce_min}, {"mean", strata_reduce_mean}};

static strata_tensor *build(strata_tensor *const *x, const void *user) {
    const reduce_case *r = user;
    int axes[STRATA_MAX_RANK], n_axes = 0;
    if (strcmp(r->axes, "all") != 0)
        for (const char *c = r->axes; *c; c++) axes[n_axes++] = *c - '0';
    return r->reduce(x[0], axes, n_axes, r->keep_dims);
}

static const char *const axes_names[] = {"0", "1", "3", "12", "02", "13", "023", "all"};
enum { N_AXES_NAMES = sizeof axes_names / sizeof axes_names[0] };

/* Integers must be equal in every bit, which a comparison as doubles would not check. */
static void expect(op_case c, const strata_array *want) {
    if (strata_dtype_is_float(want->dtype))
        expect_golden(c, want);
    else
        expect_same(c, *want);
}

Test(reduce, agrees_with_numpy_over_every_choice_of_axes) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32,
                                          STRATA_DTYPE_I64};
    strata_golden *golden = strata_golden_load("reduce");
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        const char *dtype = strata_dtype_name(dtypes[d]);
        char name[64];
        snprintf(name, sizeof name, "x_%s", dtype);
        strata_array x = *strata_golden_get(golden, name);
        for (int f = 0; f < (strata_dtype_is_float(dtypes[d]) ? 4 : 3); f++) {
            for (int a = 0; a < N_AXES_NAMES; a++) {
                reduce_case r = {reductions[f].reduce, axes_names[a], false};
                snprintf(name, sizeof name, "%s_%s_%s", reductions[f].name, axes_names[a], dtype);
                strata_array want = *strata_golden_get(golden, name);
                expect((op_case){build, &r, &x, 1}, &want);
                r.keep_dims = true; /* the same numbers, but the reduced axes stay with size 1 */
                strata_shape kept = x.shape;
                for (int i = 0; i < 4; i++)
                    if (strchr(r.axes, '0' + i) || !strcmp(r.axes, "all")) kept.dims[i] = 1;
                want.shape = kept;
                expect((op_case){build, &r, &x, 1}, &want);
            }
        }
    }
    strata_golden_destroy(golden);
}

static strata_tensor *sum_of_last(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_reduce_sum(x[0], (int[]){-1}, 1, false);
}

Test(reduce, axes_count_from_the_back) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), (double[]){1, 2, 3, 10, 20, 30});
    expect_values((op_case){sum_of_last, NULL, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){6, 60});
    strata_array_finish(&x);
}

Test(reduce, of_a_scalar_is_itself) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 3.5);
    for (int f = 0; f < 4; f++) {
        reduce_case r = {reductions[f].reduce, "all", false};
        expect_values((op_case){build, &r, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(), (double[]){3.5});
    }
    strata_array_finish(&x);
}

Test(reduce, of_nothing_is_zero_for_sum_and_nan_for_mean) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 0), 0);
    reduce_case sum = {strata_reduce_sum, "1", false}, mean = {strata_reduce_mean, "1", false};
    expect_values((op_case){build, &sum, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2), (double[]){0, 0});
    expect_golden((op_case){build, &mean, &x, 1},
                  &(strata_array){STRATA_DTYPE_F32, STRATA_SHAPE(2), (float[]){NAN, NAN}, NULL});
    strata_array_finish(&x);
}

Test(reduce, extremes_pass_nan_on_and_know_infinity) {
    double values[] = {1, NAN, 3, -INFINITY, 5, INFINITY, -INFINITY, -INFINITY, -INFINITY};
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 3), values);
    reduce_case max = {strata_reduce_max, "1", false}, min = {strata_reduce_min, "1", false};
    strata_array most = {STRATA_DTYPE_F32, STRATA_SHAPE(3), (float[]){NAN, INFINITY, -INFINITY}, NULL};
    strata_array least = {STRATA_DTYPE_F32, STRATA_SHAPE(3), (float[]){NAN, -INFINITY, -INFINITY}, NULL};
    expect_golden((op_case){build, &max, &x, 1}, &most);
    expect_golden((op_case){build, &min, &x, 1}, &least);
    strata_array_finish(&x);
}

Test(reduce, integer_extremes_keep_every_bit) {
    int64_t values[2] = {INT64_MAX - 1, INT64_MAX}, most = INT64_MAX, least = INT64_MAX - 1;
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(2), values);
    reduce_case max = {strata_reduce_max, "all", false}, min = {strata_reduce_min, "all", false};
    expect_same((op_case){build, &max, &x, 1}, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &most));
    expect_same((op_case){build, &min, &x, 1}, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &least));
}

Test(reduce, gradients_agree_with_finite_differences) {
    strata_array x = strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3, 4), 0.1, 3);
    static const char *const axes[] = {"0", "1", "2", "01", "02", "all"};
    for (int f = 0; f < 4; f++) {
        for (size_t a = 0; a < sizeof axes / sizeof axes[0]; a++) {
            for (int keep_dims = 0; keep_dims < 2; keep_dims++) {
                reduce_case r = {reductions[f].reduce, axes[a], keep_dims};
                expect_gradient((op_case){build, &r, &x, 1});
            }
        }
    }
    strata_array_finish(&x);
}

static strata_tensor *gradient_of_extreme(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(build(x, user), NULL, x, 1, &dx);
    return dx;
}

Test(reduce, gradient_of_an_extreme_is_split_evenly_on_ties) {
    strata_array x = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(2, 4), (double[]){7, 1, 7, 2, 5, 5, 5, 5});
    reduce_case max = {strata_reduce_max, "1", false};
    expect_values((op_case){gradient_of_extreme, &max, &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 4),
                  (double[]){0.5, 0, 0.5, 0, 0.25, 0.25, 0.25, 0.25});
    strata_array_finish(&x);
}

static void reject(strata_dtype dtype, strata_shape shape, reduction reduce, const char *axes, const char *words) {
    strata_array x = strata_test_full(dtype, shape, 1);
    reduce_case r = {reduce, axes, false};
    expect_rejected((op_case){build, &r, &x, 1}, words);
    strata_array_finish(&x);
}

Test(reduce, rejects_wrong_axes_and_dtypes_and_says_why) {
    reject(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), strata_reduce_sum, "2",
           "reduce_sum: axis is 2; a tensor of rank 2 has axes -2 to 1");
    reject(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), strata_reduce_sum, "00", "axis 0 is given twice");
    reject(STRATA_DTYPE_F32, STRATA_SHAPE(2, 0), strata_reduce_max, "1", "x is (2,0)");
    reject(STRATA_DTYPE_I32, STRATA_SHAPE(2, 3), strata_reduce_mean, "1", "x is i32; it must be f32, f16 or bf16");
    reject(STRATA_DTYPE_BOOL, STRATA_SHAPE(2, 3), strata_reduce_sum, "1", "x is bool");
}

/* ---- launches ---- */

/* The words of a launch are rows, axis, inner, parts, part and divisor. */
Test(reduce, long_axes_with_few_results_take_two_launches) {
    strata_launch launches[MOST_LAUNCHES];
    strata_array x = strata_test_full(STRATA_DTYPE_BF16, STRATA_SHAPE(10000, 3), 1);
    reduce_case mean = {strata_reduce_mean, "0", false};
    cr_assert_eq(lower_to((op_case){build, &mean, &x, 1}, launches), 2);
    const strata_word *first = launches[0].words, *second = launches[1].words;
    cr_assert_str_eq(launches[0].variant, "bf16_f32");
    cr_assert_str_eq(launches[1].variant, "f32_bf16");
    cr_assert_eq(first[1].u32, 10000);
    cr_assert_geq(first[3].u32 * first[4].u32, 10000, "parts of the axis cover it");
    cr_assert_eq(first[0].u32, first[3].u32 * 3);
    cr_assert_eq(second[1].u32, first[3].u32, "the second folds the first's parts");
    cr_assert_eq(second[0].u32, 3);
    cr_assert_eq(second[3].u32, 1);
    cr_assert_eq(second[4].u32, second[1].u32);
    cr_assert_float_eq(second[5].f32, 10000, FLT_EPSILON, "the mean divides by the whole axis, once");
    strata_array_finish(&x);

    x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(64, 128), 1);
    cr_assert_eq(lower_to((op_case){build, &mean, &x, 1}, launches), 1);
    cr_assert_eq(launches[0].words[0].u32, 128);
    cr_assert_eq(launches[0].words[2].u32, 128);
    cr_assert_eq(launches[0].words[4].u32, 64);
    strata_array_finish(&x);
}
