/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling over windows of images (N,H,W,C), on the vector unit, which processes all channels of a pixel at a time. Padding is
 * not part of a maximum or a mean. */
#include "helpers.h"

typedef struct pool_sizes {
    int64_t n, in_h, in_w, out_h, out_w, c, size[2], stride[2], top, left;
} pool_sizes;

/* Reads the sizes, where x is the image and y the pooled image. Returns NULL, or what does not fit. */
static const char *pool_sizes_of(const step *s, const array *x, const array *y, pool_sizes *p) {
    int64_t padding[4] = {0};
    if (x->rank != 4 || y->rank != 4) return "its operands are not images";
    *p = (pool_sizes){x->dims[0], x->dims[1], x->dims[2], y->dims[1], y->dims[2], x->dims[3], {1, 1}, {1, 1}, 0, 0};
    attribute_ints(s, "size", p->size, 2);
    attribute_ints(s, "stride", p->stride, 2);
    attribute_ints(s, "padding", padding, 4);
    p->top = padding[0];
    p->left = padding[2];
    if (y->dims[0] != p->n || y->dims[3] != p->c) return "its operands do not fit each other";
    for (int d = 0; d < 2; d++) {
        const int64_t room = x->dims[1 + d] + padding[2 * d] + padding[2 * d + 1] - p->size[d];
        if (p->size[d] < 1 || p->stride[d] < 1 || padding[2 * d] < 0 || padding[2 * d + 1] < 0 ||
            padding[2 * d] >= p->size[d] || padding[2 * d + 1] >= p->size[d] || room < 0 ||
            room / p->stride[d] + 1 != y->dims[1 + d])
            return "its window does not fit its images";
    }
    return NULL;
}

/* The part of the window for output (oh, ow) that is inside of the image. */
typedef struct patch {
    int64_t first_h, end_h, first_w, end_w;
} patch;

static patch patch_of(const pool_sizes *p, int64_t oh, int64_t ow) {
    const int64_t h = oh * p->stride[0] - p->top, w = ow * p->stride[1] - p->left;
    return (patch){h < 0 ? 0 : h, h + p->size[0] < p->in_h ? h + p->size[0] : p->in_h, w < 0 ? 0 : w,
                   w + p->size[1] < p->in_w ? w + p->size[1] : p->in_w};
}

/* ---- max ---- */

/* Finds for each channel the largest element of a patch and its place, which is the index of a pixel in the patch. Of equal
 * elements the first one counts; NaN is larger than all numbers. */
static void largest_of(const pool_sizes *p, const patch *at, const float *image, float *best, int32_t *place) {
    int32_t number = 0;
    for (int64_t h = at->first_h; h < at->end_h; h++)
        for (int64_t w = at->first_w; w < at->end_w; w++, number++) {
            const float *x = image + (h * p->in_w + w) * p->c;
            for (int64_t c = 0; c < p->c; c++) {
                const bool takes = number == 0 || (best[c] == best[c] && !(x[c] <= best[c]));
                place[c] = takes ? number : place[c];
                best[c] = takes ? x[c] : best[c];
            }
        }
}

static const char *max_pool_refuse(const step *s) {
    pool_sizes p;
    if (s->n_inputs > 1 && (!same_shape(s->in[0], s->in[1]) || s->in[1]->dtype != s->in[0]->dtype))
        return "its operands are not alike";
    if (s->out->dtype != s->in[0]->dtype) return "its result is not of its operand's dtype";
    return pool_sizes_of(s, s->in[0], s->out, &p);
}

static bool max_pool_prepare(step *s, pool *pool) {
    (void)pool;
    s->scratch_bytes = last_dim(s->in[0]) * (int64_t)(sizeof(float) + sizeof(int32_t));
    return true;
}

static void max_pool_cost(const step *s, work *work) {
    int64_t size[2] = {1, 1};
    attribute_ints(s, "size", size, 2);
    const array *y = !strcmp(s->op->name, "max_pool2d") ? s->out : s->in[1];
    work->vector_ops = (double)y->n * (double)(size[0] * size[1]) * (y == s->out ? 1 : 3);
}

static void max_pool2d_run(const call *call) {
    const step *s = call->step;
    pool_sizes p;
    if (pool_sizes_of(s, s->in[0], s->out, &p)) return;
    float *best = call->scratch, *y = call->out;
    int32_t *place = (int32_t *)(best + p.c);
    for (int64_t n = 0; n < p.n; n++) {
        const float *image = (const float *)call->in[0] + n * p.in_h * p.in_w * p.c;
        for (int64_t oh = 0; oh < p.out_h; oh++)
            for (int64_t ow = 0; ow < p.out_w; ow++, y += p.c) {
                const patch at = patch_of(&p, oh, ow);
                largest_of(&p, &at, image, s->n_inputs > 1 ? best : y, place);
                if (s->n_inputs < 2) continue;
                const float *v = (const float *)call->in[1] + n * p.in_h * p.in_w * p.c;
                const int64_t wide = at.end_w - at.first_w;
                for (int64_t c = 0; c < p.c; c++)
                    y[c] = v[((at.first_h + place[c] / wide) * p.in_w + at.first_w + place[c] % wide) * p.c + c];
            }
    }
}

static const char *max_pool_grad_refuse(const step *s) {
    pool_sizes p;
    if (!same_shape(s->in[0], s->out) || s->out->dtype != s->in[0]->dtype || s->in[1]->dtype != s->in[0]->dtype)
        return "its result is not like its operand";
    return pool_sizes_of(s, s->in[0], s->in[1], &p);
}

static void max_pool2d_grad_run(const call *call) {
    const step *s = call->step;
    const bool rectified = attribute_int(s, "rectified", 0) != 0;
    pool_sizes p;
    if (pool_sizes_of(s, s->in[0], s->in[1], &p)) return;
    float *best = call->scratch;
    const float *dy = call->in[1];
    int32_t *place = (int32_t *)(best + p.c);
    memset(call->out, 0, (size_t)s->out->n * sizeof(float));
    for (int64_t n = 0; n < p.n; n++) {
        const int64_t first = n * p.in_h * p.in_w * p.c;
        for (int64_t oh = 0; oh < p.out_h; oh++)
            for (int64_t ow = 0; ow < p.out_w; ow++, dy += p.c) {
                const patch at = patch_of(&p, oh, ow);
                int32_t number = 0;
                largest_of(&p, &at, (const float *)call->in[0] + first, best, place);
                for (int64_t c = 0; c < p.c && rectified; c++) place[c] = best[c] > 0 ? place[c] : -1;
                for (int64_t h = at.first_h; h < at.end_h; h++)
                    for (int64_t w = at.first_w; w < at.end_w; w++, number++) {
                        float *dx = (float *)call->out + first + (h * p.in_w + w) * p.c;
                        for (int64_t c = 0; c < p.c; c++) dx[c] += place[c] == number ? dy[c] : 0;
                    }
            }
    }
}

/* ---- average ---- */

static const char *avg_pool_refuse(const step *s) {
    pool_sizes p;
    return s->out->dtype != s->in[0]->dtype ? "its result is not of its operand's dtype"
                                            : pool_sizes_of(s, s->in[0], s->out, &p);
}

static const char *avg_pool_grad_refuse(const step *s) {
    pool_sizes p;
    return s->out->dtype != s->in[0]->dtype ? "its result is not of its operand's dtype"
                                            : pool_sizes_of(s, s->out, s->in[0], &p);
}

static void avg_pool_cost(const step *s, work *work) {
    int64_t size[2] = {1, 1};
    attribute_ints(s, "size", size, 2);
    const double smaller = (double)(s->out->n < s->in[0]->n ? s->out->n : s->in[0]->n);
    work->vector_ops = smaller * (double)(size[0] * size[1]);
}

/* Writes the means of x to y or, with `share`, adds to each pixel of x its share of y. */
static void average(const pool_sizes *p, float *x, float *y, bool share) {
    for (int64_t n = 0; n < p->n; n++) {
        float *image = x + n * p->in_h * p->in_w * p->c;
        for (int64_t oh = 0; oh < p->out_h; oh++)
            for (int64_t ow = 0; ow < p->out_w; ow++, y += p->c) {
                const patch at = patch_of(p, oh, ow);
                const float count = (float)((at.end_h - at.first_h) * (at.end_w - at.first_w));
                for (int64_t c = 0; c < p->c && !share; c++) y[c] = 0;
                for (int64_t h = at.first_h; h < at.end_h; h++)
                    for (int64_t w = at.first_w; w < at.end_w; w++) {
                        float *pixel = image + (h * p->in_w + w) * p->c;
                        if (share)
                            for (int64_t c = 0; c < p->c; c++) pixel[c] += y[c] / count;
                        else
                            for (int64_t c = 0; c < p->c; c++) y[c] += pixel[c];
                    }
                for (int64_t c = 0; c < p->c && !share; c++) y[c] /= count;
            }
    }
}

static void avg_pool2d_run(const call *call) {
    pool_sizes p;
    if (!pool_sizes_of(call->step, call->step->in[0], call->step->out, &p)) average(&p, (float *)call->in[0], call->out, false);
}

static void avg_pool2d_grad_run(const call *call) {
    pool_sizes p;
    if (pool_sizes_of(call->step, call->step->out, call->step->in[0], &p)) return;
    memset(call->out, 0, (size_t)call->step->out->n * sizeof(float));
    average(&p, call->out, (float *)call->in[0], true);
}
