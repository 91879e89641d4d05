/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is freed together: all of a graph, the arrays of an object, or those of one call. */
#ifndef STRATA_BASE_MEMORY_H
#define STRATA_BASE_MEMORY_H

#include "core/base/alloc.h"

/* {0}: empty. */
typedef struct strata_memory {
    struct strata_memory_block *blocks;
    /* An allocation has failed, so the caller fails with OUT_OF_MEMORY. */
    bool failed;
} strata_memory;

/* Returns n elements of `bytes` each, all zeros and aligned for any type and for vectors; n may be 0. NULL if there is no
 * memory. */
void *strata_memory_take(strata_memory *memory, int64_t n, size_t bytes);
/* Sets the pointer to n new elements; a status. The rest is the message of OUT_OF_MEMORY. */
#define STRATA_TAKE(memory, pointer, n, err, ...)                                \
    (((pointer) = strata_memory_take(memory, n, sizeof(*(pointer)))) ? STRATA_OK \
                                                                     : strata_fail(err, STRATA_OUT_OF_MEMORY, __VA_ARGS__))
/* Returns a copy; NULL if there is no memory. */
void *strata_memory_copy(strata_memory *memory, const void *from, size_t bytes);
void strata_memory_free(strata_memory *memory);

#endif
