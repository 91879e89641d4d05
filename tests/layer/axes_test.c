/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with an option for each axis of a picture. A picture whose rows and columns are exchanged, with options and kernels
 * that are exchanged, too, has the same outputs with rows and columns exchanged. So an option is used for its own axis. */
#include <stdio.h>
#include <string.h>

#include "core/model/build.h"
#include "layer_case.h"

enum { HEIGHT = 11, WIDTH = 13, CHANNELS = 2, MOST_PARAMETERS = 512 };

/* Options whose two numbers differ, and the size of the kernel; 0: the layer has none. In `options` each %s is such a pair. */
static const struct {
    const char *options, *pairs[3][2];
    int kernel[2];
} layers[] = {
    {"\"conv2d\", \"filters\": 3, \"kernel_size\": %s, \"stride\": %s", {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}}, {3, 2}},
    {"\"conv2d\", \"filters\": 3, \"kernel_size\": %s, \"dilation\": %s, \"padding\": \"same\"",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
    {"\"conv2d\", \"filters\": 2, \"kernel_size\": %s, \"stride\": %s, \"padding\": \"explicit\", \"explicit_padding\": %s",
     {{"[3, 2]", "[2, 3]"}, {"[1, 2]", "[2, 1]"}, {"[2, 0, 1, 3]", "[1, 3, 2, 0]"}},
     {3, 2}},
    {"\"conv2d_transpose\", \"filters\": 3, \"kernel_size\": %s, \"stride\": %s, \"output_padding\": %s",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}, {"[1, 2]", "[2, 1]"}},
     {3, 2}},
    {"\"conv2d_transpose\", \"filters\": 3, \"kernel_size\": %s, \"dilation\": %s, \"padding\": \"same\"",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
    {"\"depthwise_conv2d\", \"kernel_size\": %s, \"stride\": %s, \"depth_multiplier\": 2",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
    {"\"depthwise_conv2d\", \"kernel_size\": %s, \"dilation\": %s, \"padding\": \"same\"",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
    {"\"separable_conv2d\", \"filters\": 4, \"kernel_size\": %s, \"stride\": %s, \"padding\": \"same\"",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
    {"\"separable_conv2d\", \"filters\": 4, \"kernel_size\": %s, \"dilation\": %s",
     {{"[3, 2]", "[2, 3]"}, {"[2, 3]", "[3, 2]"}},
     {3, 2}},
#define POOL(kind)                                                                                         \
    {"\"" kind "\", \"size\": %s", {{"[2, 3]", "[3, 2]"}}, {0}},                                           \
        {"\"" kind "\", \"size\": %s, \"stride\": %s", {{"[2, 3]", "[3, 2]"}, {"[3, 1]", "[1, 3]"}}, {0}}, \
        {"\"" kind "\", \"size\": %s, \"stride\": %s, \"padding\": \"same\"",                              \
         {{"[4, 3]", "[3, 4]"}, {"[3, 2]", "[2, 3]"}},                                                     \
         {0}},                                                                                             \
    {                                                                                                      \
        "\"" kind "\", \"size\": %s, \"stride\": %s, \"padding\": \"explicit\", \"explicit_padding\": %s", \
            {{"[3, 4]", "[4, 3]"}, {"[1, 2]", "[2, 1]"}, {"[1, 0, 2, 3]", "[2, 3, 1, 0]"}}, {              \
            0                                                                                              \
        }                                                                                                  \
    }
    POOL("max_pool2d"),
    POOL("avg_pool2d"),
};
/* A model has parameters. */
#define DENSE ", {\"layer\": \"dense\", \"units\": 2}"
enum { N_LAYERS = sizeof layers / sizeof *layers };

static strata_model *model_of(int which, bool exchanged) {
    char options[400], text[512];
    strata_error err = {0};
    strata_model *model = NULL;
    snprintf(options, sizeof options, layers[which].options, layers[which].pairs[0][exchanged],
             layers[which].pairs[1][exchanged], layers[which].pairs[2][exchanged]);
    snprintf(text, sizeof text, "{\"input\": [%d, %d, %d], \"layers\": [{\"layer\": %s}%s]}", exchanged ? WIDTH : HEIGHT,
             exchanged ? HEIGHT : WIDTH, CHANNELS, options, layers[which].kernel[0] ? "" : DENSE);
    cr_assert_eq(strata_model_from_json(text, strlen(text), "test", &model, &err), STRATA_OK, "%s", err.message);
    return model;
}

/* to (columns, rows, n) = from (rows, columns, n) with its first two axes exchanged. */
static void exchange(const float *from, int64_t rows, int64_t columns, int64_t n, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(to + (c * rows + r) * n, from + (r * columns + c) * n, (size_t)n * sizeof *to);
}

Test(axes, an_option_of_an_axis_is_used_for_this_axis) {
    for (int i = 0; i < N_LAYERS; i++) {
        strata_model *model = model_of(i, false), *other = model_of(i, true);
        strata_error err = {0};
        cr_assert_eq(strata_model_declare(model, &err), STRATA_OK, "%s", err.message);
        const int64_t taps = layers[i].kernel[0] * layers[i].kernel[1];
        const int64_t rest = taps ? strata_shape_elements(strata_model_parameter(model, 0).shape) / taps : 0;
        float kernel[MOST_PARAMETERS], exchanged_kernel[MOST_PARAMETERS];
        double parameters[MOST_PARAMETERS], exchanged_parameters[MOST_PARAMETERS];
        for (int k = 0; k < MOST_PARAMETERS; k++)
            kernel[k] = 0.125F * (float)(k * 37 % 41) - 2, exchanged_kernel[k] = kernel[k];
        exchange(kernel, layers[i].kernel[0], layers[i].kernel[1], rest, exchanged_kernel);
        for (int k = 0; k < MOST_PARAMETERS; k++)
            parameters[k] = (double)kernel[k], exchanged_parameters[k] = (double)exchanged_kernel[k];
        strata_array x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(1, HEIGHT, WIDTH, CHANNELS), -1, 1, 1), turned, want;
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1, WIDTH, HEIGHT, CHANNELS), &turned, &err), STRATA_OK);
        exchange(x.data, HEIGHT, WIDTH, CHANNELS, turned.data);
        strata_array y = layer_run(model, &x, parameters, false), got = layer_run(other, &turned, exchanged_parameters, false);
        const int64_t rows = y.shape.dims[1], columns = y.shape.dims[2], n = y.shape.dims[3];
        cr_assert_eq(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(1, columns, rows, n), &want, &err), STRATA_OK);
        exchange(y.data, rows, columns, n, want.data);
        strata_test_result same = strata_test_compare(&got, &want, strata_test_tolerance_of(STRATA_DTYPE_F32, 64));
        cr_expect(same.ok, "layer %d, %s: %s", i, layers[i].options, same.text);
        cr_expect_neq(rows, columns, "layer %d, %s: its outputs are square, which proves little", i, layers[i].options);
        strata_array_finish(&x);
        strata_array_finish(&turned);
        strata_array_finish(&y);
        strata_array_finish(&got);
        strata_array_finish(&want);
        strata_model_destroy(model);
        strata_model_destroy(other);
    }
}
