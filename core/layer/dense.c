/* SPDX-License-Identifier: Apache-2.0
 *
 * dense: y = activation(x kernel + bias).   x (..., in), kernel (in, units), bias (units) -> y (..., units) */
#include "core/layer/layer.h"

static strata_status dense_check(const void *options, strata_error *err) {
    const strata_dense_options *opts = options;
    const strata_initializer *ignored;
    if (opts->kernel_initializer) STRATA_TRY(strata_initializer_find(opts->kernel_initializer, &ignored, err));
    if (opts->bias_initializer) STRATA_TRY(strata_initializer_find(opts->bias_initializer, &ignored, err));
    return strata_activation_check(opts->activation, err);
}

/* The columns [first, first + n) of x (..., in). */
static strata_tensor *columns(strata_tensor *x, int64_t first, int64_t n) {
    strata_shape size = strata_tensor_shape(x);
    int64_t begin[STRATA_MAX_RANK] = {0};
    begin[size.rank - 1] = first;
    size.dims[size.rank - 1] = n;
    return strata_slice(x, begin, size.dims);
}

/* x times the kernel. If the kernel is divided into parts, this is the sum of the products of each part with the
 * corresponding columns of x. */
static strata_tensor *product(const strata_dense_options *opts, strata_layer_context *context, strata_tensor *x, int64_t in) {
    strata_graph *graph = strata_tensor_graph(x);
    const char *initializer = opts->kernel_initializer ? opts->kernel_initializer : "glorot_uniform";
    const int n =
        strata_layer_split_parameter(context, graph, "kernel", STRATA_SHAPE(in, opts->units), initializer, in, opts->units);
    strata_tensor *y = NULL;
    for (int i = 0; i < n; i++) {
        int64_t first;
        strata_tensor *kernel = strata_layer_part(context, graph, "kernel", i, &first);
        strata_layer_penalize(context, kernel, opts->kernel_l1, opts->kernel_l2);
        strata_tensor *own = n > 1 ? columns(x, first, strata_tensor_shape(kernel).dims[0]) : x;
        strata_tensor *term = strata_matmul(own, strata_cast(kernel, strata_tensor_dtype(x)), false, false);
        y = y ? strata_add(y, term) : term;
    }
    return y;
}

static strata_tensor *dense_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_dense_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    strata_shape shape = strata_tensor_shape(x);
    int64_t in = shape.rank ? shape.dims[shape.rank - 1] : 0, units = opts->units;
    strata_tensor *y = product(opts, context, x, in);
    if (!opts->no_bias) {
        strata_tensor *bias = strata_layer_parameter(context, graph, "bias", STRATA_SHAPE(units),
                                                     opts->bias_initializer ? opts->bias_initializer : "zeros", in, units);
        y = strata_add(y, strata_cast(bias, strata_tensor_dtype(x)));
    }
    return strata_activation_apply(opts->activation, y);
}

const strata_layer_kind strata_layer_dense = {
    .name = "dense",
    .keeps_mask = true,
    STRATA_LAYER_OPTIONS(strata_dense_options),
    .options = {{"units", STRATA_OPTION_INT, offsetof(strata_dense_options, units), 1, 1 << 24, true},
                {"activation", STRATA_OPTION_ACTIVATION, offsetof(strata_dense_options, activation), 0, 0, false},
                {"no_bias", STRATA_OPTION_BOOL, offsetof(strata_dense_options, no_bias), 0, 0, false},
                {"kernel_initializer", STRATA_OPTION_STRING, offsetof(strata_dense_options, kernel_initializer), 0, 0, false},
                {"bias_initializer", STRATA_OPTION_STRING, offsetof(strata_dense_options, bias_initializer), 0, 0, false},
                STRATA_LAYER_PENALTY(strata_dense_options)},
    .check = dense_check,
    .build = dense_build,
};
