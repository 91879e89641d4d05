/* SPDX-License-Identifier: Apache-2.0
 *
 * The families gpu/conv2d, ..input_grad and ..filter_grad: convolutions as products of tiles (shaders/conv2d_tiles.kernel,
 * conv2d_filter_grad_tiles.kernel) for real GPUs. Those with few columns, depthwise ones above all, would leave most of a tile empty: they are left
 * to the portable kernels. */
#include "backends/kernel/gpu_tiles.h"
#include "core/op/conv2d.h"
#include "core/op/copy.h"

enum {
    LEAST_COLUMNS = 8,
    ROW_WORDS = 4,      /* of conv2d_tiles in local memory */
    STEP_WORDS = 6,     /* of conv2d_filter_grad_tiles */
    NOMINAL_TILE = 64,  /* rows and columns */
    ENOUGH_TILES = 512, /* keep a large device busy */
    LEAST_PART = 256,   /* rows of a filter gradient's part: shorter sums are not worth their fold */
    MOST_PART = 16384
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

static strata_tiled_product product_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    const int64_t classes = transposed ? s.stride[0] * s.stride[1] : 1;
    const int64_t rows =
        transposed ? s.n * ceil_div(s.in_h, s.stride[0]) * ceil_div(s.in_w, s.stride[1]) : s.n * s.out_h * s.out_w;
    return (strata_tiled_product){.m = rows, .n = columns_of(node), .batch = classes * s.groups, .words_a_row = ROW_WORDS};
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_tiled_product product = product_of(node);
    return strata_tiles_candidates(limits, &product, STRATA_CANDIDATES, out);
}

static strata_status lower(const strata_tensor *node, const strata_candidate *candidate, strata_lowering *lowering,
                           strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    const strata_tiled_product product = product_of(node);
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch(node, &launch, err));
    for (int d = 0; d < 2; d++) /* taps of one class of pixels lie so far apart */
        strata_launch_word(&launch)->u32 =
            transposed ? (uint32_t)(s.stride[d] / greatest_common_divisor(s.stride[d], s.dilation[d])) : 1;
    launch.kernel = "conv2d_tiles";
    strata_tiles_launch(candidate, &launch);
    launch.global[0] *= strata_tiles_count(&product, candidate->values);
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- the gradient by the filter ---- */

static strata_tiled_product part_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return (strata_tiled_product){
        .m = s.kernel_h * s.kernel_w * s.group_in, .n = s.group_out, .batch = s.groups, .words_a_step = STEP_WORDS};
}

/* Rows of a part: by the shape alone, since they decide the bits. */
static int64_t rows_of_part(const strata_tensor *node) {
    static const int nominal[TILE_VALUES] = {1, 1, NOMINAL_TILE, NOMINAL_TILE, 1};
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const strata_tiled_product product = part_of(node);
    const int64_t rows = s.n * s.out_h * s.out_w, tiles = strata_tiles_count(&product, nominal);
    int64_t parts = 1;
    while ((parts * tiles < ENOUGH_TILES && rows >= 2 * parts * LEAST_PART) || rows > parts * MOST_PART) parts *= 2;
    return rows ? ceil_div(rows, parts) : 1;
}

static int filter_grad_candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    strata_tiled_product product = part_of(node);
    product.batch *= ceil_div(s.n * s.out_h * s.out_w, rows_of_part(node));
    return strata_tiles_candidates(limits, &product, STRATA_CANDIDATES, out);
}

static strata_status filter_grad_lower(const strata_tensor *node, const strata_candidate *candidate, strata_lowering *lowering,
                                       strata_error *err) {
    const strata_tiled_product product = part_of(node);
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
