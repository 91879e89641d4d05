/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor seen as (rows, channels) around its last axis, for normalisation by channel; and launches of the kernels that
 * process it in this form (shaders/channel_blocks.h, channel_parts.kernel). */
#ifndef STRATA_CORE_OP_CHANNELS_H
#define STRATA_CORE_OP_CHANNELS_H

#include "core/graph/launch.h"

typedef struct strata_channels {
    int64_t rows, channels;
} strata_channels;
strata_channels strata_channels_of(strata_shape shape);

/* Checks the node's inputs: input number x must be a float tensor with at least one axis, and each input whose bit is set
 * in `by_channel` must be f32 of shape (channels). names[i] is the name of input i in messages. */
STRATA_MUST_USE strata_status strata_check_channels(const strata_tensor *node, int x, unsigned by_channel,
                                                    const char *const *names, strata_error *err);
/* Row `index` of sums (2, channels), as (channels). */
strata_tensor *strata_channels_row(strata_tensor *sums, int64_t index);
/* The variant of a kernel whose x has this dtype: "f32_f32", "f16_f32" or "bf16_f32". */
const char *strata_channels_variant(strata_dtype dtype);
/* Sets the words rows, channels and block, and the grid, of a kernel that processes blocks of rows. */
STRATA_MUST_USE strata_status strata_launch_blocks(strata_launch *launch, strata_channels c, strata_error *err);
/* Adds the two launches that compute the node, f32 (2, channels), from x. If mean, variance and dy are NULL, the node is
 * the mean and variance of each channel; else it is the two sums of the gradient. */
STRATA_MUST_USE strata_status strata_channel_sums_lower(const strata_tensor *node, const strata_tensor *x,
                                                        const strata_tensor *mean, const strata_tensor *variance,
                                                        const strata_tensor *dy, double epsilon, strata_lowering *lowering,
                                                        strata_error *err);

#endif
