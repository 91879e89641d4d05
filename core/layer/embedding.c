/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding: the rows of a table whose indices are the tokens.   x (N, ...) i32, embeddings (vocabulary, units) -> y (N,
 * ..., units) */
#include "core/graph/graph.h"
#include "core/layer/layer.h"

static strata_status embedding_check(const void *options, strata_error *err) {
    const strata_embedding_options *opts = options;
    const strata_initializer *ignored;
    return opts->initializer ? strata_initializer_find(opts->initializer, &ignored, err) : STRATA_OK;
}

static strata_tensor *embedding_build(const void *options, strata_layer_context *context, strata_tensor *x) {
    const strata_embedding_options *opts = options;
    strata_graph *graph = strata_tensor_graph(x);
    if (strata_tensor_dtype(x) == STRATA_DTYPE_F32)
        return strata_graph_poison(graph, NULL, STRATA_INVALID,
                                   "it takes i32 tokens, x is f32; set the model's input_dtype to i32");
    strata_layer_limit_tokens(context, x, opts->vocabulary);
    strata_layer_split_parameter(context, graph, "embeddings", STRATA_SHAPE(opts->vocabulary, opts->units),
                                 opts->initializer ? opts->initializer : "uniform", opts->vocabulary, opts->units);
    if (opts->mask_zero) strata_layer_set_mask(context, strata_not_equal(x, strata_scalar(graph, strata_tensor_dtype(x), 0)));
    return strata_cast(strata_layer_rows(context, graph, "embeddings", x, opts->sparse), strata_layer_dtype(context));
}

const strata_layer_kind strata_layer_embedding = {
    .name = "embedding",
    STRATA_LAYER_OPTIONS(strata_embedding_options),
    .options = {{"vocabulary", STRATA_OPTION_INT, offsetof(strata_embedding_options, vocabulary), 1, INT32_MAX, true},
                {"units", STRATA_OPTION_INT, offsetof(strata_embedding_options, units), 1, 1 << 24, true},
                {"initializer", STRATA_OPTION_STRING, offsetof(strata_embedding_options, initializer), 0, 0, false},
                {"mask_zero", STRATA_OPTION_BOOL, offsetof(strata_embedding_options, mask_zero), 0, 0, false},
                {"sparse", STRATA_OPTION_BOOL, offsetof(strata_embedding_options, sparse), 0, 0, false}},
    .check = embedding_check,
    .build = embedding_build,
};
