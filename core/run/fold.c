/* SPDX-License-Identifier: Apache-2.0
 *
 * The fold works block by block, so that each operand is read from memory once, and the sum of a block is still in the
 * first-level cache when it is written. */
#include "core/run/fold.h"

#include <string.h>

#include "core/op/element.h"

enum { BLOCK = 2048 }; /* elements; 8 KiB of f32 */

static void add_f32(float *restrict sum, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] = x[i] + y[i];
}

static void add_to_f32(float *restrict sum, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Adds in the order of the operands: (sum + x) + y. */
static void add_both_to_f32(float *restrict sum, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] = (sum[i] + x[i]) + y[i];
}

static void sum_f32(float *sum, const void *const *operands, int n_operands, int64_t first, int64_t n) {
    const float *const *x = (const float *const *)operands;
    if (n_operands == 1)
        memcpy(sum, x[0] + first, (size_t)n * sizeof *sum);
    else
        add_f32(sum, x[0] + first, x[1] + first, n);
    int r = 2;
    for (; r + 1 < n_operands; r += 2) add_both_to_f32(sum, x[r] + first, x[r + 1] + first, n);
    if (r < n_operands) add_to_f32(sum, x[r] + first, n);
}

/* Adds in pairs, (x0 + x1) + (x2 + x3). */
static void sum_f32_in_pairs(float *sum, const void *const *operands, int n_operands, int64_t first, int64_t n) {
    float right[BLOCK];
    const int half = (n_operands + 1) / 2;
    if (n_operands <= 2) {
        sum_f32(sum, operands, n_operands, first, n);
        return;
    }
    sum_f32_in_pairs(sum, operands, half, first, n);
    sum_f32_in_pairs(right, operands + half, n_operands - half, first, n);
    add_to_f32(sum, right, n);
}

static void sum_small_floats(strata_dtype dtype, float *sum, const void *const *operands, int n_operands, int64_t first,
                             int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] = (float)strata_element_get(dtype, operands[0], first + i);
    for (int r = 1; r < n_operands; r++)
        for (int64_t i = 0; i < n; i++) sum[i] += (float)strata_element_get(dtype, operands[r], first + i);
}

/* Folds one block. The result, which it returns, is in `sum` or, for f16 and bf16, in `out`. */
static const void *fold_floats(strata_dtype dtype, strata_reduction reduction, bool in_pairs, const void *const *operands,
                               int n_operands, int64_t first, int64_t n, float *sum, void *out) {
    if (dtype == STRATA_DTYPE_F32)
        (in_pairs ? sum_f32_in_pairs : sum_f32)(sum, operands, n_operands, first, n);
    else
        sum_small_floats(dtype, sum, operands, n_operands, first, n);
    if (reduction == STRATA_REDUCE_MEAN)
        for (int64_t i = 0; i < n; i++) sum[i] /= (float)n_operands;
    if (dtype == STRATA_DTYPE_F32) return sum;
    for (int64_t i = 0; i < n; i++) strata_element_set(dtype, out, i, sum[i]);
    return out;
}

static void fold_integers(strata_dtype dtype, const void *const *operands, int n_operands, int64_t first, int64_t n,
                          void *out) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = 0; /* wraps */
        for (int r = 0; r < n_operands; r++) sum += (uint64_t)strata_integer_get(dtype, operands[r], first + i);
        strata_integer_set(dtype, out, i, (int64_t)sum);
    }
}

void strata_fold_ordered(strata_dtype dtype, strata_reduction reduction, bool in_pairs, const void *const *operands,
                         int n_operands, int64_t elements, void *const *results, int n_results) {
    const size_t bytes = strata_dtype_bytes(dtype);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        const int64_t n = elements - first < BLOCK ? elements - first : BLOCK;
        int64_t out[BLOCK];
        float sum[BLOCK];
        const void *folded = out;
        if (!n_operands)
            memset(out, 0, (size_t)n * bytes);
        else if (strata_dtype_is_float(dtype))
            folded = fold_floats(dtype, reduction, in_pairs, operands, n_operands, first, n, sum, out);
        else
            fold_integers(dtype, operands, n_operands, first, n, out);
        for (int j = 0; j < n_results; j++) memcpy((char *)results[j] + (size_t)first * bytes, folded, (size_t)n * bytes);
    }
}

void strata_fold(strata_dtype dtype, strata_reduction reduction, const void *const *operands, int n_operands, int64_t elements,
                 void *const *results, int n_results) {
    strata_fold_ordered(dtype, reduction, false, operands, n_operands, elements, results, n_results);
}
