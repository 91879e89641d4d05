/* SPDX-License-Identifier: Apache-2.0
 *
 * reshape: (N, ...) -> (N, shape...), with the elements in the same order. */
#include <inttypes.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_status reshape_check(const void *options, strata_error *err) {
    const strata_shape shape = ((const strata_reshape_options *)options)->shape;
    int n_inferred = 0;
    if (shape.rank < 0 || shape.rank >= STRATA_MAX_RANK)
        return strata_fail(err, STRATA_INVALID, "shape has %d dimensions; it may have 0 to %d", shape.rank,
                           STRATA_MAX_RANK - 1);
    for (int d = 0; d < shape.rank; d++) {
        n_inferred += shape.dims[d] == -1;
        if (shape.dims[d] < 1 && shape.dims[d] != -1)
            return strata_fail(err, STRATA_INVALID,
                               "dimension %d of shape is %" PRId64 "; it must be at least 1, or -1 for what is left", d,
                               shape.dims[d]);
    }
    if (n_inferred > 1)
        return strata_fail(err, STRATA_INVALID, "shape has %d dimensions of -1; one at most can be", n_inferred);
    return STRATA_OK;
}

static strata_tensor *reshape_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_shape shape = ((const strata_reshape_options *)options)->shape;
    (void)context;
    if (strata_tensor_is_poison(x)) return x;
    strata_shape all = {.rank = shape.rank + 1, .dims = {strata_tensor_shape(x).dims[0]}};
    memcpy(all.dims + 1, shape.dims, (size_t)shape.rank * sizeof *shape.dims);
    return strata_reshape(x, all);
}

const strata_layer_kind strata_layer_reshape = {
    .name = "reshape",
    STRATA_LAYER_OPTIONS(strata_reshape_options),
    .options = {{"shape", STRATA_OPTION_SHAPE, offsetof(strata_reshape_options, shape), -1, INT32_MAX, true}},
    .check = reshape_check,
    .build = reshape_build,
};
