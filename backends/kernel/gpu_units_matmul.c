/* SPDX-License-Identifier: Apache-2.0
 *
 * The family gpu/units_matmul: matrix products by shaders/matrix_units/matmul.kernel (gpu_units.h). A long k is divided
 * into the same parts as in gpu/matmul, rounded up to whole steps of a tile. */
#include "backends/kernel/gpu_units.h"
#include "core/op/copy.h"
#include "core/op/matmul.h"

extern const strata_family strata_family_gpu_matmul;

static int64_t part_of(const strata_kernel_limits *limits, const strata_tensor *node, const strata_matmul_sizes *s) {
    const strata_tiled_product product = {.m = s->m, .n = s->n, .batch = s->n_batch};
    return strata_units_part(limits, node, strata_tiles_part(&product, s->k, TILE_LEAST_PART));
}

static int64_t n_parts(const strata_kernel_limits *limits, const strata_tensor *node, const strata_matmul_sizes *s) {
    const int64_t part = part_of(limits, node, s);
    return s->k ? (s->k + part - 1) / part : 1;
}

/* The parts are counted as additional products of the batch. */
static strata_tiled_product product_of(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return (strata_tiled_product){.m = s.m, .n = s.n, .batch = s.n_batch * n_parts(limits, node, &s)};
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_units_fit(limits, node, "matmul", &(strata_tiled_product){0});
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_tiled_product product = product_of(limits, node);
    return strata_units_candidates(limits, node, &product, &strata_family_gpu_matmul, out);
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    if (strata_units_is_plain(candidate)) return strata_family_gpu_matmul.lower(limits, node, candidate, lowering, err);
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const strata_tiled_product product = product_of(limits, node);
    const int64_t parts = n_parts(limits, node, &s);
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matrix_units/matmul";
    strata_launch_word(&launch)->u32 = (uint32_t)parts;
    strata_launch_word(&launch)->u32 = (uint32_t)part_of(limits, node, &s);
    strata_tiles_launch_parts(node, parts, &launch);
    strata_units_launch(limits, node, &product, candidate, parts > 1, &launch);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return parts > 1 ? strata_tiles_fold(node, s.n, parts, lowering, err) : STRATA_OK;
}

const strata_family strata_family_gpu_units_matmul = {
    .name = "gpu/units_matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
