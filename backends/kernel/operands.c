/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the reference result from a node's operands, or a sample of it. */
#include <math.h>

#include "backends/host/host.h"
#include "backends/kernel/check.h"

/* Operations plus bytes: what the references compute in about 10 ms. For larger nodes the host backend's loops are
 * used, if it has any for the op. */
static const double EASY_WORK = 2e6;

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
    if (!fast) return strata_reference(call, err);
    const int64_t bytes = fast->scratch_bytes ? fast->scratch_bytes(node) : 0;
    void *scratch = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (!scratch) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes", (long long)bytes);
    fast->run(&(host_call){.call = call, .scratch = scratch, .n_parts = 1});
    free(scratch);
    return STRATA_OK;
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
