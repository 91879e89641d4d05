/* SPDX-License-Identifier: Apache-2.0
 *
 * The families for real GPUs: matrix products, convolutions and their gradients as products of tiles. The families gpu/matmul,
 * gpu/conv2d, gpu/conv2d_input_grad and gpu/conv2d_filter_grad use shaders/matmul_tiles.kernel, conv2d_tiles.kernel and
 * conv2d_filter_grad_tiles.kernel, the families gpu/units_... the kernels for matrix units in shaders/matrix_units.
 *
 * Long sums are divided into parts, which further kernels add. The parts depend only on the shapes, since they decide the bits
 * of the result; for matrix units they are rounded up to whole steps of a tile. Convolutions with few columns are left to the
 * portable kernels.
 *
 * For products without an epilogue, the backend's library of matrix products (CLBlast) is one more candidate. It adds the terms
 * of a sum in its own order, so it is only used with options.fast. */
#include "backends/kernel/gpu_tiles.h"
#include "core/op/conv2d.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"

enum {
    LIBRARY = -1, /* candidate->values[0] of the library's candidate */
    /* The fewest columns of a convolution. In particular, depthwise convolutions would leave most of a tile unused. */
    LEAST_COLUMNS = 8,
    /* The fewest rows in a part of a filter gradient. Adding the parts reads all of them, and filters may be large. */
    LEAST_ROWS = 256,
    /* The most rows in a part. Longer sums in f32 lose precision. */
    MOST_ROWS = 16384
};

/* A node as a product of matrices. */
typedef struct node_product {
    /* batch counts the products of a batch or the groups, in conv2d_input_grad also the classes of pixels that use the same
     * taps of the filter; and the parts. */
    strata_tiled_product product;
    /* The number of steps that are added to one sum, and of such parts. */
    int64_t steps, part, parts;
    /* The length of a row of the result. */
    int64_t columns;
} node_product;

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
    return b ? greatest_common_divisor(b, a % b) : a;
}

/* In the gradient by the input: the distance along an axis between two taps that meet the same pixels. */
static int64_t tap_step(const strata_conv2d_sizes *s, int axis) {
    return s->stride[axis] / greatest_common_divisor(s->stride[axis], s->dilation[axis]);
}

static void set_product(const strata_tensor *node, node_product *p) {
    if (node->op == &strata_op_matmul) {
        const strata_matmul_sizes s = strata_matmul_sizes_of(node);
        *p = (node_product){.product = {.m = s.m, .n = s.n, .batch = s.n_batch}, .steps = s.k, .columns = s.n};
        return;
    }
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    if (node->op == &strata_op_conv2d_filter_grad) {
        p->product = (strata_tiled_product){.m = s.kernel_h * s.kernel_w * s.group_in, .n = s.group_out, .batch = s.groups};
        p->product.words_a_step = TILE_STEP_WORDS;
        p->steps = s.n * s.out_h * s.out_w;
    } else if (node->op == &strata_op_conv2d_input_grad) {
        const int64_t taps = strata_ceil_div(s.kernel_h, tap_step(&s, 0)) * strata_ceil_div(s.kernel_w, tap_step(&s, 1));
        p->product =
            (strata_tiled_product){.m = s.n * strata_ceil_div(s.in_h, s.stride[0]) * strata_ceil_div(s.in_w, s.stride[1]),
                                   .n = s.group_in,
                                   .batch = s.stride[0] * s.stride[1] * s.groups,
                                   .words_a_row = TILE_ROW_WORDS};
        p->steps = taps * s.group_out; /* of the class with the most taps */
    } else {
        p->product = (strata_tiled_product){
            .m = s.n * s.out_h * s.out_w, .n = s.group_out, .batch = s.groups, .words_a_row = TILE_ROW_WORDS};
        p->steps = s.kernel_h * s.kernel_w * s.group_in;
    }
    p->columns = p->product.n * s.groups;
}

/* limits NULL: without matrix units. */
static node_product product_of(const strata_kernel_limits *limits, const strata_tensor *node) {
    const bool by_filter = node->op == &strata_op_conv2d_filter_grad;
    node_product p = {0};
    set_product(node, &p);
    p.part = strata_tiles_part(&p.product, p.steps, by_filter ? LEAST_ROWS : TILE_LEAST_PART);
    if (by_filter) p.part = strata_least(p.part, MOST_ROWS);
    if (limits) p.part = strata_units_part(limits, node, p.part);
    p.parts = p.steps ? strata_ceil_div(p.steps, p.part) : 1;
    p.product.batch *= p.parts;
    return p;
}

static bool suits_tiles(const strata_tensor *node) {
    return node->op == &strata_op_matmul || product_of(NULL, node).product.n >= LEAST_COLUMNS;
}

/* The launch of the product, without its kernel and tiles. */
static strata_status begin_launch(const strata_tensor *node, const node_product *p, strata_launch *launch, strata_error *err) {
    if (node->op == &strata_op_matmul) {
        *launch = strata_matmul_launch(node);
    } else {
        const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
        const bool by_input = node->op == &strata_op_conv2d_input_grad;
        STRATA_TRY(strata_conv2d_launch(node, launch, err));
        STRATA_LAUNCH_INTS(launch, by_input ? tap_step(&s, 0) : 1, by_input ? tap_step(&s, 1) : 1);
    }
    STRATA_LAUNCH_INTS(launch, p->parts, p->part);
    strata_tiles_launch_parts(node, p->parts, launch);
    return STRATA_OK;
}

static strata_status add_launch(const strata_tensor *node, const node_product *p, const strata_launch *launch,
                                strata_lowering *lowering, strata_error *err) {
    STRATA_TRY(strata_lowering_add(lowering, launch, err));
    return p->parts > 1 ? strata_tiles_fold(node, p->columns, p->parts, lowering, err) : STRATA_OK;
}

/* ---- tiles in local memory ---- */

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_tiles_fit(limits) && suits_tiles(node);
}

static bool library_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!limits->library || node->op != &strata_op_matmul || node->dtype != STRATA_DTYPE_F32) return false;
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return strata_epilogue_is_plain(strata_epilogue_of(node)) && s.m > 0 && s.n > 0 && s.k > 0 && s.n_batch > 0;
}

/* The arguments of CLBlast: m, n, k, batch, the strides of rows and of matrices of a and b, the transposes. */
static strata_status lower_to_library(const strata_kernel_limits *limits, const strata_tensor *node, strata_lowering *lowering,
                                      strata_error *err) {
    const strata_matmul_attrs *attrs = node->attrs;
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    strata_launch launch = {.kernel = limits->library->stem, .global = {1}, .local = {1}};
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], node);
    STRATA_LAUNCH_INTS(&launch, s.m, s.n, s.k, s.n_batch, s.a_row, s.b_row, s.a_batch, s.b_batch, attrs->transpose_a,
                       attrs->transpose_b);
    return strata_lowering_add(lowering, &launch, err);
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const node_product p = product_of(NULL, node);
    int n = strata_tiles_candidates(limits, &p.product, out);
    if (library_fits(limits, node)) out[n++] = (strata_candidate){.name = "library", .exact = false, .values = {LIBRARY}};
    return n;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    if (candidate->values[0] == LIBRARY) return lower_to_library(limits, node, lowering, err); /* it has no tiles */
    const node_product p = product_of(NULL, node);
    const int64_t tiles = strata_tiles_count(&p.product, candidate->values);
    strata_launch launch = {.kernel = "conv2d_filter_grad_tiles"};
    if (node->op == &strata_op_conv2d_filter_grad) {
        strata_tiles_launch(candidate, &launch);
        return strata_conv2d_filter_grad_lower_parts(node, p.part, &launch, launch.global[0] * tiles / p.parts, lowering, err);
    }
    STRATA_TRY(begin_launch(node, &p, &launch, err));
    launch.kernel = node->op == &strata_op_matmul ? "matmul_tiles" : "conv2d_tiles";
    strata_tiles_launch(candidate, &launch);
    launch.global[0] *= tiles;
    return add_launch(node, &p, &launch, lowering, err);
}

#define TILES(which)                                  \
    const strata_family strata_family_gpu_##which = { \
        .name = "gpu/" #which, .op = #which, .fits = fits, .candidates = candidates, .lower = lower}
TILES(matmul);
TILES(conv2d);
TILES(conv2d_input_grad);
TILES(conv2d_filter_grad);

/* ---- matrix units ---- */

static const char *units_kernel_of(const strata_tensor *node) {
    return node->op == &strata_op_matmul               ? "matrix_units/matmul"
           : node->op == &strata_op_conv2d_filter_grad ? "matrix_units/conv2d_filter_grad"
                                                       : "matrix_units/conv2d";
}

/* The family without matrix units. Its functions are the same for all ops. */
static const strata_family *const plain = &strata_family_gpu_matmul;

/* A filter gradient that sums over no rows (steps = 0) is zero; the next family computes it. */
static bool units_fit(const strata_kernel_limits *limits, const strata_tensor *node) {
    const node_product p = product_of(NULL, node);
    return (p.steps > 0 || node->op == &strata_op_matmul) && suits_tiles(node) &&
           strata_units_fit(limits, node, units_kernel_of(node), &p.product);
}

static int units_candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const node_product p = product_of(limits, node);
    return strata_units_candidates(limits, node, &p.product, plain, out);
}

static strata_status units_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                 const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    if (strata_units_is_plain(candidate)) return plain->lower(limits, node, candidate, lowering, err);
    const node_product p = product_of(limits, node);
    const bool by_filter = node->op == &strata_op_conv2d_filter_grad;
    strata_launch launch = {.kernel = units_kernel_of(node)};
    STRATA_TRY(by_filter ? strata_conv2d_filter_grad_launch(node, p.part, &launch, err) : begin_launch(node, &p, &launch, err));
    launch.kernel = units_kernel_of(node);
    strata_units_launch(limits, node, &p.product, candidate, p.parts > 1, &launch);
    return by_filter ? strata_conv2d_filter_grad_add(node, p.part, &launch, lowering, err)
                     : add_launch(node, &p, &launch, lowering, err);
}

#define UNITS(which)                                        \
    const strata_family strata_family_gpu_units_##which = { \
        .name = "gpu/units_" #which, .op = #which, .fits = units_fit, .candidates = units_candidates, .lower = units_lower}
UNITS(matmul);
UNITS(conv2d);
UNITS(conv2d_input_grad);
UNITS(conv2d_filter_grad);
