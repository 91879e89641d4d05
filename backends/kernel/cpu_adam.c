/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/adam_product and cpu/adam_gather for OpenCL on CPUs: shaders/cpu/adam_product.kernel updates the elements
 * whose gradient is the product, adam_gather.kernel the table, and adam.kernel the elements before and after them. The results
 * have the same bits as those of the product or of gather_grad, followed by Adam. */
#include "backends/kernel/lowering.h"
#include "core/op/adam_product.h"

enum { ROWS, COLS }; /* candidate->values of cpu/adam_product */
enum {
    MOST_VECTORS = 8, /* of a row of the table; the kernel keeps one sum and one value for each in registers */
    MOST_K = 256,     /* for a larger k, cpu/matmul with its packed panels of b is faster */
    BLOCKS_A_CORE = 4 /* with several blocks per core, a core that is interrupted does not delay the others much */
};

/* Adds the launch, which updates n elements from attrs->offset on, and those that update the elements before and after them. */
static strata_status add_launches(const strata_tensor *node, strata_launch *launch, int64_t n, strata_lowering *lowering,
                                  strata_error *err) {
    const strata_adam_product_attrs *attrs = node->attrs;
    const int64_t end = attrs->offset + n, all = strata_shape_elements(node->inputs[STRATA_ADAM_PRODUCT_GRADIENTS]->shape);
    launch->writes |= 7u;
    for (int i = 0; i < 3; i++) {
        launch->offsets[i] = attrs->offset;
        launch->extents[i] = n;
    }
    STRATA_LAUNCH_FLOATS(launch, 1 - attrs->adam.beta1, 1 - attrs->adam.beta2, attrs->adam.epsilon, attrs->adam.decay);
    strata_launch_constant_add(launch, "DECAY", attrs->adam.decay != 0);
    STRATA_TRY(strata_lowering_add(lowering, launch, err));
    STRATA_TRY(strata_adam_lower(node, 0, attrs->offset, lowering, err));
    return strata_adam_lower(node, end, all - end, lowering, err);
}

/* ---- adam_product ---- */

static bool product_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    return strata_cpu_takes(limits, node) && s.m > 0 && s.n > 0 && s.k <= MOST_K && s.n % strata_cpu_lanes(limits) == 0 &&
           s.m <= INT32_MAX / s.n && s.k * s.m <= INT32_MAX && s.k * s.n <= INT32_MAX;
}

/* The tile is for 32 vector registers if vectors have 16 lanes, otherwise for 16. */
static int product_candidates(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    const int lanes = strata_cpu_lanes(limits), cols = lanes == 16 ? 4 : 2;
    *out = (strata_candidate){.name = "tile", .exact = true};
    out->values[ROWS] = s.m < 6 ? (int)s.m : 6;
    out->values[COLS] = s.n / lanes < cols ? (int)(s.n / lanes) : cols;
    return 1;
}

static strata_status product_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                   const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    const int64_t tiles = strata_ceil_div(s.m, candidate->values[ROWS]);
    const int64_t blocks = strata_least(tiles, BLOCKS_A_CORE * (int64_t)limits->compute_units);
    strata_launch launch = strata_cpu_launch(limits, "cpu/adam_product", blocks);
    STRATA_SET_BUFFERS(&launch, node, node->inputs[1], node->inputs[2], node->inputs[STRATA_ADAM_PRODUCT_A],
                       node->inputs[STRATA_ADAM_PRODUCT_B], node->inputs[STRATA_ADAM_PRODUCT_STEP],
                       node->inputs[STRATA_ADAM_PRODUCT_GATE]);
    launch.writes = 0;
    STRATA_LAUNCH_INTS(&launch, s.m, s.n, s.k, blocks);
    STRATA_LAUNCH_CONSTANTS(&launch, {"ROWS", candidate->values[ROWS]}, {"COLS", candidate->values[COLS]});
    return add_launches(node, &launch, s.m * s.n, lowering, err);
}

/* ---- adam_gather ---- */

/* The last condition leaves room for one additional row of sums for each group. */
static bool gather_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    const int lanes = strata_cpu_lanes(limits);
    return strata_cpu_takes(limits, node) && node->inputs[STRATA_ADAM_GATHER_INDICES]->dtype == STRATA_DTYPE_I32 &&
           s.inner > 0 && s.inner % lanes == 0 && s.inner / lanes <= MOST_VECTORS && s.axis > 0 && s.n_indices > 0 &&
           s.n_indices <= INT32_MAX / s.inner && s.axis <= INT32_MAX / s.inner - (int64_t)limits->compute_units;
}

static strata_status gather_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                  const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    const int64_t groups = strata_least(s.axis, (int64_t)limits->compute_units);
    strata_launch launch = strata_cpu_launch(limits, "cpu/adam_gather", groups);
    (void)candidate;
    STRATA_SET_BUFFERS(&launch, node, node->inputs[1], node->inputs[2], node->inputs[STRATA_ADAM_GATHER_DY],
                       node->inputs[STRATA_ADAM_GATHER_INDICES], NULL, node->inputs[STRATA_ADAM_PRODUCT_STEP],
                       node->inputs[STRATA_ADAM_PRODUCT_GATE]);
    launch.writes = 1u << 5;
    STRATA_LAUNCH_INTS(&launch, s.axis, s.n_indices, s.repeats);
    STRATA_LAUNCH_CONSTANTS(&launch, {"VECTORS", (int32_t)(s.inner / strata_cpu_lanes(limits))},
                            {"SHARED", s.repeats >= strata_cpu_lanes(limits)});
    strata_lowering_scratch(lowering, (s.axis + groups) * s.inner * (int64_t)sizeof(float));
    return add_launches(node, &launch, s.axis * s.inner, lowering, err);
}

const strata_family strata_family_cpu_adam_product = {.name = "cpu/adam_product",
                                                      .op = "adam_product",
                                                      .fits = product_fits,
                                                      .candidates = product_candidates,
                                                      .lower = product_lower};
const strata_family strata_family_cpu_adam_gather = {
    .name = "cpu/adam_gather", .op = "adam_gather", .fits = gather_fits, .lower = gather_lower};
