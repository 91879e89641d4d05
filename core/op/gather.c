/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: rows of x along one axis, chosen by indices; an index not in 0..A-1 reads as 0.
 * x: (outer..., A, inner...), indices: (J...) -> y: (outer..., J..., inner...)
 * gradient: gather_grad adds each row of dy to the row of dx from which it was gathered, in ascending order of the
 * position in the indices; an index out of range adds nothing. If dy has size 1 along the indices' last axis, its one row
 * is used for all indices along this axis. The fusion pass makes this form if dy is broadcast, as the gradient of a mean
 * is. The gradient of gather_grad is gather; in that form it is then summed along this axis. */
#include "core/op/gather.h"

#include "core/op/define.h"

extern const strata_op strata_op_gather, strata_op_gather_grad, strata_op_gather_mean, strata_op_broadcast_to,
    strata_op_reduce_mean;

typedef struct gather_attrs {
    int64_t axis; /* of x; may be negative: it then counts from the last axis */
} gather_attrs;

typedef strata_gather_grad_attrs gather_grad_attrs;

typedef strata_gather_grad_sizes gather_sizes;

/* Views x as (outer, axis, inner) and y as (outer, n_indices, inner). */
static gather_sizes sizes_of(strata_shape x, int axis, strata_shape indices) {
    gather_sizes sizes = {1, x.dims[axis], 1, strata_shape_elements(indices), 1};
    for (int d = 0; d < x.rank; d++)
        if (d != axis) *(d < axis ? &sizes.outer : &sizes.inner) *= x.dims[d];
    return sizes;
}

static int gather_axis(const strata_tensor *node) {
    const gather_attrs *attrs = node->attrs;
    return (int)(attrs->axis < 0 ? attrs->axis + node->inputs[0]->shape.rank : attrs->axis);
}

/* The shape with the `count` axes from `axis` on replaced by the axes of `by`. */
static strata_status replace_axes(strata_shape shape, int axis, int count, strata_shape by, strata_shape *out_shape,
                                  strata_error *err) {
    strata_shape result = {.rank = shape.rank - count + by.rank};
    if (result.rank > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_INVALID, "x is %s, indices are %s; the result would have rank %d, the limit is %d",
                           strata_shape_text(shape).text, strata_shape_text(by).text, result.rank, STRATA_MAX_RANK);
    for (int d = 0; d < axis; d++) result.dims[d] = shape.dims[d];
    for (int d = 0; d < by.rank; d++) result.dims[axis + d] = by.dims[d];
    for (int d = axis + count; d < shape.rank; d++) result.dims[d - count + by.rank] = shape.dims[d];
    *out_shape = result;
    return STRATA_OK;
}

/* Checks that the number of rows fits in an i32, since kernels use the index after the last row for "no such row". */
static strata_status check_kernel_axis(int64_t size, strata_error *err) {
    if (size <= INT32_MAX) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "the axis has %" PRId64 " rows; kernels take at most %d", size, INT32_MAX);
}

static strata_status lower_rows(const strata_tensor *node, const char *kernel, const char *variant, gather_sizes sizes,
                                strata_lowering *lowering, strata_error *err) {
    const int64_t n = strata_shape_elements(node->shape);
    strata_launch launch = strata_launch_of(node, kernel, variant);
    if (n == 0) return STRATA_OK;
    STRATA_TRY(check_kernel_axis(sizes.axis, err));
    STRATA_TRY(check_kernel_axis(sizes.n_indices, err));
    STRATA_TRY(strata_launch_flat(&launch, n, err));
    STRATA_LAUNCH_INTS(&launch, sizes.axis, sizes.inner, sizes.n_indices);
    if (node->op == &strata_op_gather_grad) {
        STRATA_LAUNCH_INTS(&launch, sizes.repeats);
        strata_launch_turns(&launch, (double)sizes.n_indices + 2);
    }
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- gather ---- */

static strata_status gather_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *indices = node->inputs[1];
    int axis;
    STRATA_TRY(strata_check_dtype(indices, "indices", STRATA_INDICES, err));
    STRATA_TRY(strata_check_axis(((const gather_attrs *)node->attrs)->axis, x->shape.rank, &axis, err));
    return replace_axes(x->shape, axis, 1, indices->shape, &node->shape, err);
}

static void gather_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const int axis = gather_axis(node);
    gather_grad_attrs attrs = {.axis = axis, .size = node->inputs[0]->shape.dims[axis]};
    dx[0] = strata_node(NULL, &strata_op_gather_grad, 2, (strata_tensor *[]){dy, node->inputs[1]}, &attrs);
}

static void gather_reference(strata_op_call *call) {
    const strata_tensor *x = call->node->inputs[0], *indices = call->node->inputs[1];
    const gather_sizes s = sizes_of(x->shape, gather_axis(call->node), indices->shape);
    const size_t row = (size_t)s.inner * strata_dtype_bytes(x->dtype);
    if (row == 0) return;
    for (int64_t o = 0; o < s.outer; o++) {
        for (int64_t j = 0, run; j < s.n_indices; j += run) {
            const int64_t index = strata_integer_get(indices->dtype, call->inputs[1], j);
            char *target = (char *)call->output + (size_t)(o * s.n_indices + j) * row;
            run = 1;
            if (index < 0 || index >= s.axis) {
                memset(target, 0, row);
                continue;
            }
            while (j + run < s.n_indices && index + run < s.axis && /* consecutive rows are copied together */
                   strata_integer_get(indices->dtype, call->inputs[1], j + run) == index + run)
                run++;
            memcpy(target, (const char *)call->inputs[0] + (size_t)(o * s.axis + index) * row, (size_t)run * row);
        }
    }
}

static strata_status gather_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *indices = node->inputs[1];
    /* x has no rows, so every index is out of range, and x has no memory to bind */
    if (strata_shape_elements(x->shape) == 0) return strata_fill_lower(node, 0, lowering, err);
    const char *variant = strata_bits_by_index_variant(x->dtype, indices->dtype);
    return lower_rows(node, "gather", variant, sizes_of(x->shape, gather_axis(node), indices->shape), lowering, err);
}

/* The one-hot matrix of the indices: its row for an index is 1 at the column of the index and 0 elsewhere. */
static strata_tensor *hits_of(strata_tensor *indices, gather_sizes s, strata_dtype dtype) {
    if (s.axis == 0 || s.n_indices == 0 || s.outer * s.inner == 0 || s.axis > STRATA_MOST_COMPOSED / s.n_indices) return NULL;
    return strata_one_hot(strata_reshape(indices, STRATA_SHAPE(s.n_indices)), s.axis, dtype);
}

/* The product of the one-hot matrix with x. If a row of x is not finite, it also changes other rows, since 0 times
 * infinity is NaN. */
static strata_tensor *gather_compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[0];
    const gather_sizes s = sizes_of(x->shape, gather_axis(node), node->inputs[1]->shape);
    strata_tensor *hits = strata_dtype_is_float(x->dtype) ? hits_of(node->inputs[1], s, x->dtype) : NULL;
    if (!hits) return NULL;
    x = strata_reshape(x, s.outer == 1 ? STRATA_SHAPE(s.axis, s.inner) : STRATA_SHAPE(s.outer, s.axis, s.inner));
    return strata_reshape(strata_matmul(hits, x, false, false), node->shape);
}

/* The indices of rows as they are counted from row `first` on. Rows before it get indices below 0, which are out of range. */
static strata_tensor *indices_from(strata_tensor *indices, int64_t first) {
    if (!first) return indices;
    if (first > INT32_MAX) indices = strata_cast(indices, STRATA_DTYPE_I64);
    return strata_sub(indices, strata_scalar(indices->graph, indices->dtype, (double)first));
}

/* x (outer..., A, inner...), indices (J...) -> y (outer..., J..., inner...): all axes; rows that a part of A lacks are zeros
 * there, so parts of A make a partial result. */
static void gather_factors(const strata_tensor *node, strata_factors *factors) {
    const int axis = gather_axis(node), n = node->inputs[1]->shape.rank;
    if (node->dtype != STRATA_DTYPE_BOOL && node->dtype != STRATA_DTYPE_U8)
        strata_factors_set(factors, node, 0, axis, node->shape.rank);
    for (int d = 0; d < node->shape.rank; d++) {
        const bool is_index = d >= axis && d < axis + n;
        const int from = d < axis ? d : is_index ? d - axis : d - n + 1;
        strata_factors_set(factors, node, is_index, from, d);
        strata_factors_set(factors, node, 2, d, d);
    }
}

static strata_tensor *gather_part(const strata_node_part *part) {
    const int64_t first = part->input_begins[0][gather_axis(part->node)];
    return strata_gather(part->inputs[0], indices_from(part->inputs[1], first), gather_axis(part->node));
}

const strata_op strata_op_gather = {.name = "gather",
                                    .n_inputs = 2,
                                    .attrs_bytes = sizeof(gather_attrs),
                                    .attrs = {{"axis", STRATA_ATTR_INT, offsetof(gather_attrs, axis)}},
                                    .factors = gather_factors,
                                    .part = gather_part,
                                    .linearity = STRATA_LINEAR_FIRST,
                                    .shape = gather_shape,
                                    .gradient = gather_gradient,
                                    .reference = gather_reference,
                                    .compose = gather_compose,
                                    .lower = gather_lower};

strata_tensor *strata_gather(strata_tensor *x, strata_tensor *indices, int axis) {
    return strata_node(NULL, &strata_op_gather, 2, (strata_tensor *[]){x, indices}, &(gather_attrs){.axis = axis});
}

/* ---- gather_grad ---- */

strata_tensor *strata_unsorted_segment_sum(strata_tensor *x, strata_tensor *indices, int64_t n_rows) {
    if (x && indices && !strata_tensor_is_poison(x) && !strata_tensor_is_poison(indices) &&
        (indices->shape.rank != 1 || x->shape.rank < 1 || x->shape.dims[0] != indices->shape.dims[0] || n_rows < 0))
        return strata_graph_poison(
            x->graph, &strata_op_gather_grad, STRATA_INVALID,
            "unsorted_segment_sum of x %s by indices %s to %lld rows; there must be an index for each of x's rows",
            strata_shape_text(x->shape).text, strata_shape_text(indices->shape).text, (long long)n_rows);
    return strata_node(NULL, &strata_op_gather_grad, 2, (strata_tensor *[]){x, indices},
                       &(gather_grad_attrs){.axis = 0, .size = n_rows});
}

/* The number of neighbouring indices that share a row of dy. */
static int64_t repeats_of(const strata_tensor *node) {
    const gather_grad_attrs *attrs = node->attrs;
    const strata_shape dy = node->inputs[0]->shape, indices = node->inputs[1]->shape;
    const int last = indices.rank - 1;
    return last >= 0 && dy.dims[attrs->axis + last] == 1 ? indices.dims[last] : 1;
}

/* In dy, the indices' axes replace dx's axis. The last of them may have size 1. */
static strata_status gather_grad_shape(strata_tensor *node, strata_error *err) {
    const gather_grad_attrs *attrs = node->attrs;
    const strata_tensor *dy = node->inputs[0], *indices = node->inputs[1];
    const int axis = (int)attrs->axis;
    STRATA_TRY(strata_check_dtype(dy, "dy", STRATA_FLOATS, err));
    STRATA_TRY(strata_check_dtype(indices, "indices", STRATA_INDICES, err));
    bool fits = attrs->axis >= 0 && attrs->axis + indices->shape.rank <= dy->shape.rank && attrs->size >= 0;
    for (int d = 0; fits && d < indices->shape.rank; d++)
        fits = dy->shape.dims[axis + d] == indices->shape.dims[d] ||
               (d == indices->shape.rank - 1 && dy->shape.dims[axis + d] == 1 && indices->shape.dims[d] > 0);
    if (!fits)
        return strata_fail(err, STRATA_INVALID, "dy is %s; it does not have the indices' shape %s from axis %" PRId64 " on",
                           strata_shape_text(dy->shape).text, strata_shape_text(indices->shape).text, attrs->axis);
    return replace_axes(dy->shape, axis, indices->shape.rank, STRATA_SHAPE(attrs->size), &node->shape, err);
}

static void gather_grad_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const gather_grad_attrs *attrs = node->attrs;
    const int last = (int)attrs->axis + node->inputs[1]->shape.rank - 1;
    dx[0] = strata_gather(dy, node->inputs[1], (int)attrs->axis);
    if (repeats_of(node) > 1) dx[0] = strata_reduce_sum(dx[0], &last, 1, true);
}

strata_gather_grad_sizes strata_gather_grad_sizes_of(const strata_tensor *node) {
    gather_sizes sizes = sizes_of(node->shape, (int)((const gather_grad_attrs *)node->attrs)->axis, node->inputs[1]->shape);
    sizes.repeats = repeats_of(node);
    return sizes;
}

/* Accumulates in double, one outer index at a time. */
static void gather_grad_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const strata_tensor *indices = call->node->inputs[1];
    const gather_sizes s = strata_gather_grad_sizes_of(call->node);
    const int64_t slab = s.axis * s.inner;
    double *sums = strata_call_alloc(call, slab, sizeof *sums);
    for (int64_t o = 0; sums && o < s.outer; o++) {
        for (int64_t i = 0; i < slab; i++) sums[i] = 0;
        for (int64_t j = 0; j < s.n_indices; j++) {
            const int64_t row = strata_integer_get(indices->dtype, call->inputs[1], j);
            if (row < 0 || row >= s.axis) continue;
            for (int64_t c = 0; c < s.inner; c++)
                sums[row * s.inner + c] +=
                    strata_element_get(dtype, call->inputs[0], (o * s.n_indices + j) / s.repeats * s.inner + c);
        }
        for (int64_t i = 0; i < slab; i++) strata_element_set(dtype, call->output, o * slab + i, sums[i]);
    }
    free(sums);
}

enum {
    /* The most reads, axis times n_indices, for which each element reads all indices itself. */
    FEW_READS = 1 << 12,
    /* The approximate number of elements of dx that a work-group of scatter_rows computes. */
    RANGE_ELEMENTS = 256,
    /* The fewest work-items in a work-group of scatter_rows if there are several. It bounds the loop of a work-item; on a
     * CPU the limit on iterations does not apply. */
    LEAST_ITEMS = 64,
    /* The most iterations of a work-item's loops (shaders/README.md). */
    MOST_TURNS = 60000
};

/* Adds a launch for each run of indices. A run is so short that a work-item's loops stay within MOST_TURNS even if all of
 * its indices are equal. */
static strata_status lower_ranges(const strata_tensor *node, const char *variant, gather_sizes s, strata_lowering *lowering,
                                  strata_error *err) {
    const int64_t range = s.inner < RANGE_ELEMENTS ? RANGE_ELEMENTS / s.inner : 1;
    const int64_t turns_a_place = range * s.inner / LEAST_ITEMS + 2;
    const int64_t run = turns_a_place < MOST_TURNS ? MOST_TURNS / turns_a_place : 1, repeats = s.repeats;
    for (int64_t first = 0; first < s.n_indices; first += run) {
        const int64_t n = s.n_indices - first < run ? s.n_indices - first : run;
        strata_launch launch = strata_launch_of(node, "scatter_rows", variant);
        launch.offsets[0] = first / repeats * s.inner;
        launch.offsets[1] = first;
        launch.extents[0] = ((first + n - 1) / repeats - first / repeats + 1) * s.inner;
        launch.extents[1] = n;
        launch.global[0] = ((s.axis - 1) / range + 1) * RANGE_ELEMENTS;
        launch.grid_stride = launch.few_groups = true;
        strata_launch_constant_add(&launch, "FIRST", first == 0);
        STRATA_LAUNCH_INTS(&launch, s.axis, s.inner, n, range, repeats, first % repeats);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

static strata_status gather_grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    if (strata_shape_elements(node->inputs[1]->shape) == 0) return strata_fill_lower(node, 0, lowering, err);
    const char *variant = strata_floats_by_index_variant(node->dtype, node->inputs[1]->dtype);
    const gather_sizes s = strata_gather_grad_sizes_of(node);
    const bool fits = s.axis * s.inner <= INT32_MAX && s.n_indices <= INT32_MAX / (s.inner ? s.inner : 1);
    if (s.outer == 1 && s.inner > 0 && node->dtype == STRATA_DTYPE_F32 && fits && s.axis > FEW_READS / s.n_indices)
        return lower_ranges(node, variant, s, lowering, err);
    return lower_rows(node, "scatter_add", variant, s, lowering, err);
}

/* If rows of dy are repeated, a gather_grad of the repeated rows; else the product of the transposed one-hot matrix with
 * dy. */
static strata_tensor *gather_grad_compose(strata_tensor *node) {
    const gather_grad_attrs *attrs = node->attrs;
    strata_tensor *dy = node->inputs[0], *indices = node->inputs[1];
    const gather_sizes s = strata_gather_grad_sizes_of(node);
    if (repeats_of(node) > 1) {
        strata_shape repeated = dy->shape;
        repeated.dims[attrs->axis + indices->shape.rank - 1] = indices->shape.dims[indices->shape.rank - 1];
        strata_tensor *inputs[] = {strata_broadcast_to(dy, repeated), indices};
        return strata_node(NULL, &strata_op_gather_grad, 2, inputs, attrs);
    }
    strata_tensor *hits = hits_of(indices, s, dy->dtype);
    if (!hits) return NULL;
    dy = strata_reshape(dy, s.outer == 1 ? STRATA_SHAPE(s.n_indices, s.inner) : STRATA_SHAPE(s.outer, s.n_indices, s.inner));
    return strata_reshape(strata_matmul(hits, dy, true, false), node->shape);
}

/* dy (outer..., J..., inner...), indices (J...) -> dx (outer..., A, inner...): each part of dy's rows adds to dx, and a part of
 * A takes the rows whose indices are in it. */
static void gather_grad_factors(const strata_tensor *node, strata_factors *factors) {
    const int axis = (int)((const gather_grad_attrs *)node->attrs)->axis, n = node->inputs[1]->shape.rank;
    strata_factors_set(factors, node, 2, axis, node->inputs[0]->shape.rank);
    for (int d = 0; d < node->inputs[0]->shape.rank; d++) {
        const bool is_index = d >= axis && d < axis + n;
        if (is_index && node->inputs[0]->shape.dims[d] != node->inputs[1]->shape.dims[d - axis]) continue;
        strata_factors_set(factors, node, 0, d, d);
        strata_factors_set(factors, node, is_index ? 1 : 2, d < axis ? d : is_index ? d - axis : d - n + 1, d);
    }
}

static strata_tensor *gather_grad_part(const strata_node_part *part) {
    gather_grad_attrs attrs = *(const gather_grad_attrs *)part->node->attrs;
    strata_tensor *inputs[] = {part->inputs[0], indices_from(part->inputs[1], part->begin[attrs.axis])};
    attrs.size = part->shape.dims[attrs.axis];
    return strata_node(part->graph, part->node->op, 2, inputs, &attrs);
}

const strata_op strata_op_gather_grad = {.name = "gather_grad",
                                         .n_inputs = 2,
                                         .attrs_bytes = sizeof(gather_grad_attrs),
                                         .attrs = {{"axis", STRATA_ATTR_INT, offsetof(gather_grad_attrs, axis)},
                                                   {"size", STRATA_ATTR_INT, offsetof(gather_grad_attrs, size)}},
                                         .factors = gather_grad_factors,
                                         .part = gather_grad_part,
                                         .linearity = STRATA_LINEAR_FIRST,
                                         .shape = gather_grad_shape,
                                         .gradient = gather_grad_gradient,
                                         .reference = gather_grad_reference,
                                         .compose = gather_grad_compose,
                                         .lower = gather_grad_lower};

strata_tensor *strata_gather_grad_unrepeated(strata_tensor *node) {
    if (node->op != &strata_op_gather_grad || node->inputs[0]->op != &strata_op_broadcast_to || repeats_of(node) != 1)
        return NULL;
    const gather_grad_attrs *attrs = node->attrs;
    strata_tensor *indices = node->inputs[1], *once = node->inputs[0]->inputs[0];
    const int last = (int)attrs->axis + indices->shape.rank - 1;
    strata_shape wanted = node->inputs[0]->shape;
    if (indices->shape.rank == 0) return NULL;
    wanted.dims[last] = 1;
    if (!strata_shape_equal(once->shape, wanted)) return NULL;
    return strata_node(NULL, &strata_op_gather_grad, 2, (strata_tensor *[]){once, indices}, attrs);
}

/* ---- gather_mean: the mean of rows of x along the last axis of the indices, y[j] = 1/T sum_t x[indices[j, t]].
 * x: (A, inner...), indices: (J..., T) -> y: (J..., inner...); an index not in 0..A-1 counts as a row of zeros. Only families
 * have kernels for this op: other devices run gather and reduce_mean ---- */

strata_gather_mean_sizes strata_gather_mean_sizes_of(const strata_tensor *node) {
    const strata_shape x = node->inputs[0]->shape, indices = node->inputs[1]->shape;
    strata_axes axes = {1, indices.dims[indices.rank - 1], 1};
    for (int d = 0; d < indices.rank - 1; d++) axes.outer *= indices.dims[d];
    for (int d = 1; d < x.rank; d++) axes.inner *= x.dims[d];
    return (strata_gather_mean_sizes){x.dims[0], strata_reduce_order_along(axes)};
}

static strata_status mean_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *indices = node->inputs[1];
    STRATA_TRY(strata_check_dtype(x, "x", STRATA_FLOATS, err));
    STRATA_TRY(strata_check_dtype(indices, "indices", STRATA_INDICES, err));
    const int rank = indices->shape.rank - 1 + x->shape.rank - 1;
    if (indices->shape.rank < 1 || x->shape.rank < 1 || rank > STRATA_MAX_RANK || !indices->shape.dims[indices->shape.rank - 1])
        return strata_fail(err, STRATA_INVALID,
                           "x is %s, indices are %s; both must have an axis, the indices' last one elements, and the result at "
                           "most %d axes",
                           strata_shape_text(x->shape).text, strata_shape_text(indices->shape).text, STRATA_MAX_RANK);
    strata_shape y = {.rank = rank};
    for (int d = 0; d < indices->shape.rank - 1; d++) y.dims[d] = indices->shape.dims[d];
    for (int d = 1; d < x->shape.rank; d++) y.dims[indices->shape.rank - 2 + d] = x->shape.dims[d];
    node->shape = y;
    return STRATA_OK;
}

static void mean_reference(strata_op_call *call) {
    const strata_tensor *node = call->node, *indices = node->inputs[1];
    const strata_gather_mean_sizes s = strata_gather_mean_sizes_of(node);
    const strata_axes a = s.order.axes;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t c = 0; c < a.inner; c++) {
            double sum = 0;
            for (int64_t t = 0; t < a.n; t++) {
                const int64_t row = strata_integer_get(indices->dtype, call->inputs[1], o * a.n + t);
                if (row >= 0 && row < s.rows) sum += strata_element_get(node->dtype, call->inputs[0], row * a.inner + c);
            }
            strata_element_set(node->dtype, call->output, o * a.inner + c, sum / (double)a.n);
        }
}

static strata_tensor *mean_compose(strata_tensor *node) {
    const int last = node->inputs[1]->shape.rank - 1;
    return strata_reduce_mean(strata_gather(node->inputs[0], node->inputs[1], 0), &last, 1, false);
}

const strata_op strata_op_gather_mean = {.name = "gather_mean",
                                         .n_inputs = 2,
                                         .shape = mean_shape,
                                         .no_gradient = "it is made of others when a graph is compiled",
                                         .reference = mean_reference,
                                         .compose = mean_compose};

strata_tensor *strata_gather_mean_of(strata_tensor *node) {
    if (node->op != &strata_op_reduce_mean || node->inputs[0]->op != &strata_op_gather) return NULL;
    const strata_reduce_attrs *mean = node->attrs;
    strata_tensor *x = node->inputs[0]->inputs[0], *indices = node->inputs[0]->inputs[1];
    const bool along_last = mean->n_axes == 1 && mean->axis == indices->shape.rank - 1 && !mean->keep_dims;
    if (gather_axis(node->inputs[0]) != 0 || indices->shape.rank < 1 || !along_last || !strata_dtype_is_float(x->dtype))
        return NULL;
    return strata_node(NULL, &strata_op_gather_mean, 2, (strata_tensor *[]){x, indices}, NULL);
}
