/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast_to repeats x along axes of size 1 and along new leading axes: y_i = x at i's coordinates, without those along
 * which x has size 1.   x: any shape that broadcasts to y's.
 * gradient: dy summed over the broadcast axes.
 * The broadcasting rule and this sum, which other ops use too, are also in this file. */
#include "core/op/define.h"

strata_status strata_broadcast_shape(strata_shape a, const char *a_name, strata_shape b, const char *b_name,
                                     strata_shape *out_shape, strata_error *err) {
    strata_shape shape = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int d = 0; d < shape.rank; d++) {
        int ad = d - (shape.rank - a.rank), bd = d - (shape.rank - b.rank);
        int64_t from_a = ad < 0 ? 1 : a.dims[ad], from_b = bd < 0 ? 1 : b.dims[bd];
        if (from_a != from_b && from_a != 1 && from_b != 1)
            return strata_fail(
                err, STRATA_INVALID,
                "%s is %s, %s is %s; %s's %" PRId64 " and %s's %" PRId64 " meet in one axis: sizes must be equal or 1", a_name,
                strata_shape_text(a).text, b_name, strata_shape_text(b).text, a_name, from_a, b_name, from_b);
        shape.dims[d] = from_a == 1 ? from_b : from_a;
    }
    *out_shape = shape;
    return STRATA_OK;
}

strata_tensor *strata_sum_to(strata_tensor *dy, strata_shape shape) {
    if (strata_tensor_is_poison(dy) || strata_shape_equal(dy->shape, shape)) return dy;
    int axes[STRATA_MAX_RANK], n_axes = 0;
    const int missing = dy->shape.rank - shape.rank;
    for (int d = 0; d < dy->shape.rank; d++)
        if (d < missing || (shape.dims[d - missing] == 1 && dy->shape.dims[d] != 1)) axes[n_axes++] = d;
    strata_tensor *sum = n_axes ? strata_reduce_sum(dy, axes, n_axes, true) : dy;
    return strata_reshape(sum, shape);
}

static strata_status broadcast_to_shape(strata_tensor *node, strata_error *err) {
    const strata_broadcast_to_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    strata_shape together;
    STRATA_TRY(strata_shape_check(attrs->shape, err));
    if (x->shape.rank > attrs->shape.rank)
        return strata_fail(err, STRATA_INVALID, "x is %s, the shape wanted is %s; it has fewer axes",
                           strata_shape_text(x->shape).text, strata_shape_text(attrs->shape).text);
    STRATA_TRY(strata_broadcast_shape(x->shape, "x", attrs->shape, "the shape wanted", &together, err));
    if (!strata_shape_equal(together, attrs->shape))
        return strata_fail(err, STRATA_INVALID, "x is %s, the shape wanted is %s; only axes of size 1 can be repeated",
                           strata_shape_text(x->shape).text, strata_shape_text(attrs->shape).text);
    node->shape = attrs->shape;
    return STRATA_OK;
}

static void broadcast_to_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_sum_to(dy, node->inputs[0]->shape);
}

static strata_copy describe(const strata_tensor *node) {
    strata_copy copy = {.source = node->inputs[0], .target = node, .shape = node->shape};
    strata_broadcast_strides(node->inputs[0]->shape, node->shape, copy.source_strides);
    strata_row_major_strides(node->shape, copy.target_strides);
    return copy;
}

STRATA_COPY_FUNCTIONS

/* Adds x to a constant -0 of y's shape; x + -0 is x for every x. */
static strata_tensor *broadcast_to_compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[0];
    if (node->dtype == STRATA_DTYPE_U8 || node->dtype == STRATA_DTYPE_BOOL) return NULL;
    const bool same = strata_shape_equal(x->shape, node->shape);
    strata_tensor *zero = strata_filled(node->graph, node->dtype, same ? STRATA_SHAPE() : node->shape, -0.0);
    return zero ? strata_add(x, zero) : NULL;
}

const strata_op strata_op_broadcast_to = {.name = "broadcast_to",
                                          .n_inputs = 1,
                                          .attrs_bytes = sizeof(strata_broadcast_to_attrs),
                                          .attrs = {{"shape", STRATA_ATTR_SHAPE, offsetof(strata_broadcast_to_attrs, shape)}},
                                          .dims = "...->...",
                                          .linearity = STRATA_LINEAR_JOINTLY,
                                          .shape = broadcast_to_shape,
                                          .gradient = broadcast_to_gradient,
                                          .reference = reference,
                                          .compose = broadcast_to_compose,
                                          .lower = lower};

strata_tensor *strata_broadcast_to(strata_tensor *x, strata_shape shape) {
    if (!strata_tensor_is_poison(x) && strata_shape_equal(x->shape, shape)) return x;
    return strata_node(NULL, &strata_op_broadcast_to, 1, &x, &(strata_broadcast_to_attrs){.shape = shape});
}
