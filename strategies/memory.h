/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the host that is freed together: the arrays of an object, or of one call. */
#ifndef STRATA_STRATEGIES_MEMORY_H
#define STRATA_STRATEGIES_MEMORY_H

#include "core/base/alloc.h"
#include "strata/cluster.h"

/* {0}: empty. */
typedef struct strata_memory {
    struct strata_memory_block *blocks;
    /* An allocation has failed, so the caller fails with OUT_OF_MEMORY. */
    bool failed;
} strata_memory;

/* Returns n elements of `bytes` each, all zeros and aligned for any type; n may be 0. NULL if there is no memory. */
void *strata_memory_take(strata_memory *memory, int64_t n, size_t bytes);
/* Returns a copy; NULL if there is no memory. */
void *strata_memory_copy(strata_memory *memory, const void *from, size_t bytes);
/* Copies the options of connections, with texts and secret, so that they can be used after the caller's are gone. from NULL:
 * all are the defaults. Fails: OUT_OF_MEMORY; INVALID for secret_bytes without a secret. */
STRATA_MUST_USE strata_status strata_memory_copy_cluster(strata_memory *memory, const strata_communicator_options *from,
                                                         strata_communicator_options *out, strata_error *err);
void strata_memory_finish(strata_memory *memory);

#endif
