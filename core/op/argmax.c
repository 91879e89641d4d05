/* SPDX-License-Identifier: Apache-2.0
 *
 * Index of the first maximum along one axis. */
#include "core/op/define.h"

typedef struct argmax_attrs {
    int64_t axis;
} argmax_attrs;

static strata_axes axes_of(const strata_tensor *node) {
    const strata_tensor *x = node->inputs[0];
    int64_t axis = ((const argmax_attrs *)node->attrs)->axis;
    return strata_axes_of(x->shape, axis < 0 ? axis + x->shape.rank : axis, 1);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    int axis;
    STRATA_TRY(strata_check_axis(((const argmax_attrs *)node->attrs)->axis, x->shape.rank, &axis, err));
    if (x->shape.dims[axis] < 1 || x->shape.dims[axis] > INT32_MAX)
        return strata_fail(err, STRATA_INVALID, "x is %s; axis %d must have 1 to %" PRId32 " elements",
                           strata_shape_text(x->shape).text, axis, INT32_MAX);
    node->dtype = STRATA_DTYPE_I32;
    node->shape = (strata_shape){0};
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis) node->shape.dims[node->shape.rank++] = x->shape.dims[i];
    return STRATA_OK;
}

static void reference(strata_op_call *call) {
    strata_axes axes = axes_of(call->node);
    strata_dtype dtype = call->node->inputs[0]->dtype;
    for (int64_t at = 0; at < axes.outer * axes.inner; at++) {
        int64_t first = at / axes.inner * axes.n * axes.inner + at % axes.inner, best = 0;
        for (int64_t i = 1; i < axes.n; i++)
            if (strata_element_above(dtype, call->inputs[0], first + i * axes.inner, first + best * axes.inner)) best = i;
        ((int32_t *)call->output)[at] = (int32_t)best;
    }
}

/* The smallest index whose element is the maximum; if the maximum is NaN, the smallest index of a NaN. */
static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[0];
    const int64_t wanted = ((const argmax_attrs *)node->attrs)->axis;
    const int axis = (int)(wanted < 0 ? wanted + x->shape.rank : wanted);
    const int64_t n = x->shape.dims[axis];
    strata_shape along = {.rank = x->shape.rank};
    for (int d = 0; d < along.rank; d++) along.dims[d] = d == axis ? n : 1;
    strata_tensor *is_most = strata_equal(x, strata_reduce_max(x, &axis, 1, true));
    strata_tensor *places = strata_reshape(strata_arange(node->graph, n), along);
    if (strata_dtype_is_float(x->dtype))
        is_most = strata_where(is_most, strata_scalar(node->graph, STRATA_DTYPE_BOOL, 1), strata_not_equal(x, x));
    places = strata_where(is_most, places, strata_scalar(node->graph, STRATA_DTYPE_I32, (double)n));
    return strata_reduce_min(places, &axis, 1, false);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_axes axes = axes_of(node);
    strata_launch launch = strata_launch_of(node, "argmax", strata_dtype_name(node->inputs[0]->dtype));
    STRATA_TRY(strata_launch_rows(&launch, axes.outer * axes.inner, axes.n, axes.inner, 1, err));
    strata_launch_word(&launch)->u32 = (uint32_t)axes.inner;
    return strata_lowering_add(lowering, &launch, err);
}

static void factors(const strata_tensor *node, strata_factors *factors) {
    const int rank = node->inputs[0]->shape.rank;
    const int64_t axis = ((const argmax_attrs *)node->attrs)->axis;
    for (int d = 0, to = 0; d < rank; d++) {
        if (d == (axis < 0 ? axis + rank : axis)) continue;
        strata_factors_set(factors, node, 0, d, d);
        strata_factors_set(factors, node, 1, to++, d);
    }
}

const strata_op strata_op_argmax = {
    .name = "argmax",
    .n_inputs = 1,
    .flags = STRATA_OP_RESOLVED,
    .attrs_bytes = sizeof(argmax_attrs),
    .attrs = {{"axis", STRATA_ATTR_INT, offsetof(argmax_attrs, axis)}},
    .factors = factors,
    .shape = shape,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

strata_tensor *strata_argmax(strata_tensor *x, int axis) {
    argmax_attrs attrs = {.axis = axis};
    return strata_node(NULL, &strata_op_argmax, 1, &x, &attrs);
}
