/* SPDX-License-Identifier: Apache-2.0
 *
 * f32 pools on the host: windows are computed one after the other, with all channels of a tap at once, so that the compiler
 * vectorizes the loop. Sums are computed in the same order as in the kernels. */
#include "core/op/pool2d.h"

#include <math.h>

#include "backends/host/host.h"
#include "core/op/ops.h"

/* The window of one output: its rows and columns of x. Each pixel is a run of size.c channels. */
typedef struct place {
    const strata_window *window;
    strata_pool2d_sizes size;
    int64_t n, oh, ow;
    int64_t first_h, end_h, first_w, end_w; /* rows and columns of x */
} place;

static place place_begin(const strata_tensor *node, const strata_tensor *x) {
    const strata_window *window = &((const strata_pool2d_attrs *)node->attrs)->window;
    return (place){.window = window, .size = strata_pool2d_sizes_of(window, x->shape)};
}

static void set_window(place *p) {
    int64_t at;
    strata_window_taps(p->window, 0, p->oh, p->size.in_h, &p->first_h, &p->end_h, &at);
    p->first_h += at, p->end_h += at;
    strata_window_taps(p->window, 1, p->ow, p->size.in_w, &p->first_w, &p->end_w, &at);
    p->first_w += at, p->end_w += at;
}

#define EACH_OUTPUT(p)                                      \
    for ((p).n = 0; (p).n < (p).size.n; (p).n++)            \
        for ((p).oh = 0; (p).oh < (p).size.out_h; (p).oh++) \
            for ((p).ow = 0; (p).ow < (p).size.out_w && (set_window(&(p)), true); (p).ow++)
#define EACH_TAP(p, h, w)                             \
    for (int64_t h = (p).first_h; h < (p).end_h; h++) \
        for (int64_t w = (p).first_w; w < (p).end_w; w++)

static int64_t x_at(const place *p, int64_t h, int64_t w) {
    return ((p->n * p->size.in_h + h) * p->size.in_w + w) * p->size.c;
}
static int64_t y_at(const place *p) {
    return ((p->n * p->size.out_h + p->oh) * p->size.out_w + p->ow) * p->size.c;
}

/* Scratch memory: for each channel, the largest value so far and its tap. */
static int64_t max_scratch(const strata_tensor *node) {
    return 2 * node->inputs[0]->shape.dims[3] * (int64_t)sizeof(float);
}

/* Whether v replaces `most`. A NaN replaces a number, and is not replaced. */
static inline bool is_above(float v, float most) {
    return !(most != most) && !(v <= most);
}

/* For each channel c: most[c] is the window's largest value, where[c] the first tap with this value. Taps are numbered
 * in their order. */
static void find_largest(const place *p, const float *x, float *most, int32_t *where) {
    const int64_t n = p->size.c;
    int32_t tap = 0;
    EACH_TAP(*p, h, w) {
        const float *v = x + x_at(p, h, w);
        if (tap == 0) {
            memcpy(most, v, (size_t)n * sizeof(float));
            memset(where, 0, (size_t)n * sizeof(int32_t));
        } else {
            for (int64_t c = 0; c < n; c++) {
                const bool above = is_above(v[c], most[c]);
                most[c] = above ? v[c] : most[c];
                where[c] = above ? tap : where[c];
            }
        }
        tap++;
    }
}

static void max_pool2d(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_tensor *node = call->node;
    place p = place_begin(node, node->inputs[0]);
    const int64_t n = p.size.c;
    float *most = host->scratch;
    int32_t *where = (int32_t *)(most + n);
    EACH_OUTPUT(p) {
        float *y = (float *)call->output + y_at(&p);
        find_largest(&p, call->inputs[0], most, where);
        if (node->n_inputs == 1) {
            memcpy(y, most, (size_t)n * sizeof(float));
            continue;
        }
        int32_t tap = 0;
        EACH_TAP(p, h, w) {
            const float *v = (const float *)call->inputs[1] + x_at(&p, h, w);
            for (int64_t c = 0; c < n; c++) y[c] = where[c] == tap ? v[c] : y[c];
            tap++;
        }
    }
}

static void max_pool2d_grad(const host_call *host) {
    const strata_op_call *call = &host->call;
    const bool rectified = ((const strata_pool2d_attrs *)call->node->attrs)->rectified != 0;
    place p = place_begin(call->node, call->node->inputs[0]);
    const int64_t n = p.size.c, elements = strata_shape_elements(call->node->shape);
    float *most = host->scratch;
    int32_t *where = (int32_t *)(most + n);
    if (elements) memset(call->output, 0, (size_t)elements * sizeof(float));
    EACH_OUTPUT(p) {
        const float *dy = (const float *)call->inputs[1] + y_at(&p);
        int32_t tap = 0;
        find_largest(&p, call->inputs[0], most, where);
        EACH_TAP(p, h, w) {
            float *dx = (float *)call->output + x_at(&p, h, w);
            for (int64_t c = 0; c < n; c++) dx[c] += where[c] == tap && (!rectified || most[c] > 0) ? dy[c] : 0;
            tap++;
        }
    }
}

static float count_of(const place *p) {
    return (float)((p->end_h - p->first_h) * (p->end_w - p->first_w));
}

static void avg_pool2d(const host_call *host) {
    const strata_op_call *call = &host->call;
    place p = place_begin(call->node, call->node->inputs[0]);
    const int64_t n = p.size.c;
    EACH_OUTPUT(p) {
        float *y = (float *)call->output + y_at(&p);
        const float count = count_of(&p);
        for (int64_t c = 0; c < n; c++) y[c] = 0;
        EACH_TAP(p, h, w) {
            const float *x = (const float *)call->inputs[0] + x_at(&p, h, w);
            for (int64_t c = 0; c < n; c++) y[c] += x[c];
        }
        for (int64_t c = 0; c < n; c++) y[c] /= count;
    }
}

static void avg_pool2d_grad(const host_call *host) {
    const strata_op_call *call = &host->call;
    place p = place_begin(call->node, call->node);
    const int64_t n = p.size.c, elements = strata_shape_elements(call->node->shape);
    if (elements) memset(call->output, 0, (size_t)elements * sizeof(float));
    EACH_OUTPUT(p) {
        const float *dy = (const float *)call->inputs[0] + y_at(&p);
        const float count = count_of(&p);
        EACH_TAP(p, h, w) {
            float *dx = (float *)call->output + x_at(&p, h, w);
            for (int64_t c = 0; c < n; c++) dx[c] += dy[c] / count;
        }
    }
}

const host_fast_op strata_host_pools[] = {{&strata_op_max_pool2d, strata_host_is_f32, max_scratch, max_pool2d, NULL},
                                          {&strata_op_max_pool2d_grad, strata_host_is_f32, max_scratch, max_pool2d_grad, NULL},
                                          {&strata_op_avg_pool2d, strata_host_is_f32, NULL, avg_pool2d, NULL},
                                          {&strata_op_avg_pool2d_grad, strata_host_is_f32, NULL, avg_pool2d_grad, NULL},
                                          {0}};
