/* SPDX-License-Identifier: Apache-2.0 */
#include "backends/kernel/gpu_tiles.h"

#include <stdio.h>

enum { TILES_A_UNIT = 2, UNKNOWN_UNITS = 32 };

/* From large to small: 128 x 128, 64 x 128, 128 x 64, 64 x 64, 64 x 32, 32 x 64, 32 x 32. */
static const int tiles[][TILE_VALUES] = {{16, 16, 8, 8, 16}, {16, 16, 8, 8, 8}, {16, 8, 8, 8, 16},  {8, 16, 8, 8, 16},
                                         {8, 8, 8, 8, 16},   {8, 16, 4, 4, 16}, {16, 16, 4, 4, 16}, {8, 8, 4, 4, 16}};
enum { N_TILES = sizeof tiles / sizeof *tiles };

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

int64_t strata_tiles_count(const strata_tiled_product *product, const int *tile) {
    return product->batch * ceil_div(product->m, strata_tile_m(tile)) * ceil_div(product->n, strata_tile_n(tile));
}

static bool fits_device(const strata_kernel_limits *limits, const strata_tiled_product *product, const int *t) {
    const int64_t floats = t[TILE_STEPS] * (strata_tile_m(t) + strata_tile_n(t) + 8 + product->words_a_step) +
                           strata_tile_m(t) * product->words_a_row;
    return (uint64_t)(4 * floats) <= limits->local_bytes &&
           (uint32_t)(t[TILE_LOCAL_X] * t[TILE_LOCAL_Y]) <= limits->max_workgroup &&
           (uint32_t)t[TILE_LOCAL_X] <= limits->max_local[0] && (uint32_t)t[TILE_LOCAL_Y] <= limits->max_local[1];
}

static void add(strata_candidate *out, int *n, const int *t) {
    strata_candidate *candidate = &out[(*n)++];
    *candidate = (strata_candidate){.exact = true, .values = {t[0], t[1], t[2], t[3], t[4]}};
    snprintf(candidate->name, sizeof candidate->name, "tile=%dx%d k=%d items=%dx%d", (int)strata_tile_m(t),
             (int)strata_tile_n(t), t[TILE_STEPS], t[TILE_LOCAL_X], t[TILE_LOCAL_Y]);
}

bool strata_tiles_fit(const strata_kernel_limits *limits) {
    const strata_tiled_product most = {.m = 1, .n = 1, .batch = 1, .words_a_row = 4, .words_a_step = 6};
    return limits->device_class >= STRATA_DEVICE_INTEGRATED_GPU && fits_device(limits, &most, tiles[N_TILES - 1]);
}

int strata_tiles_candidates(const strata_kernel_limits *limits, const strata_tiled_product *product, int most,
                            strata_candidate *out) {
    const int64_t units = limits->compute_units > 1 ? limits->compute_units : UNKNOWN_UNITS;
    int first = 0, n = 0;
    while (first < N_TILES - 1 &&
           (!fits_device(limits, product, tiles[first]) || strata_tiles_count(product, tiles[first]) < TILES_A_UNIT * units))
        first++;
    add(out, &n, tiles[first]);
    for (int i = 0; i < N_TILES && n < most; i++)
        if (i != first && fits_device(limits, product, tiles[i])) add(out, &n, tiles[i]);
    return n;
}

void strata_tiles_launch(const strata_candidate *candidate, strata_launch *launch) {
    const int *t = candidate->values;
    launch->constants[launch->n_constants++] = (strata_launch_constant){"WORK_M", t[TILE_WORK_M]};
    launch->constants[launch->n_constants++] = (strata_launch_constant){"WORK_N", t[TILE_WORK_N]};
    launch->constants[launch->n_constants++] = (strata_launch_constant){"TILE_K", t[TILE_STEPS]};
    launch->local[0] = t[TILE_LOCAL_X];
    launch->local[1] = t[TILE_LOCAL_Y];
    launch->global[0] = t[TILE_LOCAL_X];
    launch->global[1] = t[TILE_LOCAL_Y];
}
