/* SPDX-License-Identifier: Apache-2.0
 *
 * host: one pass over all operands, added in replica order (core/run/fold.h). */
#include "core/run/cross_device.h"
#include "core/run/fold.h"

static strata_status reduce(void *plan, strata_dtype dtype, strata_reduction reduction, const void *const *operands,
                            int n_operands, int64_t elements, void *const *results, int n_results, strata_error *err) {
    (void)plan, (void)err;
    strata_fold(dtype, reduction, operands, n_operands, elements, results, n_results);
    return STRATA_OK;
}

const strata_cross_device_ops strata_cross_device_host = {.name = "host", .reduce = reduce};
