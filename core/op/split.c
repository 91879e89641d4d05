/* SPDX-License-Identifier: Apache-2.0
 *
 * split: equal parts of x along an axis. The parts are slices, so contiguous parts are views of x, and the gradient is
 * that of slice. */
#include "core/op/define.h"

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
