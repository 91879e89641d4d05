/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of options of connections, in memory that is freed together. */
#ifndef STRATA_STRATEGIES_MEMORY_H
#define STRATA_STRATEGIES_MEMORY_H

#include "core/base/memory.h"
#include "strata/cluster.h"

/* Copies the options of connections, with texts and secret, so that they can be used after the caller's are gone. from NULL:
 * all are the defaults. Fails: OUT_OF_MEMORY; INVALID for secret_bytes without a secret. */
STRATA_MUST_USE strata_status strata_memory_copy_cluster(strata_memory *memory, const strata_communicator_options *from,
                                                         strata_communicator_options *out, strata_error *err);

#endif
