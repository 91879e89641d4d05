/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the launches that must wait for earlier ones. A launch needs a barrier if, since the last barrier, an earlier
 * launch wrote bytes that it reads (read after write), or read (write after read) or wrote (write after write) bytes
 * that it writes. Ranges are tracked by arena and byte, so launches that use different parts of one arena can overlap.
 * A barrier waits for all earlier launches, so all tracked ranges are then removed. */
#include "backends/kernel/lowering.h"

static bool overlaps(const strata_kernel_range *ranges, int n, const strata_kernel_range *range) {
    if (range->begin >= range->end) return false;
    for (int i = 0; i < n; i++)
        if (ranges[i].arena == range->arena && ranges[i].begin < range->end && range->begin < ranges[i].end) return true;
    return false;
}

static strata_status append(strata_kernel_range **ranges, int *n, int64_t *capacity, const strata_kernel_range *range,
                            strata_error *err) {
    if (!strata_make_room(ranges, *n, capacity, sizeof **ranges))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no memory for %d byte ranges", *n);
    (*ranges)[(*n)++] = *range;
    return STRATA_OK;
}

strata_status strata_hazards_add(strata_hazards *hazards, const strata_kernel_range *ranges, int n, unsigned writes,
                                 bool *out_barrier, strata_error *err) {
    bool barrier = false;
    for (int i = 0; i < n && !barrier; i++) {
        bool written = writes >> i & 1u;
        barrier = overlaps(hazards->writes, hazards->n_writes, &ranges[i]) ||
                  (written && overlaps(hazards->reads, hazards->n_reads, &ranges[i]));
    }
    if (barrier) hazards->n_reads = hazards->n_writes = 0;
    for (int i = 0; i < n; i++) {
        if (ranges[i].begin >= ranges[i].end) continue;
        if (writes >> i & 1u)
            STRATA_TRY(append(&hazards->writes, &hazards->n_writes, &hazards->writes_capacity, &ranges[i], err));
        else
            STRATA_TRY(append(&hazards->reads, &hazards->n_reads, &hazards->reads_capacity, &ranges[i], err));
    }
    *out_barrier = barrier;
    return STRATA_OK;
}

void strata_hazards_finish(strata_hazards *hazards) {
    free(hazards->reads);
    free(hazards->writes);
    *hazards = (strata_hazards){0};
}
