/* SPDX-License-Identifier: Apache-2.0
 *
 * max_pool2d: y[n,oh,ow,c] = the largest x[n,h,w,c] of a window; NaN counts as the largest. With a second operand v of x's
 * shape, y is the element of v at the position of the largest x. If several elements are equal, the first one counts. gradient:
 * max_pool2d_grad(x, dy) adds each dy at this position; with v there is no gradient with respect to x. The gradient of
 * max_pool2d_grad with respect to dy is max_pool2d(x, g). If a relu_grad of the same x follows, the fusion pass makes
 * max_pool2d_grad `rectified`: its result is then 0 where x is not above 0.
 * avg_pool2d: y[n,oh,ow,c] = the mean of the x[n,h,w,c] of a window; padding is not counted, as in TensorFlow. gradient:
 * avg_pool2d_grad(dy) distributes each dy evenly over its window; the gradient of avg_pool2d_grad is avg_pool2d. */
#include "core/op/pool2d.h"

#include "core/op/define.h"

extern const strata_op strata_op_max_pool2d, strata_op_max_pool2d_grad, strata_op_avg_pool2d, strata_op_avg_pool2d_grad,
    strata_op_relu_grad;

static const strata_pool2d_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static const strata_window *window_of(const strata_tensor *node) {
    return &attrs_of(node)->window;
}

strata_pool2d_sizes strata_pool2d_sizes_of(const strata_window *window, strata_shape x) {
    int64_t out[2];
    strata_window_outputs(window, x.dims[1], x.dims[2], out);
    return (strata_pool2d_sizes){x.dims[0], x.dims[1], x.dims[2], out[0], out[1], x.dims[3]};
}

/* x is input 0, except for avg_pool2d_grad, whose result has x's shape. */
static strata_pool2d_sizes sizes_of(const strata_tensor *node) {
    const strata_shape x = node->op == &strata_op_avg_pool2d_grad ? node->shape : node->inputs[0]->shape;
    return strata_pool2d_sizes_of(window_of(node), x);
}

/* ---- shape rules ---- */

/* Checks that x, called `name` in messages, is (N,H,W,C) of a float dtype and fits the window, and returns y's shape. */
static strata_status check(const strata_window *window, const strata_tensor *x, strata_shape x_shape, const char *name,
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

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0];
    STRATA_TRY(check(window_of(node), x, x->shape, "x", &node->shape, err));
    return node->n_inputs > 1 ? strata_check_alike(x, "x", node->inputs[1], "v", err) : STRATA_OK;
}

/* Checks that dy has the shape of the result of pooling x. */
static strata_status check_gradient(const strata_tensor *dy, strata_shape y, strata_error *err) {
    if (strata_shape_equal(dy->shape, y)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "dy is %s; the pool's result is %s", strata_shape_text(dy->shape).text,
                       strata_shape_text(y).text);
}

static strata_status max_grad_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *x = node->inputs[0], *dy = node->inputs[1];
    strata_shape y;
    STRATA_TRY(check(window_of(node), x, x->shape, "x", &y, err));
    STRATA_TRY(strata_check_same_dtype(x, "x", dy, "dy", err));
    return check_gradient(dy, y, err);
}

static strata_status avg_grad_shape(strata_tensor *node, strata_error *err) {
    const strata_tensor *dy = node->inputs[0];
    const int64_t *size = attrs_of(node)->input_size;
    if (dy->shape.rank != 4)
        return strata_fail(err, STRATA_INVALID, "dy is %s; it must be (images, height, width, channels)",
                           strata_shape_text(dy->shape).text);
    strata_shape y;
    node->shape = STRATA_SHAPE(dy->shape.dims[0], size[0], size[1], dy->shape.dims[3]);
    STRATA_TRY(check(window_of(node), dy, node->shape, "the input", &y, err));
    return check_gradient(dy, y, err);
}

/* ---- gradients ---- */

static void max_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    dx[node->n_inputs - 1] =
        strata_node(NULL, &strata_op_max_pool2d_grad, 2, (strata_tensor *[]){node->inputs[0], dy}, node->attrs);
}

static bool is_rectified(const strata_tensor *node) {
    return attrs_of(node)->rectified != 0;
}

static void max_grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    if (is_rectified(node)) {
        strata_graph_poison(node->graph, node->op, STRATA_UNSUPPORTED,
                            "a fused max_pool2d_grad has no gradient; differentiate before the passes run");
        return;
    }
    dx[1] = strata_node(NULL, &strata_op_max_pool2d, 2, (strata_tensor *[]){node->inputs[0], g}, node->attrs);
}

static void avg_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_pool2d_attrs attrs = *attrs_of(node);
    attrs.input_size[0] = node->inputs[0]->shape.dims[1];
    attrs.input_size[1] = node->inputs[0]->shape.dims[2];
    dx[0] = strata_node(NULL, &strata_op_avg_pool2d_grad, 1, &dy, &attrs);
}

static void avg_grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_pool2d_attrs attrs = {.window = *window_of(node)};
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

/* Index in x of the first largest element of the window at output (n, oh, ow), channel c. */
static int64_t largest(const strata_op_call *call, const strata_pool2d_sizes *s, int64_t n, int64_t oh, int64_t ow, int64_t c) {
    const patch p = patch_of(window_of(call->node), s, oh, ow);
    int64_t best = -1;
    double most = 0;
    for (int64_t h = p.first_h; h < p.end_h; h++)
        for (int64_t w = p.first_w; w < p.end_w; w++) {
            int64_t at = ((n * s->in_h + h) * s->in_w + w) * s->c + c;
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

static void max_reference(strata_op_call *call) {
    each_output(call, take);
}

static void add(const strata_op_call *call, int64_t y_at, int64_t x_at) {
    const strata_dtype dtype = call->node->dtype;
    if (is_rectified(call->node) && !(strata_element_get(dtype, call->inputs[0], x_at) > 0)) return;
    strata_element_set(dtype, call->output, x_at,
                       strata_element_get(dtype, call->output, x_at) + strata_element_get(dtype, call->inputs[1], y_at));
}

static void max_grad_reference(strata_op_call *call) {
    const int64_t n = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < n; i++) strata_element_set(call->node->dtype, call->output, i, 0);
    each_output(call, add);
}

static double count_of(patch p) {
    return (double)((p.end_h - p.first_h) * (p.end_w - p.first_w));
}

static void avg_reference(strata_op_call *call) {
    const strata_dtype dtype = call->node->dtype;
    const strata_pool2d_sizes s = sizes_of(call->node);
    const int64_t elements = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < elements; i++) {
        const int64_t c = i % s.c, ow = i / s.c % s.out_w, oh = i / s.c / s.out_w % s.out_h, n = i / s.c / s.out_w / s.out_h;
        const patch p = patch_of(window_of(call->node), &s, oh, ow);
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
            const patch p = patch_of(window_of(call->node), s, oh, ow);
            if (h < p.first_h || h >= p.end_h || w < p.first_w || w >= p.end_w) continue;
            sum += strata_element_get(call->node->dtype, call->inputs[0], ((n * s->out_h + oh) * s->out_w + ow) * s->c + c) /
                   count_of(p);
        }
    return sum;
}

static void avg_grad_reference(strata_op_call *call) {
    const strata_pool2d_sizes s = sizes_of(call->node);
    const int64_t elements = strata_shape_elements(call->node->shape);
    for (int64_t i = 0; i < elements; i++) {
        const int64_t c = i % s.c, w = i / s.c % s.in_w, h = i / s.c / s.in_w % s.in_h, n = i / s.c / s.in_w / s.in_h;
        strata_element_set(call->node->dtype, call->output, i, shares(call, &s, n, h, w, c));
    }
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

static strata_tensor *max_compose(strata_tensor *node) {
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

static strata_tensor *max_grad_compose(strata_tensor *node) {
    strata_tensor *x[STRATA_MOST_TAPS], *taken = NULL, *sum = NULL;
    strata_tensor *zero = strata_scalar(node->graph, node->dtype, 0);
    strata_taps taps;
    if (is_rectified(node)) {
        strata_pool2d_attrs attrs = *attrs_of(node);
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

/* The sum of the taps of x, divided by their number; for the gradient, of each share of dy at the places of its taps. */
static strata_tensor *avg_compose(strata_tensor *node) {
    const bool is_grad = node->op == &strata_op_avg_pool2d_grad;
    const int64_t *size = window_of(node)->size;
    strata_tensor *x = node->inputs[0], *sum = NULL;
    strata_taps taps;
    if (!strata_taps_init(&taps, window_of(node), is_grad ? node->shape : x->shape)) return NULL;
    x = is_grad ? strata_mul(x, inverse_counts(node, &taps)) : strata_taps_pad(&taps, x, 0);
    for (int64_t k = 0; k < size[0] * size[1]; k++) {
        strata_tensor *tap = (is_grad ? strata_untap : strata_tap)(&taps, x, k / size[1], k % size[1]);
        sum = sum ? strata_add(sum, tap) : tap;
    }
    return is_grad ? strata_taps_crop(&taps, sum) : strata_mul(sum, inverse_counts(node, &taps));
}

/* ---- lower ---- */

/* How many neighbouring channels a work-item computes. The number divides c, so kernels need no check at the boundary,
 * and compilers for CPUs vectorize the loop. */
static int channels_of(int64_t c) {
    int channels = 8;
    while (c % channels) channels /= 2;
    return channels;
}

/* The number of elements in a window, and the most windows that contain the same pixel. They are doubles, because products of
 * very large sizes may exceed 64 bits. */
static double taps_in(const strata_window *window) {
    return (double)window->size[0] * (double)window->size[1];
}
static double covers_of(const strata_window *window) {
    double covers = 1;
    for (int d = 0; d < 2; d++) covers *= (double)((window->size[d] + window->stride[d] - 1) / window->stride[d]);
    return covers;
}

/* Appends the words that all pooling kernels begin with, the constant CHANNELS and the grid over `pixels` of the result, and
 * adds the launch. Fails with UNSUPPORTED if a work-item would make more than 65,000 iterations (`turns`) of its loops, because
 * some drivers silently end loops soon after that. */
static strata_status add_launch(const strata_tensor *node, strata_launch *launch, int64_t pixels, double turns,
                                strata_lowering *lowering, strata_error *err) {
    enum { MOST_TURNS = 65000 };
    const strata_pool2d_sizes s = sizes_of(node);
    const strata_window *window = window_of(node);
    if (strata_shape_elements(node->shape) == 0) return STRATA_OK;
    if (turns > MOST_TURNS)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "a window of %" PRId64 " by %" PRId64 " at strides of %" PRId64 " and %" PRId64
                           " takes %.0f"
                           " steps a pixel; kernels take at most %d. Over a whole image, reduce instead",
                           window->size[0], window->size[1], window->stride[0], window->stride[1], turns, MOST_TURNS);
    const int channels = channels_of(s.c);
    STRATA_TRY(strata_check_countable(node, err));
    STRATA_TRY(strata_launch_flat(launch, pixels * (s.c / channels), err));
    launch->turns = 0;
    STRATA_LAUNCH_INTS(launch, s.in_h, s.in_w, s.out_h, s.out_w, s.c);
    STRATA_LAUNCH_INTS(launch, window->size[0], window->size[1], window->stride[0], window->stride[1]);
    STRATA_LAUNCH_INTS(launch, window->padding[STRATA_PAD_TOP], window->padding[STRATA_PAD_LEFT]);
    strata_launch_constant_add(launch, "CHANNELS", channels);
    return strata_lowering_add(lowering, launch, err);
}

static strata_status max_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    strata_launch launch = STRATA_LAUNCH_WITH("max_pool2d", strata_dtype_name(node->dtype), node->inputs[0],
                                              node->inputs[node->n_inputs - 1], node);
    strata_launch_constant_add(&launch, "PICK", node->n_inputs > 1);
    return add_launch(node, &launch, s.n * s.out_h * s.out_w, taps_in(window_of(node)), lowering, err);
}

static strata_status max_grad_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    const strata_window *window = window_of(node);
    const bool cells = window->stride[0] >= window->size[0] && window->stride[1] >= window->size[1];
    strata_launch launch = strata_launch_of(node, "max_pool2d_grad", strata_dtype_name(node->dtype));
    strata_launch_constant_add(&launch, "CELLS", cells);
    strata_launch_constant_add(&launch, "RECTIFIED", is_rectified(node));
    const int64_t pixels = cells ? s.n * s.out_h * s.out_w : s.n * s.in_h * s.in_w;
    const double taps = taps_in(window), cell = 4.0 * (double)window->stride[0] * (double)window->stride[1];
    return add_launch(node, &launch, pixels, cells ? taps + cell : taps * covers_of(window), lowering, err);
}

static strata_status avg_lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_pool2d_sizes s = sizes_of(node);
    strata_launch launch = strata_launch_of(node, node->op->name, strata_dtype_name(node->dtype));
    const bool is_grad = node->op == &strata_op_avg_pool2d_grad;
    const int64_t pixels = is_grad ? s.n * s.in_h * s.in_w : s.n * s.out_h * s.out_w;
    return add_launch(node, &launch, pixels, is_grad ? covers_of(window_of(node)) : taps_in(window_of(node)), lowering, err);
}

/* ---- the ops ---- */

const strata_op strata_op_max_pool2d = {
    .name = "max_pool2d",
    .n_inputs = 1,
    .optional_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs)},
    .dims = "nHWc->nHWc",
    .shape = shape,
    .gradient = max_gradient,
    .reference = max_reference,
    .compose = max_compose,
    .lower = max_lower,
};

const strata_op strata_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .n_inputs = 2,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs),
              {"rectified", STRATA_ATTR_INT, offsetof(strata_pool2d_attrs, rectified)}},
    .dims = "nHWc,nHWc->nHWc",
    .shape = max_grad_shape,
    .gradient = max_grad_gradient,
    .reference = max_grad_reference,
    .compose = max_grad_compose,
    .lower = max_grad_lower,
};

const strata_op strata_op_avg_pool2d = {
    .name = "avg_pool2d",
    .n_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs)},
    .dims = "nHWc->nHWc",
    .linearity = STRATA_LINEAR_JOINTLY,
    .shape = shape,
    .gradient = avg_gradient,
    .reference = avg_reference,
    .compose = avg_compose,
    .lower = avg_lower,
};

const strata_op strata_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .n_inputs = 1,
    .attrs_bytes = sizeof(strata_pool2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_pool2d_attrs),
              {"input_size", STRATA_ATTR_PAIR, offsetof(strata_pool2d_attrs, input_size)}},
    .dims = "nHWc->nHWc",
    .linearity = STRATA_LINEAR_JOINTLY,
    .shape = avg_grad_shape,
    .gradient = avg_grad_gradient,
    .reference = avg_grad_reference,
    .compose = avg_compose,
    .lower = avg_lower,
};

strata_tensor *strata_max_pool2d_grad_rectified(strata_tensor *node, const strata_tensor *x) {
    if (node->op != &strata_op_max_pool2d_grad || node->inputs[0] != x || is_rectified(node)) return NULL;
    strata_pool2d_attrs attrs = *attrs_of(node);
    attrs.rectified = 1;
    return strata_node(NULL, &strata_op_max_pool2d_grad, 2, node->inputs, &attrs);
}

/* ---- builders ---- */

static strata_tensor *pool2d(const strata_op *op, strata_tensor *x, strata_pool2d_window opts) {
    strata_window_wish wish = {.size = {opts.size[0], opts.size[1]}, .padding = opts.padding};
    for (int d = 0; d < 2; d++) wish.stride[d] = opts.stride[d] ? opts.stride[d] : opts.size[d];
    for (int i = 0; i < 4; i++) wish.explicit_padding[i] = opts.explicit_padding[i];
    const strata_pool2d_attrs attrs = {.window = strata_window_over(x ? x->shape : (strata_shape){0}, wish)};
    return strata_node(NULL, op, 1, &x, &attrs);
}

/* Pools x (N,L,C) as (N,1,L,C). */
static strata_tensor *pool1d(const strata_op *op, const char *name, strata_tensor *x, strata_pool1d_window opts) {
    const strata_pool2d_window wide = {.size = {1, opts.size},
                                       .stride = {1, opts.stride},
                                       .padding = opts.padding,
                                       .explicit_padding = {0, 0, opts.explicit_padding[0], opts.explicit_padding[1]}};
    if (!x || strata_tensor_is_poison(x)) return x;
    if (x->shape.rank != 3)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID, "%s: x is %s; it must be (sequences, length, channels)",
                                   name, strata_shape_text(x->shape).text);
    x = strata_reshape(x, STRATA_SHAPE(x->shape.dims[0], 1, x->shape.dims[1], x->shape.dims[2]));
    strata_tensor *y = pool2d(op, x, wide);
    if (strata_tensor_is_poison(y)) return y;
    return strata_reshape(y, STRATA_SHAPE(y->shape.dims[0], y->shape.dims[2], y->shape.dims[3]));
}

strata_tensor *strata_max_pool2d(strata_tensor *x, strata_pool2d_window opts) {
    return pool2d(&strata_op_max_pool2d, x, opts);
}

strata_tensor *strata_max_pool1d(strata_tensor *x, strata_pool1d_window opts) {
    return pool1d(&strata_op_max_pool2d, "max_pool1d", x, opts);
}

strata_tensor *strata_avg_pool2d(strata_tensor *x, strata_pool2d_window opts) {
    return pool2d(&strata_op_avg_pool2d, x, opts);
}

strata_tensor *strata_avg_pool1d(strata_tensor *x, strata_pool1d_window opts) {
    return pool1d(&strata_op_avg_pool2d, "avg_pool1d", x, opts);
}
