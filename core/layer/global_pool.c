/* SPDX-License-Identifier: Apache-2.0
 *
 * global_average_pool, global_max_pool: (N, ..., C) -> (N, C), over all axes between. */
#include <stddef.h>

#include "core/graph.h"
#include "core/layer/layer.h"

typedef strata_tensor *(*reduction)(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);

static strata_tensor *reduce_middle(strata_tensor *x, reduction reduce, const char *layer) {
    static const int axes[STRATA_MAX_RANK] = {1, 2, 3, 4, 5, 6, 7};
    const strata_shape shape = strata_tensor_shape(x);
    if (!strata_tensor_is_poison(x) && shape.rank < 3)
        return strata_graph_poison(strata_tensor_graph(x), NULL, STRATA_INVALID,
                                   "%s: x is %s; it needs axes between the first, of examples, and the last, of channels",
                                   layer, strata_shape_text(shape).text);
    return reduce(x, axes, shape.rank - 2, false);
}

#define GLOBAL_POOL(which, reduce)                                                                              \
    static strata_tensor *which##_build(const void *options, strata_layer_context *context, strata_tensor *x) { \
        (void)options;                                                                                          \
        (void)context;                                                                                          \
        return reduce_middle(x, reduce, #which);                                                                \
    }                                                                                                           \
    const strata_layer_kind strata_layer_##which = {                                                            \
        .name = #which,                                                                                         \
        .options_bytes = sizeof(strata_global_pool_options),                                                    \
        .name_offset = offsetof(strata_global_pool_options, name),                                              \
        .build = which##_build,                                                                                 \
    }
GLOBAL_POOL(global_average_pool, strata_reduce_mean);
GLOBAL_POOL(global_max_pool, strata_reduce_max);
