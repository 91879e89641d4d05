/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax and log_softmax over the last axis, their gradients as separate ops, and helpers for related ops (softmax.h). */
#include "core/op/softmax.h"

#include "core/op/define.h"

extern const strata_op strata_op_softmax, strata_op_log_softmax, strata_op_softmax_grad, strata_op_log_softmax_grad;

/* ---- shared ---- */

double strata_row_log_sum_exp(strata_dtype dtype, const void *x, int64_t row, int64_t c) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < c; i++) {
        double v = strata_element_get(dtype, x, row * c + i);
        if (v > most || isnan(v)) most = v;
    }
    for (int64_t i = 0; i < c; i++) sum += exp(strata_element_get(dtype, x, row * c + i) - most);
    return most + log(sum);
}

strata_status strata_check_rows(const strata_tensor *x, const char *name, strata_error *err) {
    STRATA_TRY(strata_check_dtype(x, name, STRATA_FLOATS, err));
    if (x->shape.rank > 0) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is a scalar; it must have at least 1 axis", name);
}

strata_status strata_check_rows_pair(strata_tensor *node, const char *a_name, const char *b_name, strata_error *err) {
    const strata_tensor *a = node->inputs[0], *b = node->inputs[1];
    STRATA_TRY(strata_check_rows(a, a_name, err));
    return strata_check_alike(a, a_name, b, b_name, err);
}

strata_status strata_check_per_row(const strata_tensor *x, const char *name, const strata_tensor *logits, strata_error *err) {
    strata_shape rows = strata_shape_of_rows(logits->shape);
    if (strata_shape_equal(x->shape, rows)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "%s is %s, logits is %s; %s must be %s", name, strata_shape_text(x->shape).text,
                       strata_shape_text(logits->shape).text, name, strata_shape_text(rows).text);
}

strata_shape strata_shape_of_rows(strata_shape shape) {
    shape.dims[--shape.rank] = 0;
    return shape;
}

strata_status strata_cross_entropy_lower(const strata_tensor *node, const char *kernel, const char *variant, int gradient,
                                         int passes, strata_lowering *lowering, strata_error *err) {
    const strata_channels c = strata_channels_of(node->inputs[0]->shape);
    strata_launch launch =
        STRATA_LAUNCH_WITH(kernel, variant, node->inputs[0], node->inputs[1], gradient ? node->inputs[2] : NULL, node);
    strata_launch_constant_add(&launch, "GRADIENT", gradient);
    STRATA_TRY(strata_launch_rows(&launch, c.rows, c.channels, 1, passes, err));
    return strata_lowering_add(lowering, &launch, err);
}

strata_tensor *strata_column_of(strata_tensor *value, strata_shape x) {
    x.dims[x.rank - 1] = 1;
    return strata_reshape(value, x);
}

strata_tensor *strata_sum_of_rows(strata_tensor *x) {
    return strata_reduce_sum(x, (int[]){-1}, 1, true);
}

/* x minus the largest element of its row. Compositions use it so that exp does not overflow. */
static strata_tensor *less_most_of_rows(strata_tensor *x) {
    return strata_sub(x, strata_reduce_max(x, (int[]){-1}, 1, true));
}

/* ---- softmax: y = exp(x - L), log_softmax: y = x - L;   L = log sum exp x of the row ---- */

/* Whether the node is log_softmax, or its gradient. */
static bool is_log(const strata_tensor *node) {
    return node->op == &strata_op_log_softmax || node->op == &strata_op_log_softmax_grad;
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    return strata_check_rows(node->inputs[0], "x", err);
}

static strata_tensor *grad_of(const strata_op *op, strata_tensor *y, strata_tensor *dy) {
    return strata_node(NULL, op, 2, (strata_tensor *[]){y, dy}, NULL);
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[0] = grad_of(is_log(node) ? &strata_op_log_softmax_grad : &strata_op_softmax_grad, node, dy);
}

static void reference(strata_op_call *call) {
    const strata_channels c = strata_channels_of(call->node->shape);
    const strata_dtype dtype = call->node->dtype;
    const bool log_of = is_log(call->node);
    for (int64_t row = 0; row < c.rows; row++) {
        const double log_sum = strata_row_log_sum_exp(dtype, call->inputs[0], row, c.channels);
        for (int64_t i = row * c.channels; i < (row + 1) * c.channels; i++) {
            const double y = strata_element_get(dtype, call->inputs[0], i) - log_sum;
            strata_element_set(dtype, call->output, i, log_of ? y : exp(y));
        }
    }
}

/* Both ops use one kernel, and both gradients use another one. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_channels c = strata_channels_of(node->shape);
    strata_launch launch =
        strata_launch_of(node, node->n_inputs > 1 ? "softmax_grad" : "softmax", strata_dtype_name(node->dtype));
    strata_launch_constant_add(&launch, "LOG_SOFTMAX", is_log(node));
    STRATA_TRY(strata_launch_rows(&launch, c.rows, c.channels, 1, 3, err));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x = less_most_of_rows(node->inputs[0]), *e = strata_exp(x), *sum = strata_sum_of_rows(e);
    return is_log(node) ? strata_sub(x, strata_log(sum)) : strata_div(e, sum);
}

#define SOFTMAX(op_name)                    \
    const strata_op strata_op_##op_name = { \
        .name = #op_name,                   \
        .n_inputs = 1,                      \
        .flags = STRATA_OP_RESOLVED,        \
        .dims = "...C->...C",               \
        .shape = shape,                     \
        .gradient = gradient,               \
        .reference = reference,             \
        .compose = compose,                 \
        .lower = lower,                     \
    };
SOFTMAX(softmax)
SOFTMAX(log_softmax)

/* ---- softmax_grad(y, dy): dx = y (dy - sum_c y dy), log_softmax_grad(y, dy): dx = dy - exp(y) sum_c dy ---- */

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    return strata_check_rows_pair(node, "y", "dy", err);
}

/* Gradients of softmax_grad, with s = sum y dy and t = sum y g. With respect to dy: y (g - t), which is the same op. With
 * respect to y: g (dy - s) - dy t. */
static void grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_tensor *y = node->inputs[0], *dy = node->inputs[1];
    strata_tensor *s = strata_sum_of_rows(strata_mul(y, dy)), *t = strata_sum_of_rows(strata_mul(y, g));
    dx[0] = strata_sub(strata_mul(g, strata_sub(dy, s)), strata_mul(dy, t));
    dx[1] = grad_of(&strata_op_softmax_grad, y, g);
}

/* Gradients of log_softmax_grad. With respect to dy: g - sum_c g exp(y). With respect to y: -g exp(y) sum_c dy. */
static void log_grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_tensor *weighted = strata_mul(g, strata_exp(node->inputs[0]));
    dx[0] = strata_neg(strata_mul(weighted, strata_sum_of_rows(node->inputs[1])));
    dx[1] = strata_sub(g, strata_sum_of_rows(weighted));
}

static void grad_reference(strata_op_call *call) {
    const strata_channels c = strata_channels_of(call->node->shape);
    const strata_dtype dtype = call->node->dtype;
    const void *y = call->inputs[0], *dy = call->inputs[1];
    const bool log_of = is_log(call->node);
    for (int64_t row = 0; row < c.rows; row++) {
        double sum = 0;
        const int64_t first = row * c.channels, end = first + c.channels;
        for (int64_t i = first; i < end; i++)
            sum += (log_of ? 1 : strata_element_get(dtype, y, i)) * strata_element_get(dtype, dy, i);
        for (int64_t i = first; i < end; i++) {
            const double own = strata_element_get(dtype, y, i), d = strata_element_get(dtype, dy, i);
            strata_element_set(dtype, call->output, i, log_of ? d - exp(own) * sum : own * (d - sum));
        }
    }
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *y = node->inputs[0], *dy = node->inputs[1];
    if (is_log(node)) return strata_sub(dy, strata_mul(strata_exp(y), strata_sum_of_rows(dy)));
    return strata_mul(y, strata_sub(dy, strata_sum_of_rows(strata_mul(y, dy))));
}

#define SOFTMAX_GRAD(op_name, gradient_of)  \
    const strata_op strata_op_##op_name = { \
        .name = #op_name,                   \
        .n_inputs = 2,                      \
        .flags = STRATA_OP_RESOLVED,        \
        .dims = "...C->...C",               \
        .shape = grad_shape,                \
        .gradient = gradient_of,            \
        .reference = grad_reference,        \
        .compose = grad_compose,            \
        .lower = lower,                     \
    };
SOFTMAX_GRAD(softmax_grad, grad_gradient)
SOFTMAX_GRAD(log_softmax_grad, log_grad_gradient)

strata_tensor *strata_softmax(strata_tensor *x) {
    return strata_node(NULL, &strata_op_softmax, 1, &x, NULL);
}

strata_tensor *strata_log_softmax(strata_tensor *x) {
    return strata_node(NULL, &strata_op_log_softmax, 1, &x, NULL);
}
