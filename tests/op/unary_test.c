/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops of one operand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "tests/op/op_case.h"

typedef strata_tensor *(*builder)(strata_tensor *x);

static strata_tensor *apply(strata_tensor *const *x, const void *user) {
    return (*(const builder *)user)(x[0]);
}

/* The inputs for which an op can be compared with finite differences, away from points without a derivative. */
typedef enum domain { ANY_SIGN, POSITIVE } domain;

static const struct unary {
    const char *name;
    builder build;
    domain domain;
    bool takes_integers;
} ops[] = {
    {"neg", strata_neg, ANY_SIGN, true},    {"abs", strata_abs, ANY_SIGN, true},
    {"sign", strata_sign, ANY_SIGN, true},  {"square", strata_square, ANY_SIGN, true},
    {"exp", strata_exp, ANY_SIGN, false},   {"log", strata_log, POSITIVE, false},
    {"sqrt", strata_sqrt, POSITIVE, false}, {"rsqrt", strata_rsqrt, POSITIVE, false},
    {"tanh", strata_tanh, ANY_SIGN, false}, {"sigmoid", strata_sigmoid, ANY_SIGN, false},
    {"relu", strata_relu, ANY_SIGN, false}, {"erf", strata_erf, ANY_SIGN, false},
    {"sin", strata_sin, ANY_SIGN, false},   {"cos", strata_cos, ANY_SIGN, false},
};

#define FOR_EACH_OP(op) for (const struct unary *op = ops; op < ops + sizeof ops / sizeof *ops; op++)

Test(unary, matches_numpy_in_every_float_dtype) {
    strata_golden *golden = strata_golden_load("unary");
    for (int d = 0; d < 3; d++) {
        const char *dtype = strata_dtype_name(float_dtypes[d]);
        FOR_EACH_OP(op) {
            char x[64], y[64];
            snprintf(x, sizeof x, "%s_%s", op->domain == POSITIVE ? "p" : "x", dtype);
            snprintf(y, sizeof y, "%s_%s", op->name, dtype);
            expect_golden((op_case){apply, &op->build, strata_golden_get(golden, x), 1}, strata_golden_get(golden, y));
        }
    }
    strata_golden_destroy(golden);
}

Test(unary, treats_nan_infinities_and_zeros_as_numpy_does) {
    strata_golden *golden = strata_golden_load("unary");
    FOR_EACH_OP(op) {
        char y[64];
        snprintf(y, sizeof y, "%s_special", op->name);
        expect_golden((op_case){apply, &op->build, strata_golden_get(golden, "special"), 1}, strata_golden_get(golden, y));
    }
    strata_golden_destroy(golden);
}

Test(unary, keeps_the_sign_of_zero_under_negation) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 0);
    strata_array y = evaluate((op_case){apply, &(builder){strata_neg}, &x, 1});
    cr_assert(signbit(*(float *)y.data));
    strata_array_finish(&x);
    strata_array_finish(&y);
}

Test(unary, computes_i64_exactly_and_wraps) {
    int64_t values[] = {INT64_MIN, INT64_MAX, (INT64_C(1) << 53) + 1, -3, 0};
    int64_t negated[] = {INT64_MIN, -INT64_MAX, -(INT64_C(1) << 53) - 1, 3, 0};
    int64_t absolute[] = {INT64_MIN, INT64_MAX, (INT64_C(1) << 53) + 1, 3, 0};
    int64_t signs[] = {-1, 1, 1, -1, 0};
    int64_t squares[] = {0, 1, (INT64_C(1) << 54) + 1, 9, 0};
    int64_t *want[] = {negated, absolute, signs, squares};
    strata_array x = strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(5), values);
    for (int i = 0; i < 4; i++)
        expect_same((op_case){apply, &ops[i].build, &x, 1}, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(5), want[i]));
}

Test(unary, computes_i32_exactly_and_wraps) {
    strata_array x = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(3), (double[]){INT32_MIN, 65536, -7});
    expect_values((op_case){apply, &(builder){strata_neg}, &x, 1}, STRATA_DTYPE_I32, x.shape, (double[]){INT32_MIN, -65536, 7});
    expect_values((op_case){apply, &(builder){strata_abs}, &x, 1}, STRATA_DTYPE_I32, x.shape, (double[]){INT32_MIN, 65536, 7});
    expect_values((op_case){apply, &(builder){strata_square}, &x, 1}, STRATA_DTYPE_I32, x.shape, (double[]){0, 0, 49});
    strata_array_finish(&x);
}

Test(unary, agrees_with_finite_differences) {
    /* Values of `any` are at least 0.1 away from 0, where some ops have no derivative. Values of `positive` are at least
     * 1.5, where the higher derivatives are small enough. */
    strata_array any = strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0.2, 1);
    strata_array positive = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 1.5, 4, 2);
    FOR_EACH_OP(op) {
        if (op->build == strata_sign) continue; /* its gradient is 0 by definition, and so is the difference quotient */
        expect_gradient((op_case){apply, &op->build, op->domain == POSITIVE ? &positive : &any, 1});
    }
    strata_array_finish(&any);
    strata_array_finish(&positive);
}

static strata_tensor *gradient_of(strata_tensor *const *x, const void *user) {
    strata_tensor *dx;
    strata_gradients(apply(x, user), NULL, x, 1, &dx);
    return dx;
}

Test(unary, has_the_documented_gradient_at_zero) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 0);
    builder kinked[] = {strata_abs, strata_relu, strata_sign};
    for (int i = 0; i < 3; i++)
        expect_values((op_case){gradient_of, &kinked[i], &x, 1}, STRATA_DTYPE_F32, STRATA_SHAPE(), (double[]){0});
    strata_array_finish(&x);
}

Test(unary, can_be_differentiated_twice) {
    strata_array any = strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(6), 0.2, 3);
    strata_array positive = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(6), 2, 4, 4);
    FOR_EACH_OP(op) {
        /* The first derivative of these ops does not depend on x, so the gradient has no operand x to differentiate by. */
        if (op->build == strata_neg || op->build == strata_sign) continue;
        expect_gradient((op_case){gradient_of, &op->build, op->domain == POSITIVE ? &positive : &any, 1});
    }
    strata_array_finish(&any);
    strata_array_finish(&positive);
}

Test(unary, rejects_dtypes_it_has_no_meaning_for) {
    strata_array u8 = strata_test_full(STRATA_DTYPE_U8, STRATA_SHAPE(2), 1);
    strata_array i32 = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 1);
    FOR_EACH_OP(op) {
        expect_rejected((op_case){apply, &op->build, &u8, 1}, "x is u8; it must be f32");
        if (!op->takes_integers)
            expect_rejected((op_case){apply, &op->build, &i32, 1}, "x is i32; it must be f32, f16 or bf16");
    }
    strata_array_finish(&u8);
    strata_array_finish(&i32);
}

Test(unary, takes_empty_tensors_without_a_launch) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 0), 0);
    FOR_EACH_OP(op) {
        op_case c = {apply, &op->build, &x, 1};
        expect_same(c, x);
        cr_assert_eq(lower_to(c, NULL), 0);
    }
    strata_array_finish(&x);
}

Test(unary, is_one_launch_over_all_elements) {
    strata_array x = strata_test_full(STRATA_DTYPE_BF16, STRATA_SHAPE(3, 1, 5), 0);
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){apply, &(builder){strata_exp}, &x, 1}, &launch), 1);
    cr_assert_str_eq(launch.kernel, "unary");
    cr_assert_str_eq(launch.variant, "bf16");
    cr_assert_eq(launch.global[0], 15);
    cr_assert_eq(launch.words[0].u32, 15);
    cr_assert_eq(launch.writes, 2u);
    strata_array_finish(&x);
}
