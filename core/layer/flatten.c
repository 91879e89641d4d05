/* SPDX-License-Identifier: Apache-2.0
 *
 * flatten: (N, ...) -> (N, product of the rest). */
#include "core/layer/layer.h"

static strata_tensor *flatten_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    (void)options;
    (void)context;
    return strata_flatten(x);
}

const strata_layer_kind strata_layer_flatten = {
    .name = "flatten",
    STRATA_LAYER_OPTIONS(strata_flatten_options),
    .build = flatten_build,
};
