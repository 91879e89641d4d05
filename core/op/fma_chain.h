/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes and formula of fma_chain, for the backends that implement it with a loop of their own. */
#ifndef STRATA_CORE_OP_FMA_CHAIN_H
#define STRATA_CORE_OP_FMA_CHAIN_H

#include <stdint.h>

/* A step is y = fma(y, FACTOR, TERM). It moves every y towards 1, so y never overflows or becomes denormal. The kernels
 * in shaders/ have the same two constants. */
#define STRATA_FMA_CHAIN_FACTOR 0.999f
#define STRATA_FMA_CHAIN_TERM   0.001f

typedef struct strata_fma_chain_attrs {
    int64_t steps;
} strata_fma_chain_attrs;

#endif
