/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean of rows of x along the last axis of the indices: y[j] = 1/T sum_t x[indices[j, t]].
 * x: (A, inner...), indices: (J..., T) -> y: (J..., inner...); an index not in 0..A-1 counts as a row of zeros. Only families
 * have kernels for this op: other devices run gather and reduce_mean. */
#include "core/op/gather_mean.h"

#include <stdlib.h>

#include "core/op/define.h"

extern const strata_op strata_op_gather_mean, strata_op_gather, strata_op_reduce_mean;

strata_gather_mean_sizes strata_gather_mean_sizes_of(const strata_tensor *node) {
    const strata_shape x = node->inputs[0]->shape, indices = node->inputs[1]->shape;
    strata_axes axes = {1, indices.dims[indices.rank - 1], 1};
    for (int d = 0; d < indices.rank - 1; d++) axes.outer *= indices.dims[d];
    for (int d = 1; d < x.rank; d++) axes.inner *= x.dims[d];
    return (strata_gather_mean_sizes){x.dims[0], strata_reduce_order_along(axes)};
}

static strata_status shape(strata_tensor *node, strata_error *err) {
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

static void reference(strata_op_call *call) {
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

static strata_tensor *compose(strata_tensor *node) {
    const int last = node->inputs[1]->shape.rank - 1;
    return strata_reduce_mean(strata_gather(node->inputs[0], node->inputs[1], 0), &last, 1, false);
}

const strata_op strata_op_gather_mean = {.name = "gather_mean",
                                         .n_inputs = 2,
                                         .shape = shape,
                                         .no_gradient = "it is made of others when a graph is compiled",
                                         .reference = reference,
                                         .compose = compose};

strata_tensor *strata_gather_mean_of(strata_tensor *node) {
    if (node->op != &strata_op_reduce_mean || node->inputs[0]->op != &strata_op_gather) return NULL;
    const strata_reduce_attrs *mean = node->attrs;
    strata_tensor *x = node->inputs[0]->inputs[0], *indices = node->inputs[0]->inputs[1];
    const int64_t axis = *(const int64_t *)node->inputs[0]->attrs; /* the only attribute of gather */
    const bool along_last = mean->n_axes == 1 && mean->axis == indices->shape.rank - 1 && !mean->keep_dims;
    if ((axis != 0 && axis != -x->shape.rank) || indices->shape.rank < 1 || !along_last || !strata_dtype_is_float(x->dtype))
        return NULL;
    return strata_node(NULL, &strata_op_gather_mean, 2, (strata_tensor *[]){x, indices}, NULL);
}
