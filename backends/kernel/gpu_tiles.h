/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses tiles for the kernels that include shaders/product_tiles.h, and makes their launches. The families for real
 * GPUs use it.
 *
 * Which tile is fastest depends on registers and local memory in ways that no query of the device reports. So a cost
 * model, which uses the numbers of work-items and compute units, ranks the tiles, and the tuner measures the best of
 * them. Without tuning, the model's first choice is used. The choice of a tile changes no bit of the result. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_TILES_H
#define STRATA_BACKENDS_KERNEL_GPU_TILES_H

#include "backends/kernel/lowering.h"

/* candidate->values: the work-items of a work-group along n and m, the elements of each work-item along m and n, and
 * the steps of k in local memory. */
enum { TILE_LOCAL_X, TILE_LOCAL_Y, TILE_WORK_M, TILE_WORK_N, TILE_STEPS, TILE_VALUES };
/* The most candidates of a node. */
enum { STRATA_TILES_TRIED = 4 };

/* TILE_ROW_WORDS, TILE_STEP_WORDS: the most 4-byte words of local memory that a kernel needs besides its tiles, for
 * each row of a tile and for each step of k. TILE_LEAST_PART: the fewest steps of k in a part. Shorter parts are not
 * worth the additional launch that adds them. */
enum { TILE_ROW_WORDS = 4, TILE_STEP_WORDS = 6, TILE_LEAST_PART = 96 };

/* c = a b, `batch` times. words_a_row and words_a_step are the 4-byte words of local memory that the kernel needs
 * besides its tiles, for each row of a tile and for each step of k. */
typedef struct strata_tiled_product {
    int64_t m, n, batch;
    int words_a_row, words_a_step;
} strata_tiled_product;

/* The rows and columns of a tile; `tile` is candidate->values. */
static inline int64_t strata_tile_m(const int *tile) {
    return (int64_t)tile[TILE_LOCAL_Y] * tile[TILE_WORK_M];
}
static inline int64_t strata_tile_n(const int *tile) {
    return (int64_t)tile[TILE_LOCAL_X] * tile[TILE_WORK_N];
}

/* The number of tiles of all `batch` products. */
int64_t strata_tiles_count(const strata_tiled_product *product, const int *tile);
/* Whether kernels with tiles can run on the device at all. */
bool strata_tiles_fit(const strata_kernel_limits *limits);
/* If a product with `steps` steps of k has too few tiles for a large device, its steps are divided into parts. Returns
 * the number of steps in a part, at least `least` if there are several parts. It depends only on the sizes, since it
 * decides the bits of the result. */
int64_t strata_tiles_part(const strata_tiled_product *product, int64_t steps, int64_t least);
/* Changes the launch of a product that is computed in parts: the sums are written to scratch memory in f32, without the
 * epilogue. Sets the launch's variant in any case. */
void strata_tiles_launch_parts(const strata_tensor *node, int64_t parts, strata_launch *launch);
/* Adds the launch that adds `parts` sums in scratch memory and applies the node's epilogue. columns: the length of a
 * row of the node. */
STRATA_MUST_USE strata_status strata_tiles_fold(const strata_tensor *node, int64_t columns, int64_t parts,
                                                strata_lowering *lowering, strata_error *err);
/* The relative time of one step of k: a compute unit computes its tiles, each with this number of warps and this work, one
 * after another. If all of them together have fewer warps than hide latency, only the work of one warp counts. */
double strata_tiles_cost(const strata_kernel_limits *limits, int64_t count, double warps, double work);
/* Adds a candidate of this cost to the n cheapest so far, which are sorted by cost. At most STRATA_TILES_TRIED are
 * kept. Returns how many there are then. */
int strata_tiles_keep_cheapest(strata_candidate *out, double *costs, int n, const strata_candidate *candidate, double cost);
/* Writes at most STRATA_TILES_TRIED candidates that the device can run and returns how many. The first is used without
 * tuning. */
int strata_tiles_candidates(const strata_kernel_limits *limits, const strata_tiled_product *product, strata_candidate *out);
/* Sets the constants and work-group size of a tile. Sets global[] to the size of one work-group; the caller multiplies
 * global[0] by the number of tiles. */
void strata_tiles_launch(const strata_candidate *candidate, strata_launch *launch);

/* ---- matrix units ---- */
/* Chooses tiles for the kernels that include shaders/matrix_units/units.h, and makes their launches. The families for
 * GPUs with matrix units use it.
 *
 * Matrix units compute products of f16 and bf16 operands with f32 sums. They compute products of f32 operands, each
 * split into two f16 values, only if options.fast allows other last bits. With options.fast, the tiles without matrix
 * units are candidates too, since their last bits differ.
 *
 * The choice of a tile changes no bit of the result. The tiles' speeds have not been measured on hardware: a cost model
 * ranks them and the tuner decides. */

/* Whether the device's matrix units multiply matrices of the node's dtype with `kernel`
 * ("matrix_units/matmul"). The smallest tile
 * and the additional words of the product (words_a_row, words_a_step) must fit into local memory. */
bool strata_units_fit(const strata_kernel_limits *limits, const strata_tensor *node, const char *kernel,
                      const strata_tiled_product *product);
/* The number of steps in a part of a product (see strata_tiles_part), rounded up to whole steps of a tile. */
int64_t strata_units_part(const strata_kernel_limits *limits, const strata_tensor *node, int64_t part);
/* Writes candidates for the node and returns how many. product->batch includes the parts. plain: the family without
 * matrix units, whose candidates follow with options.fast. */
int strata_units_candidates(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                            const strata_family *plain, strata_candidate *out);
/* Whether the candidate belongs to the family without matrix units. */
bool strata_units_is_plain(const strata_candidate *candidate);
/* Adds the tile, the buffer for the sums of parts (after the result's buffer) and the number of work-items for
 * product->batch products to a launch that already has the product's words, buffers and constants. */
void strata_units_launch(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                         const strata_candidate *candidate, bool in_parts, strata_launch *launch);

#endif
