/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of max and average pooling (pool2d.h). */
#include "core/op/pool2d.h"

#include "core/op/define.h"

strata_status strata_pool2d_check(const strata_window *window, const strata_tensor *x, strata_shape x_shape, const char *name,
                                  strata_shape *out_shape, strata_error *err) {
    int64_t out[2];
    STRATA_TRY(strata_check_dtype(x, name, STRATA_FLOATS, err));
    STRATA_TRY(strata_window_check(window, x_shape, name, out, err));
    for (int i = 0; i < 4; i++)
        if (window->padding[i] >= window->size[i / 2])
            return strata_fail(err, STRATA_INVALID,
                               "a padding of %" PRId64 " under a window of %" PRId64
                               " would give windows without an element; it must be less",
                               window->padding[i], window->size[i / 2]);
    *out_shape = STRATA_SHAPE(x_shape.dims[0], out[0], out[1], x_shape.dims[3]);
    return STRATA_OK;
}

strata_window strata_pool2d_window_over(const strata_tensor *x, strata_pool2d_window opts) {
    strata_window_wish wish = {.size = {opts.size[0], opts.size[1]}, .padding = opts.padding};
    for (int d = 0; d < 2; d++) wish.stride[d] = opts.stride[d] ? opts.stride[d] : opts.size[d];
    for (int i = 0; i < 4; i++) wish.explicit_padding[i] = opts.explicit_padding[i];
    return strata_window_over(x ? x->shape : (strata_shape){0}, wish);
}

strata_pool2d_window strata_pool1d_widen(strata_pool1d_window opts) {
    return (strata_pool2d_window){.size = {1, opts.size},
                                  .stride = {1, opts.stride},
                                  .padding = opts.padding,
                                  .explicit_padding = {0, 0, opts.explicit_padding[0], opts.explicit_padding[1]}};
}

strata_tensor *strata_pool1d_open(strata_tensor *x, const char *op) {
    if (!x || strata_tensor_is_poison(x)) return x;
    if (x->shape.rank != 3)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "%s: x is %s; it must be (sequences, length, channels)", op,
                                   strata_shape_text(x->shape).text);
    return strata_reshape(x, STRATA_SHAPE(x->shape.dims[0], 1, x->shape.dims[1], x->shape.dims[2]));
}

strata_tensor *strata_pool1d_close(strata_tensor *y) {
    if (!y || strata_tensor_is_poison(y)) return y;
    return strata_reshape(y, STRATA_SHAPE(y->shape.dims[0], y->shape.dims[2], y->shape.dims[3]));
}

/* How many neighbouring channels a work-item computes. The number divides c, so kernels need no check at the boundary,
 * and compilers for CPUs vectorize the loop. */
static int channels_of(int64_t c) {
    int channels = 8;
    while (c % channels) channels /= 2;
    return channels;
}

double strata_pool2d_taps(const strata_window *window) {
    return (double)window->size[0] * (double)window->size[1];
}

double strata_pool2d_covers(const strata_window *window) {
    double covers = 1;
    for (int d = 0; d < 2; d++) covers *= (double)((window->size[d] + window->stride[d] - 1) / window->stride[d]);
    return covers;
}

strata_status strata_pool2d_launch(strata_launch *launch, const strata_window *window, const strata_pool2d_sizes *sizes,
                                   int64_t pixels, double turns, strata_error *err) {
    enum { MOST_TURNS = 65000 };
    if (turns > MOST_TURNS)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "a window of %" PRId64 " by %" PRId64 " at strides of %" PRId64 " and %" PRId64
                           " takes %.0f"
                           " steps a pixel; kernels take at most %d. Over a whole image, reduce instead",
                           window->size[0], window->size[1], window->stride[0], window->stride[1], turns, MOST_TURNS);
    const int channels = channels_of(sizes->c);
    for (int i = 0; i < launch->n_buffers; i++) STRATA_TRY(strata_check_countable(launch->buffers[i], err));
    STRATA_TRY(strata_launch_flat(launch, pixels * (sizes->c / channels), err));
    launch->turns = 0;
    STRATA_LAUNCH_INTS(launch, sizes->in_h, sizes->in_w, sizes->out_h, sizes->out_w, sizes->c);
    STRATA_LAUNCH_INTS(launch, window->size[0], window->size[1], window->stride[0], window->stride[1]);
    STRATA_LAUNCH_INTS(launch, window->padding[STRATA_PAD_TOP], window->padding[STRATA_PAD_LEFT]);
    strata_launch_constant_add(launch, "CHANNELS", channels);
    return STRATA_OK;
}
