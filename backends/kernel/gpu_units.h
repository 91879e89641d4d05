/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses tiles for the kernels that include shaders/matrix_units/units.h, and makes their launches. The families for
 * GPUs with matrix units use it.
 *
 * Matrix units compute products of f16 and bf16 operands with f32 sums. They compute products of f32 operands, each
 * split into two f16 values, only if options.fast allows other last bits. With options.fast, the tiles without matrix
 * units are candidates too, since their last bits differ.
 *
 * The choice of a tile changes no bit of the result. The tiles' speeds have not been measured on hardware: a cost model
 * ranks them and the tuner decides. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_UNITS_H
#define STRATA_BACKENDS_KERNEL_GPU_UNITS_H

#include "backends/kernel/gpu_tiles.h"

/* Whether the device's matrix units multiply matrices of the node's dtype with `kernel` ("matmul"). The smallest tile
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
