/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d and its gradient with respect to the input: the same sum of products over the taps of a window, forward or backward
 * (conv2d.h).
 *
 * Both are lowered to shaders/conv2d.kernel, a matrix product whose left operand is read directly from the image, without a
 * copy of the windows. */
#include "core/op/conv2d.h"

#include "core/op/define.h"

extern const strata_op strata_op_conv2d_input_grad, strata_op_conv2d_filter_grad, strata_op_conv2d;

static const strata_conv2d_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static bool is_transposed(const strata_tensor *node) {
    return node->op == &strata_op_conv2d_input_grad;
}

/* ---- sizes ---- */

/* Computes the sizes from x, filter and y; two of them are operands, and the third is the node. */
static strata_conv2d_sizes sizes_from(const strata_conv2d_attrs *attrs, strata_shape x, strata_shape filter, strata_shape y) {
    const strata_window *w = &attrs->window;
    return (strata_conv2d_sizes){.n = x.dims[0],
                                 .in_h = x.dims[1],
                                 .in_w = x.dims[2],
                                 .in_c = x.dims[3],
                                 .out_h = y.dims[1],
                                 .out_w = y.dims[2],
                                 .out_c = y.dims[3],
                                 .kernel_h = filter.dims[0],
                                 .kernel_w = filter.dims[1],
                                 .groups = attrs->groups,
                                 .group_in = filter.dims[2],
                                 .group_out = filter.dims[3] / attrs->groups,
                                 .stride = {w->stride[0], w->stride[1]},
                                 .dilation = {w->dilation[0], w->dilation[1]},
                                 .top = w->padding[STRATA_PAD_TOP],
                                 .left = w->padding[STRATA_PAD_LEFT]};
}

strata_conv2d_sizes strata_conv2d_sizes_of(const strata_tensor *node) {
    const strata_shape a = node->inputs[0]->shape, b = node->inputs[1]->shape, c = node->shape;
    if (node->op == &strata_op_conv2d_input_grad) return sizes_from(attrs_of(node), c, b, a);
    if (node->op == &strata_op_conv2d_filter_grad) return sizes_from(attrs_of(node), a, c, b);
    return sizes_from(attrs_of(node), a, b, c);
}

/* ---- shape rules ---- */

strata_status strata_conv2d_check_pair(const strata_tensor *node, const char *a_name, const char *b_name, strata_error *err) {
    STRATA_TRY(strata_check_dtype(node->inputs[0], a_name, STRATA_FLOATS, err));
    STRATA_TRY(strata_check_same_dtype(node->inputs[0], a_name, node->inputs[1], b_name, err));
    if (attrs_of(node)->groups < 1)
        return strata_fail(err, STRATA_INVALID, "groups is %" PRId64 "; it must be at least 1", attrs_of(node)->groups);
    return STRATA_OK;
}

/* Checks the filter (KH,KW,C/groups,K) alone: the window must have its size, and the number of groups must divide K. */
static strata_status check_filter(const strata_conv2d_attrs *attrs, const strata_tensor *filter, strata_error *err) {
    const strata_shape f = filter->shape;
    if (f.rank != 4)
        return strata_fail(err, STRATA_INVALID,
                           "filter is %s; it must be (height, width, channels of a group, filters), as TensorFlow's HWIO",
                           strata_shape_text(f).text);
    if (f.dims[0] < 1 || f.dims[1] < 1 || f.dims[2] < 1 || f.dims[3] < 1)
        return strata_fail(err, STRATA_INVALID, "filter is %s; none of its sizes may be 0", strata_shape_text(f).text);
    if (f.dims[3] % attrs->groups)
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " filters can't be divided among %" PRId64 " groups", f.dims[3],
                           attrs->groups);
    if (attrs->window.size[0] != f.dims[0] || attrs->window.size[1] != f.dims[1])
        return strata_fail(err, STRATA_INVALID, "filter is %s; the window is %" PRId64 " by %" PRId64,
                           strata_shape_text(f).text, attrs->window.size[0], attrs->window.size[1]);
    return STRATA_OK;
}

static strata_status conv2d_shape(strata_tensor *node, strata_error *err) {
    const strata_conv2d_attrs *attrs = attrs_of(node);
    const strata_shape x = node->inputs[0]->shape, f = node->inputs[1]->shape;
    int64_t out[2];
    STRATA_TRY(strata_conv2d_check_pair(node, "x", "filter", err));
    if (x.rank == 4 && x.dims[3] % attrs->groups)
        return strata_fail(err, STRATA_INVALID, "x is %s; its %" PRId64 " channels can't be divided among %" PRId64 " groups",
                           strata_shape_text(x).text, x.dims[3], attrs->groups);
    STRATA_TRY(check_filter(attrs, node->inputs[1], err));
    STRATA_TRY(strata_window_check(&attrs->window, x, "x", out, err));
    if (x.dims[3] / attrs->groups != f.dims[2])
        return strata_fail(err, STRATA_INVALID,
                           "x is %s, filter is %s; x's %" PRId64 " channels in %" PRId64 " groups give %" PRId64
                           " a group, which must equal the filter's %" PRId64,
                           strata_shape_text(x).text, strata_shape_text(f).text, x.dims[3], attrs->groups,
                           x.dims[3] / attrs->groups, f.dims[2]);
    node->shape = STRATA_SHAPE(x.dims[0], out[0], out[1], f.dims[3]);
    return strata_epilogue_check(node, err);
}

static strata_status conv2d_input_grad_shape(strata_tensor *node, strata_error *err) {
    const strata_conv2d_attrs *attrs = attrs_of(node);
    const strata_shape dy = node->inputs[0]->shape, f = node->inputs[1]->shape;
    int64_t out[2], channels;
    STRATA_TRY(strata_conv2d_check_pair(node, "dy", "filter", err));
    STRATA_TRY(check_filter(attrs, node->inputs[1], err));
    if (__builtin_mul_overflow(f.dims[2], attrs->groups, &channels))
        return strata_fail(err, STRATA_INVALID, "%" PRId64 " groups of %" PRId64 " channels are beyond 2^63", attrs->groups,
                           f.dims[2]);
    strata_shape x = STRATA_SHAPE(dy.rank ? dy.dims[0] : 0, attrs->input_size[0], attrs->input_size[1], channels);
    STRATA_TRY(strata_window_check(&attrs->window, x, "the input", out, err));
    strata_shape y = STRATA_SHAPE(x.dims[0], out[0], out[1], f.dims[3]);
    if (!strata_shape_equal(dy, y))
        return strata_fail(err, STRATA_INVALID, "dy is %s; the convolution's result is %s", strata_shape_text(dy).text,
                           strata_shape_text(y).text);
    node->shape = x;
    return strata_epilogue_check(node, err);
}

/* ---- gradients: the other two products ---- */

static void conv2d_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    strata_tensor *x = node->inputs[0], *filter = node->inputs[1];
    if (!strata_epilogue_allows_gradient(node)) return;
    strata_conv2d_attrs attrs = *attrs_of(node);
    attrs.input_size[0] = x->shape.dims[1];
    attrs.input_size[1] = x->shape.dims[2];
    dx[0] = strata_node(NULL, &strata_op_conv2d_input_grad, 2, (strata_tensor *[]){dy, filter}, &attrs);
    dx[1] = strata_conv2d_product(&strata_op_conv2d_filter_grad, x, dy, node);
}

static void conv2d_input_grad_gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    if (!strata_epilogue_allows_gradient(node)) return;
    dx[0] = strata_conv2d_product(&strata_op_conv2d, g, node->inputs[1], node);
    dx[1] = strata_conv2d_product(&strata_op_conv2d_filter_grad, g, node->inputs[0], node);
}

strata_tensor *strata_conv2d_product(const strata_op *op, strata_tensor *a, strata_tensor *b, const strata_tensor *like) {
    strata_conv2d_attrs attrs = *attrs_of(like);
    attrs.epilogue = (strata_epilogue){0};
    if (op != &strata_op_conv2d_input_grad) attrs.input_size[0] = attrs.input_size[1] = 0;
    return strata_node(NULL, op, 2, (strata_tensor *[]){a, b}, &attrs);
}

/* ---- compositions: a matrix product for each tap and group, all of them added up ---- */

strata_tensor *strata_conv2d_group(strata_tensor *x, int64_t group, int64_t channels) {
    int64_t begin[STRATA_MAX_RANK] = {0};
    strata_shape size = x->shape;
    if (size.dims[3] == channels) return x;
    begin[3] = group * channels;
    size.dims[3] = channels;
    return strata_slice(x, begin, size.dims);
}

/* The matrix (C/groups, K/groups) of the filter for one tap and group. */
static strata_tensor *filter_at(strata_tensor *filter, const strata_conv2d_sizes *s, int64_t kh, int64_t kw, int64_t group) {
    const int64_t begin[] = {kh, kw, 0, group * s->group_out}, size[] = {1, 1, s->group_in, s->group_out};
    return strata_reshape(strata_slice(filter, begin, size), STRATA_SHAPE(s->group_in, s->group_out));
}

bool strata_conv2d_taps(const strata_tensor *node, strata_taps *out_taps) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return strata_taps_init(out_taps, &attrs_of(node)->window, STRATA_SHAPE(s.n, s.in_h, s.in_w, s.group_in)) &&
           s.groups <= STRATA_MOST_TAPS / (s.kernel_h * s.kernel_w) && s.n > 0;
}

static strata_tensor *compose(strata_tensor *node) {
    const bool transposed = is_transposed(node);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t rows = s.n * s.out_h * s.out_w;
    strata_tensor *groups[STRATA_MOST_TAPS];
    strata_taps taps;
    if (!strata_epilogue_is_plain(strata_epilogue_of(node))) return strata_epilogue_unfolded(node);
    if (!strata_conv2d_taps(node, &taps)) return NULL;
    for (int64_t g = 0; g < s.groups; g++) {
        strata_tensor *from = strata_conv2d_group(node->inputs[0], g, transposed ? s.group_out : s.group_in), *sum = NULL;
        from = transposed ? strata_reshape(from, STRATA_SHAPE(rows, s.group_out)) : strata_taps_pad(&taps, from, 0);
        for (int64_t k = 0; k < s.kernel_h * s.kernel_w; k++) {
            const int64_t kh = k / s.kernel_w, kw = k % s.kernel_w;
            strata_tensor *matrix = filter_at(node->inputs[1], &s, kh, kw, g), *term;
            if (transposed) {
                term =
                    strata_reshape(strata_matmul(from, matrix, false, true), STRATA_SHAPE(s.n, s.out_h, s.out_w, s.group_in));
                term = strata_untap(&taps, term, kh, kw);
            } else {
                term = strata_reshape(strata_tap(&taps, from, kh, kw), STRATA_SHAPE(rows, s.group_in));
                term = strata_matmul(term, matrix, false, false);
            }
            sum = sum ? strata_add(sum, term) : term;
        }
        groups[g] =
            transposed ? strata_taps_crop(&taps, sum) : strata_reshape(sum, STRATA_SHAPE(s.n, s.out_h, s.out_w, s.group_out));
    }
    return s.groups == 1 ? groups[0] : strata_concat(groups, (int)s.groups, 3);
}

/* ---- references ---- */

/* The element of y for filter f; f also determines the group. */
static double forward_sum(const strata_op_call *call, const strata_conv2d_sizes *s, int64_t n, int64_t oh, int64_t ow,
                          int64_t f) {
    const strata_dtype dtype = call->node->dtype;
    const int64_t first_c = f / s->group_out * s->group_in;
    double sum = 0;
    for (int64_t kh = 0; kh < s->kernel_h; kh++) {
        const int64_t h = strata_conv2d_at(s, 0, oh, kh);
        for (int64_t kw = 0; kw < s->kernel_w && h >= 0 && h < s->in_h; kw++) {
            const int64_t w = strata_conv2d_at(s, 1, ow, kw);
            if (w < 0 || w >= s->in_w) continue;
            const int64_t x_at = ((n * s->in_h + h) * s->in_w + w) * s->in_c + first_c;
            const int64_t f_at = (kh * s->kernel_w + kw) * s->group_in * s->out_c + f;
            for (int64_t c = 0; c < s->group_in; c++)
                sum += strata_element_get(dtype, call->inputs[0], x_at + c) *
                       strata_element_get(dtype, call->inputs[1], f_at + c * s->out_c);
        }
    }
    return sum;
}

/* The output whose tap k is at position `at` of the input; -1: there is none. */
static int64_t output_of(const strata_conv2d_sizes *s, int d, int64_t at, int64_t k, int64_t n_outputs) {
    int64_t from = at + (d ? s->left : s->top) - k * s->dilation[d];
    return from >= 0 && from % s->stride[d] == 0 && from / s->stride[d] < n_outputs ? from / s->stride[d] : -1;
}

/* The gradient of one element of x. */
static double backward_sum(const strata_op_call *call, const strata_conv2d_sizes *s, int64_t n, int64_t h, int64_t w,
                           int64_t c) {
    const strata_dtype dtype = call->node->dtype;
    const int64_t group = c / s->group_in, first_f = group * s->group_out;
    double sum = 0;
    for (int64_t kh = 0; kh < s->kernel_h; kh++) {
        const int64_t oh = output_of(s, 0, h, kh, s->out_h);
        for (int64_t kw = 0; kw < s->kernel_w && oh >= 0; kw++) {
            const int64_t ow = output_of(s, 1, w, kw, s->out_w);
            if (ow < 0) continue;
            const int64_t dy_at = ((n * s->out_h + oh) * s->out_w + ow) * s->out_c + first_f;
            const int64_t f_at = ((kh * s->kernel_w + kw) * s->group_in + c - group * s->group_in) * s->out_c + first_f;
            for (int64_t f = 0; f < s->group_out; f++)
                sum += strata_element_get(dtype, call->inputs[0], dy_at + f) *
                       strata_element_get(dtype, call->inputs[1], f_at + f);
        }
    }
    return sum;
}

static void reference(strata_op_call *call) {
    const bool transposed = is_transposed(call->node);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(call->node);
    const int64_t *made = call->node->shape.dims; /* N, H, W, C of the result */
    for (int64_t i = 0; i < strata_call_count(call, strata_shape_elements(call->node->shape)); i++) {
        const int64_t at = strata_call_element(call, i), c = at % made[3], w = at / made[3] % made[2],
                      row = at / made[3] / made[2];
        const double sum = (transposed ? backward_sum : forward_sum)(call, &s, row / made[1], row % made[1], w, c);
        strata_epilogue_store(call, at, c, sum);
    }
}

double strata_conv2d_flops(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return 2.0 * (double)(s.n * s.out_h * s.out_w) * (double)s.out_c * (double)(s.kernel_h * s.kernel_w * s.group_in);
}

/* ---- lower ---- */

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Sets the words of the kernel. The kernel computes the elements of `to` from the taps of `from`. */
strata_status strata_conv2d_launch(const strata_tensor *node, strata_launch *out_launch, strata_error *err) {
    const bool transposed = is_transposed(node);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t to[] = {s.out_h, s.out_w, s.group_out}, from[] = {s.in_h, s.in_w, s.group_in};
    const int64_t *made = transposed ? from : to, *read = transposed ? to : from;
    STRATA_TRY(strata_check_countable(node, err));
    *out_launch = (strata_launch){
        .variant = strata_dtype_name(node->dtype),
        .n_buffers = 5,
        .buffers = {node->inputs[0], node->inputs[1], strata_epilogue_bias(node), strata_epilogue_aux_operand(node), node},
        .writes = 1u << 4,
        .n_constants = 1,
        .constants = {{"TRANSPOSED", transposed}}};
    STRATA_LAUNCH_INTS(out_launch, s.n, made[0], made[1], read[0], read[1], s.kernel_h, s.kernel_w, s.stride[0], s.stride[1]);
    STRATA_LAUNCH_INTS(out_launch, s.dilation[0], s.dilation[1], s.top, s.left, s.groups, made[2], read[2]);
    strata_epilogue_constants(out_launch, node);
    return STRATA_OK;
}

strata_status strata_conv2d_lower_blocks(const strata_tensor *node, int work_m, int work_n, strata_lowering *lowering,
                                         strata_error *err) {
    const bool transposed = is_transposed(node);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t pixels = transposed ? s.in_h * s.in_w : s.out_h * s.out_w;
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch(node, &launch, err));
    launch.kernel = "conv2d";
    launch.grid_stride = true;
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_M", work_m};
    launch.constants[launch.n_constants++] = (strata_launch_constant){"WORK_N", work_n};
    launch.global[0] = ceil_div(s.n * pixels, work_m) * s.groups * ceil_div(transposed ? s.group_in : s.group_out, work_n);
    return strata_lowering_add(lowering, &launch, err);
}

static strata_status lower_depthwise(const strata_tensor *node, const strata_conv2d_sizes *s, strata_lowering *lowering,
                                     strata_error *err) {
    strata_launch launch;
    STRATA_TRY(strata_conv2d_launch(node, &launch, err));
    launch.kernel = "depthwise";
    launch.grid_stride = true;
    launch.global[0] = strata_shape_elements(node->shape);
    if (s->kernel_h * s->kernel_w <= INT16_MAX / s->group_out)
        launch.turns = (int)(s->kernel_h * s->kernel_w * s->group_out) + 8;
    return strata_lowering_add(lowering, &launch, err);
}

/* Chooses block sizes for any device. There are few different sizes, since each one is a kernel to compile. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    if (strata_conv2d_is_depthwise(node, &s)) return lower_depthwise(node, &s, lowering, err);
    const int64_t columns = is_transposed(node) ? s.group_in : s.group_out;
    return strata_conv2d_lower_blocks(node, 4, columns >= 8 ? 8 : columns > 1 ? 4 : 1, lowering, err);
}

/* The dimensions of channels and filters are the last ones of all operands. */
void strata_conv2d_factors(const strata_tensor *node, const char *row, strata_factors *factors) {
    const int64_t groups = attrs_of(node)->groups;
    factors->linearity = STRATA_LINEAR_EACH;
    factors->filled = strata_factor_bit('c') | strata_factor_bit('f') | strata_factor_bit('g');
    strata_factors_row(row, node, factors);
    if (groups == 1) return;
    for (int i = 0; i < 2; i++) factors->inputs[i].unit[3] = node->inputs[i]->shape.dims[3] / groups;
    factors->result.unit[3] = node->shape.dims[3] / groups;
    factors->sizes['g' - 'a'] = groups;
}

strata_tensor *strata_conv2d_divided(const strata_node_part *part) {
    strata_conv2d_attrs attrs = *attrs_of(part->node);
    attrs.groups = attrs.groups * part->inputs[0]->shape.dims[3] / part->node->inputs[0]->shape.dims[3];
    return attrs_of(part->node)->groups == 1 ? strata_node_part_copy(part) : strata_node_part_with(part, &attrs);
}

static void factors(const strata_tensor *node, strata_factors *factors) {
    const char *row = is_transposed(node) ? "nHWf,KLcf->nHWc" : "nHWc,KLcf->nHWf";
    if (node->n_inputs == 2) strata_conv2d_factors(node, attrs_of(node)->groups == 1 ? row : "nHWg,KLCg->nHWg", factors);
}

#define PRODUCT(which)                                                                         \
    const strata_op strata_op_##which = {                                                      \
        .name = #which,                                                                        \
        .n_inputs = 2,                                                                         \
        .optional_inputs = 2,                                                                  \
        .flags = STRATA_OP_SAMPLES,                                                            \
        .attrs_bytes = sizeof(strata_conv2d_attrs),                                            \
        .attrs = {STRATA_WINDOW_ATTRS(strata_conv2d_attrs),                                    \
                  {"groups", STRATA_ATTR_INT, offsetof(strata_conv2d_attrs, groups)},          \
                  {"input_size", STRATA_ATTR_PAIR, offsetof(strata_conv2d_attrs, input_size)}, \
                  STRATA_EPILOGUE_ATTRS(strata_conv2d_attrs)},                                 \
        .epilogue = offsetof(strata_conv2d_attrs, epilogue),                                   \
        .words = strata_epilogue_words,                                                        \
        .factors = factors,                                                                    \
        .part = strata_conv2d_divided,                                                         \
        .shape = which##_shape,                                                                \
        .gradient = which##_gradient,                                                          \
        .reference = reference,                                                                \
        .compose = compose,                                                                    \
        .flops = strata_conv2d_flops,                                                          \
        .lower = lower,                                                                        \
    }
PRODUCT(conv2d);
PRODUCT(conv2d_input_grad);

/* ---- builders ---- */

/* image: the shape of the tensor over which the filter slides. */
static strata_conv2d_attrs attrs_over(strata_shape image, const strata_tensor *filter, strata_conv2d_window opts) {
    strata_window_wish wish = {
        .stride = {opts.stride[0], opts.stride[1]}, .dilation = {opts.dilation[0], opts.dilation[1]}, .padding = opts.padding};
    for (int d = 0; d < 2 && filter; d++) wish.size[d] = filter->shape.dims[d];
    for (int i = 0; i < 4; i++) wish.explicit_padding[i] = opts.explicit_padding[i];
    return (strata_conv2d_attrs){.window = strata_window_over(image, wish), .groups = opts.groups ? opts.groups : 1};
}

strata_tensor *strata_conv2d(strata_tensor *x, strata_tensor *filter, strata_conv2d_window opts) {
    const strata_conv2d_attrs attrs = attrs_over(x ? x->shape : (strata_shape){0}, filter, opts);
    return strata_node(NULL, &strata_op_conv2d, 2, (strata_tensor *[]){x, filter}, &attrs);
}

strata_tensor *strata_conv2d_transpose(strata_tensor *x, strata_tensor *filter, strata_conv2d_window opts, int64_t height,
                                       int64_t width) {
    strata_conv2d_attrs attrs = attrs_over(STRATA_SHAPE(1, height, width, 1), filter, opts);
    attrs.input_size[0] = height;
    attrs.input_size[1] = width;
    return strata_node(NULL, &strata_op_conv2d_input_grad, 2, (strata_tensor *[]){x, filter}, &attrs);
}

/* Runs the 2-D op: x (N,L,C) becomes (N,1,L,C), and the filter (K,C/groups,F) becomes (1,K,C/groups,F). */
strata_tensor *strata_conv1d(strata_tensor *x, strata_tensor *filter, strata_conv1d_window opts) {
    strata_conv2d_window wide = {.stride = {1, opts.stride},
                                 .dilation = {1, opts.dilation},
                                 .groups = opts.groups,
                                 .padding = opts.padding,
                                 .explicit_padding = {0, 0, opts.explicit_padding[0], opts.explicit_padding[1]}};
    if (!x || !filter || strata_tensor_is_poison(x) || strata_tensor_is_poison(filter)) return strata_conv2d(x, filter, wide);
    const strata_shape xs = x->shape, fs = filter->shape;
    if (xs.rank != 3 || fs.rank != 3)
        return strata_graph_poison(x->graph, NULL, STRATA_INVALID,
                                   "conv1d: x is %s, filter is %s; they must be (sequences, length, channels) and (length, "
                                   "channels of a group, filters)",
                                   strata_shape_text(xs).text, strata_shape_text(fs).text);
    strata_tensor *y = strata_conv2d(strata_reshape(x, STRATA_SHAPE(xs.dims[0], 1, xs.dims[1], xs.dims[2])),
                                     strata_reshape(filter, STRATA_SHAPE(1, fs.dims[0], fs.dims[1], fs.dims[2])), wide);
    if (strata_tensor_is_poison(y)) return y;
    return strata_reshape(y, STRATA_SHAPE(y->shape.dims[0], y->shape.dims[2], y->shape.dims[3]));
}
