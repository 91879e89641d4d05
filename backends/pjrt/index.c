/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that access elements by index. StableHLO clamps indices of a gather that are out of range, and ignores those of a
 * scatter. Strata's ops read 0 at such indices and add nothing. */
#include "backends/pjrt/lower.h"
#include "core/op/gather.h"
#include "core/op/ops.h"

static hlo_value gather(hlo *h, const strata_tensor *node) {
    const strata_shape from = node->inputs[0]->shape;
    const int axis = strata_pjrt_axis(node);
    if (!strata_shape_elements(from) || !strata_shape_elements(node->shape))
        return strata_hlo_fill(h, (int)node->dtype, node->shape, 0);
    const hlo_value indices = strata_pjrt_operand(h, node, 1);
    const hlo_value rows = strata_hlo_gather(h, strata_pjrt_operand(h, node, 0), indices, axis);
    const hlo_value in_range = strata_hlo_binary(h, "and", strata_hlo_compare_with(h, "GE", indices, 0),
                                                 strata_hlo_compare_with(h, "LT", indices, (double)from.dims[axis]));
    return strata_hlo_keep(h, strata_hlo_spread(h, in_range, node->shape, axis), rows);
}

static hlo_value gather_grad(hlo *h, const strata_tensor *node) {
    const strata_shape indices = node->inputs[1]->shape;
    const int axis = (int)strata_pjrt_int(node, "axis");
    const hlo_value zero = strata_hlo_fill(h, HLO_F32, node->shape, 0);
    hlo_value dy = strata_pjrt_number(h, node, 0);
    if (!strata_shape_elements(indices) || !strata_shape_elements(node->shape)) return zero;
    if (strata_gather_grad_sizes_of(node).repeats > 1) { /* one row is the gradient of all indices of the last axis */
        strata_shape whole = dy.shape;
        whole.dims[axis + indices.rank - 1] = indices.dims[indices.rank - 1];
        dy = strata_hlo_broadcast(h, dy, whole);
    }
    return strata_hlo_scatter(h, "add", zero, strata_pjrt_operand(h, node, 1), dy, axis);
}

/* Replaces rows of a variable, which is treated as flat: the result is the elements before the rows, the rows, and the
 * elements after them. */
static hlo_value scatter_update(hlo *h, const strata_tensor *node) {
    const int64_t n = strata_shape_elements(node->inputs[1]->shape), all = strata_shape_elements(node->shape);
    const int64_t inner = n ? strata_shape_elements(node->inputs[2]->shape) / n : 0;
    const int64_t first = strata_pjrt_int(node, "first"), n_rows = strata_pjrt_int(node, "n_rows"),
                  end = first + n_rows * inner;
    const hlo_value whole = strata_pjrt_operand(h, node, 0);
    if (!inner || !n_rows) return whole;
    const hlo_value flat = strata_hlo_reshape(h, whole, STRATA_SHAPE(all));
    const hlo_value indices = strata_hlo_reshape(h, strata_pjrt_operand(h, node, 1), STRATA_SHAPE(n));
    const hlo_value rows = strata_hlo_reshape(h, strata_hlo_part(h, flat, first, end - first), STRATA_SHAPE(n_rows, inner));
    const hlo_value set = strata_hlo_reshape(h, strata_pjrt_operand(h, node, 2), STRATA_SHAPE(n, inner));
    hlo_value parts[3];
    int n_parts = 0;
    if (first) parts[n_parts++] = strata_hlo_part(h, flat, 0, first);
    parts[n_parts++] = strata_hlo_reshape(h, strata_hlo_scatter(h, NULL, rows, indices, set, 0), STRATA_SHAPE(end - first));
    if (end < all) parts[n_parts++] = strata_hlo_part(h, flat, end, all - end);
    return strata_hlo_concat(h, parts, n_parts, 0);
}

static hlo_value first_index(hlo *h, const strata_tensor *node) {
    const int64_t n = strata_shape_elements(node->inputs[0]->shape);
    if (!n || !node->shape.dims[0]) return strata_hlo_fill(h, HLO_I32, node->shape, 0);
    const hlo_value none = strata_hlo_fill(h, HLO_I32, node->shape, INT32_MAX);
    const hlo_value x = strata_hlo_reshape(h, strata_pjrt_operand(h, node, 0), STRATA_SHAPE(n));
    const hlo_value places = strata_hlo_with(h, "add", strata_hlo_iota(h, HLO_I32, STRATA_SHAPE(n), 0), 1);
    const hlo_value first = strata_hlo_scatter(h, "minimum", none, x, places, 0);
    return strata_hlo_keep(h, strata_hlo_compare(h, "NE", first, none), first);
}

/* Sums over i a table (S, N) that has x_i if element i belongs to segment s, otherwise 0. Compilers do not store the table. */
static hlo_value segment_sum(hlo *h, const strata_tensor *node) {
    const int64_t n = node->inputs[0]->shape.dims[0], segments = node->shape.dims[0];
    const strata_shape table = STRATA_SHAPE(segments, n);
    if (!n || !segments) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    const hlo_value ends = strata_pjrt_operand(h, node, 1), at = strata_hlo_iota(h, HLO_I32, table, 1);
    const hlo_value begins =
        strata_hlo_pad(h, strata_hlo_part(h, ends, 0, segments - 1), 0, (int64_t[]){1}, (int64_t[]){0}, NULL);
    const hlo_value inside =
        strata_hlo_binary(h, "and", strata_hlo_compare(h, "GE", at, strata_hlo_spread(h, begins, table, 0)),
                          strata_hlo_compare(h, "LT", at, strata_hlo_spread(h, ends, table, 0)));
    const hlo_value x = strata_hlo_spread(h, strata_pjrt_operand(h, node, 0), table, 1);
    return strata_hlo_fold(h, "add", strata_hlo_keep(h, inside, x), 0, 1, 1);
}

const pjrt_row strata_pjrt_index[] = {PJRT_ROW(gather),      PJRT_ROW(gather_grad), PJRT_ROW(scatter_update),
                                      PJRT_ROW(first_index), PJRT_ROW(segment_sum), {0}};
