/* SPDX-License-Identifier: Apache-2.0 */
#include "backends/kernel/gpu_tiles.h"

#include <stdio.h>

#include "core/op/epilogue.h"

enum {
    /* Compute units that are assumed if the driver does not report them. */
    UNKNOWN_UNITS = 32,
    /* Work-items that most GPUs execute together, as one SIMD vector. */
    WARP = 32,
    /* The number of warps with which a compute unit hides latency. */
    FULL_WARPS = 8,
    /* Floats of local memory for each step of k that the kernel adds to its tiles, against bank conflicts. */
    LOCAL_PADDING = 8,
    /* Registers for each sum of a work-item that a tile must leave room for. Intel's compiler spills registers with 4,
     * not with 8. */
    SUM_REGISTERS = 8,
    /* Rows and columns of the tile with which the number of parts is calculated. */
    NOMINAL_TILE = 64,
    /* This many tiles keep a large device busy. */
    ENOUGH_TILES = 512,
    /* With this many tiles, a large device has hardly any idle time at the end of a launch. */
    BEST_TILES = 2048,
    /* The fewest steps of a part if there are already ENOUGH_TILES. */
    LONG_PART = 1024
};

/* efficiency: the speed of multiply-adds in large products relative to the first tile. Estimated from the tiles that
 * were fastest on an NVIDIA H100. */
static const struct {
    int values[TILE_VALUES];
    double efficiency;
} tiles[] = {
    {{16, 16, 8, 8, 16}, 1},   {{16, 8, 8, 8, 16}, 1},    {{8, 16, 8, 8, 16}, 1},   {{8, 8, 8, 8, 16}, 0.95},
    {{8, 16, 8, 4, 16}, 0.75}, {{16, 16, 4, 4, 16}, 0.6}, {{8, 16, 4, 4, 16}, 0.6}, {{16, 8, 4, 4, 16}, 0.6},
    {{8, 8, 4, 4, 16}, 0.55},  {{4, 16, 4, 4, 16}, 0.45},
};
enum { N_TILES = sizeof tiles / sizeof *tiles };

int64_t strata_tiles_count(const strata_tiled_product *product, const int *tile) {
    return product->batch * strata_ceil_div(product->m, strata_tile_m(tile)) * strata_ceil_div(product->n, strata_tile_n(tile));
}

static bool fits_device(const strata_kernel_limits *limits, const strata_tiled_product *product, const int *t) {
    const int64_t floats = t[TILE_STEPS] * (strata_tile_m(t) + strata_tile_n(t) + LOCAL_PADDING + product->words_a_step) +
                           strata_tile_m(t) * product->words_a_row;
    const uint32_t registers = (uint32_t)(SUM_REGISTERS * t[TILE_WORK_M] * t[TILE_WORK_N]);
    return (uint64_t)(4 * floats) <= limits->local_bytes &&
           (limits->item_registers == 0 || registers <= limits->item_registers) &&
           (uint32_t)(t[TILE_LOCAL_X] * t[TILE_LOCAL_Y]) <= limits->max_workgroup &&
           (uint32_t)t[TILE_LOCAL_X] <= limits->max_local[0] && (uint32_t)t[TILE_LOCAL_Y] <= limits->max_local[1];
}

double strata_tiles_cost(const strata_kernel_limits *limits, int64_t count, double warps, double work) {
    const int64_t units = limits->compute_units > 1 ? limits->compute_units : UNKNOWN_UNITS;
    const double each = (double)strata_ceil_div(count ? count : 1, units), busy = each * warps / FULL_WARPS;
    return each * work / (busy < 1 ? busy : 1);
}

static strata_candidate candidate_of(int tile) {
    const int *t = tiles[tile].values;
    strata_candidate candidate = {.exact = true, .values = {t[0], t[1], t[2], t[3], t[4]}};
    snprintf(candidate.name, sizeof candidate.name, "tile=%dx%d items=%dx%d", (int)strata_tile_m(t), (int)strata_tile_n(t),
             t[TILE_LOCAL_X], t[TILE_LOCAL_Y]);
    return candidate;
}

bool strata_tiles_fit(const strata_kernel_limits *limits) {
    const strata_tiled_product most = {
        .m = 1, .n = 1, .batch = 1, .words_a_row = TILE_ROW_WORDS, .words_a_step = TILE_STEP_WORDS};
    return limits->device_class >= STRATA_DEVICE_INTEGRATED_GPU && fits_device(limits, &most, tiles[N_TILES - 1].values);
}

int strata_tiles_keep_cheapest(strata_candidate *out, double *costs, int n, const strata_candidate *candidate, double cost) {
    int at = n;
    while (at > 0 && costs[at - 1] > cost) at--;
    if (at == STRATA_TILES_TRIED) return n;
    if (n < STRATA_TILES_TRIED) n++;
    for (int i = n - 1; i > at; i--) {
        costs[i] = costs[i - 1];
        out[i] = out[i - 1];
    }
    costs[at] = cost;
    out[at] = *candidate;
    return n;
}

int strata_tiles_candidates(const strata_kernel_limits *limits, const strata_tiled_product *product, strata_candidate *out) {
    double costs[STRATA_TILES_TRIED];
    int n = 0;
    for (int tile = 0; tile < N_TILES; tile++) {
        if (!fits_device(limits, product, tiles[tile].values)) continue;
        const strata_candidate candidate = candidate_of(tile);
        const int *t = tiles[tile].values;
        const double cost =
            strata_tiles_cost(limits, strata_tiles_count(product, t), (double)(t[TILE_LOCAL_X] * t[TILE_LOCAL_Y]) / WARP,
                              (double)(strata_tile_m(t) * strata_tile_n(t)) / tiles[tile].efficiency);
        n = strata_tiles_keep_cheapest(out, costs, n, &candidate, cost);
    }
    return n;
}

void strata_tiles_launch(const strata_candidate *candidate, strata_launch *launch) {
    const int *t = candidate->values;
    STRATA_LAUNCH_CONSTANTS(launch, {"WORK_M", t[TILE_WORK_M]}, {"WORK_N", t[TILE_WORK_N]}, {"TILE_K", t[TILE_STEPS]});
    launch->local[0] = t[TILE_LOCAL_X];
    launch->local[1] = t[TILE_LOCAL_Y];
    launch->global[0] = t[TILE_LOCAL_X];
    launch->global[1] = t[TILE_LOCAL_Y];
}

/* ---- parts ---- */

int64_t strata_tiles_part(const strata_tiled_product *product, int64_t steps, int64_t least) {
    const int64_t tiles =
        product->batch * strata_ceil_div(product->m, NOMINAL_TILE) * strata_ceil_div(product->n, NOMINAL_TILE);
    int64_t parts = 1;
    while ((parts * tiles < ENOUGH_TILES && steps >= 2 * parts * least) ||
           (parts * tiles < BEST_TILES && steps >= 2 * parts * LONG_PART))
        parts *= 2;
    return steps ? strata_ceil_div(steps, parts) : 1;
}

void strata_tiles_launch_parts(const strata_tensor *node, int64_t parts, strata_launch *launch) {
    static const char *const variants[2][3] = {
        {[STRATA_DTYPE_F32] = "f32_f32", [STRATA_DTYPE_F16] = "f16_f16", [STRATA_DTYPE_BF16] = "bf16_bf16"},
        {[STRATA_DTYPE_F32] = "f32_f32", [STRATA_DTYPE_F16] = "f16_f32", [STRATA_DTYPE_BF16] = "bf16_f32"}};
    static const char *const epilogue[] = {"BIAS", "ACTIVATION", "AUX"};
    launch->variant = variants[parts > 1][node->dtype];
    if (parts == 1) return;
    for (int b = 0; b < launch->n_buffers; b++)
        if (launch->buffers[b] == node) launch->buffers[b] = NULL;
    for (int c = 0; c < launch->n_constants; c++)
        for (size_t e = 0; e < sizeof epilogue / sizeof *epilogue; e++)
            if (!strcmp(launch->constants[c].name, epilogue[e])) launch->constants[c].value = 0;
}

strata_status strata_tiles_fold(const strata_tensor *node, int64_t columns, int64_t parts, strata_lowering *lowering,
                                strata_error *err) {
    const int64_t elements = strata_shape_elements(node->shape);
    strata_launch launch = {
        .kernel = "matmul_fold",
        .variant = strata_dtype_name(node->dtype),
        .global = {elements},
        .grid_stride = true,
    };
    STRATA_SET_BUFFERS(&launch, NULL, strata_epilogue_bias(node), strata_epilogue_aux_operand(node), node);
    STRATA_LAUNCH_INTS(&launch, elements, columns, parts);
    strata_epilogue_constants(&launch, node);
    strata_lowering_scratch(lowering, parts * elements * (int64_t)sizeof(float));
    return strata_lowering_add(lowering, &launch, err);
}
