/* SPDX-License-Identifier: Apache-2.0
 *
 * The family cpu/adam_product for OpenCL on CPUs: shaders/cpu/adam_product.kernel updates the elements whose gradient
 * is the product, adam.kernel those before and after them. The result has the same bits as the product followed by
 * Adam. */
#include "backends/kernel/cpu_vectors.h"
#include "core/op/adam_product.h"

enum { ROWS, COLS }; /* candidate->values */
enum {
    MOST_K = 256,     /* for a larger k, cpu/matmul with its packed panels of b is faster */
    BLOCKS_A_CORE = 4 /* with several blocks per core, a core that is interrupted does not delay the others much */
};

static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    return limits->device_class == STRATA_DEVICE_CPU && limits->opencl_c && s.m > 0 && s.n > 0 && s.k <= MOST_K &&
           s.n % strata_cpu_lanes(limits) == 0 && s.m <= INT32_MAX / s.n && s.k * s.m <= INT32_MAX && s.k * s.n <= INT32_MAX;
}

/* The tile is for 32 vector registers if vectors have 16 lanes, otherwise for 16. */
static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    const int lanes = strata_cpu_lanes(limits), cols = lanes == 16 ? 4 : 2;
    *out = (strata_candidate){.name = "tile", .exact = true};
    out->values[ROWS] = s.m < 6 ? (int)s.m : 6;
    out->values[COLS] = s.n / lanes < cols ? (int)(s.n / lanes) : cols;
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_adam_product_attrs *attrs = node->attrs;
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    const int64_t tiles = (s.m + candidate->values[ROWS] - 1) / candidate->values[ROWS];
    const int64_t most = BLOCKS_A_CORE * (int64_t)limits->compute_units, blocks = tiles < most ? tiles : most;
    const int64_t end = attrs->offset + s.m * s.n,
                  n = strata_shape_elements(node->inputs[STRATA_ADAM_PRODUCT_GRADIENTS]->shape);
    strata_launch launch = {
        .kernel = "cpu/adam_product",
        .variant = strata_cpu_variant(limits),
        .n_buffers = 7,
        .buffers = {node, node->inputs[1], node->inputs[2], node->inputs[STRATA_ADAM_PRODUCT_A],
                    node->inputs[STRATA_ADAM_PRODUCT_B], node->inputs[STRATA_ADAM_PRODUCT_STEP],
                    node->inputs[STRATA_ADAM_PRODUCT_GATE]},
        .writes = 7u,
        .n_words = 8,
        .words = {{(uint32_t)s.m},
                  {(uint32_t)s.n},
                  {(uint32_t)s.k},
                  {(uint32_t)blocks},
                  {.f32 = (float)(1 - attrs->adam.beta1)},
                  {.f32 = (float)(1 - attrs->adam.beta2)},
                  {.f32 = (float)attrs->adam.epsilon},
                  {.f32 = (float)attrs->adam.decay}},
        .n_constants = 3,
        .constants = {{"ROWS", candidate->values[ROWS]}, {"COLS", candidate->values[COLS]}, {"DECAY", attrs->adam.decay != 0}},
        .global = {blocks, 0},
        .local = {1, 0}};
    for (int i = 0; i < 3; i++) {
        launch.offsets[i] = attrs->offset;
        launch.extents[i] = s.m * s.n;
    }
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    STRATA_TRY(strata_adam_lower(node, 0, attrs->offset, lowering, err));
    return strata_adam_lower(node, end, n - end, lowering, err);
}

const strata_family strata_family_cpu_adam_product = {
    .name = "cpu/adam_product", .op = "adam_product", .fits = fits, .candidates = candidates, .lower = lower};
