/* SPDX-License-Identifier: Apache-2.0
 *
 * first_index: the first position of each number.   x (...) integers -> y (n) i32: y[r] = 1 + the least j with x[j] = r,
 * in row-major order; 0 if no element of x is r. Elements outside 0 .. n - 1 are ignored. No gradient. It lets
 * strata_unique work without sorting. */
#include "core/op/define.h"

typedef struct first_index_attrs {
    int64_t n;
} first_index_attrs;

static strata_status shape(strata_tensor *node, strata_error *err) {
    const int64_t n = ((const first_index_attrs *)node->attrs)->n;
    const strata_tensor *x = node->inputs[0];
    STRATA_TRY(strata_check_dtype(x, "x", STRATA_INDICES, err));
    if (n < 0 || n > INT32_MAX || strata_shape_elements(x->shape) > INT32_MAX)
        return strata_fail(err, STRATA_INVALID, "x is %s, n is %" PRId64 "; n must be 0..%d, and x have no more elements",
                           strata_shape_text(x->shape).text, n, INT32_MAX);
    node->dtype = STRATA_DTYPE_I32;
    node->shape = STRATA_SHAPE(n);
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    const int64_t n = call->node->shape.dims[0];
    const strata_tensor *x = call->node->inputs[0];
    int32_t *y = call->output;
    if (n) memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t j = strata_shape_elements(x->shape) - 1; j >= 0; j--) {
        const int64_t r = strata_integer_get(x->dtype, call->inputs[0], j);
        if (r >= 0 && r < n) y[r] = (int32_t)(j + 1);
    }
}

enum {
    /* The most work-items. Each reads all of x and handles some of the numbers 0 .. n - 1, so more work-items would cost
     * more in reads than they gain. */
    MOST_ITEMS = 4096,
    /* The most iterations of a work-item's loop (shaders/README.md). */
    MOST_TURNS = 60000
};

/* The launches process runs of x, the last run first, so that a later launch overwrites a position by an earlier one. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    const int64_t n = node->shape.dims[0], all = strata_shape_elements(x->shape);
    STRATA_TRY(strata_fill_lower(node, 0, lowering, err));
    for (int64_t end = all; end > 0; end -= MOST_TURNS) {
        const int64_t first = end > MOST_TURNS ? end - MOST_TURNS : 0;
        strata_launch launch = strata_launch_of(node, "first_index", strata_dtype_name(x->dtype));
        launch.offsets[0] = first;
        launch.extents[0] = end - first;
        launch.global[0] = n < MOST_ITEMS ? n : MOST_ITEMS;
        launch.grid_stride = launch.few_groups = true;
        STRATA_LAUNCH_INTS(&launch, end - first, n, first);
        STRATA_TRY(strata_lowering_add(lowering, &launch, err));
    }
    return STRATA_OK;
}

/* Makes a mask with a row for each number and a column for each position of x, and takes the smallest position in each
 * row, counted from 1. */
static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[0];
    strata_graph *graph = node->graph;
    const int64_t n = node->shape.dims[0], m = strata_shape_elements(x->shape);
    if (!n || !m || n > STRATA_MOST_COMPOSED / m) return NULL;
    strata_tensor *numbers = strata_cast(strata_reshape(strata_arange(graph, n), STRATA_SHAPE(n, 1)), x->dtype);
    strata_tensor *has = strata_equal(strata_reshape(x, STRATA_SHAPE(1, m)), numbers);
    strata_tensor *places = strata_add(strata_arange(graph, m), strata_scalar(graph, STRATA_DTYPE_I32, 1));
    strata_tensor *none = strata_scalar(graph, STRATA_DTYPE_I32, INT32_MAX);
    strata_tensor *least = strata_reduce_min(strata_where(has, places, none), (int[]){1}, 1, false);
    return strata_where(strata_equal(least, none), strata_scalar(graph, STRATA_DTYPE_I32, 0), least);
}

const strata_op strata_op_first_index = {.name = "first_index",
                                         .n_inputs = 1,
                                         .attrs_bytes = sizeof(first_index_attrs),
                                         .attrs = {{"n", STRATA_ATTR_INT, offsetof(first_index_attrs, n)}},
                                         .shape = shape,
                                         .reference = reference,
                                         .compose = compose,
                                         .lower = lower};

strata_tensor *strata_first_index(strata_tensor *x, int64_t n) {
    return strata_node(NULL, &strata_op_first_index, 1, &x, &(first_index_attrs){.n = n});
}

strata_tensor *strata_arange(strata_graph *graph, int64_t n) {
    int32_t *values = n >= 0 && n <= INT32_MAX ? strata_graph_alloc(graph, (size_t)(n ? n : 1) * sizeof *values) : NULL;
    if (!values)
        return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "arange: no host memory for %" PRId64 " numbers", n);
    for (int64_t i = 0; i < n; i++) values[i] = (int32_t)i;
    const strata_array view = strata_array_view(STRATA_DTYPE_I32, STRATA_SHAPE(n), values);
    return strata_constant(graph, &view);
}

/* For a number out of range gather returns 0, because it has no first position; 0 - 1 is the result -1. */
strata_tensor *strata_unique(strata_tensor *x, int64_t n, strata_tensor **out_inverse) {
    strata_tensor *first = strata_first_index(x, n);
    *out_inverse = first;
    if (!first || strata_tensor_is_poison(first)) return first;
    const int64_t all = strata_shape_elements(x->shape);
    strata_tensor *one = strata_scalar(x->graph, STRATA_DTYPE_I32, 1);
    strata_tensor *inverse = strata_sub(strata_gather(first, x, 0), one);
    *out_inverse = inverse;
    strata_tensor *is_first = strata_equal(strata_reshape(inverse, STRATA_SHAPE(all)), strata_arange(x->graph, all));
    return strata_where(is_first, strata_reshape(x, STRATA_SHAPE(all)), strata_scalar(x->graph, x->dtype, -1));
}
