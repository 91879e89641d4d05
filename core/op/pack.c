/* SPDX-License-Identifier: Apache-2.0
 *
 * pack: concatenates f32 tensors to one flat tensor, with zeros in the gaps. It is used for the gradients of a bucket,
 * which one optimizer kernel then processes. Where possible, the planner places operands directly in the result, so that
 * they need no copy; the launches copy the other operands. Nothing writes the gaps: they are zero because arenas are
 * zeroed at first.
 * gradient: the slices of dy. */
#include "core/op/attrs.h"
#include "core/op/define.h"

static strata_status pack_shape(strata_tensor *node, strata_error *err) {
    const strata_pack_attrs *attrs = node->attrs;
    int64_t end = 0; /* end of the operands so far */
    STRATA_TRY(strata_shape_check(STRATA_SHAPE(attrs->size), err));
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_tensor *x = node->inputs[i];
        const int64_t first = attrs->offsets[i], elements = strata_shape_elements(x->shape);
        if (x->dtype != STRATA_DTYPE_F32)
            return strata_fail(err, STRATA_INVALID, "x[%d] is %s; it must be f32", i, strata_dtype_name(x->dtype));
        if (first < end || first > attrs->size || elements > attrs->size - first)
            return strata_fail(err, STRATA_INVALID,
                               "offsets[%d] is %" PRId64 " and x[%d] is %s; it must begin at %" PRId64
                               " or later and end by %" PRId64,
                               i, first, i, strata_shape_text(x->shape).text, end, attrs->size);
        end = first + elements;
    }
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(attrs->size);
    return STRATA_OK;
}

static void pack_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const strata_pack_attrs *attrs = node->attrs;
    for (int i = 0; i < node->n_inputs; i++) {
        const strata_shape shape = node->inputs[i]->shape;
        const int64_t elements = strata_shape_elements(shape);
        dx[i] = strata_reshape(strata_slice(dy, &attrs->offsets[i], &elements), shape);
    }
}

static void pack_reference(strata_op_call *call) {
    const strata_pack_attrs *attrs = call->node->attrs;
    float *target = call->output;
    int64_t end = 0;
    for (int i = 0; i < call->node->n_inputs; i++) {
        const int64_t first = attrs->offsets[i], elements = strata_shape_elements(call->node->inputs[i]->shape);
        for (; end < first; end++) target[end] = 0;
        /* an operand that the planner placed in the result needs no copy */
        if (elements && call->inputs[i] != target + first)
            memmove(target + first, call->inputs[i], (size_t)elements * sizeof *target);
        end = first + elements;
    }
    for (; end < attrs->size; end++) target[end] = 0;
}

static strata_status pack_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pack_attrs *attrs = node->attrs;
    for (int i = 0; i < node->n_inputs; i++) {
        strata_copy copy = strata_copy_flat(node->inputs[i], node, attrs->offsets[i]);
        STRATA_TRY(strata_copy_lower(&copy, lowering, err));
    }
    return STRATA_OK;
}

/* Concatenates the tensors, with constants of zeros for the gaps. */
static strata_tensor *compose(strata_tensor *node) {
    const strata_pack_attrs *attrs = node->attrs;
    strata_tensor **parts = strata_graph_alloc(node->graph, (2 * (size_t)node->n_inputs + 1) * sizeof *parts);
    int64_t end = 0;
    int n = 0;
    bool whole = true;
    if (!parts) return &node->graph->poison;
    for (int i = 0; whole && i <= node->n_inputs; i++) {
        const int64_t first = i < node->n_inputs ? attrs->offsets[i] : attrs->size;
        if (first > end) parts[n++] = strata_filled(node->graph, node->dtype, STRATA_SHAPE(first - end), 0);
        whole = !n || parts[n - 1];
        const int64_t elements = i < node->n_inputs ? strata_shape_elements(node->inputs[i]->shape) : 0;
        if (elements) parts[n++] = strata_reshape(node->inputs[i], STRATA_SHAPE(elements));
        end = first + elements;
    }
    return whole && n ? strata_concat(parts, n, 0) : NULL;
}

const strata_op strata_op_pack = {.name = "pack",
                                  .n_inputs = 1,
                                  .optional_inputs = -1,
                                  .flags = STRATA_OP_SLICES,
                                  .attrs_bytes = sizeof(strata_pack_attrs),
                                  .attrs = {{"offsets", STRATA_ATTR_LIST, offsetof(strata_pack_attrs, offsets)},
                                            {"size", STRATA_ATTR_INT, offsetof(strata_pack_attrs, size)}},
                                  .linearity = STRATA_LINEAR_JOINTLY,
                                  .shape = pack_shape,
                                  .gradient = pack_gradient,
                                  .reference = pack_reference,
                                  .compose = compose,
                                  .lower = pack_lower};

strata_tensor *strata_pack(strata_tensor *const *x, const int64_t *offsets, int n_x, int64_t size) {
    strata_graph *graph = NULL;
    for (int i = 0; i < n_x && !graph; i++) graph = strata_tensor_graph(x[i]);
    if (!graph) return NULL;
    int64_t *own = strata_graph_alloc(graph, (size_t)n_x * sizeof *own);
    if (!own) return &graph->poison;
    memcpy(own, offsets, (size_t)n_x * sizeof *own);
    return strata_node(graph, &strata_op_pack, n_x, x, &(strata_pack_attrs){.offsets = own, .size = size});
}
