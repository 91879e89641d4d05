/* SPDX-License-Identifier: Apache-2.0
 *
 * transpose: y's axis i is x's axis axes[i].   gradient: dy transposed by the inverse permutation. */
#include "core/op/define.h"

typedef struct transpose_attrs {
    int64_t axes[STRATA_MAX_RANK]; /* a permutation of 0 .. rank-1; negative ones count from the back */
} transpose_attrs;

/* Returns the axes counted from the front. Fails, naming the axis, if one is out of range or occurs twice. */
static strata_status permutation(const strata_tensor *node, int *out_axes, strata_error *err) {
    const transpose_attrs *attrs = node->attrs;
    const int rank = node->inputs[0]->shape.rank;
    bool taken[STRATA_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) {
        int64_t axis = attrs->axes[i] < 0 ? attrs->axes[i] + rank : attrs->axes[i];
        if (axis < 0 || axis >= rank || taken[axis])
            return strata_fail(err, STRATA_INVALID,
                               "axes[%d] is %" PRId64 "; x is %s: each of its axes 0 to %d must be named once", i,
                               attrs->axes[i], strata_shape_text(node->inputs[0]->shape).text, rank - 1);
        taken[axis] = true;
        out_axes[i] = (int)axis;
    }
    return STRATA_OK;
}

static strata_status transpose_shape(strata_tensor *node, strata_error *err) {
    int axes[STRATA_MAX_RANK];
    STRATA_TRY(permutation(node, axes, err));
    for (int i = 0; i < node->shape.rank; i++) node->shape.dims[i] = node->inputs[0]->shape.dims[axes[i]];
    return STRATA_OK;
}

static void transpose_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    int axes[STRATA_MAX_RANK], inverse[STRATA_MAX_RANK] = {0};
    if (permutation(node, axes, NULL)) return; /* cannot fail: the shape rule accepted the axes */
    for (int i = 0; i < node->shape.rank; i++) inverse[axes[i]] = i;
    dx[0] = strata_transpose(dy, inverse);
}

static strata_copy describe(const strata_tensor *node) {
    int axes[STRATA_MAX_RANK] = {0};
    int64_t strides[STRATA_MAX_RANK];
    strata_copy copy = {.source = node->inputs[0], .target = node, .shape = node->shape};
    (void)!permutation(node, axes, NULL); /* cannot fail: the shape rule accepted the axes */
    strata_row_major_strides(node->inputs[0]->shape, strides);
    strata_row_major_strides(node->shape, copy.target_strides);
    for (int i = 0; i < node->shape.rank; i++) copy.source_strides[i] = strides[axes[i]];
    return copy;
}

STRATA_COPY_FUNCTIONS

static void transpose_factors(const strata_tensor *node, strata_factors *factors) {
    int axes[STRATA_MAX_RANK];
    if (permutation(node, axes, NULL)) return;
    for (int d = 0; d < node->shape.rank; d++) {
        strata_factors_set(factors, node, 0, axes[d], axes[d]);
        strata_factors_set(factors, node, 1, d, axes[d]);
    }
}

const strata_op strata_op_transpose = {.name = "transpose",
                                       .n_inputs = 1,
                                       .attrs_bytes = sizeof(transpose_attrs),
                                       .attrs = {{"axes", STRATA_ATTR_INTS, offsetof(transpose_attrs, axes)}},
                                       .factors = transpose_factors,
                                       .linearity = STRATA_LINEAR_JOINTLY,
                                       .shape = transpose_shape,
                                       .gradient = transpose_gradient,
                                       .reference = reference,
                                       .lower = lower};

strata_tensor *strata_transpose(strata_tensor *x, const int *axes) {
    transpose_attrs attrs = {{0}};
    const int rank = strata_tensor_is_poison(x) ? 0 : x->shape.rank;
    for (int i = 0; i < rank; i++) attrs.axes[i] = axes ? axes[i] : rank - 1 - i;
    return strata_node(NULL, &strata_op_transpose, 1, &x, &attrs);
}
