/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of gather and scatter in their general form. The axes of the operand along which a place is chosen are moved to the
 * front and seen as one axis of rows, and the index vectors become one row number for each element of the windows. So one
 * gather, or one sum by row numbers, does all of it.
 *
 * Names, as in the specification: the operand has the axes that `indices` choose (start_index_map), batching axes, which go
 * with an axis of the indices, and others, which are taken completely. A window is what one index vector chooses. */
#include <inttypes.h>
#include <math.h>

#include "core/frontend/pjrt/lowering.h"

typedef struct indexing {
    int rank, index_rank, n_map, n_batching, n_removed;
    /* The operand's axis of each number of an index vector. */
    int map[STRATA_MAX_RANK];
    /* Batching axes of the operand, and those of the indices. */
    int batching[STRATA_MAX_RANK], index_batching[STRATA_MAX_RANK];
    /* Axes of the operand that windows do not have, besides the batching axes. */
    int removed[STRATA_MAX_RANK];
    int64_t vector_axis;
    /* Of the operand, and of a window along each of its axes. */
    strata_shape shape;
    int64_t window[STRATA_MAX_RANK];
    /* Operand axes in the order rows, then columns: n_rows of them make the row number. */
    int order[STRATA_MAX_RANK], n_rows;
    int64_t rows, columns;
    /* The shape of the indices without their vectors. */
    strata_shape batch;
} indexing;

static bool contains(const int *list, int n, int value) {
    for (int i = 0; i < n; i++)
        if (list[i] == value) return true;
    return false;
}

static bool is_in_window(const indexing *g, int d) {
    return !contains(g->removed, g->n_removed, d) && !contains(g->batching, g->n_batching, d);
}

static strata_status read_axes(const lower_call *call, bool is_gather, indexing *g, strata_error *err) {
    int n = 0;
    g->shape = call->in[0]->shape;
    g->rank = g->shape.rank;
    g->index_rank = call->in[1]->shape.rank;
    STRATA_TRY(strata_lower_axes(call, is_gather ? "start_index_map" : "scatter_dims_to_operand_dims", g->rank, g->map,
                                 &g->n_map, err));
    STRATA_TRY(strata_lower_axes(call, is_gather ? "collapsed_slice_dims" : "inserted_window_dims", g->rank, g->removed,
                                 &g->n_removed, err));
    STRATA_TRY(strata_lower_axes(call, is_gather ? "operand_batching_dims" : "input_batching_dims", g->rank, g->batching,
                                 &g->n_batching, err));
    STRATA_TRY(strata_lower_axes(call, is_gather ? "start_indices_batching_dims" : "scatter_indices_batching_dims",
                                 g->index_rank, g->index_batching, &n, err));
    STRATA_TRY(strata_lower_integer(call, "index_vector_dim", &g->vector_axis, err));
    bool is_wrong = n != g->n_batching || g->vector_axis < 0 || g->vector_axis > g->index_rank;
    for (int i = 0; i < g->n_batching && !is_wrong; i++)
        is_wrong = g->index_batching[i] == g->vector_axis || contains(g->map, g->n_map, g->batching[i]) ||
                   g->shape.dims[g->batching[i]] != call->in[1]->shape.dims[g->index_batching[i]];
    for (int d = 0; d < g->index_rank && !is_wrong; d++)
        if (d != g->vector_axis) g->batch.dims[g->batch.rank++] = call->in[1]->shape.dims[d];
    const bool has_axis = !is_wrong && g->vector_axis < g->index_rank;
    is_wrong |= (has_axis ? call->in[1]->shape.dims[g->vector_axis] : 1) != g->n_map;
    return is_wrong ? strata_fail(err, STRATA_DATA, "its dimension numbers contradict its operands") : STRATA_OK;
}

/* Divides the operand's axes into rows and columns, when the sizes of the window are known. */
static strata_status divide_axes(indexing *g, strata_error *err) {
    bool is_row[STRATA_MAX_RANK];
    int at = 0;
    g->rows = g->columns = 1;
    for (int d = 0; d < g->rank; d++) {
        is_row[d] =
            contains(g->map, g->n_map, d) || contains(g->batching, g->n_batching, d) || g->window[d] != g->shape.dims[d];
        if (g->window[d] < 0 || g->window[d] > g->shape.dims[d] || (!is_in_window(g, d) && g->window[d] != 1))
            return strata_fail(err, STRATA_DATA, "its window has %" PRId64 " of %" PRId64 " elements along axis %d",
                               g->window[d], g->shape.dims[d], d);
        *(is_row[d] ? &g->rows : &g->columns) *= g->shape.dims[d];
    }
    if (g->rows > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "it chooses among %" PRId64 " places, of which at most %d are counted",
                           g->rows, INT32_MAX);
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < g->rank; d++)
            if (is_row[d] == !pass) g->order[at++] = d;
    for (int d = 0; d < g->rank; d++) g->n_rows += is_row[d];
    return STRATA_OK;
}

/* Number k of the index vectors, in the shape of the batch followed by `more` axes of size 1. */
static strata_tensor *column(const indexing *g, const lowered *indices, int k, int more) {
    strata_tensor *x = strata_lower_whole(indices);
    strata_shape shape = g->batch;
    for (int i = 0; i < more; i++) shape.dims[shape.rank++] = 1;
    if (g->vector_axis < g->index_rank) x = strata_lower_part(x, (int)g->vector_axis, k, 1);
    x = strata_reshape(x, shape);
    return strata_tensor_dtype(x) == STRATA_DTYPE_I64 ? x : strata_cast(x, STRATA_DTYPE_I32);
}

/* The first element of the windows along row axis d. *inside: whether all windows so far are inside of the operand. */
static strata_tensor *start_along(const indexing *g, const lower_call *call, int d, int more, strata_tensor **inside) {
    const int rank = g->batch.rank + more;
    for (int i = 0; i < g->n_batching; i++)
        if (g->batching[i] == d)
            return strata_lower_positions(call->graph, rank, g->index_batching[i] - (g->index_batching[i] > g->vector_axis),
                                          g->shape.dims[d]);
    for (int k = 0; k < g->n_map; k++) {
        if (g->map[k] != d) continue;
        strata_tensor *x = column(g, call->in[1], k, more);
        strata_tensor *zero = strata_lower_scalar(x, 0),
                      *last = strata_lower_scalar(x, (double)(g->shape.dims[d] - g->window[d]));
        strata_tensor *is_inside = strata_lower_combine(LOWER_AND, strata_greater_equal(x, zero), strata_less_equal(x, last));
        *inside = *inside ? strata_lower_combine(LOWER_AND, *inside, is_inside) : is_inside;
        return strata_cast(strata_clip(x, 0, (double)(g->shape.dims[d] - g->window[d])), STRATA_DTYPE_I32);
    }
    return NULL;
}

/* The row number of each element of each window, (n), windows in the order of the batch. Windows that are not inside of the
 * operand are moved into it, or, with `dropped`, get the number -1. */
static strata_tensor *row_numbers(const indexing *g, const lower_call *call, bool dropped) {
    strata_shape all = g->batch;
    strata_tensor *sum = strata_scalar(call->graph, STRATA_DTYPE_I32, 0), *inside = NULL;
    int more = 0, at = 0;
    int64_t stride = g->rows;
    for (int i = 0; i < g->n_rows; i++) more += g->window[g->order[i]] > 1;
    for (int i = 0; i < g->n_rows; i++) {
        const int d = g->order[i];
        stride /= g->shape.dims[d];
        strata_tensor *from = start_along(g, call, d, more, &inside), *factor = strata_lower_scalar(sum, (double)stride);
        if (from) sum = strata_add(sum, strata_mul(from, factor));
        if (g->window[d] == 1) continue;
        from = strata_lower_positions(call->graph, g->batch.rank + more, g->batch.rank + at++, g->window[d]);
        sum = strata_add(sum, strata_mul(from, factor));
        all.dims[all.rank++] = g->window[d];
    }
    if (dropped && inside) sum = strata_where(inside, sum, strata_lower_scalar(sum, -1));
    return strata_reshape(strata_broadcast_to(sum, all), STRATA_SHAPE(strata_shape_elements(all)));
}

static strata_tensor *as_rows(const indexing *g, strata_tensor *x) {
    return strata_reshape(g->rank ? strata_transpose(x, g->order) : x, STRATA_SHAPE(g->rows, g->columns));
}

/* The axes of a gather's result, or of a scatter's updates, in the order batch, then window in the order of the rows and
 * columns: *order[i] is the axis that comes there. offsets: the axes of the window, in the order of the operand's axes. */
static strata_status window_order(const indexing *g, const int *offsets, int n_offsets, int rank, int *order,
                                  strata_error *err) {
    int n = 0, n_window = 0, of_axis[STRATA_MAX_RANK] = {0};
    for (int i = 1; i < n_offsets; i++)
        if (offsets[i] < offsets[i - 1]) return strata_fail(err, STRATA_DATA, "its window's axes do not ascend");
    for (int d = 0; d < rank; d++)
        if (!contains(offsets, n_offsets, d)) order[n++] = d;
    for (int d = 0; d < g->rank; d++) {
        if (is_in_window(g, d) && n_window < n_offsets) of_axis[d] = offsets[n_window];
        n_window += is_in_window(g, d);
    }
    for (int i = 0; i < g->rank && n_window == n_offsets; i++)
        if (is_in_window(g, g->order[i])) order[n++] = of_axis[g->order[i]];
    if (n == rank && n_window == n_offsets && rank - n_offsets == g->batch.rank) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "its window has %d axes, and %d were expected", n_offsets, n_window);
}

static strata_status check_indices(const lower_call *call, int n_operands, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, n_operands, err));
    const strata_dtype dtype = strata_tensor_dtype(call->in[1]->tensor);
    if (dtype == STRATA_DTYPE_I32 || dtype == STRATA_DTYPE_I64 || dtype == STRATA_DTYPE_U8) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "its indices are %s", strata_dtype_name(dtype));
}

strata_status strata_lower_gather(const lower_call *call, strata_error *err) {
    indexing g = {0};
    int offsets[STRATA_MAX_RANK], n_offsets, order[STRATA_MAX_RANK], back[STRATA_MAX_RANK];
    const strata_shape out = call->out[0].shape;
    STRATA_TRY(check_indices(call, 2, err));
    STRATA_TRY(read_axes(call, true, &g, err));
    STRATA_TRY(strata_lower_integers(call, "slice_sizes", g.rank, g.window, err));
    STRATA_TRY(divide_axes(&g, err));
    STRATA_TRY(strata_lower_axes(call, "offset_dims", out.rank, offsets, &n_offsets, err));
    STRATA_TRY(window_order(&g, offsets, n_offsets, out.rank, order, err));
    if (!strata_shape_elements(g.shape)) return strata_fail(err, STRATA_DATA, "it takes elements of an operand without any");
    strata_shape moved = {.rank = out.rank};
    for (int i = 0; i < out.rank; i++) {
        moved.dims[i] = out.dims[order[i]];
        back[order[i]] = i;
    }
    strata_tensor *y = strata_gather(as_rows(&g, strata_lower_whole(call->in[0])), row_numbers(&g, call, false), 0);
    y = strata_reshape(y, moved);
    call->out[0].tensor = out.rank ? strata_transpose(y, back) : y;
    return STRATA_OK;
}

/* rows: the operand. Rows that no update changes keep their bits, also those of -0. */
static strata_tensor *scattered(const lower_call *call, const indexing *g, bool is_add, strata_tensor *rows,
                                strata_tensor *updates, strata_tensor *numbers) {
    const lowered *x = call->in[0];
    strata_tensor *sum = is_add ? strata_unsorted_segment_sum(updates, numbers, g->rows) : NULL;
    if (is_add && x->is_number && x->number == 0 && !signbit(x->number)) return sum;
    strata_tensor *first = strata_reshape(strata_first_index(numbers, g->rows), STRATA_SHAPE(g->rows, 1));
    strata_tensor *is_changed = strata_greater(first, strata_lower_scalar(first, 0));
    if (is_add) return strata_where(is_changed, strata_add(rows, sum), rows);
    strata_tensor *at = strata_reshape(strata_sub(first, strata_lower_scalar(first, 1)), STRATA_SHAPE(g->rows));
    return strata_where(is_changed, strata_gather(updates, at, 0), rows);
}

strata_status strata_lower_scatter(const lower_call *call, strata_error *err) {
    indexing g = {0};
    int offsets[STRATA_MAX_RANK], n_offsets, order[STRATA_MAX_RANK], back[STRATA_MAX_RANK];
    char body[LOWER_BODY_BYTES];
    STRATA_TRY(check_indices(call, 3, err));
    const strata_shape updates = call->in[2]->shape;
    strata_tensor *x = strata_lower_whole(call->in[0]);
    strata_lower_body(call, 0, body);
    const bool is_add = strata_lower_body_kind(call, 0) == LOWER_ADD, is_set = !strcmp(body, "return 1;");
    if (!is_set && !(is_add && strata_dtype_is_float(strata_tensor_dtype(x))))
        return strata_fail(err, STRATA_UNSUPPORTED, "only scatters that add floats, or set elements, are supported");
    STRATA_TRY(read_axes(call, false, &g, err));
    STRATA_TRY(strata_lower_axes(call, "update_window_dims", updates.rank, offsets, &n_offsets, err));
    int n_window = 0;
    for (int d = 0; d < g.rank; d++)
        g.window[d] = is_in_window(&g, d) && n_window < n_offsets ? updates.dims[offsets[n_window++]] : 1;
    STRATA_TRY(divide_axes(&g, err));
    STRATA_TRY(window_order(&g, offsets, n_offsets, updates.rank, order, err));
    int64_t n = 1;
    strata_shape moved = {.rank = g.rank};
    for (int d = 0; d < updates.rank; d++) n *= updates.dims[d];
    if (!strata_shape_elements(g.shape) || !n) {
        call->out[0].tensor = x;
        return STRATA_OK;
    }
    for (int i = 0; i < g.rank; i++) {
        moved.dims[i] = g.shape.dims[g.order[i]];
        back[g.order[i]] = i;
    }
    strata_tensor *y = strata_lower_whole(call->in[2]);
    y = strata_reshape(updates.rank ? strata_transpose(y, order) : y, STRATA_SHAPE(n / g.columns, g.columns));
    y = strata_reshape(scattered(call, &g, is_add, as_rows(&g, x), y, row_numbers(&g, call, true)), moved);
    call->out[0].tensor = g.rank ? strata_transpose(y, back) : y;
    return STRATA_OK;
}
