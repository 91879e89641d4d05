/* SPDX-License-Identifier: Apache-2.0
 *
 * All ops in one translation unit, which the build compiles once for each instruction set. KERNELS is the name of the table of
 * ops, such as "ops_avx512". All functions in op/ are static, so that the copies do not conflict. Compilers vectorize the
 * functions' loops for the widest registers of the instruction set. ops.c chooses the table when the plugin starts. */
#include "op/elementwise.c"
#include "op/exchange.c"
#include "op/move.c"
#include "op/norm.c"
#include "op/pool.c"
#include "op/product.c"
#include "op/random.c"
#include "op/reduce.c"
#include "op/softmax.c"
#include "op/update.c"

/* The arrays compute with bf16, and with f32 that they round to bf16. They refuse f16, because rounding it to bf16 would lose
 * bits. */
enum { ARRAY_DTYPES = 1 << STRATA_PLUGIN_F32 | 1 << STRATA_PLUGIN_BF16 };

/* A row has the name, the least and the largest number of inputs, the dtypes of input 0, whether f16 and bf16 are widened, and
 * the functions refuse, prepare, cost and run. */
#define ELEMENT(name, n, dtypes) \
    { #name, n, n, dtypes, 0, chain_refuse, chain_prepare, chain_cost, chain_run }

extern const op KERNELS[];
const op KERNELS[] = {
    {"chain", 1, MOST_INPUTS, ANY_DTYPE, 0, chain_refuse, chain_prepare, chain_cost, chain_run},
    ELEMENT(neg, 1, NUMBERS),
    ELEMENT(abs, 1, NUMBERS),
    ELEMENT(sign, 1, NUMBERS),
    ELEMENT(square, 1, NUMBERS),
    ELEMENT(exp, 1, FLOATS),
    ELEMENT(log, 1, FLOATS),
    ELEMENT(sqrt, 1, FLOATS),
    ELEMENT(rsqrt, 1, FLOATS),
    ELEMENT(tanh, 1, FLOATS),
    ELEMENT(sigmoid, 1, FLOATS),
    ELEMENT(relu, 1, NUMBERS),
    ELEMENT(gelu, 1, FLOATS),
    ELEMENT(gelu_tanh, 1, FLOATS),
    ELEMENT(silu, 1, FLOATS),
    ELEMENT(softplus, 1, FLOATS),
    ELEMENT(erf, 1, FLOATS),
    ELEMENT(sin, 1, FLOATS),
    ELEMENT(cos, 1, FLOATS),
    ELEMENT(add, 2, NUMBERS),
    ELEMENT(sub, 2, NUMBERS),
    ELEMENT(mul, 2, NUMBERS),
    ELEMENT(div, 2, NUMBERS),
    ELEMENT(pow, 2, FLOATS),
    ELEMENT(min, 2, NUMBERS),
    ELEMENT(max, 2, NUMBERS),
    ELEMENT(relu_grad, 2, FLOATS),
    ELEMENT(tanh_grad, 2, FLOATS),
    ELEMENT(sigmoid_grad, 2, FLOATS),
    ELEMENT(leaky_relu, 2, FLOATS),
    ELEMENT(elu, 2, FLOATS),
    ELEMENT(gelu_grad, 2, FLOATS),
    ELEMENT(gelu_tanh_grad, 2, FLOATS),
    ELEMENT(silu_grad, 2, FLOATS),
    ELEMENT(sigmoid_cross_entropy, 2, FLOATS),
    ELEMENT(sigmoid_sub, 2, FLOATS),
    ELEMENT(equal, 2, ANY_DTYPE),
    ELEMENT(not_equal, 2, ANY_DTYPE),
    ELEMENT(less, 2, ANY_DTYPE),
    ELEMENT(less_equal, 2, ANY_DTYPE),
    ELEMENT(greater, 2, ANY_DTYPE),
    ELEMENT(greater_equal, 2, ANY_DTYPE),
    ELEMENT(where, 3, 1 << STRATA_PLUGIN_BOOL),
    {"cast", 1, 1, ANY_DTYPE, 0, one_to_one_refuse, one_to_one_prepare, NULL, cast_run},
    {"clip", 1, 1, FLOATS | 1 << STRATA_PLUGIN_I32, 0, clip_refuse, one_to_one_prepare, NULL, clip_run},
    {"fma_chain", 1, 1, F32_ALONE, 0, clip_refuse, NULL, fma_chain_cost, fma_chain_run},
    {"dequantize", 1, 1, 1 << STRATA_PLUGIN_U8, 0, dequantize_refuse, NULL, NULL, dequantize_run},

    {"reshape", 1, 1, ANY_DTYPE, 0, reshape_refuse, NULL, nothing_cost, reshape_run},
    {"transpose", 1, 1, ANY_DTYPE, 0, transpose_refuse, NULL, NULL, transpose_run},
    {"broadcast_to", 1, 1, ANY_DTYPE, 0, broadcast_refuse, NULL, NULL, broadcast_run},
    {"slice", 1, 1, ANY_DTYPE, 0, slice_refuse, NULL, NULL, slice_run},
    {"concat", 1, -1, ANY_DTYPE, 0, concat_refuse, NULL, NULL, concat_run},
    {"pad", 1, 1, ANY_DTYPE, 0, pad_refuse, NULL, NULL, pad_run},
    {"gather", 2, 2, ANY_DTYPE, 0, gather_refuse, NULL, gather_cost, gather_run},
    {"gather_grad", 2, 2, FLOATS, 1, gather_grad_refuse, NULL, gather_grad_cost, gather_grad_run},
    {"one_hot", 1, 1, WHOLES, 0, one_hot_refuse, NULL, NULL, one_hot_run},
    {"scatter_update", 3, 4, ANY_DTYPE, 0, scatter_update_refuse, NULL, scatter_update_cost, scatter_update_run},
    {"pack", 0, -1, F32_ALONE, 0, pack_refuse, NULL, nothing_cost, pack_run},

    {"matmul", 2, 4, ARRAY_DTYPES, 1, matmul_refuse, matmul_prepare, matmul_cost, product_run},
    {"conv2d", 2, 4, ARRAY_DTYPES, 1, conv2d_refuse, conv2d_prepare, conv2d_cost, product_run},
    {"conv2d_input_grad", 2, 4, ARRAY_DTYPES, 1, conv2d_input_grad_refuse, conv2d_input_grad_prepare, conv2d_input_grad_cost,
     product_run},
    {"conv2d_filter_grad", 2, 2, ARRAY_DTYPES, 1, conv2d_filter_grad_refuse, conv2d_filter_grad_prepare,
     conv2d_filter_grad_cost, product_run},

    {"max_pool2d", 1, 2, FLOATS, 1, max_pool_refuse, max_pool_prepare, max_pool_cost, max_pool2d_run},
    {"max_pool2d_grad", 2, 2, FLOATS, 1, max_pool_grad_refuse, max_pool_prepare, max_pool_cost, max_pool2d_grad_run},
    {"avg_pool2d", 1, 1, FLOATS, 1, avg_pool_refuse, NULL, avg_pool_cost, avg_pool2d_run},
    {"avg_pool2d_grad", 1, 1, FLOATS, 1, avg_pool_grad_refuse, NULL, avg_pool_cost, avg_pool2d_grad_run},

    {"reduce_sum", 1, 1, NUMBERS, 1, reduce_refuse, reduce_prepare, operand_cost, reduce_sum_run},
    {"reduce_mean", 1, 1, FLOATS, 1, reduce_refuse, reduce_prepare, operand_cost, reduce_mean_run},
    {"reduce_max", 1, 1, NUMBERS, 1, extreme_refuse, NULL, operand_cost, reduce_max_run},
    {"reduce_min", 1, 1, NUMBERS, 1, extreme_refuse, NULL, operand_cost, reduce_min_run},
    {"argmax", 1, 1, ANY_DTYPE, 1, argmax_refuse, NULL, operand_cost, argmax_run},
    {"top_k", 1, 1, ANY_DTYPE, 1, top_k_refuse, NULL, top_k_cost, top_k_run},
    {"first_index", 1, 1, WHOLES, 0, first_index_refuse, NULL, operand_cost, first_index_run},
    {"segment_sum", 2, 2, F32_ALONE, 0, segment_sum_refuse, NULL, operand_cost, segment_sum_run},

    {"softmax", 1, 1, FLOATS, 1, rows_refuse, NULL, exponential_cost, softmax_run},
    {"softmax_grad", 2, 2, FLOATS, 1, rows_refuse, NULL, exponential_cost, softmax_grad_run},
    {"log_softmax", 1, 1, FLOATS, 1, rows_refuse, NULL, exponential_cost, log_softmax_run},
    {"log_softmax_grad", 2, 2, FLOATS, 1, rows_refuse, NULL, exponential_cost, log_softmax_grad_run},
    {"softmax_cross_entropy", 2, 2, FLOATS, 1, loss_refuse, NULL, exponential_cost, softmax_cross_entropy_run},
    {"softmax_cross_entropy_grad", 3, 3, FLOATS, 1, loss_refuse, NULL, exponential_cost, softmax_cross_entropy_grad_run},
    {"sparse_softmax_cross_entropy", 2, 2, FLOATS, 1, sparse_loss_refuse, NULL, exponential_cost,
     sparse_softmax_cross_entropy_run},
    {"sparse_softmax_cross_entropy_grad", 3, 3, FLOATS, 1, sparse_loss_refuse, NULL, exponential_cost,
     sparse_softmax_cross_entropy_grad_run},
    {"classification_sums", 3, 3, F32_ALONE, 0, classification_sums_refuse, NULL, sums_cost, classification_sums_run},
    {"binary_sums", 3, 3, F32_ALONE, 0, binary_sums_refuse, NULL, sums_cost, binary_sums_run},

    {"moments", 1, 1, FLOATS, 1, moments_refuse, channels_prepare, four_cost, moments_run},
    {"batch_norm", 5, 5, FLOATS, 1, batch_norm_refuse, channels_prepare, four_cost, batch_norm_run},
    {"batch_norm_sums", 4, 4, FLOATS, 1, batch_norm_sums_refuse, channels_prepare, four_cost, batch_norm_sums_run},
    {"batch_norm_grad", 6, 6, FLOATS, 1, batch_norm_grad_refuse, channels_prepare, four_cost, batch_norm_grad_run},
    {"layer_norm", 3, 3, FLOATS, 1, layer_norm_refuse, NULL, eight_cost, layer_norm_run},
    {"layer_norm_grad", 3, 3, FLOATS, 1, layer_norm_refuse, NULL, eight_cost, layer_norm_grad_run},

    {"random_uniform", 1, 1, 1 << STRATA_PLUGIN_I32, 0, random_refuse, NULL, random_cost, random_uniform_run},
    {"random_normal", 1, 1, 1 << STRATA_PLUGIN_I32, 0, random_refuse, NULL, random_cost, random_normal_run},
    {"dropout", 2, 2, FLOATS, 1, dropout_refuse, NULL, random_cost, dropout_run},

    {"assign", 2, 2, ANY_DTYPE, 0, assign_refuse, NULL, NULL, assign_run},
    {"assign_add", 2, 2, F32_ALONE | WHOLES, 0, assign_refuse, NULL, NULL, assign_add_run},
    {"moving_average", 3, 4, F32_ALONE, 0, moving_average_refuse, NULL, NULL, moving_average_run},
    {"sgd", 4, 5, F32_ALONE, 0, sgd_refuse, NULL, optimizer_cost, sgd_run},
    {"adam", 5, 6, F32_ALONE, 0, adam_refuse, NULL, optimizer_cost, adam_run},
    {"rmsprop", 6, 7, F32_ALONE, 0, rmsprop_refuse, NULL, optimizer_cost, rmsprop_run},
    {"adagrad", 4, 5, F32_ALONE, 0, adagrad_refuse, NULL, optimizer_cost, adagrad_run},
    {"lamb", 6, 7, F32_ALONE, 0, lamb_refuse, NULL, optimizer_cost, lamb_run},

    {"all_reduce", 1, 1, F32_ALONE | WHOLES, 0, all_reduce_refuse, NULL, all_reduce_cost, all_reduce_run},
    {"all_gather", 1, 1, ANY_DTYPE, 0, all_gather_refuse, NULL, all_gather_cost, all_gather_run},
    {"reduce_scatter", 1, 1, F32_ALONE | WHOLES, 0, reduce_scatter_refuse, NULL, reduce_scatter_cost, reduce_scatter_run},
    {NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL},
};
