/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of constants, and of the operations that move elements without computing with them. */
#include <inttypes.h>

#include "core/frontend/pjrt/lowering.h"

/* ---- what rules share ---- */

strata_tensor *strata_lower_whole(const lowered *value) {
    return strata_broadcast_to(value->tensor, value->shape);
}

strata_shape strata_lower_ones(int rank) {
    strata_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = 1;
    return shape;
}

strata_tensor *strata_lower_positions(strata_graph *graph, int rank, int axis, int64_t n) {
    strata_shape shape = strata_lower_ones(rank);
    if (rank) shape.dims[axis] = n;
    return strata_reshape(strata_arange(graph, n), shape);
}

strata_tensor *strata_lower_take(strata_tensor *x, int axis, int64_t first, int64_t step, int64_t n) {
    strata_tensor *indices = strata_arange(strata_tensor_graph(x), n);
    if (step == 1) return strata_lower_part(x, axis, first, n);
    indices = strata_add(strata_mul(indices, strata_lower_scalar(indices, (double)step)),
                         strata_lower_scalar(indices, (double)first));
    return strata_gather(x, indices, axis);
}

strata_tensor *strata_lower_part(strata_tensor *x, int axis, int64_t first, int64_t n) {
    const strata_shape shape = strata_tensor_shape(x);
    int64_t begin[STRATA_MAX_RANK] = {0}, size[STRATA_MAX_RANK] = {0};
    for (int d = 0; d < shape.rank; d++) size[d] = shape.dims[d];
    if (shape.rank && first == 0 && n == size[axis]) return x;
    begin[axis] = first;
    size[axis] = n;
    return strata_slice(x, begin, size);
}

/* Puts n elements of the value between neighbours along an axis: each element becomes one of n + 1. */
static strata_tensor *spread(strata_tensor *x, int axis, int64_t n, double value) {
    strata_shape shape = strata_tensor_shape(x), rows = STRATA_SHAPE(1, 1, 1);
    if (n == 0 || shape.dims[axis] < 2) return x;
    for (int d = 0; d < shape.rank; d++) rows.dims[d <= axis ? 0 : 2] *= shape.dims[d];
    x = strata_pad(strata_reshape(x, rows), (int64_t[]){0, 0, 0}, (int64_t[]){0, n, 0}, value);
    const int64_t wanted = (shape.dims[axis] - 1) * (n + 1) + 1;
    shape.dims[axis] *= n + 1;
    return strata_lower_part(strata_reshape(x, shape), axis, 0, wanted);
}

strata_tensor *strata_lower_pad_by(strata_tensor *x, const int64_t *before, const int64_t *after, const int64_t *interior,
                                   double value) {
    const int rank = strata_tensor_shape(x).rank;
    int64_t more_before[STRATA_MAX_RANK] = {0}, more_after[STRATA_MAX_RANK] = {0}, sum = 0;
    for (int d = 0; d < rank; d++) {
        if (interior) x = spread(x, d, interior[d], value);
        const int64_t size = strata_tensor_shape(x).dims[d];
        more_before[d] = before[d] > 0 ? before[d] : 0;
        more_after[d] = after[d] > 0 ? after[d] : 0;
        const int64_t first = before[d] < 0 ? -before[d] : 0, end = size + (after[d] < 0 ? after[d] : 0);
        x = strata_lower_part(x, d, first, end - first);
        sum += more_before[d] + more_after[d];
    }
    return sum ? strata_pad(x, more_before, more_after, value) : x;
}

/* ---- constants ---- */

/* Bits, the lowest first, as bytes. */
static strata_tensor *bits_constant(const lower_call *call, const strata_program_attribute *value, strata_error *err) {
    strata_array array;
    if (strata_array_create(STRATA_DTYPE_BOOL, call->out[0].shape, &array, err)) return NULL;
    const int64_t n = strata_shape_elements(array.shape);
    for (int64_t i = 0; i < n; i++) ((uint8_t *)array.data)[i] = value->data[i / 8] >> (i % 8) & 1;
    strata_tensor *tensor = strata_constant(call->graph, &array);
    strata_array_finish(&array);
    return tensor;
}

static void splat_constant(const lower_call *call, const strata_program_attribute *value) {
    const strata_dtype dtype = call->out_dtypes[0];
    lowered *out = &call->out[0];
    int64_t element = 0, whole = 0;
    memcpy(&element, value->data, value->n_bytes < sizeof element ? value->n_bytes : sizeof element);
    if (dtype == STRATA_DTYPE_BOOL) element &= 1;
    const strata_array array = strata_array_view(dtype, strata_lower_ones(out->shape.rank), &element);
    out->tensor = strata_constant(call->graph, &array);
    out->number = strata_element_get(dtype, &element, 0);
    strata_element_set(STRATA_DTYPE_I64, &whole, 0, out->number);
    out->is_number = dtype != STRATA_DTYPE_I64 || whole == element;
}

strata_status strata_lower_constant(const lower_call *call, strata_error *err) {
    const strata_program_attribute *value = strata_program_find(call->program, call->op, "value");
    if (!value || value->kind != STRATA_PROGRAM_TENSOR || value->type != call->program->values[call->op->results[0]])
        return strata_fail(err, STRATA_DATA, "its value is no tensor of the result's type");
    if (value->is_splat) {
        splat_constant(call, value);
        return STRATA_OK;
    }
    if (call->out_dtypes[0] == STRATA_DTYPE_BOOL) {
        call->out[0].tensor = bits_constant(call, value, err);
        return call->out[0].tensor ? STRATA_OK : strata_fail_in(err, STRATA_OUT_OF_MEMORY, "a constant");
    }
    strata_array array = strata_array_view(call->out_dtypes[0], call->out[0].shape, NULL);
    memcpy(&array.data, &value->data, sizeof array.data);
    call->out[0].tensor = strata_constant(call->graph, &array);
    return STRATA_OK;
}

strata_status strata_lower_iota(const lower_call *call, strata_error *err) {
    int64_t axis;
    const strata_shape shape = call->out[0].shape;
    STRATA_TRY(strata_lower_integer(call, "iota_dimension", &axis, err));
    if (axis < 0 || axis >= shape.rank) return strata_fail(err, STRATA_DATA, "its axis is %" PRId64 " of %d", axis, shape.rank);
    if (call->out_dtypes[0] == STRATA_DTYPE_U8 && shape.dims[axis] > 256)
        return strata_fail(err, STRATA_UNSUPPORTED, "ui8 has fewer numbers than the axis has elements");
    call->out[0].tensor =
        strata_cast(strata_lower_positions(call->graph, shape.rank, (int)axis, shape.dims[axis]), call->out_dtypes[0]);
    return STRATA_OK;
}

/* ---- shapes ---- */

/* The axes of the operand are axes of the result, in any order. The others have size 1 until an op needs them. */
strata_status strata_lower_broadcast(const lower_call *call, strata_error *err) {
    int axes[STRATA_MAX_RANK], order[STRATA_MAX_RANK], n;
    STRATA_TRY(strata_lower_operands(call, 1, err));
    const lowered *x = call->in[0];
    STRATA_TRY(strata_lower_axes(call, "broadcast_dimensions", call->out[0].shape.rank, axes, &n, err));
    if (n != x->shape.rank) return strata_fail(err, STRATA_DATA, "its operand has not %d axes", n);
    strata_shape shape = strata_lower_ones(call->out[0].shape.rank);
    bool is_sorted = true;
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int k = 0; k < n; k++) at += axes[k] < axes[i];
        order[at] = i;
        is_sorted &= at == i;
        shape.dims[axes[i]] = strata_tensor_shape(x->tensor).dims[i];
    }
    strata_tensor *tensor = is_sorted ? x->tensor : strata_transpose(x->tensor, order);
    call->out[0].tensor = strata_reshape(tensor, shape);
    call->out[0].is_number = x->is_number;
    call->out[0].number = x->number;
    return STRATA_OK;
}

strata_status strata_lower_reshape(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, 1, err));
    const lowered *x = call->in[0];
    const int64_t n = strata_shape_elements(strata_tensor_shape(x->tensor));
    call->out[0].tensor = n == 1 ? strata_reshape(x->tensor, strata_lower_ones(call->out[0].shape.rank))
                                 : strata_reshape(strata_lower_whole(x), call->out[0].shape);
    call->out[0].is_number = x->is_number;
    call->out[0].number = x->number;
    return STRATA_OK;
}

strata_status strata_lower_transpose(const lower_call *call, strata_error *err) {
    int axes[STRATA_MAX_RANK], n;
    STRATA_TRY(strata_lower_operands(call, 1, err));
    const lowered *x = call->in[0];
    STRATA_TRY(strata_lower_axes(call, "permutation", x->shape.rank, axes, &n, err));
    if (n != x->shape.rank) return strata_fail(err, STRATA_DATA, "it permutes %d of %d axes", n, x->shape.rank);
    call->out[0].tensor = n ? strata_transpose(x->tensor, axes) : x->tensor;
    call->out[0].is_number = x->is_number;
    call->out[0].number = x->number;
    return STRATA_OK;
}

strata_status strata_lower_concatenate(const lower_call *call, strata_error *err) {
    int64_t axis;
    STRATA_FREED strata_tensor **parts = NULL;
    const int n = call->op->n_operands;
    STRATA_TRY(STRATA_NEW(parts, n, err, "there is no memory for %d operands", n));
    STRATA_TRY(strata_lower_integer(call, "dimension", &axis, err));
    if (n < 1 || axis < 0 || axis >= call->out[0].shape.rank)
        return strata_fail(err, STRATA_DATA, "it has no operands, or axis %" PRId64 " of %d", axis, call->out[0].shape.rank);
    for (int i = 0; i < n; i++) parts[i] = strata_lower_whole(call->in[i]);
    call->out[0].tensor = strata_concat(parts, n, (int)axis);
    return STRATA_OK;
}

strata_status strata_lower_slice(const lower_call *call, strata_error *err) {
    int64_t first[STRATA_MAX_RANK], end[STRATA_MAX_RANK], step[STRATA_MAX_RANK];
    STRATA_TRY(strata_lower_operands(call, 1, err));
    const strata_shape shape = call->in[0]->shape;
    strata_tensor *x = strata_lower_whole(call->in[0]);
    STRATA_TRY(strata_lower_integers(call, "start_indices", shape.rank, first, err));
    STRATA_TRY(strata_lower_integers(call, "limit_indices", shape.rank, end, err));
    STRATA_TRY(strata_lower_integers(call, "strides", shape.rank, step, err));
    for (int d = 0; d < shape.rank; d++) {
        if (first[d] < 0 || first[d] > end[d] || end[d] > shape.dims[d] || step[d] < 1)
            return strata_fail(err, STRATA_DATA, "elements %" PRId64 " to %" PRId64 " in steps of %" PRId64 " of %" PRId64,
                               first[d], end[d], step[d], shape.dims[d]);
        x = strata_lower_take(x, d, first[d], step[d], (end[d] - first[d] + step[d] - 1) / step[d]);
    }
    call->out[0].tensor = x;
    return STRATA_OK;
}

/* A value that is not a constant of the program is chosen where a mask, which is padded like x, is false. */
strata_status strata_lower_pad(const lower_call *call, strata_error *err) {
    int64_t before[STRATA_MAX_RANK], after[STRATA_MAX_RANK], interior[STRATA_MAX_RANK];
    STRATA_TRY(strata_lower_operands(call, 2, err));
    const lowered *x = call->in[0], *value = call->in[1];
    const int rank = x->shape.rank;
    STRATA_TRY(strata_lower_integers(call, "edge_padding_low", rank, before, err));
    STRATA_TRY(strata_lower_integers(call, "edge_padding_high", rank, after, err));
    STRATA_TRY(strata_lower_integers(call, "interior_padding", rank, interior, err));
    for (int d = 0; d < rank; d++) {
        const int64_t size = x->shape.dims[d];
        const int64_t all = size + (size > 1 ? (size - 1) * interior[d] : 0), first = before[d] < 0 ? -before[d] : 0;
        if (interior[d] < 0 || all > INT32_MAX || first + (after[d] < 0 ? -after[d] : 0) > all)
            return strata_fail(err, STRATA_UNSUPPORTED,
                               "axis %d has %" PRId64 " elements, with %" PRId64 " between them, %" PRId64
                               " before and %" PRId64 " after; that is too large, or takes away elements which it adds",
                               d, size, interior[d], before[d], after[d]);
    }
    strata_tensor *y = strata_lower_whole(x);
    if (!value->is_number) {
        strata_tensor *mask = strata_broadcast_to(strata_scalar(call->graph, STRATA_DTYPE_BOOL, 1), x->shape);
        mask = strata_lower_pad_by(mask, before, after, interior, 0);
        y = strata_where(mask, strata_lower_pad_by(y, before, after, interior, 0), value->tensor);
    } else {
        y = strata_lower_pad_by(y, before, after, interior, value->number);
    }
    call->out[0].tensor = y;
    return STRATA_OK;
}

strata_status strata_lower_reverse(const lower_call *call, strata_error *err) {
    int axes[STRATA_MAX_RANK], n;
    STRATA_TRY(strata_lower_operands(call, 1, err));
    STRATA_TRY(strata_lower_axes(call, "dimensions", call->in[0]->shape.rank, axes, &n, err));
    strata_tensor *x = strata_lower_whole(call->in[0]);
    for (int i = 0; i < n; i++) {
        const int64_t size = call->in[0]->shape.dims[axes[i]];
        x = strata_lower_take(x, axes[i], size - 1, -1, size);
    }
    call->out[0].tensor = x;
    return STRATA_OK;
}

/* ---- slices at places that are computed ---- */

/* The first element along an axis: operand `index`, moved so that `size` of n elements lie inside. */
static strata_tensor *start_of(const lowered *index, int64_t n, int64_t size) {
    strata_tensor *x = index->tensor;
    if (strata_tensor_dtype(x) == STRATA_DTYPE_U8) x = strata_cast(x, STRATA_DTYPE_I32);
    return strata_cast(strata_clip(x, 0, (double)(n - size)), STRATA_DTYPE_I32);
}

static strata_status check_window(const lower_call *call, int first_index, const int64_t *size, strata_error *err) {
    const strata_shape shape = call->in[0]->shape;
    STRATA_TRY(strata_lower_operands(call, first_index + shape.rank, err));
    for (int d = 0; d < shape.rank; d++)
        if (size[d] < 0 || size[d] > shape.dims[d] || call->in[first_index + d]->shape.rank != 0)
            return strata_fail(err, STRATA_DATA,
                               "it takes %" PRId64 " of %" PRId64
                               " elements along axis %d, or has an index "
                               "that is no scalar",
                               size[d], shape.dims[d], d);
    return STRATA_OK;
}

strata_status strata_lower_dynamic_slice(const lower_call *call, strata_error *err) {
    int64_t size[STRATA_MAX_RANK];
    if (call->op->n_operands < 1) return strata_lower_operands(call, 1, err);
    const strata_shape shape = call->in[0]->shape;
    STRATA_TRY(strata_lower_integers(call, "slice_sizes", shape.rank, size, err));
    STRATA_TRY(check_window(call, 1, size, err));
    strata_tensor *x = strata_lower_whole(call->in[0]);
    for (int d = 0; d < shape.rank; d++) {
        if (size[d] == shape.dims[d]) continue;
        strata_tensor *start = start_of(call->in[1 + d], shape.dims[d], size[d]);
        x = strata_gather(x, strata_add(strata_arange(call->graph, size[d]), start), d);
    }
    call->out[0].tensor = x;
    return STRATA_OK;
}

/* The update is spread to the operand's shape, by a gather in which an index out of range gives zeros, and is chosen where all
 * axes are inside of it. */
strata_status strata_lower_dynamic_update_slice(const lower_call *call, strata_error *err) {
    if (call->op->n_operands < 2) return strata_lower_operands(call, 2, err);
    const strata_shape shape = call->in[0]->shape, part = call->in[1]->shape;
    if (part.rank != shape.rank) return strata_fail(err, STRATA_DATA, "its operands have not the same rank");
    STRATA_TRY(check_window(call, 2, part.dims, err));
    strata_tensor *x = strata_lower_whole(call->in[0]), *y = strata_lower_whole(call->in[1]), *inside = NULL;
    for (int d = 0; d < shape.rank; d++) {
        const int64_t n = shape.dims[d];
        if (part.dims[d] == n) continue;
        strata_tensor *at = strata_sub(strata_arange(call->graph, n), start_of(call->in[2 + d], n, part.dims[d]));
        strata_tensor *zero = strata_lower_scalar(at, 0), *size = strata_lower_scalar(at, (double)part.dims[d]);
        strata_shape along = strata_lower_ones(shape.rank);
        along.dims[d] = n;
        strata_tensor *here = strata_lower_combine(LOWER_AND, strata_greater_equal(at, zero), strata_less(at, size));
        here = strata_reshape(here, along);
        inside = inside ? strata_lower_combine(LOWER_AND, inside, here) : here;
        y = strata_gather(y, at, d);
    }
    call->out[0].tensor = inside ? strata_where(inside, y, x) : y;
    return STRATA_OK;
}
