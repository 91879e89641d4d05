/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and means of f32 over neighbouring axes on the host, computed in double as in the reference. Sums of columns are
 * computed for a block of columns at a time, so that each row is read contiguously. */
#include "core/op/reduce.h"

#include "backends/host/host.h"
#include "core/op/ops.h"

enum { BLOCK = 32 };

/* sums (width): the sums over n rows, whose elements are `inner` apart. */
static void sum_columns(const float *x, int64_t n, int64_t inner, int64_t width, double *sums) {
    for (int64_t j = 0; j < width; j++) sums[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) sums[j] += (double)x[i * inner + j];
}

/* The same for BLOCK columns, whose sums stay in registers. */
HOST_INLINE void sum_block_loop(const float *x, int64_t n, int64_t inner, double *sums) {
    double s[BLOCK] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < BLOCK; j++) s[j] += (double)x[i * inner + j];
    for (int j = 0; j < BLOCK; j++) sums[j] = s[j];
}
HOST_LOOP(sum_block, "avx2", (const float *x, int64_t n, int64_t inner, double *sums), (x, n, inner, sums))

static strata_axes axes_of(const strata_tensor *node) {
    const strata_reduce_attrs *attrs = node->attrs;
    return strata_axes_of(node->inputs[0]->shape, attrs->axis, attrs->n_axes);
}

static bool takes(const strata_tensor *node) {
    return strata_host_is_f32(node) && axes_of(node).n > 0;
}

static int64_t work(const strata_tensor *node) {
    return axes_of(node).inner > 1 ? strata_shape_elements(node->inputs[0]->shape) : 0;
}

/* The sum of n adjacent numbers, in order. */
static double sum_row(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

static void reduce(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_axes a = axes_of(call->node);
    const double divisor = call->node->op == &strata_op_reduce_mean ? (double)a.n : 1;
    const float *x = call->inputs[0];
    float *y = call->output;
    const int64_t blocks = (a.inner + BLOCK - 1) / BLOCK;
    const host_share share = strata_host_share(host, a.outer * blocks, 1);
    for (int64_t b = share.first; b < share.end; b++) {
        const int64_t outer = b / blocks, col = b % blocks * BLOCK, width = a.inner - col < BLOCK ? a.inner - col : BLOCK;
        const float *from = x + outer * a.n * a.inner + col;
        double sums[BLOCK];
        if (a.inner == 1)
            sums[0] = sum_row(from, a.n);
        else if (width == BLOCK)
            sum_block(from, a.n, a.inner, sums);
        else
            sum_columns(from, a.n, a.inner, width, sums);
        for (int64_t j = 0; j < width; j++) y[outer * a.inner + col + j] = (float)(sums[j] / divisor);
    }
}

const host_fast_op strata_host_reductions[] = {
    {&strata_op_reduce_sum, takes, NULL, reduce, work}, {&strata_op_reduce_mean, takes, NULL, reduce, work}, {0}};
