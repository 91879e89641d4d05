/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, pools, normalisations and recurrent nodes. Weights that are constant become the parameters of Strata's layers;
 * weights that are computed become operands of ops. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
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
static strata_status read_window(strata_onnx_import *im, const int64_t *in, const int64_t *size, int n_axes, window *out) {
    int64_t stride[2], dilation[2], pads[4];
    int n_stride, n_dilation, n_pads;
    const int skip = 2 - n_axes;
    STRATA_TRY(strata_onnx_ints(im, "strides", -1, n_axes, stride, &n_stride));
    STRATA_TRY(strata_onnx_ints(im, "dilations", -1, n_axes, dilation, &n_dilation));
    STRATA_TRY(strata_onnx_ints(im, "pads", -1, 2 * n_axes, pads, &n_pads));
    if ((n_stride && n_stride != n_axes) || (n_dilation && n_dilation != n_axes) || (n_pads && n_pads != 2 * n_axes))
        return strata_onnx_fail(im, STRATA_DATA, "strides, dilations or pads do not fit %d axes", n_axes);
    *out = (window){.n_axes = n_axes, .size = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    for (int d = 0; d < n_axes; d++) {
        const int k = skip + d;
        out->size[k] = size[d];
        if (n_stride) out->stride[k] = stride[d];
        if (n_dilation) out->dilation[k] = dilation[d];
        if (n_pads) out->before[k] = pads[d], out->behind[k] = pads[n_axes + d];
        const int64_t most = 1 << 20;
        if (out->size[k] < 1 || out->stride[k] < 1 || out->dilation[k] < 1 || out->before[k] < 0 || out->behind[k] < 0 ||
            out->size[k] > most || out->stride[k] > most || out->dilation[k] > most || out->before[k] > most ||
            out->behind[k] > most)
            return strata_onnx_fail(im, STRATA_DATA,
                                    "a window's size, stride, dilation or pad is out of range (1, or 0, to 2^20)");
        if (strata_onnx_text_is(im, "auto_pad", "NOTSET", true)) continue;
        out->before[k] = out->behind[k] = 0;
        if (strata_onnx_text_is(im, "auto_pad", "VALID", false)) continue;
        /* SAME: there are ceil(in / stride) outputs. If the padding is odd, its larger half comes after, or, for
         * SAME_LOWER, before. */
        const int64_t places = (in[d] + out->stride[k] - 1) / out->stride[k];
        const int64_t reach = (out->size[k] - 1) * out->dilation[k] + 1, all = (places - 1) * out->stride[k] + reach - in[d];
        const int64_t half = all > 0 ? all / 2 : 0, rest = all > 0 ? all - half : 0;
        const bool lower = strata_onnx_text_is(im, "auto_pad", "SAME_LOWER", false);
        out->before[k] = lower ? rest : half;
        out->behind[k] = lower ? half : rest;
    }
    return STRATA_OK;
}

/* Reshapes x; for example (N, C, L) to (N, C, 1, L), or back. */
static strata_status reshape(strata_onnx_import *im, int x, strata_shape to, int *out) {
    strata_op_options opts = {.op = "reshape", .numbers = {.n = to.rank}};
    for (int d = 0; d < to.rank; d++) opts.numbers.values[d] = (double)to.dims[d];
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    return strata_onnx_op(im, &opts, &x, 1, false, out);
}

/* The shape with 0 for axis 0, with which reshape keeps the size of this axis. */
static strata_shape open_batch(const strata_onnx_import *im, strata_shape shape) {
    if (!im->folding) shape.dims[0] = 0;
    return shape;
}

/* Reshapes one number for each channel, (C), so that they broadcast to x (N, C, ...). */
static strata_status by_channel(strata_onnx_import *im, int numbers, int rank, int *out) {
    strata_shape to = {.rank = rank};
    for (int d = 0; d < rank; d++) to.dims[d] = d == 1 ? strata_shape_elements(strata_onnx_shape(im, numbers)) : 1;
    if (strata_onnx_is_constant(im, numbers) && !im->folding) {
        strata_array copy;
        const strata_onnx_value *v = &im->values[numbers];
        const bool trainable = v->trainable;
        STRATA_TRY(strata_array_create(v->array.dtype, to, &copy, im->err));
        memcpy(copy.data, im->values[numbers].array.data, strata_array_bytes(&copy));
        return strata_onnx_constant(im, &copy, trainable, out);
    }
    return reshape(im, numbers, to, out);
}

static strata_status binary(strata_onnx_import *im, const char *op, int a, int b, int *out) {
    return strata_onnx_simple(im, op, a, b, out);
}

/* Adds a convolution layer for a constant kernel. */
static strata_status conv_layer(strata_onnx_import *im, int x, int w, int bias, const window *win, int64_t groups, int *out) {
    static const int axes_2d[] = {2, 3, 1, 0}, axes_1d[] = {2, 1, 0};
    const strata_array *weights = &im->values[w].array;
    const int64_t filters = weights->shape.dims[0];
    strata_array kernel;
    STRATA_TRY(strata_onnx_permute_array(weights, win->n_axes == 2 ? axes_2d : axes_1d, &kernel, im->err));
    const strata_conv2d_options two = {.filters = filters,
                                       .kernel_size = {win->size[0], win->size[1]},
                                       .stride = {win->stride[0], win->stride[1]},
                                       .dilation = {win->dilation[0], win->dilation[1]},
                                       .padding = "explicit",
                                       .explicit_padding = {win->before[0], win->behind[0], win->before[1], win->behind[1]},
                                       .groups = groups,
                                       .no_bias = bias < 0};
    const strata_conv1d_options one = {.filters = filters,
                                       .kernel_size = win->size[1],
                                       .stride = win->stride[1],
                                       .dilation = win->dilation[1],
                                       .padding = "explicit",
                                       .explicit_padding = {win->before[1], win->behind[1]},
                                       .groups = groups,
                                       .no_bias = bias < 0};
    strata_status status = strata_onnx_behind(im, x, &x);
    if (!status)
        status = win->n_axes == 2 ? strata_onnx_layer(im, &strata_layer_conv2d, &two, x, true, out)
                                  : strata_onnx_layer(im, &strata_layer_conv1d, &one, x, true, out);
    if (!status) status = strata_onnx_weight_of(im, "kernel", &kernel);
    if (!status && bias >= 0) status = strata_onnx_weight_of(im, "bias", &im->values[bias].array);
    strata_array_finish(&kernel);
    return status;
}

static strata_op_options conv_op(const char *op, const window *win, int64_t groups) {
    return (strata_op_options){.op = op,
                               .numbers = {.n = 9,
                                           .values = {(double)win->stride[0], (double)win->stride[1], (double)win->dilation[0],
                                                      (double)win->dilation[1], (double)win->before[0], (double)win->behind[0],
                                                      (double)win->before[1], (double)win->behind[1], (double)groups}}};
}

/* Reads and checks what both kinds of convolutions have in common. */
static strata_status read_conv(strata_onnx_import *im, int *x, int *w, window *win, int64_t *groups) {
    int64_t declared[2];
    int n;
    STRATA_TRY(strata_onnx_need(im, 0, x));
    STRATA_TRY(strata_onnx_need(im, 1, w));
    const strata_shape shape = strata_onnx_shape(im, *x), kernel = strata_onnx_shape(im, *w);
    *groups = strata_onnx_int(im, "group", 1);
    if (shape.rank != kernel.rank || shape.rank < 3)
        return strata_onnx_fail(im, STRATA_DATA, "its input is %s and its kernel %s", strata_shape_text(shape).text,
                                strata_shape_text(kernel).text);
    if (shape.rank > 4) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "over %d axes; there are 1 and 2", shape.rank - 2);
    if (*groups < 1 || *groups > 1 << 20) return strata_onnx_fail(im, STRATA_DATA, "%" PRId64 " groups", *groups);
    STRATA_TRY(strata_onnx_ints(im, "kernel_shape", -1, 2, declared, &n));
    for (int d = 0; d < n; d++)
        if (n != shape.rank - 2 || declared[d] != kernel.dims[2 + d])
            return strata_onnx_fail(im, STRATA_DATA, "its kernel_shape is not that of its kernel %s",
                                    strata_shape_text(kernel).text);
    return read_window(im, shape.dims + 2, kernel.dims + 2, shape.rank - 2, win);
}

/* Adds an axis of size 1 to x and the kernel, for ops that take images. */
static strata_status as_images(strata_onnx_import *im, int *x, int *w) {
    int *both[] = {x, w};
    for (int i = 0; i < 2; i++) {
        const strata_shape s = strata_onnx_shape(im, *both[i]);
        const int64_t lead = i || im->folding ? s.dims[0] : 0;
        STRATA_TRY(reshape(im, *both[i], STRATA_SHAPE(lead, s.dims[1], 1, s.dims[2]), both[i]));
    }
    return STRATA_OK;
}

/* Removes the axis that as_images has added, adds the bias, and makes the result the output. */
static strata_status finish_conv(strata_onnx_import *im, int y, int n_axes, int bias) {
    if (n_axes == 1) {
        const strata_shape s = strata_onnx_shape(im, y);
        STRATA_TRY(reshape(im, y, open_batch(im, STRATA_SHAPE(s.dims[0], s.dims[1], s.dims[3])), &y));
    }
    if (bias >= 0) {
        STRATA_TRY(by_channel(im, bias, 2 + n_axes, &bias));
        STRATA_TRY(binary(im, "add", y, bias, &y));
    }
    return strata_onnx_output(im, 0, y);
}

strata_status strata_onnx_conv(strata_onnx_import *im) {
    int x, w, y;
    window win;
    int64_t groups;
    STRATA_TRY(read_conv(im, &x, &w, &win, &groups));
    const int bias = strata_onnx_input(im, 2);
    const bool fits = bias < 0 || (strata_onnx_is_constant(im, bias) && im->values[bias].trainable);
    if (!im->folding && im->values[w].constant && im->values[w].trainable && !im->values[x].constant && fits) {
        STRATA_TRY(conv_layer(im, x, w, bias, &win, groups, &y));
        return strata_onnx_output(im, 0, y);
    }
    if (win.n_axes == 1) STRATA_TRY(as_images(im, &x, &w));
    STRATA_TRY(strata_onnx_permute(im, w, (const int[]){2, 3, 1, 0}, &w));
    STRATA_TRY(strata_onnx_behind(im, x, &x));
    const strata_op_options opts = conv_op("conv2d", &win, groups);
    STRATA_TRY(strata_onnx_op(im, &opts, (const int[]){x, w}, 2, true, &y));
    return finish_conv(im, y, win.n_axes, bias);
}

/* Translates a transposed convolution: its output is an image from which the convolution with the same kernel computes
 * the shape of x. */
strata_status strata_onnx_conv_transpose(strata_onnx_import *im) {
    int x, w, y, n_extra, n_shape;
    window win;
    int64_t groups, extra[2], wanted[2], size[2] = {1, 1};
    STRATA_TRY(read_conv(im, &x, &w, &win, &groups));
    const strata_shape shape = strata_onnx_shape(im, x);
    STRATA_TRY(strata_onnx_ints(im, "output_padding", -1, win.n_axes, extra, &n_extra));
    STRATA_TRY(strata_onnx_ints(im, "output_shape", -1, win.n_axes, wanted, &n_shape));
    const bool automatic = !strata_onnx_text_is(im, "auto_pad", "NOTSET", true);
    for (int d = 0; d < win.n_axes; d++) {
        const int k = 2 - win.n_axes + d;
        const int64_t in = shape.dims[2 + d], reach = (win.size[k] - 1) * win.dilation[k] + 1;
        const int64_t more = d < n_extra ? extra[d] : 0;
        if (more < 0 || more > 1 << 20 || in > 1 << 20) return strata_onnx_fail(im, STRATA_DATA, "its sizes are out of range");
        const int64_t full = win.stride[k] * (in - 1) + more + reach;
        size[k] = full - win.before[k] - win.behind[k];
        const bool same = automatic && !strata_onnx_text_is(im, "auto_pad", "VALID", false);
        if (d < n_shape || same) { /* the padding follows from the size of the output */
            size[k] = d < n_shape ? wanted[d] : in * win.stride[k];
            const int64_t all = full - size[k];
            const bool upper = strata_onnx_text_is(im, "auto_pad", "SAME_UPPER", false);
            if (all < 0) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its output is larger than what it computes");
            win.before[k] = upper ? all / 2 : all - all / 2;
            win.behind[k] = all - win.before[k];
        }
        if (size[k] < 1) return strata_onnx_fail(im, STRATA_DATA, "its output would be empty");
    }
    if (win.n_axes == 1) STRATA_TRY(as_images(im, &x, &w));
    STRATA_TRY(strata_onnx_permute(im, w, (const int[]){2, 3, 1, 0}, &w));
    STRATA_TRY(strata_onnx_behind(im, x, &x));
    strata_op_options opts = conv_op("conv2d_transpose", &win, groups);
    opts.numbers.values[opts.numbers.n++] = (double)size[0];
    opts.numbers.values[opts.numbers.n++] = (double)size[1];
    STRATA_TRY(strata_onnx_op(im, &opts, (const int[]){x, w}, 2, true, &y));
    return finish_conv(im, y, win.n_axes, strata_onnx_input(im, 2));
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

strata_status strata_onnx_pool(strata_onnx_import *im) {
    const bool max = im->node->op_type[0] == 'M';
    int64_t size[2];
    int x, y, n;
    window win;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    if (strata_onnx_dtype(im, x) != STRATA_DTYPE_F32) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "of integers");
    if (strata_onnx_is_taken(im, 1)) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its Indices are not there");
    if (shape.rank < 3 || shape.rank > 4)
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "over %d axes; there are 1 and 2", shape.rank - 2);
    STRATA_TRY(strata_onnx_ints(im, "kernel_shape", -1, 2, size, &n));
    if (n != shape.rank - 2)
        return strata_onnx_fail(im, STRATA_DATA, "kernel_shape has %d sizes for %d axes", n, shape.rank - 2);
    STRATA_TRY(read_window(im, shape.dims + 2, size, n, &win));
    if (win.dilation[0] != 1 || win.dilation[1] != 1) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "with dilations");
    const bool pads = win.before[0] || win.behind[0] || win.before[1] || win.behind[1];
    STRATA_TRY(strata_onnx_behind(im, x, &x));
    if (!max && pads && strata_onnx_int(im, "count_include_pad", 0)) {
        if (strata_onnx_int(im, "ceil_mode", 0))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "ceil_mode with count_include_pad");
        strata_op_options zeros = {.op = "pad", .numbers = {.n = 2 * shape.rank}};
        for (int d = 0; d < n; d++) {
            zeros.numbers.values[1 + d] = (double)win.before[2 - n + d];
            zeros.numbers.values[shape.rank + 1 + d] = (double)win.behind[2 - n + d];
        }
        STRATA_TRY(strata_onnx_op(im, &zeros, &x, 1, true, &x));
        memset(win.before, 0, sizeof win.before);
        memset(win.behind, 0, sizeof win.behind);
    }
    if (strata_onnx_int(im, "ceil_mode", 0)) round_up(&win, shape.dims + 2);
    const strata_pool2d_options two = {.size = {win.size[0], win.size[1]},
                                       .stride = {win.stride[0], win.stride[1]},
                                       .padding = "explicit",
                                       .explicit_padding = {win.before[0], win.behind[0], win.before[1], win.behind[1]}};
    const strata_pool1d_options one = {.size = win.size[1],
                                       .stride = win.stride[1],
                                       .padding = "explicit",
                                       .explicit_padding = {win.before[1], win.behind[1]}};
    const strata_layer_kind *kinds[] = {&strata_layer_max_pool1d, &strata_layer_avg_pool1d, &strata_layer_max_pool2d,
                                        &strata_layer_avg_pool2d};
    const strata_layer_kind *kind = kinds[2 * (n == 2) + !max];
    STRATA_TRY(strata_onnx_layer(im, kind, n == 2 ? (const void *)&two : &one, x, true, &y));
    return strata_onnx_output(im, 0, y);
}

strata_status strata_onnx_global_pool(strata_onnx_import *im) {
    int x, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const int rank = strata_onnx_shape(im, x).rank;
    if (rank < 3) return strata_onnx_fail(im, STRATA_DATA, "its input has %d axes; at least 3", rank);
    strata_op_options opts = {.op = strata_onnx_find_row(im->node->op_type)->detail, .value = 1, .numbers = {.n = rank - 2}};
    STRATA_TRY(strata_onnx_behind(im, x, &x));
    for (int d = 0; d < rank - 2; d++) opts.numbers.values[d] = im->values[x].behind ? d + 1 : d + 2;
    STRATA_TRY(strata_onnx_op(im, &opts, &x, 1, im->values[x].behind, &y));
    return strata_onnx_output(im, 0, y);
}

/* ---- normalisations ---- */

static strata_status add_number(strata_onnx_import *im, const char *op, int x, double number, int *out) {
    int b;
    STRATA_TRY(strata_onnx_scalar(im, STRATA_DTYPE_F32, number, &b));
    return binary(im, op, x, b, out);
}

strata_status strata_onnx_batch_norm(strata_onnx_import *im) {
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    const double epsilon = strata_onnx_float(im, "epsilon", 1e-5), momentum = strata_onnx_float(im, "momentum", 0.9);
    int x, in[4], y, b;
    bool constant = !im->folding;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    for (int i = 0; i < 4; i++) {
        STRATA_TRY(strata_onnx_need(im, 1 + i, &in[i]));
        constant = constant && strata_onnx_is_constant(im, in[i]);
    }
    if (strata_onnx_int(im, "training_mode", 0))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "with training_mode; export the model for inference");
    if (shape.rank < 2) return strata_onnx_fail(im, STRATA_DATA, "its input is %s", strata_shape_text(shape).text);
    for (int i = 0; i < 4; i++)
        if (!strata_shape_equal(strata_onnx_shape(im, in[i]), STRATA_SHAPE(shape.dims[1])))
            return strata_onnx_fail(im, STRATA_DATA, "its %s is %s for an input of %s", names[i],
                                    strata_shape_text(strata_onnx_shape(im, in[i])).text, strata_shape_text(shape).text);
    if (constant && epsilon > 0 && epsilon < 1) {
        const strata_batch_norm_options opts = {
            .epsilon = epsilon, .momentum = momentum >= 0 && momentum < 1 ? momentum : 0.9, .no_average = momentum == 0};
        STRATA_TRY(strata_onnx_behind(im, x, &x));
        STRATA_TRY(strata_onnx_layer(im, &strata_layer_batch_norm, &opts, x, im->values[x].behind, &y));
        for (int i = 0; i < 4; i++) STRATA_TRY(strata_onnx_weight_of(im, names[i], &im->values[in[i]].array));
        return strata_onnx_output(im, 0, y);
    }
    for (int i = 0; i < 4; i++) STRATA_TRY(by_channel(im, in[i], shape.rank, &in[i]));
    STRATA_TRY(binary(im, "sub", x, in[2], &y));
    STRATA_TRY(add_number(im, "add", in[3], epsilon, &b));
    STRATA_TRY(strata_onnx_simple(im, "rsqrt", b, -1, &b));
    STRATA_TRY(binary(im, "mul", b, in[0], &b));
    STRATA_TRY(binary(im, "mul", y, b, &y));
    STRATA_TRY(binary(im, "add", y, in[1], &y));
    return strata_onnx_output(im, 0, y);
}

/* The mean over axes [first, rank), which are kept with size 1. */
static strata_status mean_of(strata_onnx_import *im, int x, int first, int *out) {
    const int rank = strata_onnx_shape(im, x).rank;
    strata_op_options opts = {.op = "reduce_mean", .value = 1, .numbers = {.n = rank - first}};
    for (int d = first; d < rank; d++) opts.numbers.values[d - first] = d;
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    return strata_onnx_op(im, &opts, &x, 1, false, out);
}

/* (x - mean) / sqrt(variance + epsilon) over axes [first, rank). If `centered` is false: x / sqrt(mean x^2 + epsilon). */
static strata_status normalize(strata_onnx_import *im, int x, int first, bool centered, double epsilon, int *out) {
    int mean, y = x, squares;
    if (centered) {
        STRATA_TRY(mean_of(im, x, first, &mean));
        STRATA_TRY(binary(im, "sub", x, mean, &y));
    }
    STRATA_TRY(strata_onnx_simple(im, "square", y, -1, &squares));
    STRATA_TRY(mean_of(im, squares, first, &squares));
    STRATA_TRY(add_number(im, "add", squares, epsilon, &squares));
    STRATA_TRY(strata_onnx_simple(im, "rsqrt", squares, -1, &squares));
    return binary(im, "mul", y, squares, out);
}

strata_status strata_onnx_layer_norm(strata_onnx_import *im) {
    const bool centered = im->node->op_type[0] == 'L';
    const double epsilon = strata_onnx_float(im, "epsilon", 1e-5);
    int x, scale, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need(im, 1, &scale));
    const int shift = strata_onnx_input(im, 2);
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    int64_t axis = strata_onnx_int(im, "axis", -1);
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank) return strata_onnx_fail(im, STRATA_DATA, "axis %" PRId64 " is not there", axis);
    if (strata_onnx_is_taken(im, 1) || strata_onnx_is_taken(im, 2))
        return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its mean and deviation are no outputs here");
    const strata_shape channels = STRATA_SHAPE(shape.dims[shape.rank - 1]);
    const bool constant =
        !im->folding && strata_onnx_is_constant(im, scale) && (shift < 0 || strata_onnx_is_constant(im, shift));
    if (centered && constant && axis == shape.rank - 1 && strata_shape_equal(im->values[scale].array.shape, channels) &&
        epsilon > 0 && epsilon < 1) {
        strata_array zeros;
        STRATA_TRY(
            strata_onnx_layer(im, &strata_layer_layer_norm, &(strata_layer_norm_options){.epsilon = epsilon}, x, false, &y));
        STRATA_TRY(strata_onnx_weight_of(im, "gamma", &im->values[scale].array));
        STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, channels, &zeros, im->err));
        memset(zeros.data, 0, strata_array_bytes(&zeros));
        const strata_status status = strata_onnx_weight_of(im, "beta", shift >= 0 ? &im->values[shift].array : &zeros);
        strata_array_finish(&zeros);
        return status ? status : strata_onnx_output(im, 0, y);
    }
    STRATA_TRY(normalize(im, x, (int)axis, centered, epsilon, &y));
    STRATA_TRY(binary(im, "mul", y, scale, &y));
    if (shift >= 0) STRATA_TRY(binary(im, "add", y, shift, &y));
    return strata_onnx_output(im, 0, y);
}

/* Normalizes each group of channels over all its positions. An instance normalization has as many groups as channels. */
strata_status strata_onnx_group_norm(strata_onnx_import *im) {
    const bool instance = im->node->op_type[0] == 'I';
    int x, scale, shift, y;
    STRATA_TRY(strata_onnx_need(im, 0, &x));
    STRATA_TRY(strata_onnx_need(im, 1, &scale));
    STRATA_TRY(strata_onnx_need(im, 2, &shift));
    STRATA_TRY(strata_onnx_in_front(im, x, &x));
    const strata_shape shape = strata_onnx_shape(im, x);
    if (shape.rank < 2) return strata_onnx_fail(im, STRATA_DATA, "its input is %s", strata_shape_text(shape).text);
    const int64_t channels = shape.dims[1], groups = instance ? channels : strata_onnx_int(im, "num_groups", 0);
    if (groups < 1 || channels % groups)
        return strata_onnx_fail(im, STRATA_DATA, "%" PRId64 " channels in %" PRId64 " groups", channels, groups);
    const int64_t of_scale = strata_shape_elements(strata_onnx_shape(im, scale));
    if (of_scale != channels && of_scale != groups) return strata_onnx_fail(im, STRATA_DATA, "its scale does not fit");
    STRATA_TRY(reshape(im, x, open_batch(im, STRATA_SHAPE(shape.dims[0], groups, -1)), &y));
    STRATA_TRY(normalize(im, y, 2, true, strata_onnx_float(im, "epsilon", 1e-5), &y));
    /* Up to opset 20 there is one scale for each group instead of each channel. */
    const bool by_group = of_scale != channels;
    if (!by_group) STRATA_TRY(reshape(im, y, open_batch(im, shape), &y));
    STRATA_TRY(by_channel(im, scale, by_group ? 3 : shape.rank, &scale));
    STRATA_TRY(by_channel(im, shift, by_group ? 3 : shape.rank, &shift));
    STRATA_TRY(binary(im, "mul", y, scale, &y));
    STRATA_TRY(binary(im, "add", y, shift, &y));
    if (by_group) STRATA_TRY(reshape(im, y, open_batch(im, shape), &y));
    return strata_onnx_output(im, 0, y);
}

/* ---- recurrent ---- */

/* Converts gates from rows (gates U, K) to columns (K, gates U). Gate g of the result is gate order[g] of the rows. */
static strata_status gate_columns(strata_onnx_import *im, const float *rows, const int *order, int gates, int64_t units,
                                  int64_t k, strata_array *out) {
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, STRATA_SHAPE(k, gates * units), out, im->err));
    for (int g = 0; g < gates; g++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t i = 0; i < k; i++)
                ((float *)out->data)[i * gates * units + g * units + u] = rows[(order[g] * units + u) * k + i];
    return STRATA_OK;
}

/* The gates of ONNX's rows are i o f c for an LSTM and z r h for a GRU; those of Strata's columns are i f c o and z r h.
 * Strata adds the two biases of ONNX, except for a GRU that applies its reset gate after the product (`halves` is 2). */
static strata_status recurrent_weights(strata_onnx_import *im, bool lstm, int halves, const int *in, int direction,
                                       int64_t units, const char *prefix) {
    static const int orders[2][4] = {{0, 1, 2, 0}, {0, 2, 3, 1}};
    const int *order = orders[lstm], gates = lstm ? 4 : 3;
    const int64_t width = gates * units;
    const char *const names[] = {"kernel", "recurrent_kernel"};
    char name[48];
    strata_array array;
    for (int i = 0; i < 2; i++) {
        const int64_t k = i ? units : im->values[in[1]].array.shape.dims[2];
        STRATA_TRY(gate_columns(im, (const float *)im->values[in[1 + i]].array.data + direction * width * k, order, gates,
                                units, k, &array));
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        const strata_status status = strata_onnx_weight_of(im, name, &array);
        strata_array_finish(&array);
        STRATA_TRY(status);
    }
    STRATA_TRY(
        strata_array_create(STRATA_DTYPE_F32, halves == 2 ? STRATA_SHAPE(2, width) : STRATA_SHAPE(width), &array, im->err));
    float *bias = array.data;
    memset(bias, 0, strata_array_bytes(&array));
    const float *given = in[3] >= 0 ? (const float *)im->values[in[3]].array.data + direction * 2 * width : NULL;
    for (int half = 0; half < 2 && given; half++)
        for (int g = 0; g < gates; g++)
            for (int64_t u = 0; u < units; u++)
                bias[(halves == 2 ? half * width : 0) + g * units + u] += given[half * width + order[g] * units + u];
    snprintf(name, sizeof name, "%sbias", prefix);
    const strata_status status = strata_onnx_weight_of(im, name, &array);
    strata_array_finish(&array);
    return status;
}

/* Reads "activations": for each direction those of the gates, of the candidate and, for an LSTM, of the output. NULL: the
 * defaults. */
static strata_status read_activations(strata_onnx_import *im, bool lstm, const char **out_recurrent,
                                      const char **out_activation) {
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
            return strata_onnx_fail(im, STRATA_UNSUPPORTED,
                                    "with activations other than Tanh, Sigmoid and Relu, or several of a kind");
        *out = name;
    }
    return STRATA_OK;
}

strata_status strata_onnx_recurrent(strata_onnx_import *im) {
    const bool lstm = im->node->op_type[0] == 'L', both = strata_onnx_text_is(im, "direction", "bidirectional", false);
    const bool reverse = strata_onnx_text_is(im, "direction", "reverse", false), batch_first = strata_onnx_int(im, "layout", 0);
    const int64_t units = strata_onnx_int(im, "hidden_size", 0), gates = lstm ? 4 : 3, directions = both ? 2 : 1;
    int in[4], y;
    for (int i = 0; i < 3; i++) STRATA_TRY(strata_onnx_need(im, i, &in[i]));
    in[3] = strata_onnx_input(im, 3);
    for (int i = 1; i < 4; i++)
        if (in[i] >= 0 && (!strata_onnx_is_constant(im, in[i]) || strata_onnx_dtype(im, in[i]) != STRATA_DTYPE_F32))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its weights are computed; they must be constant");
    for (int i = 4; i < 8; i++) {
        const int state = strata_onnx_input(im, i);
        if (state < 0) continue;
        if (i == 4 || !strata_onnx_is_zeros(im, state))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its input %d (lengths, a first state or peepholes) is not there",
                                    i);
    }
    static const char *const others[] = {"activation_alpha", "activation_beta", "clip", "input_forget"};
    const char *activation = NULL, *recurrent = NULL;
    STRATA_TRY(read_activations(im, lstm, &recurrent, &activation));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strata_onnx_attribute(im, others[i]) && (i < 3 || strata_onnx_int(im, others[i], 0)))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "with %s", others[i]);
    const bool reset_first = !lstm && !strata_onnx_int(im, "linear_before_reset", 0);
    const int halves = lstm || reset_first ? 1 : 2;
    const strata_shape x = strata_onnx_shape(im, in[0]), w = im->values[in[1]].array.shape, r = im->values[in[2]].array.shape;
    if (units < 1 || units > 1 << 20 || x.rank != 3 || w.rank != 3 || w.dims[0] != directions || w.dims[1] != gates * units ||
        !strata_shape_equal(r, STRATA_SHAPE(directions, gates * units, units)) ||
        (in[3] >= 0 && !strata_shape_equal(im->values[in[3]].array.shape, STRATA_SHAPE(directions, 2 * gates * units))))
        return strata_onnx_fail(im, STRATA_DATA, "its weights do not fit %" PRId64 " units", units);
    if (lstm && strata_onnx_is_taken(im, 2)) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "its last c is no output here");
    STRATA_TRY(strata_onnx_in_front(im, in[0], &in[0]));
    if (!batch_first) STRATA_TRY(strata_onnx_permute(im, in[0], (const int[]){1, 0, 2}, &in[0]));
    /* Y has all steps, Y_h only the last one. A layer computes one of them, so only one may be used. */
    for (int output = 0; output < 2; output++) {
        if (!strata_onnx_is_taken(im, output)) continue;
        if (strata_onnx_is_taken(im, 1 - output))
            return strata_onnx_fail(im, STRATA_UNSUPPORTED, "both Y and Y_h are taken; one of them can be");
        const strata_recurrent_layer_options opts = {.units = units,
                                                     .activation = activation,
                                                     .recurrent_activation = recurrent,
                                                     .return_sequences = !output,
                                                     .no_reset_after = reset_first,
                                                     .go_backwards = reverse,
                                                     .bidirectional = both ? "concat" : NULL};
        if (reverse && !output) return strata_onnx_fail(im, STRATA_UNSUPPORTED, "Y of the direction \"reverse\"");
        STRATA_TRY(strata_onnx_layer(im, lstm ? &strata_layer_lstm : &strata_layer_gru, &opts, in[0], false, &y));
        STRATA_TRY(recurrent_weights(im, lstm, halves, in, 0, units, ""));
        if (both) STRATA_TRY(recurrent_weights(im, lstm, halves, in, 1, units, "backward_"));
        const strata_shape got = strata_onnx_shape(im, y);
        if (!output) { /* (N, T, D U) -> (N, T, D, U) -> (T, D, N, U) */
            STRATA_TRY(reshape(im, y, open_batch(im, STRATA_SHAPE(got.dims[0], got.dims[1], directions, units)), &y));
            if (!batch_first) STRATA_TRY(strata_onnx_permute(im, y, (const int[]){1, 2, 0, 3}, &y));
        } else { /* (N, D U) -> (N, D, U) -> (D, N, U) */
            STRATA_TRY(reshape(im, y, open_batch(im, STRATA_SHAPE(got.dims[0], directions, units)), &y));
            if (!batch_first) STRATA_TRY(strata_onnx_permute(im, y, (const int[]){1, 0, 2}, &y));
        }
        STRATA_TRY(strata_onnx_output(im, output, y));
    }
    return STRATA_OK;
}
