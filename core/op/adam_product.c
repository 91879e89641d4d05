/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam where a part of the gradients is a matrix product (adam_product.h). The gradient of a layer's matrix is the
 * largest value that a step writes to memory and reads back. This op uses each element of the gradient as soon as it is
 * computed, so that the gradient is never stored. Only families have kernels for this op: other devices run the product
 * and then Adam. */
#include "core/op/adam_product.h"

#include <stdlib.h>
#include <string.h>

#include "core/op/define.h"

enum { PARAMETERS, M, V };
static const int GRADIENTS = STRATA_ADAM_PRODUCT_GRADIENTS, A = STRATA_ADAM_PRODUCT_A, B = STRATA_ADAM_PRODUCT_B;

extern const strata_op strata_op_adam_product;

strata_adam_product_sizes strata_adam_product_sizes_of(const strata_tensor *node) {
    const strata_shape a = node->inputs[A]->shape, b = node->inputs[B]->shape;
    return (strata_adam_product_sizes){.m = a.dims[1], .n = b.dims[1], .k = a.dims[0]};
}

strata_status strata_adam_part_check(strata_tensor *node, const char *what, int64_t m, int64_t n, strata_error *err) {
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

void strata_adam_part_reference(strata_op_call *call, strata_adam_part_compute *compute) {
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

strata_tensor *strata_adam_part_compose(strata_tensor *node, strata_tensor *part) {
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
    return strata_adam_part_check(node, "product", s.m, s.n, err);
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
    strata_adam_part_reference(call, compute_product);
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_adam_product_sizes s = strata_adam_product_sizes_of(node);
    strata_tensor *product = strata_matmul(node->inputs[A], node->inputs[B], true, false);
    return strata_adam_part_compose(node, strata_reshape(product, STRATA_SHAPE(s.m * s.n)));
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

strata_tensor *strata_adam_product(const strata_tensor *adam, strata_tensor *a, strata_tensor *b, int64_t offset) {
    strata_tensor *inputs[STRATA_ADAM_PRODUCT_INPUTS];
    for (int i = 0; i < STRATA_ADAM_PRODUCT_A; i++) inputs[i] = adam->inputs[i];
    inputs[A] = a;
    inputs[B] = b;
    strata_adam_product_attrs attrs = {.adam = *(const strata_adam_attrs *)adam->attrs, .offset = offset};
    return strata_node(NULL, &strata_op_adam_product, STRATA_ADAM_PRODUCT_INPUTS, inputs, &attrs);
}
