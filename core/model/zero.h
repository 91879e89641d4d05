/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO (Rajbhandari et al. 2020): which part of a parameter's slots, gradient and values each device has, if those that have
 * the same parameter and different examples divide them among themselves. */
#ifndef STRATA_CORE_MODEL_ZERO_H
#define STRATA_CORE_MODEL_ZERO_H

#include "core/base/memory.h"
#include "core/graph/placement.h"

/* Values of fewer elements stay whole: their exchange would cost more than the memory. */
enum { STRATA_ZERO_LEAST_ELEMENTS = 1024, STRATA_ZERO_MOST_LEVEL = 3 };

typedef struct strata_zero_placements {
    strata_placement parameter, gradient, slot;
} strata_zero_placements;

/* Divides what belongs to a parameter over the axis `data`: at level 1 the optimizer's slots, at 2 also the gradient, at 3 also
 * the parameter. The dimension is the one whose longest piece becomes the shortest, relative to its length before: of equal
 * ones the first that `parameter` does not divide, else the first. If `parameter` divides it over other axes, each of their
 * pieces is divided again, so a gather over `data` gives the pieces of `parameter`. A parameter that is already divided over
 * `data` keeps its placement, for all three.
 *   shape      of the whole parameter
 *   parameter  its placement at level 0
 * Fails: INVALID for a level below 0 or above 3, and for a level above 0 where `data` has the size 1; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_zero_place(const strata_mesh *mesh, int level, strata_shape shape,
                                                const strata_placement *parameter, strata_memory *memory,
                                                strata_zero_placements *out_placements, strata_error *err);

#endif
