/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the reference result from a node's operands, and compares a device's result with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

strata_status strata_check_refer(const strata_tensor *node, const strata_sample *sample, void *const *data, strata_error *err) {
    const bool updates = node->op->flags & STRATA_OP_UPDATE;
    const strata_op_call call = {.node = node,
                                 .inputs = (const void *const *)data,
                                 .output = data[updates ? 0 : node->n_inputs],
                                 .elements = sample->elements,
                                 .n_elements = sample->n};
    const bool large = !sample->elements && strata_check_work(node) > EASY_WORK;
    const host_fast_op *fast = large ? strata_host_fast_find(node) : NULL;
    if (!fast) return node->op->reference(&call, err);
    const int64_t bytes = fast->scratch_bytes ? fast->scratch_bytes(node) : 0;
    void *scratch = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (!scratch) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes", (long long)bytes);
    fast->run(&(host_call){.call = call, .scratch = scratch, .n_parts = 1});
    free(scratch);
    return STRATA_OK;
}

static double value_of(const strata_tensor *tensor, const void *data, int64_t element) {
    return tensor->dtype == STRATA_DTYPE_F32 ? (double)((const float *)data)[element]
                                             : strata_element_get(tensor->dtype, data, element);
}

static int64_t count_of(const strata_tensor *tensor, const strata_sample *sample) {
    return sample->elements ? sample->n : strata_shape_elements(tensor->shape);
}

static int64_t element_of(const strata_sample *sample, int64_t i) {
    return sample->elements ? sample->elements[i] : i;
}

/* A loop that compilers vectorize: whether no float has the exponent of infinity and NaN. */
static bool are_finite(const uint32_t *bits, int64_t n) {
    const uint32_t exponent = 0x7f800000;
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= (bits[i] & exponent) == exponent;
    return !any;
}

bool strata_check_is_finite(const strata_tensor *tensor, const strata_sample *sample, const void *data) {
    if (!strata_dtype_is_float(tensor->dtype)) return true;
    if (tensor->dtype == STRATA_DTYPE_F32 && !sample->elements) return are_finite(data, strata_shape_elements(tensor->shape));
    for (int64_t i = 0; i < count_of(tensor, sample); i++)
        if (!isfinite(value_of(tensor, data, element_of(sample, i)))) return false;
    return true;
}

double strata_check_tolerance(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? 4e-2 : dtype == STRATA_DTYPE_F16 ? 5e-3 : dtype == STRATA_DTYPE_F32 ? 3e-4 : 0;
}

/* ---- samples ---- */
/* The work of a sampled reference, and of a node that is never sampled; the fewest and the most elements of a sample. */
static const double SAMPLE_WORK = 2e6, SMALL_WORK = 2e5;
enum { LEAST_SAMPLE = 16, MOST_SAMPLE = 8192, TAIL = 32 };

/* The golden ratio's fractional part. Its multiples, modulo 1, are spread evenly, however many there are. */
static const double GOLDEN = 0.6180339887498949;

/* The result is divided into as many parts of equal length as the sample has elements, and one element of each part is taken,
 * at a place that goes through the part. So neighbouring parts cover all columns of a tile, and each work-group, whose results
 * are neighbours, has elements in the sample. The first and the last elements are taken too, since incomplete tiles are there,
 * and those at the ends of rows. */
strata_status strata_sample_choose(const strata_tensor *node, const strata_tensor *written, uint32_t random, strata_sample *out,
                                   strata_error *err) {
    const int64_t n = strata_shape_elements(written->shape);
    /* An op without operations of its own reads its operands with large strides. */
    const double flops = strata_node_flops(node), work = flops > 0 ? flops : 4 * strata_node_moved_bytes(node);
    *out = (strata_sample){0};
    if (!(node->op->flags & STRATA_OP_SAMPLES) || work <= SMALL_WORK) return STRATA_OK;
    const int64_t parts = (int64_t)fmin(fmax(SAMPLE_WORK / (work / (double)n), LEAST_SAMPLE), MOST_SAMPLE);
    const int64_t row = written->shape.rank ? written->shape.dims[written->shape.rank - 1] : 1, n_rows = n / row;
    const int64_t ends = parts / 8 < n_rows ? parts / 8 : n_rows, tail = parts / 8 < TAIL ? parts / 8 : TAIL;
    if (parts + ends + 2 * tail >= n) return STRATA_OK;
    out->elements = malloc((size_t)(parts + ends + 2 * tail) * sizeof *out->elements);
    if (!out->elements)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld elements", (long long)parts);
    const double length = (double)n / (double)parts, begin = (double)(random >> 8) / (1 << 24);
    for (int64_t i = 0; i < parts; i++) {
        const double along = begin + GOLDEN * (double)i;
        const int64_t at = (int64_t)(length * ((double)i + along - floor(along)));
        out->elements[out->n++] = at < n ? at : n - 1;
    }
    for (int64_t i = 0; i < ends; i++) out->elements[out->n++] = (i * n_rows / ends + 1) * row - 1;
    for (int64_t i = 0; i < tail; i++) {
        out->elements[out->n++] = i;
        out->elements[out->n++] = n - 1 - i;
    }
    return STRATA_OK;
}

void strata_sample_finish(strata_sample *sample) {
    free(sample->elements);
    *sample = (strata_sample){0};
}

/* ---- comparing ---- */
static double distance(double got, double want) {
    if (got == want || (isnan(got) && isnan(want))) return 0;
    return isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
}

/* The largest absolute value, but at least 1e-30, so that small numbers that a device flushes to zero do not count as
 * errors. */
static double largest(const strata_tensor *tensor, const strata_sample *sample, const void *values) {
    double most = 1e-30;
    for (int64_t i = 0; i < count_of(tensor, sample); i++) {
        const double value = value_of(tensor, values, element_of(sample, i));
        if (isfinite(value)) most = fmax(most, fabs(value));
    }
    return most;
}

double strata_check_difference(const strata_tensor *tensor, const strata_sample *sample, const void *got, const void *want) {
    double most = 0;
    if (!sample->elements && !memcmp(got, want, (size_t)strata_check_bytes(tensor))) return 0;
    for (int64_t i = 0; i < count_of(tensor, sample); i++) {
        const int64_t e = element_of(sample, i);
        most = fmax(most, distance(value_of(tensor, got, e), value_of(tensor, want, e)));
    }
    return most > 0 ? most / largest(tensor, sample, want) : 0;
}

/* Two differences of an element are allowed in addition to each other. The first is the tolerance times the tensor's
 * largest value. The second is ROOM times the root mean square of the changes that the moved operands cause. It is
 * needed for a sum whose terms cancel each other: its result is mostly rounding error, and moved operands show how
 * large that is.
 *
 * An op that decides by a value that it has computed (a relu after a sum) may decide differently if the value is near
 * the threshold. So one of FEW elements may differ by more, up to twice the largest change that the moved operands
 * cause. */
bool strata_check_is_off(const strata_tensor *tensor, const strata_sample *sample, const void *got, const void *want,
                         const void *moved) {
    enum { ROOM = 4, FEW = 10000 };
    const int64_t n = count_of(tensor, sample);
    double squares = 0, most_moved = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = element_of(sample, i);
        const double d = distance(value_of(tensor, moved, e), value_of(tensor, want, e));
        if (!isfinite(d)) continue;
        squares += d * d;
        most_moved = fmax(most_moved, d);
    }
    const double room =
        strata_check_tolerance(tensor->dtype) * largest(tensor, sample, want) + ROOM * sqrt(squares / (double)(n + !n));
    int64_t n_beyond = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = element_of(sample, i);
        const double d = distance(value_of(tensor, got, e), value_of(tensor, want, e));
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
