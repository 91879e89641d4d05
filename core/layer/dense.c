/* SPDX-License-Identifier: Apache-2.0
 *
 * dense: y = activation(x kernel + bias).   x (..., in), kernel (in, units), bias (units) -> y (..., units) */
#include <stddef.h>

#include "core/layer/layer.h"

static strata_status dense_check(const void *options, strata_error *err) {
    const strata_dense_options *opts = options;
    const strata_initializer *ignored;
    if (opts->units < 1)
        return strata_fail(err, STRATA_INVALID, "units is %lld; it must be at least 1", (long long)opts->units);
    if (opts->kernel_initializer) STRATA_TRY(strata_initializer_find(opts->kernel_initializer, &ignored, err));
    if (opts->bias_initializer) STRATA_TRY(strata_initializer_find(opts->bias_initializer, &ignored, err));
    STRATA_TRY(strata_layer_check_penalty(opts->kernel_l1, opts->kernel_l2, err));
    return strata_activation_check(opts->activation, err);
}

static strata_tensor *dense_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_dense_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    strata_shape shape = strata_tensor_shape(x);
    int64_t in = shape.rank ? shape.dims[shape.rank - 1] : 0, units = opts->units;
    strata_tensor *kernel =
        strata_layer_parameter(context, graph, "kernel", STRATA_SHAPE(in, units),
                               opts->kernel_initializer ? opts->kernel_initializer : "glorot_uniform", in, units);
    strata_layer_penalize(context, kernel, opts->kernel_l1, opts->kernel_l2);
    const strata_dtype dtype = strata_tensor_dtype(x);
    strata_tensor *y = strata_matmul(x, strata_cast(kernel, dtype), false, false);
    if (!opts->no_bias) {
        strata_tensor *bias = strata_layer_parameter(context, graph, "bias", STRATA_SHAPE(units),
                                                     opts->bias_initializer ? opts->bias_initializer : "zeros", in, units);
        y = strata_add(y, strata_cast(bias, dtype));
    }
    return strata_activation_apply(opts->activation, y);
}

const strata_layer_kind strata_layer_dense = {
    .name = "dense",
    .keeps_mask = true,
    .options_bytes = sizeof(strata_dense_options),
    .name_offset = offsetof(strata_dense_options, name),
    .options = {{"units", STRATA_OPTION_INT, offsetof(strata_dense_options, units), 1, 1 << 24, true},
                {"activation", STRATA_OPTION_STRING, offsetof(strata_dense_options, activation), 0, 0, false},
                {"no_bias", STRATA_OPTION_BOOL, offsetof(strata_dense_options, no_bias), 0, 0, false},
                {"kernel_initializer", STRATA_OPTION_STRING, offsetof(strata_dense_options, kernel_initializer), 0, 0, false},
                {"bias_initializer", STRATA_OPTION_STRING, offsetof(strata_dense_options, bias_initializer), 0, 0, false},
                STRATA_LAYER_PENALTY(strata_dense_options)},
    .check = dense_check,
    .build = dense_build,
};
