/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication between replicas, for those who place it and those who carry it out. One op: each replica gives a value or does not, and takes
 * the fold of those given or does not.
 *
 *   all_reduce   all give, all take (strata_all_reduce, strata/ops.h)
 *   reduce       all give, some take
 *   broadcast    one gives, others take */
#ifndef STRATA_CORE_OP_ALL_REDUCE_H
#define STRATA_CORE_OP_ALL_REDUCE_H

#include "core/graph.h"
#include "strata/ops.h"

typedef struct strata_all_reduce_attrs {
    int64_t reduction; /* strata_reduction */
    bool takes;        /* else the node is empty: its shape is (0) */
    strata_dtype dtype;
    strata_shape shape; /* of what travels */
} strata_all_reduce_attrs;

/* A replica's part: gives x (NULL: nothing) of that dtype and shape. An empty node is kept alive as an update of the executable. */
strata_tensor *strata_exchange(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape shape,
                               strata_reduction reduction, bool takes);

#endif
