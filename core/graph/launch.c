/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the launches that an op's function `lower` describes for one node, in order. Backends read the list
 * (backends/kernel). */
#include "core/graph/launch.h"

#include <stdlib.h>

strata_status strata_lowering_add(strata_lowering *lowering, const strata_launch *launch, strata_error *err) {
    if (!launch->global[0]) return STRATA_OK;
    if (lowering->n == lowering->capacity) {
        int capacity = lowering->capacity ? 2 * lowering->capacity : 8;
        strata_launch *launches = realloc(lowering->launches, (size_t)capacity * sizeof *launches);
        if (!launches) return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no memory for %d launches", capacity);
        lowering->launches = launches;
        lowering->capacity = capacity;
    }
    lowering->launches[lowering->n++] = *launch;
    return STRATA_OK;
}

void strata_lowering_scratch(strata_lowering *lowering, int64_t bytes) {
    if (bytes > lowering->scratch_bytes) lowering->scratch_bytes = bytes;
}

void strata_lowering_finish(strata_lowering *lowering) {
    free(lowering->launches);
    lowering->launches = NULL;
    lowering->n = lowering->capacity = 0;
}
