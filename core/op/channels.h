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

/* x is a float of at least one axis; the tensors of `by_channel` are f32 (channels). names[i] names input i of the node. */
STRATA_MUST_USE strata_status strata_check_channels(const strata_tensor *node, int x, unsigned by_channel,
                                                    const char *const *names, strata_error *err);
/* "f32_f32", "f16_f32" or "bf16_f32". */
const char *strata_channels_variant(strata_dtype dtype);
/* Sets the words rows, channels and block, and the grid, of a kernel that processes blocks of rows. */
STRATA_MUST_USE strata_status strata_launch_blocks(strata_launch *launch, strata_channels c, strata_error *err);
/* The two launches that compute the node, f32 (2, channels), from x: mean and variance or, with mean, variance and dy, the sums
 * of the gradient. */
STRATA_MUST_USE strata_status strata_channel_sums_lower(const strata_tensor *node, const strata_tensor *x,
                                                        const strata_tensor *mean, const strata_tensor *variance,
                                                        const strata_tensor *dy, double epsilon, strata_lowering *lowering,
                                                        strata_error *err);

#endif
