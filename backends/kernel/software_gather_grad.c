/* SPDX-License-Identifier: Apache-2.0
 *
 * The family software/gather_grad: shaders/scatter_columns.kernel for GPUs that are emulated on a CPU. The portable
 * kernel divides the rows into many ranges and reads all indices for each of them, which takes long on a few cores.
 *
 * The result is first filled with zeros. Then each launch adds the rows of as many indices as the loop of a work-item
 * can process. */
#include <stdio.h>

#include "backends/kernel/lowering.h"
#include "core/op/gather.h"

enum {
    LANES = 8,          /* the work-items of a SIMD vector; a work-group is one vector */
    MOST_TURNS = 60000, /* the most loop iterations of a work-item (shaders/README.md) */
    MOST_GROUPS = 65535 /* the most work-groups of a launch (shaders/README.md) */
};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(node);
    const int64_t elements = s.axis * s.inner, dy = strata_shape_elements(node->inputs[0]->shape);
    return limits->device_class == STRATA_DEVICE_SOFTWARE_GPU && node->dtype == STRATA_DTYPE_F32 && s.outer == 1 &&
           elements > 0 && elements <= INT32_MAX && s.n_indices > 0 && s.n_indices <= INT32_MAX && dy <= INT32_MAX;
}

/* The value is the number of ranges of rows. There are only as many as keep all cores busy, since the indices are read
 * once for each range. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(node);
    const int64_t vectors = (s.inner - 1) / LANES + 1, ranges = (limits->compute_units - 1) / vectors + 1;
    *out = (strata_candidate){.exact = true, .values = {(int)(ranges < s.axis ? ranges : s.axis)}};
    snprintf(out->name, sizeof out->name, "ranges=%d", out->values[0]);
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    (void)limits;
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(node);
    const int64_t range = (s.axis - 1) / candidate->values[0] + 1, n_ranges = (s.axis - 1) / range + 1;
    /* With more columns than the work-items of a launch, a work-item loops over the indices once for each of its columns. */
    const int64_t rounds = strata_ceil_div(n_ranges * s.inner, (int64_t)LANES * MOST_GROUPS), most = MOST_TURNS / rounds;
    STRATA_TRY(strata_fill_lower(node, 0, lowering, err));
    for (int64_t first = 0; first < s.n_indices; first += most) {
        const int64_t n = strata_least(s.n_indices - first, most);
        strata_launch launch = {.kernel = "scatter_columns",
                                .variant = node->inputs[1]->dtype == STRATA_DTYPE_I64 ? "f32_i64" : "f32_i32",
                                .offsets = {first / s.repeats * s.inner, first},
                                .extents = {((first + n - 1) / s.repeats - first / s.repeats + 1) * s.inner, n},
                                .global = {n_ranges * s.inner},
                                .local = {LANES},
                                .grid_stride = true,
                                .turns = (int)n + 1};
        STRATA_SET_BUFFERS(&launch, node->inputs[0], node->inputs[1], node);
        STRATA_LAUNCH_INTS(&launch, s.axis, s.inner, n, range, s.repeats, first % s.repeats);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

const strata_family strata_family_software_gather_grad = {
    .name = "software/gather_grad", .op = "gather_grad", .fits = fits, .candidates = candidates, .lower = lower};
