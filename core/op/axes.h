/* SPDX-License-Identifier: Apache-2.0
 *
 * An array seen as (outer, n, inner) around some neighbouring axes, for ops that accumulate along axes (reductions, argmax,
 * softmax and its losses); and the launches of their kernels (shaders/rows.h). */
#ifndef STRATA_CORE_OP_AXES_H
#define STRATA_CORE_OP_AXES_H

#include "core/graph/launch.h"

/* Element (o, i, j) of such an array is at index (o n + i) inner + j. */
typedef struct strata_axes {
    int64_t outer, n, inner;
} strata_axes;

/* Merges the `count` neighbouring axes from `first` on to the axis n. If count is 0, n is 1. */
strata_axes strata_axes_of(strata_shape shape, int64_t first, int64_t count);

/* Sets the words `rows` and `n`, the constant TREE and the grid of a launch that accumulates n elements for each of `rows`
 * results. Long contiguous rows (inner is 1) get a work-group each. This depends only on the shape, because it determines the
 * order of accumulation and so the bits. passes: how often the kernel loops over a row. */
STRATA_MUST_USE strata_status strata_launch_rows(strata_launch *launch, int64_t rows, int64_t n, int64_t inner, int passes,
                                                 strata_error *err);
/* Sets launch->turns to the number, or to INT_MAX if it is larger. */
void strata_launch_turns(strata_launch *launch, double turns);
/* The iterations of one loop of a group's work-item over n elements in 256 lanes (shaders/rows.h), and of the fold of the
 * lanes. */
double strata_lane_turns(int64_t n);

/* Kernels that accumulate columns (inner > 1) divide each column into STRATA_RUNS runs (shaders/rows.h). A work-group has
 * STRATA_RUN_ITEMS work-items and computes STRATA_RUN_ITEMS / STRATA_RUNS neighbouring columns. strata_run_groups returns
 * the number of work-groups. */
enum { STRATA_RUNS = 32, STRATA_RUN_ITEMS = 256 };
int64_t strata_run_groups(int64_t columns);

#endif
