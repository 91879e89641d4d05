/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms and factors of each parameter in the flat range. First each chunk is summed, then the chunks of each parameter,
 * in an order that depends only on the shapes. A block without segments is one parameter, of any shape. */
#include "core/optimizer/optimizer.h"

static strata_tensor *as_chunks(const strata_segments *segments, strata_tensor *flat) {
    return strata_reshape(flat, STRATA_SHAPE(segments->n_chunks, STRATA_SEGMENT_CHUNK));
}

static strata_tensor *constant(strata_tensor *beside, const int32_t *values, int64_t n) {
    strata_array view = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(n), (void *)values);
    return strata_constant(strata_tensor_graph(beside), &view);
}

strata_tensor *strata_segment_squares(const strata_segments *segments, strata_tensor *flat) {
    if (!segments->n) return strata_reduce_sum(strata_square(flat), NULL, 0, false);
    strata_tensor *chunks = strata_reduce_sum(strata_square(as_chunks(segments, flat)), (int[]){1}, 1, false);
    return strata_segment_sum(chunks, constant(flat, segments->ends, segments->n));
}

strata_tensor *strata_segment_scale(const strata_segments *segments, strata_tensor *flat, strata_tensor *factors) {
    if (!segments->n) return strata_mul(flat, factors);
    strata_tensor *each = strata_gather(factors, constant(flat, segments->owner, segments->n_chunks), 0);
    strata_tensor *scaled = strata_mul(as_chunks(segments, flat), strata_reshape(each, STRATA_SHAPE(segments->n_chunks, 1)));
    return strata_reshape(scaled, strata_tensor_shape(flat));
}

/* a / b where both are above 0, which is where min(a, b) > 0; else 1. */
strata_tensor *strata_ratio_or_one(strata_tensor *a, strata_tensor *b) {
    strata_graph *graph = strata_tensor_graph(a);
    strata_tensor *zero = strata_scalar(graph, STRATA_DTYPE_F32, 0), *one = strata_scalar(graph, STRATA_DTYPE_F32, 1);
    return strata_where(strata_greater(strata_min(a, b), zero), strata_div(a, b), one);
}
