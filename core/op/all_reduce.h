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

#include "core/graph/graph.h"
#include "strata/ops.h"

/* What stands in for the fold: operands[i] of the i-th giver, results[i] of the i-th taker, each of the node's shape. Runs on the
 * host, between segments. */
typedef struct strata_merge {
    strata_status (*run)(const struct strata_merge *merge, const void *const *operands, int n_operands, void *const *results,
                         int n_results, strata_error *err);
    void *user;
    strata_dtype dtype;
    strata_shape shape;
} strata_merge;

typedef struct strata_all_reduce_attrs {
    int64_t reduction;         /* strata_reduction */
    int64_t every;             /* in other steps than each such one replicas keep their own values; 0: in all */
    const strata_merge *merge; /* instead of it, borrowed; NULL: none */
    bool takes;                /* else the node is empty: its shape is (0) */
    bool inside;               /* it belongs to what replicas compute: devices that only update have no such node */
    bool copy;                 /* given by a replica without examples too */
    bool gradients;            /* they may travel between workers as the strategy says */
    strata_dtype dtype;
    strata_shape shape; /* of what travels */
} strata_all_reduce_attrs;

/* An all_reduce in steps every - 1, 2 every - 1, ...; in the others each replica's x is its result. */
strata_tensor *strata_exchange_every(strata_tensor *x, strata_reduction reduction, int64_t every);
/* The sum of x over the replicas that compute, in the midst of that. Gradient: the same of dy. */
strata_tensor *strata_exchange_inside(strata_tensor *x);
/* x of every replica through `merge`. */
strata_tensor *strata_exchange_merged(strata_tensor *x, const strata_merge *merge);
/* A replica's part: gives x (NULL: nothing) of that dtype and shape. An empty node is kept alive as an update of the executable. */
strata_tensor *strata_exchange(strata_graph *graph, strata_tensor *x, strata_dtype dtype, strata_shape shape,
                               strata_reduction reduction, bool takes);
/* x, f32 (n), of the one replica of all that gives it (NULL: not this one), to all. */
strata_tensor *strata_exchange_copy(strata_graph *graph, strata_tensor *x, int64_t n);
/* The sum of gradients, f32 (n). */
strata_tensor *strata_exchange_gradients(strata_graph *graph, strata_tensor *x, int64_t n, bool takes);

#endif
