/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows for convolutions and pools. */
#include "core/op/pool2d.h"
#include "core/op/rules.h"
#include "tests/conformance/case.h"

#define BUILD(name) static strata_tensor *build_##name(strata_tensor *const *x, const int64_t *p, strata_dtype dtype)
#define UNUSED      (void)dtype

/* Positions in p: stride, dilation, groups, padding, and the explicit padding at the top, bottom, left and right. */
enum { STRIDE = 0, DILATION = 2, GROUPS = 4, PADDING = 5, EXPLICIT = 6 };
#define SAME  STRATA_PADDING_SAME
#define GIVEN STRATA_PADDING_EXPLICIT

static strata_conv2d_window conv_options(const int64_t *p) {
    return (strata_conv2d_window){.stride = {p[STRIDE], p[STRIDE + 1]},
                                  .dilation = {p[DILATION], p[DILATION + 1]},
                                  .groups = p[GROUPS],
                                  .padding = (strata_padding)p[PADDING],
                                  .explicit_padding = {p[EXPLICIT], p[EXPLICIT + 1], p[EXPLICIT + 2], p[EXPLICIT + 3]}};
}

/* The gradient for dy = 2 y. Because of the factor the compiler cannot merge dy with y. */
static strata_tensor *conv_gradient(strata_tensor *const *x, const int64_t *p, int which) {
    strata_tensor *dx[2] = {NULL, NULL}, *y = strata_conv2d(x[0], x[1], conv_options(p));
    strata_gradients(y, strata_add(y, y), x, 2, dx);
    return dx[which];
}

BUILD(conv2d) {
    UNUSED;
    return strata_conv2d(x[0], x[1], conv_options(p));
}
/* A convolution with a bias and an activation, which are fused. The bias consists of the filter's first values. */
static strata_tensor *with_bias(strata_tensor *const *x, const int64_t *p) {
    const int64_t k = x[1]->shape.dims[3];
    strata_tensor *bias = strata_slice(x[1], (const int64_t[]){0, 0, 0, 0}, (const int64_t[]){1, 1, 1, k});
    return strata_add(strata_conv2d(x[0], x[1], conv_options(p)), strata_reshape(bias, STRATA_SHAPE(k)));
}
BUILD(conv2d_relu) {
    UNUSED;
    return strata_relu(with_bias(x, p));
}
BUILD(conv2d_tanh) {
    UNUSED;
    return strata_tanh(with_bias(x, p));
}
BUILD(conv2d_input_grad) {
    UNUSED;
    return conv_gradient(x, p, 0);
}
BUILD(conv2d_filter_grad) {
    UNUSED;
    return conv_gradient(x, p, 1);
}

/* Shapes of x and the filter. terms: for y and for both gradients. */
static const case_instance convolutions[] = {
    {.shapes = {{4, {1, 1, 1, 1}}, {4, {1, 1, 1, 1}}}, .terms = 4},
    {.shapes = {{4, {2, 5, 5, 3}}, {4, {3, 3, 3, 8}}}, .p = {[PADDING] = SAME}, .terms = 400},
    /* more padding after */
    {.shapes = {{4, {1, 6, 7, 2}}, {4, {2, 2, 2, 5}}}, .p = {2, 2, [PADDING] = SAME}, .terms = 200},
    {.shapes = {{4, {2, 7, 5, 4}}, {4, {3, 2, 4, 7}}}, .p = {2, 1, 1, 2}, .terms = 400},               /* dilated */
    {.shapes = {{4, {3, 9, 8, 6}}, {4, {3, 3, 2, 9}}}, .p = {1, 2, [GROUPS] = 3, SAME}, .terms = 400}, /* groups */
    {.shapes = {{4, {2, 6, 6, 5}}, {4, {3, 3, 1, 5}}}, .p = {[GROUPS] = 5, SAME}, .terms = 300},       /* depthwise */
    /* depthwise, 2 filters */
    {.shapes = {{4, {2, 4, 4, 3}}, {4, {3, 3, 1, 6}}}, .p = {[GROUPS] = 3, SAME}, .terms = 300},
    /* depthwise, vectors */
    {.shapes = {{4, {1, 4, 5, 19}}, {4, {3, 2, 1, 19}}}, .p = {2, 1, [GROUPS] = 19, SAME}, .terms = 300},
    /* 1 x 1, prime sizes */
    {.shapes = {{4, {2, 4, 3, 17}}, {4, {1, 1, 17, 13}}}, .terms = 400},
    /* filter of image size */
    {.shapes = {{4, {3, 4, 5, 3}}, {4, {4, 5, 3, 4}}}, .terms = 300},
    {.shapes = {{4, {0, 4, 4, 3}}, {4, {3, 3, 3, 4}}}}, /* no images */
    {.shapes = {{4, {1, 3, 4, 2}}, {4, {3, 2, 2, 3}}}, .p = {3, 2, [PADDING] = GIVEN, 2, 1, 0, 3}, .terms = 300},
    {.shapes = {{4, {1, 1, 11, 3}}, {4, {1, 4, 3, 10}}}, .p = {1, 3, 1, 2, [PADDING] = SAME}, .terms = 300}, /* one row */
};
/* The sums are long enough to be divided into parts. */
static const case_instance long_convolutions[] = {
    {.shapes = {{4, {3, 17, 19, 3}}, {4, {3, 3, 3, 10}}}, .p = {[PADDING] = SAME}, .terms = 32000, .big = true},
    {.shapes = {{4, {4, 16, 16, 16}}, {4, {3, 3, 16, 32}}}, .terms = 64000, .big = true},
};

/* The numbers of channels are multiples of the number of lanes of a CPU's vectors, or are larger but no multiples. Tiles of
 * pixels overlap. */
static const case_instance wide_convolutions[] = {
    {.shapes = {{4, {2, 5, 15, 16}}, {4, {3, 3, 16, 32}}}, .terms = 48000}, /* by Winograd where a device has it */
    {.shapes = {{4, {1, 3, 31, 3}}, {4, {3, 3, 3, 16}}}, .p = {[PADDING] = SAME}, .terms = 4000},
    {.shapes = {{4, {2, 4, 29, 17}}, {4, {2, 3, 17, 37}}}, .p = {[PADDING] = SAME}, .terms = 8000},
    {.shapes = {{4, {3, 7, 9, 16}}, {4, {3, 3, 16, 48}}}, .p = {2, 2, [PADDING] = SAME}, .terms = 8000},
    {.shapes = {{4, {2, 9, 8, 18}}, {4, {3, 2, 18, 64}}}, .p = {2, 1, 1, 3}, .terms = 8000},
    {.shapes = {{4, {2, 5, 6, 20}}, {4, {3, 3, 20, 16}}}, .p = {3, 2, [PADDING] = GIVEN, 3, 1, 0, 4}, .terms = 8000},
    {.shapes = {{4, {5, 1, 1, 33}}, {4, {1, 1, 33, 65}}}, .terms = 4000},
    {.shapes = {{4, {9, 1, 23, 16}}, {4, {1, 5, 16, 32}}}, .p = {[PADDING] = SAME}, .terms = 8000},
    {.shapes = {{4, {1, 4, 4, 16}}, {4, {3, 3, 16, 128}}}, .p = {[PADDING] = SAME}, .terms = 96000},
    {.shapes = {{4, {2, 6, 6, 16}}, {4, {1, 1, 16, 16}}}, .p = {3, 3}, .terms = 4000}, /* some pixels are never read */
    {.shapes = {{4, {1, 5, 5, 16}}, {4, {2, 2, 16, 16}}}, .p = {[PADDING] = GIVEN, 3, 3, 3, 3}, .terms = 4000},
};
/* Images that a CPU's gradient by the filter divides into chunks of rows, with a stride between rows. */
static const case_instance chunked_convolutions[] = {
    {.shapes = {{4, {1, 14, 81, 16}}, {4, {3, 3, 16, 16}}}, .p = {3, 2, [PADDING] = SAME}, .terms = 8000},
};
/* 3 x 3 filters with stride 1, and enough channels for Winograd's algorithm with tiles of 4 x 4. The instances include
 * tiles that extend beyond an edge of the image, vectors of channels that overlap, blocks of tiles that extend beyond the
 * last tile, and a gradient by the filter that is divided into parts. Rounding errors are 2.4 times those of the rows
 * above. The tolerance grows with the square root of `terms`, so `terms` is 6 times as large. */
static const case_instance winograd_convolutions[] = {
    {.shapes = {{4, {2, 9, 11, 16}}, {4, {3, 3, 16, 32}}}, .terms = 48000},
    {.shapes = {{4, {1, 4, 4, 16}}, {4, {3, 3, 16, 16}}}, .p = {[PADDING] = SAME}, .terms = 48000},
    {.shapes = {{4, {3, 8, 8, 17}}, {4, {3, 3, 17, 35}}}, .p = {[PADDING] = SAME}, .terms = 48000},
    {.shapes = {{4, {5, 13, 5, 33}}, {4, {3, 3, 33, 48}}}, .p = {[PADDING] = SAME}, .terms = 96000},
    {.shapes = {{4, {2, 10, 9, 20}}, {4, {3, 3, 20, 16}}}, .p = {[PADDING] = GIVEN, 1, 2, 0, 2}, .terms = 48000},
    {.shapes = {{4, {3, 7, 6, 16}}, {4, {3, 3, 16, 64}}}, .p = {[PADDING] = GIVEN, 2, 2, 2, 2}, .terms = 48000},
    {.shapes = {{4, {0, 8, 8, 16}}, {4, {3, 3, 16, 16}}}},
    {.shapes = {{4, {37, 10, 11, 16}}, {4, {3, 3, 16, 32}}}, .terms = 384000, .big = true},
};
static const case_instance fused_convolutions[] = {
    {.shapes = {{4, {2, 9, 10, 16}}, {4, {3, 3, 16, 19}}}, .p = {[PADDING] = SAME}, .terms = 2400},
    {.shapes = {{4, {2, 4, 29, 17}}, {4, {2, 3, 17, 37}}}, .p = {[PADDING] = SAME}, .terms = 400},
    {.shapes = {{4, {1, 5, 15, 3}}, {4, {3, 3, 3, 32}}}, .terms = 400},
    {.shapes = {{4, {2, 4, 4, 3}}, {4, {3, 3, 1, 6}}}, .p = {[GROUPS] = 3, SAME}, .terms = 300},
};

/* p: stride, padding and explicit padding as above; size at p[10]. */
static strata_pool2d_window pool_options(const int64_t *p) {
    return (strata_pool2d_window){.size = {p[10], p[11]},
                                  .stride = {p[STRIDE], p[STRIDE + 1]},
                                  .padding = (strata_padding)p[PADDING],
                                  .explicit_padding = {p[EXPLICIT], p[EXPLICIT + 1], p[EXPLICIT + 2], p[EXPLICIT + 3]}};
}
static strata_tensor *pool_gradient(strata_tensor *x, strata_tensor *y) {
    strata_tensor *dx = NULL;
    strata_gradients(y, strata_add(y, y), &x, 1, &dx);
    return dx;
}

BUILD(max_pool2d) {
    UNUSED;
    return strata_max_pool2d(x[0], pool_options(p));
}
BUILD(max_pool2d_grad) {
    UNUSED;
    return pool_gradient(x[0], strata_max_pool2d(x[0], pool_options(p)));
}
BUILD(max_pool2d_grad_rectified) {
    return strata_max_pool2d_grad_rectified(build_max_pool2d_grad(x, p, dtype), x[0]);
}
/* Reads elements of other values at the positions of the maxima: it is the gradient of the gradient, for a dy that does not
 * depend on x. */
BUILD(max_pool2d_pick) {
    strata_tensor *dx = NULL, *ddy = NULL, *y = strata_max_pool2d(x[0], pool_options(p));
    strata_tensor *dy = strata_broadcast_to(strata_scalar(x[0]->graph, dtype, 1), strata_tensor_shape(y));
    strata_gradients(y, dy, x, 1, &dx);
    strata_gradients(dx, x[1], &dy, 1, &ddy);
    return ddy;
}
BUILD(avg_pool2d) {
    UNUSED;
    return strata_avg_pool2d(x[0], pool_options(p));
}
BUILD(avg_pool2d_grad) {
    UNUSED;
    return pool_gradient(x[0], strata_avg_pool2d(x[0], pool_options(p)));
}

#define IMAGES(...)           \
    {                         \
        {4, {__VA_ARGS__}}, { \
            4, {              \
                __VA_ARGS__   \
            }                 \
        }                     \
    }
static const case_instance pools[] = {
    {.shapes = IMAGES(1, 1, 1, 1), .p = {[10] = 1, 1}, .terms = 4},
    {.shapes = IMAGES(2, 6, 4, 8), .p = {[10] = 2, 2}, .terms = 16},
    {.shapes = IMAGES(2, 7, 5, 3), .p = {[10] = 2, 2}, .terms = 16},
    {.shapes = IMAGES(1, 7, 6, 12), .p = {2, 2, [PADDING] = SAME, [10] = 3, 3}, .terms = 32},
    {.shapes = IMAGES(2, 5, 5, 2), .p = {1, 1, [PADDING] = SAME, [10] = 3, 2}, .terms = 32},
    {.shapes = IMAGES(1, 4, 9, 17), .p = {3, 1, [PADDING] = GIVEN, 1, 2, 0, 3, 3, 4}, .terms = 64},
    {.shapes = IMAGES(2, 5, 3, 6), .p = {[10] = 5, 3}, .terms = 32},
    {.shapes = IMAGES(0, 4, 4, 3), .p = {[10] = 2, 2}},
    /* unequal sizes and strides, without overlap and, in the second one, with padding */
    {.shapes = IMAGES(2, 5, 11, 6), .p = {2, 4, [10] = 2, 3}, .terms = 16},
    {.shapes = IMAGES(1, 7, 5, 16), .p = {4, 2, [PADDING] = SAME, [10] = 3, 2}, .terms = 16},
    {.shapes = IMAGES(3, 7, 5, 37), .p = {[10] = 2, 2}, .terms = 16}, /* whole vectors of channels and a rest */
    {.shapes = IMAGES(2, 5, 6, 16), .p = {1, 2, [PADDING] = SAME, [10] = 3, 3}, .terms = 32},
    {.shapes = IMAGES(1, 8, 8, 5), .p = {3, 3, [10] = 2, 2}, .terms = 16}, /* elements that no window covers */
};

#define FLOAT \
    { CASE_UNIFORM, -1, 1, 0, false }
#define ROW(name, builder, list, ...)                                                                                   \
    {                                                                                                                   \
        .op = #name, .variant = #builder, .build = build_##builder, .dtypes = STRATA_FLOATS, .operands = {__VA_ARGS__}, \
        .n_operands = sizeof((case_operand[]){__VA_ARGS__}) / sizeof(case_operand), .instances = CASE_INSTANCES(list)   \
    }
#define POOL_GRAD(builder, values)                                                                                         \
    {                                                                                                                      \
        .op = "max_pool2d_grad", .variant = #builder " " #values, .build = build_##builder, .dtypes = STRATA_FLOATS,       \
        .operands = {{values, -3, 3, 0, false}}, .n_operands = 1, .instances = CASE_INSTANCES(pools), .not_oclgrind = true \
    }
/* f32 only: sums of partial sums have larger errors in f16 and bf16 than the tolerance allows. */
#define LONG(name)                                                                                   \
    {                                                                                                \
        .op = #name, .variant = "in parts", .build = build_##name, .dtypes = 1u << STRATA_DTYPE_F32, \
        .operands = {FLOAT, FLOAT}, .n_operands = 2, .instances = CASE_INSTANCES(long_convolutions)  \
    }
#define TYPED_ROW(types, of, name, what, list, ...)                                                                      \
    {                                                                                                                    \
        .op = #of, .variant = what, .build = build_##name, .dtypes = types, .operands = {FLOAT, FLOAT}, .n_operands = 2, \
        .instances = CASE_INSTANCES(list), __VA_ARGS__                                                                   \
    }
#define F32_ONLY               (1u << STRATA_DTYPE_F32)
#define F32_ROW(of, name, ...) TYPED_ROW(F32_ONLY, of, name, __VA_ARGS__)
/* The gradient by the filter is part of each row. With f16 and bf16 the kernel cpu/conv2d_filter_grad computes it, about
 * which Oclgrind reports wrong errors. */
#define CONVOLUTION(name)                                   \
    TYPED_ROW(F32_ONLY, name, name, "f32", convolutions, ), \
        TYPED_ROW(STRATA_FLOATS & ~F32_ONLY, name, name, "halves", convolutions, .not_oclgrind = true)
#define WIDE(name, ...)     F32_ROW(name, name, "wide", wide_convolutions, __VA_ARGS__)
#define WINOGRAD(name, ...) F32_ROW(name, name, "winograd", winograd_convolutions, __VA_ARGS__)

static const op_row window[] = {
    CONVOLUTION(conv2d),
    CONVOLUTION(conv2d_input_grad),
    CONVOLUTION(conv2d_filter_grad),
    WIDE(conv2d, ),
    WIDE(conv2d_input_grad, ),
    WIDE(conv2d_filter_grad, .not_oclgrind = true),
    WINOGRAD(conv2d, .not_oclgrind = true),
    WINOGRAD(conv2d_input_grad, .not_oclgrind = true),
    WINOGRAD(conv2d_filter_grad, .not_oclgrind = true),
    F32_ROW(conv2d, conv2d_relu, "relu", fused_convolutions, ),
    F32_ROW(conv2d, conv2d_tanh, "tanh", fused_convolutions, ),
    LONG(conv2d),
    LONG(conv2d_input_grad),
    LONG(conv2d_filter_grad),
    ROW(max_pool2d, max_pool2d, pools, {CASE_EXTREME, -3, 3, 0, false}),
    ROW(max_pool2d, max_pool2d_pick, pools, {CASE_EXTREME, -3, 3, 0, false}, FLOAT),
    POOL_GRAD(max_pool2d_grad, CASE_WHOLE),
    POOL_GRAD(max_pool2d_grad_rectified, CASE_WHOLE),
    POOL_GRAD(max_pool2d_grad, CASE_EXTREME),
    POOL_GRAD(max_pool2d_grad_rectified, CASE_EXTREME),
    ROW(avg_pool2d, avg_pool2d, pools, FLOAT),
    ROW(avg_pool2d_grad, avg_pool2d_grad, pools, FLOAT),
    F32_ROW(conv2d_filter_grad, conv2d_filter_grad, "chunks", chunked_convolutions, .not_oclgrind = true)};
const op_table case_window = {"convolutions and pools", window, (int)(sizeof window / sizeof *window)};
