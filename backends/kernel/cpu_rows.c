/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/sum_columns, cpu/gather_mean and cpu/gather_grad for OpenCL on CPUs: the ops that compute the
 * average of an embedding's rows and its gradient. If rows are as short as a vector, the portable kernels are not
 * vectorized. The results have the same bits as those of the portable kernels. */
#include "backends/kernel/lowering.h"
#include "core/op/gather.h"
#include "core/op/ops.h"

static bool fits_inner(const strata_kernel_limits *limits, const strata_tensor *node, int64_t inner) {
    return strata_cpu_takes(limits, node) && inner > 0 && inner % strata_cpu_lanes(limits) == 0;
}

/* The portable kernel is vectorized for wider rows. */
static bool sum_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    enum { WIDE = 32 };
    const strata_reduce_order order = strata_reduce_order_of(node);
    const strata_axes a = order.axes;
    return a.inner < WIDE && fits_inner(limits, node, a.inner) && order.parts == 1 && a.n > 0 && a.outer > 0 &&
           a.outer <= INT32_MAX / a.inner / a.n;
}

static strata_status sum_lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                               strata_lowering *lowering, strata_error *err) {
    const strata_reduce_order order = strata_reduce_order_of(node);
    const strata_axes a = order.axes;
    strata_launch launch = strata_cpu_launch(limits, "cpu/sum_columns", a.outer * (a.inner / strata_cpu_lanes(limits)));
    (void)candidate;
    launch.grid_stride = true;
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node);
    strata_launch_constant_add(&launch, "MEAN", node->op == &strata_op_reduce_mean);
    STRATA_LAUNCH_INTS(&launch, a.outer, a.n, a.inner, order.run);
    STRATA_LAUNCH_FLOATS(&launch, (double)a.n);
    return strata_lowering_add(lowering, &launch, err);
}

static bool mean_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_gather_mean_sizes s = strata_gather_mean_sizes_of(node);
    const strata_axes a = s.order.axes;
    return fits_inner(limits, node, a.inner) && node->inputs[1]->dtype == STRATA_DTYPE_I32 && s.order.parts == 1 &&
           a.outer > 0 && s.rows > 0 && s.rows <= INT32_MAX / a.inner && a.outer <= INT32_MAX / a.inner / a.n;
}

static strata_status mean_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_gather_mean_sizes s = strata_gather_mean_sizes_of(node);
    const strata_axes a = s.order.axes;
    strata_launch launch = strata_cpu_launch(limits, "cpu/gather_mean", a.outer * (a.inner / strata_cpu_lanes(limits)));
    (void)candidate;
    launch.grid_stride = true;
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], node);
    STRATA_LAUNCH_INTS(&launch, s.rows, a.outer, a.n, a.inner, s.order.run);
    STRATA_LAUNCH_FLOATS(&launch, (double)a.n);
    return strata_lowering_add(lowering, &launch, err);
}

static bool grad_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(node);
    return fits_inner(limits, node, s.inner) && node->inputs[1]->dtype == STRATA_DTYPE_I32 && s.outer == 1 && s.axis > 0 &&
           s.axis <= INT32_MAX / s.inner && s.n_indices > 0 && s.n_indices <= INT32_MAX / s.inner;
}

static strata_status grad_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(node);
    strata_launch launch = strata_cpu_launch(limits, "cpu/scatter_rows", s.axis);
    (void)candidate;
    launch.grid_stride = launch.few_groups = true;
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], node);
    STRATA_LAUNCH_INTS(&launch, s.axis, s.inner, s.n_indices, s.repeats);
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_cpu_reduce_sum = {
    .name = "cpu/sum_columns", .op = "reduce_sum", .fits = sum_fits, .lower = sum_lower};
const strata_family strata_family_cpu_reduce_mean = {
    .name = "cpu/sum_columns", .op = "reduce_mean", .fits = sum_fits, .lower = sum_lower};
const strata_family strata_family_cpu_gather_mean = {
    .name = "cpu/gather_mean", .op = "gather_mean", .fits = mean_fits, .lower = mean_lower};
const strata_family strata_family_cpu_gather_grad = {
    .name = "cpu/gather_grad", .op = "gather_grad", .fits = grad_fits, .lower = grad_lower};
