/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for normalisation. */
#include "core/op/rules.h"
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)
#define UNUSED      (void)p, (void)dtype

BUILD(moments) {
    UNUSED;
    return strata_moments(x[0]);
}
BUILD(batch_norm) {
    UNUSED;
    return strata_batch_norm(x[0], x[1], x[2], x[3], x[4], 1e-3);
}
/* The gradient of batch_norm_training with respect to operand p[0]: x, scale or shift. */
BUILD(batch_norm_gradient) {
    strata_tensor *mean, *variance, *dx[3];
    UNUSED;
    strata_tensor *y = strata_batch_norm_training(x[0], x[1], x[2], 1e-3, &mean, &variance);
    strata_gradients(y, x[3], x, 3, dx);
    return dx[p[0]];
}
/* The gradient of batch_norm with respect to x. */
BUILD(batch_norm_gradient_fixed) {
    strata_tensor *dx;
    UNUSED;
    strata_gradients(strata_batch_norm(x[0], x[1], x[2], x[3], x[4], 1e-3), x[5], x, 1, &dx);
    return dx;
}

BUILD(layer_norm) {
    UNUSED;
    return strata_layer_norm(x[0], x[1], x[2], 1e-3);
}
BUILD(layer_norm_grad) {
    strata_tensor *dx;
    UNUSED;
    strata_gradients(strata_layer_norm(x[0], x[1], x[2], 1e-3), x[3], x, 1, &dx);
    return dx;
}

/* Numbers of channels: odd ones, a whole vector of 16, and more than one block of 256. Numbers of rows: for one part of
 * rows, for several, and for many. */
static const case_instance by_channel[] = {
    {.shapes = {{1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}}, .terms = 16},
    {.shapes = {{2, {7, 3}}, {1, {3}}, {1, {3}}, {1, {3}}, {1, {3}}, {2, {7, 3}}}, .terms = 64},
    {.shapes = {{4, {3, 5, 7, 33}}, {1, {33}}, {1, {33}}, {1, {33}}, {1, {33}}, {4, {3, 5, 7, 33}}}, .terms = 256},
    {.shapes = {{2, {131, 16}}, {1, {16}}, {1, {16}}, {1, {16}}, {1, {16}}, {2, {131, 16}}}, .terms = 256},
    {.shapes = {{2, {67, 301}}, {1, {301}}, {1, {301}}, {1, {301}}, {1, {301}}, {2, {67, 301}}}, .terms = 256},
    {.shapes = {{2, {70001, 3}}, {1, {3}}, {1, {3}}, {1, {3}}, {1, {3}}, {2, {70001, 3}}}, .terms = 2048, .big = true},
    {.shapes = {{2, {0, 5}}, {1, {5}}, {1, {5}}, {1, {5}}, {1, {5}}, {2, {0, 5}}}},
    {.shapes = {{2, {5, 0}}, {1, {0}}, {1, {0}}, {1, {0}}, {1, {0}}, {2, {5, 0}}}},
};
/* The square of the mean is a million times the variance. */
static const case_instance far_from_zero[] = {{.shapes = {{2, {131, 16}}}, .terms = 16},
                                              {.shapes = {{2, {1031, 3}}}, .terms = 16}};
#define GRADIENTS(which)                                                                                                \
    {.shapes = {{2, {7, 3}}, {1, {3}}, {1, {3}}, {2, {7, 3}}}, .p = {which}, .terms = 256},                             \
        {.shapes = {{3, {9, 15, 33}}, {1, {33}}, {1, {33}}, {3, {9, 15, 33}}}, .p = {which}, .terms = 1024},            \
        {.shapes = {{2, {4099, 16}}, {1, {16}}, {1, {16}}, {2, {4099, 16}}}, .p = {which}, .terms = 4096, .big = true}, \
        {.shapes = {{2, {0, 5}}, {1, {5}}, {1, {5}}, {2, {0, 5}}}, .p = {which}},
static const case_instance gradients_x[] = {GRADIENTS(0)};
static const case_instance gradients_scale[] = {GRADIENTS(1)};

static const case_instance by_row[] = {
    {.shapes = {{1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}}, .terms = 16},
    {.shapes = {{2, {7, 3}}, {1, {3}}, {1, {3}}, {2, {7, 3}}}, .terms = 256},
    {.shapes = {{3, {3, 5, 33}}, {1, {33}}, {1, {33}}, {3, {3, 5, 33}}}, .terms = 1024},
    {.shapes = {{2, {5, 257}}, {1, {257}}, {1, {257}}, {2, {5, 257}}}, .terms = 2048},
    {.shapes = {{2, {0, 5}}, {1, {5}}, {1, {5}}, {2, {0, 5}}}},
};

#define F32 CASE_DTYPE(STRATA_DTYPE_F32)
#define FLOAT \
    { CASE_UNIFORM, -2, 2, 0, false }
#define CHANNELS(low, high) \
    { CASE_UNIFORM, low, high, F32, false }
#define ROW(name, builder, list, ...)                                                                                 \
    {                                                                                                                 \
        .op = #name, .build = build_##builder, .dtypes = STRATA_FLOATS, .operands = {__VA_ARGS__},                    \
        .n_operands = sizeof((case_operand[]){__VA_ARGS__}) / sizeof(case_operand), .instances = CASE_INSTANCES(list) \
    }

static const op_row norm[] = {
    ROW(moments, moments, by_channel, {CASE_UNIFORM, 3, 7, 0, false}),
    {.op = "moments",
     .variant = "far from zero",
     .build = build_moments,
     .dtypes = 1u << STRATA_DTYPE_F32,
     .n_operands = 1,
     .operands = {{CASE_UNIFORM, 1000, 1001, 0, false}},
     .instances = CASE_INSTANCES(far_from_zero)},
    ROW(batch_norm, batch_norm, by_channel, FLOAT, CHANNELS(-1, 1), CHANNELS(0.5, 2), CHANNELS(-1, 1), CHANNELS(-1, 1)),
    ROW(batch_norm_grad, batch_norm_gradient, gradients_x, FLOAT, CHANNELS(-1, 1), CHANNELS(-1, 1), FLOAT),
    ROW(batch_norm_sums, batch_norm_gradient, gradients_scale, FLOAT, CHANNELS(-1, 1), CHANNELS(-1, 1), FLOAT),
    ROW(layer_norm, layer_norm, by_row, FLOAT, CHANNELS(-1, 1), CHANNELS(-1, 1)),
    ROW(layer_norm_grad, layer_norm_grad, by_row, FLOAT, CHANNELS(-1, 1), CHANNELS(-1, 1), FLOAT),
    ROW(batch_norm_grad, batch_norm_gradient_fixed, by_channel, FLOAT, CHANNELS(-1, 1), CHANNELS(0.5, 2), CHANNELS(-1, 1),
        CHANNELS(-1, 1), FLOAT),
};
const op_table case_norm = {"normalisation", norm, (int)(sizeof norm / sizeof *norm)};
