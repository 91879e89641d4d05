/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d, its two gradients and conv1d, compared with PyTorch, TensorFlow and finite differences; and error messages. */
#include "core/op/conv2d.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/op/op_case.h"

static strata_tensor *conv2d(strata_tensor *const *x, const void *user) {
    return strata_conv2d(x[0], x[1], *(const strata_conv2d_window *)user);
}

/* The operands are x, filter and dy. The value is the gradient with respect to x (which = 0) or the filter (1). */
static strata_tensor *gradient_of(strata_tensor *const *x, const void *user, int which) {
    strata_tensor *dx[2];
    strata_gradients(conv2d(x, user), x[2], x, 2, dx);
    return dx[which];
}
static strata_tensor *input_grad(strata_tensor *const *x, const void *user) {
    return gradient_of(x, user, 0);
}
static strata_tensor *filter_grad(strata_tensor *const *x, const void *user) {
    return gradient_of(x, user, 1);
}

static const struct {
    const char *name;
    strata_conv2d_window options;
} torch_cases[] = {
    {"plain", {.groups = 1}},
    {"padded", {.padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {1, 1, 0, 1}}},
    {"strided", {.stride = {2, 3}, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {0, 2, 1, 1}}},
    {"dilated", {.stride = {1, 2}, .dilation = {2, 3}, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {2, 0, 1, 2}}},
    {"grouped", {.groups = 3, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {1, 1, 1, 1}}},
    {"depthwise", {.stride = {2, 1}, .groups = 5, .padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {1, 1, 1, 1}}},
    {"pointwise", {.groups = 1}},
};
enum { TORCH_CASES = sizeof torch_cases / sizeof *torch_cases };

static const strata_array *get(const strata_golden *golden, const char *name, const char *part) {
    char text[64];
    snprintf(text, sizeof text, "%s_%s", name, part);
    return strata_golden_get(golden, text);
}

Test(conv2d, and_its_gradients_agree_with_pytorch) {
    strata_golden *golden = strata_golden_load("conv2d");
    for (int i = 0; i < TORCH_CASES; i++) {
        const char *name = torch_cases[i].name;
        strata_array x[3] = {*get(golden, name, "x"), *get(golden, name, "filter"), *get(golden, name, "dy")};
        expect_golden((op_case){conv2d, &torch_cases[i].options, x, 2}, get(golden, name, "y"));
        expect_golden((op_case){input_grad, &torch_cases[i].options, x, 3}, get(golden, name, "dx"));
        expect_golden((op_case){filter_grad, &torch_cases[i].options, x, 3}, get(golden, name, "dfilter"));
    }
    strata_golden_destroy(golden);
}

Test(conv2d, pads_as_tensorflow_does) {
    const struct {
        const char *name;
        strata_conv2d_window options;
    } cases[] = {{"odd", {.stride = {2, 2}}},
                 {"even", {.stride = {2, 2}}},
                 {"wide", {.stride = {1, 3}}},
                 {"sparse", {.stride = {2, 2}}},
                 {"dilated", {.dilation = {2, 3}}}};
    strata_golden *golden = strata_golden_load("window_same");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_conv2d_window options = cases[i].options;
        options.padding = STRATA_PADDING_SAME;
        strata_array x[2] = {*get(golden, cases[i].name, "x"), *get(golden, cases[i].name, "filter")};
        expect_golden((op_case){conv2d, &options, x, 2}, get(golden, cases[i].name, "conv"));
    }
    strata_golden_destroy(golden);
}

/* ---- gradients ---- */

static void check_gradient(strata_test_build build, const strata_conv2d_window *options, const strata_shape *shapes, int n) {
    strata_array x[3];
    for (int i = 0; i < n; i++) x[i] = strata_test_random(STRATA_DTYPE_F32, shapes[i], -1, 1, (uint64_t)i + 1);
    expect_gradient((op_case){build, options, x, n});
    for (int i = 0; i < n; i++) strata_array_finish(&x[i]);
}

/* The gradients are differentiated, too: each of the three products with respect to both of its operands. */
Test(conv2d, gradients_agree_with_finite_differences_twice) {
    const struct {
        strata_conv2d_window options;
        strata_shape shapes[3]; /* x, filter, dy */
    } cases[] = {
        {{.groups = 1}, {{4, {1, 3, 3, 2}}, {4, {2, 2, 2, 2}}, {4, {1, 2, 2, 2}}}},
        {{.stride = {2, 1}, .padding = STRATA_PADDING_SAME}, {{4, {1, 4, 3, 1}}, {4, {3, 2, 1, 2}}, {4, {1, 2, 3, 2}}}},
        {{.dilation = {1, 2}, .groups = 2}, {{4, {2, 2, 4, 4}}, {4, {2, 2, 2, 2}}, {4, {2, 1, 2, 2}}}},
        {{.groups = 3, .padding = STRATA_PADDING_SAME}, {{4, {1, 2, 3, 3}}, {4, {2, 2, 1, 3}}, {4, {1, 2, 3, 3}}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_gradient(conv2d, &cases[i].options, cases[i].shapes, 2);
        check_gradient(input_grad, &cases[i].options, cases[i].shapes, 3);
        check_gradient(filter_grad, &cases[i].options, cases[i].shapes, 3);
    }
}

/* ---- edges ---- */

Test(conv2d, takes_every_float_dtype) {
    for (int d = 0; d < 3; d++) {
        strata_array x[2] = {strata_test_array(float_dtypes[d], STRATA_SHAPE(1, 2, 2, 1), (double[]){1, 2, 3, 4}),
                             strata_test_array(float_dtypes[d], STRATA_SHAPE(2, 1, 1, 2), (double[]){1, -1, 2, 0.5})};
        expect_values((op_case){conv2d, &(strata_conv2d_window){.groups = 0}, x, 2}, float_dtypes[d], STRATA_SHAPE(1, 1, 2, 2),
                      (double[]){7, 0.5, 10, 0});
        for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
    }
}

Test(conv2d, of_no_images_is_empty_and_its_filter_gradient_zero) {
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 3, 3, 2), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 2, 1), 1),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2, 2, 1), 0)};
    const strata_conv2d_window plain = {.groups = 0};
    expect_values((op_case){conv2d, &plain, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(0, 2, 2, 1), NULL);
    expect_values((op_case){input_grad, &plain, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(0, 3, 3, 2), NULL);
    expect_values((op_case){filter_grad, &plain, x, 3}, STRATA_DTYPE_F32, STRATA_SHAPE(2, 2, 2, 1), (double[8]){0});
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

static void reject(strata_shape x_shape, strata_shape filter_shape, strata_conv2d_window options, const char *words) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, x_shape, 1), strata_test_full(STRATA_DTYPE_F32, filter_shape, 1)};
    expect_rejected((op_case){conv2d, &options, x, 2}, words);
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
}

Test(conv2d, rejects_what_does_not_fit_and_says_why) {
    const strata_shape x = STRATA_SHAPE(2, 4, 5, 6), f = STRATA_SHAPE(3, 3, 6, 8);
    const strata_conv2d_window plain = {.groups = 0};
    reject(
        STRATA_SHAPE(2, 2, 5, 6), f, plain,
        "conv2d: the output is empty: x is (2,2,5,6), its height 2 padded by 0 and 0 is less than the 3 that the window spans");
    reject(x, f, (strata_conv2d_window){.dilation = {1, 3}}, "its width 5 padded by 0 and 0 is less than the 7");
    reject(STRATA_SHAPE(2, 0, 5, 6), f, (strata_conv2d_window){.padding = STRATA_PADDING_SAME}, "the output is empty");
    reject(x, STRATA_SHAPE(3, 3, 4, 8), plain, "x's 6 channels in 1 groups give 6 a group, which must equal the filter's 4");
    reject(x, STRATA_SHAPE(3, 3, 1, 8), (strata_conv2d_window){.groups = 4}, "its 6 channels can't be divided among 4 groups");
    reject(x, f, (strata_conv2d_window){.groups = 3}, "8 filters can't be divided among 3 groups");
    reject(x, f, (strata_conv2d_window){.groups = -1}, "groups is -1");
    reject(x, f, (strata_conv2d_window){.stride = {1, -2}}, "the stride along the width is -2");
    reject(x, f, (strata_conv2d_window){.dilation = {-1, 1}}, "the dilation along the height is -1");
    reject(x, f, (strata_conv2d_window){.padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {0, -1, 0, 0}},
           "the padding along the height is 0 before and -1 after");
    reject(x, f, (strata_conv2d_window){.padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {0, 0, 0, INT32_MAX}},
           "a padded image has at most");
    reject(x, f, (strata_conv2d_window){.padding = STRATA_PADDING_SAME, .dilation = {INT64_MAX, 1}}, "the dilation along");
    reject(STRATA_SHAPE(4, 5, 6), f, plain, "x is (4,5,6); it must be (images, height, width, channels)");
    reject(x, STRATA_SHAPE(3, 6, 8), plain, "filter is (3,6,8); it must be (height, width, channels of a group, filters)");
    reject(x, STRATA_SHAPE(3, 0, 6, 8), plain, "none of its sizes may be 0");
    strata_array wrong[2] = {strata_test_full(STRATA_DTYPE_F32, x, 1), strata_test_full(STRATA_DTYPE_F16, f, 1)};
    expect_rejected((op_case){conv2d, &plain, wrong, 2}, "x is f32, filter is f16");
    for (int i = 0; i < 2; i++) strata_array_finish(&wrong[i]);
}

/* ---- launches ---- */

Test(conv2d, filter_gradient_of_many_rows_is_cut_in_parts_that_scratch_holds) {
    strata_array x[3] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(64, 32, 32, 3), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 3, 3, 32), 0),
                         strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(64, 32, 32, 32), 0)};
    const strata_conv2d_window same = {.padding = STRATA_PADDING_SAME};
    strata_launch launches[MOST_LAUNCHES];
    cr_assert_eq(lower_to((op_case){filter_grad, &same, x, 3}, launches), 2);
    cr_assert_str_eq(launches[0].kernel, "conv2d_filter_grad");
    cr_assert_null(launches[0].buffers[2]);
    cr_assert_str_eq(launches[1].kernel, "reduce");
    cr_assert_null(launches[1].buffers[0]);
    const uint32_t parts = launches[0].words[16].u32, part = launches[0].words[17].u32;
    cr_assert(parts > 1 && (uint64_t)parts * part >= 65536 && (uint64_t)(parts - 1) * part < 65536);
    for (int i = 0; i < 3; i++) strata_array_finish(&x[i]);
}

/* ---- conv1d ---- */

static strata_tensor *conv1d(strata_tensor *const *x, const void *user) {
    return strata_conv1d(x[0], x[1], *(const strata_conv1d_window *)user);
}

Test(conv1d, slides_along_the_length) {
    strata_array x[2] = {strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(1, 4, 1), (double[]){1, 2, 3, 4}),
                         strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1, 1), (double[]){1, 10, 100})};
    expect_values((op_case){conv1d, &(strata_conv1d_window){0}, x, 2}, STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 1),
                  (double[]){321, 432});
    expect_values((op_case){conv1d, &(strata_conv1d_window){.padding = STRATA_PADDING_SAME, .stride = 3}, x, 2},
                  STRATA_DTYPE_F32, STRATA_SHAPE(1, 2, 1), (double[]){210, 43});
    expect_values(
        (op_case){conv1d,
                  &(strata_conv1d_window){.padding = STRATA_PADDING_EXPLICIT, .explicit_padding = {2, 1}, .dilation = 2}, x, 2},
        STRATA_DTYPE_F32, STRATA_SHAPE(1, 3, 1), (double[]){310, 420, 31});
    expect_rejected((op_case){conv1d, &(strata_conv1d_window){.dilation = 2}, x, 2}, "the output is empty");
    for (int i = 0; i < 2; i++) strata_array_finish(&x[i]);
    strata_array flat[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4, 1), 1),
                            strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3, 1, 1), 1)};
    expect_rejected((op_case){conv1d, &(strata_conv1d_window){0}, flat, 2}, "conv1d: x is (4,1), filter is (3,1,1)");
    for (int i = 0; i < 2; i++) strata_array_finish(&flat[i]);
}
