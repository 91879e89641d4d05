/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam and AdamW in f32 on the host: the formulas of shaders/adam.kernel. The bits are the same on each x86 processor: wider
 * vectors change no rounding, and AVX2 alone has no multiply-add. */
#include <float.h>
#include <math.h>

#include "backends/host/host.h"
#include "core/op/update.h"
#include "strata/ops.h"

enum { PARAMETERS, M, V, GRADIENTS, STEP, GATE };

typedef struct adam_numbers {
    float rate, rate_1, rate_2, epsilon, shrink;
} adam_numbers;

/* Subnormal numbers become 0. The averages of gradients that have become 0 would decay to subnormal numbers, with which
 * many processors compute a hundred times more slowly. */
static inline __attribute__((always_inline)) float flushed(float v) {
    return fabsf(v) < FLT_MIN ? 0 : v;
}

static inline __attribute__((always_inline)) void update(adam_numbers a, float *restrict p, float *restrict m,
                                                         float *restrict v, const float *restrict g, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        m[i] = flushed(m[i] + a.rate_1 * (g[i] - m[i]));
        v[i] = flushed(v[i] + a.rate_2 * (g[i] * g[i] - v[i]));
        p[i] = (p[i] - a.shrink * p[i]) - a.rate * m[i] / (sqrtf(v[i]) + a.epsilon);
    }
}

/* Rows with fewer elements are updated together with their neighbours. For longer rows, a loop over each row is faster
 * than one loop over several neighbouring rows, because the processor mispredicts the lengths of such runs of rows. */
enum { LEAST_ROW = 16 };

/* Prefetches the next rows. The processor itself prefetches elements after MOST when it sees that the row is read in order. */
static inline __attribute__((always_inline)) void load(const float *p, const float *m, const float *v, int64_t size) {
    enum { LINE = 16, MOST = 64 };
    for (int64_t k = 0; k < size && k < MOST; k += LINE) {
        __builtin_prefetch(p + k, 1);
        __builtin_prefetch(m + k, 1);
        __builtin_prefetch(v + k, 1);
    }
}

/* p, m and v are whole tables. g: (rows->n, rows->row). */
static inline __attribute__((always_inline)) void update_rows(adam_numbers a, float *p, float *m, float *v, const float *g,
                                                              const host_rows *rows) {
    enum { AHEAD = 8 };
    const int64_t size = rows->row;
    for (int64_t i = 0; i < rows->n; i++) {
        const int64_t row = rows->ids[i], next = i + AHEAD < rows->n ? rows->ids[i + AHEAD] : row;
        if (next >= 0 && next < rows->n_rows) load(p + next * size, m + next * size, v + next * size, size);
        if (row < 0 || row >= rows->n_rows) continue;
        update(a, p + row * size, m + row * size, v + row * size, g + i * size, size);
    }
}

typedef struct adam_loops {
    void (*range)(adam_numbers a, float *p, float *m, float *v, const float *g, int64_t n);
    void (*rows)(adam_numbers a, float *p, float *m, float *v, const float *g, const host_rows *rows);
} adam_loops;

#define ADAM(name, attributes)                                                                                                \
    attributes static void name##_range(adam_numbers a, float *p, float *m, float *v, const float *g, int64_t n) {            \
        update(a, p, m, v, g, n);                                                                                             \
    }                                                                                                                         \
    attributes static void name##_rows(adam_numbers a, float *p, float *m, float *v, const float *g, const host_rows *rows) { \
        update_rows(a, p, m, v, g, rows);                                                                                     \
    }                                                                                                                         \
    static const adam_loops name = {name##_range, name##_rows};
#if defined(__x86_64__)
ADAM(avx2, __attribute__((target("avx2"))))
#endif
ADAM(portable, )

bool strata_host_adam_takes(const strata_tensor *node) {
    return strata_host_is_f32(node);
}

int64_t strata_host_adam_work(const strata_tensor *node) {
    return 2 * strata_shape_elements(node->inputs[GRADIENTS]->shape);
}

void strata_host_adam(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_adam_attrs *attrs = call->node->attrs;
    const float *step = call->inputs[STEP];
    if (!strata_gate_is_open(attrs->has_gate ? call->inputs[GATE] : NULL)) return;
    const adam_numbers numbers = {.rate = step[STRATA_STEP_LEARNING_RATE],
                                  .rate_1 = (float)(1 - attrs->beta1),
                                  .rate_2 = (float)(1 - attrs->beta2),
                                  .epsilon = (float)attrs->epsilon,
                                  .shrink = attrs->decay != 0 ? step[STRATA_STEP_PLAIN_RATE] * (float)attrs->decay : 0};
    const adam_loops *loops = &portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) loops = &avx2;
#endif
    /* The variables are changed in place. */
    float *p = call->output, *m = (float *)call->inputs[M], *v = (float *)call->inputs[V];
    const float *g = call->inputs[GRADIENTS];
    if (host->rows && host->rows->row >= LEAST_ROW) {
        loops->rows(numbers, p, m, v, g, host->rows);
        return;
    }
    if (host->rows) {
        const int64_t size = host->rows->row;
        for (int64_t at = 0, row = 0, n; (n = strata_host_next_rows(host->rows, &at, &row)); at += n)
            loops->range(numbers, p + row * size, m + row * size, v + row * size, g + at * size, n * size);
        return;
    }
    const host_share share = strata_host_share(host, strata_shape_elements(call->node->inputs[GRADIENTS]->shape), 16);
    loops->range(numbers, p + share.first, m + share.first, v + share.first, g + share.first, share.end - share.first);
}
