/* SPDX-License-Identifier: Apache-2.0
 *
 * An array seen as (outer, n, inner) around some neighbouring axes, for ops that accumulate along axes (reductions, argmax,
 * softmax and its losses); and the launches of their kernels (shaders/rows.h). */
#ifndef STRATA_CORE_OP_AXES_H
#define STRATA_CORE_OP_AXES_H

#include "core/graph/launch.h"

/* Element (o, i, j) is at (o n + i) inner + j. */
typedef struct strata_axes {
    int64_t outer, n, inner;
} strata_axes;

/* Axes first .. first + count - 1 of the shape become n. count 0: n is 1. */
strata_axes strata_axes_of(strata_shape shape, int64_t first, int64_t count);

/* Sets the words `rows` and `n`, the constant TREE and the grid of a launch that accumulates n elements for each of `rows`
 * results. Long contiguous rows (inner is 1) get a work-group each. This depends only on the shape, because it determines the
 * order of accumulation and so the bits. */
STRATA_MUST_USE strata_status strata_launch_rows(strata_launch *launch, int64_t rows, int64_t n, int64_t inner,
                                                 strata_error *err);

/* Launches that accumulate neighbouring columns in runs (shaders/rows.h): the number of runs, and the work-items of a group. */
enum { STRATA_RUNS = 32, STRATA_RUN_ITEMS = 256 };
int64_t strata_run_groups(int64_t columns);

#endif
