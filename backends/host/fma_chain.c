/* SPDX-License-Identifier: Apache-2.0
 *
 * fma_chain on the host: computes multiply-adds at the highest rate of a core, with which the products of matmul.c are
 * compared. Vectors stay in registers. The loop is compiled for three instruction sets, and the best one that the processor has
 * is used. */
#include "backends/host/host.h"
#include "core/op/attrs.h"
#include "core/op/ops.h"

/* A loop that advances a block of `elements` numbers at a time. */
typedef struct chain_loop {
    int64_t elements;
    void (*run)(float *v, int64_t steps);
} chain_loop;

enum { MOST_ELEMENTS = 24 * 16 };

/* run_<name>: advances `chains` vectors of `lanes` floats at v, each in a register of that size. */
#define CHAINS(name, chains, lanes, attributes)                                  \
    typedef float name##_vector __attribute__((vector_size(lanes * 4)));         \
    attributes static void run_##name(float *v, int64_t steps) {                 \
        name##_vector value[chains];                                             \
        memcpy(value, v, sizeof value);                                          \
        for (int64_t s = 0; s < steps; s++) {                                    \
            _Pragma("GCC unroll 24") for (int c = 0; c < chains; c++) value[c] = \
                value[c] * STRATA_FMA_CHAIN_FACTOR + STRATA_FMA_CHAIN_TERM;      \
        }                                                                        \
        memcpy(v, value, sizeof value);                                          \
    }
#if defined(__x86_64__)
CHAINS(avx512, 24, 16, __attribute__((target("avx512f,fma"))))
CHAINS(avx2, 12, 8, __attribute__((target("avx2,fma"))))
#endif
CHAINS(portable, 12, 4, )

static chain_loop choose_loop(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (chain_loop){24 * 16, run_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return (chain_loop){12 * 8, run_avx2};
#endif
    return (chain_loop){12 * 4, run_portable};
}

static void fma_chain(const host_call *host) {
    const strata_op_call *call = &host->call;
    const strata_fma_chain_attrs *attrs = call->node->attrs;
    const int64_t n = strata_shape_elements(call->node->shape);
    const chain_loop loop = choose_loop();
    const float *x = call->inputs[0];
    float *y = call->output;
    float block[MOST_ELEMENTS] __attribute__((aligned(64)));
    for (int64_t at = 0; at < n; at += loop.elements) {
        int64_t count = n - at < loop.elements ? n - at : loop.elements;
        memset(block, 0, sizeof block);
        memcpy(block, x + at, (size_t)count * sizeof(float));
        loop.run(block, attrs->steps);
        memcpy(y + at, block, (size_t)count * sizeof(float));
    }
}

const host_fast_op strata_host_fma_chains[] = {{&strata_op_fma_chain, strata_host_is_f32, NULL, fma_chain, NULL}, {0}};
