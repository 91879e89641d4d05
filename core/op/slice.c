/* SPDX-License-Identifier: Apache-2.0
 *
 * slice: y = x[begin[i] : begin[i] + size[i]] along each axis i.   gradient: dy padded with zeros to x's shape. */
#include "core/op/attrs.h"
#include "core/op/define.h"

static strata_status slice_shape(strata_tensor *node, strata_error *err) {
    const strata_slice_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    for (int d = 0; d < x->shape.rank; d++) {
        const int64_t begin = attrs->begin[d], size = attrs->size[d], limit = x->shape.dims[d];
        if (begin < 0 || size < 0 || begin > limit || size > limit - begin)
            return strata_fail(err, STRATA_INVALID,
                               "%" PRId64 " elements from %" PRId64 " on along axis %d of x, which is %s: it has %" PRId64
                               " there",
                               size, begin, d, strata_shape_text(x->shape).text, limit);
        node->shape.dims[d] = size;
    }
    return STRATA_OK;
}

static void slice_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_slice_attrs *attrs = node->attrs;
    int64_t after[STRATA_MAX_RANK] = {0};
    for (int d = 0; d < node->shape.rank; d++) after[d] = node->inputs[0]->shape.dims[d] - attrs->begin[d] - attrs->size[d];
    dx[0] = strata_pad(dy, attrs->begin, after, 0);
}

static strata_copy describe(const strata_tensor *node) {
    const strata_slice_attrs *attrs = node->attrs;
    strata_copy copy = {.source = node->inputs[0], .target = node, .shape = node->shape};
    strata_row_major_strides(node->inputs[0]->shape, copy.source_strides);
    strata_row_major_strides(node->shape, copy.target_strides);
    for (int d = 0; d < node->shape.rank; d++) copy.source_offset += attrs->begin[d] * copy.source_strides[d];
    return copy;
}

bool strata_slice_is_view(const strata_tensor *node, int64_t *out_first_element) {
    const strata_shape from = node->inputs[0]->shape;
    /* the last axis that is not taken completely; the slice is a view only if it has size 1 along all axes before it */
    int cut = node->shape.rank - 1;
    *out_first_element = describe(node).source_offset;
    if (strata_shape_elements(node->shape) == 0) return false;
    while (cut >= 0 && node->shape.dims[cut] == from.dims[cut]) cut--;
    for (int d = 0; d < cut; d++)
        if (node->shape.dims[d] != 1) return false;
    return true;
}

STRATA_COPY_FUNCTIONS

/* The axes that are taken completely. */
static void slice_factors(const strata_tensor *node, strata_factors *factors) {
    for (int d = 0; d < node->shape.rank; d++)
        for (int i = 0; i < 2 && node->shape.dims[d] == node->inputs[0]->shape.dims[d]; i++)
            strata_factors_set(factors, node, i, d, d);
}

static strata_tensor *slice_part(const strata_node_part *part) {
    strata_slice_attrs attrs = *(const strata_slice_attrs *)part->node->attrs;
    for (int d = 0; d < part->shape.rank; d++) attrs.size[d] = part->shape.dims[d];
    return strata_node_part_with(part, &attrs);
}

const strata_op strata_op_slice = {.name = "slice",
                                   .n_inputs = 1,
                                   .attrs_bytes = sizeof(strata_slice_attrs),
                                   .attrs = {{"begin", STRATA_ATTR_INTS, offsetof(strata_slice_attrs, begin)},
                                             {"size", STRATA_ATTR_INTS, offsetof(strata_slice_attrs, size)}},
                                   .factors = slice_factors,
                                   .part = slice_part,
                                   .linearity = STRATA_LINEAR_JOINTLY,
                                   .shape = slice_shape,
                                   .gradient = slice_gradient,
                                   .reference = reference,
                                   .lower = lower};

strata_tensor *strata_slice(strata_tensor *x, const int64_t *begin, const int64_t *size) {
    strata_slice_attrs attrs = {0};
    const int rank = strata_tensor_is_poison(x) ? 0 : x->shape.rank;
    for (int d = 0; d < rank; d++) {
        attrs.begin[d] = begin[d];
        attrs.size[d] = size[d];
    }
    return strata_node(NULL, &strata_op_slice, 1, &x, &attrs);
}
