/* SPDX-License-Identifier: Apache-2.0
 *
 * The family cpu/adam_gather for OpenCL on CPUs: shaders/cpu/adam_gather.kernel updates the table, adam.kernel the
 * elements before and after it. The result has the same bits as gather_grad followed by Adam. */
#include "backends/kernel/cpu_vectors.h"
#include "core/op/adam_product.h"

enum { MOST_VECTORS = 8 }; /* of a row; the kernel keeps one sum and one value for each in registers */

/* The last condition leaves room for one additional row of sums for each group. */
static bool fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    const int lanes = strata_cpu_lanes(limits);
    return limits->device_class == STRATA_DEVICE_CPU && limits->opencl_c &&
           node->inputs[STRATA_ADAM_GATHER_INDICES]->dtype == STRATA_DTYPE_I32 && s.inner > 0 && s.inner % lanes == 0 &&
           s.inner / lanes <= MOST_VECTORS && s.axis > 0 && s.n_indices > 0 && s.n_indices <= INT32_MAX / s.inner &&
           s.axis <= INT32_MAX / s.inner - (int64_t)limits->compute_units;
}

static int candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    (void)limits;
    (void)node;
    *out = (strata_candidate){.name = "slots", .exact = true};
    return 1;
}

static strata_status lower(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err) {
    const strata_adam_product_attrs *attrs = node->attrs;
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    const int64_t units = (int64_t)limits->compute_units, groups = s.axis < units ? s.axis : units;
    const int64_t end = attrs->offset + s.axis * s.inner,
                  n = strata_shape_elements(node->inputs[STRATA_ADAM_PRODUCT_GRADIENTS]->shape);
    (void)candidate;
    strata_launch launch = {.kernel = "cpu/adam_gather",
                            .variant = strata_cpu_variant(limits),
                            .n_buffers = 8,
                            .buffers = {node, node->inputs[1], node->inputs[2], node->inputs[STRATA_ADAM_GATHER_DY],
                                        node->inputs[STRATA_ADAM_GATHER_INDICES], NULL, node->inputs[STRATA_ADAM_PRODUCT_STEP],
                                        node->inputs[STRATA_ADAM_PRODUCT_GATE]},
                            .writes = 7u | 1u << 5,
                            .n_words = 7,
                            .words = {{(uint32_t)s.axis},
                                      {(uint32_t)s.n_indices},
                                      {(uint32_t)s.repeats},
                                      {.f32 = (float)(1 - attrs->adam.beta1)},
                                      {.f32 = (float)(1 - attrs->adam.beta2)},
                                      {.f32 = (float)attrs->adam.epsilon},
                                      {.f32 = (float)attrs->adam.decay}},
                            .n_constants = 3,
                            .constants = {{"VECTORS", (int32_t)(s.inner / strata_cpu_lanes(limits))},
                                          {"SHARED", s.repeats >= strata_cpu_lanes(limits)},
                                          {"DECAY", attrs->adam.decay != 0}},
                            .global = {groups, 0},
                            .local = {1, 0}};
    for (int i = 0; i < 3; i++) {
        launch.offsets[i] = attrs->offset;
        launch.extents[i] = s.axis * s.inner;
    }
    strata_lowering_scratch(lowering, (s.axis + groups) * s.inner * (int64_t)sizeof(float));
    STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    STRATA_TRY(strata_adam_lower(node, 0, attrs->offset, lowering, err));
    return strata_adam_lower(node, end, n - end, lowering, err);
}

const strata_family strata_family_cpu_adam_gather = {
    .name = "cpu/adam_gather", .op = "adam_gather", .fits = fits, .candidates = candidates, .lower = lower};
