/* SPDX-License-Identifier: Apache-2.0
 *
 * group_norm: y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with mean and biased variance of each example's group of
 * channels, over all positions. rms_norm: y = gamma x / sqrt(mean of x^2 + epsilon), where the mean is that of each row
 * along the last axis. Both layers consist of several ops; the element-wise ones become one kernel. Sums are f32. */
#include <inttypes.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_status check_epsilon(double epsilon, strata_error *err) {
    if (epsilon >= 0 && epsilon < 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "epsilon is %g; it must be at least 0 and below 1", epsilon);
}

/* x / sqrt(mean of x^2 along the axes + epsilon). */
static strata_tensor *by_root_mean_square(strata_tensor *x, const int *axes, int n_axes, double epsilon) {
    strata_tensor *squares = strata_reduce_mean(strata_square(x), axes, n_axes, true);
    return strata_mul(x, strata_rsqrt(strata_add(squares, strata_scalar(strata_tensor_graph(x), STRATA_DTYPE_F32, epsilon))));
}

/* ---- group_norm ---- */

enum { DEFAULT_GROUPS = 32 };

static strata_status group_norm_check(const void *options, strata_error *err) {
    return check_epsilon(((const strata_group_norm_options *)options)->epsilon, err);
}

static strata_tensor *group_norm_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_group_norm_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    const strata_dtype dtype = strata_tensor_dtype(x);
    const int64_t channels = shape.rank ? shape.dims[shape.rank - 1] : 0;
    const int64_t groups = opts->groups == -1 ? channels : opts->groups ? opts->groups : DEFAULT_GROUPS;
    int64_t places = 1;
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank < 2 || !channels || channels % groups)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "x is %s; its %" PRId64 " channels can't be divided into %" PRId64 " groups",
                                   strata_shape_text(shape).text, channels, groups);
    for (int d = 1; d < shape.rank - 1; d++) places *= shape.dims[d];
    const strata_shape grouped = STRATA_SHAPE(shape.dims[0], places, groups, channels / groups);
    x = strata_reshape(strata_cast(x, STRATA_DTYPE_F32), grouped);
    x = strata_sub(x, strata_reduce_mean(x, (int[]){1, 3}, 2, true));
    x = by_root_mean_square(x, (int[]){1, 3}, 2, strata_number_or(opts->epsilon, 1e-3));
    x = strata_reshape(x, shape);
    if (!opts->no_scale)
        x = strata_mul(x, strata_layer_parameter(context, graph, "gamma", STRATA_SHAPE(channels), "ones", 0, 0));
    if (!opts->no_center)
        x = strata_add(x, strata_layer_parameter(context, graph, "beta", STRATA_SHAPE(channels), "zeros", 0, 0));
    return strata_cast(x, dtype);
}

const strata_layer_kind strata_layer_group_norm = {
    .name = "group_norm",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_group_norm_options),
    .options = {{"groups", STRATA_OPTION_COUNT, offsetof(strata_group_norm_options, groups), -1, 1 << 24, false},
                {"epsilon", STRATA_OPTION_NUMBER, offsetof(strata_group_norm_options, epsilon), 0, 1, false},
                {"no_scale", STRATA_OPTION_BOOL, offsetof(strata_group_norm_options, no_scale), 0, 0, false},
                {"no_center", STRATA_OPTION_BOOL, offsetof(strata_group_norm_options, no_center), 0, 0, false}},
    .check = group_norm_check,
    .build = group_norm_build,
};

/* ---- rms_norm ---- */

static strata_status rms_norm_check(const void *options, strata_error *err) {
    return check_epsilon(((const strata_rms_norm_options *)options)->epsilon, err);
}

static strata_tensor *rms_norm_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_rms_norm_options *opts = options;
    const strata_shape shape = strata_tensor_shape(x), last = STRATA_SHAPE(shape.rank ? shape.dims[shape.rank - 1] : 0);
    const strata_dtype dtype = strata_tensor_dtype(x);
    strata_graph *graph = strata_tensor_graph(x);
    x = by_root_mean_square(strata_cast(x, STRATA_DTYPE_F32), (int[]){-1}, 1, strata_number_or(opts->epsilon, 1e-6));
    if (!opts->no_scale) x = strata_mul(x, strata_layer_parameter(context, graph, "gamma", last, "ones", 0, 0));
    return strata_cast(x, dtype);
}

const strata_layer_kind strata_layer_rms_norm = {
    .name = "rms_norm",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_rms_norm_options),
    .options = {{"epsilon", STRATA_OPTION_NUMBER, offsetof(strata_rms_norm_options, epsilon), 0, 1, false},
                {"no_scale", STRATA_OPTION_BOOL, offsetof(strata_rms_norm_options, no_scale), 0, 0, false}},
    .check = rms_norm_check,
    .build = rms_norm_build,
};
