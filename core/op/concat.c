/* SPDX-License-Identifier: Apache-2.0
 *
 * concat: concatenates tensors along an axis; their shapes may differ only in this axis. gradient: the slices of dy at the
 * positions of the operands. */
#include "core/op/define.h"

typedef struct concat_attrs {
    int64_t axis; /* may be negative: it then counts from the last axis */
} concat_attrs;

static int axis_of(const strata_tensor *node) {
    int64_t axis = ((const concat_attrs *)node->attrs)->axis;
    return (int)(axis < 0 ? axis + node->shape.rank : axis);
}

/* Whether the shapes are equal except for their sizes along the axis. */
static bool alike(strata_shape a, strata_shape b, int axis) {
    if (a.rank != b.rank) return false;
    for (int d = 0; d < a.rank; d++)
        if (d != axis && a.dims[d] != b.dims[d]) return false;
    return true;
}

static strata_status concat_shape(strata_tensor *node, strata_error *err) {
    const concat_attrs *attrs = node->attrs;
    const strata_tensor *first = node->inputs[0];
    int axis;
    STRATA_TRY(strata_check_axis(attrs->axis, first->shape.rank, &axis, err));
    for (int i = 1; i < node->n_inputs; i++) {
        const strata_tensor *x = node->inputs[i];
        if (x->dtype != first->dtype)
            return strata_fail(err, STRATA_INVALID, "x[0] is %s, x[%d] is %s; they must be of one dtype: use strata_cast",
                               strata_dtype_name(first->dtype), i, strata_dtype_name(x->dtype));
        if (!alike(first->shape, x->shape, axis))
            return strata_fail(err, STRATA_INVALID, "x[0] is %s, x[%d] is %s; all axes but %d must be equal",
                               strata_shape_text(first->shape).text, i, strata_shape_text(x->shape).text, axis);
        if (__builtin_add_overflow(node->shape.dims[axis], x->shape.dims[axis], &node->shape.dims[axis]))
            return strata_fail(err, STRATA_INVALID, "axis %d of the result is beyond 2^63", axis);
    }
    return STRATA_OK;
}

static void concat_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const int axis = axis_of(node);
    int64_t begin[STRATA_MAX_RANK] = {0};
    for (int i = 0; i < node->n_inputs; i++) {
        dx[i] = strata_slice(dy, begin, node->inputs[i]->shape.dims);
        begin[axis] += node->inputs[i]->shape.dims[axis];
    }
}

/* The copy of operand i to the result, where it begins at `position` along the axis. */
static strata_copy describe(const strata_tensor *node, int i, int64_t position) {
    strata_copy copy = {.source = node->inputs[i], .target = node, .shape = node->inputs[i]->shape};
    strata_row_major_strides(copy.shape, copy.source_strides);
    strata_row_major_strides(node->shape, copy.target_strides);
    copy.target_offset = position * copy.target_strides[axis_of(node)];
    return copy;
}

static void concat_reference(strata_op_call *call) {
    int64_t position = 0;
    for (int i = 0; i < call->node->n_inputs; i++) {
        strata_copy copy = describe(call->node, i, position);
        strata_copy_reference(&copy, call->inputs[i], call->output);
        position += copy.shape.dims[axis_of(call->node)];
    }
}

static strata_status concat_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    int64_t position = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        strata_copy copy = describe(node, i, position);
        STRATA_TRY(strata_copy_lower(&copy, lowering, err));
        position += copy.shape.dims[axis_of(node)];
    }
    return STRATA_OK;
}

/* Pads each operand with -0 to the whole shape and adds them all. Adding -0 changes no number. */
static strata_tensor *concat_compose(strata_tensor *node) {
    const int axis = axis_of(node);
    int64_t before[STRATA_MAX_RANK] = {0}, after[STRATA_MAX_RANK] = {0};
    strata_tensor *sum = NULL;
    if (node->dtype == STRATA_DTYPE_U8 || node->dtype == STRATA_DTYPE_BOOL) return NULL;
    for (int i = 0; i < node->n_inputs; i++) {
        strata_tensor *x = node->inputs[i];
        after[axis] = node->shape.dims[axis] - before[axis] - x->shape.dims[axis];
        strata_tensor *padded = strata_pad(x, before, after, -0.0);
        sum = sum ? strata_add(sum, padded) : padded;
        before[axis] += x->shape.dims[axis];
    }
    return sum;
}

/* All axes but the one along which the operands follow each other. */
static void concat_factors(const strata_tensor *node, strata_factors *factors) {
    const int axis = axis_of(node);
    for (int i = 0; i <= node->n_inputs; i++)
        for (int d = 0; d < node->shape.rank; d++)
            if (d != axis) strata_factors_set(factors, node, i, d, d);
}

const strata_op strata_op_concat = {.name = "concat",
                                    .n_inputs = 1,
                                    .optional_inputs = -1,
                                    .attrs_bytes = sizeof(concat_attrs),
                                    .attrs = {{"axis", STRATA_ATTR_INT, offsetof(concat_attrs, axis)}},
                                    .factors = concat_factors,
                                    .linearity = STRATA_LINEAR_JOINTLY,
                                    .shape = concat_shape,
                                    .gradient = concat_gradient,
                                    .reference = concat_reference,
                                    .compose = concat_compose,
                                    .lower = concat_lower};

strata_tensor *strata_concat(strata_tensor *const *x, int n_x, int axis) {
    return strata_node(NULL, &strata_op_concat, n_x, x, &(concat_attrs){.axis = axis});
}
