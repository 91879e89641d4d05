/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes a node of f16 or bf16 with a family whose kernels support only f32. The node's 16-bit operands are converted
 * to f32 in scratch memory, the family computes the f32 result there, and this is rounded to the node's dtype. The
 * result is the same as that of a kernel with 16-bit storage, which also computes in f32 and rounds once.
 *
 * This is used on CPUs (lowering.c). There, a vector kernel is tens of times faster than the portable kernel, and a
 * conversion is only one pass over memory. */
#include "backends/kernel/lowering.h"

enum { ALIGNMENT = 16 /* in elements of scratch memory: a cache line */ };

static const char *const to_f32[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_F16] = "f16_f32", [STRATA_DTYPE_BF16] = "bf16_f32"};
static const char *const from_f32[STRATA_DTYPE_COUNT] = {[STRATA_DTYPE_F16] = "f32_f16", [STRATA_DTYPE_BF16] = "f32_bf16"};

/* The elements of scratch memory for a tensor. */
static int64_t scratch_elements(const strata_tensor *tensor) {
    return (strata_shape_elements(tensor->shape) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool strata_widen(const strata_kernel_limits *limits, const strata_tensor *node, strata_widened *out) {
    if (!to_f32[node->dtype] || node->n_inputs > STRATA_WIDENED_INPUTS) return false;
    int64_t room = scratch_elements(node);
    out->from = node;
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *input = node->inputs[i];
        out->inputs[i] = *input;
        if (to_f32[input->dtype]) out->inputs[i].dtype = STRATA_DTYPE_F32;
        out->pointers[i] = to_f32[input->dtype] ? &out->inputs[i] : node->inputs[i];
        room += scratch_elements(input);
    }
    out->node = *node;
    out->node.dtype = STRATA_DTYPE_F32;
    out->node.inputs = out->pointers;
    /* the other half is for the family's own scratch memory */
    return (uint64_t)room <= limits->max_range_bytes / 2 / sizeof(float);
}

/* Adds a launch that converts `narrow` to f32 in scratch memory from element `first` on, or, if `back`, from there to
 * `narrow`. */
static strata_status convert(const strata_tensor *narrow, int64_t first, bool back, strata_lowering *lowering,
                             strata_error *err) {
    const int64_t n = strata_shape_elements(narrow->shape);
    const int scratch = back ? 0 : 1;
    strata_launch launch = {
        .kernel = "cast", .variant = back ? from_f32[narrow->dtype] : to_f32[narrow->dtype], .n_buffers = 2, .writes = 1u << 1};
    launch.buffers[1 - scratch] = narrow;
    launch.offsets[scratch] = first;
    launch.extents[scratch] = n;
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    return strata_lowering_add(lowering, &launch, err);
}

/* Replaces the tensor `wide` among the launch's buffers by its place in scratch memory, which begins at element `first`. */
static void replace(strata_launch *launch, const strata_tensor *wide, int64_t first) {
    for (int b = 0; b < launch->n_buffers; b++) {
        if (launch->buffers[b] != wide) continue;
        launch->buffers[b] = NULL;
        if (!launch->extents[b]) launch->extents[b] = strata_shape_elements(wide->shape) - launch->offsets[b];
        launch->offsets[b] += first;
    }
}

strata_status strata_widened_lower(const strata_kernel_limits *limits, const strata_widened *widened,
                                   const strata_family *family, const strata_candidate *candidate, strata_lowering *lowering,
                                   strata_error *err) {
    const strata_tensor *from = widened->from;
    STRATA_FINISHED(strata_lowering) inner = {0};
    STRATA_TRY(family->lower(limits, &widened->node, candidate, &inner, err));
    int64_t used = (inner.scratch_bytes + (int64_t)sizeof(float) - 1) / (int64_t)sizeof(float);
    used = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < from->n_inputs; i++) {
        if (!to_f32[from->inputs[i]->dtype]) continue;
        STRATA_TRY(convert(from->inputs[i], used, false, lowering, err));
        for (int l = 0; l < inner.n; l++) replace(&inner.launches[l], &widened->inputs[i], used);
        used += scratch_elements(from->inputs[i]);
    }
    for (int l = 0; l < inner.n; l++) {
        replace(&inner.launches[l], &widened->node, used);
        STRATA_TRY(strata_lowering_add(lowering, &inner.launches[l], err));
    }
    strata_lowering_scratch(lowering, (used + scratch_elements(from)) * (int64_t)sizeof(float));
    return convert(from, used, true, lowering, err);
}
