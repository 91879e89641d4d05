/* SPDX-License-Identifier: Apache-2.0
 *
 * The family cpu/fma_chain: shaders/cpu/fma_chain.kernel for OpenCL on CPUs. The op measures the peak speed of a
 * device. With the portable kernel, the result would depend on how well the driver vectorizes over work-items. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/attrs.h"

enum { GROUPS_A_CORE = 8 }; /* with several groups per core, a core that was interrupted does not delay the others much */

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return strata_cpu_takes(limits, node); /* the op takes f32 only */
}

/* The number of vectors in registers. There are 32 registers with AVX-512 and 16 otherwise, and two of them are needed
 * for the constants of a step. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    (void)node;
    *out = (strata_candidate){.exact = true, .values = {strata_cpu_lanes(limits) == 16 ? 24 : 12}};
    snprintf(out->name, sizeof out->name, "chains=%d", out->values[0]);
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_fma_chain_attrs *attrs = node->attrs;
    const int width = strata_cpu_lanes(limits);
    const int64_t n = strata_shape_elements(node->shape), block = (int64_t)candidate->values[0] * width;
    const int64_t blocks = (n + block - 1) / block, groups = (int64_t)GROUPS_A_CORE * limits->compute_units;
    if (n == 0) return STRATA_OK;
    if (n > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "it has %lld elements; kernels take at most %d", (long long)n, INT32_MAX);
    strata_launch launch = strata_cpu_launch(limits, "cpu/fma_chain", strata_least(blocks, groups));
    launch.grid_stride = true;
    STRATA_SET_BUFFERS(&launch, node->inputs[0], node);
    STRATA_LAUNCH_INTS(&launch, n, attrs->steps);
    strata_launch_constant_add(&launch, "CHAINS", candidate->values[0]);
    return strata_lowering_add(lowering, &launch, err);
}

const strata_family strata_family_cpu_fma_chain = {
    .name = "cpu/fma_chain", .op = "fma_chain", .fits = fits, .candidates = candidates, .lower = lower};
