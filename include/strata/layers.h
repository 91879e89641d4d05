/* SPDX-License-Identifier: Apache-2.0
 *
 * The layers of a sequential model and their options. A layer is core/layer/<name>.c; it speaks only ops. In a model's JSON a
 * layer is {"layer": "<name>", options by the names below}. Zero means the default that each field tells. */
#ifndef STRATA_LAYERS_H
#define STRATA_LAYERS_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_model strata_model;

/* Adding a layer never fails by itself: the model keeps the first error, and strata_model_compile reports it.
 * name NULL: the layer's kind with a number, as "dense", "dense_1". Names are copied and must be unique in the model. */

/* y = activation(x kernel + bias): x (N, in) -> (N, units). An x of more axes is multiplied along its last. */
typedef struct strata_dense_options {
    /* At least 1. */
    int64_t units;
    /* NULL: none; any of strata_activation_options. */
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform"; any of strata_initializer_names. */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* The loss has kernel_l1 sum |w| + kernel_l2 sum w^2 more; 0: not. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_dense_options;
STRATA_API void strata_model_add_dense(strata_model *model, strata_dense_options opts);

/* Element-wise; softmax over the last axis. `function`: "relu", "tanh", "sigmoid", "softmax", "gelu" (exact; "gelu_tanh" its
 * approximation), "silu" or "swish", "leaky_relu" (slope 0.2), "elu", "softplus". */
typedef struct strata_activation_options {
    const char *function;
    const char *name;
} strata_activation_options;
STRATA_API void strata_model_add_activation(strata_model *model, strata_activation_options opts);

/* While training sets elements to 0 with probability `rate` (0 <= rate < 1) and scales the others by 1 / (1 - rate). */
typedef struct strata_dropout_options {
    double rate;
    const char *name;
} strata_dropout_options;
STRATA_API void strata_model_add_dropout(strata_model *model, strata_dropout_options opts);

/* (N, ...) -> (N, product of the rest). */
typedef struct strata_flatten_options {
    const char *name;
} strata_flatten_options;
STRATA_API void strata_model_add_flatten(strata_model *model, strata_flatten_options opts);

/* (N, ...) -> (N, shape...), the same elements in their order. */
typedef struct strata_reshape_options {
    /* Of an example; one dimension may be -1: what is left. In JSON [4, 4, -1]. */
    strata_shape shape;
    const char *name;
} strata_reshape_options;
STRATA_API void strata_model_add_reshape(strata_model *model, strata_reshape_options opts);

/* Rows of a table (vocabulary, units), "embeddings", by tokens: x (N, ...) i32 -> (N, ..., units). For a model whose input is
 * i32 (strata_model_set_input_dtype). A token that is not in 0 .. vocabulary - 1 is an error when the model meets the data. */
typedef struct strata_embedding_options {
    /* At least 1. */
    int64_t vocabulary;
    /* At least 1. */
    int64_t units;
    /* NULL: "uniform". */
    const char *initializer;
    /* Token 0 is padding: a global pool and attention behind the embedding leave its places out, unless a layer between mixes
     * places. Layers that do not are dense, activation, dropout, batch_norm, layer_norm, attention itself, and a residual of
     * such. */
    bool mask_zero;
    /* An update changes only the rows of tokens that are in its batches, and costs by their number, not by the vocabulary's.
     * Parameters are those of a dense update with sgd without momentum and with adagrad; with momentum, adam, adamw and rmsprop
     * rows that are left out keep theirs, their slots and their decay too (as PyTorch's SparseAdam). Not with lars, lamb and
     * clip_norm, which need whole tables. With several replicas or accumulated gradients the numbers are the same, but the
     * gradient that travels, or is held, is that of all rows. */
    bool sparse;
    const char *name;
} strata_embedding_options;
STRATA_API void strata_model_add_embedding(strata_model *model, strata_embedding_options opts);

/* y = activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), by channel, the last axis (Ioffe & Szegedy 2015). While
 * training mean and (biased) variance are those of the batch over all other axes, and of them "moving_mean" and
 * "moving_variance" keep momentum * average + (1 - momentum) * batch; evaluation and prediction take these. Of batches whose
 * gradients are accumulated each is normalized by itself, as is a replica's share; the averages move once an update, by the
 * mean over them. */
typedef struct strata_batch_norm_options {
    /* 0: 0.99; below 1. */
    double momentum;
    /* momentum is 0: evaluation takes the last batch's. */
    bool no_average;
    /* 0: 1e-3. */
    double epsilon;
    /* NULL: none. */
    const char *activation;
    const char *name;
    /* Mean and variance are those of the whole batch, not of each replica's part: two small exchanges forward, two back. */
    bool synchronized;
} strata_batch_norm_options;
STRATA_API void strata_model_add_batch_norm(strata_model *model, strata_batch_norm_options opts);

/* ---- windows over images (N, H, W, C) or sequences (N, L, C) ----
 * Pairs are height, width; in JSON [3, 3], or 3 for both. padding: NULL or "valid": none; "same": ceil(H / stride) outputs, as
 * TensorFlow; "explicit": as explicit_padding says, in JSON [1, 1, 0, 2], or 1 for all (PyTorch's padding=1). */

/* y = activation(x * kernel + bias): x (N, H, W, C), kernel (KH, KW, C / groups, filters) -> (N, OH, OW, filters). */
typedef struct strata_conv2d_options {
    /* At least 1; groups must divide them. */
    int64_t filters;
    /* At least 1. */
    int64_t kernel_size[2];
    /* 0: 1. */
    int64_t stride[2];
    const char *padding;
    /* Top, bottom, left, right. */
    int64_t explicit_padding[4];
    /* 0: 1. */
    int64_t dilation[2];
    /* 0: 1; as many as channels: depthwise. */
    int64_t groups;
    /* NULL: none; as of dense. */
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform", over taps and channels of a group. */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* Penalties, as of dense. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_conv2d_options;
STRATA_API void strata_model_add_conv2d(strata_model *model, strata_conv2d_options opts);

/* The same along one axis: x (N, L, C), kernel (W, C / groups, filters) -> (N, OL, filters). */
typedef struct strata_conv1d_options {
    /* At least 1. */
    int64_t filters, kernel_size;
    /* 0: 1. */
    int64_t stride;
    const char *padding;
    /* Before, after. */
    int64_t explicit_padding[2];
    /* 0: 1. */
    int64_t dilation;
    /* 0: 1. */
    int64_t groups;
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform". */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* Penalties, as of dense. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_conv1d_options;
STRATA_API void strata_model_add_conv1d(strata_model *model, strata_conv1d_options opts);

/* The largest, or the mean of those inside the image, of each window: (N, H, W, C) -> (N, OH, OW, C). */
typedef struct strata_pool2d_options {
    /* At least 1. */
    int64_t size[2];
    /* 0: the size. */
    int64_t stride[2];
    const char *padding;
    /* Top, bottom, left, right; each less than the size. */
    int64_t explicit_padding[4];
    const char *name;
} strata_pool2d_options;
typedef strata_pool2d_options strata_max_pool2d_options;
STRATA_API void strata_model_add_max_pool2d(strata_model *model, strata_max_pool2d_options opts);
typedef strata_pool2d_options strata_avg_pool2d_options;
STRATA_API void strata_model_add_avg_pool2d(strata_model *model, strata_avg_pool2d_options opts);

/* (N, L, C) -> (N, OL, C) */
typedef struct strata_pool1d_options {
    /* At least 1. */
    int64_t size;
    /* 0: the size. */
    int64_t stride;
    const char *padding;
    /* Before, after; each less than the size. */
    int64_t explicit_padding[2];
    const char *name;
} strata_pool1d_options;
typedef strata_pool1d_options strata_max_pool1d_options;
STRATA_API void strata_model_add_max_pool1d(strata_model *model, strata_max_pool1d_options opts);
typedef strata_pool1d_options strata_avg_pool1d_options;
STRATA_API void strata_model_add_avg_pool1d(strata_model *model, strata_avg_pool1d_options opts);

/* (N, ..., C) -> (N, C): mean or largest over all axes between, without the places that an embedding's mask_zero says are
 * padding; 0 where all are. */
typedef struct strata_global_pool_options {
    const char *name;
} strata_global_pool_options;
typedef strata_global_pool_options strata_global_average_pool_options;
STRATA_API void strata_model_add_global_average_pool(strata_model *model, strata_global_average_pool_options opts);
typedef strata_global_pool_options strata_global_max_pool_options;
STRATA_API void strata_model_add_global_max_pool(strata_model *model, strata_global_max_pool_options opts);
/* y = activation(main(x) + shortcut(x)), each a chain of layers (He et al. 2016):
 *     strata_model_begin_residual(model, (strata_residual_options){.activation = "relu"});
 *     ... layers added here are its main path ...
 *     strata_model_begin_shortcut(model);            may be left out: the shortcut is then x itself
 *     ... layers added here are its shortcut ...
 *     strata_model_end_residual(model);
 * Both must give the same shape. Residuals may be nested. The layers in it have names of their own, "conv2d", and their
 * parameters the whole: "residual/conv2d/kernel". In JSON: {"layer": "residual", "activation": "relu", "layers": [...],
 * "shortcut": [...]}. */
typedef struct strata_residual_options {
    /* NULL: none. */
    const char *activation;
    const char *name;
} strata_residual_options;
STRATA_API void strata_model_begin_residual(strata_model *model, strata_residual_options opts);
STRATA_API void strata_model_begin_shortcut(strata_model *model);
STRATA_API void strata_model_end_residual(strata_model *model);

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, mean and variance of each row along the last axis (Ba et al.
 * 2016). */
typedef struct strata_layer_norm_options {
    /* 0: 1e-3. */
    double epsilon;
    const char *name;
} strata_layer_norm_options;
STRATA_API void strata_model_add_layer_norm(strata_model *model, strata_layer_norm_options opts);

/* Self-attention: x (N, places, C) -> the same shape. Places that an embedding's mask_zero says are padding have no weight as
 * keys, so the others are what they are in the sequence without them; what padding's own places give is left out by a pool.
 * Parameters "query_kernel" (C, heads key_dim), "query_bias", so for key and value, "output_kernel" (heads key_dim, C),
 * "output_bias". Scores are divided by sqrt(key_dim). */
typedef struct strata_multi_head_attention_options {
    /* At least 1. */
    int64_t heads;
    /* Channels of a head; 0: C / heads, which must divide. */
    int64_t key_dim;
    /* A place looks at those up to itself only. */
    bool causal;
    bool no_bias;
    const char *name;
} strata_multi_head_attention_options;
STRATA_API void strata_model_add_multi_head_attention(strata_model *model, strata_multi_head_attention_options opts);

/* NULL-terminated: "zeros", "ones", "normal" (std 0.05), "uniform" (-0.05..0.05), "glorot_uniform", "glorot_normal" (Glorot &
 * Bengio 2010), "he_uniform", "he_normal" (He et al. 2015). Drawn by Philox keyed by (seed, the parameter's place in the
 * model): the same on every device. */
extern STRATA_API const char *const strata_initializer_names[];

#ifdef __cplusplus
}
#endif
#endif
