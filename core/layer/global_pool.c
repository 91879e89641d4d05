/* SPDX-License-Identifier: Apache-2.0
 *
 * global_average_pool, global_max_pool: (N, ..., C) -> (N, C), over all axes between the first and the last. Positions
 * that are padding are ignored. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static const int axes[STRATA_MAX_RANK] = {1, 2, 3, 4, 5, 6, 7};

static strata_tensor *check(strata_tensor *x, const char *layer) {
    const strata_shape shape = strata_tensor_shape(x);
    if (strata_tensor_is_poison(x) || shape.rank >= 3) return x;
    return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID,
                               "%s: x is %s; it needs axes between the first, of examples, and the last, of channels", layer,
                               strata_shape_text(shape).text);
}

static strata_tensor *number(const strata_tensor *beside, double value) {
    return strata_scalar(strata_tensor_graph(beside), strata_tensor_dtype(beside), value);
}

/* Adds an axis of size 1 for the channels: mask (N, ...) -> (N, ..., 1). */
static strata_tensor *beside_channels(strata_tensor *mask) {
    strata_shape shape = strata_tensor_shape(mask);
    shape.dims[shape.rank++] = 1;
    return strata_reshape(mask, shape);
}

/* The sum of x / n over the n positions that are not padding. */
static strata_tensor *average(strata_tensor *x, strata_tensor *mask, int n_axes) {
    if (!mask) return strata_reduce_mean(x, axes, n_axes, false);
    strata_tensor *held = strata_cast(mask, STRATA_DTYPE_F32);
    strata_tensor *n = strata_reduce_sum(held, axes, n_axes, true);
    strata_tensor *share = strata_div(held, strata_max(n, number(n, 1)));
    return strata_reduce_sum(strata_mul(x, strata_cast(beside_channels(share), strata_tensor_dtype(x))), axes, n_axes, false);
}

static strata_tensor *largest(strata_tensor *x, strata_tensor *mask, int n_axes) {
    if (!mask) return strata_reduce_max(x, axes, n_axes, false);
    const strata_dtype dtype = strata_tensor_dtype(x);
    strata_tensor *low = number(x, dtype == STRATA_DTYPE_F16 ? -65504 : -1e30);
    strata_tensor *any = strata_reduce_max(strata_cast(beside_channels(mask), dtype), axes, n_axes, false);
    return strata_mul(strata_reduce_max(strata_where(beside_channels(mask), x, low), axes, n_axes, false), any);
}

#define GLOBAL_POOL(which, reduce)                                                                              \
    static strata_tensor *which##_build(const void *options, strata_layer_context *context, strata_tensor *x) { \
        (void)options;                                                                                          \
        x = check(x, #which);                                                                                   \
        if (strata_tensor_is_poison(x)) return x;                                                               \
        return reduce(x, strata_layer_mask(context), strata_tensor_shape(x).rank - 2);                          \
    }                                                                                                           \
    const strata_layer_kind strata_layer_##which = {                                                            \
        .name = #which,                                                                                         \
        STRATA_LAYER_OPTIONS(strata_global_pool_options),                                                       \
        .build = which##_build,                                                                                 \
    }
GLOBAL_POOL(global_average_pool, average);
GLOBAL_POOL(global_max_pool, largest);
