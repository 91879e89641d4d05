/* SPDX-License-Identifier: Apache-2.0
 *
 * The family software/matmul: shaders/matmul_registers.kernel for GPUs that are emulated on a CPU. Such a GPU executes
 * work-items in SIMD vectors, but loads the element of each work-item separately, wherever it lies. So local memory
 * gains nothing, but large register blocks do. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/axes.h"
#include "core/op/matmul.h"

enum {
    LANES = 8, /* the work-items of a SIMD vector; with more, work-groups are only larger */
    /* The time of a SIMD vector of work-items for each step of k, in nanoseconds times 0.6, measured on lavapipe 22.3:
     * FETCH_COST for each value that it loads, MULTIPLY_COST for each multiply-add. */
    FETCH_COST = 10,
    MULTIPLY_COST = 1
};

enum { WORK_M, WORK_N }; /* candidate->values */

/* Larger blocks take longer to compile, up to 1.4 s. So each is used only for products of at least `from` multiply-adds. */
static const struct {
    int size[2];
    int64_t from;
} blocks[] = {{{8, 8}, 4 << 20}, {{8, 4}, 1 << 20}, {{4, 4}, 1 << 17}, {{2, 4}, 1 << 14}, {{1, 1}, 0}};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)node;
    return limits->device_class == STRATA_DEVICE_SOFTWARE_GPU;
}

static int64_t n_blocks(const strata_tensor *node, const int *block) {
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    return s.n_batch * strata_ceil_div(s.m, block[WORK_M]) * strata_ceil_div(s.n, block[WORK_N]);
}

/* Chooses the block with the least cost: the number of rounds in which the cores execute all work-groups, times the
 * cost of one. There is only one candidate, because measuring others takes longer than it saves. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    strata_matmul_sizes s = strata_matmul_sizes_of(node);
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const int *block = blocks[i].size;
        if (s.m * s.n * s.n_batch < blocks[i].from / (s.k + 1)) continue;
        int64_t rounds = strata_ceil_div(strata_ceil_div(n_blocks(node, block), LANES), limits->compute_units);
        int64_t cost = rounds * (FETCH_COST * (block[WORK_M] + block[WORK_N]) + MULTIPLY_COST * block[WORK_M] * block[WORK_N]);
        if (cost >= least) continue;
        least = cost;
        *out = (strata_candidate){.exact = true, .values = {block[WORK_M], block[WORK_N]}};
        snprintf(out->name, sizeof out->name, "block=%dx%d", block[WORK_M], block[WORK_N]);
    }
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    (void)limits;
    strata_launch launch = strata_matmul_launch(node);
    launch.kernel = "matmul_registers";
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_M", candidate->values[WORK_M]};
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_N", candidate->values[WORK_N]};
    launch.global[0] = n_blocks(node, candidate->values);
    launch.local[0] = LANES;
    const int rows = candidate->values[WORK_M], columns = candidate->values[WORK_N];
    /* lavapipe also counts the check that ends a loop, so a loop of n iterations counts n + 1. */
    strata_launch_turns(&launch, (double)strata_matmul_sizes_of(node).k + 1 + rows + 1 + rows * (columns + 1) + 2);
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_software_matmul = {
    .name = "software/matmul", .op = "matmul", .fits = fits, .candidates = candidates, .lower = lower};
