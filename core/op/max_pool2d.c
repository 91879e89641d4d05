/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d: y[n,oh,ow,c] = the largest x[n,h,w,c] of a window; NaN counts as the largest. With a second operand v of x's
 * shape, y is the element of v at the position of the largest x. If several elements are equal, the first one counts. gradient:
 * max_pool2d_grad(x, dy) adds each dy at this position; with v there is no gradient with respect to x. The gradient of
 * max_pool2d_grad with respect to dy is max_pool2d(x, g). If a relu_grad of the same x follows, the fusion pass makes
 * max_pool2d_grad `rectified`: its result is then 0 where x is not above 0. */
#include <math.h>

#include "core/op/define.h"
#include "core/op/pool2d.h"

extern const strata_op strata_op_max_pool2d_grad, strata_op_max_pool2d, strata_op_relu_grad;

static const strata_window *window_of(const strata_tensor *node) {
    return &((const strata_pool2d_attrs *)node->attrs)->window;
}

/* The sizes of the pooling; x is input 0 of both ops. */
static strata_pool2d_sizes sizes_of(const strata_tensor *node) {
    const strata_shape x = node->inputs[0]->shape;
    int64_t out[2];
    strata_window_outputs(window_of(node), x.dims[1], x.dims[2], out);
    return (strata_pool2d_sizes){x.dims[0], x.dims[1], x.dims[2], out[0], out[1], x.dims[3]};
}

/* ---- shape rules ---- */

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *v = node->n_inputs > 1 ? node->inputs[1] : NULL;
    STRATA_TRY(strata_pool2d_check(window_of(node), x, x->shape, "x", &node->shape, err));
    return v ? strata_check_alike(x, "x", v, "v", err) : STRATA_OK;
}

static strata_status grad_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *dy = node->inputs[1];
    strata_shape y;
    STRATA_TRY(strata_pool2d_check(window_of(node), x, x->shape, "x", &y, err));
    STRATA_TRY(strata_check_same_dtype(x, "x", dy, "dy", err));
    if (!strata_shape_equal(dy->shape, y))
        return strata_fail(err, STRATA_INVALID, "dy is %s; the pool's result is %s", strata_shape_text(dy->shape).text,
                           strata_shape_text(y).text);
    return STRATA_OK;
}

/* ---- gradients ---- */

static void gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[node->n_inputs - 1] =
        strata_node(NULL, &strata_op_max_pool2d_grad, 2, (strata_tensor *[]){node->inputs[0], dy}, node->attrs);
}

static bool is_rectified(const strata_tensor *node) {
    return ((const strata_pool2d_attrs *)node->attrs)->rectified != 0;
}

static void grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    if (is_rectified(node)) {
        strata_graph_poison(node->graph, node->op, STRATA_UNSUPPORTED,
                            "a fused max_pool2d_grad has no gradient; differentiate before the passes run");
        return;
    }
    dx[1] = strata_node(NULL, &strata_op_max_pool2d, 2, (strata_tensor *[]){node->inputs[0], g}, node->attrs);
}

/* ---- references ---- */

/* Index in x of the first largest element of the window at output (n, oh, ow), channel c. */
static int64_t largest(const strata_op_call *call, const strata_pool2d_sizes *s, int64_t n, int64_t oh, int64_t ow, int64_t c) {
    const strata_window *window = window_of(call->node);
    int64_t first_h, end_h, h, first_w, end_w, w, best = -1;
    double most = 0;
    strata_window_taps(window, 0, oh, s->in_h, &first_h, &end_h, &h);
    strata_window_taps(window, 1, ow, s->in_w, &first_w, &end_w, &w);
    for (int64_t kh = first_h; kh < end_h; kh++)
        for (int64_t kw = first_w; kw < end_w; kw++) {
            int64_t at = ((n * s->in_h + h + kh) * s->in_w + w + kw) * s->c + c;
            double v = strata_element_get(call->node->dtype, call->inputs[0], at);
            if (best >= 0 && (isnan(most) || !(v > most || isnan(v)))) continue;
            best = at;
            most = v;
        }
    return best;
}

/* Calls `visit` for every output, in ascending order, with the index of its largest input. */
static void each_output(const strata_op_call *call, void (*visit)(const strata_op_call *call, int64_t y_at, int64_t x_at)) {
    const strata_pool2d_sizes s = sizes_of(call->node);
    int64_t at = 0;
    for (int64_t n = 0; n < s.n; n++)
        for (int64_t oh = 0; oh < s.out_h; oh++)
            for (int64_t ow = 0; ow < s.out_w; ow++)
                for (int64_t c = 0; c < s.c; c++, at++) visit(call, at, largest(call, &s, n, oh, ow, c));
}

static void take(const strata_op_call *call, int64_t y_at, int64_t x_at) {
    const strata_tensor *node = call->node;
    strata_element_set(node->dtype, call->output, y_at,
                       strata_element_get(node->dtype, call->inputs[node->n_inputs - 1], x_at));
}

static void reference(strata_op_call *call) {
    each_output(call, take);
}

static void add(const strata_op_call *call, int64_t y_at, int64_t x_at) {
    const strata_dtype dtype = call->node->dtype;
    if (is_rectified(call->node) && !(strata_element_get(dtype, call->inputs[0], x_at) > 0)) return;
    strata_element_set(dtype, call->output, x_at,
                       strata_element_get(dtype, call->output, x_at) + strata_element_get(dtype, call->inputs[1], y_at));
}

static void grad_reference(strata_op_call *call) {
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(call->node->dtype, call->output, i, 0);
    each_output(call, add);
}

/* ---- compositions: over the taps, in their order. Padding is -infinity ---- */

/* Returns the maximum of all taps of x, and the taps in out_taps. */
static strata_tensor *taps_of(const strata_taps *taps, strata_tensor *x, double padding, strata_tensor **out_taps) {
    strata_tensor *padded = strata_taps_pad(taps, x, padding), *most = NULL;
    for (int64_t k = 0; k < taps->window.size[0] * taps->window.size[1]; k++) {
        out_taps[k] = strata_tap(taps, padded, k / taps->window.size[1], k % taps->window.size[1]);
        most = most ? strata_max(most, out_taps[k]) : out_taps[k];
    }
    return most;
}

static strata_tensor *truth(strata_graph *graph, bool value) {
    return strata_scalar(graph, STRATA_DTYPE_BOOL, value);
}

/* A mask (1,OH,OW,1) that is true where tap k is an element of the image and no padding. NULL: it is so for all outputs. */
static strata_tensor *is_inside(strata_graph *graph, const strata_taps *taps, int64_t k) {
    const strata_window *w = &taps->window;
    const int64_t tap[2] = {k / w->size[1], k % w->size[1]}, n = taps->out[0] * taps->out[1];
    strata_array array = {0};
    bool all = true;
    if (strata_array_create(STRATA_DTYPE_BOOL, STRATA_SHAPE(1, taps->out[0], taps->out[1], 1), &array, NULL))
        return strata_graph_poison(graph, &strata_op_max_pool2d, STRATA_OUT_OF_MEMORY, "no host memory for the windows' masks");
    for (int64_t i = 0; i < n; i++) {
        const int64_t output[2] = {i / taps->out[1], i % taps->out[1]};
        bool inside = true;
        for (int d = 0; d < 2; d++) {
            const int64_t at = output[d] * w->stride[d] + tap[d] * w->dilation[d] - w->padding[2 * d];
            inside = inside && at >= 0 && at < taps->in[d];
        }
        strata_element_set(STRATA_DTYPE_BOOL, array.data, i, inside);
        all = all && inside;
    }
    strata_tensor *mask = all ? NULL : strata_constant(graph, &array);
    strata_array_finish(&array);
    return mask;
}

/* A mask that is true where tap k is the first one that equals the maximum `most`; NaN counts as equal. *taken is the mask of
 * the positions where an earlier tap was the first (NULL: none yet), and is updated. Padding is never the first, also where all
 * elements of the window are -infinity. */
static strata_tensor *is_first(const strata_taps *taps, int64_t k, strata_tensor *tap, strata_tensor *most,
                               strata_tensor **taken) {
    strata_tensor *yes = truth(tap->graph, true), *inside = is_inside(tap->graph, taps, k);
    strata_tensor *hit = strata_where(strata_equal(tap, most), yes, strata_not_equal(tap, tap));
    if (inside) hit = strata_where(inside, hit, truth(tap->graph, false));
    strata_tensor *first = *taken ? strata_where(*taken, truth(tap->graph, false), hit) : hit;
    *taken = *taken ? strata_where(*taken, yes, hit) : hit;
    return first;
}

static strata_tensor *compose(strata_tensor *node) {
    strata_tensor *x[STRATA_MOST_TAPS], *v[STRATA_MOST_TAPS], *taken = NULL, *y = NULL;
    strata_taps taps;
    if (!strata_taps_init(&taps, window_of(node), node->inputs[0]->shape)) return NULL;
    strata_tensor *most = taps_of(&taps, node->inputs[0], -INFINITY, x);
    if (node->n_inputs == 1) return most;
    taps_of(&taps, node->inputs[1], 0, v);
    for (int64_t k = 0; k < taps.window.size[0] * taps.window.size[1]; k++) {
        strata_tensor *first = is_first(&taps, k, x[k], most, &taken);
        y = strata_where(first, v[k], y ? y : strata_scalar(node->graph, node->dtype, 0));
    }
    return y;
}

static strata_tensor *grad_compose(strata_tensor *node) {
    strata_tensor *x[STRATA_MOST_TAPS], *taken = NULL, *sum = NULL;
    strata_tensor *zero = strata_scalar(node->graph, node->dtype, 0);
    strata_taps taps;
    if (is_rectified(node)) {
        strata_pool2d_attrs attrs = *(const strata_pool2d_attrs *)node->attrs;
        attrs.rectified = 0;
        strata_tensor *plain = strata_node(NULL, &strata_op_max_pool2d_grad, 2, node->inputs, &attrs);
        return strata_node(NULL, &strata_op_relu_grad, 2, (strata_tensor *[]){plain, node->inputs[0]}, NULL);
    }
    if (!strata_taps_init(&taps, window_of(node), node->shape)) return NULL;
    strata_tensor *most = taps_of(&taps, node->inputs[0], -INFINITY, x);
    for (int64_t k = 0; k < taps.window.size[0] * taps.window.size[1]; k++) {
        strata_tensor *given = strata_where(is_first(&taps, k, x[k], most, &taken), node->inputs[1], zero);
        given = strata_untap(&taps, given, k / taps.window.size[1], k % taps.window.size[1]);
        sum = sum ? strata_add(sum, given) : given;
    }
    return strata_taps_crop(&taps, sum);
}

/* ---- lower ---- */

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    strata_launch launch = {.kernel = "max_pool2d",
                            .variant = strata_dtype_name(node->dtype),
                            .n_buffers = 3,
                            .buffers = {node->inputs[0], node->inputs[node->n_inputs - 1], node},
                            .writes = 1u << 2,
                            .n_constants = 1,
                            .constants = {{"PICK", node->n_inputs > 1}}};
    if (strata_shape_elements(node->shape) == 0) return STRATA_OK;
    STRATA_TRY(
        strata_pool2d_launch(&launch, window_of(node), &s, s.n * s.out_h * s.out_w, strata_pool2d_taps(window_of(node)), err));
    return strata_lowering_add(lowering, &launch, err);
}

static strata_status grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    const strata_window *window = window_of(node);
    const bool cells = window->stride[0] >= window->size[0] && window->stride[1] >= window->size[1];
    strata_launch launch = {.kernel = "max_pool2d_grad",
                            .variant = strata_dtype_name(node->dtype),
                            .n_buffers = 3,
                            .buffers = {node->inputs[0], node->inputs[1], node},
                            .writes = 1u << 2,
                            .n_constants = 2,
                            .constants = {{"CELLS", cells}, {"RECTIFIED", is_rectified(node)}}};
    if (strata_shape_elements(node->shape) == 0) return STRATA_OK;
    const int64_t pixels = cells ? s.n * s.out_h * s.out_w : s.n * s.in_h * s.in_w;
    const double taps = strata_pool2d_taps(window), cell = 4.0 * (double)window->stride[0] * (double)window->stride[1];
    const double turns = cells ? taps + cell : taps * strata_pool2d_covers(window);
    STRATA_TRY(strata_pool2d_launch(&launch, window_of(node), &s, pixels, turns, err));
    return strata_lowering_add(lowering, &launch, err);
}

const strata_op strata_op_max_pool2d = {
    .name = "max_pool2d",
    .n_inputs = 1,
    .optional_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs)},
    .dims = "nHWc->nHWc",
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .lower = lower,
};

const strata_op strata_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .n_inputs = 2,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs),
              {"rectified", STRATA_ATTR_INT, offsetof(strata_pool2d_attrs, rectified)}},
    .dims = "nHWc,nHWc->nHWc",
    .shape = grad_shape,
    .gradient = grad_gradient,
    .reference = grad_reference,
    .compose = grad_compose,
    .lower = grad_lower,
};

strata_tensor *strata_max_pool2d_grad_rectified(strata_tensor *node, const strata_tensor *x) {
    if (node->op != &strata_op_max_pool2d_grad || node->inputs[0] != x || is_rectified(node)) return NULL;
    strata_pool2d_attrs attrs = *(const strata_pool2d_attrs *)node->attrs;
    attrs.rectified = 1;
    return strata_node(NULL, &strata_op_max_pool2d_grad, 2, node->inputs, &attrs);
}

strata_tensor *strata_max_pool2d(strata_tensor *x, strata_pool2d_window opts) {
    strata_pool2d_attrs attrs = {.window = strata_pool2d_window_over(x, opts)};
    return strata_node(NULL, &strata_op_max_pool2d, 1, &x, &attrs);
}

strata_tensor *strata_max_pool1d(strata_tensor *x, strata_pool1d_window opts) {
    return strata_pool1d_close(strata_max_pool2d(strata_pool1d_open(x, "max_pool1d"), strata_pool1d_widen(opts)));
}
