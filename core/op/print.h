/* SPDX-License-Identifier: Apache-2.0
 *
 * The attributes of the op print, for the executable that shows the values. */
#ifndef STRATA_CORE_OP_PRINT_H
#define STRATA_CORE_OP_PRINT_H

#include "core/graph/graph.h"
#include "strata/ops.h"

enum { STRATA_DEFAULT_PRINTED = 3 };

typedef struct strata_print_attrs {
    /* The value is shown in the runs 0, every, 2 every, ...; 1 or more. */
    int64_t every;
    /* How many elements are listed: at most STRATA_MAX_PRINTED. */
    int64_t first;
    /* The name that is printed; memory of the graph. The node's own name may change after the node was built. */
    const char *label;
} strata_print_attrs;

#endif
