/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the reference result from a node's operands, and compares a device's result with it. */
#include <math.h>
#include <stdlib.h>

#include "backends/host/host.h"
#include "backends/kernel/check.h"
#include "core/compile/cost.h"
#include "core/op/element.h"

/* Operations plus bytes: what the references compute in about 10 ms. For larger nodes the host backend's loops are
 * used, if it has any for the op. */
static const double EASY_WORK = 2e6;

int64_t strata_check_bytes(const strata_tensor *tensor) {
    return strata_shape_elements(tensor->shape) * (int64_t)strata_dtype_bytes(tensor->dtype);
}

double strata_check_work(const strata_tensor *node) {
    return strata_node_flops(node) + strata_node_moved_bytes(node);
}

bool strata_check_writes(const strata_tensor *node, int i) {
    const bool updates = node->op->flags & STRATA_OP_UPDATE;
    return i == node->n_inputs ? !updates : updates && (i == 0 || node->op->also_writes >> i & 1);
}

strata_status strata_check_refer(const strata_tensor *node, void *const *data, strata_error *err) {
    const bool updates = node->op->flags & STRATA_OP_UPDATE;
    const strata_op_call call = {
        .node = node, .inputs = (const void *const *)data, .output = data[updates ? 0 : node->n_inputs]};
    const host_fast_op *fast = strata_check_work(node) > EASY_WORK ? strata_host_fast_find(node) : NULL;
    if (!fast) return node->op->reference(&call, err);
    const int64_t bytes = fast->scratch_bytes ? fast->scratch_bytes(node) : 0;
    void *scratch = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (!scratch) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes", (long long)bytes);
    fast->run(&(host_call){.call = call, .scratch = scratch, .n_parts = 1});
    free(scratch);
    return STRATA_OK;
}

bool strata_check_has_nan(const strata_tensor *tensor, const void *data) {
    if (!strata_dtype_is_float(tensor->dtype)) return false;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++)
        if (isnan(strata_element_get(tensor->dtype, data, e))) return true;
    return false;
}

bool strata_check_is_finite(const strata_tensor *tensor, const void *data) {
    if (!strata_dtype_is_float(tensor->dtype)) return true;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++)
        if (!isfinite(strata_element_get(tensor->dtype, data, e))) return false;
    return true;
}

double strata_check_tolerance(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? 4e-2 : dtype == STRATA_DTYPE_F16 ? 5e-3 : dtype == STRATA_DTYPE_F32 ? 3e-4 : 0;
}

/* ---- comparing ---- */
static double distance(double got, double want) {
    if (got == want || (isnan(got) && isnan(want))) return 0;
    return isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
}

/* The largest absolute value, but at least 1e-30, so that small numbers that a device flushes to zero do not count as
 * errors. */
static double largest(const strata_tensor *tensor, const void *values) {
    double most = 1e-30;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++) {
        const double value = strata_element_get(tensor->dtype, values, e);
        if (isfinite(value)) most = fmax(most, fabs(value));
    }
    return most;
}

double strata_check_difference(const strata_tensor *tensor, const void *got, const void *want) {
    double most = 0;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++)
        most = fmax(most, distance(strata_element_get(tensor->dtype, got, e), strata_element_get(tensor->dtype, want, e)));
    return most > 0 ? most / largest(tensor, want) : 0;
}

/* Two differences of an element are allowed in addition to each other. The first is the tolerance times the tensor's
 * largest value. The second is ROOM times the root mean square of the changes that the moved operands cause. It is
 * needed for a sum whose terms cancel each other: its result is mostly rounding error, and moved operands show how
 * large that is.
 *
 * An op that decides by a value that it has computed (a relu after a sum) may decide differently if the value is near
 * the threshold. So one of FEW elements may differ by more, up to twice the largest change that the moved operands
 * cause. */
bool strata_check_is_off(const strata_tensor *tensor, const void *got, const void *want, const void *moved) {
    enum { ROOM = 4, FEW = 10000 };
    const int64_t n = strata_shape_elements(tensor->shape);
    double squares = 0, most_moved = 0, most = 0;
    for (int64_t e = 0; e < n; e++) {
        const double d = distance(strata_element_get(tensor->dtype, moved, e), strata_element_get(tensor->dtype, want, e));
        if (!isfinite(d)) continue;
        squares += d * d;
        most_moved = fmax(most_moved, d);
    }
    const double room = strata_check_tolerance(tensor->dtype) * largest(tensor, want) + ROOM * sqrt(squares / (double)(n + !n));
    int64_t n_beyond = 0;
    for (int64_t e = 0; e < n; e++) {
        const double d = distance(strata_element_get(tensor->dtype, got, e), strata_element_get(tensor->dtype, want, e));
        n_beyond += d > room;
        most = fmax(most, d);
    }
    return n_beyond > 1 + n / FEW || (n_beyond && most > 2 * most_moved);
}

void strata_check_move(const strata_tensor *tensor, void *data, uint32_t random) {
    const double part = strata_check_tolerance(tensor->dtype);
    if (!strata_dtype_is_float(tensor->dtype)) return;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++) {
        random = random * 1664525u + 1013904223u;
        const double by = part * ((double)(random >> 8) / (1 << 23) - 1);
        strata_element_set(tensor->dtype, data, e, strata_element_get(tensor->dtype, data, e) * (1 + by));
    }
}
