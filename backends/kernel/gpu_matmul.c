/* SPDX-License-Identifier: Apache-2.0
 *
 * The family gpu/matmul for real GPUs: products by tiles (shaders/matmul_tiles.kernel). If k is long and the result
 * small, k is divided into parts, whose sums matmul_fold.kernel adds. The parts depend only on the shapes, since they
 * decide the bits of the result.
 *
 * For products without an epilogue, the backend's library of matrix products (CLBlast) is one more candidate. It adds
 * the terms of a sum in its own order, so it is only used with options.fast. */
#include "backends/kernel/gpu_tiles.h"
#include "core/op/copy.h"
#include "core/op/matmul.h"

enum { LIBRARY = -1 }; /* candidate->values[0] of the library's candidate */

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return strata_tiles_fit(limits);
}

static strata_tiled_product product_of(const strata_matmul_sizes *s) {
    return (strata_tiled_product){.m = s->m, .n = s->n, .batch = s->n_batch};
}

static int64_t part_of(const strata_matmul_sizes *s) {
    const strata_tiled_product product = product_of(s);
    return strata_tiles_part(&product, s->k, TILE_LEAST_PART);
}

static int64_t n_parts(const strata_matmul_sizes *s) {
    const int64_t part = part_of(s);
    return s->k ? (s->k + part - 1) / part : 1;
}

/* The arguments of CLBlast: m, n, k, batch, the strides of rows and of matrices of a and b, the transposes. */
static bool library_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_matmul_attrs *attrs = node->attrs;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return limits->library && node->dtype == STRATA_DTYPE_F32 && strata_epilogue_is_plain(&attrs->epilogue) && s.m > 0 &&
           s.n > 0 && s.k > 0 && s.n_batch > 0;
}

static strata_status lower_to_library(const strata_kernel_limits *limits, const strata_tensor *node, strata_lowering *lowering,
                                      strata_error *err) {
    const strata_matmul_attrs *attrs = node->attrs;
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    strata_launch launch = {
        .kernel = limits->library->stem,
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
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    strata_tiled_product product = product_of(&s);
    product.batch *= n_parts(&s);
    int n = strata_tiles_candidates(limits, &product, out);
    if (library_fits(limits, node)) out[n++] = (strata_candidate){.name = "library", .exact = false, .values = {LIBRARY}};
    return n;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_matmul_sizes s = strata_matmul_sizes_of(node);
    const strata_tiled_product product = product_of(&s);
    const int64_t parts = n_parts(&s);
    if (candidate->values[0] == LIBRARY) return lower_to_library(limits, node, lowering, err);
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matmul_tiles";
    strata_launch_word(&launch)->u32 = (uint32_t)parts;
    strata_launch_word(&launch)->u32 = (uint32_t)part_of(&s);
    strata_tiles_launch(candidate, &launch);
    strata_tiles_launch_parts(node, parts, &launch);
    launch.global[0] *= parts * strata_tiles_count(&product, candidate->values);
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    return parts > 1 ? strata_tiles_fold(node, s.n, parts, lowering, err) : STRATA_OK;
}

const strata_family strata_family_gpu_matmul = {
    .name = "gpu/matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
