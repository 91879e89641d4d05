/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 convolutions on the host: the taps of a run of pixels (as many as fit into the cache) are copied to the rows of a matrix,
 * which is multiplied by the tiles of matmul.c. conv2d and conv2d_input_grad add taps and channels in ascending order, as every
 * backend does; conv2d_filter_grad adds the products of the runs in ascending order. */
#include "core/op/conv2d.h"

#include "backends/host/host.h"
#include "core/op/ops.h"

enum { RUN_FLOATS = 48 * 1024, LEAST_RUN = 12 };

/* Maps pixels of `to` to their taps in `from`. For conv2d `from` is x and `to` is y; for its gradient with respect to the input
 * they are dy and dx. */
typedef struct taps {
    strata_conv2d_sizes size;
    bool transposed;
    int64_t to_h, to_w, from_h, from_w, from_c;
    int64_t rows;    /* pixels of `to` */
    int64_t depth;   /* channels of `from` in a group */
    int64_t columns; /* channels of `to` in a group */
    int64_t k;       /* the number of taps, times depth */
    int64_t run;     /* the number of rows of the matrix that is made at a time */
} taps;

static taps taps_of(const strata_tensor *node) {
    const strata_conv2d_sizes s = strata_conv2d_sizes_of(node);
    const bool transposed = node->op == &strata_op_conv2d_input_grad;
    taps t = {.size = s,
              .transposed = transposed,
              .to_h = transposed ? s.in_h : s.out_h,
              .to_w = transposed ? s.in_w : s.out_w,
              .from_h = transposed ? s.out_h : s.in_h,
              .from_w = transposed ? s.out_w : s.in_w,
              .from_c = transposed ? s.out_c : s.in_c,
              .depth = transposed ? s.group_out : s.group_in,
              .columns = transposed ? s.group_in : s.group_out};
    t.rows = s.n * t.to_h * t.to_w;
    t.k = s.kernel_h * s.kernel_w * t.depth;
    t.run = RUN_FLOATS / t.k / LEAST_RUN * LEAST_RUN;
    if (t.run < LEAST_RUN) t.run = LEAST_RUN;
    return t;
}

/* The position in `from` of tap k of the pixel at `to`, along axis d; -1: in the padding. */
static int64_t tap_at(const taps *t, int d, int64_t to, int64_t k) {
    const strata_conv2d_sizes *s = &t->size;
    const int64_t limit = d ? t->from_w : t->from_h;
    int64_t at = strata_conv2d_at(s, d, to, k);
    if (t->transposed) {
        const int64_t from = to + (d ? s->left : s->top) - k * s->dilation[d];
        at = from >= 0 && from % s->stride[d] == 0 ? from / s->stride[d] : -1;
    }
    return at >= 0 && at < limit ? at : -1;
}

/* out (n_rows, k): the taps of one group for the pixels from `first` on. */
static void copy_taps(const taps *t, const float *from, int64_t group, int64_t first, int64_t n_rows, float *out) {
    const strata_conv2d_sizes *s = &t->size;
    const size_t bytes = (size_t)t->depth * sizeof(float);
    for (int64_t row = first; row < first + n_rows; row++) {
        const int64_t w = row % t->to_w, line = row / t->to_w, h = line % t->to_h, image = line / t->to_h;
        for (int64_t kh = 0; kh < s->kernel_h; kh++) {
            const int64_t from_h = tap_at(t, 0, h, kh);
            for (int64_t kw = 0; kw < s->kernel_w; kw++, out += t->depth) {
                const int64_t from_w = from_h < 0 ? -1 : tap_at(t, 1, w, kw);
                if (from_w < 0)
                    memset(out, 0, bytes);
                else
                    memcpy(out, from + ((image * t->from_h + from_h) * t->from_w + from_w) * t->from_c + group * t->depth,
                           bytes);
            }
        }
    }
}

/* Transposes the filter of a group for the gradient with respect to the input: out (kh, kw, f, c). */
static void transpose_filter(const taps *t, const float *filter, int64_t group, float *out) {
    const strata_conv2d_sizes *s = &t->size;
    for (int64_t tap = 0; tap < s->kernel_h * s->kernel_w; tap++)
        for (int64_t f = 0; f < s->group_out; f++)
            for (int64_t c = 0; c < s->group_in; c++)
                *out++ = filter[(tap * s->group_in + c) * s->out_c + group * s->group_out + f];
}

/* Scratch memory for a run's matrix, for a packed panel of b, and in the gradient by the input for the transposed filter. */
static int64_t scratch(const strata_tensor *node) {
    const taps t = taps_of(node);
    const int64_t panel = (t.run > t.k ? t.run : t.k) + 1, turned = t.transposed ? t.k * t.columns : 0;
    return (t.run * t.k + panel * HOST_PANEL + turned) * (int64_t)sizeof(float);
}

/* The work is 0 if there are only few runs, since threads share the runs. */
static int64_t work(const strata_tensor *node) {
    const taps t = taps_of(node);
    return t.rows > 2 * t.run ? t.rows * t.k : 0;
}

static void conv2d(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_epilogue *epilogue = strata_epilogue_of(call->node);
    const taps t = taps_of(call->node);
    const int64_t to_c = t.columns * t.size.groups;
    float *rows = host->scratch, *panel = rows + t.run * t.k, *turned = panel + (t.k + 1) * HOST_PANEL;
    const float *bias = epilogue->has_bias ? call->inputs[2] : NULL;
    const float *aux = epilogue->aux ? call->inputs[epilogue->has_bias ? 3 : 2] : NULL;
    if (t.run > t.k) turned = panel + (t.run + 1) * HOST_PANEL;
    for (int64_t group = 0; group < t.size.groups; group++) {
        const int64_t first_column = group * t.columns;
        const float *b = (const float *)call->inputs[1] + first_column;
        if (t.transposed) transpose_filter(&t, call->inputs[1], group, turned);
        for (int64_t first = 0; first < t.rows; first += t.run) {
            if (first / t.run % host->n_parts != host->part) continue;
            const int64_t n_rows = t.rows - first < t.run ? t.rows - first : t.run, at = first * to_c + first_column;
            const host_product p = {.m = n_rows,
                                    .n = t.columns,
                                    .k = t.k,
                                    .a_row = t.k,
                                    .a_k = 1,
                                    .b_k = t.transposed ? t.columns : to_c,
                                    .b_col = 1,
                                    .c_row = to_c,
                                    .bias = bias ? bias + first_column : NULL,
                                    .aux = aux ? aux + at : NULL,
                                    .activation = epilogue->activation,
                                    .aux_form = epilogue->aux};
            copy_taps(&t, call->inputs[0], group, first, n_rows, rows);
            strata_host_multiply(&p, rows, t.transposed ? turned : b, (float *)call->output + at, panel, 0, 1);
        }
    }
}

/* df = transpose(rows) dy, added up run by run. */
static void filter_grad(const host_call *host) {
    const strata_op_call *call = &host->call;
    const taps t = taps_of(call->node);
    const int64_t out_c = t.size.out_c;
    float *rows = host->scratch, *panel = rows + t.run * t.k, *df = call->output;
    if (t.rows == 0) memset(df, 0, (size_t)(t.k * out_c) * sizeof(float));
    for (int64_t group = 0; group < t.size.groups; group++) {
        const int64_t first_column = group * t.columns;
        for (int64_t first = 0; first < t.rows; first += t.run) {
            const int64_t n_rows = t.rows - first < t.run ? t.rows - first : t.run;
            const host_product p = {.m = t.k,
                                    .n = t.columns,
                                    .k = n_rows,
                                    .a_row = 1,
                                    .a_k = t.k,
                                    .b_k = out_c,
                                    .b_col = 1,
                                    .c_row = out_c,
                                    .aux = first ? df + first_column : NULL,
                                    .aux_form = first ? STRATA_EPILOGUE_ADD : STRATA_EPILOGUE_NO_AUX};
            copy_taps(&t, call->inputs[0], group, first, n_rows, rows);
            strata_host_multiply(&p, rows, (const float *)call->inputs[1] + first * out_c + first_column, df + first_column,
                                 panel, 0, 1);
        }
    }
}

const host_fast_op strata_host_conv2ds[] = {{&strata_op_conv2d, strata_host_is_f32, scratch, conv2d, work},
                                            {&strata_op_conv2d_input_grad, strata_host_is_f32, scratch, conv2d, work},
                                            {&strata_op_conv2d_filter_grad, strata_host_is_f32, scratch, filter_grad, NULL},
                                            {0}};
