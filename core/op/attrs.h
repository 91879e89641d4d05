/* SPDX-License-Identifier: Apache-2.0
 *
 * The attributes of ops which the memory plan, backends and exchange formats read. */
#ifndef STRATA_CORE_OP_ATTRS_H
#define STRATA_CORE_OP_ATTRS_H

#include "core/graph/graph.h"

/* ---- reshape ---- */

/* A view of x with the same shape. No pass merges the nodes that read it with those that read x. */
strata_tensor *strata_alias(strata_tensor *x);

/* ---- slice ---- */

typedef struct strata_slice_attrs {
    int64_t begin[STRATA_MAX_RANK], size[STRATA_MAX_RANK];
} strata_slice_attrs;

/* Whether the slice is one range of consecutive elements of its operand, that is, whether all axes before the last axis that is
 * not taken completely have size 1. *out_first_element: the first element of the range. `node` is a slice. */
bool strata_slice_is_view(const strata_tensor *node, int64_t *out_first_element);

/* ---- pack ---- */

typedef struct strata_pack_attrs {
    /* The element of the output at which each operand begins; n_inputs entries, in the graph's memory. */
    const int64_t *offsets;
    /* The number of elements of the output. */
    int64_t size;
} strata_pack_attrs;

/* ---- print ---- */

enum { STRATA_DEFAULT_PRINTED = 3 };

typedef struct strata_print_attrs {
    /* The value is shown in the runs 0, every, 2 every, ...; 1 or more. */
    int64_t every;
    /* How many elements are listed: at most STRATA_MAX_PRINTED. */
    int64_t first;
    /* The name that is printed; memory of the graph. The node's own name may change after the node was built. */
    const char *label;
} strata_print_attrs;

/* ---- fma_chain ---- */

/* A step is y = fma(y, FACTOR, TERM). It moves every y towards 1, so y never overflows or becomes denormal. The kernels
 * in shaders/ have the same two constants. */
#define STRATA_FMA_CHAIN_FACTOR 0.999f
#define STRATA_FMA_CHAIN_TERM   0.001f

typedef struct strata_fma_chain_attrs {
    int64_t steps;
} strata_fma_chain_attrs;

#endif
