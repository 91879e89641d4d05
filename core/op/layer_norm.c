/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_norm: normalisation of each row, over the last axis (Ba et al. 2016).   x (..., C) floats; scale, shift (C) f32
 *   n = (x - mean) r,  r = 1 / sqrt(variance + epsilon), both of the row, biased        y = scale n + shift, like x
 * gradient: dshift = sum of dy, dscale = sum of dy n over the rows; dx by layer_norm_grad, with g = dy scale:
 *   dx = r (g - mean of g - n mean of g n), which is not differentiated again. */
#include "core/op/channels.h"
#include "core/op/define.h"

extern const strata_op strata_op_layer_norm_grad;

typedef struct layer_norm_attrs {
    double epsilon;
} layer_norm_attrs;

enum { X, SCALE, SHIFT, DY = SHIFT };

static strata_status shape_rule(strata_tensor *node, unsigned by_channel, const char *const *names, strata_error *err) {
    STRATA_TRY(strata_check_not_negative(((const layer_norm_attrs *)node->attrs)->epsilon, "epsilon", err));
    return strata_check_channels(node, X, by_channel, names, err);
}

/* Computes the mean and r = 1 / sqrt(variance + epsilon) of the row that begins at element `start`. */
static void row_moments(const strata_op_call *call, int64_t start, int64_t columns, double *out_mean, double *out_r) {
    const strata_dtype dtype = call->node->dtype;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < columns; i++) sum += strata_element_get(dtype, call->inputs[X], start + i);
    const double mean = sum / (double)columns;
    for (int64_t i = 0; i < columns; i++) {
        const double d = strata_element_get(dtype, call->inputs[X], start + i) - mean;
        squares += d * d;
    }
    *out_mean = mean;
    *out_r = 1 / sqrt(squares / (double)columns + ((const layer_norm_attrs *)call->node->attrs)->epsilon);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const bool gradient = node->op == &strata_op_layer_norm_grad;
    strata_tensor *const *in = node->inputs;
    const strata_channels c = strata_channels_of(node->shape);
    strata_launch launch = STRATA_LAUNCH_WITH("layer_norm", strata_channels_variant(node->dtype), in[X], in[SCALE],
                                              gradient ? NULL : in[SHIFT], gradient ? in[DY] : NULL, node);
    if (!strata_shape_elements(node->shape)) return STRATA_OK;
    strata_launch_constant_add(&launch, "GRADIENT", gradient);
    STRATA_TRY(strata_launch_rows(&launch, c.rows, c.channels, 1, gradient ? 5 : 3, err));
    STRATA_LAUNCH_FLOATS(&launch, ((const layer_norm_attrs *)node->attrs)->epsilon);
    return strata_lowering_add(lowering, &launch, err);
}

/* ---- layer_norm ---- */

static strata_status layer_norm_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x", "scale", "shift"};
    return shape_rule(node, 1 << SCALE | 1 << SHIFT, names, err);
}

static void layer_norm_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const layer_norm_attrs *attrs = node->attrs;
    strata_tensor *x = node->inputs[X], *scale = node->inputs[SCALE];
    strata_tensor *one = strata_broadcast_to(strata_scalar(node->graph, STRATA_DTYPE_F32, 1), scale->shape);
    strata_tensor *zero = strata_broadcast_to(strata_scalar(node->graph, STRATA_DTYPE_F32, 0), scale->shape);
    strata_tensor *wide = strata_wide(dy), *n = strata_wide(strata_layer_norm(x, one, zero, attrs->epsilon));
    dx[X] = strata_node(NULL, &strata_op_layer_norm_grad, 3, (strata_tensor *[]){x, scale, dy}, attrs);
    dx[SCALE] = strata_sum_to(strata_mul(wide, n), scale->shape);
    dx[SHIFT] = strata_sum_to(wide, scale->shape);
}

static void layer_norm_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const strata_channels c = strata_channels_of(call->node->shape);
    const float *scale = call->inputs[SCALE], *shift = call->inputs[SHIFT];
    for (int64_t row = 0; row < c.rows; row++) {
        double mean, r;
        row_moments(call, row * c.channels, c.channels, &mean, &r);
        for (int64_t k = 0; k < c.channels; k++) {
            const int64_t i = row * c.channels + k;
            const double n = (strata_element_get(dtype, call->inputs[X], i) - mean) * r;
            strata_element_set(dtype, call->output, i, n * (double)scale[k] + (double)shift[k]);
        }
    }
}

static strata_tensor *mean_of_rows(strata_tensor *x) {
    return strata_reduce_mean(x, (int[]){-1}, 1, true);
}

/* Returns n, and r in *out_r. */
static strata_tensor *normalized(strata_tensor *node, strata_tensor **out_r) {
    strata_tensor *x = strata_wide(node->inputs[X]);
    strata_tensor *epsilon = strata_scalar(node->graph, STRATA_DTYPE_F32, ((const layer_norm_attrs *)node->attrs)->epsilon);
    strata_tensor *d = strata_sub(x, mean_of_rows(x));
    *out_r = strata_rsqrt(strata_add(mean_of_rows(strata_square(d)), epsilon));
    return strata_mul(d, *out_r);
}

static strata_tensor *layer_norm_compose(strata_tensor *node) {
    strata_tensor *r, *n = normalized(node, &r);
    return strata_cast(strata_add(strata_mul(n, node->inputs[SCALE]), node->inputs[SHIFT]), node->dtype);
}

const strata_op strata_op_layer_norm = {
    .name = "layer_norm",
    .n_inputs = 3,
    .flags = STRATA_OP_RESOLVED,
    .attrs_bytes = sizeof(layer_norm_attrs),
    .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(layer_norm_attrs, epsilon)}},
    .dims = "...C,C,C->...C",
    .shape = layer_norm_shape,
    .gradient = layer_norm_gradient,
    .reference = layer_norm_reference,
    .compose = layer_norm_compose,
    .lower = lower,
};

strata_tensor *strata_layer_norm(strata_tensor *x, strata_tensor *scale, strata_tensor *shift, double epsilon) {
    return strata_node(NULL, &strata_op_layer_norm, 3, (strata_tensor *[]){x, scale, shift},
                       &(layer_norm_attrs){.epsilon = epsilon});
}

/* ---- layer_norm_grad: x, scale, dy -> dx ---- */

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x", "scale", "dy"};
    STRATA_TRY(shape_rule(node, 1 << SCALE, names, err));
    return strata_check_alike(node->inputs[X], "x", node->inputs[DY], "dy", err);
}

static void grad_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const strata_channels c = strata_channels_of(call->node->shape);
    const float *scale = call->inputs[SCALE];
    for (int64_t row = 0; row < c.rows; row++) {
        const int64_t start = row * c.channels;
        double mean, r, slopes = 0, products = 0;
        row_moments(call, start, c.channels, &mean, &r);
        for (int64_t k = 0; k < c.channels; k++) {
            const double g = strata_element_get(dtype, call->inputs[DY], start + k) * (double)scale[k];
            slopes += g / (double)c.channels;
            products += g * (strata_element_get(dtype, call->inputs[X], start + k) - mean) * r / (double)c.channels;
        }
        for (int64_t k = 0; k < c.channels; k++) {
            const double g = strata_element_get(dtype, call->inputs[DY], start + k) * (double)scale[k];
            const double n = (strata_element_get(dtype, call->inputs[X], start + k) - mean) * r;
            strata_element_set(dtype, call->output, start + k, r * (g - slopes - n * products));
        }
    }
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *r, *n = normalized(node, &r), *g = strata_mul(strata_wide(node->inputs[DY]), node->inputs[SCALE]);
    strata_tensor *along_n = strata_mul(n, mean_of_rows(strata_mul(g, n)));
    return strata_cast(strata_mul(r, strata_sub(strata_sub(g, mean_of_rows(g)), along_n)), node->dtype);
}

const strata_op strata_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .n_inputs = 3,
    .flags = STRATA_OP_RESOLVED,
    .attrs_bytes = sizeof(layer_norm_attrs),
    .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(layer_norm_attrs, epsilon)}},
    .dims = "...C,C,...C->...C",
    .shape = grad_shape,
    .no_gradient = "the gradient of layer_norm is not differentiated again",
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = lower,
};
