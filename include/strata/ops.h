/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops. Each takes and returns symbolic tensors (graph.h); a wrong shape or dtype poisons the result and the graph says why.
 * Floats are f32, f16, bf16 (arithmetic in f32). "any" is every dtype. Formulas and gradients: core/op/<op>.c. */
#ifndef STRATA_OPS_H
#define STRATA_OPS_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element-wise, one operand; same shape and dtype as x ---- */
STRATA_API strata_tensor *strata_neg(strata_tensor *x);    /* floats, i32, i64 */
STRATA_API strata_tensor *strata_abs(strata_tensor *x);    /* floats, i32, i64; gradient 0 at 0 */
STRATA_API strata_tensor *strata_sign(strata_tensor *x);   /* floats, i32, i64: -1, 0, 1; no gradient passes */
STRATA_API strata_tensor *strata_square(strata_tensor *x); /* floats, i32, i64 */
STRATA_API strata_tensor *strata_exp(strata_tensor *x);    /* floats, as all below */
STRATA_API strata_tensor *strata_log(strata_tensor *x);
STRATA_API strata_tensor *strata_sqrt(strata_tensor *x);
STRATA_API strata_tensor *strata_rsqrt(strata_tensor *x); /* 1 / sqrt(x) */
STRATA_API strata_tensor *strata_tanh(strata_tensor *x);
STRATA_API strata_tensor *strata_sigmoid(strata_tensor *x); /* 1 / (1 + exp(-x)) */
STRATA_API strata_tensor *strata_relu(strata_tensor *x);    /* x < 0 ? 0 : x, so NaN stays NaN; gradient 0 at 0 */
STRATA_API strata_tensor *strata_gelu(strata_tensor *x);    /* x Phi(x) = x (1 + erf(x / sqrt 2)) / 2: what Keras calls gelu */
STRATA_API strata_tensor *strata_gelu_tanh(
    strata_tensor *x);                                   /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, close to it */
STRATA_API strata_tensor *strata_silu(strata_tensor *x); /* x sigmoid(x), swish; cannot be differentiated twice, nor can gelu */
STRATA_API strata_tensor *strata_softplus(strata_tensor *x);                 /* log(1 + exp(x)) */
STRATA_API strata_tensor *strata_leaky_relu(strata_tensor *x, double slope); /* x < 0 ? slope x : x; gradient 1 at 0 */
STRATA_API strata_tensor *strata_elu(strata_tensor *x, double scale); /* x < 0 ? scale (exp(x) - 1) : x; gradient 1 at 0 */
/* min(max(x, low), high); NaN stays NaN; gradient where low <= x <= high. floats, i32, i64. INVALID unless low <= high,
 * and for integers unless both are whole or infinite. */
STRATA_API strata_tensor *strata_clip(strata_tensor *x, double low, double high);
/* To another dtype: float to integer truncates and saturates, NaN to 0; integer to integer saturates; to bool is x != 0.
 * Gradient between floats only. */
STRATA_API strata_tensor *strata_cast(strata_tensor *x, strata_dtype dtype);
/* x (u8) * scale, as f32: pixels as they are stored. No gradient. */
STRATA_API strata_tensor *strata_dequantize(strata_tensor *x, double scale);

/* ---- element-wise, two operands of one dtype, with NumPy broadcasting; the gradient is summed back over broadcast axes ----
 */
STRATA_API strata_tensor *strata_add(strata_tensor *a, strata_tensor *b); /* floats, i32, i64 (integers wrap), as below */
STRATA_API strata_tensor *strata_sub(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_mul(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_div(strata_tensor *a, strata_tensor *b); /* floats */
STRATA_API strata_tensor *strata_pow(strata_tensor *a, strata_tensor *b); /* floats; as C powf */
STRATA_API strata_tensor *strata_min(strata_tensor *a, strata_tensor *b); /* NaN if either is; a's gradient on a tie */
STRATA_API strata_tensor *strata_max(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_equal(strata_tensor *a, strata_tensor *b); /* any -> bool, as below; no gradient */
STRATA_API strata_tensor *strata_not_equal(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_less(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_less_equal(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_greater(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_greater_equal(strata_tensor *a, strata_tensor *b);
/* condition (bool) ? a : b, the three broadcast together. any */
STRATA_API strata_tensor *strata_where(strata_tensor *condition, strata_tensor *a, strata_tensor *b);

/* ---- matrix product ----
 * a (..., M, K) or (..., K, M) when transpose_a;  b (..., K, N) or (..., N, K) when transpose_b;  -> (..., M, N).  floats.
 * Leading axes must be equal, or one operand has none (it is then used for all). Every backend folds K in ascending order
 * from 0 with fused multiply-add in f32, so tiles never change a bit. */
STRATA_API strata_tensor *strata_matmul(strata_tensor *a, strata_tensor *b, bool transpose_a, bool transpose_b);

/* ---- convolution and pooling: windows over images (N, H, W, C); floats ----
 * Padding as in TensorFlow: VALID is none; SAME gives ceil(H / stride) outputs, with the odd row or column after; EXPLICIT is
 * given. An output size is (H + padding - (window - 1) dilation - 1) / stride + 1, rounded down; INVALID when it is 0. Every
 * pair is height, width. */
typedef enum strata_padding { STRATA_PADDING_VALID = 0, STRATA_PADDING_SAME, STRATA_PADDING_EXPLICIT } strata_padding;

typedef struct strata_conv2d_window {
    /* 0: 1. */
    int64_t stride[2];
    /* rows and columns from one tap to the next; 0: 1. */
    int64_t dilation[2];
    /* 0: 1; as many as channels: depthwise. */
    int64_t groups;
    strata_padding padding;
    /* Top, bottom, left, right; with EXPLICIT only. */
    int64_t explicit_padding[4];
} strata_conv2d_window;
/* x (N, H, W, C), filter (KH, KW, C / groups, K) -> (N, OH, OW, K):  y[n,oh,ow,f] = sum kh,kw,c x[n, oh stride + kh dilation -
 * top, ..., c] filter[kh,kw,c,f], padding being zeros. With groups, filters f of group g = f / (K / groups) see that group's
 * channels only. Folded in f32, taps and channels ascending, by fused multiply-add: the same on every run of a device. Cost: 2
 * N OH OW K KH KW C / groups. */
STRATA_API strata_tensor *strata_conv2d(strata_tensor *x, strata_tensor *filter, strata_conv2d_window opts);

typedef struct strata_conv1d_window {
    /* 0: 1. */
    int64_t stride, dilation;
    /* 0: 1. */
    int64_t groups;
    strata_padding padding;
    /* before, after. */
    int64_t explicit_padding[2];
} strata_conv1d_window;
/* x (N, L, C), filter (W, C / groups, K) -> (N, OL, K): conv2d over images of one row. */
STRATA_API strata_tensor *strata_conv1d(strata_tensor *x, strata_tensor *filter, strata_conv1d_window opts);

typedef struct strata_pool2d_window {
    /* At least 1. */
    int64_t size[2];
    /* 0: the size. */
    int64_t stride[2];
    strata_padding padding;
    /* Top, bottom, left, right; each less than the size. */
    int64_t explicit_padding[4];
} strata_pool2d_window;
/* x (N, H, W, C) -> (N, OH, OW, C). Padding never takes part. max: NaN counts as the largest; the gradient goes to the first
 * largest of a window. avg: the mean of the elements that are inside the image. Over all of H and W: reduce_max,
 * reduce_mean. */
STRATA_API strata_tensor *strata_max_pool2d(strata_tensor *x, strata_pool2d_window opts);
STRATA_API strata_tensor *strata_avg_pool2d(strata_tensor *x, strata_pool2d_window opts);

typedef struct strata_pool1d_window {
    /* At least 1. */
    int64_t size;
    /* 0: the size. */
    int64_t stride;
    strata_padding padding;
    /* before, after. */
    int64_t explicit_padding[2];
} strata_pool1d_window;
/* x (N, L, C) -> (N, OL, C) */
STRATA_API strata_tensor *strata_max_pool1d(strata_tensor *x, strata_pool1d_window opts);
STRATA_API strata_tensor *strata_avg_pool1d(strata_tensor *x, strata_pool1d_window opts);

/* ---- shape; any dtype. A dimension of -1 in reshape is inferred. Axes may be negative: -1 is the last. ---- */
STRATA_API strata_tensor *strata_reshape(strata_tensor *x, strata_shape shape);
STRATA_API strata_tensor *strata_flatten(strata_tensor *x);                    /* (N, ...) -> (N, product of the rest) */
STRATA_API strata_tensor *strata_transpose(strata_tensor *x, const int *axes); /* out axis i = x axis axes[i]; NULL: reversed */
STRATA_API strata_tensor *strata_broadcast_to(strata_tensor *x, strata_shape shape);
STRATA_API strata_tensor *strata_concat(strata_tensor *const *x, int n_x, int axis);
/* n_x tensors of one shape along a new axis, which is `axis` of the result. */
STRATA_API strata_tensor *strata_stack(strata_tensor *const *x, int n_x, int axis);
/* n_parts equal parts of x along `axis`, to out_parts[0..n_parts). Along the first axis they are views: no copies. */
STRATA_API void strata_split(strata_tensor *x, int n_parts, int axis, strata_tensor **out_parts);
/* x repeated times[i] times along each axis i; `times` has x's rank, 0 gives an empty tensor. */
STRATA_API strata_tensor *strata_tile(strata_tensor *x, const int64_t *times);
/* x[begin[i] : begin[i] + size[i]] along each axis i; both have x's rank. */
STRATA_API strata_tensor *strata_slice(strata_tensor *x, const int64_t *begin, const int64_t *size);
/* `before[i]` and `after[i]` elements of `value` around axis i. */
STRATA_API strata_tensor *strata_pad(strata_tensor *x, const int64_t *before, const int64_t *after, double value);
/* x indexed along `axis` by `indices` (i32 or i64, any shape): x's shape with that axis replaced by the indices' shape. An
 * index out of range reads as 0 and receives no gradient. The gradient adds rows in ascending order of position: deterministic.
 */
STRATA_API strata_tensor *strata_gather(strata_tensor *x, strata_tensor *indices, int axis);
/* y (n_rows, ...): y[i] is the sum of x's rows (m, ...) whose index (m), i32 or i64, is i, added in ascending order of
 * position; rows with an index out of range are left out. Floats. Gradient: gather. */
STRATA_API strata_tensor *strata_unsorted_segment_sum(strata_tensor *x, strata_tensor *indices, int64_t n_rows);
/* indices (...) i32 or i64 -> (..., depth): 1 where the last index equals the value; all 0 for one out of range. */
STRATA_API strata_tensor *strata_one_hot(strata_tensor *indices, int64_t depth, strata_dtype dtype);

/* ---- reductions over n_axes axes (n_axes 0: all); keep_dims leaves them with size 1 ---- */
STRATA_API strata_tensor *strata_reduce_sum(strata_tensor *x, const int *axes, int n_axes, bool keep_dims); /* floats i32 i64 */
STRATA_API strata_tensor *strata_reduce_mean(strata_tensor *x, const int *axes, int n_axes,
                                             bool keep_dims); /* floats; of 0: NaN */
STRATA_API strata_tensor *strata_reduce_max(strata_tensor *x, const int *axes, int n_axes,
                                            bool keep_dims); /* INVALID on size 0 */
STRATA_API strata_tensor *strata_reduce_min(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);
/* Index (i32) of the first maximum along one axis, which is removed; NaN counts as the maximum. No gradient. */
STRATA_API strata_tensor *strata_argmax(strata_tensor *x, int axis);
/* x (...) i32 or i64 -> y (n) i32: y[r] = 1 + the first place of r among x's elements, 0 where there is none. No gradient. */
STRATA_API strata_tensor *strata_first_index(strata_tensor *x, int64_t n);
/* The different numbers of 0 .. n - 1 in x (...), i32 or i64, each at the place where it comes first in x's N elements: (N), -1
 * at the other places. out_inverse (i32, x's shape): the place of each element's number there; -1 for those out of range. No
 * gradient. */
STRATA_API strata_tensor *strata_unique(strata_tensor *x, int64_t n, strata_tensor **out_inverse);
/* 0, 1 .. n - 1, i32. */
STRATA_API strata_tensor *strata_arange(strata_graph *graph, int64_t n);
/* x (..., C) -> the k largest of each row, (..., k), largest first; the lower index first among equals, NaN above all. Their
 * indices (i32, out_indices may be NULL) pass no gradient; the values pass theirs to the elements they are. Cost: k passes over
 * x. */
STRATA_API strata_tensor *strata_top_k(strata_tensor *x, int64_t k, strata_tensor **out_indices);

/* ---- softmax and its losses, over the last axis C; floats ---- */
STRATA_API strata_tensor *strata_softmax(strata_tensor *x);
STRATA_API strata_tensor *strata_log_softmax(strata_tensor *x);
/* logits (..., C), labels (...) i32 or i64 in 0..C-1 -> (...): -log softmax(logits)[label]; NaN for a label out of range. */
STRATA_API strata_tensor *strata_sparse_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels);
/* labels (..., C), floats: -sum_c labels_c log softmax(logits)_c -> (...). */
STRATA_API strata_tensor *strata_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels);

/* logits a and labels b in 0..1, broadcast together, floats: the binary crossentropy max(a, 0) - a b + log(1 + exp(-|a|)) of
 * each. */
STRATA_API strata_tensor *strata_sigmoid_cross_entropy(strata_tensor *logits, strata_tensor *labels);

/* losses (B), outputs (B, K), labels (B, K) f32 -> (2) f32: the sum of the losses, and the sum over rows of the share of
 * outputs that lie on the same side of `threshold` as their label of 1/2. No gradient. */
STRATA_API strata_tensor *strata_binary_sums(strata_tensor *losses, strata_tensor *outputs, strata_tensor *labels,
                                             double threshold);
/* losses (B) f32, logits (B, C) f32, labels (B) i32 or i64 -> (2) f32: the sum of the losses, and how many rows have their
 * largest logit (the first one; NaN counts as largest) at their label. No gradient. */
STRATA_API strata_tensor *strata_classification_sums(strata_tensor *losses, strata_tensor *logits, strata_tensor *labels);

/* ---- normalisation by channel, the last axis C; floats, the numbers of the channels f32 (C) ---- */
/* (..., C) -> f32 (2, C): each channel's mean, and its variance (biased: divided by the number of rows). NaN of no rows. */
STRATA_API strata_tensor *strata_moments(strata_tensor *x);
/* scale (x - mean) / sqrt(variance + epsilon) + shift. */
STRATA_API strata_tensor *strata_batch_norm(strata_tensor *x, strata_tensor *mean, strata_tensor *variance,
                                            strata_tensor *scale, strata_tensor *shift, double epsilon);
/* The same by x's own mean and variance, which are given too (C), for running averages. The gradient is exact, x's share
 * through mean and variance included; none passes out of the two that are given. It cannot be differentiated twice. */
STRATA_API strata_tensor *strata_batch_norm_training(strata_tensor *x, strata_tensor *scale, strata_tensor *shift,
                                                     double epsilon, strata_tensor **out_mean, strata_tensor **out_variance);

/* scale (x - mean) / sqrt(variance + epsilon) + shift with mean and (biased) variance of each row, along the last axis. Cannot
 * be differentiated twice. */
STRATA_API strata_tensor *strata_layer_norm(strata_tensor *x, strata_tensor *scale, strata_tensor *shift, double epsilon);

/* softmax(scale q k^T) v: q (..., T, D), k (..., S, D), v (..., S, E) -> (..., T, E); the leading axes are equal. scale 0: 1 /
 * sqrt(D).
 * mask: bool, broadcast to (..., T, S): where it is false a place of k is left out; NULL: none is. A row of which all is left
 * out gives zeros, and passes no gradient. */
STRATA_API strata_tensor *strata_attention(strata_tensor *q, strata_tensor *k, strata_tensor *v, strata_tensor *mask,
                                           double scale);

/* ---- random: Philox-4x32-10 ----
 * `state` is an i32 tensor of STRATA_RNG_WORDS: seed low, seed high, step low, step high, first row low, first row high
 * (of the whole, where this is one part of a split batch; a row is an index of the leading axis), 0, 0. `stream` tells apart
 * the ops of one program. The value of element e is a function of (seed, step, stream, first row * elements of a row + e)
 * alone: the same on every device. Layout of the counter: shaders/README.md. */
enum { STRATA_RNG_FIRST_ROW = 4, STRATA_RNG_WORDS = 8 };
STRATA_API strata_tensor *strata_random_uniform(strata_tensor *state, uint32_t stream, strata_shape shape); /* f32 in [0, 1) */
STRATA_API strata_tensor *strata_random_normal(strata_tensor *state, uint32_t stream,
                                               strata_shape shape); /* f32, mean 0, std 1 */
/* Keeps an element with probability 1 - rate and scales it by 1 / (1 - rate); 0 <= rate < 1. The gradient recomputes the mask.
 */
STRATA_API strata_tensor *strata_dropout(strata_tensor *x, strata_tensor *state, uint32_t stream, double rate);

/* ---- updates of variables; the first operand must come from strata_variable_read and is changed in place. The result is the
 * variable's new value; hand it to the executable as an update, or nothing keeps the node alive. ---- */
STRATA_API strata_tensor *strata_assign(strata_tensor *variable, strata_tensor *value);
STRATA_API strata_tensor *strata_assign_add(strata_tensor *variable, strata_tensor *value); /* f32, i32, i64 */
/* Row indices[j] (i32, i64) of the n_rows rows that begin at element `first` of the variable becomes rows[j]; indices out of
 * range set nothing, the others must differ. Rows may come from an optimizer's step over rows of variables: it changes what
 * strata_gather has taken from them as it changes variables, and scatter_update brings each range back:
 *     p = strata_gather(w, ids, 0); m = ..., v = ...;  u = strata_adam(p, m, v, gradients (of p's shape), ...);
 *     strata_scatter_update(w, 0, n, ids, u, NULL); strata_scatter_update(m_variable, 0, n, ids, m, u); ...
 * update  the step that has changed `rows`, where they are not its result; else NULL. Nothing else is to read such rows after
 *         it. */
STRATA_API strata_tensor *strata_scatter_update(strata_tensor *variable, int64_t first, int64_t n_rows, strata_tensor *indices,
                                                strata_tensor *rows, strata_tensor *update);
/* state += rates (value - state), f32 of one shape; a rate of 1 takes the value as it is. gate: an f32 scalar, and nothing is
 * changed unless it is finite; NULL: always. */
STRATA_API strata_tensor *strata_moving_average(strata_tensor *state, strata_tensor *value, strata_tensor *rates,
                                                strata_tensor *gate);
/* Lays the tensors end to end as one flat f32 (n): gradients computed straight into their place. offsets[i]: first element of
 * x[i], ascending, not overlapping; `size` elements in all; gaps are zeros. */
STRATA_API strata_tensor *strata_pack(strata_tensor *const *x, const int64_t *offsets, int n_x, int64_t size);

/* Per-step numbers of the optimizers, one f32 tensor of STRATA_STEP_WORDS, so that the compiled step never changes. */
enum {
    STRATA_STEP_LEARNING_RATE = 0, /* as scheduled for this step; Adam: times sqrt(1 - beta2^t) / (1 - beta1^t) */
    STRATA_STEP_PLAIN_RATE = 1,    /* as scheduled, without that factor */
    STRATA_STEP_CORRECTION_1 = 2,  /* lamb: 1 / (1 - beta1^t) */
    STRATA_STEP_CORRECTION_2 = 3,  /* lamb: 1 / (1 - beta2^t) */
    STRATA_STEP_SHARE = 4,         /* of the update's examples that this batch is: what its penalties count */
    STRATA_STEP_SCALE = 5,         /* what gradients that were held are multiplied by at their update */
    STRATA_STEP_STATE_SHARE = 6,   /* the same of new states: 1 / how many were added up */
    STRATA_STEP_WORDS = 8
};
/* One step of SGD over flat f32 ranges (n), in place:   momentum 0:  p -= lr g.   else  v = momentum v + g;
 * p -= lr v,  or with nesterov  p -= lr (g + momentum v)   (Sutskever et al. 2013, as in PyTorch's SGD).
 *   parameters, velocity  variables (velocity NULL when momentum is 0), or rows gathered from them (strata_scatter_update)
 *   gradients             as many, or fewer: then only the first elements are updated;  step  f32 STRATA_STEP_WORDS
 *   gate                  f32 scalar: when it is not finite nothing is changed; NULL: always */
STRATA_API strata_tensor *strata_sgd(strata_tensor *parameters, strata_tensor *velocity, strata_tensor *gradients,
                                     strata_tensor *step, strata_tensor *gate, double momentum, bool nesterov);
/* One step of Adam (Kingma & Ba 2015, the form of its section 2 end: epsilon outside the bias correction, as Keras):
 * m += (1-beta1)(g - m);  v += (1-beta2)(g g - v);  p -= lr m / (sqrt(v) + epsilon). */
STRATA_API strata_tensor *strata_adam(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                                      strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon);

/* The same with decoupled weight decay (AdamW, Loshchilov & Hutter 2019): p -= lr decay p comes first, with the step's plain
 * rate. */
STRATA_API strata_tensor *strata_adamw(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                                       strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon,
                                       double decay);
/* One step of RMSprop (Hinton 2012) as Keras has it:  squares = rho squares + (1-rho) g g;  with mean (centered):  mean = rho
 * mean + (1-rho) g; change = lr g / sqrt(squares - mean mean + epsilon);  with velocity:  velocity = momentum velocity +
 * change,
 * which is the change then;  p -= change.
 *   mean  NULL: not centered;  velocity  NULL when momentum is 0 */
STRATA_API strata_tensor *strata_rmsprop(strata_tensor *parameters, strata_tensor *squares, strata_tensor *mean,
                                         strata_tensor *velocity, strata_tensor *gradients, strata_tensor *step,
                                         strata_tensor *gate, double rho, double momentum, double epsilon);
/* One step of Adagrad (Duchi et al. 2011):  squares += g g;  p -= lr g / sqrt(squares + epsilon). */
STRATA_API strata_tensor *strata_adagrad(strata_tensor *parameters, strata_tensor *squares, strata_tensor *gradients,
                                         strata_tensor *step, strata_tensor *gate, double epsilon);
/* Where a step of LAMB goes (You et al. 2020); `direction` is a variable that is written:  m, v as Adam's;
 * direction = m c1 / (sqrt(v c2) + epsilon) + decay p, c1 and c2 the step's corrections. */
STRATA_API strata_tensor *strata_lamb(strata_tensor *direction, strata_tensor *m, strata_tensor *v, strata_tensor *parameters,
                                      strata_tensor *gradients, strata_tensor *step, strata_tensor *gate, double beta1,
                                      double beta2, double epsilon, double decay);
/* x (n) f32, ends (S) i32 -> (S) f32: y_s = sum of x_i for ends_(s-1) <= i < ends_s (0 before the first; kept within x). No
 * gradient. */
STRATA_API strata_tensor *strata_segment_sum(strata_tensor *x, strata_tensor *ends);

/* ---- between replicas (strata/strategy.h); with one replica the result is x ---- */
typedef enum strata_reduction { STRATA_REDUCE_SUM = 0, STRATA_REDUCE_MEAN = 1 } strata_reduction;
/* The sum over all replicas, folded in their order: the same bits on each. MEAN divides it by their number. Every replica's
 * program must have the same all_reduce nodes in the same order. SUM: floats (added in f32), i32, i64 (wrap); MEAN: floats. */
STRATA_API strata_tensor *strata_all_reduce(strata_tensor *x, strata_reduction reduction);

/* ---- measuring ---- */
/* f32: y = x after `steps` (0..60000) times y = fma(y, 0.999, 0.001), 2 * steps operations an element in registers: what a
 * device's multiply-add units can do (strata bench). No gradient. */
STRATA_API strata_tensor *strata_fma_chain(strata_tensor *x, int64_t steps);

#ifdef __cplusplus
}
#endif
#endif
