/* SPDX-License-Identifier: Apache-2.0
 *
 * tile: x repeated along each axis. For one axis it is a broadcast of (outer, 1, inner) to (outer, times, inner) between two
 * reshapes; axes are processed from the last to the first, so that the copies of inner axes are read contiguously. The
 * gradient is that of broadcast_to: the sum over all copies. */
#include "core/op/define.h"

static strata_tensor *repeat(strata_tensor *x, int axis, int64_t times) {
    int64_t outer = 1, inner = 1, size;
    strata_shape shape = x->shape;
    for (int d = 0; d < shape.rank; d++) *(d < axis ? &outer : &inner) *= shape.dims[d];
    if (__builtin_mul_overflow(shape.dims[axis], times, &size))
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "tile: axis %d of the result is beyond 2^63", axis);
    shape.dims[axis] = size;
    x = strata_broadcast_to(strata_reshape(x, STRATA_SHAPE(outer, 1, inner)), STRATA_SHAPE(outer, times, inner));
    return strata_reshape(x, shape);
}

strata_tensor *strata_tile(strata_tensor *x, const int64_t *times) {
    const int rank = strata_tensor_is_poison(x) ? 0 : x->shape.rank;
    for (int d = rank - 1; d >= 0 && !strata_tensor_is_poison(x); d--) {
        if (times[d] < 0)
            return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "tile: times[%d] is %" PRId64 "; it must be at least 0",
                                       d, times[d]);
        if (times[d] != 1) x = repeat(x, d, times[d]);
    }
    return x;
}
