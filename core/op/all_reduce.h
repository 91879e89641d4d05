/* SPDX-License-Identifier: Apache-2.0
 *
 * The attributes of all_reduce, for those who carry it out. */
#ifndef STRATA_CORE_OP_ALL_REDUCE_H
#define STRATA_CORE_OP_ALL_REDUCE_H

#include "core/graph.h"
#include "strata/ops.h"

typedef struct strata_all_reduce_attrs {
    int64_t reduction; /* strata_reduction */
} strata_all_reduce_attrs;

#endif
