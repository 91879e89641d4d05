/* SPDX-License-Identifier: Apache-2.0
 *
 * The families cpu/add_cores and cpu/gather_cores: collectives of cores that share memory (strata_kernel_limits.meeting). The
 * launches of a collective are a meeting, the work, and a second meeting (shaders/cpu/cores.h). */
#include "backends/kernel/lowering.h"
#include "core/op/communication.h"
#include "core/op/ops.h"

/* The bytes of scratch memory that stands for the order of meetings. */
enum { ORDER_BYTES = 4 };

static bool is_collective(const strata_kernel_limits *limits, const strata_tensor *node) {
    const strata_communication_attrs *common = node->attrs;
    return limits->meeting && common->cores && node->n_inputs == 1 && strata_shape_elements(common->shape) <= INT32_MAX;
}

static bool sum_fits(const strata_kernel_limits *limits, const strata_tensor *node) {
    return node->dtype == STRATA_DTYPE_F32 && is_collective(limits, node) &&
           strata_shape_elements(node->inputs[0]->shape) <= INT32_MAX;
}

/* A tensor without elements has no place, so the kernel gets the scratch buffer in its stead. */
static const strata_tensor *memory_of(const strata_tensor *tensor) {
    return strata_shape_elements(tensor->shape) ? tensor : NULL;
}

/* variant NULL: that of the device's vector width. */
static strata_launch launch_of(const strata_kernel_limits *limits, const strata_tensor *node, const char *kernel,
                               const char *variant) {
    strata_launch launch = strata_cpu_launch(limits, kernel, 1);
    if (variant) launch.variant = variant;
    STRATA_SET_BUFFERS(&launch, memory_of(node->inputs[0]), memory_of(node));
    STRATA_LAUNCH_INTS(&launch, (int64_t)limits->meeting, (int64_t)(limits->meeting >> 32), limits->core);
    return launch;
}

static strata_status add_meeting(const strata_kernel_limits *limits, const strata_tensor *node, bool first,
                                 strata_lowering *lowering, strata_error *err) {
    strata_launch launch = launch_of(limits, node, "cpu/meet", strata_bits_variant(node->dtype));
    launch.n_buffers = 3; /* the third one is the scratch memory */
    launch.writes |= 1u << 2;
    strata_launch_constant_add(&launch, "FIRST", first);
    return strata_lowering_add(lowering, &launch, err);
}

/* work->global[0] 0: this core has nothing to do between the meetings. */
static strata_status add_launches(const strata_kernel_limits *limits, const strata_tensor *node, const strata_launch *work,
                                  strata_lowering *lowering, strata_error *err) {
    strata_lowering_scratch(lowering, ORDER_BYTES);
    STRATA_TRY(add_meeting(limits, node, true, lowering, err));
    if (work->global[0]) STRATA_TRY(strata_lowering_add(lowering, work, err));
    return add_meeting(limits, node, false, lowering, err);
}

/* The elements between neighbours along the axis. */
static int64_t inner_of(strata_shape shape, int64_t axis) {
    int64_t inner = 1;
    for (int d = (int)axis + 1; d < shape.rank; d++) inner *= shape.dims[d];
    return inner;
}

static int64_t rows_before(const strata_parts_attrs *attrs) {
    int64_t rows = 0;
    for (int64_t k = 0; k < attrs->own; k++) rows += attrs->lengths[k];
    return rows;
}

static strata_status add(const strata_kernel_limits *limits, const strata_tensor *node, bool everywhere, int64_t first,
                         strata_lowering *lowering, strata_error *err) {
    const int64_t n = strata_shape_elements(node->shape);
    strata_launch launch = launch_of(limits, node, "cpu/add_cores", NULL);
    launch.global[0] = n;
    launch.grid_stride = true;
    strata_launch_constant_add(&launch, "EVERYWHERE", everywhere);
    STRATA_LAUNCH_INTS(&launch, first, n);
    return add_launches(limits, node, &launch, lowering, err);
}

static strata_status reduce_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                  const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    (void)candidate;
    return add(limits, node, true, 0, lowering, err);
}

static strata_status scatter_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                   const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    (void)candidate;
    return add(limits, node, false, rows_before(node->attrs) * inner_of(node->shape, 0), lowering, err);
}

static strata_status gather_lower(const strata_kernel_limits *limits, const strata_tensor *node,
                                  const strata_candidate *candidate, strata_lowering *lowering, strata_error *err) {
    const strata_parts_attrs *attrs = node->attrs;
    const int64_t inner = inner_of(node->shape, attrs->axis), row = node->shape.dims[attrs->axis] * inner;
    const int64_t outer = row ? strata_shape_elements(node->shape) / row : 0;
    strata_launch launch = launch_of(limits, node, "cpu/gather_cores", strata_bits_variant(node->dtype));
    (void)candidate;
    launch.global[0] = strata_shape_elements(node->inputs[0]->shape);
    launch.grid_stride = true;
    STRATA_LAUNCH_INTS(&launch, outer, attrs->lengths[attrs->own] * inner, row, rows_before(attrs) * inner);
    return add_launches(limits, node, &launch, lowering, err);
}

const strata_family strata_family_cpu_all_reduce = {
    .name = "cpu/add_cores", .op = "all_reduce", .fits = sum_fits, .lower = reduce_lower};
const strata_family strata_family_cpu_reduce_scatter = {
    .name = "cpu/add_cores", .op = "reduce_scatter", .fits = sum_fits, .lower = scatter_lower};
const strata_family strata_family_cpu_all_gather = {
    .name = "cpu/gather_cores", .op = "all_gather", .fits = is_collective, .lower = gather_lower};
