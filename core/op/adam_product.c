/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam where a part of the gradients is a matrix product (adam_product.h). The gradient of a layer's matrix is the
 * largest value that a step writes to memory and reads back. This op uses each element of the gradient as soon as it is
 * computed, so that the gradient is never stored. Only families have kernels for this op: other devices run the product
 * and then Adam. */
#include "core/op/adam_product.h"

#include "core/op/define.h"

enum { PARAMETERS, M, V };
static const int GRADIENTS = STRATA_ADAM_PRODUCT_GRADIENTS, A = STRATA_ADAM_PRODUCT_A, B = STRATA_ADAM_PRODUCT_B;

extern const strata_op strata_op_adam_product, strata_op_adam_gather, strata_op_gather_grad;

strata_adam_product_sizes strata_adam_product_sizes_of(const strata_tensor *node) {
    const strata_shape a = node->inputs[A]->shape, b = node->inputs[B]->shape;
    return (strata_adam_product_sizes){.m = a.dims[1], .n = b.dims[1], .k = a.dims[0]};
}

/* Checks all inputs except for A and B. The part has m n elements; `what` names it in messages. */
static strata_status check(strata_tensor *node, const char *what, int64_t m, int64_t n, strata_error *err) {
    static const char *const names[] = {"parameters", "m", "v", "gradients"};
    const strata_adam_product_attrs *attrs = node->attrs;
    const strata_tensor *gradients = node->inputs[GRADIENTS];
    STRATA_TRY(strata_adam_check(&attrs->adam, err));
    STRATA_TRY(strata_check_update(node, 1u << PARAMETERS | 1u << M | 1u << V, STRATA_ADAM_PRODUCT_STEP, names, true, err));
    const int64_t room = gradients->shape.rank == 1 ? gradients->shape.dims[0] - attrs->offset : -1;
    if (attrs->offset >= 0 && room >= 0 && (n == 0 || m <= room / n)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "the %s is (%" PRId64 ",%" PRId64 ") at element %" PRId64
                       " of gradients %s; it must lie in a flat range",
                       what, m, n, attrs->offset, strata_shape_text(gradients->shape).text);
}

/* Computes all elements of the part, and writes them to `part`. */
typedef void part_compute(strata_op_call *call, float *part);

/* The reference: computes the part, inserts it into the gradients, and runs Adam. */
static void part_reference(strata_op_call *call, part_compute *compute) {
    const strata_adam_product_attrs *attrs = call->node->attrs;
    const int64_t n = strata_shape_elements(call->node->inputs[GRADIENTS]->shape);
    float *gradients = strata_call_alloc(call, n, sizeof *gradients);
    const void *inputs[STRATA_ADAM_PRODUCT_INPUTS];
    if (!gradients) return;
    if (n) memcpy(gradients, call->inputs[GRADIENTS], (size_t)n * sizeof *gradients);
    compute(call, gradients + attrs->offset);
    memcpy(inputs, call->inputs, sizeof inputs);
    inputs[GRADIENTS] = gradients;
    strata_op_call update = *call;
    update.inputs = inputs;
    if (!call->status) strata_update_reference(&update, 2, strata_adam_element);
    free(gradients);
}

/* The composition: an Adam node in whose gradients the elements from attrs->offset on are replaced by `part`, which is flat and
 * not empty. */
static strata_tensor *part_compose(strata_tensor *node, strata_tensor *part) {
    const strata_adam_product_attrs *attrs = node->attrs;
    const strata_adam_attrs *adam = &attrs->adam;
    strata_tensor *const *x = node->inputs, *parts[3];
    const int64_t n = strata_shape_elements(x[GRADIENTS]->shape), end = attrs->offset + strata_shape_elements(part->shape);
    int n_parts = 0;
    if (attrs->offset) parts[n_parts++] = strata_slice(x[GRADIENTS], (int64_t[]){0}, &attrs->offset);
    parts[n_parts++] = part;
    if (end < n) parts[n_parts++] = strata_slice(x[GRADIENTS], &end, (int64_t[]){n - end});
    strata_tensor *gradients = n_parts > 1 ? strata_concat(parts, n_parts, 0) : parts[0];
    return strata_adamw(x[PARAMETERS], x[M], x[V], gradients, x[STRATA_ADAM_PRODUCT_STEP], x[STRATA_ADAM_PRODUCT_GATE],
                        adam->beta1, adam->beta2, adam->epsilon, adam->decay);
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *a = node->inputs[A], *b = node->inputs[B];
    STRATA_TRY(strata_check_dtype(a, "a", 1u << STRATA_DTYPE_F32, err));
    STRATA_TRY(strata_check_dtype(b, "b", 1u << STRATA_DTYPE_F32, err));
    if (a->shape.rank != 2 || b->shape.rank != 2 || a->shape.dims[0] != b->shape.dims[0])
        return strata_fail(err, STRATA_INVALID, "a is %s, b is %s; they must have 2 axes, and the same number of rows",
                           strata_shape_text(a->shape).text, strata_shape_text(b->shape).text);
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    return check(node, "product", s.m, s.n, err);
}

/* Accumulates in double, one row of the product at a time. */
static void compute_product(strata_op_call *call, float *part) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(call->node);
    const float *a = call->inputs[A], *b = call->inputs[B];
    double *row = strata_call_alloc(call, s.n, sizeof *row);
    for (int64_t i = 0; row && i < s.m; i++) {
        for (int64_t j = 0; j < s.n; j++) row[j] = 0;
        for (int64_t k = 0; k < s.k; k++)
            for (int64_t j = 0; j < s.n; j++) row[j] += (double)a[k * s.m + i] * (double)b[k * s.n + j];
        for (int64_t j = 0; j < s.n; j++) part[i * s.n + j] = (float)row[j];
    }
    free(row);
}

static void reference(strata_op_call *call) {
    part_reference(call, compute_product);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    strata_tensor *product = strata_matmul(node->inputs[A], node->inputs[B], true, false);
    return part_compose(node, strata_reshape(product, STRATA_SHAPE(s.m * s.n)));
}

static double flops(const strata_tensor *node) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    return 2.0 * (double)s.m * (double)s.n * (double)s.k;
}

const strata_op strata_op_adam_product = {
    .name = "adam_product",
    .n_inputs = STRATA_ADAM_PRODUCT_INPUTS,
    .flags = STRATA_OP_UPDATE,
    .attrs_bytes = sizeof(strata_adam_product_attrs),
    .attrs = {STRATA_ADAM_ATTRS(strata_adam_product_attrs, adam.),
              {"offset", STRATA_ATTR_INT, offsetof(strata_adam_product_attrs, offset)}},
    .also_writes = 1u << M | 1u << V,
    .shape = shape,
    .no_gradient = "it changes variables",
    .reference = reference,
    .compose = compose,
    .flops = flops,
};

/* A node with the inputs of Adam, and a and b. */
static strata_tensor *fused(const strata_op *op, const strata_tensor *adam, strata_tensor *a, strata_tensor *b,
                            const void *attrs) {
    strata_tensor *inputs[STRATA_ADAM_PRODUCT_INPUTS];
    memcpy(inputs, adam->inputs, STRATA_ADAM_PRODUCT_A * sizeof *inputs);
    inputs[A] = a;
    inputs[B] = b;
    return strata_node(NULL, op, STRATA_ADAM_PRODUCT_INPUTS, inputs, attrs);
}

strata_tensor *strata_adam_product(const strata_tensor *adam, strata_tensor *a, strata_tensor *b, int64_t offset) {
    const strata_adam_product_attrs attrs = {.adam = *(const strata_adam_attrs *)adam->attrs, .offset = offset};
    return fused(&strata_op_adam_product, adam, a, b, &attrs);
}

/* ---- adam_gather. A batch uses only some rows of a large table, so most of its rows have the gradient 0. This op computes the
 * gradient of each row when it updates the row, so that the gradient of the whole table is neither written to memory nor read
 * back ---- */

enum { DY = STRATA_ADAM_GATHER_DY, INDICES = STRATA_ADAM_GATHER_INDICES };

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

static strata_status gather_shape(strata_tensor *node, strata_error *err) {
    strata_gather_grad_attrs attrs;
    strata_tensor grad = grad_of(node, &attrs);
    STRATA_TRY(strata_check_dtype(node->inputs[DY], "dy", 1u << STRATA_DTYPE_F32, err));
    STRATA_TRY(strata_infer(&grad, err));
    const strata_gather_grad_sizes s = strata_gather_grad_sizes_of(&grad);
    return check(node, "table", s.axis, s.inner, err);
}

static void compute_grad(strata_op_call *call, float *part) {
    strata_gather_grad_attrs attrs;
    strata_tensor grad = grad_of(call->node, &attrs);
    call->status = strata_infer(&grad, call->err);
    const strata_op_call inner = {.node = &grad, .inputs = call->inputs + DY, .output = part};
    if (!call->status) call->status = strata_reference(inner, call->err);
}

static void gather_reference(strata_op_call *call) {
    part_reference(call, compute_grad);
}

static strata_tensor *gather_compose(strata_tensor *node) {
    strata_gather_grad_attrs attrs;
    const strata_tensor grad = grad_of(node, &attrs);
    const strata_gather_grad_sizes s = strata_adam_gather_sizes_of(node);
    strata_tensor *table = strata_node(NULL, grad.op, 2, node->inputs + DY, &attrs);
    return part_compose(node, strata_reshape(table, STRATA_SHAPE(s.axis * s.inner)));
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
    .shape = gather_shape,
    .no_gradient = "it changes variables",
    .reference = gather_reference,
    .compose = gather_compose,
};

strata_tensor *strata_adam_gather(const strata_tensor *adam, const strata_tensor *grad, int64_t offset) {
    const strata_adam_gather_attrs attrs = {.update = {.adam = *(const strata_adam_attrs *)adam->attrs, .offset = offset},
                                            .rows = ((const strata_gather_grad_attrs *)grad->attrs)->size};
    return fused(&strata_op_adam_gather, adam, grad->inputs[0], grad->inputs[1], &attrs);
}
