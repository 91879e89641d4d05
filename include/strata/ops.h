/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops. Each takes symbolic tensors (graph.h) and returns one: the output of a new node in the graph of its operands.
 *
 * Dtypes. "floats" are f32, f16 and bf16, with arithmetic in f32. "numbers" are floats, i32 and i64; integers wrap. "any" is
 * every dtype. Operands have one dtype, and the result has it too, unless the op's comment names another.
 *
 * Errors. If the operands of an op have the wrong rank, shape or dtype, or its options are out of range, the graph records an
 * error: INVALID, with the op's name and the shapes that do not fit. strata_graph_check and strata_executable_create return the
 * graph's first such error. Ops without a gradient are marked below; strata_gradients through such an op fails with
 * UNSUPPORTED.
 *
 * Shapes. () is a scalar, (...) stands for any number of axes. Axes may be negative: -1 is the last. core/op/<op>.c describes
 * how each op and its gradient are computed. */
#ifndef STRATA_OPS_H
#define STRATA_OPS_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element-wise, one operand: y_i = f(x_i), of x's shape and dtype ---- */

/* Numbers: -x. */
STRATA_API strata_tensor *strata_neg(strata_tensor *x);
/* Numbers: |x|. Its gradient at 0 is 0. */
STRATA_API strata_tensor *strata_abs(strata_tensor *x);
/* Numbers: -1, 0 or 1. Its gradient is 0 everywhere. */
STRATA_API strata_tensor *strata_sign(strata_tensor *x);
/* Numbers: x x. */
STRATA_API strata_tensor *strata_square(strata_tensor *x);
/* Floats: e^x. */
STRATA_API strata_tensor *strata_exp(strata_tensor *x);
/* Floats: the natural logarithm; -infinity at 0, NaN below 0. */
STRATA_API strata_tensor *strata_log(strata_tensor *x);
/* Floats: the square root; NaN below 0. */
STRATA_API strata_tensor *strata_sqrt(strata_tensor *x);
/* Floats: 1 / sqrt(x). */
STRATA_API strata_tensor *strata_rsqrt(strata_tensor *x);
/* Floats, x in radians, of any size: sine and cosine; NaN at infinity. */
STRATA_API strata_tensor *strata_sin(strata_tensor *x);
STRATA_API strata_tensor *strata_cos(strata_tensor *x);
/* Floats: the error function, 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. */
STRATA_API strata_tensor *strata_erf(strata_tensor *x);
/* Floats: the hyperbolic tangent. */
STRATA_API strata_tensor *strata_tanh(strata_tensor *x);
/* Floats: 1 / (1 + e^-x). */
STRATA_API strata_tensor *strata_sigmoid(strata_tensor *x);
/* Floats: x < 0 ? 0 : x. NaN stays NaN. Its gradient at 0 is 0. */
STRATA_API strata_tensor *strata_relu(strata_tensor *x);
/* Floats: x (1 + erf(x / sqrt 2)) / 2, which Keras calls gelu. Its gradient has no gradient. */
STRATA_API strata_tensor *strata_gelu(strata_tensor *x);
/* Floats: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, an approximation of gelu. Its gradient has no gradient. */
STRATA_API strata_tensor *strata_gelu_tanh(strata_tensor *x);
/* Floats: x sigmoid(x), also called swish. Its gradient has no gradient. */
STRATA_API strata_tensor *strata_silu(strata_tensor *x);
/* Floats: log(1 + e^x). */
STRATA_API strata_tensor *strata_softplus(strata_tensor *x);
/* Floats: x < 0 ? slope x : x. Its gradient at 0 is slope. */
STRATA_API strata_tensor *strata_leaky_relu(strata_tensor *x, double slope);
/* Floats: x < 0 ? scale (e^x - 1) : x. Its gradient at 0 is scale. */
STRATA_API strata_tensor *strata_elu(strata_tensor *x, double scale);
/* Numbers: min(max(x, low), high). NaN stays NaN. The gradient is 1 where low <= x <= high, else 0. low <= high is required;
 * for integers both must be integers or infinite. */
STRATA_API strata_tensor *strata_clip(strata_tensor *x, double low, double high);
/* Any: x in another dtype. Floats to integers truncate toward 0 and saturate, and NaN becomes 0. Integers to integers saturate.
 * To bool: x != 0. Only a cast between floats has a gradient. */
STRATA_API strata_tensor *strata_cast(strata_tensor *x, strata_dtype dtype);
/* u8 -> f32: x scale, for pixels that are stored as bytes. No gradient. */
STRATA_API strata_tensor *strata_dequantize(strata_tensor *x, double scale);

/* ---- element-wise, two operands of one dtype ----
 * Shapes broadcast as NumPy's do: they are aligned at their last axes, and an axis of size 1, or one that is missing, is
 * repeated. The gradient of an operand is summed over the axes along which it was repeated. */

/* Numbers: a + b, a - b, a b. */
STRATA_API strata_tensor *strata_add(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_sub(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_mul(strata_tensor *a, strata_tensor *b);
/* Floats: a / b. */
STRATA_API strata_tensor *strata_div(strata_tensor *a, strata_tensor *b);
/* Floats: a^b, with the special cases of C's powf. */
STRATA_API strata_tensor *strata_pow(strata_tensor *a, strata_tensor *b);
/* Numbers: the smaller, the larger; NaN if either is NaN. Where a = b the gradient goes to a. */
STRATA_API strata_tensor *strata_min(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_max(strata_tensor *a, strata_tensor *b);
/* Any -> bool: a = b, a != b, a < b, a <= b, a > b, a >= b. Comparisons with NaN are false, except not_equal, which is true. No
 * gradient. */
STRATA_API strata_tensor *strata_equal(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_not_equal(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_less(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_less_equal(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_greater(strata_tensor *a, strata_tensor *b);
STRATA_API strata_tensor *strata_greater_equal(strata_tensor *a, strata_tensor *b);
/* Any: condition ? a : b. condition is bool; the three broadcast together. */
STRATA_API strata_tensor *strata_where(strata_tensor *condition, strata_tensor *a, strata_tensor *b);

/* ---- matrix product ---- */

/* Floats: y = a b, (..., M, N). a is (..., M, K), or (..., K, M) with transpose_a; b is (..., K, N), or (..., N, K) with
 * transpose_b. The leading axes of a and b are equal, or one of them has none and is used for all of the other's. The sum over
 * K is computed in ascending order by fused multiply-add in f32, so every way to tile it gives the same bits. */
STRATA_API strata_tensor *strata_matmul(strata_tensor *a, strata_tensor *b, bool transpose_a, bool transpose_b);

/* ---- convolution and pooling: windows over images (N, H, W, C) or sequences (N, L, C); floats ----
 * Padding as in TensorFlow. VALID adds none. SAME adds as many rows as ceil(H / stride) outputs need, half of them before and
 * half after; if their number is odd, one more is added after. EXPLICIT adds as many as explicit_padding states. The output has
 * (H + padding - (window - 1) dilation - 1) / stride + 1 rows, rounded down, and the columns are computed from W in the same
 * way. An output without rows or columns is an error. Pairs are {height, width}. */
typedef enum strata_padding { STRATA_PADDING_VALID = 0, STRATA_PADDING_SAME, STRATA_PADDING_EXPLICIT } strata_padding;

typedef struct strata_conv2d_window {
    /* Rows and columns from one window to the next. 0: 1. */
    int64_t stride[2];
    /* Rows and columns from one tap of a window to the next. 0: 1. */
    int64_t dilation[2];
    /* The number of groups into which channels and filters are divided. Each group is convolved separately; with as many
     * groups as channels this is a depthwise convolution. Must divide C and K. 0: 1. */
    int64_t groups;
    strata_padding padding;
    /* Zeros at the top, bottom, left and right. With EXPLICIT only. */
    int64_t explicit_padding[4];
} strata_conv2d_window;
/* x (N, H, W, C), filter (KH, KW, C / groups, K) -> y (N, OH, OW, K):
 *     y[n, oh, ow, f] = sum over kh, kw, c of
 *                       x[n, oh stride + kh dilation - top, ow stride + kw dilation - left, c] filter[kh, kw, c, f]
 * with zeros outside of x. With groups, filter f reads the channels of group f / (K / groups) only. Sums are computed in f32 by
 * fused multiply-add, with kh, kw and c ascending, so a device gives the same bits in each run. Cost: 2 N OH OW K KH KW C /
 * groups operations. */
STRATA_API strata_tensor *strata_conv2d(strata_tensor *x, strata_tensor *filter, strata_conv2d_window opts);

/* The transpose of conv2d as a linear function of its image: x (N, OH, OW, K), filter (KH, KW, C / groups, K) -> y (N, H, W,
 * C), where conv2d with these options takes an image of height by width to OH by OW:
 *     y[n, h, w, c] = sum over kh, kw, f of x[n, oh, ow, f] filter[kh, kw, c, f],  with h = oh stride + kh dilation - top and
 *                     w = ow stride + kw dilation - left */
STRATA_API strata_tensor *strata_conv2d_transpose(strata_tensor *x, strata_tensor *filter, strata_conv2d_window opts,
                                                  int64_t height, int64_t width);

typedef struct strata_conv1d_window {
    /* As in strata_conv2d_window. 0: 1. */
    int64_t stride, dilation;
    /* As in strata_conv2d_window. 0: 1. */
    int64_t groups;
    strata_padding padding;
    /* Zeros before and after. With EXPLICIT only. */
    int64_t explicit_padding[2];
} strata_conv1d_window;
/* x (N, L, C), filter (W, C / groups, K) -> (N, OL, K): strata_conv2d of images of one row. */
STRATA_API strata_tensor *strata_conv1d(strata_tensor *x, strata_tensor *filter, strata_conv1d_window opts);

typedef struct strata_pool2d_window {
    /* Elements of a window; at least 1. */
    int64_t size[2];
    /* From one window to the next. 0: the size. */
    int64_t stride[2];
    strata_padding padding;
    /* Top, bottom, left, right; each less than the size. */
    int64_t explicit_padding[4];
} strata_pool2d_window;
/* x (N, H, W, C) -> (N, OH, OW, C). max: the largest element of each window; NaN counts as larger than all, and the gradient
 * goes to the first largest element. avg: the mean of each window. Elements of the padding are in neither. For one window over
 * all of H and W use strata_reduce_max and strata_reduce_mean. */
STRATA_API strata_tensor *strata_max_pool2d(strata_tensor *x, strata_pool2d_window opts);
STRATA_API strata_tensor *strata_avg_pool2d(strata_tensor *x, strata_pool2d_window opts);

typedef struct strata_pool1d_window {
    /* Elements of a window; at least 1. */
    int64_t size;
    /* From one window to the next. 0: the size. */
    int64_t stride;
    strata_padding padding;
    /* Before and after; each less than the size. */
    int64_t explicit_padding[2];
} strata_pool1d_window;
/* x (N, L, C) -> (N, OL, C): the same over sequences. */
STRATA_API strata_tensor *strata_max_pool1d(strata_tensor *x, strata_pool1d_window opts);
STRATA_API strata_tensor *strata_avg_pool1d(strata_tensor *x, strata_pool1d_window opts);

/* ---- shape; any dtype ---- */

/* The same elements in row-major order. One dimension of `shape` may be -1: it is computed from the number of elements and the
 * other dimensions. */
STRATA_API strata_tensor *strata_reshape(strata_tensor *x, strata_shape shape);
/* (N, ...) -> (N, product of the rest). */
STRATA_API strata_tensor *strata_flatten(strata_tensor *x);
/* Axis i of the result is axis axes[i] of x. axes: [rank of x] each axis once; NULL: in reversed order. */
STRATA_API strata_tensor *strata_transpose(strata_tensor *x, const int *axes);
/* x repeated as in NumPy broadcasting, to exactly this shape. */
STRATA_API strata_tensor *strata_broadcast_to(strata_tensor *x, strata_shape shape);
/* Concatenates n_x tensors (at least 1) along `axis`; their other dimensions must be equal. */
STRATA_API strata_tensor *strata_concat(strata_tensor *const *x, int n_x, int axis);
/* Stacks n_x tensors of one shape along a new axis, which is `axis` of the result. */
STRATA_API strata_tensor *strata_stack(strata_tensor *const *x, int n_x, int axis);
/* Splits x along `axis` into n_parts equal parts, out_parts[0 .. n_parts - 1]. Parts along the first axis are views of x and
 * are not copied. */
STRATA_API void strata_split(strata_tensor *x, int n_parts, int axis, strata_tensor **out_parts);
/* x repeated times[i] times along each axis i. times: [rank of x]; 0 makes the result empty. */
STRATA_API strata_tensor *strata_tile(strata_tensor *x, const int64_t *times);
/* The elements begin[i] .. begin[i] + size[i] - 1 along each axis i. begin, size: [rank of x], inside of x. */
STRATA_API strata_tensor *strata_slice(strata_tensor *x, const int64_t *begin, const int64_t *size);
/* x with before[i] elements of `value` before it along each axis i, and after[i] elements behind it. */
STRATA_API strata_tensor *strata_pad(strata_tensor *x, const int64_t *before, const int64_t *after, double value);
/* x[indices] along `axis`: the shape is x's, with that axis replaced by the shape of indices (i32 or i64). An index out of
 * range gives zeros and receives no gradient. The gradient adds rows in ascending order of their position, so it has the same
 * bits in each run.
 *     x (10, 3), indices (2, 5), axis 0 -> (2, 5, 3) */
STRATA_API strata_tensor *strata_gather(strata_tensor *x, strata_tensor *indices, int axis);
/* Floats. x (m, ...), indices (m) i32 or i64 -> y (n_rows, ...): y[i] is the sum of the rows of x whose index is i, added in
 * ascending order of their position. Rows with an index out of range are left out. */
STRATA_API strata_tensor *strata_unsorted_segment_sum(strata_tensor *x, strata_tensor *indices, int64_t n_rows);
/* indices (...) i32 or i64 -> (..., depth) of `dtype`: 1 where the position along the last axis is the index, else 0. An index
 * out of range gives zeros. No gradient. */
STRATA_API strata_tensor *strata_one_hot(strata_tensor *indices, int64_t depth, strata_dtype dtype);

/* ---- reductions ----
 * A reduction is over the axes axes[0 .. n_axes - 1]; n_axes 0: over all axes. These axes are removed; with keep_dims they have
 * size 1 instead. */

/* Numbers: the sum; 0 of no elements. */
STRATA_API strata_tensor *strata_reduce_sum(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);
/* Floats: the mean; NaN of no elements. */
STRATA_API strata_tensor *strata_reduce_mean(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);
/* Numbers: the largest, the smallest element; NaN if one element is NaN. Axes of size 0 are an error. */
STRATA_API strata_tensor *strata_reduce_max(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);
STRATA_API strata_tensor *strata_reduce_min(strata_tensor *x, const int *axes, int n_axes, bool keep_dims);
/* Index (i32) of the first largest element along one axis, which is removed. NaN counts as larger than all. No gradient. */
STRATA_API strata_tensor *strata_argmax(strata_tensor *x, int axis);
/* x (...) i32 or i64 -> y (n) i32: y[r] = 1 + the position of the first element of x that is r; 0 where no element is r. No
 * gradient. */
STRATA_API strata_tensor *strata_first_index(strata_tensor *x, int64_t n);
/* x (...) i32 or i64, of N elements -> y (N): each number of 0 .. n - 1 that is in x, at the position where it comes first; -1
 * at all other positions. out_inverse (i32, x's shape): for each element the position in y of its number; -1 for a number out
 * of range. No gradient.
 *     x (5 2 5 7), n 8 -> y (5 2 -1 7), inverse (0 1 0 3) */
STRATA_API strata_tensor *strata_unique(strata_tensor *x, int64_t n, strata_tensor **out_inverse);
/* (n) i32: 0, 1 .. n - 1. */
STRATA_API strata_tensor *strata_arange(strata_graph *graph, int64_t n);
/* x (..., C) -> (..., k): the k largest elements of each row, largest first. Of equal elements the one with the lower index
 * comes first; NaN counts as larger than all. out_indices (i32, (..., k)) are their indices; it may be NULL. The gradient of
 * each value goes to the element that it is a copy of. Cost: k passes over x. */
STRATA_API strata_tensor *strata_top_k(strata_tensor *x, int64_t k, strata_tensor **out_indices);

/* ---- softmax and losses of logits; floats, along the last axis C ---- */

/* x (..., C) -> the same shape: y_c = e^(x_c) / sum over j of e^(x_j). */
STRATA_API strata_tensor *strata_softmax(strata_tensor *x);
/* x (..., C) -> the same shape: the logarithm of softmax, without overflow. */
STRATA_API strata_tensor *strata_log_softmax(strata_tensor *x);
/* logits (..., C), labels (...) i32 or i64 -> (...): -log softmax(logits)[label]; NaN for a label outside of 0 .. C - 1. */
STRATA_API strata_tensor *strata_sparse_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels);
/* logits (..., C), labels (..., C) -> (...): -sum over c of labels_c log softmax(logits)_c. */
STRATA_API strata_tensor *strata_softmax_cross_entropy(strata_tensor *logits, strata_tensor *labels);
/* Element-wise, logits a and labels b in 0..1 broadcast together: the binary crossentropy max(a, 0) - a b + log(1 + e^-|a|). */
STRATA_API strata_tensor *strata_sigmoid_cross_entropy(strata_tensor *logits, strata_tensor *labels);

/* losses (B), outputs (B, K), labels (B, K), all f32 -> (2) f32. The first element is the sum of the losses. The second is the
 * sum over the rows of the share of correct outputs: an output is correct if it is above `threshold` exactly where its label is
 * above 1/2. No gradient. */
STRATA_API strata_tensor *strata_binary_sums(strata_tensor *losses, strata_tensor *outputs, strata_tensor *labels,
                                             double threshold);
/* losses (B) f32, logits (B, C) f32, labels (B) i32 or i64 -> (2) f32. The first element is the sum of the losses. The second
 * is the number of rows whose label is the index of the largest logit (the first one of equals; NaN counts as larger than all).
 * No gradient. */
STRATA_API strata_tensor *strata_classification_sums(strata_tensor *losses, strata_tensor *logits, strata_tensor *labels);

/* ---- normalisation; x is floats (..., C), the numbers of each channel (mean, scale ...) are f32 (C) ---- */

/* (..., C) -> f32 (2, C): the mean of each channel, and its biased variance (divided by the number of rows). NaN of no rows. */
STRATA_API strata_tensor *strata_moments(strata_tensor *x);
/* y = scale (x - mean) / sqrt(variance + epsilon) + shift. */
STRATA_API strata_tensor *strata_batch_norm(strata_tensor *x, strata_tensor *mean, strata_tensor *variance,
                                            strata_tensor *scale, strata_tensor *shift, double epsilon);
/* The same with mean and variance of x itself. They are also returned, f32 (C), for running averages; no gradient passes
 * through the returned tensors. The gradient of x includes the part that passes through mean and variance. This gradient has no
 * gradient. */
STRATA_API strata_tensor *strata_batch_norm_training(strata_tensor *x, strata_tensor *scale, strata_tensor *shift,
                                                     double epsilon, strata_tensor **out_mean, strata_tensor **out_variance);

/* y = scale (x - mean) / sqrt(variance + epsilon) + shift with mean and biased variance of each row along the last axis. Its
 * gradient has no gradient. */
STRATA_API strata_tensor *strata_layer_norm(strata_tensor *x, strata_tensor *scale, strata_tensor *shift, double epsilon);

/* Floats: softmax(scale q k^T) v. q (..., T, D), k (..., S, D), v (..., S, E) -> (..., T, E); the leading axes are equal.
 *   mask   bool, broadcast to (..., T, S): where it is false, query t does not use key s. NULL: all keys are used. A query that
 *          uses no key gives zeros and passes no gradient
 *   scale  0: 1 / sqrt(D); STRATA_ZERO: 0 */
STRATA_API strata_tensor *strata_attention(strata_tensor *q, strata_tensor *k, strata_tensor *v, strata_tensor *mask,
                                           double scale);

/* ---- recurrent layers over whole sequences; all f32 ---- */

typedef enum strata_recurrent_activation {
    /* The default: tanh for the activation A, sigmoid for the recurrent activation R. */
    STRATA_RECURRENT_DEFAULT = 0,
    STRATA_RECURRENT_TANH,
    STRATA_RECURRENT_SIGMOID,
    STRATA_RECURRENT_RELU,
    STRATA_RECURRENT_LINEAR
} strata_recurrent_activation;
typedef struct strata_recurrent_options {
    /* A and R below. */
    strata_recurrent_activation activation, recurrent_activation;
    /* Steps run from the last to the first. The order of h in the result is that of the sequence, as without `reverse`. */
    bool reverse;
    /* The result is h after the last step that ran, (N, U), instead of h after each step, (N, T, U). */
    bool last;
    /* For a GRU: the reset gate is applied before the product with the matrix instead of after it. */
    bool reset_first;
    /* (N, U): the h of the previous step is multiplied by this tensor in each product with the matrix, at all steps. It is not
     * differentiated. NULL: 1. With the output of strata_dropout for a tensor of ones, this is recurrent dropout (Gal &
     * Ghahramani 2016). */
    strata_tensor *factors;
} strata_recurrent_options;
/* With h and c of the step before (zeros before the first), s = h matrix + bias, and z, s in gates of U:
 *     i = R(z0 + s0), f = R(z1 + s1), g = A(z2 + s2), o = R(z3 + s3);  c = f c + i g, h = o A(c)
 *   z       (N, T, 4 U): the products of the inputs, x kernel        matrix  (U, 4 U)        bias  (4 U)
 *   mask    (N, T): where it is 0, h and c do not change. NULL: 1 everywhere
 * Hochreiter & Schmidhuber 1997, with forget gates. Its gradient has no gradient. */
STRATA_API strata_tensor *strata_lstm(strata_tensor *z, strata_tensor *matrix, strata_tensor *bias, strata_tensor *mask,
                                      strata_recurrent_options opts);
/* The same with u = R(z0 + s0), r = R(z1 + s1), g = A(z2 + r s2); h = u h + (1 - u) g, and 3 U instead of 4 U. This is the GRU
 * of Cho et al. 2014 in the form of cuDNN; with reset_first, as in the paper, g = A(z2 + (r h) matrix2 + bias2). */
STRATA_API strata_tensor *strata_gru(strata_tensor *z, strata_tensor *matrix, strata_tensor *bias, strata_tensor *mask,
                                     strata_recurrent_options opts);

/* ---- random numbers: Philox-4x32-10 ----
 * Element e depends only on (seed, step, stream, first row * elements of a row + e), so it is the same on every device.
 *   state   i32 (STRATA_RNG_WORDS): seed low, seed high, step low, step high, first row low, first row high, 0, 0. A row is an
 *           index of the leading axis. The first row is 0; if the tensor is a part of a split batch, it is the position of the
 *           part's first row in the whole batch
 *   stream  a number for each op of a program, so that two ops draw different numbers
 * The layout of the counter is in shaders/README.md. */
enum { STRATA_RNG_FIRST_ROW = 4, STRATA_RNG_WORDS = 8 };
/* f32 of `shape`, uniform in [0, 1). No gradient. */
STRATA_API strata_tensor *strata_random_uniform(strata_tensor *state, uint32_t stream, strata_shape shape);
/* f32 of `shape`, normal with mean 0 and standard deviation 1. No gradient. */
STRATA_API strata_tensor *strata_random_normal(strata_tensor *state, uint32_t stream, strata_shape shape);
/* Floats: each element is x / (1 - rate) with probability 1 - rate, else 0; 0 <= rate < 1. The gradient draws the same numbers
 * again instead of storing which elements are 0. */
STRATA_API strata_tensor *strata_dropout(strata_tensor *x, strata_tensor *state, uint32_t stream, double rate);

/* ---- updates of variables ----
 * The first operand must come from strata_variable_read; its variable is changed in place. The result is the variable's new
 * value. Pass it to strata_executable_create as an update, because nodes that no output or update depends on are not computed.
 * No gradients. */

/* Any: the variable becomes value, of its shape and dtype. */
STRATA_API strata_tensor *strata_assign(strata_tensor *variable, strata_tensor *value);
/* f32, i32, i64: the variable becomes variable + value. */
STRATA_API strata_tensor *strata_assign_add(strata_tensor *variable, strata_tensor *value);
/* Sets rows of a variable: row indices[j] (i32 or i64) of the n_rows rows that begin at its element `first` becomes rows[j].
 * Indices out of range set nothing; the others must differ from each other.
 *   update  NULL, or the optimizer's node that changes `rows` in place, if `rows` is not its result. No other node may
 *           read such rows after it
 * With strata_gather it makes an update of some rows only, here by Adam:
 *     p = strata_gather(w, ids, 0), m = strata_gather(w_m, ids, 0), v = strata_gather(w_v, ids, 0);
 *     u = strata_adam(p, m, v, gradients, ...);
 *     strata_scatter_update(w, 0, n, ids, u, NULL);
 *     strata_scatter_update(w_m, 0, n, ids, m, u);
 *     strata_scatter_update(w_v, 0, n, ids, v, u); */
STRATA_API strata_tensor *strata_scatter_update(strata_tensor *variable, int64_t first, int64_t n_rows, strata_tensor *indices,
                                                strata_tensor *rows, strata_tensor *update);
/* f32 of one shape: state += rates (value - state). With a rate of 1 the state becomes exactly the value; with a rate of 0 it
 * does not change, even if it is infinite.
 *   gate  an f32 scalar: if it is not finite, nothing is changed. NULL: the state is always changed */
STRATA_API strata_tensor *strata_moving_average(strata_tensor *state, strata_tensor *value, strata_tensor *rates,
                                                strata_tensor *gate);
/* f32: the elements of n_x tensors in one flat tensor (size). Tensor x[i] begins at element offsets[i]; offsets ascend and
 * parts do not overlap; elements between them are 0. Where possible, the device computes each x[i] directly at its position in
 * the flat tensor, so packing gradients copies nothing. */
STRATA_API strata_tensor *strata_pack(strata_tensor *const *x, const int64_t *offsets, int n_x, int64_t size);

/* ---- optimizers: one step over flat f32 ranges (n), in place; no gradients ----
 * Common operands:
 *   parameters, m, v, velocity ...  variables, or rows that were gathered from them (strata_scatter_update)
 *   gradients  (n), or fewer: then only the first elements of the others are updated
 *   step       f32 (STRATA_STEP_WORDS): the numbers that change from step to step. They are an operand so that the program need
 *              not be compiled again. lr below is the learning rate in it
 *   gate       an f32 scalar: if it is not finite (a loss that overflowed), nothing is changed. NULL: always updated
 * Below p is an element of the parameters and g its gradient. The result is the new parameters. */
enum {
    STRATA_STEP_LEARNING_RATE = 0, /* scheduled for this step; for Adam times sqrt(1 - beta2^t) / (1 - beta1^t)             */
    STRATA_STEP_PLAIN_RATE = 1,    /* scheduled for this step, without that factor                                          */
    STRATA_STEP_CORRECTION_1 = 2,  /* for LAMB: 1 / (1 - beta1^t)                                                           */
    STRATA_STEP_CORRECTION_2 = 3,  /* for LAMB: 1 / (1 - beta2^t)                                                           */
    STRATA_STEP_SHARE = 4,         /* this batch's examples / the update's examples: the weight of penalties in the loss    */
    STRATA_STEP_SCALE = 5,         /* accumulated gradients are multiplied by it at the update                              */
    STRATA_STEP_STATE_SHARE = 6,   /* 1 / the number of replicas with examples of the accumulated batch                     */
    STRATA_STEP_BATCHES = 7,       /* the number of batches that the update accumulates                                     */
    STRATA_STEP_WORDS = 8
};
/* SGD. With momentum 0:  p -= lr g.   Else  v = momentum v + g;  p -= lr v,  or with nesterov  p -= lr (g + momentum v)
 * (Sutskever et al. 2013, as in PyTorch's SGD). velocity is v; NULL when momentum is 0. */
STRATA_API strata_tensor *strata_sgd(strata_tensor *parameters, strata_tensor *velocity, strata_tensor *gradients,
                                     strata_tensor *step, strata_tensor *gate, double momentum, bool nesterov);
/* Adam (Kingma & Ba 2015), in the form at the end of its section 2, with epsilon outside of the bias correction, as in Keras:
 * m += (1 - beta1) (g - m);  v += (1 - beta2) (g g - v);  p -= lr m / (sqrt(v) + epsilon). */
STRATA_API strata_tensor *strata_adam(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                                      strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon);
/* AdamW (Loshchilov & Hutter 2019): first p -= plain rate * decay * p, then Adam. */
STRATA_API strata_tensor *strata_adamw(strata_tensor *parameters, strata_tensor *m, strata_tensor *v, strata_tensor *gradients,
                                       strata_tensor *step, strata_tensor *gate, double beta1, double beta2, double epsilon,
                                       double decay);
/* RMSprop (Hinton 2012), as in Keras:
 *     squares = rho squares + (1 - rho) g g
 *     mean = rho mean + (1 - rho) g                           mean NULL: not centered; mean is 0 in the next line
 *     change = lr g / sqrt(squares - mean mean + epsilon)
 *     velocity = momentum velocity + change; p -= velocity    velocity NULL when momentum is 0: p -= change */
STRATA_API strata_tensor *strata_rmsprop(strata_tensor *parameters, strata_tensor *squares, strata_tensor *mean,
                                         strata_tensor *velocity, strata_tensor *gradients, strata_tensor *step,
                                         strata_tensor *gate, double rho, double momentum, double epsilon);
/* Adagrad (Duchi et al. 2011):  squares += g g;  p -= lr g / sqrt(squares + epsilon). */
STRATA_API strata_tensor *strata_adagrad(strata_tensor *parameters, strata_tensor *squares, strata_tensor *gradients,
                                         strata_tensor *step, strata_tensor *gate, double epsilon);
/* The direction of a step of LAMB (You et al. 2020), written to the variable `direction`, which is the result. m and v change
 * as Adam's:  direction = c1 m / (sqrt(c2 v) + epsilon) + decay p,  where c1 and c2 are the step's corrections. */
STRATA_API strata_tensor *strata_lamb(strata_tensor *direction, strata_tensor *m, strata_tensor *v, strata_tensor *parameters,
                                      strata_tensor *gradients, strata_tensor *step, strata_tensor *gate, double beta1,
                                      double beta2, double epsilon, double decay);
/* Sums of neighbouring elements, for norms of each parameter. x (n) f32, ends (S) i32 -> (S) f32: element s is the sum of x_i
 * for ends[s - 1] <= i < ends[s], where ends[-1] is 0. Ends beyond n count as n. No gradient. */
STRATA_API strata_tensor *strata_segment_sum(strata_tensor *x, strata_tensor *ends);

/* ---- between replicas (strata/strategy.h); with one replica the result is x ---- */
typedef enum strata_reduction { STRATA_REDUCE_SUM = 0, STRATA_REDUCE_MEAN = 1 } strata_reduction;
/* The sum or mean of x over all replicas, added in the order of the replicas, so every replica receives the same bits. SUM:
 * numbers (floats are added in f32); MEAN: floats. Every replica's program must have the same all_reduce nodes in the same
 * order. */
STRATA_API strata_tensor *strata_all_reduce(strata_tensor *x, strata_reduction reduction);

/* ---- ops of programs that have no function here ----
 * Gradients and the passes of the compiler build these nodes. A plugin (strata/plugin.h) may be given them. `strata help ops`
 * lists their attributes, which have their names here. dy is the gradient of the result of the op whose gradient this is.
 *
 *   relu_grad (dy, y)           b > 0 ? a : 0, element by element with a = dy and b = y, which is broadcast as in strata_add
 *   tanh_grad (dy, y)           dy (1 - y^2)
 *   sigmoid_grad (dy, y)        dy y (1 - y)
 *   gelu_grad (dy, x)           dy ((1 + erf(x / sqrt 2)) / 2 + x e^(-x^2 / 2) / sqrt(2 pi))
 *   gelu_tanh_grad (dy, x)      dy ((1 + t) / 2 + x (1 - t^2) sqrt(2 / pi) (1 + 0.134145 x^2) / 2), where
 *                               t = tanh(sqrt(2 / pi) (x + 0.044715 x^3))
 *   silu_grad (dy, x)           dy s (1 + x (1 - s)), s = sigmoid(x)
 *   sigmoid_sub (a, b)          sigmoid(a) - b, the gradient of sigmoid_cross_entropy by its logits a
 *   chain (x ...)               an expression of element-wise ops; its parts are the same expression, one node for each op
 *
 *   conv2d_input_grad (dy, filter)   of x in strata_conv2d: dx (N, H, W, C), where H and W are input_size:
 *                               dx[n, h, w, c] = sum over kh, kw, f of dy[n, oh, ow, f] filter[kh, kw, c, f], where
 *                               h = oh stride + kh dilation - top and w = ow stride + kw dilation - left; with groups, over the
 *                               filters f of c's group, and c counts from the group's first channel in the filter
 *   conv2d_filter_grad (x, dy)  of the filter: df (KH, KW, C / groups, K), where KH and KW are size:
 *                               df[kh, kw, c, f] = sum over n, oh, ow of dy[n, oh, ow, f] x[n, oh stride + kh dilation - top,
 *                               ow stride + kw dilation - left, c], with zeros outside of x; with groups, c counts from the
 *                               first channel of f's group. In all window ops, padding has the numbers of zeros that SAME means
 *   max_pool2d_grad (x, dy)     of x's shape: each dy is added at the first largest element of its window; NaN counts as larger
 *                               than all. If rectified is 1, elements at which x is not above 0 are 0
 *   max_pool2d (x, v)           with a second input of x's shape: the element of v at the position of the largest x
 *   avg_pool2d_grad (dy)        (N, H, W, C), where H and W are input_size: each dy, divided by the number of elements of its
 *                               window that are inside of the image, is added at all of these
 *
 *   gather_grad (dy, indices)   of x in strata_gather, whose axis `axis` has `size` elements: dx[i] is the sum of the rows
 *                               dy[j] with indices[j] = i. The last axis of the indices in dy may be 1: its row then counts
 *                               for all indices along this axis
 *   gather_mean (x, indices)    x (A, ...), indices (J ..., T) -> (J ..., ...): y[j] = sum over t of x[indices[j, t]] / T; an
 *                               index out of range counts as zeros
 *
 *   softmax_grad (y, dy)        y (dy - sum over c of y_c dy_c), for each row; y is the softmax
 *   log_softmax_grad (y, dy)    dy - e^y sum over c of dy_c; y is the log_softmax
 *   softmax_cross_entropy_grad (logits, labels, dy)   dy has a value for each row. of "logits": dy (softmax(logits) sum over c
 *                               of labels_c - labels). of "labels": -dy log_softmax(logits)
 *   sparse_softmax_cross_entropy_grad (logits, labels, dy)   dy (softmax(logits)_c - (c = label ? 1 : 0)); NaN in a row whose
 *                               label is out of range
 *
 *   batch_norm_sums (x, mean, variance, dy)   f32 (2, C): for each channel the sums over all rows of dy and of dy n, where
 *                               n = (x - mean) r, r = 1 / sqrt(variance + epsilon)
 *   batch_norm_grad (x, mean, variance, scale, sums, dy)   dx = scale r (dy - own (sums_0 + n sums_1) / rows), with n and r as
 *                               above. own is 1 if mean and variance are those of x
 *   layer_norm_grad (x, scale, dy)   dx = r (g - mean of g - n mean of g n) for each row, where g = dy scale and
 *                               n = (x - mean of x) r, r = 1 / sqrt(variance of x + epsilon)
 *
 *   recurrent (z, matrix, bias [, mask])   strata_lstm and strata_gru, which select a part of its result, f32 (N, T, P U): for
 *                               each step P planes of U numbers. cell "lstm" (P = 6): h c i f g o. "gru" (P = 5): h u r g s2.
 *                               "gru_reset_first" (P = 5): h u r g q, q = r k h'. k h' is the h of the step before times k,
 *                               which is 1 or, for a mask (N, T + U), its last U elements in the row
 *   recurrent_grad (states, matrix transposed, dy [, mask])   da, f32 (N, T, 4 U): the gradients of the arguments of A and R
 *                               at each step. states is the result of recurrent; of its gradient dy the plane of h is used.
 *                               "lstm": of z0 + s0, z1 + s1, z2 + s2, z3 + s3. "gru": of z0 + s0, z1 + s1, s2, z2 + r s2.
 *                               "gru_reset_first": of z0 + s0, z1 + s1, the argument of A, and q
 *
 *   adam_product (parameters, m, v, gradients, step, gate, a, b)   strata_adamw, in which elements offset .. offset + M N - 1
 *                               of the gradients are those of a^T b instead, row by row. a is (K, M), b is (K, N)
 *   adam_gather (parameters, m, v, gradients, step, gate, dy, indices)   strata_adamw, in which the elements from `offset` on
 *                               are those of gather_grad(dy, indices) for axis 0 and `rows` rows
 *
 * Between devices. Only all_reduce, all_gather and reduce_scatter are given to plugins, those with the table "collectives".
 *   all_gather (x)              the members' x, concatenated along `axis`
 *   reduce_scatter (x)          part `own`, along axis 0, of the sum or mean of the members' x; part i has lengths[i] rows
 *   move (x)                    x; in a graph for several devices, it is sent to another coordinate of their mesh
 *   reduce_to (x)               the sum or mean of the members' x, on the devices that receive it; empty on others
 *   broadcast (x)               x of the member that has one
 *   send (x)                    empty; x is sent to the device of the channel that has recv
 *   recv ()                     the x of the device of the channel that has send
 *   merge (x)                   the result of a function of the host that gets the x of all replicas */

/* ---- measuring ---- */
/* f32: y = x, then `steps` times (0..60000) y = fma(y, 0.999, 0.001). It reads and writes little and computes 2 * steps
 * operations per element, so its time measures the device's multiply-add units (strata bench). No gradient. */
STRATA_API strata_tensor *strata_fma_chain(strata_tensor *x, int64_t steps);

/* ---- printing ---- */
enum { STRATA_MAX_PRINTED = 64 };
typedef struct strata_print_options {
    /* x is shown in runs 0, every, 2 every, ... of the program that contains the node; at least 0; 0: 1, in each run. */
    int64_t every;
    /* How many of its first elements are listed: 0 to STRATA_MAX_PRINTED; 0: 3. */
    int64_t first;
    /* The name that is shown; copied. NULL: the name of x. */
    const char *name;
} strata_print_options;
/* Any: y = x. After each run that has been waited for, strata_device_options.on_print gets the shape of x, its first elements,
 * its smallest, mean and largest value, and how many elements are NaN or infinite. This happens only if an output or update of
 * the program depends on y, or if y is one of the program's `updates`. x is then copied to the host in each run. Without
 * on_print the node costs nothing. opts may be NULL. The gradient of x is that of y. */
STRATA_API strata_tensor *strata_print(strata_tensor *x, const strata_print_options *opts);

/* The ops as plugins see them: their inputs, and a line for each attribute. The caller frees the text. Fails: OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_ops_text(char **out_text, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
