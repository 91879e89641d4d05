/* SPDX-License-Identifier: Apache-2.0
 *
 * The family gpu/matmul: tiles of shaders/matmul.kernel for real GPUs. Which is fastest depends on registers, local memory and the
 * number of compute units in ways that no query tells, so the tuner tries them; untuned, the largest tile that gives every unit
 * something to do is taken. Tiles do not change a bit. A backend's library of matrix products (CLBlast) is one more candidate for plain
 * products; it folds K in an order of its own, so only options.fast lets it in. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/matmul.h"

enum { LOCAL_X, LOCAL_Y, WORK_M, WORK_N, TILE_K }; /* candidate->values */

enum { LIBRARY = -1 }; /* candidate->values[0] */
enum { TILES_A_UNIT = 2, UNKNOWN_UNITS = 32 };

/* Work-items of a group along n and m, elements of each along m and n, and the steps of k in local memory. From large to small. Shapes as in
 * llama.cpp's and dlprimitives' kernels: 128 x 128, 64 x 128, 64 x 64, 32 x 32. */
static const int tiles[][5] = {
    {16, 16, 8, 8, 16}, {16, 16, 8, 8, 8}, {16, 8, 8, 8, 16},  {16, 16, 4, 4, 16},
    {8, 8, 8, 8, 16},   {8, 8, 4, 4, 16},  {16, 16, 2, 2, 16}, {16, 16, 1, 1, 16},
};
enum { N_TILES = sizeof tiles / sizeof *tiles };

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return limits->device_class >= STRATA_DEVICE_INTEGRATED_GPU;
}

static bool fits_device(const strata_kernel_limits *limits, const int *t) {
    uint64_t local = 4u * (uint64_t)t[TILE_K] * (uint64_t)(t[LOCAL_Y] * t[WORK_M] + t[LOCAL_X] * t[WORK_N] + 2);
    return local <= limits->local_bytes && (uint32_t)(t[LOCAL_X] * t[LOCAL_Y]) <= limits->max_workgroup &&
           (uint32_t)t[LOCAL_X] <= limits->max_local[0] && (uint32_t)t[LOCAL_Y] <= limits->max_local[1];
}

static int64_t n_groups(const strata_tensor *node, const int *t) {
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    int64_t tile_m = t[LOCAL_Y] * t[WORK_M], tile_n = t[LOCAL_X] * t[WORK_N];
    return s.n_batch * ((s.m + tile_m - 1) / tile_m) * ((s.n + tile_n - 1) / tile_n);
}

static void add(strata_candidate *out, int *n, const int *t) {
    strata_candidate *candidate = &out[(*n)++];
    *candidate = (strata_candidate){.exact = true, .values = {t[0], t[1], t[2], t[3], t[4]}};
    snprintf(candidate->name, sizeof candidate->name, "local=%dx%d work=%dx%d k=%d", t[LOCAL_X], t[LOCAL_Y], t[WORK_M],
             t[WORK_N], t[TILE_K]);
}

/* CLBlast's words: m n k batch, strides of rows and of matrices of a and b, transposes. */
static bool library_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_matmul_attrs *attrs = node->attrs;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return limits->library && node->dtype == STRATA_DTYPE_F32 && strata_epilogue_is_plain(&attrs->epilogue) && s.m > 0 &&
           s.n > 0 && s.k > 0 && s.n_batch > 0;
}

static strata_status lower_to_library(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_matmul_attrs *attrs = node->attrs;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    strata_launch launch = {
        .kernel = lowering->limits->library->stem,
        .n_buffers = 3,
        .buffers = {node->inputs[0], node->inputs[1], node},
        .writes = 1u << 2,
        .n_words = 10,
        .words = {{(uint32_t)s.m},
                  {(uint32_t)s.n},
                  {(uint32_t)s.k},
                  {(uint32_t)s.n_batch},
                  {(uint32_t)s.a_row},
                  {(uint32_t)s.b_row},
                  {(uint32_t)s.a_batch},
                  {(uint32_t)s.b_batch},
                  {(uint32_t)attrs->transpose_a},
                  {(uint32_t)attrs->transpose_b}},
        .global = {1, 0},
        .local = {1, 0},
    };
    return strata_lowering_add(lowering, &launch, err);
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    int64_t units = limits->compute_units > 1 ? limits->compute_units : UNKNOWN_UNITS;
    int first = 0, n = 0;
    while (first < N_TILES - 1 && (!fits_device(limits, tiles[first]) || n_groups(node, tiles[first]) < TILES_A_UNIT * units))
        first++;
    add(out, &n, tiles[first]);
    if (library_fits(limits, node)) out[n++] = (strata_candidate){.name = "library", .exact = false, .values = {LIBRARY}};
    for (int i = 0; i < N_TILES && n < STRATA_CANDIDATES; i++)
        if (i != first && fits_device(limits, tiles[i])) add(out, &n, tiles[i]);
    return n;
}

static strata_status lower(const strata_tensor *node, const strata_candidate *candidate, strata_lowering *lowering,
                           strata_error *err) {
    const int *t = candidate->values;
    if (t[0] == LIBRARY) return lower_to_library(node, lowering, err);
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matmul";
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_M", t[WORK_M]};
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_N", t[WORK_N]};
    launch.constants[launch.n_constants++] = (strata_launch_constant){"TILE_K", t[TILE_K]};
    launch.local[0] = t[LOCAL_X];
    launch.local[1] = launch.global[1] = t[LOCAL_Y];
    launch.global[0] = n_groups(node, t) * t[LOCAL_X];
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_gpu_matmul = {
    .name = "gpu/matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
