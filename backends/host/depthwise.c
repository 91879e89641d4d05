/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 convolutions on the host in which each channel has its own filter. They are computed by element-wise
 * multiply-adds along the channels, one tap after the other. With conv2d.c, they would be products of matrices with one
 * column. */
#include "backends/host/host.h"
#include "core/op/conv2d.h"
#include "core/op/ops.h"

/* to[c] += a[c] b[c], with fma if the processor has it. */
HOST_INLINE void add_products_loop(const float *restrict a, const float *restrict b, float *restrict to, int64_t n) {
    for (int64_t c = 0; c < n; c++) to[c] = a[c] * b[c] + to[c];
}
HOST_LOOP(add_products, "avx2,fma", (const float *restrict a, const float *restrict b, float *restrict to, int64_t n),
          (a, b, to, n))

static bool takes(const strata_tensor *node) {
    if (!strata_host_is_f32(node)) return false;
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    return strata_conv2d_is_depthwise(node, &s) && s.group_out == 1;
}

/* Scratch memory for the sums of one pixel and a panel of strata_host_multiply. */
static int64_t scratch(const strata_tensor *node) {
    return (strata_conv2d_sizes_of(node).out_c + 2 * HOST_PANEL) * (int64_t)sizeof(float);
}

/* Finds the next tap of the window at output (oh, ow), from *tap on, that is not in the padding. Returns the index of its pixel
 * in image n; -1 after the last tap. */
static int64_t next_pixel(const strata_conv2d_sizes *s, int64_t n, int64_t oh, int64_t ow, int64_t *tap) {
    for (; *tap < s->kernel_h * s->kernel_w; ++*tap) {
        const int64_t h = strata_conv2d_at(s, 0, oh, *tap / s->kernel_w), w = strata_conv2d_at(s, 1, ow, *tap % s->kernel_w);
        if (h >= 0 && h < s->in_h && w >= 0 && w < s->in_w) return (n * s->in_h + h) * s->in_w + w;
    }
    return -1;
}

/* Applies the node's epilogue to `sums` and writes pixel `row` of the result. The epilogue is that of
 * strata_host_multiply, in a product with 1. */
static void finish(const host_call *host, int64_t row, int64_t channels, float *sums, float *panel) {
    const strata_op_call *call = &host->call;
    const strata_epilogue *epilogue = strata_epilogue_of(call->node);
    const float one = 1, *aux = epilogue->aux ? call->inputs[epilogue->has_bias ? 3 : 2] : NULL;
    const host_product p = {.m = 1,
                            .n = channels,
                            .k = 1,
                            .b_k = channels,
                            .b_col = 1,
                            .c_row = channels,
                            .bias = epilogue->has_bias ? call->inputs[2] : NULL,
                            .aux = aux ? aux + row * channels : NULL,
                            .activation = epilogue->activation,
                            .aux_form = epilogue->aux};
    strata_host_multiply(&p, &one, sums, (float *)call->output + row * channels, panel, 0, 1);
}

static void depthwise(const host_call *host) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(host->call.node);
    const float *x = host->call.inputs[0], *filter = host->call.inputs[1];
    const int64_t channels = s.out_c;
    float *sums = host->scratch, *panel = sums + channels;
    for (int64_t row = 0; row < s.n * s.out_h * s.out_w; row++) {
        const int64_t ow = row % s.out_w, line = row / s.out_w, oh = line % s.out_h, n = line / s.out_h;
        memset(sums, 0, (size_t)channels * sizeof(float));
        for (int64_t tap = 0, pixel; (pixel = next_pixel(&s, n, oh, ow, &tap)) >= 0; tap++)
            add_products(x + pixel * channels, filter + tap * channels, sums, channels);
        finish(host, row, channels, sums, panel);
    }
}

/* Adds each dy to the elements that its taps read. An element's sum has the same terms as on other backends, but in another
 * order. */
static void depthwise_back(const host_call *host) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(host->call.node);
    const float *dy = host->call.inputs[0], *filter = host->call.inputs[1];
    const int64_t channels = s.in_c, pixels = s.n * s.in_h * s.in_w;
    float *dx = host->call.output, *sums = host->scratch, *panel = sums + channels;
    memset(dx, 0, (size_t)(pixels * channels) * sizeof(float));
    for (int64_t row = 0; row < s.n * s.out_h * s.out_w; row++) {
        const int64_t ow = row % s.out_w, line = row / s.out_w, oh = line % s.out_h, n = line / s.out_h;
        for (int64_t tap = 0, pixel; (pixel = next_pixel(&s, n, oh, ow, &tap)) >= 0; tap++)
            add_products(dy + row * channels, filter + tap * channels, dx + pixel * channels, channels);
    }
    if (strata_epilogue_is_plain(strata_epilogue_of(host->call.node))) return;
    for (int64_t row = 0; row < pixels; row++) {
        memcpy(sums, dx + row * channels, (size_t)channels * sizeof(float));
        finish(host, row, channels, sums, panel);
    }
}

static void depthwise_filter_grad(const host_call *host) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(host->call.node);
    const float *x = host->call.inputs[0], *dy = host->call.inputs[1];
    const int64_t channels = s.out_c;
    float *df = host->call.output;
    memset(df, 0, (size_t)(s.kernel_h * s.kernel_w * channels) * sizeof(float));
    for (int64_t row = 0; row < s.n * s.out_h * s.out_w; row++) {
        const int64_t ow = row % s.out_w, line = row / s.out_w, oh = line % s.out_h, n = line / s.out_h;
        for (int64_t tap = 0, pixel; (pixel = next_pixel(&s, n, oh, ow, &tap)) >= 0; tap++)
            add_products(x + pixel * channels, dy + row * channels, df + tap * channels, channels);
    }
}

const host_fast_op strata_host_depthwise[] = {{&strata_op_conv2d, takes, scratch, depthwise, NULL},
                                              {&strata_op_conv2d_input_grad, takes, scratch, depthwise_back, NULL},
                                              {&strata_op_conv2d_filter_grad, takes, NULL, depthwise_filter_grad, NULL},
                                              {0}};
