/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops of two operands: arithmetic, comparisons, and the fused gradients of activations. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/op/ops.h"
#include "tests/op/op_case.h"

typedef strata_tensor *(*builder)(strata_tensor *a, strata_tensor *b);

static strata_tensor *apply(strata_tensor *const *x, const void *user) {
    return (*(const builder *)user)(x[0], x[1]);
}

static const struct binary {
    const char *name;
    builder build;
    bool floats_only;
} arithmetic[] = {{"add", strata_add, false}, {"sub", strata_sub, false}, {"mul", strata_mul, false}, {"div", strata_div, true},
                  {"pow", strata_pow, true},  {"min", strata_min, false}, {"max", strata_max, false}},
  comparisons[] = {{"equal", strata_equal, false},     {"not_equal", strata_not_equal, false},
                   {"less", strata_less, false},       {"less_equal", strata_less_equal, false},
                   {"greater", strata_greater, false}, {"greater_equal", strata_greater_equal, false}};

#define FOR_EACH_OP(op, table) for (const struct binary *op = table; op < table + sizeof table / sizeof *table; op++)

/* op(a_suffix, b_suffix) must be op_suffix. For pow the base is p_suffix instead of a_suffix. */
static void expect_numpy(const strata_golden *golden, const struct binary *op, const char *suffix) {
    char a[64], b[64], y[64];
    snprintf(a, sizeof a, "%s_%s", op->build == strata_pow ? "p" : "a", suffix);
    snprintf(b, sizeof b, "b_%s", suffix);
    snprintf(y, sizeof y, "%s_%s", op->name, suffix);
    strata_array x[2] = {*strata_golden_get(golden, a), *strata_golden_get(golden, b)};
    expect_golden((op_case){apply, &op->build, x, 2}, strata_golden_get(golden, y));
}

Test(binary, broadcasts_and_matches_numpy_in_every_float_dtype) {
    strata_golden *golden = strata_golden_load("binary");
    for (int d = 0; d < 3; d++) {
        FOR_EACH_OP(op, arithmetic) expect_numpy(golden, op, strata_dtype_name(float_dtypes[d]));
        FOR_EACH_OP(op, comparisons) expect_numpy(golden, op, strata_dtype_name(float_dtypes[d]));
    }
    strata_golden_destroy(golden);
}

Test(binary, matches_numpy_on_i32_with_wrapping) {
    strata_golden *golden = strata_golden_load("binary");
    FOR_EACH_OP(op, arithmetic)
    if (!op->floats_only) expect_numpy(golden, op, "i32");
    strata_golden_destroy(golden);
}

Test(binary, compares_every_dtype_as_numpy_does) {
    static const char *const suffixes[] = {"i32", "u8", "bool", "nan"};
    strata_golden *golden = strata_golden_load("binary");
    for (int i = 0; i < 4; i++) FOR_EACH_OP(op, comparisons) expect_numpy(golden, op, suffixes[i]);
    strata_golden_destroy(golden);
}

Test(binary, passes_nan_on_as_numpy_does) {
    strata_golden *golden = strata_golden_load("binary");
    FOR_EACH_OP(op, arithmetic)
    if (!op->floats_only) expect_numpy(golden, op, "nan");
    strata_golden_destroy(golden);
}

Test(binary, computes_i64_exactly_and_wraps) {
    const int64_t big = (INT64_C(1) << 53) + 1;
    int64_t a[] = {INT64_MAX, big, INT64_MIN}, b[] = {1, big - 1, -1};
    int64_t sums[] = {INT64_MIN, 2 * big - 1, INT64_MAX}, differences[] = {INT64_MAX - 1, 1, INT64_MIN + 1};
    int64_t products[] = {INT64_MAX, (int64_t)((uint64_t)big * (uint64_t)(big - 1)), INT64_MIN};
    int64_t most[] = {INT64_MAX, big, -1}, least[] = {1, big - 1, INT64_MIN};
    const struct {
        builder build;
        int64_t *want;
    } rows[] = {{strata_add, sums}, {strata_sub, differences}, {strata_mul, products}, {strata_max, most}, {strata_min, least}};
    strata_array x[2] = {strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), a),
                         strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), b)};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_same((op_case){apply, &rows[i].build, x, 2}, strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(3), rows[i].want));
    /* Converted to double the two numbers would be equal. */
    strata_array y[2] = {strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &a[1]),
                         strata_array_view(STRATA_DTYPE_I64, STRATA_SHAPE(), &b[1])};
    expect_values((op_case){apply, &(builder){strata_equal}, y, 2}, STRATA_DTYPE_BOOL, STRATA_SHAPE(), (double[]){0});
    expect_values((op_case){apply, &(builder){strata_greater}, y, 2}, STRATA_DTYPE_BOOL, STRATA_SHAPE(), (double[]){1});
}

Test(binary, agrees_with_finite_differences_through_broadcasting) {
    static const strata_shape shapes[][2] = {
        {{2, {3, 2}}, {2, {3, 2}}}, {{3, {2, 1, 2}}, {2, {3, 1}}}, {{0, {0}}, {1, {4}}}, {{2, {1, 3}}, {2, {2, 3}}}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        FOR_EACH_OP(op, arithmetic) {
            /* Each element of b differs from that of a by at least 0.05, so that min and max have no tie nearby. Bases and
             * divisors are far from 0. */
            strata_array x[2] = {strata_test_distinct(STRATA_DTYPE_F32, shapes[s][0], 0.3, 5 + s),
                                 strata_test_distinct(STRATA_DTYPE_F32, shapes[s][1], 0.3, 6 + s)};
            const bool positive = op->build == strata_div || op->build == strata_pow;
            for (int64_t i = 0; i < strata_shape_elements(x[0].shape); i++)
                ((float *)x[0].data)[i] = positive ? 2 + 0.2f * ((float *)x[0].data)[i] : ((float *)x[0].data)[i] + 0.11f;
            for (int64_t i = 0; positive && i < strata_shape_elements(x[1].shape); i++)
                ((float *)x[1].data)[i] = 2 + 0.2f * ((float *)x[1].data)[i];
            expect_gradient((op_case){apply, &op->build, x, 2});
            strata_array_finish(&x[0]);
            strata_array_finish(&x[1]);
        }
    }
}

/* The gradient of op(a, b) with respect to operand `index`. */
typedef struct partial {
    builder build;
    int index;
} partial;

static strata_tensor *gradient_of(strata_tensor *const *x, const void *user) {
    const partial *p = user;
    strata_tensor *dx[2];
    strata_gradients(p->build(x[0], x[1]), NULL, x, 2, dx);
    return dx[p->index];
}

static void expect_partial(builder build, int index, double a, double b, double want) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), a),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), b)};
    expect_values((op_case){gradient_of, &(partial){build, index}, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(), &want);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(binary, gives_the_gradient_to_a_on_a_tie) {
    builder builds[] = {strata_min, strata_max};
    for (int i = 0; i < 2; i++) {
        expect_partial(builds[i], 0, 2, 2, 1);
        expect_partial(builds[i], 1, 2, 2, 0);
    }
}

Test(binary, pow_has_finite_gradients_at_zero) {
    expect_partial(strata_pow, 0, 0, 0, 0);
    expect_partial(strata_pow, 1, 0, 0, 0);
    expect_partial(strata_pow, 0, 0, 2, 0);
    expect_partial(strata_pow, 0, -3, 2, -6);
    expect_partial(strata_pow, 1, -3, 2, 0);
}

Test(binary, can_be_differentiated_twice) {
    strata_array x[2] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1), 1.8, 3, 7),
                         strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3), 1.8, 3, 8)};
    builder builds[] = {strata_mul, strata_div, strata_pow};
    for (int i = 0; i < 3; i++)
        for (int index = 0; index < 2; index++) expect_gradient((op_case){gradient_of, &(partial){builds[i], index}, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

static strata_tensor *fused(strata_tensor *const *x, const void *user) {
    return strata_node(NULL, user, 2, x, NULL);
}

Test(binary, fused_gradients_are_those_of_their_activations) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){2, 2, 2, 4}),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){-1, 0, 0.5, 0.25})};
    expect_values((op_case){fused, &strata_op_relu_grad, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){0, 0, 2, 4});
    expect_values((op_case){fused, &strata_op_tanh_grad, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){0, 2, 1.5, 3.75});
    expect_values((op_case){fused, &strata_op_sigmoid_grad, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(4),
                  (double[]){-4, 0, 0.5, 0.75});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(binary, fused_gradients_agree_with_finite_differences) {
    const strata_op *ops[] = {&strata_op_relu_grad, &strata_op_tanh_grad, &strata_op_sigmoid_grad};
    strata_array x[2] = {strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0.2, 9),
                         strata_test_distinct(STRATA_DTYPE_F32, STRATA_SHAPE(2, 3), 0.2, 10)};
    for (int i = 0; i < 3; i++) expect_gradient((op_case){fused, ops[i], x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(binary, rejects_shapes_that_do_not_broadcast) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1, 5), 0)};
    FOR_EACH_OP(op, arithmetic)
    expect_rejected((op_case){apply, &op->build, x, 2}, "a is (3,4), b is (2,1,5); a's 4 and b's 5 meet in one axis");
    FOR_EACH_OP(op, comparisons)
    expect_rejected((op_case){apply, &op->build, x, 2}, "a is (3,4), b is (2,1,5); a's 4 and b's 5 meet in one axis");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(binary, rejects_operands_of_two_dtypes_and_arithmetic_on_u8) {
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2), 0),
                         strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(2), 0),
                         strata_test_full(STRATA_DTYPE_U8, STRATA_SHAPE(2), 0)};
    strata_array u8[2] = {x[2], x[2]};
    FOR_EACH_OP(op, arithmetic) {
        expect_rejected((op_case){apply, &op->build, x, 2}, "a is f32, b is f16");
        expect_rejected((op_case){apply, &op->build, u8, 2}, "a is u8; it must be f32");
    }
    FOR_EACH_OP(op, comparisons) expect_rejected((op_case){apply, &op->build, x, 2}, "a is f32, b is f16");
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

Test(binary, takes_empty_tensors_without_a_launch) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(3, 0, 2), 0),
                         strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(1, 2), 0)};
    expect_same((op_case){apply, &(builder){strata_add}, x, 2}, x[0]);
    cr_assert_eq(lower_to((op_case){apply, &(builder){strata_add}, x, 2}, NULL), 0);
    cr_assert_eq(lower_to((op_case){apply, &(builder){strata_less}, x, 2}, NULL), 0);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

static int32_t constant_of(const strata_launch *launch, const char *name) {
    for (int i = 0; i < launch->n_constants; i++)
        if (!strcmp(launch->constants[i].name, name)) return launch->constants[i].value;
    cr_assert_fail("there is no constant %s", name);
    return 0;
}

Test(binary, of_equal_shapes_is_one_flat_launch) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4, 5), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 4, 5), 0)};
    strata_launch launch;
    cr_assert_eq(lower_to((op_case){apply, &(builder){strata_mul}, x, 2}, &launch), 1);
    cr_assert_eq(constant_of(&launch, "RANK"), 1);
    cr_assert_eq(launch.n_words, 13);
    cr_assert_eq(launch.words[0].u32, 60);
    cr_assert_eq(launch.words[4].u32, 60); /* the size of axis 3, the innermost */
    cr_assert_eq(launch.words[8].u32, 1);  /* the stride of a along this axis */
    cr_assert_eq(launch.words[12].u32, 1); /* the stride of b along this axis */
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(binary, beyond_four_axes_is_a_launch_for_each_outer_position) {
    /* No two axes can be merged, because a and b are broadcast along alternating axes. */
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 1, 3, 1, 2, 1), 1),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 1, 2, 1, 3), 2)};
    strata_launch launches[MOST_LAUNCHES];
    op_case c = {apply, &(builder){strata_add}, x, 2};
    cr_assert_eq(lower_to(c, launches), 4);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(launches[i].offsets[0], i / 2 * 6);
        cr_assert_eq(launches[i].offsets[1], i % 2 * 6);
        cr_assert_eq(launches[i].offsets[2], i * 36);
        cr_assert_eq(launches[i].extents[2], 36);
        cr_assert_eq(launches[i].extents[1], 6);
    }
    strata_array want = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 3, 2, 2, 3), 3);
    expect_same(c, want);
    strata_array_finish(&want);
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}
