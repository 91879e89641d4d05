/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the host that is freed together: the arrays of an object, or of one call. */
#ifndef STRATA_STRATEGIES_MEMORY_H
#define STRATA_STRATEGIES_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0}: empty. */
typedef struct strata_memory {
    struct strata_memory_block *blocks;
    /* An allocation has failed, so the caller fails with OUT_OF_MEMORY. */
    bool failed;
} strata_memory;

/* Returns n elements of `bytes` each, all zeros and aligned for any type; n may be 0. NULL if there is no memory. */
void *strata_memory_take(strata_memory *memory, int64_t n, size_t bytes);
void strata_memory_free(strata_memory *memory);

#endif
