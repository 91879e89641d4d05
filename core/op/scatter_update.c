/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_update: rows of a variable are set, in place. Row indices[j] of the n_rows rows that begin at element `first` of the
 * variable becomes rows[j]; an index out of range sets nothing. Indices in range must differ, since the order of writes is not
 * defined.
 *
 * With this op any update of variables can be applied to a few of their rows: the rows are gathered, the update changes
 * the gathered rows instead of the variables (strata_check_update allows this), and scatter_update writes each range
 * back. The result of the update is the new value of its first range. If `rows` is another range that the update has
 * changed, `update` is the node of the update. */
#include "core/op/define.h"
#include "core/op/update.h"

enum { VARIABLE, INDICES, ROWS, UPDATE };

static bool changes(const strata_tensor *update, const strata_tensor *range) {
    for (int i = 0; i < update->n_inputs; i++)
        if (update->inputs[i] == range && (update->op->flags & STRATA_OP_UPDATE) && (!i || update->op->also_writes >> i & 1))
            return true;
    return false;
}

/* The number of elements in a row. */
static int64_t inner_of(const strata_tensor *node) {
    const int64_t n = strata_shape_elements(node->inputs[INDICES]->shape);
    return n ? strata_shape_elements(node->inputs[ROWS]->shape) / n : 0;
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_scatter_update_attrs *attrs = node->attrs;
    const strata_tensor *variable = node->inputs[VARIABLE], *indices = node->inputs[INDICES], *rows = node->inputs[ROWS];
    const int64_t inner = inner_of(node), all = strata_shape_elements(variable->shape);
    if (!strata_variable_behind(variable))
        return strata_fail(err, STRATA_INVALID, "its first operand is %s; it must come from strata_variable_read",
                           variable->op->name);
    STRATA_TRY(strata_check_dtype(indices, "indices", STRATA_INDICES, err));
    STRATA_TRY(strata_check_same_dtype(variable, "the variable", rows, "rows", err));
    if (inner * strata_shape_elements(indices->shape) != strata_shape_elements(rows->shape))
        return strata_fail(err, STRATA_INVALID, "indices are %s, rows are %s; there must be a row for each",
                           strata_shape_text(indices->shape).text, strata_shape_text(rows->shape).text);
    if (attrs->first < 0 || attrs->n_rows < 0 || attrs->n_rows > INT32_MAX || attrs->first > all ||
        (inner && attrs->n_rows > (all - attrs->first) / inner))
        return strata_fail(err, STRATA_INVALID,
                           "%" PRId64 " rows of %" PRId64 " elements from %" PRId64 " on; the variable is %s", attrs->n_rows,
                           inner, attrs->first, strata_shape_text(variable->shape).text);
    if (node->n_inputs > UPDATE && !changes(node->inputs[UPDATE], rows))
        return strata_fail(err, STRATA_INVALID, "rows are none of the ranges that %s changes", node->inputs[UPDATE]->op->name);
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    const strata_scatter_update_attrs *attrs = call->node->attrs;
    const strata_tensor *indices = call->node->inputs[INDICES];
    const size_t element = strata_dtype_bytes(call->node->dtype), row = (size_t)inner_of(call->node) * element;
    char *rows = (char *)call->output + (size_t)attrs->first * element;
    const int64_t n = strata_shape_elements(indices->shape);
    for (int64_t j = 0, run; row && j < n; j += run) {
        const int64_t r = strata_integer_get(indices->dtype, call->inputs[INDICES], j);
        run = 1;
        if (r < 0 || r >= attrs->n_rows) continue;
        while (j + run < n && r + run < attrs->n_rows && /* consecutive rows are copied together */
               strata_integer_get(indices->dtype, call->inputs[INDICES], j + run) == r + run)
            run++;
        memcpy(rows + (size_t)r * row, (const char *)call->inputs[ROWS] + (size_t)j * row, (size_t)run * row);
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_scatter_update_attrs *attrs = node->attrs;
    const strata_tensor *indices = node->inputs[INDICES], *rows = node->inputs[ROWS];
    const int64_t n = strata_shape_elements(rows->shape);
    if (n == 0 || attrs->n_rows == 0) return STRATA_OK;
    strata_launch launch = {.kernel = "scatter_update",
                            .variant = strata_bits_by_index_variant(node->dtype, indices->dtype),
                            .n_buffers = 3,
                            .buffers = {node, indices, rows},
                            .offsets = {attrs->first},
                            .extents = {attrs->n_rows * inner_of(node)},
                            .writes = 1};
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    STRATA_LAUNCH_INTS(&launch, attrs->n_rows, inner_of(node));
    return strata_lowering_add(lowering, &launch, err);
}

/* Adds the new rows at their indices, which are all different, to the old rows elsewhere. */
static strata_tensor *compose(strata_tensor *node) {
    const strata_scatter_update_attrs *attrs = node->attrs;
    strata_tensor *variable = node->inputs[VARIABLE], *indices = node->inputs[INDICES], *rows = node->inputs[ROWS];
    strata_graph *graph = node->graph;
    const int64_t m = strata_shape_elements(indices->shape), inner = inner_of(node), n = attrs->n_rows * inner;
    const int64_t all = strata_shape_elements(variable->shape), after = attrs->first + n, rest = all - after;
    if (node->n_inputs > UPDATE || node->dtype != STRATA_DTYPE_F32 || !n) return NULL;
    strata_tensor *flat = strata_reshape(variable, STRATA_SHAPE(all)), *places = strata_reshape(indices, STRATA_SHAPE(m));
    strata_tensor *ones = strata_filled(graph, node->dtype, STRATA_SHAPE(m, 1), 1), *parts[3];
    if (!ones) return NULL;
    strata_tensor *new_rows = strata_unsorted_segment_sum(strata_reshape(rows, STRATA_SHAPE(m, inner)), places, attrs->n_rows);
    strata_tensor *hits = strata_unsorted_segment_sum(ones, places, attrs->n_rows);
    strata_tensor *is_new = strata_greater(hits, strata_scalar(graph, node->dtype, 0));
    strata_tensor *old = strata_reshape(strata_slice(flat, &attrs->first, &n), STRATA_SHAPE(attrs->n_rows, inner));
    int n_parts = 0;
    if (attrs->first) parts[n_parts++] = strata_slice(flat, (int64_t[]){0}, &attrs->first);
    parts[n_parts++] = strata_reshape(strata_where(is_new, new_rows, old), STRATA_SHAPE(n));
    if (rest) parts[n_parts++] = strata_slice(flat, &after, &rest);
    strata_tensor *whole = n_parts > 1 ? strata_concat(parts, n_parts, 0) : parts[0];
    return strata_assign(variable, strata_reshape(whole, node->shape));
}

const strata_op strata_op_scatter_update = {
    .name = "scatter_update",
    .n_inputs = 3,
    .optional_inputs = 1,
    .flags = STRATA_OP_UPDATE,
    .attrs_bytes = sizeof(strata_scatter_update_attrs),
    .attrs = {{"first", STRATA_ATTR_INT, offsetof(strata_scatter_update_attrs, first)},
              {"n_rows", STRATA_ATTR_INT, offsetof(strata_scatter_update_attrs, n_rows)}},
    .shape = shape,
    .no_gradient = "it changes a variable; differentiate before updating",
    .reference = reference,
    .compose = compose,
    .lower = lower};

strata_tensor *strata_scatter_update(strata_tensor *variable, int64_t first, int64_t n_rows, strata_tensor *indices,
                                     strata_tensor *rows, strata_tensor *update) {
    strata_scatter_update_attrs attrs = {.first = first, .n_rows = n_rows};
    strata_tensor *inputs[] = {variable, indices, rows, update};
    return strata_node(NULL, &strata_op_scatter_update, update ? 4 : 3, inputs, &attrs);
}
