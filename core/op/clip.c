/* SPDX-License-Identifier: Apache-2.0
 *
 * clip: y = min(max(x, low), high); NaN stays NaN.   gradient: dy where low <= x <= high, that is where y is x.
 * The op takes floats and i32. For i64, the builder makes max and min nodes with constants instead, because kernels
 * receive the bounds as 32-bit words. */
#include "core/op/define.h"

typedef struct clip_attrs {
    double low, high;
} clip_attrs;

static strata_status check_bounds(strata_dtype dtype, double low, double high, strata_error *err) {
    if (!(low <= high)) return strata_fail(err, STRATA_INVALID, "low is %g, high is %g; low must be at most high", low, high);
    if (strata_dtype_is_float(dtype) || (low == floor(low) && high == floor(high))) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "low is %g, high is %g; for x of %s they must be whole numbers or infinite", low,
                       high, strata_dtype_name(dtype));
}

static strata_status clip_shape(strata_tensor *node, strata_error *err) {
    const clip_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    STRATA_TRY(strata_check_dtype(x, "x", STRATA_FLOATS | 1 << STRATA_DTYPE_I32, err));
    return check_bounds(x->dtype, attrs->low, attrs->high, err);
}

static void clip_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *inside = strata_equal(node->inputs[0], node);
    dx[0] = strata_where(inside, dy, strata_scalar(dy->graph, dy->dtype, 0));
}

/* The bound as an i32. A bound outside of the range of i32 becomes the nearest i32. */
static int32_t whole_bound(double bound) {
    int32_t whole;
    strata_element_set(STRATA_DTYPE_I32, &whole, 0, bound);
    return whole;
}

static void clip_reference(strata_op_call *call) {
    const clip_attrs *attrs = call->node->attrs;
    const strata_dtype dtype = call->node->dtype;
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) {
        double x = strata_element_get(dtype, call->inputs[0], i); /* a double represents every i32 exactly */
        strata_element_set(dtype, call->output, i, x < attrs->low ? attrs->low : x > attrs->high ? attrs->high : x);
    }
}

static strata_status clip_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const clip_attrs *attrs = node->attrs;
    strata_launch launch = strata_launch_of(node, "clip", strata_dtype_name(node->dtype));
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    if (strata_dtype_is_float(node->dtype))
        STRATA_LAUNCH_FLOATS(&launch, attrs->low, attrs->high);
    else
        STRATA_LAUNCH_INTS(&launch, whole_bound(attrs->low), whole_bound(attrs->high));
    return strata_lowering_add(lowering, &launch, err);
}

/* Builds max and min nodes with the bounds; an infinite bound needs no node. */
static strata_tensor *clip_compose(strata_tensor *node) {
    const clip_attrs *attrs = node->attrs;
    strata_tensor *x = node->inputs[0];
    if (isfinite(attrs->low)) x = strata_max(x, strata_scalar(x->graph, x->dtype, attrs->low));
    if (isfinite(attrs->high)) x = strata_min(x, strata_scalar(x->graph, x->dtype, attrs->high));
    return x;
}

const strata_op strata_op_clip = {
    .name = "clip",
    .n_inputs = 1,
    .flags = STRATA_OP_ELEMENTWISE,
    .attrs_bytes = sizeof(clip_attrs),
    .attrs = {{"low", STRATA_ATTR_FLOAT, offsetof(clip_attrs, low)}, {"high", STRATA_ATTR_FLOAT, offsetof(clip_attrs, high)}},
    .shape = clip_shape,
    .gradient = clip_gradient,
    .reference = clip_reference,
    .compose = clip_compose,
    .lower = clip_lower};

strata_tensor *strata_clip(strata_tensor *x, double low, double high) {
    if (strata_tensor_is_poison(x) || x->dtype != STRATA_DTYPE_I64)
        return strata_node(NULL, &strata_op_clip, 1, &x, &(clip_attrs){low, high});
    strata_error err;
    strata_status status = check_bounds(x->dtype, low, high, &err);
    if (status) return strata_graph_poison(x->graph, &strata_op_clip, status, "%s", err.message);
    strata_tensor *raised = strata_max(x, strata_scalar(x->graph, x->dtype, low));
    return strata_min(raised, strata_scalar(x->graph, x->dtype, high));
}
