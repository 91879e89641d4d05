/* SPDX-License-Identifier: Apache-2.0
 *
 * tree: on the host in pairs, (r0 + r1) + (r2 + r3), so that a sum of n values is rounded lg n times on its way instead of n -
 * 1. Of the floats of 32 bits; others are few, and take the host's order. Two or three replicas give the host's bits. */
#include <string.h>

#include "core/run/cross_device.h"
#include "core/run/fold.h"

enum { BLOCK = 1024 }; /* elements; two levels' sums stay in the first cache */

static void sum(const void *const *operands, int n, int64_t first, int64_t elements, float *out) {
    if (n == 1) {
        memcpy(out, (const float *)operands[0] + first, (size_t)elements * sizeof *out);
        return;
    }
    float right[BLOCK];
    const int half = (n + 1) / 2;
    sum(operands, half, first, elements, out);
    sum(operands + half, n - half, first, elements, right);
    for (int64_t i = 0; i < elements; i++) out[i] += right[i];
}

static strata_status reduce(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                            int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err) {
    (void)plan, (void)err;
    if (dtype != STRATA_DTYPE_F32 || !n_operands) {
        strata_fold(dtype, reduction, operands, n_operands, elements, results, n_results);
        return STRATA_OK;
    }
    for (int64_t first = 0; first < elements; first += BLOCK) {
        float out[BLOCK];
        const int64_t n = elements - first < BLOCK ? elements - first : BLOCK;
        sum(operands, n_operands, first, n, out);
        for (int64_t i = 0; reduction == STRATA_REDUCE_MEAN && i < n; i++) out[i] /= (float)n_operands;
        for (int j = 0; j < n_results; j++) memcpy((float *)results[j] + first, out, (size_t)n * sizeof *out);
    }
    return STRATA_OK;
}

const strata_cross_device_ops strata_cross_device_tree = {.name = "tree", .reduce = reduce};
