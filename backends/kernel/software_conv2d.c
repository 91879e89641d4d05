/* SPDX-License-Identifier: Apache-2.0
 *
 * The families software/conv2d, software/conv2d_input_grad and software/conv2d_filter_grad: the portable convolution
 * kernels with register blocks, for GPUs that are emulated on a CPU. As in software_matmul.c, the element of each
 * work-item is loaded separately, so large blocks are faster, but they take long to compile. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/axes.h"
#include "core/op/conv2d.h"
#include "core/op/ops.h"

enum {
    LANES = 8, /* the work-items of a SIMD vector */
    /* The time of a SIMD vector of work-items for each step of the sum, in nanoseconds times 0.6, measured on lavapipe
     * 22.3: FETCH_COST for each value that it loads, MULTIPLY_COST for each multiply-add. */
    FETCH_COST = 10,
    MULTIPLY_COST = 1,
    MOST_STEPS = 65000 /* with more, a work-item makes too many iterations (strata_launch_ends_early) */
};

enum { WORK_M, WORK_N }; /* candidate->values */

/* Each block is used only for results of at least `from` multiply-adds. */
static const struct {
    int size[2];
    double from;
} blocks[] = {{{16, 8}, 16 << 20}, {{8, 8}, 4 << 20}, {{8, 4}, 1 << 20}, {{4, 8}, 1 << 20},
              {{4, 4}, 1 << 17},   {{3, 8}, 1 << 20}, {{4, 1}, 0},       {{1, 1}, 0}};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return limits->device_class == STRATA_DEVICE_SOFTWARE_GPU;
}

/* The rows and columns that are divided into blocks, the number of such matrices (taps, groups, parts), and the number
 * of steps of a sum. */
typedef struct extent {
    int64_t m, n, times, steps;
} extent;

static extent extent_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t taps = s.kernel_h * s.kernel_w, rows = s.n * s.out_h * s.out_w;
    if (node->op == &strata_op_conv2d) return (extent){rows, s.group_out, s.groups, taps * (s.group_in + 1)};
    if (node->op == &strata_op_conv2d_input_grad)
        return (extent){s.n * s.in_h * s.in_w, s.group_in, s.groups, taps * (s.group_out + 1)};
    const int64_t part = strata_conv2d_part(&s);
    return (extent){s.group_in, s.group_out, taps * s.groups * (rows ? strata_ceil_div(rows, part) : 1), part};
}

/* Chooses the block with the least cost: the number of rounds in which the cores execute all work-groups, times the
 * cost of one. There is only one candidate, because measuring others takes longer than it saves. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const extent e = extent_of(node);
    const double work = (double)e.m * (double)e.n * (double)e.times * (double)e.steps;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const int m = blocks[i].size[WORK_M], n = blocks[i].size[WORK_N];
        if (work < blocks[i].from) continue;
        const int64_t count = e.times * strata_ceil_div(e.m, m) * strata_ceil_div(e.n, n);
        const int64_t cost = strata_ceil_div(strata_ceil_div(count, LANES), limits->compute_units) *
                             (FETCH_COST * (m + n) + MULTIPLY_COST * m * n);
        if (cost >= least) continue;
        least = cost;
        *out = (strata_candidate){.exact = true, .values = {m, n}};
        snprintf(out->name, sizeof out->name, "block=%dx%d", m, n);
    }
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const int64_t steps = extent_of(node).steps;
    const int *v = candidate->values;
    if (node->op == &strata_op_conv2d_filter_grad)
        return strata_conv2d_filter_grad_lower_blocks(node, v[WORK_M], v[WORK_N], lowering, err);
    STRATA_TRY(strata_conv2d_lower_blocks(node, v[WORK_M], v[WORK_N], lowering, err));
    /* The launch is refused. The number is that of the steps and of the loops over the block. */
    if (steps > MOST_STEPS) strata_launch_turns(&lowering->launches[lowering->n - 1], (double)steps + 512);
    return STRATA_OK;
}

#define FAMILY(which)                                      \
    const strata_family strata_family_software_##which = { \
        .name = "software/" #which, .op = #which, .fits = fits, .candidates = candidates, .lower = lower}
FAMILY(conv2d);
FAMILY(conv2d_input_grad);
FAMILY(conv2d_filter_grad);
