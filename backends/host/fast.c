/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ops that have their own loop on the host. A new loop is one function and one row. */
#include "backends/host/host.h"
#include "core/op/ops.h"

static const host_fast_op table[] = {
    {&strata_op_matmul, strata_host_matmul_takes, strata_host_matmul_scratch, strata_host_matmul, strata_host_matmul_work},
    {&strata_op_adam, strata_host_adam_takes, NULL, strata_host_adam, strata_host_adam_work},
    {&strata_op_sparse_softmax_cross_entropy, strata_host_cross_entropy_takes, NULL, strata_host_cross_entropy,
     strata_host_cross_entropy_work},
    {&strata_op_sparse_softmax_cross_entropy_grad, strata_host_cross_entropy_takes, NULL, strata_host_cross_entropy,
     strata_host_cross_entropy_work},
    {&strata_op_reduce_sum, strata_host_reduce_takes, NULL, strata_host_reduce, strata_host_reduce_work},
    {&strata_op_reduce_mean, strata_host_reduce_takes, NULL, strata_host_reduce, strata_host_reduce_work},
    {&strata_op_conv2d, strata_host_depthwise_takes, strata_host_depthwise_scratch, strata_host_depthwise, NULL},
    {&strata_op_conv2d_input_grad, strata_host_depthwise_takes, strata_host_depthwise_scratch, strata_host_depthwise_back,
     NULL},
    {&strata_op_conv2d_filter_grad, strata_host_depthwise_takes, NULL, strata_host_depthwise_filter_grad, NULL},
    {&strata_op_conv2d, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d, strata_host_conv2d_work},
    {&strata_op_conv2d_input_grad, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d,
     strata_host_conv2d_work},
    {&strata_op_conv2d_filter_grad, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d_filter_grad, NULL},
    {&strata_op_max_pool2d, strata_host_pool2d_takes, strata_host_max_pool2d_scratch, strata_host_max_pool2d, NULL},
    {&strata_op_max_pool2d_grad, strata_host_pool2d_takes, strata_host_max_pool2d_scratch, strata_host_max_pool2d_grad, NULL},
    {&strata_op_avg_pool2d, strata_host_pool2d_takes, NULL, strata_host_avg_pool2d, NULL},
    {&strata_op_avg_pool2d_grad, strata_host_pool2d_takes, NULL, strata_host_avg_pool2d_grad, NULL},
    {&strata_op_recurrent, strata_host_recurrent_takes, strata_host_recurrent_scratch, strata_host_recurrent, NULL},
    {&strata_op_recurrent_grad, strata_host_recurrent_takes, strata_host_recurrent_scratch, strata_host_recurrent_grad, NULL},
    {&strata_op_cast, strata_host_cast_takes, NULL, strata_host_cast, strata_host_elementwise_work},
    {&strata_op_fma_chain, strata_host_fma_chain_takes, NULL, strata_host_fma_chain, NULL},
    /* The other optimizers' ops. */
    {NULL, strata_host_update_takes, NULL, strata_host_update, NULL},
    /* Every op of elementwise.def. */
    {NULL, strata_host_unary_takes, NULL, strata_host_unary, strata_host_elementwise_work},
    {NULL, strata_host_binary_takes, NULL, strata_host_binary, strata_host_elementwise_work},
    {NULL, strata_host_chain_takes, NULL, strata_host_chain, NULL},
};

host_share strata_host_share(const host_call *call, int64_t n, int64_t unit) {
    const int64_t units = (n + unit - 1) / unit, first = units * call->part / call->n_parts * unit,
                  end = units * (call->part + 1) / call->n_parts * unit;
    return (host_share){first < n ? first : n, end < n ? end : n};
}

bool strata_host_is_f32(const strata_tensor *node) {
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i]->dtype != STRATA_DTYPE_F32) return false;
    return node->dtype == STRATA_DTYPE_F32;
}

const host_fast_op *strata_host_fast_find(const strata_tensor *node) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if ((!table[i].op || table[i].op == node->op) && table[i].takes(node)) return &table[i];
    return NULL;
}
