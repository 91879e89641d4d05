/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements axes.h: views of a shape as (outer, n, inner), and launches of the kernels that reduce along axes. */
#include "core/op/axes.h"

#include <limits.h>

#include "core/op/define.h"

strata_axes strata_axes_of(strata_shape shape, int64_t first, int64_t count) {
    strata_axes axes = {1, 1, 1};
    for (int i = 0; i < shape.rank; i++) {
        int64_t *part = i < first ? &axes.outer : i < first + count ? &axes.n : &axes.inner;
        *part *= shape.dims[i];
    }
    return axes;
}

int64_t strata_run_groups(int64_t columns) {
    enum { COLUMNS = STRATA_RUN_ITEMS / STRATA_RUNS };
    return columns / COLUMNS + (columns % COLUMNS != 0);
}

void strata_launch_turns(strata_launch *launch, double turns) {
    launch->turns = turns < INT_MAX ? (int)turns : INT_MAX;
}

double strata_lane_turns(int64_t n) {
    enum { FOLD_TURNS = 64 };
    return (double)n / STRATA_LAUNCH_SOFTWARE_LOCAL + FOLD_TURNS;
}

strata_status strata_launch_rows(strata_launch *launch, int64_t rows, int64_t n, int64_t inner, int passes, strata_error *err) {
    enum { SHORT_ROW = 32, MOST_ITEMS = 256 };
    const int64_t most_elements = INT64_C(1) << 31; /* kernels count in 32 bits */
    bool tree = inner == 1 && n > SHORT_ROW;
    if (n > most_elements || rows > most_elements / (n ? n : 1))
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%" PRId64 " rows of %" PRId64 " elements; kernels take at most %" PRId64 " elements at a time",
                           rows, n, most_elements);
    strata_launch_word(launch)->u32 = (uint32_t)rows;
    strata_launch_word(launch)->u32 = (uint32_t)n;
    strata_launch_constant_add(launch, "TREE", tree);
    launch->global[0] = tree ? rows * MOST_ITEMS : rows;
    launch->grid_stride = true;
    strata_launch_turns(launch, passes * (tree ? strata_lane_turns(n) : (double)n + 2));
    return STRATA_OK;
}
