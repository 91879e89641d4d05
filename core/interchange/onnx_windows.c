/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, pools, normalisations and recurrent nodes. Weights that are constant become the parameters of Strata's layers;
 * weights that are computed become operands of ops. */
#include <inttypes.h>
#include <stdio.h>

#include "core/interchange/onnx.h"

/* ---- windows ---- */

/* A window over one or two axes. If there is one axis, the first entries are those for an image of one row: 1 or 0. */
typedef struct window {
    /* 1 or 2. */
    int n_axes;
    int64_t size[2], stride[2], dilation[2];
    /* The padding before and after each axis. */
    int64_t before[2], behind[2];
} window;

/* in: the sizes of x's axes. size: the size of the window, from the attribute or the kernel. */
static window read_window(strata_onnx_import *im, const int64_t *in, const int64_t *size, int n_axes) {
    window out = {.n_axes = n_axes, .size = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    int64_t stride[2], dilation[2], pads[4];
    const int n_stride = strata_onnx_ints(im, "strides", -1, n_axes, stride);
    const int n_dilation = strata_onnx_ints(im, "dilations", -1, n_axes, dilation);
    const int n_pads = strata_onnx_ints(im, "pads", -1, 2 * n_axes, pads);
    const bool automatic = !strata_onnx_text_is(im, "auto_pad", "NOTSET", true);
    const bool valid = strata_onnx_text_is(im, "auto_pad", "VALID", false);
    const bool lower = strata_onnx_text_is(im, "auto_pad", "SAME_LOWER", false);
    if ((n_stride && n_stride != n_axes) || (n_dilation && n_dilation != n_axes) || (n_pads && n_pads != 2 * n_axes))
        strata_onnx_reject(im, STRATA_DATA, "strides, dilations or pads do not fit %d axes", n_axes);
    for (int d = 0; d < n_axes && !im->status; d++) {
        const int k = 2 - n_axes + d;
        out.size[k] = size[d];
        if (n_stride) out.stride[k] = stride[d];
        if (n_dilation) out.dilation[k] = dilation[d];
        if (n_pads) out.before[k] = pads[d], out.behind[k] = pads[n_axes + d];
        const int64_t numbers[] = {out.size[k], out.stride[k], out.dilation[k], out.before[k], out.behind[k]};
        for (int i = 0; i < 5; i++)
            if (numbers[i] < (i < 3 ? 1 : 0) || numbers[i] > 1 << 20)
                strata_onnx_reject(im, STRATA_DATA,
                                   "a window's size, stride, dilation or pad is out of range (1, or 0, to 2^20)");
        if (!automatic || im->status) continue;
        /* SAME: there are ceil(in / stride) outputs. If the padding is odd, its larger half comes after, or, for
         * SAME_LOWER, before. */
        const int64_t places = (in[d] + out.stride[k] - 1) / out.stride[k];
        const int64_t reach = (out.size[k] - 1) * out.dilation[k] + 1, all = (places - 1) * out.stride[k] + reach - in[d];
        const int64_t half = all > 0 && !valid ? all / 2 : 0, rest = all > 0 && !valid ? all - half : 0;
        out.before[k] = lower ? rest : half;
        out.behind[k] = lower ? half : rest;
    }
    return out;
}

/* Reshapes x; for example (N, C, L) to (N, C, 1, L), or back. */
static int reshape(strata_onnx_import *im, int x, strata_shape to) {
    return strata_onnx_with_ints(im, "reshape", x, to.dims, to.rank, 0);
}

/* The shape with 0 for axis 0, with which reshape keeps the size of this axis. */
static strata_shape open_batch(const strata_onnx_import *im, strata_shape shape) {
    if (!im->folding) shape.dims[0] = 0;
    return shape;
}

/* Reshapes one number for each channel, (C), so that they broadcast to x (N, C, ...). */
static int by_channel(strata_onnx_import *im, int numbers, int rank) {
    strata_shape to = {.rank = rank};
    for (int d = 0; d < rank; d++) to.dims[d] = d == 1 ? strata_shape_elements(strata_onnx_shape(im, numbers)) : 1;
    return strata_onnx_is_constant(im, numbers) && !im->folding ? strata_onnx_constant_as(im, numbers, to)
                                                                : reshape(im, numbers, to);
}

static int binary(strata_onnx_import *im, const char *op, int a, int b) {
    return strata_onnx_simple(im, op, (const int[]){a, b}, 2);
}

/* Adds a convolution layer for a constant kernel. */
static int conv_layer(strata_onnx_import *im, int x, int w, int bias, const window *win, int64_t groups) {
    static const int axes_2d[] = {2, 3, 1, 0}, axes_1d[] = {2, 1, 0};
    const int64_t filters = im->values[w].array.shape.dims[0];
    const bool two_axes = win->n_axes == 2;
    const strata_conv2d_options two = {.filters = filters,
                                       .kernel_size = {win->size[0], win->size[1]},
                                       .stride = {win->stride[0], win->stride[1]},
                                       .dilation = {win->dilation[0], win->dilation[1]},
                                       .padding = "explicit",
                                       .explicit_padding = {win->before[0], win->behind[0], win->before[1], win->behind[1]},
                                       .groups = groups,
                                       .no_bias = !bias};
    const strata_conv1d_options one = {.filters = filters,
                                       .kernel_size = win->size[1],
                                       .stride = win->stride[1],
                                       .dilation = win->dilation[1],
                                       .padding = "explicit",
                                       .explicit_padding = {win->before[1], win->behind[1]},
                                       .groups = groups,
                                       .no_bias = !bias};
    const int behind = strata_onnx_behind(im, x), y = two_axes
                                                          ? strata_onnx_layer(im, "conv2d", &two, sizeof two, behind, true)
                                                          : strata_onnx_layer(im, "conv1d", &one, sizeof one, behind, true);
    strata_onnx_weight_of(im, "kernel", w, two_axes ? axes_2d : axes_1d);
    if (bias) strata_onnx_weight_of(im, "bias", bias, NULL);
    return y;
}

static strata_op_options conv_op(const char *op, const window *win, int64_t groups) {
    return (strata_op_options){.op = op,
                               .numbers = {.n = 9,
                                           .values = {(double)win->stride[0], (double)win->stride[1], (double)win->dilation[0],
                                                      (double)win->dilation[1], (double)win->before[0], (double)win->behind[0],
                                                      (double)win->before[1], (double)win->behind[1], (double)groups}}};
}

/* A convolution of either kind. */
typedef struct conv {
    /* x (N, C, ...), the kernel (K, C / groups, ...) and the bias (K); bias 0: there is none. */
    int x, w, bias;
    window win;
    int64_t groups;
} conv;

static conv read_conv(strata_onnx_import *im, const int *in) {
    conv c = {.x = in[0], .w = in[1], .bias = in[2], .groups = strata_onnx_int(im, "group", 1)};
    int64_t declared[2];
    const strata_shape shape = strata_onnx_shape(im, c.x), kernel = strata_onnx_shape(im, c.w);
    if (shape.rank != kernel.rank || shape.rank < 3)
        strata_onnx_reject(im, STRATA_DATA, "its input is %s and its kernel %s", strata_shape_text(shape).text,
                           strata_shape_text(kernel).text);
    if (shape.rank > 4) strata_onnx_reject(im, STRATA_UNSUPPORTED, "over %d axes; there are 1 and 2", shape.rank - 2);
    if (c.groups < 1 || c.groups > 1 << 20) strata_onnx_reject(im, STRATA_DATA, "%" PRId64 " groups", c.groups);
    if (im->status) return c;
    const int n = strata_onnx_ints(im, "kernel_shape", -1, 2, declared);
    for (int d = 0; d < n; d++)
        if (n != shape.rank - 2 || declared[d] != kernel.dims[2 + d])
            strata_onnx_reject(im, STRATA_DATA, "its kernel_shape is not that of its kernel %s",
                               strata_shape_text(kernel).text);
    c.win = read_window(im, shape.dims + 2, kernel.dims + 2, shape.rank - 2);
    return c;
}

/* Adds an axis of size 1 to x or the kernel, for ops that take images. */
static int as_images(strata_onnx_import *im, int value, bool is_kernel) {
    const strata_shape s = strata_onnx_shape(im, value), image = STRATA_SHAPE(s.dims[0], s.dims[1], 1, s.dims[2]);
    return s.rank == 3 ? reshape(im, value, is_kernel ? image : open_batch(im, image)) : value;
}

/* Applies the op of a convolution to x and the kernel, whose axes ONNX has in another order, and adds the bias. */
static int conv_by_op(strata_onnx_import *im, const conv *c, const strata_op_options *opts) {
    const int x = as_images(im, c->x, false), w = as_images(im, c->w, true);
    const int kernel = strata_onnx_permute(im, w, (const int[]){2, 3, 1, 0});
    int y = strata_onnx_op(im, opts, (const int[]){strata_onnx_behind(im, x), kernel}, 2, true);
    const strata_shape s = strata_onnx_shape(im, y);
    if (c->win.n_axes == 1) y = reshape(im, y, open_batch(im, STRATA_SHAPE(s.dims[0], s.dims[1], s.dims[3])));
    return c->bias ? binary(im, "add", y, by_channel(im, c->bias, 2 + c->win.n_axes)) : y;
}

int strata_onnx_node_conv(strata_onnx_import *im, const int *in) {
    const conv c = read_conv(im, in);
    const strata_onnx_value *w = &im->values[c.w], *bias = &im->values[c.bias];
    const strata_op_options opts = conv_op("conv2d", &c.win, c.groups);
    if (!im->folding && w->constant && w->trainable && !im->values[c.x].constant &&
        (!c.bias || (bias->constant && bias->trainable)))
        return conv_layer(im, c.x, c.w, c.bias, &c.win, c.groups);
    return conv_by_op(im, &c, &opts);
}

/* Translates a transposed convolution: its output is an image from which the convolution with the same kernel computes
 * the shape of x. */
int strata_onnx_node_conv_transpose(strata_onnx_import *im, const int *in) {
    conv c = read_conv(im, in);
    window *win = &c.win;
    int64_t extra[2], wanted[2], size[2] = {1, 1};
    const strata_shape shape = strata_onnx_shape(im, c.x);
    const int n_extra = strata_onnx_ints(im, "output_padding", -1, win->n_axes, extra);
    const int n_shape = strata_onnx_ints(im, "output_shape", -1, win->n_axes, wanted);
    const bool same =
        !strata_onnx_text_is(im, "auto_pad", "NOTSET", true) && !strata_onnx_text_is(im, "auto_pad", "VALID", false);
    for (int d = 0; d < win->n_axes; d++) {
        const int k = 2 - win->n_axes + d;
        const int64_t in_size = shape.dims[2 + d], reach = (win->size[k] - 1) * win->dilation[k] + 1;
        const int64_t more = d < n_extra ? extra[d] : 0;
        if (more < 0 || more > 1 << 20 || in_size > 1 << 20)
            return strata_onnx_reject(im, STRATA_DATA, "its sizes are out of range");
        const int64_t full = win->stride[k] * (in_size - 1) + more + reach;
        size[k] = full - win->before[k] - win->behind[k];
        if (d < n_shape || same) { /* the padding follows from the size of the output */
            size[k] = d < n_shape ? wanted[d] : in_size * win->stride[k];
            const int64_t all = full - size[k];
            const bool upper = strata_onnx_text_is(im, "auto_pad", "SAME_UPPER", false);
            if (all < 0) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its output is larger than what it computes");
            win->before[k] = upper ? all / 2 : all - all / 2;
            win->behind[k] = all - win->before[k];
        }
        if (size[k] < 1) return strata_onnx_reject(im, STRATA_DATA, "its output would be empty");
    }
    strata_op_options opts = conv_op("conv2d_transpose", win, c.groups);
    opts.numbers.values[opts.numbers.n++] = (double)size[0];
    opts.numbers.values[opts.numbers.n++] = (double)size[1];
    return conv_by_op(im, &c, &opts);
}

/* ---- pools ---- */

/* With ceil_mode, the last window may reach beyond the padding. The padding is enlarged so that it does not. */
static void round_up(window *win, const int64_t *in) {
    for (int d = 0; d < win->n_axes; d++) {
        const int k = 2 - win->n_axes + d;
        const int64_t all = in[d] + win->before[k] + win->behind[k] - win->size[k];
        int64_t places = (all + win->stride[k] - 1) / win->stride[k] + 1;
        if ((places - 1) * win->stride[k] >= in[d] + win->before[k]) places--;
        const int64_t missing = (places - 1) * win->stride[k] - all;
        if (missing > 0) win->behind[k] += missing;
    }
}

int strata_onnx_node_pool(strata_onnx_import *im, const int *in) {
    const bool max = !strcmp(im->row->detail, "max"), ceil_mode = strata_onnx_int(im, "ceil_mode", 0);
    const strata_shape shape = strata_onnx_shape(im, in[0]);
    int64_t size[2];
    if (strata_onnx_dtype(im, in[0]) != STRATA_DTYPE_F32) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "of integers");
    if (strata_onnx_is_taken(im, 1)) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its Indices are not there");
    if (shape.rank < 3 || shape.rank > 4)
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "over %d axes; there are 1 and 2", shape.rank - 2);
    const int n = strata_onnx_ints(im, "kernel_shape", -1, 2, size);
    if (n != shape.rank - 2)
        return strata_onnx_reject(im, STRATA_DATA, "kernel_shape has %d sizes for %d axes", n, shape.rank - 2);
    window win = read_window(im, shape.dims + 2, size, n);
    if (win.dilation[0] != 1 || win.dilation[1] != 1) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "with dilations");
    const bool pads = win.before[0] || win.behind[0] || win.before[1] || win.behind[1];
    int x = strata_onnx_behind(im, in[0]);
    if (!max && pads && strata_onnx_int(im, "count_include_pad", 0)) {
        if (ceil_mode) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "ceil_mode with count_include_pad");
        strata_op_options zeros = {.op = "pad", .numbers = {.n = 2 * shape.rank}};
        for (int d = 0; d < n; d++) {
            zeros.numbers.values[1 + d] = (double)win.before[2 - n + d];
            zeros.numbers.values[shape.rank + 1 + d] = (double)win.behind[2 - n + d];
        }
        x = strata_onnx_op(im, &zeros, &x, 1, true);
        memset(win.before, 0, sizeof win.before);
        memset(win.behind, 0, sizeof win.behind);
    }
    if (ceil_mode) round_up(&win, shape.dims + 2);
    const strata_pool2d_options two = {.size = {win.size[0], win.size[1]},
                                       .stride = {win.stride[0], win.stride[1]},
                                       .padding = "explicit",
                                       .explicit_padding = {win.before[0], win.behind[0], win.before[1], win.behind[1]}};
    const strata_pool1d_options one = {.size = win.size[1],
                                       .stride = win.stride[1],
                                       .padding = "explicit",
                                       .explicit_padding = {win.before[1], win.behind[1]}};
    return n == 2 ? strata_onnx_layer(im, max ? "max_pool2d" : "avg_pool2d", &two, sizeof two, x, true)
                  : strata_onnx_layer(im, max ? "max_pool1d" : "avg_pool1d", &one, sizeof one, x, true);
}

int strata_onnx_node_global_pool(strata_onnx_import *im, const int *in) {
    const int rank = strata_onnx_shape(im, in[0]).rank, x = strata_onnx_behind(im, in[0]);
    if (rank < 3) return strata_onnx_reject(im, STRATA_DATA, "its input has %d axes; at least 3", rank);
    strata_op_options opts = {.op = im->row->detail, .value = 1, .numbers = {.n = rank - 2}};
    for (int d = 0; d < rank - 2; d++) opts.numbers.values[d] = im->values[x].behind ? d + 1 : d + 2;
    return strata_onnx_op(im, &opts, &x, 1, im->values[x].behind);
}

/* ---- normalisations ---- */

/* 1 / sqrt(x + epsilon) */
static int inverse_root(strata_onnx_import *im, int x, double epsilon) {
    const int sum = binary(im, "add", x, strata_onnx_scalar(im, STRATA_DTYPE_F32, epsilon));
    return strata_onnx_simple(im, "rsqrt", &sum, 1);
}

int strata_onnx_node_batch_norm(strata_onnx_import *im, const int *inputs) {
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const double epsilon = strata_onnx_float(im, "epsilon", 1e-5), momentum = strata_onnx_float(im, "momentum", 0.9);
    const strata_shape shape = strata_onnx_shape(im, inputs[0]);
    int in[4];
    bool constant = !im->folding;
    for (int i = 0; i < 4; i++) {
        in[i] = strata_onnx_need(im, 1 + i);
        constant = constant && strata_onnx_is_constant(im, in[i]);
    }
    if (strata_onnx_int(im, "training_mode", 0))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "with training_mode; export the model for inference");
    if (shape.rank < 2) return strata_onnx_reject(im, STRATA_DATA, "its input is %s", strata_shape_text(shape).text);
    for (int i = 0; i < 4; i++)
        if (!strata_shape_equal(strata_onnx_shape(im, in[i]), STRATA_SHAPE(shape.dims[1])))
            return strata_onnx_reject(im, STRATA_DATA, "its %s is %s for an input of %s", names[i],
                                      strata_shape_text(strata_onnx_shape(im, in[i])).text, strata_shape_text(shape).text);
    if (constant && epsilon > 0 && epsilon < 1) {
        const strata_batch_norm_options opts = {.epsilon = epsilon,
                                                .momentum = momentum > 0 && momentum < 1 ? momentum
                                                            : momentum == 0              ? STRATA_ZERO
                                                                                         : 0.9};
        const int x = strata_onnx_behind(im, inputs[0]);
        const int y = strata_onnx_layer(im, "batch_norm", &opts, sizeof opts, x, im->values[x].behind);
        for (int i = 0; i < 4; i++) strata_onnx_weight_of(im, names[i], in[i], NULL);
        return y;
    }
    for (int i = 0; i < 4; i++) in[i] = by_channel(im, in[i], shape.rank);
    const int centered = binary(im, "sub", inputs[0], in[2]);
    const int factor = binary(im, "mul", inverse_root(im, in[3], epsilon), in[0]);
    return binary(im, "add", binary(im, "mul", centered, factor), in[1]);
}

/* The mean over axes [first, rank), which are kept with size 1. */
static int mean_of(strata_onnx_import *im, int x, int first) {
    const int n = strata_onnx_shape(im, x).rank - first;
    int64_t axes[STRATA_MAX_RANK];
    for (int d = 0; d < n; d++) axes[d] = first + d;
    return strata_onnx_with_ints(im, "reduce_mean", x, axes, n, 1);
}

/* (x - mean) / sqrt(variance + epsilon) over axes [first, rank). If `centered` is false: x / sqrt(mean x^2 + epsilon). */
static int normalize(strata_onnx_import *im, int x, int first, bool centered, double epsilon) {
    const int y = centered ? binary(im, "sub", x, mean_of(im, x, first)) : x;
    const int squares = strata_onnx_simple(im, "square", &y, 1);
    return binary(im, "mul", y, inverse_root(im, mean_of(im, squares, first), epsilon));
}

int strata_onnx_node_layer_norm(strata_onnx_import *im, const int *in) {
    const bool centered = strcmp(im->row->detail, "rms") != 0;
    const double epsilon = strata_onnx_float(im, "epsilon", 1e-5);
    const int x = strata_onnx_in_front(im, in[0]), scale = in[1], shift = in[2];
    const strata_shape shape = strata_onnx_shape(im, x);
    const int axis = strata_onnx_axis(im, -1, shape.rank);
    if (strata_onnx_is_taken(im, 1) || strata_onnx_is_taken(im, 2))
        return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its mean and deviation are no outputs here");
    const strata_shape channels = STRATA_SHAPE(shape.dims[axis]);
    const bool constant = !im->folding && strata_onnx_is_constant(im, scale) && (!shift || strata_onnx_is_constant(im, shift));
    if (centered && constant && axis == shape.rank - 1 && strata_shape_equal(im->values[scale].array.shape, channels) &&
        epsilon > 0 && epsilon < 1) {
        const strata_layer_norm_options opts = {.epsilon = epsilon};
        void *zeros;
        const int y = strata_onnx_layer(im, "layer_norm", &opts, sizeof opts, x, false);
        strata_onnx_weight_of(im, "gamma", scale, NULL);
        strata_onnx_weight_of(im, "beta", shift ? shift : strata_onnx_new_constant(im, STRATA_DTYPE_F32, channels, &zeros),
                              NULL);
        return y;
    }
    const int y = binary(im, "mul", normalize(im, x, axis, centered, epsilon), scale);
    return shift ? binary(im, "add", y, shift) : y;
}

/* Normalizes each group of channels over all its positions. An instance normalization has as many groups as channels. */
int strata_onnx_node_group_norm(strata_onnx_import *im, const int *in) {
    const bool instance = !strcmp(im->row->detail, "instance");
    const int x = strata_onnx_in_front(im, in[0]);
    const strata_shape shape = strata_onnx_shape(im, x);
    if (shape.rank < 2) return strata_onnx_reject(im, STRATA_DATA, "its input is %s", strata_shape_text(shape).text);
    const int64_t channels = shape.dims[1], groups = instance ? channels : strata_onnx_int(im, "num_groups", 0);
    if (groups < 1 || channels % groups)
        return strata_onnx_reject(im, STRATA_DATA, "%" PRId64 " channels in %" PRId64 " groups", channels, groups);
    const int64_t of_scale = strata_shape_elements(strata_onnx_shape(im, in[1]));
    if (of_scale != channels && of_scale != groups) return strata_onnx_reject(im, STRATA_DATA, "its scale does not fit");
    int y = reshape(im, x, open_batch(im, STRATA_SHAPE(shape.dims[0], groups, -1)));
    y = normalize(im, y, 2, true, strata_onnx_float(im, "epsilon", 1e-5));
    /* Up to opset 20 there is one scale for each group instead of each channel. */
    const bool by_group = of_scale != channels;
    if (!by_group) y = reshape(im, y, open_batch(im, shape));
    const int scale = by_channel(im, in[1], by_group ? 3 : shape.rank);
    const int shift = by_channel(im, in[2], by_group ? 3 : shape.rank);
    y = binary(im, "add", binary(im, "mul", y, scale), shift);
    return by_group ? reshape(im, y, open_batch(im, shape)) : y;
}

/* ---- recurrent ---- */

/* Sets parameter `name` to gates that are converted from rows (gates U, K) to columns (K, gates U). Gate g of the columns is
 * gate order[g] of the rows. */
static void set_gates(strata_onnx_import *im, const char *name, const float *rows, const int *order, int gates, int64_t units,
                      int64_t k) {
    float *columns;
    const int made = strata_onnx_new_constant(im, STRATA_DTYPE_F32, STRATA_SHAPE(k, gates * units), &columns);
    for (int g = 0; made && g < gates; g++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < k; i++) columns[i * gates * units + g * units + u] = rows[(order[g] * units + u) * k + i];
    strata_onnx_weight_of(im, name, made, NULL);
}

/* The gates of ONNX's rows are i o f c for an LSTM and z r h for a GRU; those of Strata's columns are i f c o and z r h.
 * Strata adds the two biases of ONNX, except for a GRU that applies its reset gate after the product (`halves` is 2). */
static void recurrent_weights(strata_onnx_import *im, bool lstm, int halves, const int *in, int direction, int64_t units) {
    static const int orders[2][4] = {{0, 1, 2, 0}, {0, 2, 3, 1}};
    static const char *const names[2][3] = {{"kernel", "recurrent_kernel", "bias"},
                                            {"backward_kernel", "backward_recurrent_kernel", "backward_bias"}};
    const int *order = orders[lstm], gates = lstm ? 4 : 3;
    const int64_t width = gates * units;
    float *bias;
    for (int i = 0; i < 2; i++) {
        const int64_t k = im->values[in[1 + i]].array.shape.dims[2];
        const float *rows = (const float *)im->values[in[1 + i]].array.data + direction * width * k;
        set_gates(im, names[direction][i], rows, order, gates, units, k);
    }
    const strata_shape shape = halves == 2 ? STRATA_SHAPE(2, width) : STRATA_SHAPE(width);
    const int made = strata_onnx_new_constant(im, STRATA_DTYPE_F32, shape, &bias);
    const float *given = in[3] ? (const float *)im->values[in[3]].array.data + direction * 2 * width : NULL;
    for (int half = 0; half < 2 && given && made; half++)
        for (int g = 0; g < gates; g++)
            for (int64_t u = 0; u < units; u++)
                bias[(halves == 2 ? half * width : 0) + g * units + u] += given[half * width + order[g] * units + u];
    strata_onnx_weight_of(im, names[direction][2], made, NULL);
}

/* Reads "activations": for each direction those of the gates, of the candidate and, for an LSTM, of the output. NULL: the
 * defaults. */
static void read_activations(strata_onnx_import *im, bool lstm, const char **out_recurrent, const char **out_activation) {
    static const struct { const char *onnx, *name; } functions[] = {{"Tanh", "tanh"}, {"Sigmoid", "sigmoid"}, {"Relu", "relu"}};
    const StrataOnnx__Attribute *a = strata_onnx_attribute(im, "activations");
    const size_t each = lstm ? 3 : 2;
    const char **outs[] = {out_recurrent, out_activation, out_activation};
    for (size_t i = 0; a && i < a->n_strings; i++) {
        const char *name = NULL, **out = outs[i % each];
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
            if (a->strings[i].len == strlen(functions[f].onnx) &&
                !memcmp(a->strings[i].data, functions[f].onnx, a->strings[i].len))
                name = functions[f].name;
        if (!name || (*out && strcmp(*out, name)))
            strata_onnx_reject(im, STRATA_UNSUPPORTED,
                               "with activations other than Tanh, Sigmoid and Relu, or several of a kind");
        *out = name;
    }
}

int strata_onnx_node_recurrent(strata_onnx_import *im, const int *in) {
    static const char *const others[] = {"activation_alpha", "activation_beta", "clip", "input_forget"};
    const bool lstm = !strcmp(im->row->detail, "lstm"), both = strata_onnx_text_is(im, "direction", "bidirectional", false);
    const bool reverse = strata_onnx_text_is(im, "direction", "reverse", false), batch_first = strata_onnx_int(im, "layout", 0);
    const int64_t units = strata_onnx_int(im, "hidden_size", 0), gates = lstm ? 4 : 3, directions = both ? 2 : 1;
    const char *activation = NULL, *recurrent = NULL;
    for (int i = 1; i < 4; i++)
        if (in[i] && (!strata_onnx_is_constant(im, in[i]) || strata_onnx_dtype(im, in[i]) != STRATA_DTYPE_F32))
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its weights are computed; they must be constant");
    for (int i = 4; i < 8; i++) {
        const int state = strata_onnx_input(im, i);
        if (state && (i == 4 || !strata_onnx_is_zeros(im, state)))
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its input %d (lengths, a first state or peepholes) is not there",
                                      i);
    }
    read_activations(im, lstm, &recurrent, &activation);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strata_onnx_attribute(im, others[i]) && (i < 3 || strata_onnx_int(im, others[i], 0)))
            return strata_onnx_reject(im, STRATA_UNSUPPORTED, "with %s", others[i]);
    const bool reset_first = !lstm && !strata_onnx_int(im, "linear_before_reset", 0);
    const int halves = lstm || reset_first ? 1 : 2;
    const strata_shape x = strata_onnx_shape(im, in[0]), w = im->values[in[1]].array.shape, r = im->values[in[2]].array.shape;
    if (units < 1 || units > 1 << 20 || x.rank != 3 || w.rank != 3 || w.dims[0] != directions || w.dims[1] != gates * units ||
        !strata_shape_equal(r, STRATA_SHAPE(directions, gates * units, units)) ||
        (in[3] && !strata_shape_equal(im->values[in[3]].array.shape, STRATA_SHAPE(directions, 2 * gates * units))))
        return strata_onnx_reject(im, STRATA_DATA, "its weights do not fit %" PRId64 " units", units);
    if (lstm && strata_onnx_is_taken(im, 2)) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "its last c is no output here");
    int front = strata_onnx_in_front(im, in[0]);
    if (!batch_first) front = strata_onnx_permute(im, front, (const int[]){1, 0, 2});
    /* Y has all steps, Y_h only the last one. A layer computes one of them, so only one may be used. */
    const bool sequences = strata_onnx_is_taken(im, 0), last = strata_onnx_is_taken(im, 1);
    if (sequences && last) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "both Y and Y_h are taken; one of them can be");
    if (!sequences && !last) return 0;
    const strata_recurrent_layer_options opts = {.units = units,
                                                 .activation = activation,
                                                 .recurrent_activation = recurrent,
                                                 .return_sequences = sequences,
                                                 .no_reset_after = reset_first,
                                                 .go_backwards = reverse,
                                                 .bidirectional = both ? "concat" : NULL};
    if (reverse && sequences) return strata_onnx_reject(im, STRATA_UNSUPPORTED, "Y of the direction \"reverse\"");
    int y = strata_onnx_layer(im, lstm ? "lstm" : "gru", &opts, sizeof opts, front, false);
    for (int direction = 0; direction < directions; direction++) recurrent_weights(im, lstm, halves, in, direction, units);
    const strata_shape got = strata_onnx_shape(im, y);
    if (sequences) { /* (N, T, D U) -> (N, T, D, U) -> (T, D, N, U) */
        y = reshape(im, y, open_batch(im, STRATA_SHAPE(got.dims[0], got.dims[1], directions, units)));
        return batch_first ? y : strata_onnx_permute(im, y, (const int[]){1, 2, 0, 3});
    }
    /* (N, D U) -> (N, D, U) -> (D, N, U) */
    y = reshape(im, y, open_batch(im, STRATA_SHAPE(got.dims[0], directions, units)));
    strata_onnx_output(im, 1, batch_first ? y : strata_onnx_permute(im, y, (const int[]){1, 0, 2}));
    return 0;
}
