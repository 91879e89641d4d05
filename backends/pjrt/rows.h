/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that table.c names. What each computes is the op's formula in core/op; `name` is what its row says. */
#ifndef STRATA_BACKENDS_PJRT_ROWS_H
#define STRATA_BACKENDS_PJRT_ROWS_H

#include "backends/pjrt/lower.h"

/* elementwise.c: of a hlo_type's values */
typedef hlo_value pjrt_element(hlo *h, const char *name, const hlo_value *x);
pjrt_element pjrt_unary, pjrt_binary, pjrt_compare, pjrt_square, pjrt_relu, pjrt_gelu, pjrt_gelu_tanh, pjrt_silu, pjrt_softplus,
    pjrt_relu_grad, pjrt_tanh_grad, pjrt_sigmoid_grad, pjrt_leaky_relu, pjrt_elu, pjrt_gelu_grad, pjrt_gelu_tanh_grad,
    pjrt_silu_grad, pjrt_sigmoid_cross_entropy, pjrt_sigmoid_sub, pjrt_where;

/* Of a node. */
typedef hlo_value pjrt_node(pjrt_lowering *l, const strata_tensor *node, const char *name);
/* elementwise.c */
pjrt_node pjrt_chain, pjrt_clip, pjrt_cast, pjrt_dequantize;
/* places.c */
pjrt_node pjrt_reshape, pjrt_transpose, pjrt_broadcast_to, pjrt_concat, pjrt_slice, pjrt_pad, pjrt_pack;
/* index.c */
pjrt_node pjrt_gather, pjrt_gather_grad, pjrt_scatter_update, pjrt_one_hot, pjrt_first_index, pjrt_segment_sum;
/* products.c */
pjrt_node pjrt_matmul, pjrt_conv2d, pjrt_conv2d_input_grad, pjrt_conv2d_filter_grad;
/* windows.c */
pjrt_node pjrt_max_pool2d, pjrt_max_pool2d_grad, pjrt_avg_pool2d, pjrt_avg_pool2d_grad;
const char *pjrt_refuse_large(const strata_tensor *node);
/* folds.c */
pjrt_node pjrt_reduce, pjrt_reduce_mean, pjrt_argmax, pjrt_softmax, pjrt_softmax_grad, pjrt_log_softmax, pjrt_log_softmax_grad,
    pjrt_softmax_cross_entropy, pjrt_softmax_cross_entropy_grad, pjrt_sparse_softmax_cross_entropy,
    pjrt_sparse_softmax_cross_entropy_grad, pjrt_classification_sums, pjrt_binary_sums;
/* norms.c */
pjrt_node pjrt_moments, pjrt_batch_norm, pjrt_batch_norm_sums, pjrt_batch_norm_grad, pjrt_layer_norm, pjrt_layer_norm_grad;
/* random.c */
pjrt_node pjrt_random_uniform, pjrt_random_normal, pjrt_dropout;
/* updates.c */
pjrt_node pjrt_assign, pjrt_assign_add, pjrt_moving_average, pjrt_sgd, pjrt_adam, pjrt_rmsprop, pjrt_adagrad, pjrt_lamb,
    pjrt_all_reduce;
const char *pjrt_refuse_some_replicas(const strata_tensor *node);

/* Where x is the largest along an axis, the first of equals, NaN above all: i32, without the axis. */
hlo_value pjrt_first_largest(hlo *h, hlo_value x, int axis);

#endif
