/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_norm: normalisation by channel (Ioffe & Szegedy 2015).   x (..., C) floats; mean, variance, scale, shift (C) f32
 *   n = (x - mean) r,  r = 1 / sqrt(variance + epsilon)        y = scale n + shift, of x's dtype and shape
 * gradient: with the sums over rows s0 of dy and s1 of dy n (batch_norm_sums, (2, C)),
 *   dshift = s0,  dscale = s1,  dx = scale r dy,  dmean = -scale r s0,  dvariance = -1/2 scale r^2 s1
 * If mean and variance are computed from x itself ("own"), one op computes the complete gradient of x (batch_norm_grad):
 *   dx = scale r (dy - (s0 + n s1) / rows), dmean and dvariance none.
 * The two ops of the gradient are not differentiated again. */
#include "core/op/channels.h"
#include "core/op/define.h"

extern const strata_op strata_op_batch_norm_sums, strata_op_batch_norm_grad;

typedef struct batch_norm_attrs {
    double epsilon;
    /* 1: mean and variance were computed from x itself, and the gradient of x includes their part. 0: they are
     * independent of x. */
    int64_t own;
} batch_norm_attrs;

static double inverse_deviation(const strata_tensor *node, const void *variance, int64_t k) {
    return 1 / sqrt((double)((const float *)variance)[k] + ((const batch_norm_attrs *)node->attrs)->epsilon);
}

/* ---- batch_norm ---- */

enum { X, MEAN, VARIANCE, SCALE, SHIFT };

static strata_status batch_norm_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x", "mean", "variance", "scale", "shift"};
    STRATA_TRY(strata_check_not_negative(((const batch_norm_attrs *)node->attrs)->epsilon, "epsilon", err));
    return strata_check_channels(node, X, 1 << MEAN | 1 << VARIANCE | 1 << SCALE | 1 << SHIFT, names, err);
}

/* 1 / sqrt(variance + epsilon) */
static strata_tensor *inverse_deviations(strata_tensor *node) {
    const double epsilon = ((const batch_norm_attrs *)node->attrs)->epsilon;
    return strata_rsqrt(strata_add(node->inputs[VARIANCE], strata_scalar(node->graph, STRATA_DTYPE_F32, epsilon)));
}

static void batch_norm_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    const batch_norm_attrs *attrs = node->attrs;
    strata_tensor *const *in = node->inputs;
    strata_tensor *sums =
        strata_node(NULL, &strata_op_batch_norm_sums, 4, (strata_tensor *[]){in[X], in[MEAN], in[VARIANCE], dy}, attrs);
    if (strata_tensor_is_poison(sums)) return;
    strata_tensor *terms[] = {in[X], in[MEAN], in[VARIANCE], in[SCALE], sums, dy};
    dx[X] = strata_node(NULL, &strata_op_batch_norm_grad, 6, terms, attrs);
    dx[SHIFT] = strata_channels_row(sums, 0);
    dx[SCALE] = strata_channels_row(sums, 1);
    if (attrs->own) return;
    strata_tensor *r = inverse_deviations(node), *factor = strata_mul(in[SCALE], r);
    dx[MEAN] = strata_neg(strata_mul(factor, strata_channels_row(sums, 0)));
    strata_tensor *half = strata_mul(strata_mul(factor, r), strata_scalar(node->graph, STRATA_DTYPE_F32, -0.5));
    dx[VARIANCE] = strata_mul(half, strata_channels_row(sums, 1));
}

static void normalize_element(const strata_op_call *call, int64_t i, int64_t k, double factor) {
    const strata_dtype dtype = call->node->dtype;
    const double mean = (double)((const float *)call->inputs[MEAN])[k], shift = (double)((const float *)call->inputs[SHIFT])[k];
    strata_element_set(dtype, call->output, i, (strata_element_get(dtype, call->inputs[X], i) - mean) * factor + shift);
}

static double factor_of(const strata_op_call *call, int64_t k) {
    return (double)((const float *)call->inputs[SCALE])[k] * inverse_deviation(call->node, call->inputs[VARIANCE], k);
}

static void batch_norm_reference(strata_op_call *call) {
    const strata_channels c = strata_channels_of(call->node->shape);
    for (int64_t e = 0; call->elements && e < call->n_elements; e++) {
        const int64_t k = call->elements[e] % c.channels;
        normalize_element(call, call->elements[e], k, factor_of(call, k));
    }
    for (int64_t k = 0; !call->elements && k < c.channels; k++) {
        const double factor = factor_of(call, k);
        for (int64_t r = 0; r < c.rows; r++) normalize_element(call, r * c.channels + k, k, factor);
    }
}

static strata_status batch_norm_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = strata_launch_of(node, "batch_norm", strata_channels_variant(node->dtype));
    STRATA_TRY(strata_launch_blocks(&launch, strata_channels_of(node->shape), err));
    STRATA_LAUNCH_FLOATS(&launch, ((const batch_norm_attrs *)node->attrs)->epsilon);
    return strata_lowering_add(lowering, &launch, err);
}

/* n */
static strata_tensor *normalized(strata_tensor *node) {
    return strata_mul(strata_sub(strata_wide(node->inputs[X]), node->inputs[MEAN]), inverse_deviations(node));
}

static strata_tensor *batch_norm_compose(strata_tensor *node) {
    strata_tensor *factor = strata_mul(node->inputs[SCALE], inverse_deviations(node));
    strata_tensor *scaled = strata_mul(strata_sub(strata_wide(node->inputs[X]), node->inputs[MEAN]), factor);
    return strata_cast(strata_add(scaled, node->inputs[SHIFT]), node->dtype);
}

const strata_op strata_op_batch_norm = {.name = "batch_norm",
                                        .n_inputs = 5,
                                        .flags = STRATA_OP_ELEMENTWISE | STRATA_OP_SAMPLES,
                                        .attrs_bytes = sizeof(batch_norm_attrs),
                                        .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(batch_norm_attrs, epsilon)},
                                                  {"own", STRATA_ATTR_INT, offsetof(batch_norm_attrs, own)}},
                                        .dims = "...c,c,c,c,c->...c",
                                        .shape = batch_norm_shape,
                                        .gradient = batch_norm_gradient,
                                        .reference = batch_norm_reference,
                                        .compose = batch_norm_compose,
                                        .lower = batch_norm_lower};

strata_tensor *strata_batch_norm(strata_tensor *x, strata_tensor *mean, strata_tensor *variance, strata_tensor *scale,
                                 strata_tensor *shift, double epsilon) {
    batch_norm_attrs attrs = {.epsilon = epsilon};
    return strata_node(NULL, &strata_op_batch_norm, 5, (strata_tensor *[]){x, mean, variance, scale, shift}, &attrs);
}

strata_tensor *strata_batch_norm_training(strata_tensor *x, strata_tensor *scale, strata_tensor *shift, double epsilon,
                                          strata_tensor **out_mean, strata_tensor **out_variance) {
    batch_norm_attrs attrs = {.epsilon = epsilon, .own = 1};
    strata_tensor *moments = strata_moments(x);
    if (!moments || strata_tensor_is_poison(moments)) return *out_mean = *out_variance = moments;
    *out_mean = strata_channels_row(moments, 0);
    *out_variance = strata_channels_row(moments, 1);
    strata_tensor *inputs[] = {x, *out_mean, *out_variance, scale, shift};
    return strata_node(NULL, &strata_op_batch_norm, 5, inputs, &attrs);
}

/* ---- batch_norm_sums: x, mean, variance, dy -> (2, C) ---- */

static strata_status sums_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x", "mean", "variance", "dy"};
    STRATA_TRY(strata_check_channels(node, X, 1 << MEAN | 1 << VARIANCE, names, err));
    STRATA_TRY(strata_check_alike(node->inputs[X], "x", node->inputs[3], "dy", err));
    node->dtype = STRATA_DTYPE_F32;
    node->shape = STRATA_SHAPE(2, strata_channels_of(node->inputs[X]->shape).channels);
    return STRATA_OK;
}

/* Adds each row to the sums of all wanted channels. A sum after the other would read all of x from memory for each. */
static void sums_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->inputs[X]->dtype;
    const strata_channels c = strata_channels_of(call->node->inputs[X]->shape);
    const float *mean = call->inputs[MEAN];
    const int64_t n = strata_call_count(call, c.channels);
    float *y = call->output;
    double *sums = strata_call_alloc(call, 2 * n, sizeof *sums);
    if (!sums) return;
    double *products = sums + n;
    for (int64_t row = 0; row < c.rows; row++)
        for (int64_t e = 0; e < n; e++) {
            const int64_t k = strata_call_element(call, e) % c.channels, i = row * c.channels + k;
            const double d = strata_element_get(dtype, call->inputs[3], i);
            sums[e] += d;
            products[e] += d * (strata_element_get(dtype, call->inputs[X], i) - (double)mean[k]);
        }
    for (int64_t e = 0; e < n; e++) {
        const int64_t k = strata_call_element(call, e) % c.channels;
        y[k] = (float)sums[e];
        y[c.channels + k] = c.rows ? (float)(products[e] * inverse_deviation(call->node, call->inputs[VARIANCE], k)) : 0;
    }
    free(sums);
}

static strata_status sums_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_tensor *const *in = node->inputs;
    return strata_channel_sums_lower(node, in[X], in[MEAN], in[VARIANCE], in[3],
                                     ((const batch_norm_attrs *)node->attrs)->epsilon, lowering, err);
}

static strata_tensor *sums_compose(strata_tensor *node) {
    const strata_channels c = strata_channels_of(node->inputs[X]->shape);
    strata_tensor *dy = strata_wide(node->inputs[3]), *terms[] = {dy, strata_mul(dy, normalized(node))};
    for (int i = 0; i < 2; i++)
        terms[i] = strata_reduce_sum(strata_reshape(terms[i], STRATA_SHAPE(c.rows, c.channels)), (int[]){0}, 1, true);
    return strata_concat(terms, 2, 0);
}

static const char once[] = "the gradient of batch_norm is not differentiated again";

const strata_op strata_op_batch_norm_sums = {.name = "batch_norm_sums",
                                             .n_inputs = 4,
                                             .flags = STRATA_OP_SAMPLES,
                                             .attrs_bytes = sizeof(batch_norm_attrs),
                                             .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(batch_norm_attrs, epsilon)}},
                                             .dims = "...c,c,c,...c->Sc",
                                             .own_dims = "...c,c,c,...c->Sc",
                                             .shape = sums_shape,
                                             .no_gradient = once,
                                             .reference = sums_reference,
                                             .compose = sums_compose,
                                             .lower = sums_lower};

/* ---- batch_norm_grad: x, mean, variance, scale, sums, dy -> dx ---- */

enum { SUMS = 4, DY = 5 };

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    static const char *const names[] = {"x", "mean", "variance", "scale", "sums", "dy"};
    const strata_tensor *x = node->inputs[X], *sums = node->inputs[SUMS];
    STRATA_TRY(strata_check_channels(node, X, 1 << MEAN | 1 << VARIANCE | 1 << SCALE, names, err));
    STRATA_TRY(strata_check_alike(x, "x", node->inputs[DY], "dy", err));
    STRATA_TRY(strata_check_dtype(sums, "sums", 1u << STRATA_DTYPE_F32, err));
    if (!strata_shape_equal(sums->shape, STRATA_SHAPE(2, strata_channels_of(x->shape).channels)))
        return strata_fail(err, STRATA_INVALID, "x is %s, sums are %s; they must be (2, channels)",
                           strata_shape_text(x->shape).text, strata_shape_text(sums->shape).text);
    return STRATA_OK;
}

static double inverse_rows(const strata_tensor *node) {
    const strata_channels c = strata_channels_of(node->shape);
    return ((const batch_norm_attrs *)node->attrs)->own && c.rows ? 1 / (double)c.rows : 0;
}

/* r: the inverse deviation of channel k. */
static void grad_element(const strata_op_call *call, const strata_channels *c, double inverse, int64_t i, int64_t k, double r) {
    const strata_dtype dtype = call->node->dtype;
    const float *mean = call->inputs[MEAN], *scale = call->inputs[SCALE], *sums = call->inputs[SUMS];
    const double n = (strata_element_get(dtype, call->inputs[X], i) - (double)mean[k]) * r;
    const double common = inverse * ((double)sums[k] + n * (double)sums[c->channels + k]);
    strata_element_set(dtype, call->output, i,
                       (double)scale[k] * r * (strata_element_get(dtype, call->inputs[DY], i) - common));
}

static void grad_reference(strata_op_call *call) {
    const strata_channels c = strata_channels_of(call->node->shape);
    const double inverse = inverse_rows(call->node);
    for (int64_t e = 0; call->elements && e < call->n_elements; e++) {
        const int64_t i = call->elements[e], k = i % c.channels;
        grad_element(call, &c, inverse, i, k, inverse_deviation(call->node, call->inputs[VARIANCE], k));
    }
    for (int64_t k = 0; !call->elements && k < c.channels; k++) {
        const double r = inverse_deviation(call->node, call->inputs[VARIANCE], k);
        for (int64_t i = k; i < c.rows * c.channels; i += c.channels) grad_element(call, &c, inverse, i, k, r);
    }
}

static strata_status grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = strata_launch_of(node, "batch_norm_grad", strata_channels_variant(node->dtype));
    STRATA_TRY(strata_launch_blocks(&launch, strata_channels_of(node->shape), err));
    STRATA_LAUNCH_FLOATS(&launch, ((const batch_norm_attrs *)node->attrs)->epsilon, inverse_rows(node));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *dy = strata_wide(node->inputs[DY]), *sums = node->inputs[SUMS];
    strata_tensor *factor = strata_mul(node->inputs[SCALE], inverse_deviations(node));
    const double inverse = inverse_rows(node);
    if (inverse > 0) {
        strata_tensor *common =
            strata_add(strata_channels_row(sums, 0), strata_mul(normalized(node), strata_channels_row(sums, 1)));
        dy = strata_sub(dy, strata_mul(common, strata_scalar(node->graph, STRATA_DTYPE_F32, inverse)));
    }
    return strata_cast(strata_mul(dy, factor), node->dtype);
}

const strata_op strata_op_batch_norm_grad = {.name = "batch_norm_grad",
                                             .n_inputs = 6,
                                             .flags = STRATA_OP_ELEMENTWISE | STRATA_OP_SAMPLES | STRATA_OP_RESOLVED,
                                             .whole = 1u << SUMS,
                                             .attrs_bytes = sizeof(batch_norm_attrs),
                                             .attrs = {{"epsilon", STRATA_ATTR_FLOAT, offsetof(batch_norm_attrs, epsilon)},
                                                       {"own", STRATA_ATTR_INT, offsetof(batch_norm_attrs, own)}},
                                             .dims = "c,c,c,c,Sc,c->c",
                                             .own_dims = "...c,c,c,c,Sc,...c->...c",
                                             .shape = grad_shape,
                                             .no_gradient = once,
                                             .reference = grad_reference,
                                             .compose = grad_compose,
                                             .lower = grad_lower};
