/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of a convolution with respect to its filter: for each tap, channel and filter a sum over all outputs (conv2d.h).
 *
 * The result is small and the sum is long, so the sum is divided into parts. Their sums are written to scratch memory and added
 * by the reduce kernel. The division depends only on the shape, since it determines the bits. */
#include "core/op/conv2d.h"
#include "core/op/define.h"
#include "core/op/reduce.h"

extern const strata_op strata_op_conv2d_input_grad, strata_op_conv2d;

enum {
    NOMINAL_BLOCK = 16,  /* elements of the result that a work-item computes, approximately */
    ENOUGH_ITEMS = 8192, /* work-items that keep a large device busy                                   */
    LEAST_PART = 256,    /* rows: shorter sums than this are not worth another launch                   */
    MOST_PART = 16384    /* rows: some drivers silently end a work-item's loops after 65,535 iterations */
};

static const strata_conv2d_attrs *attrs_of(const strata_tensor *node) {
    return node->attrs;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_conv2d_attrs *attrs = attrs_of(node);
    const strata_shape x = node->inputs[0]->shape, dy = node->inputs[1]->shape;
    int64_t out[2];
    STRATA_TRY(strata_conv2d_check_pair(node, "x", "dy", err));
    STRATA_TRY(strata_window_check(&attrs->window, x, "x", out, err));
    if (dy.rank != 4 || dy.dims[0] != x.dims[0] || dy.dims[1] != out[0] || dy.dims[2] != out[1])
        return strata_fail(err, STRATA_INVALID,
                           "dy is %s; the convolution's result is (%" PRId64 ",%" PRId64 ",%" PRId64 ",filters)",
                           strata_shape_text(dy).text, x.dims[0], out[0], out[1]);
    if (x.dims[3] < 1 || dy.dims[3] < 1 || x.dims[3] % attrs->groups || dy.dims[3] % attrs->groups)
        return strata_fail(err, STRATA_INVALID,
                           "x is %s, dy is %s; their %" PRId64 " and %" PRId64 " channels can't be divided among %" PRId64
                           " groups",
                           strata_shape_text(x).text, strata_shape_text(dy).text, x.dims[3], dy.dims[3], attrs->groups);
    node->shape = STRATA_SHAPE(attrs->window.size[0], attrs->window.size[1], x.dims[3] / attrs->groups, dy.dims[3]);
    return STRATA_OK;
}

static void gradient(strata_tensor *node, strata_tensor *g, strata_tensor **dx) {
    strata_tensor *x = node->inputs[0], *dy = node->inputs[1];
    strata_conv2d_attrs attrs = *attrs_of(node);
    attrs.input_size[0] = x->shape.dims[1];
    attrs.input_size[1] = x->shape.dims[2];
    dx[0] = strata_node(NULL, &strata_op_conv2d_input_grad, 2, (strata_tensor *[]){dy, g}, &attrs);
    dx[1] = strata_conv2d_product(&strata_op_conv2d, x, g, node);
}

/* ---- reference ---- */

/* Adds the terms of row oh of result n of the convolution to the sum of element `at` of the gradient. */
static void add_row(const strata_op_call *call, const strata_conv2d_sizes *s, int64_t n, int64_t oh, int64_t at, double *sum) {
    const strata_dtype dtype = call->node->dtype;
    const int64_t f = at % s->out_c, c = at / s->out_c % s->group_in, tap = at / s->out_c / s->group_in;
    const int64_t channel = f / s->group_out * s->group_in + c, h = strata_conv2d_at(s, 0, oh, tap / s->kernel_w);
    for (int64_t ow = 0; ow < s->out_w && h >= 0 && h < s->in_h; ow++) {
        const int64_t w = strata_conv2d_at(s, 1, ow, tap % s->kernel_w);
        if (w < 0 || w >= s->in_w) continue;
        *sum += strata_element_get(dtype, call->inputs[0], ((n * s->in_h + h) * s->in_w + w) * s->in_c + channel) *
                strata_element_get(dtype, call->inputs[1], ((n * s->out_h + oh) * s->out_w + ow) * s->out_c + f);
    }
}

/* Adds each row to the sums of all wanted elements. A sum after the other would read all of x and dy from memory for each. */
static void reference(strata_op_call *call) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(call->node);
    const int64_t n_sums = strata_call_count(call, s.kernel_h * s.kernel_w * s.group_in * s.out_c);
    double *sums = strata_call_alloc(call, n_sums, sizeof *sums);
    if (!sums) return;
    for (int64_t row = 0; row < s.n * s.out_h; row++)
        for (int64_t i = 0; i < n_sums; i++)
            add_row(call, &s, row / s.out_h, row % s.out_h, strata_call_element(call, i), &sums[i]);
    for (int64_t i = 0; i < n_sums; i++)
        strata_element_set(call->node->dtype, call->output, strata_call_element(call, i), sums[i]);
    free(sums);
}

/* ---- lower ---- */

int64_t strata_conv2d_part(const strata_conv2d_sizes *s) {
    const int64_t rows = s->n * s->out_h * s->out_w;
    const int64_t items = ceil_div(s->kernel_h * s->kernel_w * s->group_in * s->out_c, NOMINAL_BLOCK);
    int64_t parts = 1;
    while ((parts * items < ENOUGH_ITEMS && rows >= 2 * parts * LEAST_PART) || rows > parts * MOST_PART) parts *= 2;
    return rows ? ceil_div(rows, parts) : 1;
}

/* The kernel's variant: the dtype of x and dy, then the dtype of the sums. Sums of parts are f32 in scratch memory. */
static const char *variant_of(strata_dtype dtype, bool in_parts) {
    static const char *const variants[2][3] = {
        {[STRATA_DTYPE_F32] = "f32_f32", [STRATA_DTYPE_F16] = "f16_f16", [STRATA_DTYPE_BF16] = "bf16_bf16"},
        {[STRATA_DTYPE_F32] = "f32_f32", [STRATA_DTYPE_F16] = "f16_f32", [STRATA_DTYPE_BF16] = "bf16_f32"}};
    return variants[in_parts][dtype];
}

strata_status strata_conv2d_filter_grad_launch(const strata_tensor *node, int64_t part, strata_launch *launch,
                                               strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t rows = s.n * s.out_h * s.out_w, parts = rows ? ceil_div(rows, part) : 1;
    const int64_t elements = strata_shape_elements(node->shape);
    STRATA_TRY(strata_check_countable(node, err));
    if (parts * elements > INT64_C(1) << 31)
        return strata_fail(err, STRATA_UNSUPPORTED, "%" PRId64 " partial sums of %" PRId64 " elements; kernels count to 2^31",
                           parts, elements);
    launch->variant = variant_of(node->dtype, parts > 1);
    STRATA_SET_BUFFERS(launch, node->inputs[0], node->inputs[1], parts > 1 ? NULL : node);
    STRATA_LAUNCH_INTS(launch, rows, s.out_h, s.out_w, s.in_h, s.in_w, s.kernel_h, s.kernel_w, s.stride[0], s.stride[1]);
    STRATA_LAUNCH_INTS(launch, s.dilation[0], s.dilation[1], s.top, s.left, s.groups, s.group_in, s.group_out, parts, part);
    return STRATA_OK;
}

strata_status strata_conv2d_filter_grad_add(const strata_tensor *node, int64_t part, const strata_launch *launch,
                                            strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t parts = ceil_div(s.n * s.out_h * s.out_w, part);
    if (parts > 1) strata_lowering_scratch(lowering, parts * strata_shape_elements(node->shape) * (int64_t)sizeof(float));
    STRATA_TRY(strata_lowering_add(lowering, launch, err));
    return parts > 1 ? strata_reduce_scratch(node, parts, lowering, err) : STRATA_OK;
}

strata_status strata_conv2d_filter_grad_lower_parts(const strata_tensor *node, int64_t part, strata_launch *launch,
                                                    int64_t items_a_part, strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t rows = s.n * s.out_h * s.out_w;
    if (rows == 0) return strata_fill_lower(node, 0, lowering, err); /* a sum of no terms */
    STRATA_TRY(strata_conv2d_filter_grad_launch(node, part, launch, err));
    launch->global[0] = ceil_div(rows, part) * items_a_part;
    return strata_conv2d_filter_grad_add(node, part, launch, lowering, err);
}

strata_status strata_conv2d_filter_grad_lower_blocks(const strata_tensor *node, int work_m, int work_n,
                                                     strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    strata_launch launch = {.kernel = "conv2d_filter_grad",
                            .n_constants = 2,
                            .constants = {{"WORK_M", work_m}, {"WORK_N", work_n}},
                            .grid_stride = true};
    const int64_t blocks = s.kernel_h * s.kernel_w * ceil_div(s.group_in, work_m) * s.groups * ceil_div(s.group_out, work_n);
    return strata_conv2d_filter_grad_lower_parts(node, strata_conv2d_part(&s), &launch, blocks, lowering, err);
}

/* Chooses block sizes for any device. The three channels of an RGB picture are one block. */
static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    strata_launch depthwise = {.kernel = "depthwise_filter_grad", .grid_stride = true};
    if (strata_conv2d_is_depthwise(node, &s))
        return strata_conv2d_filter_grad_lower_parts(node, strata_conv2d_part(&s), &depthwise,
                                                     s.kernel_h * s.kernel_w * s.out_c, lowering, err);
    int work_m = s.group_in == 1 || s.group_in == 3 ? (int)s.group_in : 4, work_n = s.group_out >= 8  ? 8
                                                                                    : s.group_out > 1 ? 4
                                                                                                      : 1;
    return strata_conv2d_filter_grad_lower_blocks(node, work_m, work_n, lowering, err);
}

/* For each tap and group, one matrix product of the channels of x at that tap and the channels of dy. */
static strata_tensor *compose(strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t rows = s.n * s.out_h * s.out_w, n_taps = s.kernel_h * s.kernel_w;
    strata_tensor *groups[STRATA_MOST_TAPS], *products[STRATA_MOST_TAPS];
    strata_taps taps;
    if (!strata_conv2d_taps(node, &taps)) return NULL;
    for (int64_t g = 0; g < s.groups; g++) {
        strata_tensor *x = strata_taps_pad(&taps, strata_conv2d_group(node->inputs[0], g, s.group_in), 0);
        strata_tensor *dy = strata_conv2d_group(node->inputs[1], g, s.group_out);
        dy = strata_reshape(dy, STRATA_SHAPE(rows, s.group_out));
        for (int64_t k = 0; k < n_taps; k++) {
            strata_tensor *tap = strata_tap(&taps, x, k / s.kernel_w, k % s.kernel_w);
            products[k] = strata_matmul(strata_reshape(tap, STRATA_SHAPE(rows, s.group_in)), dy, true, false);
        }
        groups[g] = n_taps == 1 ? products[0] : strata_concat(products, (int)n_taps, 0);
        groups[g] = strata_reshape(groups[g], STRATA_SHAPE(s.kernel_h, s.kernel_w, s.group_in, s.group_out));
    }
    return s.groups == 1 ? groups[0] : strata_concat(groups, (int)s.groups, 3);
}

static void factors(const strata_tensor *node, strata_factors *factors) {
    strata_conv2d_factors(node, attrs_of(node)->groups == 1 ? "nHWc,nHWf->KLcf" : "nHWg,nHWg->KLCg", factors);
}

const strata_op strata_op_conv2d_filter_grad = {
    .name = "conv2d_filter_grad",
    .n_inputs = 2,
    .flags = STRATA_OP_SAMPLES,
    .attrs_bytes = sizeof(strata_conv2d_attrs),
    .attrs = {STRATA_WINDOW_ATTRS(strata_conv2d_attrs), {"groups", STRATA_ATTR_INT, offsetof(strata_conv2d_attrs, groups)}},
    .factors = factors,
    .part = strata_conv2d_divided,
    .shape = shape,
    .gradient = gradient,
    .reference = reference,
    .compose = compose,
    .flops = strata_conv2d_flops,
    .lower = lower,
};
