/* SPDX-License-Identifier: Apache-2.0
 *
 * tree: adds on the host in pairs, (r0 + r1) + (r2 + r3), so that in a sum of n values each value is rounded lg n times
 * instead of up to n - 1 times. Only f32 is added in pairs; other dtypes are rare and are added in the order of `host`.
 * With two or three replicas the bits are those of `host`. */
#include <string.h>

#include "core/run/cross_device.h"
#include "core/run/fold.h"

enum { BLOCK = 1024 }; /* elements; the sums of two levels stay in the first-level cache */

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
