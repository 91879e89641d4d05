/* SPDX-License-Identifier: Apache-2.0
 *
 * stack: concatenates tensors of one shape along a new axis. It is a concat of reshapes, which are views, and has concat's
 * gradient. */
#include "core/op/define.h"

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
