/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of the kernels that include shaders/matrix_units/units.h, for the families of GPUs with matrix units: their shapes as
 * candidates, and their launches. Products of f16 and bf16 go there, whose sums stay f32; those of f32, split into f16, only
 * where options.fast allows other last bits. With options.fast the tiles without matrix units are candidates as well, since
 * they have other last bits.
 *
 * Tiles change no bit. How fast they are was not measured on hardware: a model of their cost orders them, the tuner decides. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_UNITS_H
#define STRATA_BACKENDS_KERNEL_GPU_UNITS_H

#include "backends/kernel/gpu_tiles.h"

/* Whether the device's units multiply matrices of the node's dtype by `kernel` ("matmul"), with as much local memory beside the
 * tiles as the product says. */
bool strata_units_fit(const strata_kernel_limits *limits, const strata_tensor *node, const char *kernel,
                      const strata_tiled_product *product);
/* A part of a product (strata_tiles_part), rounded up to whole steps of a tile. */
int64_t strata_units_part(const strata_kernel_limits *limits, const strata_tensor *node, int64_t part);
/* Writes candidates for the node, a product of which product->batch counts the parts too; returns how many. plain: the family
 * without units, whose candidates follow with options.fast. */
int strata_units_candidates(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                            const strata_family *plain, strata_candidate *out);
/* Whether the candidate is one of the family without units. */
bool strata_units_is_plain(const strata_candidate *candidate);
/* Sets what such a kernel's launch has beside the words, buffers and constants of the product: the tile, the buffer for sums of
 * parts behind that of the result, and the work-items for product->batch products. */
void strata_units_launch(const strata_kernel_limits *limits, const strata_tensor *node, const strata_tiled_product *product,
                         const strata_candidate *candidate, bool in_parts, strata_launch *launch);

#endif
