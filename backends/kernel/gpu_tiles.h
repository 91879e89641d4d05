/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of the kernels that include shaders/product_tiles.h, for the families of real GPUs: their shapes as candidates, and their launches.
 * Which is fastest depends on registers, local memory and the number of compute units in ways that no query tells, so the tuner tries
 * them; untuned, the largest that gives every unit something to do is taken. Tiles do not change a bit. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_TILES_H
#define STRATA_BACKENDS_KERNEL_GPU_TILES_H

#include "backends/kernel/lowering.h"

/* Work-items of a group along n and m, elements of each along m and n, steps of k in local memory. */
enum { TILE_LOCAL_X, TILE_LOCAL_Y, TILE_WORK_M, TILE_WORK_N, TILE_STEPS, TILE_VALUES }; /* candidate->values */

/* c = a b, `batch` times; extra_words: of 4 bytes in local memory, for each row of a tile and for each step. */
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
/* Writes at most `most` candidates that the device can run, the one to take untuned first; returns how many. */
int strata_tiles_candidates(const strata_kernel_limits *limits, const strata_tiled_product *product, int most,
                            strata_candidate *out);
/* The constants and work-groups of one tile shape; global[0] holds one work-group, times which the caller takes the number of tiles. */
void strata_tiles_launch(const strata_candidate *candidate, strata_launch *launch);

#endif
