/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_norm: y = activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), for each channel (the last axis). In
 * training, mean and variance are those of the batch, and the layer updates moving averages of them. Predictions use the
 * moving averages. */
#include <stddef.h>

#include "core/layer/layer.h"

static double momentum_of(const strata_batch_norm_options *opts) {
    return opts->no_average ? 0 : strata_number_or(opts->momentum, 0.99);
}

static strata_status batch_norm_check(const void *options, strata_error *err) {
    const strata_batch_norm_options *opts = options;
    if (!(opts->momentum >= 0 && opts->momentum < 1))
        return strata_fail(err, STRATA_INVALID, "momentum is %g; it must be at least 0 and below 1", opts->momentum);
    if (!(opts->epsilon >= 0 && opts->epsilon < 1))
        return strata_fail(err, STRATA_INVALID, "epsilon is %g; it must be at least 0 and below 1", opts->epsilon);
    return strata_activation_check(opts->activation, err);
}

static strata_tensor *channel_row(strata_tensor *x, int64_t first, int64_t n) {
    return strata_slice(x, &first, &n);
}

/* Computes the mean and the variance over the rows of all replicas from the moments of each replica, which has n rows.
 * The mean is the sum of n mean, divided by the sum of n. The variance is the sum of n (variance + (mean - mean of
 * all)^2), divided by it. */
static void moments_of_all(strata_layer_context *context, strata_tensor *x, strata_tensor **out_mean,
                           strata_tensor **out_variance) {
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    const int64_t channels = shape.rank ? shape.dims[shape.rank - 1] : 0, elements = strata_shape_elements(shape);
    strata_tensor *moments = strata_reshape(strata_moments(x), STRATA_SHAPE(2 * channels));
    strata_tensor *mean = channel_row(moments, 0, channels), *variance = channel_row(moments, channels, channels);
    strata_tensor *n = strata_scalar(graph, STRATA_DTYPE_F32, channels ? (double)(elements / channels) : 0);
    strata_tensor *parts[] = {strata_mul(mean, n), strata_reshape(n, STRATA_SHAPE(1))};
    strata_tensor *sums = strata_layer_sum_over_replicas(context, strata_concat(parts, 2, 0));
    strata_tensor *all = channel_row(sums, channels, 1);
    *out_mean = strata_div(channel_row(sums, 0, channels), all);
    strata_tensor *apart = strata_square(strata_sub(mean, *out_mean));
    *out_variance = strata_div(strata_layer_sum_over_replicas(context, strata_mul(strata_add(variance, apart), n)), all);
}

static strata_tensor *batch_norm_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_batch_norm_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    const double epsilon = strata_number_or(opts->epsilon, 1e-3);
    const strata_shape shape = strata_tensor_shape(x), channels = STRATA_SHAPE(shape.rank ? shape.dims[shape.rank - 1] : 0);
    strata_tensor *gamma = strata_layer_parameter(context, graph, "gamma", channels, "ones", 0, 0);
    strata_tensor *beta = strata_layer_parameter(context, graph, "beta", channels, "zeros", 0, 0);
    strata_tensor *mean = strata_layer_state(context, graph, "moving_mean", channels, "zeros");
    strata_tensor *variance = strata_layer_state(context, graph, "moving_variance", channels, "ones");
    strata_tensor *y;
    if (strata_layer_is_training(context)) {
        if (opts->synchronized && strata_layer_has_replicas(context)) {
            moments_of_all(context, x, &mean, &variance);
            y = strata_batch_norm(x, mean, variance, gamma, beta, epsilon);
        } else {
            y = strata_batch_norm_training(x, gamma, beta, epsilon, &mean, &variance);
        }
        strata_layer_update_state(context, "moving_mean", mean, 1 - momentum_of(opts));
        strata_layer_update_state(context, "moving_variance", variance, 1 - momentum_of(opts));
    } else {
        y = strata_batch_norm(x, mean, variance, gamma, beta, epsilon);
    }
    return strata_activation_apply(opts->activation, y);
}

const strata_layer_kind strata_layer_batch_norm = {
    .name = "batch_norm",
    .keeps_mask = true,
    .options_bytes = sizeof(strata_batch_norm_options),
    .name_offset = offsetof(strata_batch_norm_options, name),
    .options = {{"momentum", STRATA_OPTION_NUMBER, offsetof(strata_batch_norm_options, momentum), 0, 1, false},
                {"no_average", STRATA_OPTION_BOOL, offsetof(strata_batch_norm_options, no_average), 0, 0, false},
                {"synchronized", STRATA_OPTION_BOOL, offsetof(strata_batch_norm_options, synchronized), 0, 0, false},
                {"epsilon", STRATA_OPTION_NUMBER, offsetof(strata_batch_norm_options, epsilon), 0, 1, false},
                {"activation", STRATA_OPTION_ACTIVATION, offsetof(strata_batch_norm_options, activation), 0, 0, false}},
    .check = batch_norm_check,
    .build = batch_norm_build,
};
