/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/winograd for OpenCL on CPUs: conv2d and its two gradients, for 3 x 3 filters with stride 1, by
 * Winograd's algorithm F(4x4, 3x3) (shaders/cpu/winograd*.kernel). They need a quarter of the multiplications of the
 * families in cpu_conv2d.c, which are used where these do not fit.
 *
 * Their results differ in the last bits from those of other families (shaders/README.md). So whether they fit depends
 * only on the shape of one image, never on measured times. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/conv2d.h"
#include "core/op/ops.h"

enum {
    /* Elements of a patch, and of a filter, after the transformation (*points*): 6 x 6. */
    POINTS = 36,
    /* The height and width of a tile, in pixels. */
    TILE = 4,
    /* The most floats of the points of all filters: 16 MiB. Every work-group reads them from a shared cache. */
    MOST_FILTER_FLOATS = 1 << 22,
    /* The tiles of a work-group, if local memory has room for as many. With 32, its products hide the latency of
     * reading filters from the shared cache. */
    GOOD_TILES = 32,
    /* The most parts of a filter gradient. */
    MOST_PARTS = 8,
    /* The fewest tiles of a part. */
    PART_TILES = 64
};

/* The time of transforming one vector of channels of a patch into points, and of computing one vector of a tile's
 * results from points. The unit is the time of one multiply-add instruction. */
static const double PATCH_COST = 150, RESULT_COST = 110;

/* The sizes of the convolution for the kernels, which compute `to` from `from`. */
typedef struct view {
    int64_t n, to_h, to_w, from_h, from_w, depth, columns, pad_h, pad_w;
} view;

static view view_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    if (node->op == &strata_op_conv2d_input_grad)
        return (view){s.n, s.in_h, s.in_w, s.out_h, s.out_w, s.out_c, s.in_c, 2 - s.top, 2 - s.left};
    return (view){s.n, s.out_h, s.out_w, s.in_h, s.in_w, s.in_c, s.out_c, s.top, s.left};
}

static int64_t tiles_h(int64_t h) {
    return strata_ceil_div(h, TILE);
}

/* Whether, for one image of h x w pixels, Winograd's algorithm takes at most 0.7 times the work of direct convolution. */
static bool is_worth_it(int64_t h, int64_t w, int64_t in, int64_t out, int64_t lanes) {
    const double tiles = (double)(tiles_h(h) * tiles_h(w)), products = (double)in * (double)out / (double)lanes;
    const double transforms = ((double)in * PATCH_COST + (double)out * RESULT_COST) / (double)lanes;
    return tiles * (POINTS * products + transforms) < 0.7 * 9 * (double)(h * w) * products;
}

/* The most tiles of a work-group. Three quarters of local memory, which is in the second-level cache, must have room
 * for the points of all tiles, with `depth` channels of patches and `columns` channels of results, and for a gap of one
 * vector between two points. */
static int64_t most_tiles(const strata_kernel_limits *limits, int64_t depth, int64_t columns) {
    const int64_t floats = (int64_t)(limits->local_bytes / 4 * 3 / sizeof(float));
    return (floats / POINTS - 2 * strata_cpu_lanes(limits)) / (depth + columns);
}

static bool fits_any(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!strata_cpu_takes(limits, node) || !strata_cpu_counts(node) || limits->direct) return false;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t lanes = strata_cpu_lanes(limits);
    return s.n > 0 && s.groups == 1 && s.kernel_h == 3 && s.kernel_w == 3 && s.stride[0] == 1 && s.stride[1] == 1 &&
           s.dilation[0] == 1 && s.dilation[1] == 1 && s.in_c >= lanes && s.out_c >= lanes &&
           s.in_c <= MOST_FILTER_FLOATS / POINTS / s.out_c && s.top >= 0 && s.left >= 0 && s.top <= 2 && s.left <= 2;
}

/* ---- conv2d and its gradient by the input ---- */
enum { ROWS, COLS, TILES }; /* candidate->values */

/* Rows and columns of register tiles, with 16 and with 32 vector registers. */
enum { N_SHAPES = 4 };
static const int shapes[2][N_SHAPES][2] = {{{6, 2}, {4, 2}, {12, 1}, {8, 1}}, {{8, 2}, {12, 2}, {16, 1}, {8, 1}}};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!fits_any(limits, node)) return false;
    const view v = view_of(node);
    const int64_t lanes = strata_cpu_lanes(limits);
    return is_worth_it(v.to_h, v.to_w, v.depth, v.columns, lanes) && most_tiles(limits, v.depth, 2 * lanes) >= 16;
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const view v = view_of(node);
    const int64_t lanes = strata_cpu_lanes(limits);
    int n = 0;
    for (int i = 0; i < N_SHAPES; i++) {
        const int rows = shapes[lanes == 16][i][0], cols = shapes[lanes == 16][i][1];
        const int64_t most = strata_least(GOOD_TILES, most_tiles(limits, v.depth, cols * lanes));
        if (cols * lanes > v.columns) continue;
        out[n] = (strata_candidate){.exact = true, .values = {rows, cols, (int)(most / rows * rows)}};
        snprintf(out[n].name, sizeof out[n].name, "tile=%dx%d", rows, cols);
        n++;
    }
    return n;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_epilogue *epilogue = strata_epilogue_of(node);
    const view v = view_of(node);
    const int32_t cols = candidate->values[COLS], tiles = candidate->values[TILES];
    const int64_t tile_n = cols * strata_cpu_lanes(limits), all = v.n * tiles_h(v.to_h) * tiles_h(v.to_w);
    strata_launch filters = strata_cpu_launch(limits, "cpu/winograd_filters", v.depth);
    filters.grid_stride = true;
    STRATA_SET_BUFFERS(&filters, node->inputs[1], NULL);
    STRATA_LAUNCH_INTS(&filters, v.depth, v.columns);
    STRATA_LAUNCH_CONSTANTS(&filters, {"COLS", cols}, {"TURNED", node->op == &strata_op_conv2d_input_grad});
    strata_launch launch = strata_cpu_launch(limits, "cpu/winograd", strata_ceil_div(all, tiles));
    STRATA_SET_BUFFERS(&launch, node->inputs[0], NULL, strata_epilogue_bias(node), strata_epilogue_aux_operand(node), node);
    STRATA_LAUNCH_INTS(&launch, all, tiles_h(v.to_h), tiles_h(v.to_w), v.to_h, v.to_w, v.from_h, v.from_w, v.columns, v.pad_h,
                       v.pad_w, epilogue->has_bias, epilogue->activation, epilogue->aux);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", candidate->values[ROWS]}, {"COLS", cols}, {"TILES", tiles},
                            {"DEPTH", (int32_t)v.depth});
    strata_lowering_scratch(lowering, POINTS * v.depth * strata_ceil_div(v.columns, tile_n) * tile_n * (int64_t)sizeof(float));
    STRATA_TRY(strata_lowering_add(lowering, &filters, err));
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- the gradient by the filter ---- */
/* The rows and vectors of a register tile. The number of rows is the largest that divides the channels. */
static void filter_tile(int64_t lanes, const strata_conv2d_sizes *s, int *out_rows, int *out_cols) {
    *out_cols = s->out_c % (2 * lanes) ? 1 : 2;
    *out_rows = (lanes == 16 ? 16 : 8) / *out_cols;
    while (s->in_c % *out_rows) --*out_rows;
}

static bool filter_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!fits_any(limits, node)) return false;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t lanes = strata_cpu_lanes(limits);
    int rows, cols;
    filter_tile(lanes, &s, &rows, &cols);
    return s.out_c % lanes == 0 && rows >= 4 && is_worth_it(s.out_h, s.out_w, s.in_c, s.out_c, lanes) &&
           most_tiles(limits, s.in_c, s.out_c) >= 8;
}

static int filter_candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    int rows, cols;
    filter_tile(strata_cpu_lanes(limits), &s, &rows, &cols);
    const int tiles = (int)strata_least(GOOD_TILES, most_tiles(limits, s.in_c, s.out_c));
    *out = (strata_candidate){.exact = true, .values = {rows, cols, tiles}};
    snprintf(out->name, sizeof out->name, "tile=%dx%d", rows, cols);
    return 1;
}

static strata_status filter_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                  const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t all = s.n * tiles_h(s.out_h) * tiles_h(s.out_w), elements = s.in_c * s.out_c;
    /* The number of parts depends only on the shapes, since it decides the bits of the result. */
    int64_t parts = strata_most(1, strata_least(MOST_PARTS, all / PART_TILES));
    const int64_t part = strata_ceil_div(all, parts);
    parts = strata_ceil_div(all, part);
    strata_launch launch = strata_cpu_launch(limits, "cpu/winograd_filter_grad", parts);
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], NULL);
    STRATA_LAUNCH_INTS(&launch, all, part, tiles_h(s.out_h), tiles_h(s.out_w), s.in_h, s.in_w, s.out_h, s.out_w, s.top, s.left);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", candidate->values[ROWS]}, {"COLS", candidate->values[COLS]},
                            {"TILES", candidate->values[TILES]}, {"DEPTH", (int32_t)s.in_c}, {"K_SIZE", (int32_t)s.out_c});
    strata_launch fold =
        strata_cpu_launch(limits, "cpu/winograd_filter_fold", strata_ceil_div(elements, strata_cpu_lanes(limits)));
    fold.grid_stride = true;
    STRATA_SET_BUFFERS(&fold, NULL, node);
    STRATA_LAUNCH_INTS(&fold, parts, elements);
    strata_lowering_scratch(lowering, parts * POINTS * elements * (int64_t)sizeof(float));
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return strata_lowering_add(lowering, &fold, err);
}

const strata_family strata_family_cpu_winograd = {
    .name = "cpu/winograd", .op = "conv2d", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_cpu_winograd_input_grad = {
    .name = "cpu/winograd_input_grad", .op = "conv2d_input_grad", .fits = fits, .candidates = candidates, .lower = lower};
const strata_family strata_family_cpu_winograd_filter_grad = {.name = "cpu/winograd_filter_grad",
                                                              .op = "conv2d_filter_grad",
                                                              .fits = filter_fits,
                                                              .candidates = filter_candidates,
                                                              .lower = filter_lower};
