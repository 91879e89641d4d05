/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_norm: y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with the mean and the variance of each row along
 * the last axis. */
#include "core/layer/layer.h"

static strata_status layer_norm_check(const void *options, strata_error *err) {
    const double epsilon = ((const strata_layer_norm_options *)options)->epsilon;
    if (epsilon >= 0 && epsilon < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "epsilon is %g; it must be at least 0 and below 1", epsilon);
}

static strata_tensor *layer_norm_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const double epsilon = ((const strata_layer_norm_options *)options)->epsilon;
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x), last = STRATA_SHAPE(shape.rank ? shape.dims[shape.rank - 1] : 0);
    strata_tensor *gamma = strata_layer_parameter(context, graph, "gamma", last, "ones", 0, 0);
    strata_tensor *beta = strata_layer_parameter(context, graph, "beta", last, "zeros", 0, 0);
    return strata_layer_norm(x, gamma, beta, strata_number_or(epsilon, 1e-3));
}

const strata_layer_kind strata_layer_layer_norm = {
    .name = "layer_norm",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_layer_norm_options),
    .options = {{"epsilon", STRATA_OPTION_NUMBER, offsetof(strata_layer_norm_options, epsilon), 0, 1, false}},
    .check = layer_norm_check,
    .build = layer_norm_build,
};
