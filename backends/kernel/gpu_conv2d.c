/* SPDX-License-Identifier: Apache-2.0
 *
 * The families gpu/conv2d, ..input_grad and ..filter_grad: convolutions as products of tiles (shaders/conv2d_tiles.kernel,
 * conv2d_filter_grad_tiles.kernel) for real GPUs. Those with few columns, depthwise ones above all, would leave most of a tile
 * empty: they are left to the portable kernels. */
#include "backends/kernel/gpu_tiles.h"
#include "core/op/conv2d.h"
#include "core/op/copy.h"
#include "core/op/ops.h"

enum {
    LEAST_COLUMNS = 8,
    LEAST_ROWS = 256, /* of a filter gradient's part: its fold goes over large filters */
    MOST_ROWS = 16384 /* longer chains of f32 lose precision */
};

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t columns_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return node->op == &strata_op_conv2d_input_grad ? s.group_in : s.group_out;
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_tiles_fit(limits) && columns_of(node) >= LEAST_COLUMNS;
}

/* ---- conv2d and its gradient by the input ---- */

/* In the gradient: how far apart along an axis the taps lie that meet the same pixels. */
static int64_t tap_step(const strata_conv2d_sizes *s, int axis) {
    return s->stride[axis] / greatest_common_divisor(s->stride[axis], s->dilation[axis]);
}

static strata_tiled_product product_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    const int64_t classes = transposed ? s.stride[0] * s.stride[1] : 1;
    const int64_t rows =
        transposed ? s.n * ceil_div(s.in_h, s.stride[0]) * ceil_div(s.in_w, s.stride[1]) : s.n * s.out_h * s.out_w;
    return (strata_tiled_product){.m = rows, .n = columns_of(node), .batch = classes * s.groups, .words_a_row = TILE_ROW_WORDS};
}

/* Of the fold; in the gradient those of the class with the most taps. */
static int64_t steps_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    if (node->op != &strata_op_conv2d_input_grad) return s.kernel_h * s.kernel_w * s.group_in;
    return ceil_div(s.kernel_h, tap_step(&s, 0)) * ceil_div(s.kernel_w, tap_step(&s, 1)) * s.group_out;
}

static int64_t part_of(const strata_tensor *node) {
    const strata_tiled_product product = product_of(node);
    return strata_tiles_part(&product, steps_of(node), TILE_LEAST_PART);
}

static int64_t n_parts(const strata_tensor *node) {
    const int64_t steps = steps_of(node);
    return steps ? ceil_div(steps, part_of(node)) : 1;
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    strata_tiled_product product = product_of(node);
    product.batch *= n_parts(node);
    return strata_tiles_candidates(limits, &product, out);
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    const strata_tiled_product product = product_of(node);
    const int64_t parts = n_parts(node);
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch(node, &launch, err));
    for (int d = 0; d < 2; d++) strata_launch_word(&launch)->u32 = transposed ? (uint32_t)tap_step(&s, d) : 1;
    strata_launch_word(&launch)->u32 = (uint32_t)parts;
    strata_launch_word(&launch)->u32 = (uint32_t)part_of(node);
    launch.kernel = "conv2d_tiles";
    strata_tiles_launch(candidate, &launch);
    strata_tiles_launch_parts(node, parts, &launch);
    launch.global[0] *= parts * strata_tiles_count(&product, candidate->values);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return parts > 1 ? strata_tiles_fold(node, columns_of(node) * s.groups, parts, lowering, err) : STRATA_OK;
}

/* ---- the gradient by the filter ---- */

static strata_tiled_product sums_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return (strata_tiled_product){
        .m = s.kernel_h * s.kernel_w * s.group_in, .n = s.group_out, .batch = s.groups, .words_a_step = TILE_STEP_WORDS};
}

/* Rows of a part: by the shape alone, since they decide the bits. */
static int64_t rows_of_part(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const strata_tiled_product product = sums_of(node);
    const int64_t part = strata_tiles_part(&product, s.n * s.out_h * s.out_w, LEAST_ROWS);
    return part < MOST_ROWS ? part : MOST_ROWS;
}

static int filter_grad_candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    strata_tiled_product product = sums_of(node);
    product.batch *= ceil_div(s.n * s.out_h * s.out_w, rows_of_part(node));
    return strata_tiles_candidates(limits, &product, out);
}

static strata_status filter_grad_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                       const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const strata_tiled_product product = sums_of(node);
    strata_launch launch = {.kernel = "conv2d_filter_grad_tiles"};
    strata_tiles_launch(candidate, &launch);
    return strata_conv2d_filter_grad_lower_parts(
        node, rows_of_part(node), &launch, launch.global[0] * strata_tiles_count(&product, candidate->values), lowering, err);
}

const strata_family strata_family_gpu_conv2d = {
    .name = "gpu/conv2d", .op = "conv2d", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_gpu_conv2d_input_grad = {
    .name = "gpu/conv2d_input_grad", .op = "conv2d_input_grad", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_gpu_conv2d_filter_grad = {.name = "gpu/conv2d_filter_grad",
                                                            .op = "conv2d_filter_grad",
                                                            .fits = fits,
                                                            .candidates = filter_grad_candidates,
                                                            .lower = filter_grad_lower};
