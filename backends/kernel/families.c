/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of all families: kernels for one class of devices that replace an op's portable kernels. For each node, the
 * first family that fits is used. */
#include "backends/kernel/lowering.h"

extern const strata_family strata_family_cpu_matmul;
extern const strata_family strata_family_cpu_winograd;
extern const strata_family strata_family_cpu_winograd_input_grad;
extern const strata_family strata_family_cpu_winograd_filter_grad;
extern const strata_family strata_family_cpu_conv2d;
extern const strata_family strata_family_cpu_conv2d_input_grad;
extern const strata_family strata_family_cpu_conv2d_filter_grad;
extern const strata_family strata_family_cpu_max_pool2d;
extern const strata_family strata_family_cpu_max_pool2d_grad;
extern const strata_family strata_family_cpu_reduce_sum;
extern const strata_family strata_family_cpu_reduce_mean;
extern const strata_family strata_family_cpu_gather_mean;
extern const strata_family strata_family_cpu_gather_grad;
extern const strata_family strata_family_cpu_adam_product;
extern const strata_family strata_family_cpu_adam_gather;
extern const strata_family strata_family_cpu_all_reduce;
extern const strata_family strata_family_cpu_reduce_scatter;
extern const strata_family strata_family_cpu_all_gather;
extern const strata_family strata_family_gpu_units_matmul;
extern const strata_family strata_family_gpu_matmul;
extern const strata_family strata_family_gpu_units_conv2d;
extern const strata_family strata_family_gpu_units_conv2d_input_grad;
extern const strata_family strata_family_gpu_units_conv2d_filter_grad;
extern const strata_family strata_family_gpu_conv2d;
extern const strata_family strata_family_gpu_conv2d_input_grad;
extern const strata_family strata_family_gpu_conv2d_filter_grad;
extern const strata_family strata_family_cpu_fma_chain;
extern const strata_family strata_family_software_matmul;
extern const strata_family strata_family_software_gather_grad;
extern const strata_family strata_family_software_conv2d;
extern const strata_family strata_family_software_conv2d_input_grad;
extern const strata_family strata_family_software_conv2d_filter_grad;

const strata_family *const strata_families[] = {
    &strata_family_cpu_matmul,
    &strata_family_cpu_winograd,
    &strata_family_cpu_winograd_input_grad,
    &strata_family_cpu_winograd_filter_grad,
    &strata_family_cpu_conv2d,
    &strata_family_cpu_conv2d_input_grad,
    &strata_family_cpu_conv2d_filter_grad,
    &strata_family_cpu_max_pool2d,
    &strata_family_cpu_max_pool2d_grad,
    &strata_family_cpu_reduce_sum,
    &strata_family_cpu_reduce_mean,
    &strata_family_cpu_gather_mean,
    &strata_family_cpu_gather_grad,
    &strata_family_cpu_adam_product,
    &strata_family_cpu_adam_gather,
    &strata_family_cpu_all_reduce,
    &strata_family_cpu_reduce_scatter,
    &strata_family_cpu_all_gather,
    &strata_family_gpu_units_matmul,
    &strata_family_gpu_matmul,
    &strata_family_gpu_units_conv2d,
    &strata_family_gpu_units_conv2d_input_grad,
    &strata_family_gpu_units_conv2d_filter_grad,
    &strata_family_gpu_conv2d,
    &strata_family_gpu_conv2d_input_grad,
    &strata_family_gpu_conv2d_filter_grad,
    &strata_family_software_matmul,
    &strata_family_cpu_fma_chain,
    &strata_family_software_gather_grad,
    &strata_family_software_conv2d,
    &strata_family_software_conv2d_input_grad,
    &strata_family_software_conv2d_filter_grad,
    NULL,
};
