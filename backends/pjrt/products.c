/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and convolutions, with their epilogues. The two gradients of a convolution (core/op/conv2d.h) are
 * convolutions over other axes. Padding is negative if elements have to be removed. Operands keep their dtype, sums are
 * f32. */
#include "backends/pjrt/rows.h"
#include "core/op/conv2d.h"
#include "core/op/matmul.h"

static hlo_value epilogue(pjrt_lowering *l, const strata_tensor *node, hlo_value v) {
    static const char *const aux_ops[] = {[STRATA_EPILOGUE_ADD] = "add"};
    hlo *h = strata_pjrt_text_of(l);
    const strata_epilogue *e = strata_epilogue_of(node);
    if (e->has_bias) v = strata_hlo_binary(h, "add", v, strata_pjrt_number(l, node, 2));
    if (e->activation == STRATA_EPILOGUE_RELU) v = strata_pjrt_relu(h, NULL, &v);
    if (e->activation == STRATA_EPILOGUE_TANH) v = strata_hlo_unary(h, "tanh", v);
    if (e->activation == STRATA_EPILOGUE_SIGMOID) v = strata_hlo_unary(h, "logistic", v);
    if (!e->aux) return v;
    const hlo_value both[] = {v, strata_pjrt_number(l, node, e->has_bias ? 3 : 2)};
    if (e->aux == STRATA_EPILOGUE_RELU_GRAD) return strata_pjrt_relu_grad(h, NULL, both);
    if (e->aux == STRATA_EPILOGUE_TANH_GRAD) return strata_pjrt_tanh_grad(h, NULL, both);
    if (e->aux == STRATA_EPILOGUE_SIGMOID_GRAD) return strata_pjrt_sigmoid_grad(h, NULL, both);
    return strata_pjrt_binary(h, aux_ops[e->aux], both);
}

/* Leading axes that both operands have are batch axes. Leading axes that only b has are between a's rows and b's
 * columns in the product and are moved to the front. */
hlo_value strata_pjrt_matmul(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const hlo_value a = strata_pjrt_operand(l, node, 0), b = strata_pjrt_operand(l, node, 1);
    const strata_matmul_attrs *attrs = node->attrs;
    const int leading_a = a.shape.rank - 2, leading_b = b.shape.rank - 2;
    const hlo_dot dot = {.n_batch = leading_a && leading_b ? leading_a : 0,
                         .lhs_axis = leading_a + (attrs->transpose_a ? 0 : 1),
                         .rhs_axis = leading_b + (attrs->transpose_b ? 1 : 0)};
    hlo_value c = strata_hlo_dot_general(h, a, b, dot);
    if (leading_b && !leading_a) {
        int axes[STRATA_MAX_RANK];
        for (int d = 0; d < leading_b; d++) axes[d] = d + 1;
        axes[leading_b] = 0;
        axes[leading_b + 1] = leading_b + 1;
        c = strata_hlo_transpose(h, c, axes);
    }
    return epilogue(l, node, c);
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

hlo_value strata_pjrt_conv2d(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t in[] = {s.in_h, s.in_w}, out[] = {s.out_h, s.out_w}, k[] = {s.kernel_h, s.kernel_w}, low[] = {s.top, s.left};
    hlo_window w = {.spacing = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.stride[d] = s.stride[d];
        w.dilation[d] = s.dilation[d];
        w.padding[d][0] = low[d];
        w.padding[d][1] = high_of(out[d], s.stride[d], span_of(k[d], s.dilation[d]), in[d], low[d]);
    }
    if (is_empty(node)) return epilogue(l, node, strata_hlo_fill(h, HLO_F32, node->shape, 0));
    return epilogue(l, node,
                    strata_hlo_convolution(h, strata_pjrt_operand(l, node, 0), strata_pjrt_operand(l, node, 1),
                                           "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", &w, s.groups, 1, node->shape));
}

/* The filter, reversed along KH and KW: (KH, KW, C of a group, K), where K is summed over. With groups, (KH, KW, K of a
 * group, C). */
static hlo_value turned_filter(hlo *h, hlo_value filter, const strata_conv2d_sizes *s) {
    const hlo_value turned = strata_hlo_reverse(h, filter, (int[]){0, 1}, 2);
    if (s->groups == 1) return turned;
    const hlo_value apart =
        strata_hlo_reshape(h, turned, STRATA_SHAPE(s->kernel_h, s->kernel_w, s->group_in, s->groups, s->group_out));
    return strata_hlo_reshape(h, strata_hlo_transpose(h, apart, (int[]){0, 1, 4, 3, 2}),
                              STRATA_SHAPE(s->kernel_h, s->kernel_w, s->group_out, s->groups * s->group_in));
}

/* dx[h] = sum over taps k of dy[(h + top - k dilation) / stride]: dy with stride - 1 zeros between its pixels. */
hlo_value strata_pjrt_conv2d_input_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t in[] = {s.in_h, s.in_w}, out[] = {s.out_h, s.out_w}, k[] = {s.kernel_h, s.kernel_w}, low[] = {s.top, s.left};
    hlo_window w = {.stride = {1, 1}};
    for (int d = 0; d < 2; d++) {
        const int64_t span = span_of(k[d], s.dilation[d]);
        w.spacing[d] = s.stride[d];
        w.dilation[d] = s.dilation[d];
        w.padding[d][0] = span - 1 - low[d];
        w.padding[d][1] = high_of(in[d], 1, span, span_of(out[d], s.stride[d]), w.padding[d][0]);
    }
    if (is_empty(node)) return epilogue(l, node, strata_hlo_fill(h, HLO_F32, node->shape, 0));
    const hlo_value filter = turned_filter(h, strata_pjrt_operand(l, node, 1), &s);
    const char *dimensions =
        s.groups == 1 ? "[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]" : "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]";
    return epilogue(
        l, node, strata_hlo_convolution(h, strata_pjrt_operand(l, node, 0), filter, dimensions, &w, s.groups, 1, node->shape));
}

/* A convolution of x, whose channels are treated as images and whose images as channels, with dy as the filter. */
hlo_value strata_pjrt_conv2d_filter_grad(pjrt_lowering *l, const strata_tensor *node, const char *name) {
    (void)name;
    hlo *h = strata_pjrt_text_of(l);
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const int64_t in[] = {s.in_h, s.in_w}, out[] = {s.out_h, s.out_w}, k[] = {s.kernel_h, s.kernel_w}, low[] = {s.top, s.left};
    hlo_window w = {.spacing = {1, 1}};
    for (int d = 0; d < 2; d++) {
        w.stride[d] = s.dilation[d];
        w.dilation[d] = s.stride[d];
        w.padding[d][0] = low[d];
        w.padding[d][1] = high_of(k[d], s.dilation[d], span_of(out[d], s.stride[d]), in[d], low[d]);
    }
    if (is_empty(node)) return strata_hlo_fill(h, HLO_F32, node->shape, 0);
    return strata_hlo_convolution(h, strata_pjrt_operand(l, node, 0), strata_pjrt_operand(l, node, 1),
                                  "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", &w, 1, s.groups, node->shape);
}
