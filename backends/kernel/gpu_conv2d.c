/* SPDX-License-Identifier: Apache-2.0
 *
 * The families gpu/conv2d, gpu/conv2d_input_grad and gpu/conv2d_filter_grad for real GPUs: convolutions as products of
 * tiles (shaders/conv2d_tiles.kernel, conv2d_filter_grad_tiles.kernel). Convolutions with few columns are left to the
 * portable kernels. */
#include "backends/kernel/gpu_conv2d.h"

#include "core/op/conv2d.h"
#include "core/op/copy.h"
#include "core/op/ops.h"

enum {
    LEAST_COLUMNS = 8,
    /* The fewest rows in a part of a filter gradient. Adding the parts reads all of them, and filters may be large. */
    LEAST_ROWS = 256,
    /* The most rows in a part. Longer sums in f32 lose precision. */
    MOST_ROWS = 16384
};

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- sizes ---- */

/* In the gradient by the input: the distance along an axis between two taps that meet the same pixels. */
static int64_t tap_step(const strata_conv2d_sizes *s, int axis) {
    return s->stride[axis] / greatest_common_divisor(s->stride[axis], s->dilation[axis]);
}

static strata_conv2d_product_sizes forward_product(const strata_conv2d_sizes *s) {
    return (strata_conv2d_product_sizes){.product = {.m = s->n * s->out_h * s->out_w, .n = s->group_out, .batch = s->groups},
                                         .steps = s->kernel_h * s->kernel_w * s->group_in};
}

static strata_conv2d_product_sizes input_grad_product(const strata_conv2d_sizes *s) {
    const int64_t taps = strata_ceil_div(s->kernel_h, tap_step(s, 0)) * strata_ceil_div(s->kernel_w, tap_step(s, 1));
    return (strata_conv2d_product_sizes){
        .product = {.m = s->n * strata_ceil_div(s->in_h, s->stride[0]) * strata_ceil_div(s->in_w, s->stride[1]),
                    .n = s->group_in,
                    .batch = s->stride[0] * s->stride[1] * s->groups},
        .steps = taps * s->group_out};
}

strata_conv2d_product_sizes strata_conv2d_product_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    if (node->op == &strata_op_conv2d_filter_grad) {
        strata_conv2d_product_sizes sums = {
            .product = {.m = s.kernel_h * s.kernel_w * s.group_in, .n = s.group_out, .batch = s.groups},
            .steps = s.n * s.out_h * s.out_w};
        const int64_t part = strata_tiles_part(&sums.product, sums.steps, LEAST_ROWS);
        sums.product.words_a_step = TILE_STEP_WORDS;
        sums.part = part < MOST_ROWS ? part : MOST_ROWS;
        return sums;
    }
    strata_conv2d_product_sizes p = node->op == &strata_op_conv2d_input_grad ? input_grad_product(&s) : forward_product(&s);
    p.product.words_a_row = TILE_ROW_WORDS;
    p.part = strata_tiles_part(&p.product, p.steps, TILE_LEAST_PART);
    return p;
}

static int64_t n_parts(const strata_conv2d_product_sizes *p) {
    return p->steps ? strata_ceil_div(p->steps, p->part) : 1;
}

bool strata_conv2d_suits_tiles(const strata_tensor *node) {
    return strata_conv2d_product_of(node).product.n >= LEAST_COLUMNS;
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_tiles_fit(limits) && strata_conv2d_suits_tiles(node);
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    p.product.batch *= n_parts(&p);
    return strata_tiles_candidates(limits, &p.product, out);
}

/* ---- conv2d and its gradient by the input ---- */

strata_status strata_conv2d_launch_tiles(const strata_tensor *node, int64_t parts, int64_t part, strata_launch *out_launch,
                                         strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    STRATA_TRY(strata_conv2d_launch(node, out_launch, err));
    for (int d = 0; d < 2; d++) strata_launch_word(out_launch)->u32 = transposed ? (uint32_t)tap_step(&s, d) : 1;
    strata_launch_word(out_launch)->u32 = (uint32_t)parts;
    strata_launch_word(out_launch)->u32 = (uint32_t)part;
    strata_tiles_launch_parts(node, parts, out_launch);
    return STRATA_OK;
}

strata_status strata_conv2d_fold_tiles(const strata_tensor *node, int64_t parts, strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    return parts > 1 ? strata_tiles_fold(node, p.product.n * strata_conv2d_sizes_of(node).groups, parts, lowering, err)
                     : STRATA_OK;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    const int64_t parts = n_parts(&p);
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch_tiles(node, parts, p.part, &launch, err));
    launch.kernel = "conv2d_tiles";
    strata_tiles_launch(candidate, &launch);
    launch.global[0] *= parts * strata_tiles_count(&p.product, candidate->values);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return strata_conv2d_fold_tiles(node, parts, lowering, err);
}

/* ---- the gradient by the filter ---- */

static strata_status filter_grad_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                       const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    strata_launch launch = {.kernel = "conv2d_filter_grad_tiles"};
    strata_tiles_launch(candidate, &launch);
    return strata_conv2d_filter_grad_lower_parts(
        node, p.part, &launch, launch.global[0] * strata_tiles_count(&p.product, candidate->values), lowering, err);
}

const strata_family strata_family_gpu_conv2d = {
    .name = "gpu/conv2d", .op = "conv2d", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_gpu_conv2d_input_grad = {
    .name = "gpu/conv2d_input_grad", .op = "conv2d_input_grad", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_gpu_conv2d_filter_grad = {.name = "gpu/conv2d_filter_grad",
                                                            .op = "conv2d_filter_grad",
                                                            .fits = fits,
                                                            .candidates = candidates,
                                                            .lower = filter_grad_lower};
