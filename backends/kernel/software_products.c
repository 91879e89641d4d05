/* SPDX-License-Identifier: Apache-2.0
 *
 * The families software/matmul, software/conv2d, software/conv2d_input_grad and software/conv2d_filter_grad for GPUs that are
 * emulated on a CPU: shaders/matmul_registers.kernel, and the portable convolution kernels with register blocks. Such a GPU
 * executes work-items in SIMD vectors, but loads the element of each work-item separately, wherever it lies. So local memory
 * gains nothing, but large register blocks do. They take long to compile, up to 1.4 s. */
#include "backends/kernel/lowering.h"
#include "core/op/axes.h"
#include "core/op/conv2d.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"

enum {
    LANES = 8, /* the work-items of a SIMD vector; with more, work-groups are only larger */
    /* The time of a SIMD vector of work-items for each step of the sum, in nanoseconds times 0.6, measured on lavapipe
     * 22.3: FETCH_COST for each value that it loads, MULTIPLY_COST for each multiply-add. */
    FETCH_COST = 10,
    MULTIPLY_COST = 1,
    MOST_STEPS = 65000 /* with more, a work-item makes too many iterations (strata_launch_ends_early) */
};

enum { WORK_M, WORK_N }; /* candidate->values */

/* Each block is used only for results of at least `from` multiply-adds. */
typedef struct block_shape {
    int size[2];
    double from;
} block_shape;
static const block_shape conv2d_blocks[] = {{{16, 8}, 16 << 20}, {{8, 8}, 4 << 20}, {{8, 4}, 1 << 20}, {{4, 8}, 1 << 20},
                                            {{4, 4}, 1 << 17},   {{3, 8}, 1 << 20}, {{4, 1}, 0},       {{1, 1}, 0}};
static const block_shape matmul_blocks[] = {
    {{8, 8}, 4 << 20}, {{8, 4}, 1 << 20}, {{4, 4}, 1 << 17}, {{2, 4}, 1 << 14}, {{1, 1}, 0}};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return limits->device_class == STRATA_DEVICE_SOFTWARE_GPU;
}

/* The rows and columns that are divided into blocks, the number of such matrices (batch, taps, groups, parts), and the number
 * of steps of a sum. */
typedef struct extent {
    int64_t m, n, times, steps;
} extent;

static extent extent_of(const strata_tensor *node) {
    if (node->op == &strata_op_matmul) {
        const strata_matmul_sizes s = strata_matmul_sizes_of(node);
        return (extent){s.m, s.n, s.n_batch, s.k + 1};
    }
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t taps = s.kernel_h * s.kernel_w, rows = s.n * s.out_h * s.out_w;
    if (node->op == &strata_op_conv2d) return (extent){rows, s.group_out, s.groups, taps * (s.group_in + 1)};
    if (node->op == &strata_op_conv2d_input_grad)
        return (extent){s.n * s.in_h * s.in_w, s.group_in, s.groups, taps * (s.group_out + 1)};
    const int64_t part = strata_conv2d_part(&s);
    return (extent){s.group_in, s.group_out, taps * s.groups * (rows ? strata_ceil_div(rows, part) : 1), part};
}

static int64_t n_blocks(const extent *e, const int *block) {
    return e->times * strata_ceil_div(e->m, block[WORK_M]) * strata_ceil_div(e->n, block[WORK_N]);
}

/* Chooses the block with the least cost: the number of rounds in which the cores execute all work-groups, times the
 * cost of one. There is only one candidate, because measuring others takes longer than it saves. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const bool is_matmul = node->op == &strata_op_matmul;
    const block_shape *blocks = is_matmul ? matmul_blocks : conv2d_blocks;
    const size_t n = is_matmul ? sizeof matmul_blocks : sizeof conv2d_blocks;
    const extent e = extent_of(node);
    const double work = (double)e.m * (double)e.n * (double)e.times * (double)e.steps;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < n / sizeof *blocks; i++) {
        const int *block = blocks[i].size;
        if (work < blocks[i].from) continue;
        const int64_t rounds = strata_ceil_div(strata_ceil_div(n_blocks(&e, block), LANES), limits->compute_units);
        const int64_t cost =
            rounds * (FETCH_COST * (block[WORK_M] + block[WORK_N]) + MULTIPLY_COST * block[WORK_M] * block[WORK_N]);
        if (cost >= least) continue;
        least = cost;
        *out = (strata_candidate){.exact = true, .values = {block[WORK_M], block[WORK_N]}};
    }
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const extent e = extent_of(node);
    const int rows = candidate->values[WORK_M], columns = candidate->values[WORK_N];
    (void)limits;
    if (node->op == &strata_op_conv2d_filter_grad)
        return strata_conv2d_filter_grad_lower_blocks(node, rows, columns, lowering, err);
    if (node->op != &strata_op_matmul) {
        STRATA_TRY(strata_conv2d_lower_blocks(node, rows, columns, lowering, err));
        /* The launch is refused. The number is that of the steps and of the loops over the block. */
        if (e.steps > MOST_STEPS) strata_launch_turns(&lowering->launches[lowering->n - 1], (double)e.steps + 512);
        return STRATA_OK;
    }
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matmul_registers";
    STRATA_LAUNCH_CONSTANTS(&launch, {"WORK_M", rows}, {"WORK_N", columns});
    launch.global[0] = n_blocks(&e, candidate->values);
    launch.local[0] = LANES;
    /* lavapipe also counts the check that ends a loop, so a loop of n iterations counts n + 1. */
    strata_launch_turns(&launch, (double)e.steps + rows + 1 + rows * (columns + 1) + 2);
    return strata_lowering_add(lowering, &launch, err);
}

#define FAMILY(which)                                      \
    const strata_family strata_family_software_##which = { \
        .name = "software/" #which, .op = #which, .fits = fits, .candidates = candidates, .lower = lower}
FAMILY(matmul);
FAMILY(conv2d);
FAMILY(conv2d_input_grad);
FAMILY(conv2d_filter_grad);
