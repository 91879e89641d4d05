/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ops have a loop of their own on the host. A new loop is one function and one row. */
#include "backends/host/host.h"
#include "core/op/ops.h"

static const host_fast_op table[] = {
    {&strata_op_matmul, strata_host_matmul_takes, strata_host_matmul_scratch, strata_host_matmul},
    {&strata_op_conv2d, strata_host_depthwise_takes, strata_host_depthwise_scratch, strata_host_depthwise},
    {&strata_op_conv2d_input_grad, strata_host_depthwise_takes, strata_host_depthwise_scratch, strata_host_depthwise_back},
    {&strata_op_conv2d_filter_grad, strata_host_depthwise_takes, NULL, strata_host_depthwise_filter_grad},
    {&strata_op_conv2d, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d},
    {&strata_op_conv2d_input_grad, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d},
    {&strata_op_conv2d_filter_grad, strata_host_conv2d_takes, strata_host_conv2d_scratch, strata_host_conv2d_filter_grad},
    {&strata_op_max_pool2d, strata_host_pool2d_takes, strata_host_max_pool2d_scratch, strata_host_max_pool2d},
    {&strata_op_max_pool2d_grad, strata_host_pool2d_takes, strata_host_max_pool2d_scratch, strata_host_max_pool2d_grad},
    {&strata_op_avg_pool2d, strata_host_pool2d_takes, NULL, strata_host_avg_pool2d},
    {&strata_op_avg_pool2d_grad, strata_host_pool2d_takes, NULL, strata_host_avg_pool2d_grad},
    {&strata_op_recurrent, strata_host_recurrent_takes, strata_host_recurrent_scratch, strata_host_recurrent},
    {&strata_op_recurrent_grad, strata_host_recurrent_takes, strata_host_recurrent_scratch, strata_host_recurrent_grad},
    {&strata_op_fma_chain, strata_host_fma_chain_takes, NULL, strata_host_fma_chain},
    {NULL, strata_host_update_takes, NULL, strata_host_update}, /* every optimizer's op */
    {NULL, strata_host_unary_takes, NULL, strata_host_unary},   /* every op of elementwise.def */
    {NULL, strata_host_binary_takes, NULL, strata_host_binary},
    {NULL, strata_host_chain_takes, NULL, strata_host_chain},
};

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
