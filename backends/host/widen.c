/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of f16 and bf16 by the loops for f32. The 16-bit operands are converted to f32 in scratch memory, the loop computes the
 * f32 result there, and this is rounded to the node's dtype once, as kernels of other backends do. */
#include "backends/host/host.h"
#include "core/base/narrow.h"
#include "core/op/ops.h"

enum { ALIGNMENT = 64 };

bool strata_host_is_narrow(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_F16 || dtype == STRATA_DTYPE_BF16;
}

static int64_t wide_bytes(const strata_tensor *tensor) {
    return (strata_shape_elements(tensor->shape) * (int64_t)sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

host_wide *strata_host_widen(const strata_tensor *node) {
    bool any = strata_host_is_narrow(node->dtype);
    for (int i = 0; i < node->n_inputs; i++) any = any || strata_host_is_narrow(node->inputs[i]->dtype);
    /* A chain rounds each step's result, so its loops convert each block (elementwise.c). */
    if (!any || node->op->flags & STRATA_OP_UPDATE || node->op == &strata_op_chain || node->n_inputs > HOST_WIDE_INPUTS)
        return NULL;
    host_wide *wide = calloc(1, sizeof *wide);
    if (!wide) return NULL; /* the node's reference is used */
    wide->narrow = node;
    wide->node = *node;
    wide->node.inputs = wide->inputs;
    if (strata_host_is_narrow(node->dtype)) {
        wide->node.dtype = STRATA_DTYPE_F32;
        wide->bytes = wide_bytes(node);
    }
    for (int i = 0; i < node->n_inputs; i++) {
        wide->tensors[i] = *node->inputs[i];
        wide->inputs[i] = &wide->tensors[i];
        if (!strata_host_is_narrow(node->inputs[i]->dtype)) continue;
        wide->tensors[i].dtype = STRATA_DTYPE_F32;
        wide->bytes += wide_bytes(node->inputs[i]);
    }
    wide->fast = strata_host_fast_find(&wide->node);
    if (wide->fast) return wide;
    free(wide);
    return NULL;
}

bool strata_host_to_f32(strata_dtype dtype, const void *from, float *to, int64_t n) {
    if (strata_host_is_narrow(dtype)) strata_widen_row(dtype, from, (size_t)n, to);
    return strata_host_is_narrow(dtype);
}

void strata_host_from_f32(strata_dtype dtype, const float *from, void *to, int64_t n) {
    if (strata_host_is_narrow(dtype)) strata_narrow_row(dtype, from, (size_t)n, to);
}

/* ---- the op cast ---- */
static bool cast_takes(const strata_tensor *node) {
    const strata_dtype from = node->inputs[0]->dtype, to = node->dtype;
    return (to == STRATA_DTYPE_F32 && (strata_host_is_narrow(from) || from == STRATA_DTYPE_U8 || from == STRATA_DTYPE_BOOL)) ||
           (from == STRATA_DTYPE_F32 && strata_host_is_narrow(to));
}

static void cast(const host_call *host) {
    const strata_op_call *call = &host->call;
    const host_share share = strata_host_share(host, strata_shape_elements(call->node->shape), 16);
    const strata_dtype from = call->node->inputs[0]->dtype;
    const size_t first = (size_t)share.first, n = (size_t)(share.end - share.first);
    const char *x = (const char *)call->inputs[0] + first * strata_dtype_bytes(from);
    char *y = (char *)call->output + first * strata_dtype_bytes(call->node->dtype);
    if (from == STRATA_DTYPE_F32)
        strata_host_from_f32(call->node->dtype, (const float *)x, y, (int64_t)n);
    else if (!strata_host_to_f32(from, x, (float *)y, (int64_t)n))
        for (size_t i = 0; i < n; i++) ((float *)y)[i] = (float)((const uint8_t *)x)[i];
}

const host_fast_op strata_host_casts[] = {{&strata_op_cast, cast_takes, NULL, cast, strata_host_elementwise_work}, {0}};

/* ---- running ---- */
void *strata_host_wide_begin(host_wide *wide, const void *const *inputs, void *output, char *scratch) {
    const strata_tensor *node = wide->narrow;
    for (int i = 0; i < node->n_inputs; i++) {
        wide->values[i] = inputs[i];
        const int64_t n = strata_shape_elements(node->inputs[i]->shape);
        if (!strata_host_to_f32(node->inputs[i]->dtype, inputs[i], (float *)scratch, n)) continue;
        wide->values[i] = scratch;
        scratch += wide_bytes(node->inputs[i]);
    }
    return strata_host_is_narrow(node->dtype) ? scratch : output;
}

void strata_host_wide_end(const host_wide *wide, const void *result, void *output) {
    strata_host_from_f32(wide->narrow->dtype, result, output, strata_shape_elements(wide->narrow->shape));
}
