/* SPDX-License-Identifier: Apache-2.0
 *
 * Products on the systolic arrays: matmul, and the three products of a convolution, with their epilogues.
 *
 * All of them have the form out[m][n] = epilogue of sum_k a(m, k) b(k, n). The offset of an operand's element is the sum of an
 * offset of its row and one of its column. For a convolution, a(m, k) is an element of the image itself: the pixel m, shifted
 * by the filter's tap k. So patches are never stored. Before a product, a is rounded to bf16 and copied. An image with
 * padding, or a gradient with gaps between its pixels, is copied into a frame of zeros.
 *
 * The results are those of the array. Operands are rounded to bf16, products are exact in f32, and a column of the array adds
 * up SIDE products in f32, from the top to the bottom. The accumulator below the array adds the sums of the columns in f32,
 * one after the other. This order depends only on k, so the division into tiles does not change any bit. */
#include "helpers.h"

/* The register tile of the host's vectors: it has as many accumulators as fit in the registers. */
#if defined(__AVX512F__)
enum { LANES = 16, TILE_ROWS = 12 };
#elif defined(__AVX2__)
enum { LANES = 8, TILE_ROWS = 6 };
#else
enum { LANES = 4, TILE_ROWS = 6 };
#endif
enum {
    SIDE = 128, /* rows and columns of the array */
    TILE_COLUMNS = 2 * LANES,
    BLOCK_ROWS = 8 * TILE_ROWS,
    /* The size in bytes of the packed columns of b that are used again for each block of rows. */
    PANEL_BYTES = 4 << 20
};

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

enum { ACT_LINEAR, ACT_RELU, ACT_TANH, ACT_SIGMOID };
enum { AUX_NONE, AUX_RELU_GRAD, AUX_TANH_GRAD, AUX_SIGMOID_GRAD, AUX_ADD };

typedef struct operand {
    /* In elements: the offset of each row (m of a, k of b), and of each column (k of a, n of b). */
    int64_t *rows, *columns;
} operand;

/* An image (n, h, w, c) is copied into a frame of zeros (n, frame_h, frame_w, c). Pixel (h, w) is written to (top + h step_h,
 * left + w step_w); pixels outside of the frame are not copied. */
typedef struct frame {
    int64_t n, h, w, c, frame_h, frame_w, top, left, step_h, step_w;
} frame;

typedef struct product {
    int64_t rows, columns, depth, batch;
    operand a, b;
    /* The distance, in elements, between the operands of consecutive products of a batch, and between their results. */
    int64_t a_batch, b_batch, out_batch;
    /* The distance in elements between rows of the result. */
    int64_t out_row;
    int activation, aux_form, bias_input, aux_input;
    /* framed: a is copied into a frame; otherwise it is copied as it is. a_elements: the number of elements of the copy. */
    bool framed;
    frame frame;
    int64_t a_elements;
    int64_t panel_columns;
} product;

/* ---- loops ---- */

/* Packs n columns of b for a tile, `depth` elements of each: out[k][i], rounded to bf16. If n is less than `wide`, the rest is
 * zeros. The offset of an element is across[i] + along[k]. */
static void pack(const float *base, const int64_t *across, int n, const int64_t *along, int depth, int wide, float *out) {
    const bool together = across[n - 1] - across[0] == n - 1 && (n < 2 || across[1] == across[0] + 1);
    if (together) {
        for (int k = 0; k < depth; k++) {
            const float *from = base + across[0] + along[k];
            for (int i = 0; i < n; i++) out[k * wide + i] = bf16_nearest(from[i]);
        }
    } else {
        for (int i = 0; i < n; i++) {
            const float *from = base + across[i];
            for (int k = 0; k < depth; k++) out[k * wide + i] = from[along[k]];
        }
        for (int k = 0; k < depth; k++)
            for (int i = 0; i < n; i++) out[k * wide + i] = bf16_nearest(out[k * wide + i]);
    }
    for (int k = 0; k < depth && n < wide; k++)
        for (int i = n; i < wide; i++) out[k * wide + i] = 0;
}

/* sums[TILE_ROWS][TILE_COLUMNS] = the rows of a that begin at rows[i], times packed b. The products are added in ascending
 * order of k, for `depth` elements; element k of a row is at offset along[k]. a was rounded before. */
static void multiply_tile(const float *const *rows, const int64_t *along, int depth, const float *b, float *sums) {
    vec left[TILE_ROWS], right[TILE_ROWS];
    const float *at[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) {
        left[i] = right[i] = (vec){0};
        at[i] = rows[i];
    }
    for (int k = 0; k < depth; k++) {
        const vec b0 = *(const vec *)(b + k * TILE_COLUMNS), b1 = *(const vec *)(b + k * TILE_COLUMNS + LANES);
        const int64_t offset = along[k];
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
        for (int i = 0; i < TILE_ROWS; i++) {
            left[i] += at[i][offset] * b0;
            right[i] += at[i][offset] * b1;
        }
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        *(vec *)(sums + i * TILE_COLUMNS) = left[i];
        *(vec *)(sums + i * TILE_COLUMNS + LANES) = right[i];
    }
}

static void add_tile(const float *sums, int rows, int columns, float *out, int64_t out_row, bool first) {
    for (int i = 0; i < rows; i++) {
        float *to = out + i * out_row;
        const float *from = sums + i * TILE_COLUMNS;
        if (first)
            for (int j = 0; j < columns; j++) to[j] = from[j];
        else
            for (int j = 0; j < columns; j++) to[j] += from[j];
    }
}

static void apply_bias(float *x, const float *bias, int64_t n) {
    for (int64_t j = 0; j < n; j++) x[j] += bias[j];
}

static void apply_activation(int activation, float *x, int64_t n) {
    if (activation == ACT_RELU)
        for (int64_t j = 0; j < n; j++) x[j] = x[j] < 0 ? 0 : x[j];
    if (activation == ACT_TANH)
        for (int64_t j = 0; j < n; j++) x[j] = tanhf(x[j]);
    if (activation == ACT_SIGMOID)
        for (int64_t j = 0; j < n; j++) x[j] = sigmoid_of(x[j]);
}

static void apply_aux(int form, float *x, const float *aux, int64_t n) {
    if (form == AUX_RELU_GRAD)
        for (int64_t j = 0; j < n; j++) x[j] = aux[j] > 0 ? x[j] : 0;
    if (form == AUX_TANH_GRAD)
        for (int64_t j = 0; j < n; j++) x[j] *= 1 - aux[j] * aux[j];
    if (form == AUX_SIGMOID_GRAD)
        for (int64_t j = 0; j < n; j++) x[j] *= aux[j] * (1 - aux[j]);
    if (form == AUX_ADD)
        for (int64_t j = 0; j < n; j++) x[j] += aux[j];
}

static void round_copy(const float *from, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = bf16_nearest(from[i]);
}

static void frame_copy(const frame *f, const float *from, float *to) {
    memset(to, 0, (size_t)(f->n * f->frame_h * f->frame_w * f->c) * sizeof *to);
    for (int64_t n = 0; n < f->n; n++) {
        for (int64_t h = 0; h < f->h; h++) {
            const int64_t y = f->top + h * f->step_h;
            if (y < 0 || y >= f->frame_h) continue;
            for (int64_t w = 0; w < f->w; w++) {
                const int64_t x = f->left + w * f->step_w;
                if (x < 0 || x >= f->frame_w) continue;
                round_copy(from + ((n * f->h + h) * f->w + w) * f->c, f->c,
                           to + ((n * f->frame_h + y) * f->frame_w + x) * f->c);
            }
        }
    }
}

/* Computes the columns first .. first + columns - 1 of one product, from `a`, which is rounded, and b, which is packed in
 * `panels`. */
static void multiply_columns(const product *p, const float *a, const float *panels, int64_t first, int64_t columns,
                             float *out) {
    float sums[TILE_ROWS * TILE_COLUMNS];
    const float *rows[TILE_ROWS];
    for (int64_t m0 = 0; m0 < p->rows; m0 += BLOCK_ROWS) {
        const int64_t end = m0 + BLOCK_ROWS < p->rows ? m0 + BLOCK_ROWS : p->rows;
        for (int64_t k0 = 0; k0 < p->depth; k0 += SIDE) {
            const int depth = p->depth - k0 < SIDE ? (int)(p->depth - k0) : SIDE;
            for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
                const float *b = panels + j * p->depth + k0 * TILE_COLUMNS;
                const int wide = columns - j < TILE_COLUMNS ? (int)(columns - j) : TILE_COLUMNS;
                for (int64_t m = m0; m < end; m += TILE_ROWS) {
                    const int n = end - m < TILE_ROWS ? (int)(end - m) : TILE_ROWS;
                    for (int i = 0; i < TILE_ROWS; i++) rows[i] = a + p->a.rows[i < n ? m + i : m];
                    multiply_tile(rows, p->a.columns + k0, depth, b, sums);
                    add_tile(sums, n, wide, out + m * p->out_row + first + j, p->out_row, k0 == 0);
                }
            }
        }
    }
}

static void product_run(const call *call) {
    const step *s = call->step;
    const product *p = s->state;
    float *a = call->scratch, *panels = a + (p->a_elements + LANES - 1) / LANES * LANES;
    const float *b = call->in[1];
    if (p->framed)
        frame_copy(&p->frame, call->in[0], a);
    else
        round_copy(call->in[0], p->a_elements, a);
    for (int64_t batch = 0; batch < p->batch; batch++) {
        const float *batch_a = a + batch * p->a_batch, *batch_b = b + batch * p->b_batch;
        float *out = (float *)call->out + batch * p->out_batch;
        if (p->depth == 0)
            for (int64_t m = 0; m < p->rows; m++) memset(out + m * p->out_row, 0, (size_t)p->columns * sizeof *out);
        for (int64_t n0 = 0; n0 < p->columns && p->depth > 0; n0 += p->panel_columns) {
            const int64_t columns = p->columns - n0 < p->panel_columns ? p->columns - n0 : p->panel_columns;
            for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
                const int wide = columns - j < TILE_COLUMNS ? (int)(columns - j) : TILE_COLUMNS;
                pack(batch_b, p->b.columns + n0 + j, wide, p->b.rows, (int)p->depth, TILE_COLUMNS, panels + j * p->depth);
            }
            multiply_columns(p, batch_a, panels, n0, columns, out);
        }
        for (int64_t m = 0; m < p->rows; m++) {
            float *row = out + m * p->out_row;
            const int64_t at = row - (float *)call->out;
            if (p->bias_input >= 0)
                apply_bias(row, (const float *)call->in[p->bias_input] + batch * p->columns % last_dim(s->out), p->columns);
            apply_activation(p->activation, row, p->columns);
            if (p->aux_form) apply_aux(p->aux_form, row, (const float *)call->in[p->aux_input] + at, p->columns);
        }
    }
}

/* ---- functions for all products ---- */

static int text_code(const char *text, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(text, names[i])) return i;
    return -1;
}

static const char *epilogue_of(const step *s, product *p) {
    static const char *const activations[] = {"linear", "relu", "tanh", "sigmoid"};
    static const char *const forms[] = {"none", "relu_grad", "tanh_grad", "sigmoid_grad", "add"};
    int next = 2;
    p->bias_input = p->aux_input = -1;
    p->activation = text_code(attribute_text(s, "activation", "linear"), activations, 4);
    p->aux_form = text_code(attribute_text(s, "aux", "none"), forms, 5);
    if (p->activation < 0 || p->aux_form < 0) return "its epilogue is of a kind that the chip does not have";
    if (attribute_int(s, "has_bias", 0)) p->bias_input = next++;
    if (p->aux_form) p->aux_input = next++;
    if (next != s->n_inputs) return "its number of inputs does not fit its epilogue";
    if (p->bias_input >= 0 && (s->in[p->bias_input]->n != last_dim(s->out) || s->in[p->bias_input]->dtype != s->out->dtype))
        return "its bias does not have an element for each column";
    if (p->aux_input >= 0 && (!same_shape(s->in[p->aux_input], s->out) || s->in[p->aux_input]->dtype != s->out->dtype))
        return "its second operand of the epilogue is not like the result";
    return NULL;
}

static bool take_offsets(operand *o, int64_t rows, int64_t columns, pool *pool) {
    o->rows = pool_take(pool, (rows + 1) * (int64_t)sizeof *o->rows);
    o->columns = pool_take(pool, (columns + 1) * (int64_t)sizeof *o->columns);
    return o->rows && o->columns;
}

static bool take_all_offsets(product *p, pool *pool) {
    return take_offsets(&p->a, p->rows, p->depth, pool) && take_offsets(&p->b, p->depth, p->columns, pool);
}

static void finish_product(step *s, product *p) {
    const int64_t depth = p->depth > 0 ? p->depth : 1;
    int64_t panel = PANEL_BYTES / (int64_t)sizeof(float) / depth / TILE_COLUMNS * TILE_COLUMNS;
    const int64_t all = (p->columns + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
    if (panel < TILE_COLUMNS) panel = TILE_COLUMNS;
    p->panel_columns = panel < all ? panel : all > 0 ? all : TILE_COLUMNS;
    const frame *f = &p->frame;
    p->a_elements = p->framed ? f->n * f->frame_h * f->frame_w * f->c : s->in[0]->n;
    s->scratch_bytes = (p->a_elements + LANES + p->panel_columns * depth) * (int64_t)sizeof(float);
    s->state = p;
}

static void product_work(const product *p, const step *s, work *work) {
    work->rows = p->rows;
    work->columns = p->columns;
    work->depth = p->depth;
    work->batch = p->batch;
    work->vector_ops = (double)s->out->n * ((p->bias_input >= 0) + (p->activation ? 1 : 0) + (p->aux_form ? 2 : 0));
}

/* ---- matmul: a (..., M, K) b (..., K, N). Either may be stored transposed; one of them may have no leading axes. ---- */

static const char *matmul_of(const step *s, product *p) {
    const array *a = s->in[0], *b = s->in[1], *c = s->out;
    *p = (product){.framed = false};
    if (a->rank < 2 || b->rank < 2 || c->rank < 2 || a->dtype != b->dtype || a->dtype != c->dtype)
        return "its operands are not matrices of one dtype";
    const bool ta = attribute_int(s, "transpose_a", 0) != 0, tb = attribute_int(s, "transpose_b", 0) != 0;
    p->rows = c->dims[c->rank - 2];
    p->columns = last_dim(c);
    p->depth = a->dims[a->rank - (ta ? 2 : 1)];
    p->batch = product_of_dims(c, 0, c->rank - 2);
    const int64_t a_n = p->rows * p->depth, b_n = p->depth * p->columns;
    if (a->dims[a->rank - (ta ? 1 : 2)] != p->rows || b->dims[b->rank - (tb ? 1 : 2)] != p->depth ||
        b->dims[b->rank - (tb ? 2 : 1)] != p->columns || (a->rank > 2 && a->n != a_n * p->batch) ||
        (b->rank > 2 && b->n != b_n * p->batch) || p->depth > INT32_MAX)
        return "the sizes of its operands do not fit";
    p->a_batch = a->rank > 2 ? a_n : 0;
    p->b_batch = b->rank > 2 ? b_n : 0;
    p->out_batch = p->rows * p->columns;
    p->out_row = p->columns;
    return epilogue_of(s, p);
}

static const char *matmul_refuse(const step *s) {
    product p;
    return matmul_of(s, &p);
}

static bool matmul_prepare(step *s, pool *pool) {
    product *p = pool_take(pool, sizeof *p);
    if (!p) return false;
    matmul_of(s, p);
    if (!take_all_offsets(p, pool)) return false;
    const bool ta = attribute_int(s, "transpose_a", 0) != 0, tb = attribute_int(s, "transpose_b", 0) != 0;
    for (int64_t m = 0; m < p->rows; m++) p->a.rows[m] = m * (ta ? 1 : p->depth);
    for (int64_t k = 0; k < p->depth; k++) p->a.columns[k] = k * (ta ? p->rows : 1);
    for (int64_t k = 0; k < p->depth; k++) p->b.rows[k] = k * (tb ? 1 : p->columns);
    for (int64_t n = 0; n < p->columns; n++) p->b.columns[n] = n * (tb ? p->depth : 1);
    finish_product(s, p);
    return true;
}

static void matmul_cost(const step *s, work *work) {
    product p;
    if (!matmul_of(s, &p)) product_work(&p, s, work);
}

/* ---- convolutions: x (N,H,W,C), filter (KH,KW,C/groups,F), y (N,OH,OW,F) ---- */

typedef struct conv {
    const array *x, *filter, *y;
    int64_t stride[2], dilation[2], top, left, groups, group_in, group_out;
} conv;

static const char *conv_of(const step *s, const array *x, const array *filter, const array *y, conv *c) {
    int64_t padding[4] = {0};
    *c = (conv){x, filter, y, {1, 1}, {1, 1}, 0, 0, attribute_int(s, "groups", 1), 0, 0};
    attribute_ints(s, "stride", c->stride, 2);
    attribute_ints(s, "dilation", c->dilation, 2);
    attribute_ints(s, "padding", padding, 4);
    c->top = padding[0];
    c->left = padding[2];
    if (x->rank != 4 || filter->rank != 4 || y->rank != 4 || x->dtype != filter->dtype || x->dtype != y->dtype)
        return "its operands are not images and filters of one dtype";
    if (c->groups < 1 || filter->dims[3] % c->groups || filter->dims[2] * c->groups != x->dims[3] ||
        y->dims[3] != filter->dims[3] || x->dims[0] != y->dims[0])
        return "the sizes of its operands do not fit";
    for (int d = 0; d < 2; d++) {
        const int64_t span = (filter->dims[d] - 1) * c->dilation[d] + 1,
                      room = x->dims[1 + d] + padding[2 * d] + padding[2 * d + 1];
        if (c->stride[d] < 1 || c->dilation[d] < 1 || padding[2 * d] < 0 || padding[2 * d + 1] < 0 || room < span ||
            (room - span) / c->stride[d] + 1 != y->dims[1 + d])
            return "its window does not fit its images";
    }
    c->group_in = filter->dims[2];
    c->group_out = filter->dims[3] / c->groups;
    return NULL;
}

/* Sets the size of the frame so that it contains all taps of all outputs. */
static void conv_frame(const conv *c, frame *f) {
    const array *x = c->x;
    *f = (frame){x->dims[0], x->dims[1], x->dims[2], x->dims[3], 0, 0, c->top, c->left, 1, 1};
    int64_t *frame_size[2] = {&f->frame_h, &f->frame_w};
    for (int d = 0; d < 2; d++)
        *frame_size[d] = (c->y->dims[1 + d] - 1) * c->stride[d] + (c->filter->dims[d] - 1) * c->dilation[d] + 1;
}

/* Whether the image itself is the frame, so that no copy with zeros is needed. */
static bool frame_is_whole(const frame *f) {
    return f->frame_h == f->h && f->frame_w == f->w && !f->top && !f->left && f->step_h == 1 && f->step_w == 1;
}

/* Computes the offset in the frame of the pixel for each output (n, oh, ow). tap_offsets computes those of the taps
 * (kh, kw, c). */
static void pixel_offsets(const frame *f, const array *y, const int64_t *stride, int64_t *out) {
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t oh = 0; oh < y->dims[1]; oh++)
            for (int64_t ow = 0; ow < y->dims[2]; ow++)
                *out++ = ((n * f->frame_h + oh * stride[0]) * f->frame_w + ow * stride[1]) * f->c;
}
static void tap_offsets(const frame *f, const conv *c, int64_t channels, bool backwards, int64_t *out) {
    const int64_t kh_end = c->filter->dims[0], kw_end = c->filter->dims[1];
    for (int64_t kh = 0; kh < kh_end; kh++)
        for (int64_t kw = 0; kw < kw_end; kw++) {
            const int64_t h = (backwards ? kh_end - 1 - kh : kh) * c->dilation[0];
            const int64_t w = (backwards ? kw_end - 1 - kw : kw) * c->dilation[1];
            for (int64_t i = 0; i < channels; i++) *out++ = (h * f->frame_w + w) * f->c + i;
        }
}

/* y[(n,oh,ow)][f] = sum over taps and channels. Each group is one product of a batch; the channels and filters of the groups
 * are stored next to each other. */
static const char *conv2d_of(const step *s, conv *c, product *p) {
    *p = (product){.framed = false};
    const char *why = conv_of(s, s->in[0], s->in[1], s->out, c);
    if (why) return why;
    conv_frame(c, &p->frame);
    p->framed = !frame_is_whole(&p->frame);
    p->rows = product_of_dims(c->y, 0, 3);
    p->columns = c->group_out;
    p->depth = c->filter->dims[0] * c->filter->dims[1] * c->group_in;
    p->batch = c->groups;
    p->a_batch = c->group_in;
    p->b_batch = p->out_batch = c->group_out;
    p->out_row = c->y->dims[3];
    return epilogue_of(s, p);
}

static const char *conv2d_refuse(const step *s) {
    conv c;
    product p;
    return conv2d_of(s, &c, &p);
}

static bool conv2d_prepare(step *s, pool *pool) {
    conv c;
    product *p = pool_take(pool, sizeof *p);
    if (!p) return false;
    conv2d_of(s, &c, p);
    if (!take_all_offsets(p, pool)) return false;
    pixel_offsets(&p->frame, c.y, c.stride, p->a.rows);
    tap_offsets(&p->frame, &c, c.group_in, false, p->a.columns);
    for (int64_t k = 0; k < p->depth; k++) p->b.rows[k] = k * c.filter->dims[3];
    for (int64_t n = 0; n < p->columns; n++) p->b.columns[n] = n;
    finish_product(s, p);
    return true;
}

static void conv2d_cost(const step *s, work *work) {
    conv c;
    product p;
    if (!conv2d_of(s, &c, &p)) product_work(&p, s, work);
}

/* dx[(n,h,w)][c] = sum over taps and filters of dy. dy is copied into a frame with stride - 1 zeros between its pixels, and
 * the taps are applied in reverse order. */
static const char *conv2d_input_grad_of(const step *s, conv *c, product *p) {
    *p = (product){.framed = true};
    const char *why = conv_of(s, s->out, s->in[1], s->in[0], c);
    if (why) return why;
    const array *dy = s->in[0], *dx = s->out;
    frame *f = &p->frame;
    *f = (frame){dy->dims[0], dy->dims[1], dy->dims[2], dy->dims[3], 0, 0, 0, 0, c->stride[0], c->stride[1]};
    f->frame_h = dx->dims[1] + (c->filter->dims[0] - 1) * c->dilation[0];
    f->frame_w = dx->dims[2] + (c->filter->dims[1] - 1) * c->dilation[1];
    f->top = (c->filter->dims[0] - 1) * c->dilation[0] - c->top;
    f->left = (c->filter->dims[1] - 1) * c->dilation[1] - c->left;
    p->rows = product_of_dims(dx, 0, 3);
    p->columns = c->group_in;
    p->depth = c->filter->dims[0] * c->filter->dims[1] * c->group_out;
    p->batch = c->groups;
    p->a_batch = p->b_batch = c->group_out;
    p->out_batch = c->group_in;
    p->out_row = dx->dims[3];
    return epilogue_of(s, p);
}

static const char *conv2d_input_grad_refuse(const step *s) {
    conv c;
    product p;
    return conv2d_input_grad_of(s, &c, &p);
}

static bool conv2d_input_grad_prepare(step *s, pool *pool) {
    static const int64_t one[2] = {1, 1};
    conv c;
    product *p = pool_take(pool, sizeof *p);
    if (!p) return false;
    conv2d_input_grad_of(s, &c, p);
    if (!take_all_offsets(p, pool)) return false;
    pixel_offsets(&p->frame, s->out, one, p->a.rows);
    tap_offsets(&p->frame, &c, c.group_out, true, p->a.columns);
    const int64_t all = c.filter->dims[3], taps = c.filter->dims[0] * c.filter->dims[1];
    for (int64_t t = 0; t < taps; t++)
        for (int64_t i = 0; i < c.group_out; i++) p->b.rows[t * c.group_out + i] = t * c.group_in * all + i;
    for (int64_t n = 0; n < p->columns; n++) p->b.columns[n] = n * all;
    finish_product(s, p);
    return true;
}

static void conv2d_input_grad_cost(const step *s, work *work) {
    conv c;
    product p;
    if (!conv2d_input_grad_of(s, &c, &p)) product_work(&p, s, work);
}

/* df[(kh,kw,c)][f] = sum over pixels (n,oh,ow). */
static const char *conv2d_filter_grad_of(const step *s, conv *c, product *p) {
    *p = (product){.framed = false, .bias_input = -1, .aux_input = -1};
    const char *why = conv_of(s, s->in[0], s->out, s->in[1], c);
    if (why) return why;
    conv_frame(c, &p->frame);
    p->framed = !frame_is_whole(&p->frame);
    p->rows = c->filter->dims[0] * c->filter->dims[1] * c->group_in;
    p->columns = c->group_out;
    p->depth = product_of_dims(c->y, 0, 3);
    p->batch = c->groups;
    p->a_batch = c->group_in;
    p->b_batch = p->out_batch = c->group_out;
    p->out_row = c->filter->dims[3];
    return p->depth > INT32_MAX ? "it has more pixels than a product's depth can count" : NULL;
}

static const char *conv2d_filter_grad_refuse(const step *s) {
    conv c;
    product p;
    return conv2d_filter_grad_of(s, &c, &p);
}

static bool conv2d_filter_grad_prepare(step *s, pool *pool) {
    conv c;
    product *p = pool_take(pool, sizeof *p);
    if (!p) return false;
    conv2d_filter_grad_of(s, &c, p);
    if (!take_all_offsets(p, pool)) return false;
    tap_offsets(&p->frame, &c, c.group_in, false, p->a.rows);
    pixel_offsets(&p->frame, c.y, c.stride, p->a.columns);
    for (int64_t k = 0; k < p->depth; k++) p->b.rows[k] = k * c.y->dims[3];
    for (int64_t n = 0; n < p->columns; n++) p->b.columns[n] = n;
    finish_product(s, p);
    return true;
}

static void conv2d_filter_grad_cost(const step *s, work *work) {
    conv c;
    product p;
    if (!conv2d_filter_grad_of(s, &c, &p)) product_work(&p, s, work);
}
