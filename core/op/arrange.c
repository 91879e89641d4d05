/* SPDX-License-Identifier: Apache-2.0
 *
 * Builders that consist of other ops and have their gradients: split, stack and tile. */
#include "core/op/define.h"

/* ---- split: equal parts of x along an axis. The parts are slices, so contiguous parts are views of x, and the gradient is
 * that of slice ---- */

void strata_split(strata_tensor *x, int n_parts, int axis, strata_tensor **out_parts) {
    strata_error err = {0};
    int at = 0;
    strata_tensor *poison = NULL;
    if (strata_tensor_is_poison(x))
        poison = x;
    else if (strata_check_axis(axis, x->shape.rank, &at, &err))
        poison = strata_graph_poison(x->graph, NULL, STRATA_INVALID, "split: %s", err.message);
    else if (n_parts < 1 || x->shape.dims[at] % n_parts)
        poison = strata_graph_poison(x->graph, NULL, STRATA_INVALID,
                                     "split: x is %s; its axis %d does not divide into %d equal parts",
                                     strata_shape_text(x->shape).text, at, n_parts);
    for (int i = 0; poison && i < n_parts; i++) out_parts[i] = poison;
    if (poison) return;
    int64_t begin[STRATA_MAX_RANK] = {0};
    strata_shape part = x->shape;
    part.dims[at] /= n_parts;
    for (int i = 0; i < n_parts; i++, begin[at] += part.dims[at]) out_parts[i] = strata_slice(x, begin, part.dims);
}

/* ---- stack: concatenates tensors of one shape along a new axis. It is a concat of reshapes, which are views, and has
 * concat's gradient ---- */

/* x's shape with an axis of size 1 at `axis`. */
static strata_shape with_axis(strata_shape shape, int axis) {
    for (int d = shape.rank++; d > axis; d--) shape.dims[d] = shape.dims[d - 1];
    shape.dims[axis] = 1;
    return shape;
}

strata_tensor *strata_stack(strata_tensor *const *x, int n_x, int axis) {
    strata_error err = {0};
    int at = 0;
    for (int i = 0; i < n_x; i++)
        if (strata_tensor_is_poison(x[i])) return x[i];
    if (n_x < 1) return NULL;
    strata_graph *graph = x[0]->graph;
    const strata_shape shape = x[0]->shape;
    if (shape.rank == STRATA_MAX_RANK)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "stack: x[0] is %s; the result would have more than %d axes",
                                   strata_shape_text(shape).text, STRATA_MAX_RANK);
    if (strata_check_axis(axis, shape.rank + 1, &at, &err))
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "stack: %s", err.message);
    for (int i = 1; i < n_x; i++)
        if (!strata_shape_equal(shape, x[i]->shape))
            return strata_graph_poison(graph, NULL, STRATA_INVALID, "stack: x[0] is %s, x[%d] is %s; they must be equal",
                                       strata_shape_text(shape).text, i, strata_shape_text(x[i]->shape).text);
    strata_tensor **parts = strata_graph_alloc(graph, (size_t)n_x * sizeof *parts);
    for (int i = 0; i < n_x && parts; i++) parts[i] = strata_reshape(x[i], with_axis(shape, at));
    return parts ? strata_concat(parts, n_x, at) : &graph->poison;
}

/* ---- tile: x repeated along each axis. For one axis it is a broadcast of (outer, 1, inner) to (outer, times, inner)
 * between two reshapes; axes are processed from the last to the first, so that the copies of inner axes are read
 * contiguously. The gradient is that of broadcast_to: the sum over all copies ---- */

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
