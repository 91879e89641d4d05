/* SPDX-License-Identifier: Apache-2.0
 *
 * reshape: the same elements in the same order under another shape; one dimension of -1 is inferred. A view: it has no kernel.
 * gradient: dy in x's shape. */
#include <string.h>

#include "core/op/attrs.h"
#include "core/op/define.h"

typedef struct reshape_attrs {
    strata_shape shape; /* at most one dimension of -1 */
} reshape_attrs;

static strata_status infer(strata_shape wanted, strata_shape from, strata_shape *out_shape, strata_error *err) {
    int inferred = -1;
    if (wanted.rank < 0 || wanted.rank > STRATA_MAX_RANK) return strata_shape_check(wanted, err);
    for (int d = 0; d < wanted.rank; d++) {
        if (wanted.dims[d] != -1) continue;
        if (inferred >= 0)
            return strata_fail(err, STRATA_INVALID, "the shape wanted is %s; one dimension at most can be -1",
                               strata_shape_text(wanted).text);
        inferred = d;
    }
    strata_shape shape = wanted;
    if (inferred >= 0) shape.dims[inferred] = 1;
    STRATA_TRY(strata_shape_check(shape, err));
    const int64_t elements = strata_shape_elements(from), others = strata_shape_elements(shape);
    if (inferred >= 0 && others > 0 && elements % others == 0) shape.dims[inferred] = elements / others;
    const bool ambiguous = inferred >= 0 && others == 0; /* 0 times any number is 0 */
    if (ambiguous || strata_shape_elements(shape) != elements)
        return strata_fail(err, STRATA_INVALID, "x is %s with %" PRId64 " elements; they can't be laid out as %s",
                           strata_shape_text(from).text, elements, strata_shape_text(wanted).text);
    *out_shape = shape;
    return STRATA_OK;
}

static strata_status reshape_shape(strata_tensor *node, strata_error *err) {
    const reshape_attrs *attrs = node->attrs;
    return infer(attrs->shape, node->inputs[0]->shape, &node->shape, err);
}

static void reshape_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = strata_reshape(dy, node->inputs[0]->shape);
}

static void reshape_reference(strata_op_call *call) {
    size_t bytes = (size_t)strata_tensor_bytes(call->node);
    if (bytes && call->output != call->inputs[0]) memcpy(call->output, call->inputs[0], bytes);
}

/* Runs of dimensions of x and y with the same number of elements belong together; the first dimension of each run is divided.
 * One of its elements is `unit` elements of the larger of the two first dimensions' runs. */
static void reshape_factors(const strata_tensor *node, strata_factors *factors) {
    const strata_shape x = node->inputs[0]->shape, y = node->shape;
    for (int i = 0, j = 0, factor = 0; i < x.rank && j < y.rank; factor++) {
        while (x.dims[i] == 1 && y.dims[j] != 1 && i + 1 < x.rank) i++;
        while (y.dims[j] == 1 && x.dims[i] != 1 && j + 1 < y.rank) j++;
        const int first = i, other = j;
        int64_t in_x = x.dims[i++], in_y = y.dims[j++];
        while (in_x != in_y) {
            if (in_x < in_y && i < x.rank)
                in_x *= x.dims[i++];
            else if (in_y < in_x && j < y.rank)
                in_y *= y.dims[j++];
            else
                return; /* dimensions of size 1 at an end, or none */
        }
        const int64_t a = x.dims[first], b = y.dims[other];
        if (in_x == 0 || (a % b && b % a)) continue;
        strata_factors_set(factors, node, 0, first, factor);
        strata_factors_set(factors, node, 1, other, factor);
        factors->sizes[factor] = a < b ? a : b;
        factors->inputs[0].unit[first] = a < b ? 1 : a / b;
        factors->result.unit[other] = a < b ? b / a : 1;
    }
}

/* -1 in the wanted shape is inferred again for the part. */
static strata_tensor *reshape_part(const strata_node_part *part) {
    return strata_node_part_with(part, &(reshape_attrs){.shape = part->shape});
}

const strata_op strata_op_reshape = {.name = "reshape",
                                     .n_inputs = 1,
                                     .flags = STRATA_OP_VIEW,
                                     .attrs_bytes = sizeof(reshape_attrs),
                                     .attrs = {{"shape", STRATA_ATTR_SHAPE, offsetof(reshape_attrs, shape)}},
                                     .factors = reshape_factors,
                                     .part = reshape_part,
                                     .linearity = STRATA_LINEAR_JOINTLY,
                                     .shape = reshape_shape,
                                     .gradient = reshape_gradient,
                                     .reference = reshape_reference};

strata_tensor *strata_reshape(strata_tensor *x, strata_shape shape) {
    if (!strata_tensor_is_poison(x) && strata_shape_equal(x->shape, shape)) return x;
    return strata_node(NULL, &strata_op_reshape, 1, &x, &(reshape_attrs){.shape = shape});
}

strata_tensor *strata_alias(strata_tensor *x) {
    return strata_node(NULL, &strata_op_reshape, 1, &x, &(reshape_attrs){.shape = strata_tensor_shape(x)});
}

strata_tensor *strata_flatten(strata_tensor *x) {
    if (strata_tensor_is_poison(x)) return x;
    if (x->shape.rank == 0)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "flatten: x is a scalar; it needs an axis of examples");
    int64_t rest = 1;
    for (int d = 1; d < x->shape.rank; d++) rest *= x->shape.dims[d];
    return strata_reshape(x, STRATA_SHAPE(x->shape.dims[0], rest));
}
