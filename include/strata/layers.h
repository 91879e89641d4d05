/* SPDX-License-Identifier: Apache-2.0
 *
 * The layers of a sequential model, and their options. In a model's JSON a layer is {"layer": "<name>", ...} with the names of
 * the fields below as keys. A field that is 0, NULL or false means the default that its comment names. In a field of type
 * double STRATA_ZERO (strata/numbers.h) is the number 0.
 *
 * Shapes. N is the number of examples in a batch, C the number of channels, the last axis. x is the layer's input, y its
 * output; both are floats, except for the tokens that an embedding takes. core/layer/<name>.c shows how each layer is built
 * from ops.
 *
 * Errors. Adding a layer does not fail by itself: the model keeps the first error, and strata_model_compile returns it. INVALID
 * for an option out of range, an unknown name (the message lists the known ones), or an input whose shape or dtype the layer
 * does not take; the message names the layer. */
#ifndef STRATA_LAYERS_H
#define STRATA_LAYERS_H

#include "strata/numbers.h"
#include "strata/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_model strata_model;

/* The most inputs and outputs of a model. */
enum { STRATA_MAX_INPUTS = 8, STRATA_MAX_OUTPUTS = 8 };
/* The most inputs of a call of a layer. */
enum { STRATA_MAX_LAYER_INPUTS = 64 };

/* `name` of a layer: copied, and unique in the model. The names of the layer's parameters begin with it: "dense/kernel". NULL:
 * the name is the layer's kind, with a number from the second layer of this kind on: "dense", "dense_1". */

/* y = activation(x kernel + bias): x (N, ..., in) -> (N, ..., units), with kernel (in, units) and bias (units). */
typedef struct strata_dense_options {
    /* At least 1. */
    int64_t units;
    /* A function of strata_activation_options. NULL: none. */
    const char *activation;
    bool no_bias;
    /* One of strata_initializer_names. NULL: "glorot_uniform". */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* Penalties: kernel_l1 sum |w| + kernel_l2 sum w^2 over the elements w of the kernel is added to the loss, once for a layer
     * that is called several times. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_dense_options;
STRATA_API void strata_model_add_dense(strata_model *model, strata_dense_options opts);

/* y = function(x), of x's shape. Formulas: the ops of these names in strata/ops.h. */
typedef struct strata_activation_options {
    /* "relu", "tanh", "sigmoid", "softmax" (along the last axis), "gelu" or its approximation "gelu_tanh", "silu" or "swish",
     * "leaky_relu" (slope 0.2), "elu" (scale 1), "softplus", "softsign": x / (1 + |x|). Required. */
    const char *function;
    const char *name;
} strata_activation_options;
STRATA_API void strata_model_add_activation(strata_model *model, strata_activation_options opts);

/* While training, each element of y is 0 with probability `rate`, and x / (1 - rate) otherwise. In evaluation and prediction y
 * = x. */
typedef struct strata_dropout_options {
    /* 0 <= rate < 1. */
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
    /* The shape of one example, without N. One dimension may be -1: it is computed from the number of elements and the other
     * dimensions. In JSON: [4, 4, -1]. */
    strata_shape shape;
    const char *name;
} strata_reshape_options;
STRATA_API void strata_model_add_reshape(strata_model *model, strata_reshape_options opts);

/* y[...] = embeddings[x[...]]: x (N, ...) i32 -> (N, ..., units), rows of the parameter "embeddings" (vocabulary, units). The
 * model's input must be i32 (strata_model_set_input_dtype). A token outside of 0 .. vocabulary - 1 is an error of the call that
 * is given the data (fit, evaluate, predict). */
typedef struct strata_embedding_options {
    /* At least 1. */
    int64_t vocabulary;
    /* At least 1. */
    int64_t units;
    /* NULL: "uniform". */
    const char *initializer;
    /* Token 0 is padding. Global pooling, attention, recurrent and batch_norm layers after the embedding leave padded positions
     * out. This works only if each layer in between keeps the mask of padded positions: dense, activation, dropout, batch_norm,
     * layer_norm, rms_norm, group_norm, attention, lstm, gru, and residuals of these. After any other layer padding is treated
     * like other positions. */
    bool mask_zero;
    /* An update changes only the rows of tokens that occur in its batches, so its cost depends on their number and not on the
     * vocabulary. With adagrad, and with sgd without momentum, the result equals that of a dense update. With momentum, adam,
     * adamw and rmsprop the other rows and their slots do not change, and decay does not apply to them (as in PyTorch's
     * SparseAdam). compile fails for lars, lamb and clip_norm, which need the whole table. With several replicas, accumulated
     * gradients, or batches of at least as many tokens as the vocabulary, results are the same, but gradients of all rows are
     * sent or stored. */
    bool sparse;
    const char *name;
} strata_embedding_options;
STRATA_API void strata_model_add_embedding(strata_model *model, strata_embedding_options opts);

/* y = activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), of x's shape, for each channel (Ioffe & Szegedy 2015).
 *
 * While training, mean and biased variance are those of the batch, over all axes but the last. Positions that are padding
 * (mask_zero of an embedding) are left out, as in Keras. The states "moving_mean" and "moving_variance" become momentum *
 * average + (1 - momentum) * batch; evaluation and prediction use them. Each replica normalizes its own part of a batch, and
 * the moving averages use the mean over these parts. If gradients are accumulated over several batches, each batch is
 * normalized by itself, and the moving averages change by each of these batches, as in Keras, at the end of the update. */
typedef struct strata_batch_norm_options {
    /* 0: 0.99; at least 0 and below 1. STRATA_ZERO: evaluation uses mean and variance of the last batch. */
    double momentum;
    /* The same as a momentum of STRATA_ZERO. */
    bool no_average;
    /* 0: 1e-3. */
    double epsilon;
    /* NULL: none. */
    const char *activation;
    const char *name;
    /* Mean and variance are those of the whole batch, not of each replica's part. Costs two small exchanges in the forward pass
     * and two in the backward pass. */
    bool synchronized;
} strata_batch_norm_options;
STRATA_API void strata_model_add_batch_norm(strata_model *model, strata_batch_norm_options opts);

/* ---- windows over images (N, H, W, C) or sequences (N, L, C) ----
 * Pairs are {height, width}; in JSON [3, 3], or 3 for both. `padding` is one of
 *     "valid", or NULL   none
 *     "same"             zeros around x, so that there are ceil(H / stride) rows of outputs, as in TensorFlow
 *     "explicit"         the numbers of zeros in explicit_padding: in JSON [1, 1, 0, 2], or 1 for all sides
 * Formulas of the output's size: strata/ops.h. A window that leaves no output is an error. */

/* y = activation(x * kernel + bias), where * is a convolution (strata_conv2d): x (N, H, W, C) -> (N, OH, OW, filters), with
 * kernel (KH, KW, C / groups, filters) and bias (filters). */
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
    /* The number of groups into which channels and filters are divided. Each group is convolved separately; with as many
     * groups as channels this is a depthwise convolution. Must divide the channels. 0: 1. */
    int64_t groups;
    /* As in strata_dense_options. */
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform". The fan-in counts the taps and channels of one group. */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* Penalties, as in strata_dense_options. */
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
    /* Penalties, as in strata_dense_options. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_conv1d_options;
STRATA_API void strata_model_add_conv1d(strata_model *model, strata_conv1d_options opts);

/* A transposed convolution (strata_conv2d_transpose), which makes images larger: x (N, H, W, C) -> (N, OH, OW, filters),
 * with kernel (KH, KW, filters, C) and bias (filters). With K = (KH - 1) dilation + 1, and in the same way for widths:
 *     "valid", or NULL   OH = H stride + max(K - stride, 0)
 *     "same"             OH = H stride
 * If output_padding of one axis is not 0, both axes have OH = (H - 1) stride + K + output_padding, and 2 (K / 2) less for
 * "same", where K / 2 is rounded down. */
typedef struct strata_conv2d_transpose_options {
    /* At least 1. */
    int64_t filters;
    /* At least 1. */
    int64_t kernel_size[2];
    /* 0: 1. */
    int64_t stride[2];
    /* "valid" or "same". */
    const char *padding;
    /* Additional rows and columns, as above; each must be less than the stride of its axis. Both 0: the sizes of the table
     * above. */
    int64_t output_padding[2];
    /* 0: 1. */
    int64_t dilation[2];
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform". */
    const char *kernel_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    /* Penalties, as in strata_dense_options. */
    double kernel_l1, kernel_l2;
    const char *name;
} strata_conv2d_transpose_options;
STRATA_API void strata_model_add_conv2d_transpose(strata_model *model, strata_conv2d_transpose_options opts);

/* Each channel convolved by itself: x (N, H, W, C) -> (N, OH, OW, C depth_multiplier), with kernel (KH, KW, C,
 * depth_multiplier) and bias (C depth_multiplier). Output c depth_multiplier + m is channel c by its filter m. */
typedef struct strata_depthwise_conv2d_options {
    /* At least 1. */
    int64_t kernel_size[2];
    /* 0: 1. */
    int64_t stride[2];
    const char *padding;
    /* Top, bottom, left, right. */
    int64_t explicit_padding[4];
    /* 0: 1. */
    int64_t dilation[2];
    /* Filters of each channel. 0: 1. */
    int64_t depth_multiplier;
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform". */
    const char *depthwise_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    const char *name;
} strata_depthwise_conv2d_options;
STRATA_API void strata_model_add_depthwise_conv2d(strata_model *model, strata_depthwise_conv2d_options opts);

/* A depthwise convolution without bias, followed by a 1 x 1 convolution over all channels (Chollet 2017): x (N, H, W, C) -> (N,
 * OH, OW, filters), with "depthwise_kernel" (KH, KW, C, depth_multiplier), "pointwise_kernel" (1, 1, C depth_multiplier,
 * filters) and bias (filters). */
typedef struct strata_separable_conv2d_options {
    /* At least 1. */
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
    /* Filters of each channel. 0: 1. */
    int64_t depth_multiplier;
    const char *activation;
    bool no_bias;
    /* NULL: "glorot_uniform". */
    const char *depthwise_initializer;
    /* NULL: "glorot_uniform". */
    const char *pointwise_initializer;
    /* NULL: "zeros". */
    const char *bias_initializer;
    const char *name;
} strata_separable_conv2d_options;
STRATA_API void strata_model_add_separable_conv2d(strata_model *model, strata_separable_conv2d_options opts);

/* The largest element, or the mean, of each window: x (N, H, W, C) -> (N, OH, OW, C). Padding does not count in either. */
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

/* The same over sequences: x (N, L, C) -> (N, OL, C). */
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

/* x (N, ..., C) -> (N, C): the mean, or the largest element, over all axes between. Positions that are padding (mask_zero of an
 * embedding) are left out; an example that is only padding gives 0. */
typedef struct strata_global_pool_options {
    const char *name;
} strata_global_pool_options;
typedef strata_global_pool_options strata_global_average_pool_options;
STRATA_API void strata_model_add_global_average_pool(strata_model *model, strata_global_average_pool_options opts);
typedef strata_global_pool_options strata_global_max_pool_options;
STRATA_API void strata_model_add_global_max_pool(strata_model *model, strata_global_max_pool_options opts);

/* y = activation(main(x) + shortcut(x)), where main and shortcut are sequences of layers (He et al. 2016):
 *     strata_model_begin_residual(model, (strata_residual_options){.activation = "relu"});
 *     ... layers added here are its main path ...
 *     strata_model_begin_shortcut(model);            optional; without it the shortcut is x itself
 *     ... layers added here are its shortcut ...
 *     strata_model_end_residual(model);
 * Both must have the same output shape. Residuals may be nested. Inside a residual, the numbering of default names starts again
 * ("conv2d"), and names of parameters begin with the residual's name: "residual/conv2d/kernel". In JSON: {"layer": "residual",
 * "activation": "relu", "layers": [...], "shortcut": [...]}. */
typedef struct strata_residual_options {
    /* NULL: none. */
    const char *activation;
    const char *name;
} strata_residual_options;
STRATA_API void strata_model_begin_residual(strata_model *model, strata_residual_options opts);
STRATA_API void strata_model_begin_shortcut(strata_model *model);
STRATA_API void strata_model_end_residual(strata_model *model);

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, of x's shape, with mean and biased variance of each row along the
 * last axis (Ba et al. 2016). */
typedef struct strata_layer_norm_options {
    /* 0: 1e-3. */
    double epsilon;
    const char *name;
} strata_layer_norm_options;
STRATA_API void strata_model_add_layer_norm(strata_model *model, strata_layer_norm_options opts);

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, of x's shape (N, ..., C), with mean and biased variance of each group
 * of neighbouring channels of an example, over all positions (Wu & He 2018). Parameters: "gamma" (C), "beta" (C). */
typedef struct strata_group_norm_options {
    /* Must divide C. -1: as many groups as channels, so that each channel is normalised by itself (instance norm). 0: 32. */
    int64_t groups;
    /* 0: 1e-3. */
    double epsilon;
    /* no_scale: there is no gamma. no_center: there is no beta. */
    bool no_scale, no_center;
    const char *name;
} strata_group_norm_options;
STRATA_API void strata_model_add_group_norm(strata_model *model, strata_group_norm_options opts);

/* y = gamma x / sqrt(mean of x^2 + epsilon), of x's shape, with the mean of each row along the last axis (Zhang & Sennrich
 * 2019). Parameter: "gamma" (C). */
typedef struct strata_rms_norm_options {
    /* 0: 1e-6. */
    double epsilon;
    /* There is no gamma. */
    bool no_scale;
    const char *name;
} strata_rms_norm_options;
STRATA_API void strata_model_add_rms_norm(strata_model *model, strata_rms_norm_options opts);

/* Self-attention (Vaswani et al. 2017): x (N, T, C) -> (N, T, C). For each head, with q, k, v = x kernel + bias of (N, T,
 * key_dim), the output is softmax(q k^T / sqrt(key_dim)) v; y is the concatenation of the heads' outputs, multiplied by
 * "output_kernel", plus "output_bias". Positions that are padding (mask_zero of an embedding) are not used as keys, so the
 * other positions have the same values as without the padding. The output of a position that may use no key, such as those of
 * an example that is only padding, is "output_bias". Parameters: "query_kernel" (C, heads key_dim), "query_bias" (heads
 * key_dim), the same of key and value, "output_kernel" (heads key_dim, C), "output_bias" (C). */
typedef struct strata_multi_head_attention_options {
    /* At least 1. */
    int64_t heads;
    /* Channels of a head; 0: C / heads, where heads must divide C. */
    int64_t key_dim;
    /* Position t uses the keys of positions 0 .. t only. */
    bool causal;
    bool no_bias;
    const char *name;
} strata_multi_head_attention_options;
STRATA_API void strata_model_add_multi_head_attention(strata_model *model, strata_multi_head_attention_options opts);

/* ---- recurrent layers: x (N, T, C), T time steps -> (N, U), h of the last step, or, with return_sequences, (N, T, U) ----
 * Formulas and gates: strata_lstm and strata_gru in strata/ops.h. The layout of parameters is that of Keras:
 *     lstm   "kernel" (C, 4 U), "recurrent_kernel" (U, 4 U), "bias" (4 U), gates in the order i, f, c, o
 *     gru    "kernel" (C, 3 U), "recurrent_kernel" (U, 3 U), "bias" (2, 3 U): the input's bias and the recurrent bias, gates in
 *            the order z, r, h. The reset gate is applied after the product, as with Keras' default reset_after. With
 *            no_reset_after it is applied before, and "bias" is (3 U)
 * The names of the parameters of a bidirectional layer's second direction begin with "backward_". Steps that are padding
 * (mask_zero of an embedding) do not change h. With return_sequences the mask of padding is passed to later layers, unless the
 * layer goes backwards; y of a padded step is h, or 0 from a bidirectional layer, as in Keras. Sums and states are f32 in every
 * precision. */
typedef struct strata_recurrent_layer_options {
    /* U, at least 1. */
    int64_t units;
    /* The activation of the candidate (and of an LSTM's output): "tanh", "sigmoid", "relu" or "linear". NULL: "tanh". */
    const char *activation;
    /* The activation of the gates, one of the same four. NULL: "sigmoid". */
    const char *recurrent_activation;
    bool no_bias;
    /* For an LSTM: the forget gate's bias is initialized to 0, as the others are, instead of 1. */
    bool no_unit_forget_bias;
    /* NULL: "glorot_uniform". */
    const char *kernel_initializer;
    /* NULL: "orthogonal". */
    const char *recurrent_initializer;
    /* y is h of every step. */
    bool return_sequences;
    /* Steps run from the last to the first; with return_sequences y is in the order in which they ran. */
    bool go_backwards;
    /* A second layer, with its own parameters, runs from the last step to the first. y combines both outputs: "concat"
     * concatenates them, "sum" adds, "mul" multiplies and "ave" averages them. With return_sequences both are in the order of
     * x. NULL: there is one direction. */
    const char *bidirectional;
    /* While training, a channel of x is left out at all steps of an example with this probability; 0 <= dropout < 1. */
    double dropout;
    /* The same for the units of h in products with the recurrent kernel (Gal & Ghahramani 2016). */
    double recurrent_dropout;
    /* For a GRU: the reset gate is applied before the product, as with Keras' reset_after=False. */
    bool no_reset_after;
    const char *name;
} strata_recurrent_layer_options;
/* Hochreiter & Schmidhuber 1997, with forget gates. */
typedef strata_recurrent_layer_options strata_lstm_options;
STRATA_API void strata_model_add_lstm(strata_model *model, strata_lstm_options opts);
/* Cho et al. 2014. */
typedef strata_recurrent_layer_options strata_gru_options;
STRATA_API void strata_model_add_gru(strata_model *model, strata_gru_options opts);

/* ---- layers with several inputs, of models in which layers are called one by one (strata_layer_call) ---- */

/* y = a + b + ..., y = a b ...: at least two inputs of one shape, which is y's. */
typedef struct strata_add_options {
    const char *name;
} strata_add_options;
STRATA_API void strata_model_add_add(strata_model *model, strata_add_options opts);
typedef struct strata_multiply_options {
    const char *name;
} strata_multiply_options;
STRATA_API void strata_model_add_multiply(strata_model *model, strata_multiply_options opts);

/* Concatenates at least two inputs along an axis. Their shapes may differ only in that axis. */
typedef struct strata_concat_options {
    /* The axis of (N, ...), from 1 on. 0: the last. */
    int64_t axis;
    const char *name;
} strata_concat_options;
STRATA_API void strata_model_add_concat(strata_model *model, strata_concat_options opts);

/* An op of strata/ops.h as a layer: y = op(inputs), with the op's parameters in `numbers` and `value`. Axis 0 is that of the
 * examples, as in all layers' inputs. Imported models use this layer where no other layer fits. The inputs and numbers of each
 * op:
 *     neg abs sign square exp log sqrt rsqrt sin cos erf tanh sigmoid relu gelu gelu_tanh silu softplus softmax log_softmax
 *                              x; no numbers
 *     add sub mul div pow min max equal not_equal less less_equal greater greater_equal
 *                              a, b; no numbers
 *     where                    condition, a, b
 *     matmul                   a, b, of any rank, as NumPy's matmul: leading axes are broadcast
 *     leaky_relu, elu          x; slope, scale
 *     clip                     x; low, high
 *     cast                     x; dtype
 *     reshape                  x; the shape, where 0 is x's size of that axis, and one number may be -1
 *     expand                   x, like; the shape to which x is broadcast, where 0 is the size of axis 0 of `like`
 *     transpose                x; the axes in their new order
 *     slice                    x; first elements of all axes, then numbers of elements, -1: all behind the first
 *     pad                      x; elements before each axis, then behind each; value
 *     tile                     x; how often each axis is repeated
 *     gather                   x, indices; axis. Indices below 0 count from the end
 *     one_hot                  indices; depth
 *     concat                   two inputs or more; axis
 *     reduce_sum reduce_mean reduce_max reduce_min
 *                              x; axes, none: all. They stay with size 1 where value is 1
 *     argmax                   x; axis
 *     top_k, top_k_indices     x; k
 *     conv2d                   x (N, H, W, C), filter (KH, KW, C / groups, K); strides, dilations, padding at the top, bottom,
 *                              left and right, groups: 9 numbers
 *     conv2d_transpose         x (N, OH, OW, K), filter (KH, KW, C / groups, K); the same and height and width: 11 numbers
 *     layer_norm               x, scale, shift; value: epsilon */
typedef struct strata_op_options {
    /* Required. */
    const char *op;
    strata_numbers numbers;
    double value;
    /* For the op cast. */
    const char *dtype;
    const char *name;
} strata_op_options;
STRATA_API void strata_model_add_op(strata_model *model, strata_op_options opts);

/* A parameter that is an input of other layers: y is the parameter "value" (shape), independent of x. With `constant` it is a
 * state that training does not change. Values of every dtype are stored as f32. */
typedef struct strata_weights_options {
    /* The whole shape, without an axis of examples. Rank 0: one number. */
    strata_shape shape;
    bool constant;
    /* The type of y; NULL: f32. */
    const char *dtype;
    const char *name;
} strata_weights_options;
STRATA_API void strata_model_add_weights(strata_model *model, strata_weights_options opts);

/* y = x, of any shape, and x is printed by strata_print (strata/ops.h) under the layer's name, in training, evaluation and
 * prediction. Each replica prints its own part of a batch. `every` counts the runs of each program separately: one for each
 * kind of step and each batch size. */
STRATA_API void strata_model_add_print(strata_model *model, strata_print_options opts);

/* Adds a layer by the name of its kind: that under which it was registered (strata/registry.h), or that of a built-in kind in
 * JSON. name: the name of this layer in the model; NULL: the default. options: the layer's options struct; NULL: zeros. A kind
 * with layers inside (residual) is added by its own functions. */
STRATA_API void strata_model_add_layer(strata_model *model, const char *layer, const char *name, const void *options);

/* NULL-terminated: "zeros", "ones", "normal" (standard deviation 0.05), "uniform" (-0.05..0.05), "glorot_uniform",
 * "glorot_normal" (Glorot & Bengio 2010), "he_uniform", "he_normal" (He et al. 2015), "orthogonal" (Saxe et al. 2014: the rows
 * of the parameter as a matrix, or its columns, where those are fewer, are orthogonal and of length 1). Numbers are drawn by
 * Philox from the seed and the parameter's index in the model, so they are the same on every device. */
extern STRATA_API const char *const strata_initializer_names[];

/* The layers of a model.json and their options, a line for each; options that may be left out are in brackets. The caller frees
 * the text. Fails: OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_layers_text(char **out_text, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
