/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that table.c refers to. Each computes the formula of the op in core/op. The argument `name` comes from
 * the op's row in the table. */
#ifndef STRATA_BACKENDS_PJRT_ROWS_H
#define STRATA_BACKENDS_PJRT_ROWS_H

#include "backends/pjrt/lower.h"

/* elementwise.c: computes an element-wise op from the values of its operands. */
typedef hlo_value pjrt_element(hlo *h, const char *name, const hlo_value *x);
pjrt_element strata_pjrt_unary, strata_pjrt_binary, strata_pjrt_compare, strata_pjrt_square, strata_pjrt_relu, strata_pjrt_erf,
    strata_pjrt_gelu, strata_pjrt_gelu_tanh, strata_pjrt_silu, strata_pjrt_softplus, strata_pjrt_relu_grad,
    strata_pjrt_tanh_grad, strata_pjrt_sigmoid_grad, strata_pjrt_leaky_relu, strata_pjrt_elu, strata_pjrt_gelu_grad,
    strata_pjrt_gelu_tanh_grad, strata_pjrt_silu_grad, strata_pjrt_sigmoid_cross_entropy, strata_pjrt_sigmoid_sub,
    strata_pjrt_where;

/* Computes a node. */
typedef hlo_value pjrt_node(pjrt_lowering *l, const strata_tensor *node, const char *name);
/* elementwise.c */
pjrt_node strata_pjrt_chain, strata_pjrt_clip, strata_pjrt_cast, strata_pjrt_dequantize;
/* places.c */
pjrt_node strata_pjrt_reshape, strata_pjrt_transpose, strata_pjrt_broadcast_to, strata_pjrt_concat, strata_pjrt_slice,
    strata_pjrt_pad, strata_pjrt_pack;
/* index.c */
pjrt_node strata_pjrt_gather, strata_pjrt_gather_grad, strata_pjrt_scatter_update, strata_pjrt_one_hot, strata_pjrt_first_index,
    strata_pjrt_segment_sum;
/* products.c */
pjrt_node strata_pjrt_matmul, strata_pjrt_conv2d, strata_pjrt_conv2d_input_grad, strata_pjrt_conv2d_filter_grad;
/* windows.c */
pjrt_node strata_pjrt_max_pool2d, strata_pjrt_max_pool2d_grad, strata_pjrt_avg_pool2d, strata_pjrt_avg_pool2d_grad;
const char *strata_pjrt_refuse_large(const strata_tensor *node);
/* folds.c */
pjrt_node strata_pjrt_reduce, strata_pjrt_reduce_mean, strata_pjrt_argmax, strata_pjrt_softmax, strata_pjrt_softmax_grad,
    strata_pjrt_log_softmax, strata_pjrt_log_softmax_grad, strata_pjrt_softmax_cross_entropy,
    strata_pjrt_softmax_cross_entropy_grad, strata_pjrt_sparse_softmax_cross_entropy,
    strata_pjrt_sparse_softmax_cross_entropy_grad, strata_pjrt_classification_sums, strata_pjrt_binary_sums;
/* norms.c */
pjrt_node strata_pjrt_moments, strata_pjrt_batch_norm, strata_pjrt_batch_norm_sums, strata_pjrt_batch_norm_grad,
    strata_pjrt_layer_norm, strata_pjrt_layer_norm_grad;
/* random.c */
pjrt_node strata_pjrt_random_uniform, strata_pjrt_random_normal, strata_pjrt_dropout;
/* updates.c */
pjrt_node strata_pjrt_assign, strata_pjrt_assign_add, strata_pjrt_moving_average, strata_pjrt_sgd, strata_pjrt_adam,
    strata_pjrt_rmsprop, strata_pjrt_adagrad, strata_pjrt_lamb, strata_pjrt_all_reduce;
const char *strata_pjrt_refuse_some_replicas(const strata_tensor *node);

#endif
