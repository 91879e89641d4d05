/* SPDX-License-Identifier: Apache-2.0
 *
 * The three products of a convolution, and functions that their files share with each other and with the backends. With x
 * (N,H,W,C), filter (KH,KW,C/groups,K), y (N,OH,OW,K), h and w as in window.h, and group g consisting of the channels
 * from g C/groups on and the filters from g K/groups on:
 *     conv2d (x, filter)                y[n,oh,ow,f]      = sum kh,kw,c  x[n,h,w,c] filter[kh,kw,c,f]
 *     conv2d_input_grad (dy, filter)    dx[n,h,w,c]       = sum kh,kw,f  dy[n,oh,ow,f] filter[kh,kw,c,f]
 *     conv2d_filter_grad (x, dy)        df[kh,kw,c,f]     = sum n,oh,ow  x[n,h,w,c] dy[n,oh,ow,f]
 * Each is linear in both operands, and the gradients of each are the other two. The first two take epilogues.
 *
 * The order of addition in f32 is the same in every kernel. For the first two ops each element has one accumulator, which
 * begins at 0 and adds by fma over kh, kw, and then the channel, ascending; padding counts as zeros. For the third op the rows
 * (n, oh, ow) are divided into parts of strata_conv2d_part rows. Each part is added by fma in ascending order, beginning at 0,
 * over the rows whose tap is inside of x; the parts are then added as reduce_sum does. Families may use parts of other sizes,
 * which must depend only on the shape. */
#ifndef STRATA_CORE_OP_CONV2D_H
#define STRATA_CORE_OP_CONV2D_H

#include "core/op/compose.h"
#include "core/op/epilogue.h"

typedef struct strata_conv2d_attrs {
    /* window.size is the size of the filter. */
    strata_window window;
    int64_t groups;
    /* H, W of x for conv2d_input_grad, because they do not follow from the shape of dy; else 0. */
    int64_t input_size[STRATA_MAX_RANK];
    /* Only conv2d and conv2d_input_grad use it. */
    strata_epilogue epilogue;
} strata_conv2d_attrs;

/* All sizes of a convolution, computed from one of the three nodes. */
typedef struct strata_conv2d_sizes {
    /* The shape of x. */
    int64_t n, in_h, in_w, in_c;
    /* H, W and C of y. */
    int64_t out_h, out_w, out_c;
    /* KH and KW of the filter. */
    int64_t kernel_h, kernel_w;
    /* group_in = in_c / groups, group_out = out_c / groups. */
    int64_t groups, group_in, group_out;
    int64_t stride[2], dilation[2], top, left;
} strata_conv2d_sizes;

/* The node must be a valid conv2d, conv2d_input_grad or conv2d_filter_grad. */
strata_conv2d_sizes strata_conv2d_sizes_of(const strata_tensor *node);

/* The position in x, along an axis, of tap k of the output at o. A position outside of 0..in-1 is padding. d: 0 for H, 1
 * for W. */
static inline int64_t strata_conv2d_at(const strata_conv2d_sizes *s, int d, int64_t o, int64_t k) {
    return o * s->stride[d] + k * s->dilation[d] - (d ? s->left : s->top);
}

/* Whether the node is f32 and each group has one channel of x; there are special kernels for this. */
static inline bool strata_conv2d_is_depthwise(const strata_tensor *node, const strata_conv2d_sizes *s) {
    return s->group_in == 1 && s->groups > 1 && node->dtype == STRATA_DTYPE_F32;
}

/* How many rows (n, oh, ow) conv2d_filter_grad adds to one partial sum. It depends only on the shape. */
int64_t strata_conv2d_part(const strata_conv2d_sizes *sizes);

/* The common part of the launch of every kernel for a conv2d or conv2d_input_grad node: the words, buffers and constants of
 * shaders/conv2d.kernel, except for its block sizes. The caller adds the kernel's name, further constants and words, and the
 * number of work-items. */
STRATA_MUST_USE strata_status strata_conv2d_launch(const strata_tensor *node, strata_launch *out_launch, strata_error *err);
/* The common part of the launch of every kernel that sums parts of `part` rows for a conv2d_filter_grad node with rows: the
 * words and buffers of shaders/conv2d_filter_grad.kernel, and its variant. `launch` has the kernel's name, constants and
 * work-group. */
STRATA_MUST_USE strata_status strata_conv2d_filter_grad_launch(const strata_tensor *node, int64_t part, strata_launch *launch,
                                                               strata_error *err);
/* Adds that launch to the lowering. If there are several parts, their sums are in scratch memory, and it adds a second
 * launch that adds them. */
STRATA_MUST_USE strata_status strata_conv2d_filter_grad_add(const strata_tensor *node, int64_t part,
                                                            const strata_launch *launch, strata_lowering *lowering,
                                                            strata_error *err);
/* Calls the two functions above, with items_a_part work-items for each part. If there are no rows, the result is zeros. */
STRATA_MUST_USE strata_status strata_conv2d_filter_grad_lower_parts(const strata_tensor *node, int64_t part,
                                                                    strata_launch *launch, int64_t items_a_part,
                                                                    strata_lowering *lowering, strata_error *err);

/* Launches of shaders/conv2d.kernel, for a conv2d or conv2d_input_grad node, and of shaders/conv2d_filter_grad.kernel.
 * Each work-item computes a block of work_m x work_n elements of the result. The sizes of blocks do not change any bit of
 * the result. */
STRATA_MUST_USE strata_status strata_conv2d_lower_blocks(const strata_tensor *node, int work_m, int work_n,
                                                         strata_lowering *lowering, strata_error *err);
STRATA_MUST_USE strata_status strata_conv2d_filter_grad_lower_blocks(const strata_tensor *node, int work_m, int work_n,
                                                                     strata_lowering *lowering, strata_error *err);

/* For compositions. strata_conv2d_group returns the channels of one group of an image. strata_conv2d_taps describes the
 * convolution of one group as taps; false: there are too many. */
strata_tensor *strata_conv2d_group(strata_tensor *x, int64_t group, int64_t channels);
bool strata_conv2d_taps(const strata_tensor *node, strata_taps *out_taps);

/* For any of the three ops: 2 for each multiply-add, including those with padding. */
double strata_conv2d_flops(const strata_tensor *node);

/* For the three shape rules: checks the two operands, which have these names in messages. Both must have one float dtype. */
STRATA_MUST_USE strata_status strata_conv2d_check_pair(const strata_tensor *node, const char *a_name, const char *b_name,
                                                       strata_error *err);
/* Makes a node of one of the ops conv2d, conv2d_input_grad and conv2d_filter_grad. It gets the attributes of `like`, a
 * node of the same convolution. */
strata_tensor *strata_conv2d_product(const strata_op *op, strata_tensor *a, strata_tensor *b, const strata_tensor *like);

/* The placement rule of the three products. Without groups, the row has the letters c of channels and f of filters, and a
 * convolution adds up the products of all channels; with groups it has the letter g, whose factor is whole groups. */
void strata_conv2d_factors(const strata_tensor *node, const char *row, strata_factors *factors);
/* A device's part of one of them, which may have some of the groups. */
strata_tensor *strata_conv2d_divided(const strata_node_part *part);

#endif
