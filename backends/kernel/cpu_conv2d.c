/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/conv2d for OpenCL on CPUs: shaders/cpu/conv2d.kernel computes conv2d and its gradient by the input,
 * shaders/cpu/conv2d_filter_grad.kernel the gradient by the filter. Register tiles, blocks and parts depend only on the
 * sizes. Convolutions with groups, and those with fewer output channels than a vector has lanes, are left to the
 * portable kernels.
 *
 * A *slab* is a copy in local memory of the padded input rows that a block needs. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/conv2d.h"
#include "core/op/ops.h"
#include "core/op/reduce.h"

enum {
    /* The most floats of a slab: 256 KiB, a quarter of the second-level cache. */
    MOST_SLAB = 1 << 16,
    /* The most floats of a slab whose block has more than one row. Blocks are made smaller until this holds. */
    GOOD_SLAB = 1 << 14,
    /* The most floats of a filter gradient's chunk together with its dy: 28 KiB, which fit into the first-level cache. */
    GOOD_CHUNK = 7168,
    /* The pixels of a filter gradient's chunk. With this many, loading and storing a tile's sums takes little of the time. */
    CHUNK_PIXELS = 128,
    /* The least multiply-adds of a part of a filter gradient. */
    PART_WORK = 1 << 20,
    /* The most parts of a filter gradient. */
    MOST_PARTS = 8,
    /* The most vectors of a register tile side by side. */
    MOST_VECTORS = 4
};

/* A register tile: rows x cols vectors. */
typedef struct tile_shape {
    int64_t rows, cols;
    /* The estimated cycles for one step of all tiles of a row of the result. */
    double cost;
} tile_shape;

/* The most rows of a tile that fit into the vector registers besides `cols` vectors of the filters and one of the input. */
static int64_t most_rows(int64_t lanes, int64_t cols) {
    const int64_t registers = lanes == 16 ? 32 : 16;
    return strata_least((registers - cols - 1) / cols, 16);
}

/* The cycles of one step. A core starts at most two multiply-adds and three instructions per cycle. A tile with few
 * accumulators takes four cycles, the latency of a multiply-add. */
static double step_cost(int64_t rows, int64_t cols) {
    double multiplies = (double)(rows * cols) / 2, instructions = (double)(rows * cols + rows + cols + 3) / 3;
    double cost = multiplies < 4 ? 4 : multiplies;
    return cost < instructions ? instructions : cost;
}

static int64_t floats_of_slab(int64_t floats) {
    int64_t size = 1024;
    while (size < floats) size *= 2;
    return size;
}

static bool fits_any(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!strata_cpu_takes(limits, node) || !strata_cpu_counts(node)) return false;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return s.groups == 1 && s.n > 0 && s.in_c > 0 && s.out_c > 0;
}

/* ---- conv2d and its gradient by the input ---- */

/* The sizes of the convolution for the kernel; shaders/cpu/conv2d.kernel explains them. first_w, run_step and step
 * count floats; the others count pixels, rows and columns. */
typedef struct view {
    int64_t to_h, to_w, from_h, from_w, depth, columns;
    int64_t slab_h, slab_w, step_h, spread_h, spread_w, pad_h, pad_w, first_h, tap_h, runs, run, first_w, run_step;
    /* The distance of neighbouring pixels of a tile in the slab. */
    int64_t step;
} view;

static view view_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t reach_h = (s.kernel_h - 1) * s.dilation[0], reach_w = (s.kernel_w - 1) * s.dilation[1];
    if (node->op == &strata_op_conv2d_input_grad) {
        const int64_t slab_w = s.in_w + reach_w;
        return (view){.to_h = s.in_h,
                      .to_w = s.in_w,
                      .from_h = s.out_h,
                      .from_w = s.out_w,
                      .depth = s.out_c,
                      .columns = s.in_c,
                      .slab_h = reach_h + 1,
                      .slab_w = slab_w,
                      .step_h = 1,
                      .spread_h = s.stride[0],
                      .spread_w = s.stride[1],
                      .pad_h = reach_h - s.top,
                      .pad_w = reach_w - s.left,
                      .first_h = reach_h,
                      .tap_h = -s.dilation[0],
                      .runs = s.kernel_w,
                      .run = s.out_c,
                      .run_step = -s.dilation[1] * s.out_c,
                      .first_w = reach_w * s.out_c,
                      .step = s.out_c};
    }
    const bool side_by_side = s.dilation[1] == 1 || s.kernel_w == 1;
    const int64_t slab_w = (s.out_w - 1) * s.stride[1] + reach_w + 1;
    return (view){.to_h = s.out_h,
                  .to_w = s.out_w,
                  .from_h = s.in_h,
                  .from_w = s.in_w,
                  .depth = s.in_c,
                  .columns = s.out_c,
                  .slab_h = reach_h + 1,
                  .slab_w = slab_w,
                  .step_h = s.stride[0],
                  .spread_h = 1,
                  .spread_w = 1,
                  .pad_h = s.top,
                  .pad_w = s.left,
                  .tap_h = s.dilation[0],
                  .runs = side_by_side ? 1 : s.kernel_w,
                  .run = side_by_side ? s.kernel_w * s.in_c : s.in_c,
                  .run_step = s.dilation[1] * s.in_c,
                  .step = s.stride[1] * s.in_c};
}

static int64_t slab_floats(const view *v, int64_t block_h) {
    return ((block_h - 1) * v->step_h + v->slab_h) * v->slab_w * v->depth;
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!fits_any(limits, node)) return false;
    const view v = view_of(node);
    if (v.slab_w > MOST_SLAB || v.slab_h > MOST_SLAB || v.depth > MOST_SLAB || v.step > MOST_SLAB) return false;
    const int64_t floats = slab_floats(&v, 1);
    return v.columns >= strata_cpu_lanes(limits) && floats <= MOST_SLAB &&
           (uint64_t)floats_of_slab(floats) * sizeof(float) <= limits->local_bytes;
}

enum { ROWS, COLS, BLOCK_H }; /* candidate->values */

/* The rows of `to` that a work-group computes. If the batch has fewer than four images per core, an image is divided so
 * that there are four work-groups per core. The slab must stay in the caches. */
static int64_t block_of(const strata_kernel_limits *limits, const view *v, int64_t n) {
    const int64_t wanted = 4 * (int64_t)limits->compute_units;
    int64_t block_h = n >= wanted ? v->to_h : strata_ceil_div(v->to_h, strata_ceil_div(wanted, n));
    const int64_t most = strata_least(GOOD_SLAB, (int64_t)(limits->local_bytes / sizeof(float)));
    while (block_h > 1 && floats_of_slab(slab_floats(v, block_h)) > most) block_h = strata_ceil_div(block_h, 2);
    return block_h;
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const view v = view_of(node);
    const int64_t lanes = strata_cpu_lanes(limits), block_h = block_of(limits, &v, node->shape.dims[0]);
    tile_shape tiles[3];
    int n = 0;
    for (int64_t cols = 1; cols <= MOST_VECTORS && cols * lanes <= v.columns; cols *= 2) { /* insert, sorted by cost */
        const int64_t tiles_w = strata_ceil_div(v.to_w, most_rows(lanes, cols)), rows = strata_ceil_div(v.to_w, tiles_w);
        tile_shape tile = {rows, cols, (double)(tiles_w * strata_ceil_div(v.columns, cols * lanes)) * step_cost(rows, cols)};
        int at = n++;
        for (; at > 0 && tiles[at - 1].cost > tile.cost; at--) tiles[at] = tiles[at - 1];
        tiles[at] = tile;
    }
    for (int i = 0; i < n; i++) {
        out[i] = (strata_candidate){.exact = true, .values = {(int)tiles[i].rows, (int)tiles[i].cols, (int)block_h}};
        snprintf(out[i].name, sizeof out[i].name, "tile=%dx%d", (int)tiles[i].rows, (int)tiles[i].cols);
    }
    return n;
}

/* The gradient's kernel needs filters of shape (KH,KW,K,C), so they are transposed into scratch memory first. */
static strata_status transpose_filters(const strata_tensor *filters, strata_lowering *lowering, strata_error *err) {
    const int64_t *d = filters->shape.dims;
    strata_launch launch = {
        .kernel = "cpu/transpose", .variant = "f32", .global = {d[0] * d[1]}, .local = {1}, .grid_stride = true};
    STRATA_SET_BUFFERS(&launch, filters, NULL);
    STRATA_LAUNCH_INTS(&launch, d[0] * d[1], d[2], d[3]);
    strata_lowering_scratch(lowering, strata_shape_elements(filters->shape) * (int64_t)sizeof(float));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    const view v = view_of(node);
    const int64_t block_h = candidate->values[BLOCK_H];
    strata_launch launch = strata_cpu_launch(limits, "cpu/conv2d", s.n * strata_ceil_div(v.to_h, block_h));
    STRATA_SET_BUFFERS(&launch, node->inputs[0], transposed ? NULL : node->inputs[1], strata_epilogue_bias(node),
                       strata_epilogue_aux_operand(node), node);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", candidate->values[ROWS]}, {"COLS", candidate->values[COLS]},
                            {"STEP", (int32_t)v.step}, {"SLAB", (int32_t)floats_of_slab(slab_floats(&v, block_h))});
    STRATA_LAUNCH_INTS(&launch, v.to_h, v.to_w, v.from_h, v.from_w, v.depth, v.columns, block_h, v.slab_h, v.slab_w, v.step_h,
                       v.spread_h, v.spread_w, v.pad_h, v.pad_w, s.kernel_h, v.first_h, v.tap_h, v.runs, v.run, v.first_w,
                       v.run_step, epilogue->has_bias, epilogue->activation, epilogue->aux);
    if (transposed) STRATA_TRY(transpose_filters(node->inputs[1], lowering, err));
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- the gradient by the filter ---- */

typedef struct filter_plan {
    tile_shape tile;
    /* The runs of (kw, c) that lie side by side in the slab: their number, their length, and their distance. */
    int64_t runs, run, run_step;
    int64_t slab_h, slab_w, slab, chunk_h, part_h, parts;
} filter_plan;

static int64_t chunk_floats(const strata_conv2d_sizes *s, const filter_plan *p) {
    return ((p->chunk_h - 1) * s->stride[0] + p->slab_h) * p->slab_w * s->in_c;
}

static filter_plan filter_plan_of(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t lanes = strata_cpu_lanes(limits), rows = s.n * s.out_h;
    const bool side_by_side = s.dilation[1] == 1 || s.kernel_w == 1;
    filter_plan p = {.runs = side_by_side ? 1 : s.kernel_w,
                     .run = side_by_side ? s.kernel_w * s.in_c : s.in_c,
                     .run_step = s.dilation[1] * s.in_c,
                     .slab_h = (s.kernel_h - 1) * s.dilation[0] + 1,
                     .slab_w = (s.out_w - 1) * s.stride[1] + (s.kernel_w - 1) * s.dilation[1] + 1};
    for (int64_t cols = 1; cols <= MOST_VECTORS && s.out_c % (cols * lanes) == 0; cols *= 2)
        for (int64_t n = strata_least(most_rows(lanes, cols), p.run); n > 0; n--) {
            if (p.run % n) continue;
            double cost = (double)(p.run / n * (s.out_c / (cols * lanes))) * step_cost(n, cols);
            if (!p.tile.rows || cost < p.tile.cost) p.tile = (tile_shape){n, cols, cost};
            break;
        }
    p.chunk_h = strata_least(strata_ceil_div(CHUNK_PIXELS, s.out_w), s.out_h);
    while (p.chunk_h > 1 && chunk_floats(&s, &p) + p.chunk_h * s.out_w * p.tile.cols * lanes > GOOD_CHUNK) p.chunk_h--;
    p.slab = floats_of_slab(chunk_floats(&s, &p));
    /* The number of parts depends only on the shapes, since it decides the bits of the result. */
    const int64_t work = rows * s.out_w * s.kernel_h * s.kernel_w * s.in_c * s.out_c;
    p.parts = strata_most(1, strata_least(strata_least(MOST_PARTS, rows), work / PART_WORK));
    p.part_h = strata_ceil_div(rows, p.parts);
    p.parts = strata_ceil_div(rows, p.part_h);
    return p;
}

static bool filter_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!fits_any(limits, node)) return false;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t slab_w = (s.out_w - 1) * s.stride[1] + (s.kernel_w - 1) * s.dilation[1] + 1;
    if (s.out_c % strata_cpu_lanes(limits) || slab_w > MOST_SLAB || s.in_c > MOST_SLAB || slab_w * s.in_c > MOST_SLAB)
        return false;
    if ((s.kernel_h - 1) * s.dilation[0] >= MOST_SLAB / (slab_w * s.in_c)) return false;
    const filter_plan p = filter_plan_of(limits, node);
    return (uint64_t)p.slab * sizeof(float) <= limits->local_bytes;
}

static strata_status filter_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                  const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    (void)candidate;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const filter_plan p = filter_plan_of(limits, node);
    strata_launch launch = strata_cpu_launch(limits, "cpu/conv2d_filter_grad", p.parts);
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], p.parts > 1 ? NULL : node);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", (int32_t)p.tile.rows}, {"COLS", (int32_t)p.tile.cols}, {"SLAB", (int32_t)p.slab});
    STRATA_LAUNCH_INTS(&launch, s.n * s.out_h, p.part_h, p.chunk_h, s.in_h, s.in_w, s.in_c, s.out_h, s.out_w, s.out_c,
                       s.kernel_h, p.slab_h, p.slab_w, s.stride[0], s.stride[1], s.dilation[0], s.top, s.left, p.runs, p.run,
                       p.run_step);
    if (p.parts > 1) strata_lowering_scratch(lowering, p.parts * strata_shape_elements(node->shape) * (int64_t)sizeof(float));
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return p.parts > 1 ? strata_reduce_scratch(node, p.parts, lowering, err) : STRATA_OK;
}

const strata_family strata_family_cpu_conv2d = {
    .name = "cpu/conv2d", .op = "conv2d", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_cpu_conv2d_input_grad = {
    .name = "cpu/conv2d_input_grad", .op = "conv2d_input_grad", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_cpu_conv2d_filter_grad = {
    .name = "cpu/conv2d_filter_grad", .op = "conv2d_filter_grad", .fits = filter_fits, .lower = filter_lower};
