/* SPDX-License-Identifier: Apache-2.0
 *
 * segment_sum: sums of neighbouring elements, one for each segment: y_s = x_e(s-1) + ... + x_(e(s) - 1), where e(s) is
 * the end of segment s. The optimizers use it to compute the norm of each parameter in a flat range. */
#include "core/op/define.h"

enum { X, ENDS };

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[X], *ends = node->inputs[ENDS];
    STRATA_TRY(strata_check_dtype(x, "x", 1u << STRATA_DTYPE_F32, err));
    STRATA_TRY(strata_check_dtype(ends, "ends", 1u << STRATA_DTYPE_I32, err));
    if (x->shape.rank != 1 || ends->shape.rank != 1)
        return strata_fail(err, STRATA_INVALID, "x is %s, ends are %s; both must have one axis",
                           strata_shape_text(x->shape).text, strata_shape_text(ends->shape).text);
    node->shape = ends->shape;
    return STRATA_OK;
}

/* The ends are known only at run time. They are limited to the size of x, and a segment that ends before it begins is
 * empty. */
static void reference(strata_op_call *call) {
    const float *x = call->inputs[X];
    const int32_t *ends = call->inputs[ENDS];
    int64_t n = strata_shape_elements(call->node->inputs[X]->shape);
    for (int64_t s = 0; s < strata_shape_elements(call->node->shape); s++) {
        int64_t first = s && ends[s - 1] > 0 ? ends[s - 1] : 0, end = ends[s] < n ? ends[s] : n;
        double sum = 0;
        for (int64_t i = first; i < end; i++) sum += (double)x[i];
        ((float *)call->output)[s] = (float)sum;
    }
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    /* A work-item adds one of the kernel's 256 lanes, four elements in each iteration. */
    enum { LOCAL = 256, EACH = 4 };
    const strata_tensor *x = node->inputs[X];
    if (strata_shape_elements(x->shape) > INT32_MAX)
        return strata_fail(err, STRATA_UNSUPPORTED, "x is %s; kernels take at most 2^31 elements at a time",
                           strata_shape_text(x->shape).text);
    strata_launch launch = strata_launch_of(node, "segment_sum", "f32");
    STRATA_LAUNCH_INTS(&launch, strata_shape_elements(node->shape), strata_shape_elements(x->shape));
    launch.global[0] = LOCAL * strata_shape_elements(node->shape);
    launch.local[0] = LOCAL;
    launch.grid_stride = true;
    strata_launch_turns(&launch,
                        strata_lane_turns(strata_shape_elements(x->shape) * STRATA_LAUNCH_SOFTWARE_LOCAL / (LOCAL * EACH)));
    return strata_lowering_add(lowering, &launch, err);
}

/* Makes a matrix with a row for each segment, where the elements of x outside the segment are 0, and sums each row. */
static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = node->inputs[X], *ends = node->inputs[ENDS];
    strata_graph *graph = node->graph;
    const int64_t n = x->shape.dims[0], s = ends->shape.dims[0];
    if (!n || !s || n > STRATA_MOST_COMPOSED / s) return NULL;
    strata_tensor *begins[] = {strata_reshape(strata_scalar(graph, STRATA_DTYPE_I32, 0), STRATA_SHAPE(1)),
                               s > 1 ? strata_slice(ends, (int64_t[]){0}, (int64_t[]){s - 1}) : NULL};
    strata_tensor *begin = s > 1 ? strata_concat(begins, 2, 0) : begins[0], *places = strata_arange(graph, n);
    strata_tensor *inside = strata_less(places, strata_reshape(ends, STRATA_SHAPE(s, 1)));
    strata_tensor *before = strata_less(places, strata_reshape(begin, STRATA_SHAPE(s, 1)));
    inside = strata_where(before, strata_scalar(graph, STRATA_DTYPE_BOOL, 0), inside);
    return strata_reduce_sum(strata_where(inside, x, strata_scalar(graph, x->dtype, 0)), (int[]){1}, 1, false);
}

const strata_op strata_op_segment_sum = {
    .name = "segment_sum",
    .n_inputs = 2,
    .shape = shape,
    .no_gradient = "it serves optimizers",
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

strata_tensor *strata_segment_sum(strata_tensor *x, strata_tensor *ends) {
    return strata_node(NULL, &strata_op_segment_sum, 2, (strata_tensor *[]){x, ends}, NULL);
}
