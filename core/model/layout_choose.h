/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses how the parameters of a model are divided over the axis `tensor` of a mesh.
 *
 * A layer is divided in one of these ways; its other parameters, such as the bias of rows, stay whole:
 *   columns     dense, conv1d, conv2d: the last dimension of the kernel, and the bias. Each device computes some channels of y
 *   rows        dense, conv1d, conv2d: the kernel's dimension of input channels. Each device has some channels of x, and y is
 *               the sum over the devices
 *   heads       multi_head_attention: whole heads, in the columns of query, key and value, and in the rows of the output
 *   vocabulary  embedding: rows of the table. Each device looks up its tokens, and y is the sum
 *   channels    batch_norm between columns and rows
 * Values whose channels are divided go from columns to rows through layers that compute each channel by itself: activations,
 * dropout, pools, batch_norm, and sums and products of values that are divided alike. So columns and rows come in pairs; the
 * output of columns without rows is gathered, and rows without columns take their part of a whole x.
 *
 * With P bytes of a layer's parameters, F operations of its forward pass and X and Y bytes of its input and output, for the
 * examples of one device, what a division saves, in bytes, is
 *     4 P + 3 F / STRATA_LAYOUT_FLOPS_PER_BYTE - 2 E - G
 * 4 P: a parameter, its gradient and two slots, which the update moves. 3 F: the forward pass and its two gradients. E is what
 * an all_reduce sums: Y of rows, heads and vocabulary, and X of columns and heads, whose gradient is partial, unless no
 * parameter comes before X. G is what is gathered: values of columns that others than rows read, and the gradient of X of rows
 * without columns. The share of T devices, (T - 1) / T, is the same in all of them. A division that saves something is chosen;
 * those that save most are chosen first, and exclude others. Besides,
 *     - columns, rows without columns, and heads are of layers of at least STRATA_LAYOUT_LEAST_BYTES of parameters;
 *     - a table is divided if it has more than STRATA_LAYOUT_LARGE_BYTES, and else whole;
 *     - no part is empty.
 * The choice depends on nothing but the arguments. */
#ifndef STRATA_CORE_MODEL_LAYOUT_CHOOSE_H
#define STRATA_CORE_MODEL_LAYOUT_CHOOSE_H

#include "core/model/layout.h"

/* Operations that take as long as one byte of an exchange: those of 1 TFLOP/s and 10 GB/s. */
enum { STRATA_LAYOUT_FLOPS_PER_BYTE = 100, STRATA_LAYOUT_LEAST_BYTES = 64 << 10 };

/* examples: those that one device computes together, at least 1. The other arguments are as in strata_layout_apply. Fails:
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_layout_choose(const strata_layout_model *model, const strata_mesh *mesh, int64_t examples,
                                                   strata_memory *memory, strata_placement *out_placements,
                                                   const char **out_reasons, strata_error *err);

#endif
