/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of the kernels that include shaders/product_tiles.h, for the families of real GPUs: their shapes as candidates, and
 * their launches. Which is fastest depends on registers and local memory in ways that no query tells, so the tuner tries those
 * that a model of the cost, by work-items and compute units, says are best; untuned, the first of them is taken. Tiles do not
 * change a bit. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_TILES_H
#define STRATA_BACKENDS_KERNEL_GPU_TILES_H

#include "backends/kernel/lowering.h"

/* Work-items of a group along n and m, elements of each along m and n, steps of k in local memory. */
enum { TILE_LOCAL_X, TILE_LOCAL_Y, TILE_WORK_M, TILE_WORK_N, TILE_STEPS, TILE_VALUES }; /* candidate->values */
enum { STRATA_TILES_TRIED = 4 };                                                        /* candidates of a node */

/* Words of 4 bytes that a kernel keeps at most beside its tiles, for each row and each step; and shorter sums than these are
 * not worth a fold. */
enum { TILE_ROW_WORDS = 4, TILE_STEP_WORDS = 6, TILE_LEAST_PART = 96 };

/* c = a b, `batch` times; words_a_row, words_a_step: of 4 bytes in local memory, for each row of a tile and for each step. */
typedef struct strata_tiled_product {
    int64_t m, n, batch;
    int words_a_row, words_a_step;
} strata_tiled_product;

/* Of candidate->values. */
static inline int64_t strata_tile_m(const int *tile) {
    return (int64_t)tile[TILE_LOCAL_Y] * tile[TILE_WORK_M];
}
static inline int64_t strata_tile_n(const int *tile) {
    return (int64_t)tile[TILE_LOCAL_X] * tile[TILE_WORK_N];
}

/* Tiles of one product. */
int64_t strata_tiles_count(const strata_tiled_product *product, const int *tile);
/* Whether kernels with tiles can run on the device at all. */
bool strata_tiles_fit(const strata_kernel_limits *limits);
/* A product of `steps` steps whose tiles are too few for a large device is cut into parts along its steps: how many steps each
 * has, at least `least` where it is cut. By the sizes alone, since it decides the bits. */
int64_t strata_tiles_part(const strata_tiled_product *product, int64_t steps, int64_t least);
/* For a product in parts: where the kernel puts its sums (NULL: in scratch memory), its variant from the node's dtype to
 * theirs, without the epilogue. */
void strata_tiles_launch_parts(const strata_tensor *node, int64_t parts, strata_launch *launch);
/* ... and the launch that makes the node of `parts` sums in scratch memory: their sum, and the node's epilogue. columns: of a
 * row of the node. */
STRATA_MUST_USE strata_status strata_tiles_fold(const strata_tensor *node, int64_t columns, int64_t parts,
                                                strata_lowering *lowering, strata_error *err);
/* Adds a candidate of this cost to the n cheapest so far, which are in the order of their costs and at most STRATA_TILES_TRIED.
 * Returns how many there are then. */
int strata_tiles_keep_cheapest(strata_candidate *out, double *costs, int n, const strata_candidate *candidate, double cost);
/* Writes at most STRATA_TILES_TRIED candidates that the device can run, the one to take untuned first; returns how many. */
int strata_tiles_candidates(const strata_kernel_limits *limits, const strata_tiled_product *product, strata_candidate *out);
/* The constants and work-groups of one tile shape; global[0] holds one work-group, times which the caller takes the number of
 * tiles. */
void strata_tiles_launch(const strata_candidate *candidate, strata_launch *launch);

#endif
