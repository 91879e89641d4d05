/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions as products of tiles: what the families of real GPUs with and without matrix units have in common. */
#ifndef STRATA_BACKENDS_KERNEL_GPU_CONV2D_H
#define STRATA_BACKENDS_KERNEL_GPU_CONV2D_H

#include "backends/kernel/gpu_tiles.h"

/* A conv2d, conv2d_input_grad or conv2d_filter_grad as a product of matrices. */
typedef struct strata_conv2d_product_sizes {
    /* batch: groups, and in conv2d_input_grad also the classes of pixels that share their taps. */
    strata_tiled_product product;
    /* k; in conv2d_input_grad that of the class with the most taps. */
    int64_t steps;
    /* How many steps are added to one sum. It depends only on the shape, since it decides the bits. */
    int64_t part;
} strata_conv2d_product_sizes;

strata_conv2d_product_sizes strata_conv2d_product_of(const strata_tensor *node);
/* Whether the product has enough columns for tiles. Depthwise convolutions above all would leave most of a tile empty. */
bool strata_conv2d_suits_tiles(const strata_tensor *node);
/* The launch of a kernel with conv2d_tiles' words for a conv2d or conv2d_input_grad in `parts` parts of `part` steps. The
 * caller adds the kernel's name and its tiles. */
STRATA_MUST_USE strata_status strata_conv2d_launch_tiles(const strata_tensor *node, int64_t parts, int64_t part,
                                                         strata_launch *out_launch, strata_error *err);
/* ... and for its parts the launch that adds them. */
STRATA_MUST_USE strata_status strata_conv2d_fold_tiles(const strata_tensor *node, int64_t parts, strata_lowering *lowering,
                                                       strata_error *err);

#endif
