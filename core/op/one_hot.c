/* SPDX-License-Identifier: Apache-2.0
 *
 * one_hot: y[..., d] = 1 where indices[...] is d, else 0; an index not in 0..depth-1 gives a row of zeros. No gradient. */
#include "core/op/define.h"

typedef struct one_hot_attrs {
    int64_t depth;
    int64_t dtype; /* the strata_dtype of y */
} one_hot_attrs;

static strata_status one_hot_shape(strata_tensor *node, strata_error *err) {
    const one_hot_attrs *attrs = node->attrs;
    const strata_tensor *indices = node->inputs[0];
    STRATA_TRY(strata_check_dtype(indices, "indices", STRATA_INDICES, err));
    if (attrs->dtype < 0 || attrs->dtype >= STRATA_DTYPE_COUNT)
        return strata_fail(err, STRATA_INVALID, "dtype %d is not known", (int)attrs->dtype);
    if (attrs->depth < 1 || attrs->depth > INT32_MAX)
        return strata_fail(err, STRATA_INVALID, "depth is %" PRId64 "; it must be 1 to %d", attrs->depth, INT32_MAX);
    if (indices->shape.rank == STRATA_MAX_RANK)
        return strata_fail(err, STRATA_INVALID, "indices are %s; the result would have rank %d, the limit is %d",
                           strata_shape_text(indices->shape).text, STRATA_MAX_RANK + 1, STRATA_MAX_RANK);
    node->dtype = (strata_dtype)attrs->dtype;
    node->shape.dims[node->shape.rank++] = attrs->depth;
    return STRATA_OK;
}

static void one_hot_reference(strata_op_call *call) {
    const one_hot_attrs *attrs = call->node->attrs;
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = strata_integer_get(call->node->inputs[0]->dtype, call->inputs[0], i / attrs->depth);
        strata_element_set(call->node->dtype, call->output, i, index == i % attrs->depth);
    }
}

static strata_status one_hot_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const one_hot_attrs *attrs = node->attrs;
    const strata_tensor *indices = node->inputs[0];
    strata_launch launch = strata_launch_of(node, "one_hot", strata_bits_by_index_variant(node->dtype, indices->dtype));
    STRATA_TRY(strata_launch_flat(&launch, strata_shape_elements(node->shape), err));
    STRATA_LAUNCH_INTS(&launch, attrs->depth);
    strata_bits_words(&launch, node->dtype, 1);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *one_hot_compose(strata_tensor *node) {
    const one_hot_attrs *attrs = node->attrs;
    strata_tensor *indices = node->inputs[0];
    strata_shape column = indices->shape;
    if (attrs->depth > STRATA_MOST_COMPOSED) return NULL;
    column.dims[column.rank++] = 1;
    strata_tensor *places = strata_cast(strata_arange(node->graph, attrs->depth), indices->dtype);
    return strata_cast(strata_equal(strata_reshape(indices, column), places), node->dtype);
}

const strata_op strata_op_one_hot = {.name = "one_hot",
                                     .n_inputs = 1,
                                     .attrs_bytes = sizeof(one_hot_attrs),
                                     .attrs = {{"depth", STRATA_ATTR_INT, offsetof(one_hot_attrs, depth)},
                                               {"dtype", STRATA_ATTR_INT, offsetof(one_hot_attrs, dtype)}},
                                     .words = strata_dtype_words,
                                     .dims = "...->...D",
                                     .shape = one_hot_shape,
                                     .reference = one_hot_reference,
                                     .compose = one_hot_compose,
                                     .lower = one_hot_lower};

strata_tensor *strata_one_hot(strata_tensor *indices, int64_t depth, strata_dtype dtype) {
    return strata_node(NULL, &strata_op_one_hot, 1, &indices, &(one_hot_attrs){.depth = depth, .dtype = dtype});
}
