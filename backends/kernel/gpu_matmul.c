/* SPDX-License-Identifier: Apache-2.0
 *
 * The family gpu/matmul for real GPUs: tiles of shaders/matmul_tiles.kernel, and for small products those of shaders/matmul.kernel with fewer elements
 * a work-item. A backend's library of matrix products (CLBlast) is one more candidate for plain products; it folds K in an order of its
 * own, so only options.fast lets it in. */
#include <stdio.h>

#include "backends/kernel/gpu_tiles.h"
#include "core/op/matmul.h"

enum { KIND = TILE_VALUES, TILES = 0, SMALL, LIBRARY }; /* candidate->values[KIND] */
enum { LEAST_TILES = 96 };                              /* fewer of matmul_tiles' leave most of a large device idle */

/* Work-items of a group along n and m, elements of each along m and n, steps of k in local memory. */
static const int small_tiles[][TILE_VALUES] = {{16, 16, 2, 2, 16}, {16, 16, 1, 1, 16}};
enum { N_SMALL = sizeof small_tiles / sizeof *small_tiles };

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return strata_tiles_fit(limits);
}

static strata_tiled_product product_of(const strata_tensor *node) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return (strata_tiled_product){.m = s.m, .n = s.n, .batch = s.n_batch};
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

static strata_candidate small_candidate(int i) {
    const int *t = small_tiles[i];
    strata_candidate candidate = {.exact = true, .values = {t[0], t[1], t[2], t[3], t[4], SMALL}};
    snprintf(candidate.name, sizeof candidate.name, "small tile=%dx%d", (int)strata_tile_m(t), (int)strata_tile_n(t));
    return candidate;
}

/* Untuned, the small tiles are for products of which few of the others can be made. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_tiled_product product = product_of(node);
    int n = 0;
    strata_candidate tiled[STRATA_CANDIDATES];
    const int n_tiled = strata_tiles_candidates(limits, &product, STRATA_CANDIDATES - N_SMALL - 1, tiled);
    const bool small = strata_tiles_count(&product, tiled[0].values) < LEAST_TILES;
    if (small)
        for (int i = 0; i < N_SMALL; i++) out[n++] = small_candidate(N_SMALL - 1 - i);
    for (int i = 0; i < n_tiled; i++) out[n++] = tiled[i];
    if (!small)
        for (int i = 0; i < N_SMALL; i++) out[n++] = small_candidate(i);
    if (library_fits(limits, node))
        out[n++] = (strata_candidate){.name = "library", .exact = false, .values = {[KIND] = LIBRARY}};
    return n;
}

static strata_status lower(const strata_tensor *node, const strata_candidate *candidate, strata_lowering *lowering,
                           strata_error *err) {
    const strata_tiled_product product = product_of(node);
    if (candidate->values[KIND] == LIBRARY) return lower_to_library(node, lowering, err);
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = candidate->values[KIND] == SMALL ? "matmul" : "matmul_tiles";
    strata_tiles_launch(candidate, &launch);
    launch.global[0] *= strata_tiles_count(&product, candidate->values);
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_gpu_matmul = {
    .name = "gpu/matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
