/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum, mean, maximum and minimum over axes. The four ops share their rules and kernels; argmax is in argmax.c. */
#include "core/op/reduce.h"

#include "core/op/define.h"

extern const strata_op strata_op_reduce_sum, strata_op_reduce_mean, strata_op_reduce_max, strata_op_reduce_min;

static const strata_reduce_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static strata_axes axes_of(const strata_tensor *node) {
    return strata_axes_of(node->inputs[0]->shape, attrs_of(node)->axis, attrs_of(node)->n_axes);
}

/* Which of the four ops the node is; the values are those of the kernel's constant OP. */
enum { SUM = 0, MAX = 1, MIN = 2, MEAN = 3 };

static int kind_of(const strata_tensor *node) {
    static const strata_op *const ops[] = {
        [SUM] = &strata_op_reduce_sum, [MAX] = &strata_op_reduce_max, [MIN] = &strata_op_reduce_min};
    int kind = SUM;
    while (kind < MEAN && ops[kind] != node->op) kind++;
    return kind;
}

/* ---- the shape rule ---- */

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_reduce_attrs *attrs = attrs_of(node);
    const strata_tensor *x = node->inputs[0];
    const int kind = kind_of(node);
    STRATA_TRY(strata_check_dtype(x, "x", kind == MEAN ? STRATA_FLOATS : STRATA_NUMBERS, err));
    if (attrs->axis < 0 || attrs->n_axes < 0 || attrs->axis > x->shape.rank || attrs->n_axes > x->shape.rank - attrs->axis)
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " axes from axis %" PRId64 " do not lie in x %s", attrs->n_axes,
                           attrs->axis, strata_shape_text(x->shape).text);
    node->shape = (strata_shape){0};
    for (int i = 0; i < x->shape.rank; i++) {
        bool reduced = i >= attrs->axis && i < attrs->axis + attrs->n_axes;
        if (!reduced || attrs->keep_dims) node->shape.dims[node->shape.rank++] = reduced ? 1 : x->shape.dims[i];
    }
    if (kind == SUM || kind == MEAN || axes_of(node).n > 0) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "x is %s; the axes reduced have no elements, and nothing is the extreme of none",
                       strata_shape_text(x->shape).text);
}

/* ---- gradients ---- */

/* Repeats a tensor of the node's shape to x's shape: the reduced axes get size 1 and are then broadcast. */
static strata_tensor *spread(const strata_tensor *node, strata_tensor *value) {
    const strata_reduce_attrs *attrs = attrs_of(node);
    strata_shape kept = node->inputs[0]->shape;
    for (int64_t i = attrs->axis; i < attrs->axis + attrs->n_axes; i++) kept.dims[i] = 1;
    if (!attrs->keep_dims) value = strata_reshape(value, kept);
    return strata_broadcast_to(value, node->inputs[0]->shape);
}

static void sum_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = spread(node, dy);
}

static void mean_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    int64_t n = axes_of(node).n;
    dx[0] = spread(node, strata_mul(dy, strata_scalar(node->graph, node->dtype, 1.0 / (double)(n ? n : 1))));
}

/* Divides dy evenly among the elements that equal the extreme value (as JAX and TensorFlow do). If the extreme is NaN, no
 * element gets a gradient. */
static void extreme_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_reduce_attrs *attrs = attrs_of(node);
    strata_tensor *x = node->inputs[0];
    strata_tensor *is_extreme = strata_equal(x, spread(node, node));
    strata_tensor *count =
        strata_node(NULL, &strata_op_reduce_sum, 1, (strata_tensor *[]){strata_cast(is_extreme, node->dtype)}, attrs);
    strata_tensor *share = spread(node, strata_div(dy, count));
    dx[0] = strata_where(is_extreme, share, strata_scalar(node->graph, node->dtype, 0));
}

/* ---- references ---- */

/* Folds n elements: element `first` and every `stride`-th element after it. NaN is the extreme of all, as in numpy. */
static double fold(int kind, strata_dtype dtype, const void *x, int64_t first, int64_t stride, int64_t n) {
    const bool sums = kind == SUM || kind == MEAN;
    double so_far = sums ? 0 : strata_element_get(dtype, x, first);
    for (int64_t i = !sums; i < n; i++) {
        const double v = strata_element_get(dtype, x, first + i * stride);
        if (sums)
            so_far += v;
        else if (!isnan(so_far) && (isnan(v) || (kind == MAX ? v > so_far : v < so_far)))
            so_far = v;
    }
    if (kind == MEAN) return n ? so_far / (double)n : NAN;
    return so_far;
}

/* Integers are not converted to double: i64 would lose bits, and sums must wrap around. */
static int64_t fold_integers(int kind, strata_dtype dtype, const void *x, int64_t first, int64_t stride, int64_t n) {
    int64_t so_far = kind == SUM ? 0 : strata_integer_get(dtype, x, first);
    for (int64_t i = kind != SUM; i < n; i++) {
        const int64_t v = strata_integer_get(dtype, x, first + i * stride);
        if (kind == SUM)
            so_far = (int64_t)((uint64_t)so_far + (uint64_t)v);
        else if (kind == MAX ? v > so_far : v < so_far)
            so_far = v;
    }
    return so_far;
}

static void reference(strata_op_call *call) {
    const strata_axes a = axes_of(call->node);
    const strata_dtype dtype = call->node->dtype;
    const int kind = kind_of(call->node);
    for (int64_t at = 0; at < a.outer * a.inner; at++) {
        const int64_t first = at / a.inner * a.n * a.inner + at % a.inner;
        if (strata_dtype_is_float(dtype))
            strata_element_set(dtype, call->output, at, fold(kind, dtype, call->inputs[0], first, a.inner, a.n));
        else
            strata_integer_set(dtype, call->output, at, fold_integers(kind, dtype, call->inputs[0], first, a.inner, a.n));
    }
}

/* ---- lower ---- */

/* One launch of shaders/reduce.kernel. It reduces x (outer, axis, inner) to y (outer, parts, inner); `part` elements of
 * the axis become one result. If x or y is NULL, the scratch buffer takes its place. */
typedef struct fold_launch {
    const strata_tensor *x, *y;
    const char *variant;
    int op;
    strata_axes axes;
    int64_t parts, part;
    int64_t divisor; /* what a mean divides by */
} fold_launch;

enum { ENOUGH_ITEMS = 1 << 18 }; /* work-items that keep a large device busy despite the latency of its loads */

/* Whether the kernel accumulates in runs (shaders/rows.h). It depends only on the shape, because it determines the order
 * of addition. */
static bool is_in_runs(strata_axes axes, int64_t parts, int64_t part) {
    /* The fewest elements of a part for which runs are used. Runs would not make shorter chains of additions faster. */
    enum { LEAST_IN_RUNS = 64 };
    return axes.inner > 1 && part >= LEAST_IN_RUNS && axes.outer * parts * axes.inner < ENOUGH_ITEMS;
}

static strata_status add_fold(const fold_launch *fold, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = STRATA_LAUNCH_WITH("reduce", fold->variant, fold->x, fold->y);
    const int64_t rows = fold->axes.outer * fold->parts * fold->axes.inner;
    const bool in_runs = is_in_runs(fold->axes, fold->parts, fold->part);
    strata_launch_constant_add(&launch, "OP", fold->op);
    STRATA_TRY(strata_launch_rows(&launch, rows, fold->part, fold->axes.inner, 1, err));
    strata_launch_constant_add(&launch, "IN_RUNS", in_runs);
    if (in_runs) {
        launch.global[0] = fold->axes.outer * fold->parts * strata_run_groups(fold->axes.inner) * STRATA_RUN_ITEMS;
        strata_launch_turns(&launch, STRATA_RUN_ITEMS / STRATA_RUNS * strata_lane_turns(fold->part));
    }
    launch.words[1].u32 = (uint32_t)fold->axes.n;
    STRATA_LAUNCH_INTS(&launch, fold->axes.inner, fold->parts, fold->part);
    STRATA_LAUNCH_FLOATS(&launch, (double)fold->divisor);
    return strata_lowering_add(lowering, &launch, err);
}

/* The number of parts into which a long axis with few results is divided, so that a whole device has work. It depends only on
 * the shape, because it determines the order of addition. A work-group computes one part of a contiguous row, or of 8
 * columns. Parts have at least 512 elements of a column, because a second launch takes longer than runs of 64 elements. */
static int64_t parts_of(strata_axes axes) {
    /* The fewest elements of an axis that is divided, of a part of a row, and of a part of a column. */
    enum { LEAST_CUT = 2048, LEAST_ROW = 4096, LEAST_COLUMN = 512 };
    const bool contiguous = axes.inner == 1;
    const int64_t least_part = contiguous ? LEAST_ROW : LEAST_COLUMN;
    const int64_t groups = axes.outer * (contiguous ? 1 : strata_run_groups(axes.inner));
    const int64_t enough_groups = contiguous ? 256 : ENOUGH_ITEMS / STRATA_RUN_ITEMS;
    int64_t parts = 1;
    if (axes.n < LEAST_CUT) return parts;
    while (parts * 2 * least_part <= axes.n && parts * groups < enough_groups) parts *= 2;
    return parts;
}

strata_reduce_order strata_reduce_order_of(const strata_tensor *node) {
    return strata_reduce_order_along(axes_of(node));
}

strata_reduce_order strata_reduce_order_along(strata_axes axes) {
    const int64_t parts = parts_of(axes), part = (axes.n + parts - 1) / parts, turn = 4 * STRATA_RUNS;
    return (strata_reduce_order){axes, parts, is_in_runs(axes, parts, part) ? (part + turn - 1) / turn * 4 : part};
}

/* The kernel's variants for each dtype of x: for a single launch, for the first launch to partial results, and for the
 * second launch to y. Partial results of floats are f32. */
static const struct {
    const char *whole, *first, *second;
} variants[STRATA_DTYPE_COUNT] = {
    [STRATA_DTYPE_F32] = {"f32_f32", "f32_f32", "f32_f32"},      [STRATA_DTYPE_F16] = {"f16_f16", "f16_f32", "f32_f16"},
    [STRATA_DTYPE_BF16] = {"bf16_bf16", "bf16_f32", "f32_bf16"}, [STRATA_DTYPE_I32] = {"i32_i32", "i32_i32", "i32_i32"},
    [STRATA_DTYPE_I64] = {"i64_i64", "i64_i64", "i64_i64"},
};

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const int op = kind_of(node);
    strata_axes axes = axes_of(node);
    int64_t parts = parts_of(axes), part = (axes.n + parts - 1) / parts;
    fold_launch last = {.x = node->inputs[0], .y = node, .op = op, .axes = axes, .parts = 1, .part = axes.n, .divisor = axes.n};
    last.variant = variants[node->dtype].whole;
    if (parts > 1) {
        fold_launch first = last;
        first.y = last.x = NULL;
        first.variant = variants[node->dtype].first;
        last.variant = variants[node->dtype].second;
        first.op = op == MEAN ? SUM : op;
        first.parts = last.axes.n = last.part = parts;
        first.part = part;
        strata_lowering_scratch(lowering, axes.outer * parts * axes.inner * (node->dtype == STRATA_DTYPE_I64 ? 8 : 4));
        STRATA_TRY(add_fold(&first, lowering, err));
    }
    return add_fold(&last, lowering, err);
}

strata_status strata_reduce_scratch(const strata_tensor *node, int64_t parts, strata_lowering *lowering, strata_error *err) {
    const strata_axes axes = {1, parts, strata_shape_elements(node->shape)};
    return add_fold(&(fold_launch){.y = node,
                                   .variant = variants[node->dtype].second,
                                   .op = SUM,
                                   .axes = axes,
                                   .parts = 1,
                                   .part = parts,
                                   .divisor = 1},
                    lowering, err);
}

/* ---- compositions ---- */

/* The product with a vector of ones, which adds the elements. */
static strata_tensor *sum_compose(strata_tensor *node) {
    const strata_axes a = axes_of(node);
    strata_graph *graph = node->graph;
    strata_tensor *x = node->inputs[0];
    if (!strata_dtype_is_float(node->dtype) || a.n == 0 || a.outer * a.inner == 0) return NULL;
    strata_tensor *ones = strata_filled(graph, x->dtype, a.inner == 1 ? STRATA_SHAPE(a.n, 1) : STRATA_SHAPE(1, a.n), 1);
    if (!ones) return NULL;
    x = strata_reshape(x, a.inner == 1   ? STRATA_SHAPE(a.outer, a.n)
                          : a.outer == 1 ? STRATA_SHAPE(a.n, a.inner)
                                         : STRATA_SHAPE(a.outer, a.n, a.inner));
    return strata_reshape(a.inner == 1 ? strata_matmul(x, ones, false, false) : strata_matmul(ones, x, false, false),
                          node->shape);
}

static strata_tensor *mean_compose(strata_tensor *node) {
    strata_tensor *sum = strata_node(NULL, &strata_op_reduce_sum, 1, node->inputs, node->attrs);
    return strata_mul(sum, strata_scalar(node->graph, node->dtype, 1 / (double)axes_of(node).n));
}

/* Takes the extreme of the two halves of the axis, repeatedly, until one element is left. If the number is odd, the
 * halves overlap. */
static strata_tensor *extreme_compose(strata_tensor *node) {
    const strata_axes a = axes_of(node);
    strata_tensor *x = strata_reshape(node->inputs[0], STRATA_SHAPE(a.outer, a.n, a.inner));
    for (int64_t n = a.n; n > 1;) {
        const int64_t half = (n + 1) / 2, size[] = {a.outer, half, a.inner};
        strata_tensor *front = strata_slice(x, (int64_t[]){0, 0, 0}, size);
        strata_tensor *back = strata_slice(x, (int64_t[]){0, n - half, 0}, size);
        x = kind_of(node) == MAX ? strata_max(front, back) : strata_min(front, back);
        n = half;
    }
    return strata_reshape(x, node->shape);
}

/* ---- placement ---- */

/* The axes that stay; for sums and means also the reduced ones, so that the result is a partial sum. */
static void factors(const strata_tensor *node, strata_factors *factors) {
    const strata_reduce_attrs *attrs = attrs_of(node);
    const int kind = kind_of(node);
    const bool sums = kind == SUM || kind == MEAN;
    for (int d = 0, to = 0; d < node->inputs[0]->shape.rank; d++) {
        const bool reduced = d >= attrs->axis && d < attrs->axis + attrs->n_axes;
        if (!reduced || sums) strata_factors_set(factors, node, 0, d, d);
        if (!reduced) strata_factors_set(factors, node, 1, to, d);
        to += !reduced || attrs->keep_dims;
    }
    if (sums) factors->linearity = STRATA_LINEAR_JOINTLY;
}

/* The mean of a part of the elements is divided by the number of all elements. */
static strata_tensor *mean_part(const strata_node_part *part) {
    strata_tensor *x = part->inputs[0];
    const int64_t n = axes_of(part->node).n,
                  own = strata_axes_of(x->shape, attrs_of(part->node)->axis, attrs_of(part->node)->n_axes).n;
    if (own == n) return strata_node_part_copy(part);
    strata_tensor *sum = strata_node(part->graph, &strata_op_reduce_sum, 1, &x, part->node->attrs);
    return strata_mul(sum, strata_scalar(part->graph, part->node->dtype, 1.0 / (double)n));
}

/* ---- the common part of the builders ---- */

/* Sets reduced[i] to whether axis i is one of `axes`. If an axis is wrong, it records an error in the graph and returns
 * false. */
static bool mark_axes(strata_tensor *x, const strata_op *op, const int *axes, int n_axes, bool *reduced) {
    int rank = x->shape.rank;
    for (int i = 0; i < rank; i++) reduced[i] = n_axes == 0;
    for (int i = 0; i < n_axes; i++) {
        int axis;
        strata_error err;
        if (strata_check_axis(axes[i], rank, &axis, &err)) {
            strata_graph_poison(x->graph, op, STRATA_INVALID, "%s", err.message);
            return false;
        }
        if (reduced[axis]) {
            strata_graph_poison(x->graph, op, STRATA_INVALID, "axis %d is given twice", axes[i]);
            return false;
        }
        reduced[axis] = true;
    }
    return true;
}

/* If the reduced axes are not neighbours, the builder first transposes them to the end. */
static strata_tensor *reduce(const strata_op *op, strata_tensor *x, const int *axes, int n_axes, bool keep_dims) {
    bool reduced[STRATA_MAX_RANK];
    if (strata_tensor_is_poison(x)) return x;
    if (!mark_axes(x, op, axes, n_axes, reduced)) return &x->graph->poison;
    int order[STRATA_MAX_RANK], n_kept = 0, n_reduced = 0, first = 0, last = -1, rank = x->shape.rank;
    strata_shape result = {0};
    for (int i = 0; i < rank; i++) {
        if (!reduced[i]) order[n_kept++] = i;
        if (reduced[i] && n_reduced++ == 0) first = i;
        if (reduced[i]) last = i;
        if (!reduced[i] || keep_dims) result.dims[result.rank++] = reduced[i] ? 1 : x->shape.dims[i];
    }
    if (n_reduced == 0 || last - first + 1 == n_reduced) {
        strata_reduce_attrs attrs = {.axis = first, .n_axes = n_reduced, .keep_dims = keep_dims};
        return strata_node(NULL, op, 1, &x, &attrs);
    }
    for (int i = 0, at = n_kept; i < rank; i++)
        if (reduced[i]) order[at++] = i;
    strata_tensor *moved = strata_transpose(x, order);
    strata_reduce_attrs attrs = {.axis = n_kept, .n_axes = n_reduced};
    strata_tensor *y = strata_node(NULL, op, 1, &moved, &attrs);
    return keep_dims ? strata_reshape(y, result) : y;
}

/* ---- the four ops and their builders ---- */

#define REDUCTION(which, part_rule, gradient_rule, composition)                                           \
    const strata_op strata_op_reduce_##which = {                                                          \
        .name = "reduce_" #which,                                                                         \
        .n_inputs = 1,                                                                                    \
        .attrs_bytes = sizeof(strata_reduce_attrs),                                                       \
        .attrs = {{"axis", STRATA_ATTR_INT, offsetof(strata_reduce_attrs, axis)},                         \
                  {"n_axes", STRATA_ATTR_INT, offsetof(strata_reduce_attrs, n_axes)},                     \
                  {"keep_dims", STRATA_ATTR_INT, offsetof(strata_reduce_attrs, keep_dims)}},              \
        .factors = factors,                                                                               \
        .part = part_rule,                                                                                \
        .shape = shape,                                                                                   \
        .gradient = gradient_rule,                                                                        \
        .reference = reference,                                                                           \
        .compose = composition,                                                                           \
        .lower = lower,                                                                                   \
    };                                                                                                    \
    strata_tensor *strata_reduce_##which(strata_tensor *x, const int *axes, int n_axes, bool keep_dims) { \
        return reduce(&strata_op_reduce_##which, x, axes, n_axes, keep_dims);                             \
    }

REDUCTION(sum, NULL, sum_gradient, sum_compose)
REDUCTION(mean, mean_part, mean_gradient, mean_compose)
REDUCTION(max, NULL, extreme_gradient, extreme_compose)
REDUCTION(min, NULL, extreme_gradient, extreme_compose)
