/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions as products of tiles: what the GPU families with and without matrix units have in common. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_CONV2D_H
#define STRATA_BACKENDS_KERNEL_GPU_CONV2D_H

#include "backends/kernel/gpu_tiles.h"

/* A conv2d, conv2d_input_grad or conv2d_filter_grad as a product of matrices. */
typedef struct strata_conv2d_product_sizes {
    /* batch counts the groups, and in conv2d_input_grad also the classes of pixels that use the same taps of the filter. */
    strata_tiled_product product;
    /* The length of a sum (k). In conv2d_input_grad it is that of the class with the most taps. */
    int64_t steps;
    /* How many steps are added to one sum. It depends only on the shapes, since it decides the bits of the result. */
    int64_t part;
} strata_conv2d_product_sizes;

strata_conv2d_product_sizes strata_conv2d_product_of(const strata_tensor *node);
/* Whether the product has enough columns for tiles. In particular, depthwise convolutions would leave most of a tile
 * unused. */
bool strata_conv2d_suits_tiles(const strata_tensor *node);
/* Fills the launch of a kernel with the arguments of conv2d_tiles, for a conv2d or conv2d_input_grad in `parts` parts
 * of `part` steps each. The caller adds the kernel's name and its tiles. */
STRATA_MUST_USE strata_status strata_conv2d_launch_tiles(const strata_tensor *node, int64_t parts, int64_t part,
                                                         strata_launch *out_launch, strata_error *err);
/* Adds the launch that adds the sums of the parts. Does nothing for one part. */
STRATA_MUST_USE strata_status strata_conv2d_fold_tiles(const strata_tensor *node, int64_t parts, strata_lowering *lowering,
                                                       strata_error *err);

#endif
