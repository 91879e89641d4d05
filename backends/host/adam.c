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

/* Numbers below the least normal one become 0: averages of gradients that have stopped would become such numbers, with which
 * many processors compute a hundred times more slowly. */
static inline __attribute__((always_inline)) float flushed(float v) {
    return fabsf(v) < FLT_MIN ? 0 : v;
}

#define ADAM(name, attributes)                                                                           \
    attributes static void name(adam_numbers a, float *restrict p, float *restrict m, float *restrict v, \
                                const float *restrict g, int64_t n) {                                    \
        for (int64_t i = 0; i < n; i++) {                                                                \
            m[i] = flushed(m[i] + a.rate_1 * (g[i] - m[i]));                                             \
            v[i] = flushed(v[i] + a.rate_2 * (g[i] * g[i] - v[i]));                                      \
            p[i] = (p[i] - a.shrink * p[i]) - a.rate * m[i] / (sqrtf(v[i]) + a.epsilon);                 \
        }                                                                                                \
    }
#if defined(__x86_64__)
ADAM(adam_avx2, __attribute__((target("avx2"))))
#endif
ADAM(adam_portable, )

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
    void (*run)(adam_numbers, float *, float *, float *, const float *, int64_t) = adam_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) run = adam_avx2;
#endif
    float *p = call->output, *m = (float *)call->inputs[M], *v = (float *)call->inputs[V]; /* variables, changed in place */
    const float *g = call->inputs[GRADIENTS];
    if (host->rows) {
        const int64_t size = host->rows->row;
        for (int64_t at = 0, row = 0, n; (n = strata_host_next_rows(host->rows, &at, &row)); at += n)
            run(numbers, p + row * size, m + row * size, v + row * size, g + at * size, n * size);
        return;
    }
    const host_share share = strata_host_share(host, strata_shape_elements(call->node->inputs[GRADIENTS]->shape), 16);
    run(numbers, p + share.first, m + share.first, v + share.first, g + share.first, share.end - share.first);
}
