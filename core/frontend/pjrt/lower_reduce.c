/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of reductions over axes and over windows. Their bodies are one combination, or the two-operand body by which JAX
 * computes argmax and argmin. */
#include <inttypes.h>
#include <math.h>

#include "core/frontend/pjrt/lowering.h"

static strata_status refuse_body(strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "its body is none of add, multiply, maximum, minimum, and, or of a dtype that has it");
}

/* ---- reduce ---- */

/* Multiplies the halves of the rows of x (rows, n), repeatedly, until one element is left. */
static strata_tensor *multiply_halves(strata_tensor *x) {
    const int last = 1;
    for (int64_t n = strata_tensor_shape(x).dims[last]; n > 1; n = (n + 1) / 2) {
        if (n % 2) x = strata_pad(x, (int64_t[]){0, 0}, (int64_t[]){0, 1}, 1);
        x = strata_mul(strata_lower_part(x, last, 0, (n + 1) / 2), strata_lower_part(x, last, (n + 1) / 2, (n + 1) / 2));
    }
    return x;
}

static strata_tensor *product(strata_tensor *x, const int *axes, int n_axes, strata_shape wanted) {
    int order[STRATA_MAX_RANK], n_kept = 0;
    int64_t n = 1, outer = 1;
    const strata_shape shape = strata_tensor_shape(x);
    for (int d = 0; d < shape.rank; d++) {
        bool is_kept = true;
        for (int i = 0; i < n_axes; i++) is_kept &= axes[i] != d;
        if (is_kept) order[n_kept++] = d;
        *(is_kept ? &outer : &n) *= shape.dims[d];
    }
    for (int i = 0; i < n_axes; i++) order[n_kept + i] = axes[i];
    x = strata_reshape(strata_transpose(x, order), STRATA_SHAPE(outer, n));
    return strata_reshape(multiply_halves(x), wanted);
}

/* The combination of all elements of the axes, at least one; NULL: there is none of this dtype. */
static strata_tensor *reduced(int kind, strata_tensor *x, const int *axes, int n_axes, strata_shape wanted) {
    const strata_dtype dtype = strata_tensor_dtype(x);
    if (dtype == STRATA_DTYPE_BOOL) {
        const bool is_or = kind == LOWER_OR || kind == LOWER_ADD || kind == LOWER_MAXIMUM;
        x = strata_cast(x, STRATA_DTYPE_I32);
        x = is_or ? strata_reduce_max(x, axes, n_axes, false) : strata_reduce_min(x, axes, n_axes, false);
        return strata_cast(x, STRATA_DTYPE_BOOL);
    }
    if (!strata_lower_is_number_dtype(dtype) || kind == LOWER_AND || kind == LOWER_OR) return NULL;
    if (kind == LOWER_ADD) return strata_reduce_sum(x, axes, n_axes, false);
    if (kind == LOWER_MULTIPLY) return product(x, axes, n_axes, wanted);
    strata_tensor *(*function)(strata_tensor *, const int *, int, bool) =
        kind == LOWER_MAXIMUM ? strata_reduce_max : strata_reduce_min;
    strata_tensor *y = function(x, axes, n_axes, false);
    if (!strata_dtype_is_float(dtype)) return y;
    return strata_lower_signed_zero(kind, y, function(strata_div(strata_lower_scalar(x, 1), x), axes, n_axes, false));
}

static strata_status reduce_one(const lower_call *call, const int *axes, int n_axes, strata_error *err) {
    const int kind = strata_lower_body_kind(call, 0);
    const lowered *init = call->in[1];
    strata_tensor *x = strata_lower_whole(call->in[0]), *y = x;
    lowered *out = &call->out[0];
    strata_tensor *first = strata_reshape(init->tensor, strata_lower_ones(out->shape.rank));
    if (!kind) return refuse_body(err);
    if (strata_shape_elements(call->in[0]->shape) == 0) {
        out->tensor = first;
        return STRATA_OK;
    }
    if (n_axes) y = reduced(kind, x, axes, n_axes, out->shape);
    if (y && !strata_lower_is_identity(kind, strata_tensor_dtype(x), init)) y = strata_lower_combine(kind, first, y);
    out->tensor = y;
    return y ? STRATA_OK : refuse_body(err);
}

/* The positions of the first largest, or smallest, elements: bodies as JAX writes them, in which arguments 0 and 2 are elements
 * and 1 and 3 their positions. NaN counts as the extreme. */
static const char argmax_body[] =
    "compare GT 0 2;compare NE 0 0;or 4 5;compare EQ 0 2;compare LT 1 3;and 7 8;or 6 9;select 6 0 2;select 10 1 3;return 11 "
    "12;";
static const char argmin_body[] =
    "compare LT 0 2;compare NE 0 0;or 4 5;compare EQ 0 2;compare LT 1 3;and 7 8;or 6 9;select 6 0 2;select 10 1 3;return 11 "
    "12;";

/* Whether a value is 0, 1, 2 ... along the axis. */
static bool counts_along(const lower_call *call, int value, int axis) {
    for (int i = 0; i < call->program->n_ops; i++) {
        const strata_program_op *op = &call->program->ops[i];
        if (op->n_results != 1 || op->results[0] != value) continue;
        const strata_program_attribute *along = strata_program_find(call->program, op, "iota_dimension");
        return !strcmp(op->name, "iota") && along && along->kind == STRATA_PROGRAM_INTEGER && along->integer == axis;
    }
    return false;
}

/* The smallest element is the largest of -x for floats, and of -1 - x for integers, which cannot overflow. */
static strata_status reduce_positions(const lower_call *call, const int *axes, int n_axes, strata_error *err) {
    char body[LOWER_BODY_BYTES];
    strata_lower_body(call, 0, body);
    const bool is_max = !strcmp(body, argmax_body), is_min = !strcmp(body, argmin_body);
    strata_tensor *x = strata_lower_whole(call->in[0]), *ordered = x;
    const bool is_float = strata_dtype_is_float(strata_tensor_dtype(x));
    const bool is_known = (is_max || is_min) && n_axes == 1 && strata_lower_is_number_dtype(strata_tensor_dtype(x)) &&
                          counts_along(call, call->op->operands[1], axes[0]) && call->in[0]->shape.dims[axes[0]] > 0 &&
                          strata_lower_is_identity(is_max ? LOWER_MAXIMUM : LOWER_MINIMUM, strata_tensor_dtype(x), call->in[2]);
    if (!is_known)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "of reductions of two operands, only argmax and argmin of JAX are supported");
    if (is_min) ordered = is_float ? strata_neg(x) : strata_sub(strata_lower_scalar(x, -1), x);
    call->out[0].tensor = reduced(is_max ? LOWER_MAXIMUM : LOWER_MINIMUM, x, axes, 1, call->out[0].shape);
    call->out[1].tensor = strata_cast(strata_argmax(ordered, axes[0]), call->out_dtypes[1]);
    return STRATA_OK;
}

strata_status strata_lower_reduce(const lower_call *call, strata_error *err) {
    int axes[STRATA_MAX_RANK], n_axes;
    const int n = call->op->n_results;
    STRATA_TRY(strata_lower_operands(call, 2 * n, err));
    if (n != 1 && n != 2) return refuse_body(err);
    STRATA_TRY(strata_lower_axes(call, "dimensions", call->in[0]->shape.rank, axes, &n_axes, err));
    for (int i = 0; i < n; i++)
        if (call->in[n + i]->shape.rank != 0 || call->out[i].shape.rank != call->in[0]->shape.rank - n_axes)
            return strata_fail(err, STRATA_DATA, "its first values are no scalars, or its results have wrong ranks");
    return n == 1 ? reduce_one(call, axes, n_axes, err) : reduce_positions(call, axes, n_axes, err);
}

/* ---- windows ---- */

typedef struct windows {
    int rank, kind;
    int64_t size[STRATA_MAX_RANK], stride[STRATA_MAX_RANK], dilation[STRATA_MAX_RANK];
    int64_t before[STRATA_MAX_RANK], after[STRATA_MAX_RANK];
} windows;

/* The windows of an operation that has no dilations are not dilated. */
static strata_status read_windows(const lower_call *call, bool has_dilations, windows *w, strata_error *err) {
    int64_t base[STRATA_MAX_RANK], padding[2 * STRATA_MAX_RANK];
    w->rank = call->in[0]->shape.rank;
    STRATA_TRY(strata_lower_integers(call, "window_dimensions", w->rank, w->size, err));
    STRATA_TRY(strata_lower_integers(call, "window_strides", w->rank, w->stride, err));
    for (int d = 0; d < w->rank; d++) w->dilation[d] = base[d] = 1;
    if (has_dilations) {
        STRATA_TRY(strata_lower_integers(call, "window_dilations", w->rank, w->dilation, err));
        STRATA_TRY(strata_lower_integers(call, "base_dilations", w->rank, base, err));
    }
    STRATA_TRY(strata_lower_integers(call, "padding", 2 * w->rank, padding, err));
    for (int d = 0; d < w->rank; d++) {
        const int64_t all = call->in[0]->shape.dims[d] + padding[2 * d] + padding[2 * d + 1];
        w->before[d] = padding[2 * d];
        w->after[d] = padding[2 * d + 1];
        if (base[d] != 1) return strata_fail(err, STRATA_UNSUPPORTED, "its operand is dilated by %" PRId64, base[d]);
        if (w->size[d] < 1 || w->stride[d] < 1 || w->dilation[d] < 1 || all > INT32_MAX ||
            (w->size[d] - 1) * w->dilation[d] >= all || -w->before[d] > all || -w->after[d] > all)
            return strata_fail(err, STRATA_DATA,
                               "its window of %" PRId64 " with the dilation %" PRId64 " and the stride %" PRId64
                               " does not fit in %" PRId64 " elements",
                               w->size[d], w->dilation[d], w->stride[d], all);
    }
    return STRATA_OK;
}

/* Combines `size` elements, `step` apart, from each position on. The windows of 1, 2, 4 ... elements are made of one another,
 * and those that add up to the size are combined, so that a prefix sum of n elements takes log n passes. */
static strata_tensor *slide(int kind, strata_tensor *x, int axis, int64_t size, int64_t step) {
    const int64_t n = strata_tensor_shape(x).dims[axis] - (size - 1) * step;
    strata_tensor *y = NULL;
    int64_t done = 0;
    for (int64_t length = 1;; length *= 2) {
        if (size & length) {
            strata_tensor *part = strata_lower_part(x, axis, done * step, n);
            y = y ? strata_lower_combine(kind, y, part) : part;
            done += length;
        }
        if (done == size) return y;
        const int64_t rest = strata_tensor_shape(x).dims[axis] - length * step;
        x = strata_lower_combine(kind, strata_lower_part(x, axis, 0, rest), strata_lower_part(x, axis, length * step, rest));
    }
}

/* Whether strata_max_pool2d computes these windows: over at most two axes, with less padding than elements. *out_axes: these
 * axes, or others for the ones that are missing. */
static bool is_pool(const windows *w, strata_dtype dtype, int *out_axes) {
    int n = 0;
    if (!strata_dtype_is_float(dtype) || (w->kind != LOWER_MAXIMUM && w->kind != LOWER_MINIMUM)) return false;
    for (int d = 0; d < w->rank; d++) {
        const bool is_used = w->size[d] > 1 || w->stride[d] > 1 || w->before[d] || w->after[d];
        if (is_used && (n == 2 || w->dilation[d] > 1 || w->before[d] < 0 || w->after[d] < 0 || w->before[d] >= w->size[d] ||
                        w->after[d] >= w->size[d]))
            return false;
        if (is_used) out_axes[n++] = d;
    }
    for (int d = w->rank - 1; d >= 0 && n == 1; d--)
        if (d != out_axes[0]) out_axes[n++] = d;
    if (n == 2 && out_axes[0] > out_axes[1]) {
        const int first = out_axes[1];
        out_axes[1] = out_axes[0];
        out_axes[0] = first;
    }
    return n == 2;
}

/* The pool's axes become height and width, the axes after them channels, and all others images. */
static strata_tensor *pool(const windows *w, strata_tensor *x, const int *axes) {
    int order[STRATA_MAX_RANK], back[STRATA_MAX_RANK], n = 0;
    strata_shape image = STRATA_SHAPE(1, 1, 1, 1), result = {.rank = w->rank};
    for (int d = 0; d < axes[1]; d++)
        if (d != axes[0]) order[n++] = d;
    for (int i = 0; i < 2; i++) order[n++] = axes[i];
    for (int d = axes[1] + 1; d < w->rank; d++) order[n++] = d;
    x = strata_transpose(x, order);
    const strata_shape moved = strata_tensor_shape(x);
    for (int d = 0; d < w->rank; d++) {
        back[order[d]] = d;
        result.dims[d] = moved.dims[d];
        image.dims[d < axes[1] - 1 ? 0 : d == axes[1] - 1 ? 1 : d == axes[1] ? 2 : 3] *= moved.dims[d];
    }
    strata_pool2d_window window = {.padding = STRATA_PADDING_EXPLICIT};
    for (int i = 0; i < 2; i++) {
        window.size[i] = w->size[axes[i]];
        window.stride[i] = w->stride[axes[i]];
        window.explicit_padding[2 * i] = w->before[axes[i]];
        window.explicit_padding[2 * i + 1] = w->after[axes[i]];
    }
    strata_tensor *y = strata_max_pool2d(strata_reshape(x, image), window);
    for (int i = 0; i < 2; i++)
        result.dims[axes[1] - 1 + i] = strata_tensor_shape(y).rank == 4 ? strata_tensor_shape(y).dims[1 + i] : 0;
    return strata_transpose(strata_reshape(y, result), back);
}

/* The smallest element is the negative of the largest negative one. */
static strata_tensor *extreme_pool(const windows *w, strata_tensor *x, const int *axes) {
    if (w->kind == LOWER_MINIMUM) x = strata_neg(x);
    strata_tensor *inverse = strata_div(strata_lower_scalar(x, 1), x);
    strata_tensor *y = strata_lower_signed_zero(LOWER_MAXIMUM, pool(w, x, axes), pool(w, inverse, axes));
    return w->kind == LOWER_MINIMUM ? strata_neg(y) : y;
}

strata_status strata_lower_reduce_window(const lower_call *call, strata_error *err) {
    int axes[2];
    windows w = {.kind = strata_lower_body_kind(call, 0)};
    STRATA_TRY(strata_lower_operands(call, 2, err));
    STRATA_TRY(read_windows(call, true, &w, err));
    const lowered *init = call->in[1];
    strata_tensor *x = strata_lower_whole(call->in[0]);
    const strata_dtype dtype = strata_tensor_dtype(x);
    const bool is_combined = w.kind && strata_lower_combine(w.kind, init->tensor, init->tensor);
    if (!is_combined) return refuse_body(err);
    if (!strata_lower_is_identity(w.kind, dtype, init))
        return strata_fail(err, STRATA_UNSUPPORTED, "its first value is not that which changes no element");
    if (is_pool(&w, dtype, axes)) {
        call->out[0].tensor = extreme_pool(&w, x, axes);
        return STRATA_OK;
    }
    x = strata_lower_pad_by(x, w.before, w.after, NULL, init->number);
    for (int d = 0; d < w.rank; d++) {
        x = slide(w.kind, x, d, w.size[d], w.dilation[d]);
        const int64_t n = strata_tensor_shape(x).rank == w.rank ? strata_tensor_shape(x).dims[d] : 1;
        x = strata_lower_take(x, d, 0, w.stride[d], (n - 1) / w.stride[d] + 1);
    }
    call->out[0].tensor = x;
    return STRATA_OK;
}

/* ---- the gradient of a pool ---- */

/* The element at place `tap` of each window, and its position in the operand, in row-major order; -1: it is padding. */
static void take_tap(const lower_call *call, const windows *w, const int64_t *tap, strata_tensor **value, strata_tensor **at) {
    const strata_shape shape = call->in[0]->shape, out = call->in[1]->shape;
    strata_tensor *x = *value, *sum = strata_scalar(call->graph, STRATA_DTYPE_I32, 0), *inside = NULL;
    int64_t stride = strata_shape_elements(shape);
    for (int d = 0; d < w->rank; d++) {
        stride /= shape.dims[d];
        x = strata_lower_take(x, d, tap[d], w->stride[d], out.dims[d]);
        strata_tensor *p = strata_lower_positions(call->graph, w->rank, d, out.dims[d]);
        p = strata_add(strata_mul(p, strata_lower_scalar(p, (double)w->stride[d])),
                       strata_lower_scalar(p, (double)(tap[d] - w->before[d])));
        strata_tensor *zero = strata_lower_scalar(p, 0), *end = strata_lower_scalar(p, (double)shape.dims[d]);
        strata_tensor *here = strata_lower_combine(LOWER_AND, strata_greater_equal(p, zero), strata_less(p, end));
        inside = inside ? strata_lower_combine(LOWER_AND, inside, here) : here;
        sum = strata_add(sum, strata_mul(p, strata_lower_scalar(p, (double)stride)));
    }
    *value = x;
    *at = inside ? strata_where(inside, sum, strata_lower_scalar(sum, -1)) : sum;
}

/* The position of the element of each window that is chosen: one after the other is compared with the one chosen before, which
 * stays if it is greater or equal. So NaN is replaced by what comes after it, and replaces what was before it. */
static strata_tensor *chosen_positions(const lower_call *call, const windows *w) {
    int64_t tap[STRATA_MAX_RANK] = {0};
    strata_tensor *x = strata_lower_pad_by(strata_lower_whole(call->in[0]), w->before, w->after, NULL, 0);
    strata_tensor *best = NULL, *chosen = NULL;
    for (int d = 0; d >= 0;) {
        strata_tensor *value = x, *at = NULL;
        take_tap(call, w, tap, &value, &at);
        if (chosen) {
            strata_tensor *none = strata_lower_scalar(at, 0), *is_inside = strata_greater_equal(at, none);
            strata_tensor *stays =
                strata_lower_combine(LOWER_AND, strata_greater_equal(chosen, none), strata_greater_equal(best, value));
            strata_tensor *is_new = strata_where(stays, strata_scalar(call->graph, STRATA_DTYPE_BOOL, 0), is_inside);
            best = strata_where(is_new, value, best);
            chosen = strata_where(is_new, at, chosen);
        } else {
            best = value;
            chosen = at;
        }
        for (d = w->rank - 1; d >= 0 && ++tap[d] == w->size[d]; d--) tap[d] = 0;
    }
    return chosen;
}

strata_status strata_lower_select_and_scatter(const lower_call *call, strata_error *err) {
    enum { MAX_TAPS = 256 };
    char body[LOWER_BODY_BYTES];
    windows w = {0};
    int64_t n_taps = 1;
    STRATA_TRY(strata_lower_operands(call, 3, err));
    STRATA_TRY(read_windows(call, false, &w, err));
    strata_lower_body(call, 0, body);
    const lowered *source = call->in[1];
    const strata_shape shape = call->in[0]->shape;
    const strata_dtype dtype = strata_tensor_dtype(source->tensor);
    bool fits = source->shape.rank == w.rank && strata_shape_elements(shape) > 0;
    for (int d = 0; d < w.rank && fits; d++) {
        const int64_t all = shape.dims[d] + w.before[d] + w.after[d];
        fits = w.before[d] >= 0 && w.after[d] >= 0 && source->shape.dims[d] == (all - w.size[d]) / w.stride[d] + 1;
        n_taps = n_taps > MAX_TAPS ? n_taps : n_taps * w.size[d];
    }
    if (!fits) return strata_fail(err, STRATA_DATA, "its source has not an element for each window");
    if (strcmp(body, "compare GE 0 1;return 2;") != 0 || strata_lower_body_kind(call, 1) != LOWER_ADD || w.rank == 0 ||
        !strata_dtype_is_float(dtype) || !strata_lower_is_identity(LOWER_ADD, dtype, call->in[2]) || n_taps > MAX_TAPS ||
        strata_shape_elements(shape) > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "only that of a max pool of floats is supported, with at most %d elements in a window", MAX_TAPS);
    strata_tensor *at = strata_broadcast_to(chosen_positions(call, &w), source->shape);
    const int64_t n = strata_shape_elements(source->shape);
    strata_tensor *y = strata_unsorted_segment_sum(strata_reshape(strata_lower_whole(source), STRATA_SHAPE(n, 1)),
                                                   strata_reshape(at, STRATA_SHAPE(n)), strata_shape_elements(shape));
    call->out[0].tensor = strata_reshape(y, call->out[0].shape);
    return STRATA_OK;
}
