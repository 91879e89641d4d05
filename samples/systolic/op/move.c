/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that only move elements, without computing. The chip does this by DMA and by the load and store slots of the vector
 * unit. Elements are copied as bytes. */
#include "helpers.h"

/* ---- strided copies ---- */

typedef struct walk {
    int rank;
    int64_t sizes[MOST_AXES], from[MOST_AXES], to[MOST_AXES];
} walk;

/* Finds how many of the innermost axes are contiguous on both sides: *out_run is their number of elements. Returns the number
 * of axes that remain. */
static int walk_outer(const walk *w, int64_t *out_run) {
    int64_t run = 1;
    int d = w->rank;
    while (d > 0 && w->from[d - 1] == run && w->to[d - 1] == run) run *= w->sizes[--d];
    *out_run = run;
    return d;
}

static void copy_elements(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n, size_t bytes) {
    if (bytes == 4 && from_stride == 0 && to_stride == 1) {
        uint32_t x, *target = (uint32_t *)(void *)to;
        memcpy(&x, from, sizeof x);
        for (int64_t i = 0; i < n; i++) target[i] = x;
        return;
    }
    if (bytes == 4) {
        const uint32_t *source = (const uint32_t *)(const void *)from;
        uint32_t *target = (uint32_t *)(void *)to;
        for (int64_t i = 0; i < n; i++) target[i * to_stride] = source[i * from_stride];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)(i * to_stride) * bytes, from + (size_t)(i * from_stride) * bytes, bytes);
}

static void walk_copy(const walk *w, const char *from, char *to, size_t bytes) {
    int64_t run, at[MOST_AXES] = {0};
    for (int d = 0; d < w->rank; d++)
        if (w->sizes[d] == 0) return;
    const int outer = walk_outer(w, &run);
    if (outer == 0) {
        memcpy(to, from, (size_t)run * bytes);
        return;
    }
    /* If a run is a single element, copy_elements loops over the last of the outer axes. */
    const bool single = run == 1;
    const int axes = single ? outer - 1 : outer;
    for (;;) {
        int64_t from_at = 0, to_at = 0;
        for (int d = 0; d < axes; d++) {
            from_at += at[d] * w->from[d];
            to_at += at[d] * w->to[d];
        }
        if (single)
            copy_elements(from + (size_t)from_at * bytes, w->from[axes], to + (size_t)to_at * bytes, w->to[axes],
                          w->sizes[axes], bytes);
        else
            memcpy(to + (size_t)to_at * bytes, from + (size_t)from_at * bytes, (size_t)run * bytes);
        int d = axes - 1;
        for (; d >= 0; d--) {
            if (++at[d] < w->sizes[d]) break;
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

static const char *same_dtype_refuse(const step *s) {
    for (int i = 0; i < s->n_inputs; i++)
        if (s->inputs[i]->dtype != s->out->dtype) return "its operands are not of its result's dtype";
    return NULL;
}

/* ---- reshape ---- */

static const char *reshape_refuse(const step *s) {
    if (s->in[0]->n != s->out->n) return "its result has another number of elements than its operand";
    return same_dtype_refuse(s);
}

static void nothing_cost(const step *s, work *work) {
    (void)s;
    work->vector_ops = 0;
}

static void reshape_run(const call *call) {
    const array *y = call->step->out;
    if (call->out != call->in[0] && y->n) memmove(call->out, call->in[0], (size_t)(y->n * dtype_bytes(y->dtype)));
}

/* ---- transpose, broadcast_to, slice, concat, pad ---- */

static const char *transpose_walk(const step *s, walk *w) {
    const array *x = s->in[0], *y = s->out;
    int64_t axes[MOST_AXES] = {0}, strides[MOST_AXES];
    bool taken[MOST_AXES] = {false};
    attribute_ints(s, "axes", axes, MOST_AXES);
    if (x->rank != y->rank) return "its result has another rank than its operand";
    row_major(x, strides);
    *w = (walk){.rank = y->rank};
    row_major(y, w->to);
    for (int d = 0; d < y->rank; d++) {
        const int64_t axis = axes[d] < 0 ? axes[d] + x->rank : axes[d];
        if (axis < 0 || axis >= x->rank || taken[axis] || x->dims[axis] != y->dims[d])
            return "its axes are no permutation that fits";
        taken[axis] = true;
        w->sizes[d] = y->dims[d];
        w->from[d] = strides[axis];
    }
    return same_dtype_refuse(s);
}

static const char *transpose_refuse(const step *s) {
    walk w;
    return transpose_walk(s, &w);
}

static void transpose_run(const call *call) {
    walk w;
    if (!transpose_walk(call->step, &w)) walk_copy(&w, call->in[0], call->out, (size_t)dtype_bytes(call->step->out->dtype));
}

static const char *broadcast_walk(const step *s, walk *w) {
    *w = (walk){.rank = s->out->rank};
    if (!broadcast_strides(s->in[0], s->out, w->from)) return "its operand does not broadcast to its result";
    row_major(s->out, w->to);
    for (int d = 0; d < w->rank; d++) w->sizes[d] = s->out->dims[d];
    return same_dtype_refuse(s);
}

static const char *broadcast_refuse(const step *s) {
    walk w;
    return broadcast_walk(s, &w);
}

static void broadcast_run(const call *call) {
    walk w;
    if (!broadcast_walk(call->step, &w)) walk_copy(&w, call->in[0], call->out, (size_t)dtype_bytes(call->step->out->dtype));
}

static const char *slice_refuse(const step *s) {
    int64_t begin[MOST_AXES] = {0};
    attribute_ints(s, "begin", begin, MOST_AXES);
    if (s->in[0]->rank != s->out->rank) return "its result has another rank than its operand";
    for (int d = 0; d < s->out->rank; d++)
        if (begin[d] < 0 || begin[d] > s->in[0]->dims[d] || s->out->dims[d] > s->in[0]->dims[d] - begin[d])
            return "it goes beyond its operand";
    return same_dtype_refuse(s);
}

static void slice_run(const call *call) {
    const array *x = call->step->in[0], *y = call->step->out;
    const size_t bytes = (size_t)dtype_bytes(y->dtype);
    int64_t begin[MOST_AXES] = {0}, first = 0;
    walk w = {.rank = y->rank};
    attribute_ints(call->step, "begin", begin, MOST_AXES);
    row_major(x, w.from);
    row_major(y, w.to);
    for (int d = 0; d < y->rank; d++) {
        w.sizes[d] = y->dims[d];
        first += begin[d] * w.from[d];
    }
    if (y->n && call->out != (const char *)call->in[0] + (size_t)first * bytes)
        walk_copy(&w, (const char *)call->in[0] + (size_t)first * bytes, call->out, bytes);
}

static const char *concat_refuse(const step *s) {
    const int axis = axis_of(s, s->out, "axis");
    int64_t sum = 0;
    if (axis < 0) return "it has no such axis";
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->inputs[i]->rank != s->out->rank) return "its operands have different ranks";
        for (int d = 0; d < s->out->rank; d++)
            if (d != axis && s->inputs[i]->dims[d] != s->out->dims[d]) return "the sizes of its operands do not fit";
        sum += s->inputs[i]->dims[axis];
    }
    return sum != s->out->dims[axis] ? "the sizes of its operands do not fit" : same_dtype_refuse(s);
}

static void concat_run(const call *call) {
    const step *s = call->step;
    const int axis = axis_of(s, s->out, "axis");
    const size_t bytes = (size_t)dtype_bytes(s->out->dtype);
    const int64_t outer = product_of_dims(s->out, 0, axis), inner = product_of_dims(s->out, axis + 1, s->out->rank);
    int64_t position = 0;
    for (int i = 0; i < s->n_inputs; i++) {
        const int64_t run = s->inputs[i]->dims[axis] * inner;
        for (int64_t o = 0; o < outer && run; o++)
            memcpy((char *)call->out + (size_t)(o * s->out->dims[axis] * inner + position) * bytes,
                   (const char *)call->in[i] + (size_t)(o * run) * bytes, (size_t)run * bytes);
        position += run;
    }
}

static const char *pad_refuse(const step *s) {
    int64_t before[MOST_AXES] = {0}, after[MOST_AXES] = {0};
    attribute_ints(s, "before", before, MOST_AXES);
    attribute_ints(s, "after", after, MOST_AXES);
    if (s->in[0]->rank != s->out->rank) return "its result has another rank than its operand";
    for (int d = 0; d < s->out->rank; d++)
        if (before[d] < 0 || after[d] < 0 || s->in[0]->dims[d] + before[d] + after[d] != s->out->dims[d])
            return "its sizes do not fit";
    return same_dtype_refuse(s);
}

static void set_element(const array *y, void *data, int64_t i, double value) {
    if (y->dtype == STRATA_PLUGIN_F32)
        ((float *)data)[i] = (float)value;
    else if (y->dtype == STRATA_PLUGIN_F16)
        ((uint16_t *)data)[i] = f16_of((float)value);
    else if (y->dtype == STRATA_PLUGIN_BF16)
        ((uint16_t *)data)[i] = bf16_of((float)value);
    else
        whole_set(y->dtype, data, i, value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : (int64_t)value);
}

static void pad_run(const call *call) {
    const array *x = call->step->in[0], *y = call->step->out;
    const double value = attribute_float(call->step, "value", 0);
    int64_t before[MOST_AXES] = {0}, first = 0;
    walk w = {.rank = y->rank};
    attribute_ints(call->step, "before", before, MOST_AXES);
    row_major(x, w.from);
    row_major(y, w.to);
    for (int d = 0; d < y->rank; d++) {
        w.sizes[d] = x->dims[d];
        first += before[d] * w.to[d];
    }
    for (int64_t i = 0; i < y->n; i++) set_element(y, call->out, i, value);
    const size_t bytes = (size_t)dtype_bytes(y->dtype);
    if (x->n) walk_copy(&w, call->in[0], (char *)call->out + (size_t)first * bytes, bytes);
}

/* ---- gather, gather_grad, one_hot, scatter_update ---- */

/* x is (outer, axis, inner), and there are n indices along the axis. */
static const char *gather_refuse(const step *s) {
    const int axis = axis_of(s, s->in[0], "axis");
    if (axis < 0) return "it has no such axis";
    if (!dtype_is_index(s->in[1]->dtype)) return "its indices are neither i32 nor i64";
    const int64_t outer = product_of_dims(s->in[0], 0, axis), inner = product_of_dims(s->in[0], axis + 1, s->in[0]->rank);
    if (s->out->n != outer * s->in[1]->n * inner || s->in[0]->dtype != s->out->dtype)
        return "its result does not fit its operands";
    return NULL;
}

static void gather_cost(const step *s, work *work) {
    work->vector_ops = (double)s->out->n / 4;
    work->sparse_input = 0;
    work->touched = (double)(s->out->n * dtype_bytes(s->out->dtype));
}

static void gather_run(const call *call) {
    const step *s = call->step;
    const array *x = s->in[0], *indices = s->in[1];
    const int axis = axis_of(s, x, "axis");
    const int64_t outer = product_of_dims(x, 0, axis), inner = product_of_dims(x, axis + 1, x->rank), size = x->dims[axis];
    const size_t row = (size_t)(inner * dtype_bytes(x->dtype));
    char *to = call->out;
    for (int64_t o = 0; o < outer && row; o++)
        for (int64_t j = 0; j < indices->n; j++, to += row) {
            const int64_t index = whole_get(indices->dtype, call->in[1], j);
            if (index >= 0 && index < size)
                memcpy(to, (const char *)call->in[0] + (size_t)(o * size + index) * row, row);
            else
                memset(to, 0, row);
        }
}

/* How many consecutive indices share a row of dy: the size of the indices' last axis if dy has size 1 there; otherwise 1. */
static int64_t gather_grad_repeats(const step *s) {
    const array *dy = s->in[0], *indices = s->in[1];
    const int64_t at = attribute_int(s, "axis", 0) + indices->rank - 1;
    if (indices->rank == 0 || at < 0 || at >= dy->rank || dy->dims[at] != 1) return 1;
    return indices->dims[indices->rank - 1] > 0 ? indices->dims[indices->rank - 1] : 1;
}

static const char *gather_grad_refuse(const step *s) {
    const int axis = axis_of(s, s->out, "axis");
    if (axis < 0 || attribute_int(s, "axis", 0) < 0) return "it has no such axis";
    if (!dtype_is_index(s->in[1]->dtype)) return "its indices are neither i32 nor i64";
    if (s->in[0]->dtype != s->out->dtype) return "its result is not of its operand's dtype";
    const int64_t outer = product_of_dims(s->out, 0, axis), inner = product_of_dims(s->out, axis + 1, s->out->rank);
    return s->in[0]->n * gather_grad_repeats(s) != outer * s->in[1]->n * inner ? "its result does not fit its operands" : NULL;
}

static void gather_grad_cost(const step *s, work *work) {
    const array *dy = s->in[0];
    work->vector_ops = (double)(dy->n * gather_grad_repeats(s)) + (double)s->out->n / 4;
}

/* Adds the rows of dy in ascending order of the indices' positions. */
static void gather_grad_run(const call *call) {
    const step *s = call->step;
    const array *dx = s->out, *indices = s->in[1];
    const int axis = axis_of(s, dx, "axis");
    const int64_t outer = product_of_dims(dx, 0, axis), inner = product_of_dims(dx, axis + 1, dx->rank), size = dx->dims[axis];
    const int64_t repeats = gather_grad_repeats(s), rows = indices->n / repeats;
    const float *dy = call->in[0];
    float *out = call->out;
    memset(out, 0, (size_t)dx->n * sizeof *out);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < indices->n; j++) {
            const int64_t index = whole_get(indices->dtype, call->in[1], j);
            if (index < 0 || index >= size) continue;
            const float *from = dy + (o * rows + j / repeats) * inner;
            float *to = out + (o * size + index) * inner;
            for (int64_t i = 0; i < inner; i++) to[i] += from[i];
        }
}

static const char *one_hot_refuse(const step *s) {
    const int64_t depth = attribute_int(s, "depth", 0);
    return depth < 1 || s->out->n != s->in[0]->n * depth ? "its result does not fit its depth" : NULL;
}

static void one_hot_run(const call *call) {
    const step *s = call->step;
    const int64_t depth = attribute_int(s, "depth", 1);
    for (int64_t i = 0; i < s->in[0]->n; i++) {
        const int64_t index = whole_get(s->in[0]->dtype, call->in[0], i);
        for (int64_t d = 0; d < depth; d++) set_element(s->out, call->out, i * depth + d, d == index);
    }
}

/* Inputs: variable, indices, rows [, the update that made them]. The variable has n_rows rows from element `first` on; row
 * indices[j] becomes rows[j]. */
static const char *scatter_update_refuse(const step *s) {
    const int64_t n = s->in[1]->n, first = attribute_int(s, "first", 0), n_rows = attribute_int(s, "n_rows", 0);
    const int64_t inner = n ? s->in[2]->n / n : 0;
    if (!dtype_is_index(s->in[1]->dtype) || s->in[2]->dtype != s->in[0]->dtype) return "its operands are of other dtypes";
    if (inner * n != s->in[2]->n || first < 0 || n_rows < 0 || first > s->in[0]->n ||
        (inner && n_rows > (s->in[0]->n - first) / inner))
        return "its rows do not fit its variable";
    return NULL;
}

static void scatter_update_cost(const step *s, work *work) {
    work->vector_ops = (double)s->in[2]->n / 4;
    work->sparse_input = 0;
    work->touched = (double)(s->in[2]->n * dtype_bytes(s->in[2]->dtype));
}

static void scatter_update_run(const call *call) {
    const step *s = call->step;
    const int64_t n = s->in[1]->n, first = attribute_int(s, "first", 0), n_rows = attribute_int(s, "n_rows", 0);
    const size_t element = (size_t)dtype_bytes(s->in[0]->dtype), row = n ? (size_t)(s->in[2]->n / n) * element : 0;
    char *rows = (char *)call->out + (size_t)first * element;
    for (int64_t j = 0; row && j < n; j++) {
        const int64_t r = whole_get(s->in[1]->dtype, call->in[1], j);
        if (r >= 0 && r < n_rows) memcpy(rows + (size_t)r * row, (const char *)call->in[2] + (size_t)j * row, row);
    }
}

/* ---- pack: writes f32 values to `offsets` of one array, with zeros between them ---- */

/* Returns NULL if the number of offsets is not that of the operands. */
static const int64_t *pack_offsets(const step *s) {
    const strata_plugin_attribute *offsets = attribute_find(s, "offsets");
    return offsets && offsets->type == STRATA_PLUGIN_INTS && offsets->n == s->n_inputs ? offsets->ints : NULL;
}

static const char *pack_refuse(const step *s) {
    const int64_t *offsets = pack_offsets(s);
    int64_t end = 0;
    if (!offsets) return "it does not have an offset for each operand";
    for (int i = 0; i < s->n_inputs; i++) {
        if (offsets[i] < end || offsets[i] > s->out->n || s->inputs[i]->n > s->out->n - offsets[i])
            return "its operands do not fit";
        end = offsets[i] + s->inputs[i]->n;
    }
    return same_dtype_refuse(s);
}

static void pack_run(const call *call) {
    const step *s = call->step;
    const int64_t *offsets = pack_offsets(s);
    float *to = call->out;
    int64_t end = 0;
    for (int i = 0; i < s->n_inputs; i++) {
        memset(to + end, 0, (size_t)(offsets[i] - end) * sizeof *to);
        end = offsets[i] + s->inputs[i]->n;
        /* An operand that was computed in its place is not moved. */
        if (s->inputs[i]->n && call->in[i] != to + offsets[i])
            memmove(to + offsets[i], call->in[i], (size_t)s->inputs[i]->n * sizeof *to);
    }
    memset(to + end, 0, (size_t)(s->out->n - end) * sizeof *to);
}
