/* SPDX-License-Identifier: Apache-2.0
 *
 * pad: x with before[i] and after[i] elements of one value around axis i.   gradient: the slice of dy where x lies. */
#include "core/op/define.h"

typedef struct pad_attrs {
    int64_t before[STRATA_MAX_RANK], after[STRATA_MAX_RANK];
    double value;
} pad_attrs;

static strata_status pad_shape(strata_tensor *node, strata_error *err) {
    const pad_attrs *attrs = node->attrs;
    const strata_tensor *x = node->inputs[0];
    for (int d = 0; d < x->shape.rank; d++) {
        int64_t *size = &node->shape.dims[d];
        if (attrs->before[d] < 0 || attrs->after[d] < 0)
            return strata_fail(err, STRATA_INVALID,
                               "%" PRId64 " before and %" PRId64 " after along axis %d; it can't take away: use strata_slice",
                               attrs->before[d], attrs->after[d], d);
        if (__builtin_add_overflow(x->shape.dims[d], attrs->before[d], size) ||
            __builtin_add_overflow(*size, attrs->after[d], size))
            return strata_fail(err, STRATA_INVALID,
                               "%" PRId64 " before and %" PRId64 " after along axis %d of %s is beyond 2^63", attrs->before[d],
                               attrs->after[d], d, strata_shape_text(x->shape).text);
    }
    return STRATA_OK;
}

static void pad_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const pad_attrs *attrs = node->attrs;
    dx[0] = strata_slice(dy, attrs->before, node->inputs[0]->shape.dims);
}

/* The copy of x to its place inside the result. */
static strata_copy describe(const strata_tensor *node) {
    const pad_attrs *attrs = node->attrs;
    strata_copy copy = {.source = node->inputs[0], .target = node, .shape = node->inputs[0]->shape};
    strata_row_major_strides(copy.shape, copy.source_strides);
    strata_row_major_strides(node->shape, copy.target_strides);
    for (int d = 0; d < node->shape.rank; d++) copy.target_offset += attrs->before[d] * copy.target_strides[d];
    return copy;
}

static void pad_reference(strata_op_call *call) {
    const pad_attrs *attrs = call->node->attrs;
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(call->node->dtype, call->output, i, attrs->value);
    strata_copy copy = describe(call->node);
    strata_copy_reference(&copy, call->inputs[0], call->output);
}

static strata_status pad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const pad_attrs *attrs = node->attrs;
    STRATA_TRY(strata_fill_lower(node, attrs->value, lowering, err));
    strata_copy copy = describe(node);
    return strata_copy_lower(&copy, lowering, err);
}

/* The axes that are not padded. */
static void pad_factors(const strata_tensor *node, strata_factors *factors) {
    const pad_attrs *attrs = node->attrs;
    for (int d = 0; d < node->shape.rank; d++)
        for (int i = 0; i < 2 && !attrs->before[d] && !attrs->after[d]; i++) strata_factors_set(factors, node, i, d, d);
    if (attrs->value == 0) factors->linearity = STRATA_LINEAR_JOINTLY;
}

const strata_op strata_op_pad = {.name = "pad",
                                 .n_inputs = 1,
                                 .attrs_bytes = sizeof(pad_attrs),
                                 .attrs = {{"before", STRATA_ATTR_INTS, offsetof(pad_attrs, before)},
                                           {"after", STRATA_ATTR_INTS, offsetof(pad_attrs, after)},
                                           {"value", STRATA_ATTR_FLOAT, offsetof(pad_attrs, value)}},
                                 .factors = pad_factors,
                                 .shape = pad_shape,
                                 .gradient = pad_gradient,
                                 .reference = pad_reference,
                                 .lower = pad_lower};

strata_tensor *strata_pad(strata_tensor *x, const int64_t *before, const int64_t *after, double value) {
    pad_attrs attrs = {.value = value};
    const int rank = strata_tensor_is_poison(x) ? 0 : x->shape.rank;
    for (int d = 0; d < rank; d++) {
        attrs.before[d] = before[d];
        attrs.after[d] = after[d];
    }
    return strata_node(NULL, &strata_op_pad, 1, &x, &attrs);
}
