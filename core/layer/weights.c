/* SPDX-License-Identifier: Apache-2.0
 *
 * weights: an input of other layers that is a parameter, or a constant that is stored in the model's file. */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_status weights_check(const void *options, strata_error *err) {
    const strata_weights_options *opts = options;
    strata_dtype ignored;
    STRATA_TRY(strata_shape_check(opts->shape, err));
    if (opts->dtype && !opts->constant && strata_dtype_parse(opts->dtype, &ignored, NULL) == STRATA_OK && ignored)
        return strata_fail(err, STRATA_INVALID, "dtype is %s; only a constant has another type than f32", opts->dtype);
    return opts->dtype ? strata_dtype_parse(opts->dtype, &ignored, err) : STRATA_OK;
}

static strata_tensor *weights_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_weights_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    strata_dtype dtype = strata_layer_dtype(context);
    if (opts->dtype && strata_dtype_parse(opts->dtype, &dtype, NULL)) dtype = STRATA_DTYPE_F32;
    strata_tensor *value = opts->constant ? strata_layer_state(context, graph, "value", opts->shape, "zeros")
                                          : strata_layer_parameter(context, graph, "value", opts->shape, "zeros", 0, 0);
    return strata_cast(value, dtype);
}

const strata_layer_kind strata_layer_weights = {
    .name = "weights",
    STRATA_LAYER_OPTIONS(strata_weights_options),
    .options = {{"shape", STRATA_OPTION_SHAPE, offsetof(strata_weights_options, shape), 1, INT32_MAX, false},
                {"constant", STRATA_OPTION_BOOL, offsetof(strata_weights_options, constant), 0, 0, false},
                {"dtype", STRATA_OPTION_STRING, offsetof(strata_weights_options, dtype), 0, 0, false}},
    .check = weights_check,
    .build = weights_build,
};
