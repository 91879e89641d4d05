/* SPDX-License-Identifier: Apache-2.0
 *
 * multi_head_attention of x (N, T, C) with itself (Vaswani et al. 2017). Queries, keys and values are products of x,
 * divided into heads. Positions of padding are not used as keys. A last product maps the outputs of all heads to C
 * channels. */
#include <stdio.h>

#include "core/graph/graph.h"
#include "core/layer/layer.h"

/* The product of x (N, T, in) with the parameter `name`_kernel (in, out), plus its bias. */
static strata_tensor *product(const strata_multi_head_attention_options *opts, strata_layer_context *context, strata_tensor *x,
                              const char *name, int64_t out) {
    char kernel[32], bias[32];
    strata_graph *graph = strata_tensor_graph(x);
    const int64_t in = strata_tensor_shape(x).dims[2];
    snprintf(kernel, sizeof kernel, "%s_kernel", name);
    snprintf(bias, sizeof bias, "%s_bias", name);
    strata_tensor *weights = strata_layer_parameter(context, graph, kernel, STRATA_SHAPE(in, out), "glorot_uniform", in, out);
    const strata_dtype dtype = strata_tensor_dtype(x);
    strata_tensor *y = strata_matmul(x, strata_cast(weights, dtype), false, false);
    if (opts->no_bias) return y;
    return strata_add(y, strata_cast(strata_layer_parameter(context, graph, bias, STRATA_SHAPE(out), "zeros", in, out), dtype));
}

/* (N, T, heads key_dim) -> (N, heads, T, key_dim) */
static strata_tensor *to_heads(strata_tensor *x, int64_t n, int64_t t, int64_t heads, int64_t key_dim) {
    return strata_transpose(strata_reshape(x, STRATA_SHAPE(n, t, heads, key_dim)), (int[]){0, 2, 1, 3});
}

/* A mask (t, t) of bool, in which query i uses keys 0 .. i. */
static strata_tensor *causal_mask(strata_graph *graph, int64_t t) {
    uint8_t *values = calloc((size_t)(t * t) + 1, 1);
    if (!values)
        return strata_graph_poison(graph, NULL, STRATA_OUT_OF_MEMORY, "no host memory for a mask of %lld places", (long long)t);
    for (int64_t i = 0; i < t; i++) memset(values + i * t, 1, (size_t)i + 1);
    strata_array view = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(t, t), values);
    strata_tensor *mask = strata_constant(graph, &view);
    free(values);
    return mask;
}

/* The mask of the keys that each query uses, as bool that broadcasts to (n, heads, t, t). NULL: each query uses all keys. */
static strata_tensor *mask_of(const strata_multi_head_attention_options *opts, const strata_layer_context *context,
                              strata_graph *graph, int64_t n, int64_t t) {
    strata_tensor *held = strata_layer_mask(context), *back = opts->causal ? causal_mask(graph, t) : NULL;
    if (!held) return back;
    held = strata_reshape(held, STRATA_SHAPE(n, 1, 1, t));
    return back ? strata_where(held, back, strata_scalar(graph, STRATA_DTYPE_BOOL, 0)) : held;
}

static strata_tensor *attention_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_multi_head_attention_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    const strata_shape shape = strata_tensor_shape(x);
    if (strata_tensor_is_poison(x)) return x;
    if (shape.rank != 3)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "x is %s; it must be (N, places, channels)",
                                   strata_shape_text(shape).text);
    const int64_t n = shape.dims[0], t = shape.dims[1], c = shape.dims[2], heads = opts->heads;
    if (!opts->key_dim && c % heads)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "x has %lld channels and there are %lld heads; they do not divide: give key_dim",
                                   (long long)c, (long long)heads);
    const int64_t key_dim = opts->key_dim ? opts->key_dim : c / heads;
    strata_tensor *q = to_heads(product(opts, context, x, "query", heads * key_dim), n, t, heads, key_dim);
    strata_tensor *k = to_heads(product(opts, context, x, "key", heads * key_dim), n, t, heads, key_dim);
    strata_tensor *v = to_heads(product(opts, context, x, "value", heads * key_dim), n, t, heads, key_dim);
    strata_tensor *y = strata_attention(q, k, v, mask_of(opts, context, graph, n, t), 0);
    y = strata_reshape(strata_transpose(y, (int[]){0, 2, 1, 3}), STRATA_SHAPE(n, t, heads * key_dim));
    return strata_tensor_is_poison(y) ? y : product(opts, context, y, "output", c);
}

const strata_layer_kind strata_layer_multi_head_attention = {
    .name = "multi_head_attention",
    STRATA_LAYER_OPTIONS(strata_multi_head_attention_options),
    .options = {{"heads", STRATA_OPTION_INT, offsetof(strata_multi_head_attention_options, heads), 1, 1 << 16, true},
                {"key_dim", STRATA_OPTION_INT, offsetof(strata_multi_head_attention_options, key_dim), 1, 1 << 16, false},
                {"causal", STRATA_OPTION_BOOL, offsetof(strata_multi_head_attention_options, causal), 0, 0, false},
                {"no_bias", STRATA_OPTION_BOOL, offsetof(strata_multi_head_attention_options, no_bias), 0, 0, false}},
    .keeps_mask = true,
    .build = attention_build,
};
