/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and convolutions. The two gradients of a convolution (core/op/conv2d.h) are
 * convolutions over other axes. Padding is negative if elements have to be removed. Operands keep their dtype, sums are
 * f32. */
#include "backends/pjrt/lower.h"
#include "core/op/conv2d.h"
#include "core/op/matmul.h"
#include "core/op/ops.h"

/* Leading axes that both operands have are batch axes. Leading axes that only b has are between a's rows and b's
 * columns in the product and are moved to the front. */
static hlo_value matmul(hlo *h, const strata_tensor *node) {
    const hlo_value a = strata_pjrt_operand(h, node, 0), b = strata_pjrt_operand(h, node, 1);
    const strata_matmul_attrs *attrs = node->attrs;
    const int leading_a = a.shape.rank - 2, leading_b = b.shape.rank - 2;
    const hlo_dot dot = {.n_batch = leading_a && leading_b ? leading_a : 0,
                         .lhs_axis = leading_a + (attrs->transpose_a ? 0 : 1),
                         .rhs_axis = leading_b + (attrs->transpose_b ? 1 : 0)};
    hlo_value c = strata_hlo_dot_general(h, a, b, dot);
    if (leading_b && !leading_a) {
        int64_t axes[STRATA_MAX_RANK];
        for (int d = 0; d < leading_b; d++) axes[d] = d + 1;
        axes[leading_b] = 0;
        axes[leading_b + 1] = leading_b + 1;
        c = strata_hlo_transpose(h, c, axes);
    }
    return c;
}

/* The padding after the elements with which a window over `spaced` elements, with padding `low` before them, has
 * `outputs` results. */
static int64_t high_of(int64_t outputs, int64_t stride, int64_t span, int64_t spaced, int64_t low) {
    return (outputs - 1) * stride + span - spaced - low;
}

static int64_t span_of(int64_t n, int64_t spacing) {
    return (n - 1) * spacing + 1;
}

static bool is_empty(const strata_tensor *node) {
    return !strata_shape_elements(node->inputs[0]->shape) || !strata_shape_elements(node->inputs[1]->shape) ||
           !strata_shape_elements(node->shape);
}

/* The window that computes conv2d or one of its gradients. dx[h] = sum over taps k of dy[(h + top - k dilation) / stride]: dy
 * with stride - 1 zeros between its pixels. The gradient by the filter takes dy as the filter. */
static hlo_window window_of(const strata_tensor *node, const strata_conv2d_sizes *s) {
    const int64_t in[] = {s->in_h, s->in_w}, out[] = {s->out_h, s->out_w}, k[] = {s->kernel_h, s->kernel_w};
    const int64_t low[] = {s->top, s->left};
    hlo_window w = {.spacing = {1, 1}, .stride = {1, 1}};
    for (int d = 0; d < 2; d++) {
        const int64_t span = span_of(k[d], s->dilation[d]), spaced = span_of(out[d], s->stride[d]);
        const bool by_filter = node->op == &strata_op_conv2d_filter_grad;
        w.dilation[d] = by_filter ? s->stride[d] : s->dilation[d];
        w.padding[d][0] = low[d];
        if (node->op == &strata_op_conv2d_input_grad) {
            w.spacing[d] = s->stride[d];
            w.padding[d][0] = span - 1 - low[d];
            w.padding[d][1] = high_of(in[d], 1, span, spaced, w.padding[d][0]);
            continue;
        }
        w.stride[d] = by_filter ? s->dilation[d] : s->stride[d];
        w.padding[d][1] = high_of(by_filter ? k[d] : out[d], w.stride[d], by_filter ? spaced : span, in[d], low[d]);
    }
    return w;
}

/* The filter, reversed along KH and KW: (KH, KW, C of a group, K), where K is summed over. With groups, (KH, KW, K of a
 * group, C). */
static hlo_value turned_filter(hlo *h, hlo_value filter, const strata_conv2d_sizes *s) {
    const hlo_value turned = strata_hlo_reverse(h, filter, 2, (int64_t[]){0, 1});
    if (s->groups == 1) return turned;
    const hlo_value apart =
        strata_hlo_reshape(h, turned, STRATA_SHAPE(s->kernel_h, s->kernel_w, s->group_in, s->groups, s->group_out));
    return strata_hlo_reshape(h, strata_hlo_transpose(h, apart, (int64_t[]){0, 1, 4, 3, 2}),
                              STRATA_SHAPE(s->kernel_h, s->kernel_w, s->group_out, s->groups * s->group_in));
}

/* The gradient by the filter is a convolution of x, whose channels are treated as images and whose images as channels. */
static hlo_value convolution(hlo *h, const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const hlo_window w = window_of(node, &s);
    const bool by_input = node->op == &strata_op_conv2d_input_grad;
    const bool by_filter = node->op == &strata_op_conv2d_filter_grad;
    const char *dimensions = by_filter                   ? "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
                             : by_input && s.groups == 1 ? "[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]"
                                                         : "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]";
    if (is_empty(node)) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    const hlo_value filter = strata_pjrt_operand(h, node, 1);
    return strata_hlo_convolution(h, strata_pjrt_operand(h, node, 0), by_input ? turned_filter(h, filter, &s) : filter,
                                  dimensions, &w, by_filter ? 1 : s.groups, by_filter ? s.groups : 1, node->shape);
}

/* Bias and activation are nodes of their own: the compiler fuses them. */
static const char *refuse_fused(const strata_tensor *node) {
    return strata_epilogue_is_plain(strata_epilogue_of(node)) ? NULL : "a fused product is lowered as its parts";
}

const pjrt_row strata_pjrt_products[] = {{.op = &strata_op_matmul, .lower = matmul, .refuse = refuse_fused},
                                         {.op = &strata_op_conv2d, .lower = convolution, .refuse = refuse_fused},
                                         {.op = &strata_op_conv2d_input_grad, .lower = convolution, .refuse = refuse_fused},
                                         {.op = &strata_op_conv2d_filter_grad, .lower = convolution},
                                         {0}};
