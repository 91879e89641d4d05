/* SPDX-License-Identifier: Apache-2.0
 *
 * avg_pool2d: y[n,oh,ow,c] = the mean of the x[n,h,w,c] of a window; padding is not counted, as in TensorFlow. gradient:
 * avg_pool2d_grad(dy) distributes each dy evenly over its window; the gradient of avg_pool2d_grad is avg_pool2d. */
#include "core/op/define.h"
#include "core/op/pool2d.h"

extern const strata_op strata_op_avg_pool2d_grad, strata_op_avg_pool2d;

static const strata_pool2d_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

/* Computes the sizes from the shapes of x and y; one of them is the operand, the other the node. */
static strata_pool2d_sizes sizes_from(strata_shape x, strata_shape y) {
    return (strata_pool2d_sizes){x.dims[0], x.dims[1], x.dims[2], y.dims[1], y.dims[2], x.dims[3]};
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    return strata_pool2d_check(&attrs_of(node)->window, x, x->shape, "x", &node->shape, err);
}

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *dy = node->inputs[0];
    const strata_pool2d_attrs *attrs = attrs_of(node);
    if (dy->shape.rank != 4)
        return strata_fail(err, STRATA_INVALID, "dy is %s; it must be (images, height, width, channels)",
                           strata_shape_text(dy->shape).text);
    strata_shape y, x = STRATA_SHAPE(dy->shape.dims[0], attrs->input_size[0], attrs->input_size[1], dy->shape.dims[3]);
    STRATA_TRY(strata_pool2d_check(&attrs->window, dy, x, "the input", &y, err));
    if (!strata_shape_equal(dy->shape, y))
        return strata_fail(err, STRATA_INVALID, "dy is %s; the pool's result is %s", strata_shape_text(dy->shape).text,
                           strata_shape_text(y).text);
    node->shape = x;
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_pool2d_attrs attrs = *attrs_of(node);
    attrs.input_size[0] = node->inputs[0]->shape.dims[1];
    attrs.input_size[1] = node->inputs[0]->shape.dims[2];
    dx[0] = strata_node(NULL, &strata_op_avg_pool2d_grad, 1, &dy, &attrs);
}

static void grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_pool2d_attrs attrs = {.window = attrs_of(node)->window};
    dx[0] = strata_node(NULL, &strata_op_avg_pool2d, 1, &g, &attrs);
}

/* ---- references ---- */

/* The rows and columns of a window that are inside of x. */
typedef struct patch {
    int64_t first_h, end_h, first_w, end_w;
} patch;

static patch patch_of(const strata_window *window, const strata_pool2d_sizes *s, int64_t oh, int64_t ow) {
    patch p;
    int64_t at;
    strata_window_taps(window, 0, oh, s->in_h, &p.first_h, &p.end_h, &at);
    p.first_h += at, p.end_h += at;
    strata_window_taps(window, 1, ow, s->in_w, &p.first_w, &p.end_w, &at);
    p.first_w += at, p.end_w += at;
    return p;
}

static double count_of(patch p) {
    return (double)((p.end_h - p.first_h) * (p.end_w - p.first_w));
}

static void reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const strata_pool2d_sizes s = sizes_from(call->node->inputs[0]->shape, call->node->shape);
    const int64_t elements = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < elements; i++) {
        const int64_t c = i % s.c, ow = i / s.c % s.out_w, oh = i / s.c / s.out_w % s.out_h, n = i / s.c / s.out_w / s.out_h;
        const patch p = patch_of(&attrs_of(call->node)->window, &s, oh, ow);
        double sum = 0;
        for (int64_t h = p.first_h; h < p.end_h; h++)
            for (int64_t w = p.first_w; w < p.end_w; w++)
                sum += strata_element_get(dtype, call->inputs[0], ((n * s.in_h + h) * s.in_w + w) * s.c + c);
        strata_element_set(dtype, call->output, i, sum / count_of(p));
    }
}

/* The gradient of one element of x: each output whose window contains the element contributes its dy, divided by the
 * number of elements in its window. */
static double shares(const strata_op_call *call, const strata_pool2d_sizes *s, int64_t n, int64_t h, int64_t w, int64_t c) {
    double sum = 0;
    for (int64_t oh = 0; oh < s->out_h; oh++)
        for (int64_t ow = 0; ow < s->out_w; ow++) {
            const patch p = patch_of(&attrs_of(call->node)->window, s, oh, ow);
            if (h < p.first_h || h >= p.end_h || w < p.first_w || w >= p.end_w) continue;
            sum += strata_element_get(call->node->dtype, call->inputs[0], ((n * s->out_h + oh) * s->out_w + ow) * s->c + c) /
                   count_of(p);
        }
    return sum;
}

static void grad_reference(strata_op_call *call) {
    const strata_pool2d_sizes s = sizes_from(call->node->shape, call->node->inputs[0]->shape);
    const int64_t elements = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < elements; i++) {
        const int64_t c = i % s.c, w = i / s.c % s.in_w, h = i / s.c / s.in_w % s.in_h, n = i / s.c / s.in_w / s.in_h;
        strata_element_set(call->node->dtype, call->output, i, shares(call, &s, n, h, w, c));
    }
}

/* ---- compositions ---- */

/* A constant with 1 / (number of elements in the window) for each output: (1,OH,OW,1). */
static strata_tensor *inverse_counts(const strata_tensor *node, const strata_taps *taps) {
    const strata_pool2d_sizes s = {.in_h = taps->in[0], .in_w = taps->in[1]};
    strata_array array = {0};
    if (strata_array_create(node->dtype, STRATA_SHAPE(1, taps->out[0], taps->out[1], 1), &array, NULL))
        return strata_graph_poison(node->graph, node->op, STRATA_OUT_OF_MEMORY, "no host memory for the windows' counts");
    for (int64_t i = 0; i < taps->out[0] * taps->out[1]; i++)
        strata_element_set(node->dtype, array.data, i,
                           1 / count_of(patch_of(&taps->window, &s, i / taps->out[1], i % taps->out[1])));
    strata_tensor *constant = strata_constant(node->graph, &array);
    strata_array_finish(&array);
    return constant;
}

static strata_tensor *compose(strata_tensor *node) {
    const strata_window *window = &attrs_of(node)->window;
    strata_tensor *sum = NULL;
    strata_taps taps;
    if (!strata_taps_init(&taps, window, node->inputs[0]->shape)) return NULL;
    strata_tensor *x = strata_taps_pad(&taps, node->inputs[0], 0);
    for (int64_t k = 0; k < window->size[0] * window->size[1]; k++) {
        strata_tensor *tap = strata_tap(&taps, x, k / window->size[1], k % window->size[1]);
        sum = sum ? strata_add(sum, tap) : tap;
    }
    return strata_mul(sum, inverse_counts(node, &taps));
}

static strata_tensor *grad_compose(strata_tensor *node) {
    const strata_window *window = &attrs_of(node)->window;
    strata_tensor *sum = NULL;
    strata_taps taps;
    if (!strata_taps_init(&taps, window, node->shape)) return NULL;
    strata_tensor *shares = strata_mul(node->inputs[0], inverse_counts(node, &taps));
    for (int64_t k = 0; k < window->size[0] * window->size[1]; k++) {
        strata_tensor *tap = strata_untap(&taps, shares, k / window->size[1], k % window->size[1]);
        sum = sum ? strata_add(sum, tap) : tap;
    }
    return strata_taps_crop(&taps, sum);
}

/* ---- lower ---- */

static strata_status lower_as(const strata_tensor *node, const char *kernel, const strata_pool2d_sizes *sizes, int64_t pixels,
                              double turns, strata_lowering *lowering, strata_error *err) {
    strata_launch launch = {.kernel = kernel,
                            .variant = strata_dtype_name(node->dtype),
                            .n_buffers = 2,
                            .buffers = {node->inputs[0], node},
                            .writes = 1u << 1};
    if (strata_shape_elements(node->shape) == 0) return STRATA_OK;
    STRATA_TRY(strata_pool2d_launch(&launch, &attrs_of(node)->window, sizes, pixels, turns, err));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_from(node->inputs[0]->shape, node->shape);
    const strata_window *window = &attrs_of(node)->window;
    return lower_as(node, "avg_pool2d", &s, s.n * s.out_h * s.out_w, strata_pool2d_taps(window), lowering, err);
}

static strata_status grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_from(node->shape, node->inputs[0]->shape);
    const double covers = strata_pool2d_covers(&attrs_of(node)->window);
    return lower_as(node, "avg_pool2d_grad", &s, s.n * s.in_h * s.in_w, covers, lowering, err);
}

const strata_op strata_op_avg_pool2d = {
    .name = "avg_pool2d",
    .n_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs)},
    .dims = "nHWc->nHWc",
    .linearity = STRATA_LINEAR_JOINTLY,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

const strata_op strata_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .n_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs),
              {"input_size", STRATA_ATTR_PAIR, offsetof(strata_pool2d_attrs, input_size)}},
    .dims = "nHWc->nHWc",
    .linearity = STRATA_LINEAR_JOINTLY,
    .shape = grad_shape,
    .gradient = grad_gradient,
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = grad_lower,
};

strata_tensor *strata_avg_pool2d(strata_tensor *x, strata_pool2d_window opts) {
    strata_pool2d_attrs attrs = {.window = strata_pool2d_window_over(x, opts)};
    return strata_node(NULL, &strata_op_avg_pool2d, 1, &x, &attrs);
}

strata_tensor *strata_avg_pool1d(strata_tensor *x, strata_pool1d_window opts) {
    return strata_pool1d_close(strata_avg_pool2d(strata_pool1d_open(x, "avg_pool1d"), strata_pool1d_widen(opts)));
}
