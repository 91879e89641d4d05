/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all ops that have a lowering to StableHLO, one row for each. */
#include "backends/pjrt/rows.h"
#include "core/op/ops.h"

#define ELEMENT(op_name, function, text) \
    { .op = &strata_op_##op_name, .element = strata_pjrt_##function, .name = text }
#define NODE(op_name, function, text) \
    { .op = &strata_op_##op_name, .lower = strata_pjrt_##function, .name = text }
#define SOME(op_name, function, refusal) \
    { .op = &strata_op_##op_name, .lower = strata_pjrt_##function, .refuse = strata_pjrt_##refusal }

static const pjrt_row rows[] = {
    /* element-wise */
    ELEMENT(neg, unary, "negate"),
    ELEMENT(abs, unary, "abs"),
    ELEMENT(sign, unary, "sign"),
    ELEMENT(square, square, NULL),
    ELEMENT(exp, unary, "exponential"),
    ELEMENT(log, unary, "log"),
    ELEMENT(sqrt, unary, "sqrt"),
    ELEMENT(rsqrt, unary, "rsqrt"),
    ELEMENT(tanh, unary, "tanh"),
    ELEMENT(sigmoid, unary, "logistic"),
    ELEMENT(relu, relu, NULL),
    ELEMENT(gelu, gelu, NULL),
    ELEMENT(gelu_tanh, gelu_tanh, NULL),
    ELEMENT(silu, silu, NULL),
    ELEMENT(softplus, softplus, NULL),
    ELEMENT(erf, erf, NULL),
    ELEMENT(sin, unary, "sine"),
    ELEMENT(cos, unary, "cosine"),
    ELEMENT(add, binary, "add"),
    ELEMENT(sub, binary, "subtract"),
    ELEMENT(mul, binary, "multiply"),
    ELEMENT(div, binary, "divide"),
    ELEMENT(pow, binary, "power"),
    ELEMENT(min, binary, "minimum"),
    ELEMENT(max, binary, "maximum"),
    ELEMENT(relu_grad, relu_grad, NULL),
    ELEMENT(tanh_grad, tanh_grad, NULL),
    ELEMENT(sigmoid_grad, sigmoid_grad, NULL),
    ELEMENT(leaky_relu, leaky_relu, NULL),
    ELEMENT(elu, elu, NULL),
    ELEMENT(gelu_grad, gelu_grad, NULL),
    ELEMENT(gelu_tanh_grad, gelu_tanh_grad, NULL),
    ELEMENT(silu_grad, silu_grad, NULL),
    ELEMENT(sigmoid_cross_entropy, sigmoid_cross_entropy, NULL),
    ELEMENT(sigmoid_sub, sigmoid_sub, NULL),
    ELEMENT(equal, compare, "EQ"),
    ELEMENT(not_equal, compare, "NE"),
    ELEMENT(less, compare, "LT"),
    ELEMENT(less_equal, compare, "LE"),
    ELEMENT(greater, compare, "GT"),
    ELEMENT(greater_equal, compare, "GE"),
    ELEMENT(where, where, NULL),
    NODE(chain, chain, NULL),
    NODE(clip, clip, NULL),
    NODE(cast, cast, NULL),
    NODE(dequantize, dequantize, NULL),
    /* shape and places */
    NODE(reshape, reshape, NULL),
    NODE(transpose, transpose, NULL),
    NODE(broadcast_to, broadcast_to, NULL),
    NODE(concat, concat, NULL),
    NODE(slice, slice, NULL),
    NODE(pad, pad, NULL),
    NODE(pack, pack, NULL),
    NODE(gather, gather, NULL),
    NODE(gather_grad, gather_grad, NULL),
    NODE(one_hot, one_hot, NULL),
    NODE(first_index, first_index, NULL),
    NODE(segment_sum, segment_sum, NULL),
    /* products and windows */
    NODE(matmul, matmul, NULL),
    NODE(conv2d, conv2d, NULL),
    NODE(conv2d_input_grad, conv2d_input_grad, NULL),
    NODE(conv2d_filter_grad, conv2d_filter_grad, NULL),
    SOME(max_pool2d, max_pool2d, refuse_large),
    SOME(max_pool2d_grad, max_pool2d_grad, refuse_large),
    NODE(avg_pool2d, avg_pool2d, NULL),
    NODE(avg_pool2d_grad, avg_pool2d_grad, NULL),
    /* folds */
    NODE(reduce_sum, reduce, "add"),
    NODE(reduce_mean, reduce_mean, "add"),
    NODE(reduce_max, reduce, "maximum"),
    NODE(reduce_min, reduce, "minimum"),
    NODE(argmax, argmax, NULL),
    NODE(softmax, softmax, NULL),
    NODE(softmax_grad, softmax_grad, NULL),
    NODE(log_softmax, log_softmax, NULL),
    NODE(log_softmax_grad, log_softmax_grad, NULL),
    NODE(softmax_cross_entropy, softmax_cross_entropy, NULL),
    NODE(softmax_cross_entropy_grad, softmax_cross_entropy_grad, NULL),
    NODE(sparse_softmax_cross_entropy, sparse_softmax_cross_entropy, NULL),
    NODE(sparse_softmax_cross_entropy_grad, sparse_softmax_cross_entropy_grad, NULL),
    NODE(classification_sums, classification_sums, NULL),
    NODE(binary_sums, binary_sums, NULL),
    /* normalisation */
    NODE(moments, moments, NULL),
    NODE(batch_norm, batch_norm, NULL),
    NODE(batch_norm_sums, batch_norm_sums, NULL),
    NODE(batch_norm_grad, batch_norm_grad, NULL),
    NODE(layer_norm, layer_norm, NULL),
    NODE(layer_norm_grad, layer_norm_grad, NULL),
    /* random */
    NODE(random_uniform, random_uniform, NULL),
    NODE(random_normal, random_normal, NULL),
    NODE(dropout, dropout, NULL),
    /* updates of variables */
    NODE(assign, assign, NULL),
    NODE(assign_add, assign_add, "add"),
    NODE(scatter_update, scatter_update, NULL),
    NODE(moving_average, moving_average, NULL),
    NODE(sgd, sgd, NULL),
    NODE(adam, adam, NULL),
    NODE(rmsprop, rmsprop, NULL),
    NODE(adagrad, adagrad, NULL),
    NODE(lamb, lamb, NULL),
    /* between replicas */
    SOME(all_reduce, all_reduce, refuse_some_replicas),
};

const pjrt_row *strata_pjrt_row_of(const strata_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}
