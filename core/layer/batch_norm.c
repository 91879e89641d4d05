/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_norm: y = activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), for each channel (the last axis). In
 * training, mean and variance are those of the batch, without positions that are padding, and the layer updates moving
 * averages of them. Predictions use the moving averages. */
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

/* The mean and the variance of x in each channel. With `synchronized` they are those of all replicas' examples: the rows are
 * counted and the sums are added up over the replicas. Rows of padding are left out; of none, both are 0. */
static void moments(strata_layer_context *context, strata_tensor *x, strata_tensor *mask, bool synchronized,
                    strata_tensor **out_mean, strata_tensor **out_variance) {
    const strata_shape shape = strata_tensor_shape(x);
    const int64_t channels = shape.rank ? shape.dims[shape.rank - 1] : 0, elements = strata_shape_elements(shape);
    const int64_t rows = channels ? elements / channels : 0;
    strata_tensor *each = strata_reshape(strata_cast(x, STRATA_DTYPE_F32), STRATA_SHAPE(rows, channels));
    strata_tensor *held = mask ? strata_reshape(strata_cast(mask, STRATA_DTYPE_F32), STRATA_SHAPE(rows, 1)) : NULL;
    strata_tensor *n = held ? strata_reduce_sum(held, NULL, 0, false) : strata_layer_count_rows(context, x, rows);
    strata_tensor *sum = strata_reduce_sum(held ? strata_mul(each, held) : each, (int[]){0}, 1, false);
    strata_tensor *both[] = {sum, strata_reshape(n, STRATA_SHAPE(1))}, *sums = strata_concat(both, 2, 0);
    if (synchronized) sums = strata_layer_sum_over_replicas(context, sums);
    strata_tensor *one = strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, 1);
    strata_tensor *least_one = strata_max(channel_row(sums, channels, 1), one);
    *out_mean = strata_div(channel_row(sums, 0, channels), least_one);
    strata_tensor *squares = strata_square(strata_sub(each, *out_mean));
    squares = strata_reduce_sum(held ? strata_mul(squares, held) : squares, (int[]){0}, 1, false);
    if (synchronized) squares = strata_layer_sum_over_replicas(context, squares);
    *out_variance = strata_div(squares, least_one);
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
    strata_tensor *y, *mask = strata_layer_mask(context);
    if (strata_layer_is_training(context)) {
        const bool synchronized = opts->synchronized && strata_layer_has_replicas(context);
        if (mask || synchronized) {
            moments(context, x, mask, synchronized, &mean, &variance);
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
    STRATA_LAYER_OPTIONS(strata_batch_norm_options),
    .options = {{"momentum", STRATA_OPTION_NUMBER, offsetof(strata_batch_norm_options, momentum), 0, 1, false},
                {"no_average", STRATA_OPTION_BOOL, offsetof(strata_batch_norm_options, no_average), 0, 0, false},
                {"synchronized", STRATA_OPTION_BOOL, offsetof(strata_batch_norm_options, synchronized), 0, 0, false},
                {"epsilon", STRATA_OPTION_NUMBER, offsetof(strata_batch_norm_options, epsilon), 0, 1, false},
                {"activation", STRATA_OPTION_ACTIVATION, offsetof(strata_batch_norm_options, activation), 0, 0, false}},
    .check = batch_norm_check,
    .build = batch_norm_build,
};
