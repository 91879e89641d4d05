/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/max_pool2d and cpu/max_pool2d_grad for OpenCL on CPUs, which compute a vector of channels at a time.
 * The gradient is only for windows that lie side by side without overlap or padding, which is the usual case. For other
 * windows the portable kernel is used, which reads every window that contains an element. */
#include "backends/kernel/lowering.h"
#include "core/op/ops.h"
#include "core/op/pool2d.h"

static const strata_window *window_of(const strata_tensor *node) {
    return &((const strata_pool2d_attrs *)node->attrs)->window;
}

/* In both ops, input 0 is x. */
static strata_pool2d_sizes sizes_of(const strata_tensor *node) {
    return strata_pool2d_sizes_of(window_of(node), node->inputs[0]->shape);
}

/* With fewer channels than a vector has lanes, most of the vector would be unused. */
static bool fits_any(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_window *w = window_of(node);
    return strata_cpu_takes(limits, node) && node->inputs[0]->shape.dims[3] >= strata_cpu_lanes(limits) &&
           strata_shape_elements(node->shape) > 0 && strata_cpu_counts(node) && w->dilation[0] == 1 && w->dilation[1] == 1;
}

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return node->n_inputs == 1 && fits_any(limits, node);
}

static bool grad_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    if (!fits_any(limits, node)) return false;
    const strata_pool2d_sizes s = sizes_of(node);
    const strata_window *w = window_of(node);
    return w->stride[0] == w->size[0] && w->stride[1] == w->size[1] && w->padding[STRATA_PAD_TOP] == 0 &&
           w->padding[STRATA_PAD_LEFT] == 0 && s.out_h <= s.in_h / w->size[0] && s.out_w <= s.in_w / w->size[1];
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    const strata_window *w = window_of(node);
    const bool grad = node->op == &strata_op_max_pool2d_grad;
    strata_launch launch = strata_cpu_launch(limits, grad ? "cpu/max_pool2d_grad" : "cpu/max_pool2d", s.n * s.out_h);
    (void)candidate;
    launch.grid_stride = true;
    STRATA_LAUNCH_INTS(&launch, s.n * s.out_h, s.in_h, s.in_w, s.out_h, s.out_w, s.c, w->size[0], w->size[1]);
    if (grad) {
        STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], node);
        strata_launch_constant_add(&launch, "RECTIFIED", ((const strata_pool2d_attrs *)node->attrs)->rectified != 0);
    } else {
        STRATA_SET_BUFFERS(&launch, node->inputs[0], node);
        STRATA_LAUNCH_INTS(&launch, w->stride[0], w->stride[1], w->padding[STRATA_PAD_TOP], w->padding[STRATA_PAD_LEFT]);
    }
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_cpu_max_pool2d = {.name = "cpu/max_pool2d", .op = "max_pool2d", .fits = fits, .lower = lower};
const strata_family strata_family_cpu_max_pool2d_grad = {
    .name = "cpu/max_pool2d_grad", .op = "max_pool2d_grad", .fits = grad_fits, .lower = lower};
