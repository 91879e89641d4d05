/* SPDX-License-Identifier: Apache-2.0
 *
 * The families gpu/units_conv2d, gpu/units_conv2d_input_grad and gpu/units_conv2d_filter_grad: convolutions by
 * shaders/matrix_units/conv2d.kernel and conv2d_filter_grad.kernel (gpu_units.h). Like gpu/conv2d, they support
 * strides, dilation, padding and groups, and leave convolutions with few columns to the portable kernels. Long sums are
 * divided into the same parts as there, rounded up to whole steps of a tile. */
#include "backends/kernel/gpu_conv2d.h"
#include "backends/kernel/gpu_units.h"
#include "core/op/conv2d.h"
#include "core/op/ops.h"

extern const strata_family strata_family_gpu_conv2d, strata_family_gpu_conv2d_input_grad, strata_family_gpu_conv2d_filter_grad;

static const char *kernel_of(const strata_tensor *node) {
    return node->op == &strata_op_conv2d_filter_grad ? "conv2d_filter_grad" : "conv2d";
}

static const strata_family *plain_of(const strata_tensor *node) {
    return node->op == &strata_op_conv2d              ? &strata_family_gpu_conv2d
           : node->op == &strata_op_conv2d_input_grad ? &strata_family_gpu_conv2d_input_grad
                                                      : &strata_family_gpu_conv2d_filter_grad;
}

/* The sizes of the product in *out_parts parts of `part` steps each. product.batch includes the parts. */
static strata_conv2d_product_sizes product_of(const strata_kernel_limits *limits, const strata_tensor *node,
                                              int64_t *out_parts) {
    strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    p.part = strata_units_part(limits, node, p.part);
    *out_parts = p.steps ? (p.steps + p.part - 1) / p.part : 1;
    p.product.batch *= *out_parts;
    return p;
}

/* A filter gradient that sums over no rows (steps = 0) is zero; the next family computes it. */
static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_conv2d_product_sizes p = strata_conv2d_product_of(node);
    return p.steps > 0 && strata_conv2d_suits_tiles(node) && strata_units_fit(limits, node, kernel_of(node), &p.product);
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    int64_t parts;
    const strata_conv2d_product_sizes p = product_of(limits, node, &parts);
    return strata_units_candidates(limits, node, &p.product, plain_of(node), out);
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    if (strata_units_is_plain(candidate)) return plain_of(node)->lower(limits, node, candidate, lowering, err);
    int64_t parts;
    const strata_conv2d_product_sizes p = product_of(limits, node, &parts);
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch_tiles(node, parts, p.part, &launch, err));
    launch.kernel = "matrix_units/conv2d";
    strata_units_launch(limits, node, &p.product, candidate, parts > 1, &launch);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return strata_conv2d_fold_tiles(node, parts, lowering, err);
}

static strata_status filter_grad_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                       const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    if (strata_units_is_plain(candidate)) return plain_of(node)->lower(limits, node, candidate, lowering, err);
    int64_t parts;
    const strata_conv2d_product_sizes p = product_of(limits, node, &parts);
    strata_launch launch = {.kernel = "matrix_units/conv2d_filter_grad"};
    STRATA_TRY(strata_conv2d_filter_grad_launch(node, p.part, &launch, err));
    strata_units_launch(limits, node, &p.product, candidate, parts > 1, &launch);
    return strata_conv2d_filter_grad_add(node, p.part, &launch, lowering, err);
}

#define FAMILY(suffix, lowered)                              \
    const strata_family strata_family_gpu_units_##suffix = { \
        .name = "gpu/units_" #suffix, .op = #suffix, .fits = fits, .candidates = candidates, .lower = lowered}
FAMILY(conv2d, lower);
FAMILY(conv2d_input_grad, lower);
FAMILY(conv2d_filter_grad, filter_grad_lower);
