/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam where a part of the gradients is the gradient of a table (adam_gather.h). A batch uses only some rows of a large
 * table, so most of its rows have the gradient 0. This op computes the gradient of each row when it updates the row, so
 * that the gradient of the whole table is neither written to memory nor read back. Only families have kernels for this
 * op: other devices run gather_grad and then Adam. */
#include "core/op/adam_gather.h"

#include "core/op/define.h"
#include "core/op/ops.h"

enum { DY = STRATA_ADAM_GATHER_DY, INDICES = STRATA_ADAM_GATHER_INDICES };

extern const strata_op strata_op_adam_gather;

/* Returns the gather_grad node that computes the table's gradient. The result points to `attrs` and to the inputs of
 * `node`, which must both outlive it. */
static strata_tensor grad_of(const strata_tensor *node, strata_gather_grad_attrs *attrs) {
    *attrs = (strata_gather_grad_attrs){.axis = 0, .size = ((const strata_adam_gather_attrs *)node->attrs)->rows};
    return (strata_tensor){
        .graph = node->graph, .op = &strata_op_gather_grad, .n_inputs = 2, .inputs = node->inputs + DY, .attrs = attrs};
}

strata_gather_grad_sizes strata_adam_gather_sizes_of(const strata_tensor *node) {
    strata_gather_grad_attrs attrs;
    strata_tensor grad = grad_of(node, &attrs);
    const bool fits = !strata_infer(&grad, NULL); /* the shape rule accepted it when the node was made */
    return fits ? strata_gather_grad_sizes_of(&grad) : (strata_gather_grad_sizes){0};
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    strata_gather_grad_attrs attrs;
    strata_tensor grad = grad_of(node, &attrs);
    STRATA_TRY(strata_check_dtype(node->inputs[DY], "dy", 1u << STRATA_DTYPE_F32, err));
    STRATA_TRY(strata_infer(&grad, err));
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(&grad);
    return strata_adam_part_check(node, "table", s.axis, s.inner, err);
}

static void compute_grad(strata_op_call *call, float *part) {
    strata_gather_grad_attrs attrs;
    strata_tensor grad = grad_of(call->node, &attrs);
    call->status = strata_infer(&grad, call->err);
    const strata_op_call inner = {.node = &grad, .inputs = call->inputs + DY, .output = part};
    if (!call->status) call->status = strata_reference(inner, call->err);
}

static void reference(strata_op_call *call) {
    strata_adam_part_reference(call, compute_grad);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_gather_grad_attrs attrs;
    const strata_tensor grad = grad_of(node, &attrs);
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    strata_tensor *table = strata_node(NULL, grad.op, 2, node->inputs + DY, &attrs);
    return strata_adam_part_compose(node, strata_reshape(table, STRATA_SHAPE(s.axis * s.inner)));
}

const strata_op strata_op_adam_gather = {
    .name = "adam_gather",
    .n_inputs = STRATA_ADAM_PRODUCT_INPUTS,
    .flags = STRATA_OP_UPDATE,
    .attrs_bytes = sizeof(strata_adam_gather_attrs),
    .attrs = {STRATA_ADAM_ATTRS(strata_adam_gather_attrs, update.adam.),
              {"offset", STRATA_ATTR_INT, offsetof(strata_adam_gather_attrs, update.offset)},
              {"rows", STRATA_ATTR_INT, offsetof(strata_adam_gather_attrs, rows)}},
    .also_writes = 1u << 1 | 1u << 2, /* m and v */
    .shape = shape,
    .no_gradient = "it changes variables",
    .reference = reference,
    .compose = compose,
};

strata_tensor *strata_adam_gather(const strata_tensor *adam, const strata_tensor *grad, int64_t offset) {
    strata_tensor *inputs[STRATA_ADAM_PRODUCT_INPUTS];
    for (int i = 0; i < DY; i++) inputs[i] = adam->inputs[i];
    inputs[DY] = grad->inputs[0];
    inputs[INDICES] = grad->inputs[1];
    strata_adam_gather_attrs attrs = {.update = {.adam = *(const strata_adam_attrs *)adam->attrs, .offset = offset},
                                      .rows = ((const strata_gather_grad_attrs *)grad->attrs)->size};
    return strata_node(NULL, &strata_op_adam_gather, STRATA_ADAM_PRODUCT_INPUTS, inputs, &attrs);
}
