/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of arrays, as placements on a mesh divide them, and random placements. */
#ifndef STRATA_TESTS_SUPPORT_PARTS_H
#define STRATA_TESTS_SUPPORT_PARTS_H

#include "core/graph/placement.h"

/* A copy of the device's part. When memory runs out, the test program aborts. The caller finishes it. */
strata_array strata_test_part_of(const strata_mesh *mesh, const strata_placement *placement, const strata_array *whole,
                                 int device);

/* Memory for the lengths of placements, which live as long as it. */
typedef struct strata_test_lengths {
    int64_t *blocks[256];
    int n;
} strata_test_lengths;
void strata_test_lengths_finish(strata_test_lengths *lengths);

/* A mesh of 1 to 3 axes of 2 or 3 devices, with at most `most` devices. */
strata_mesh strata_test_random_mesh(int most, uint64_t *state);
/* A placement in which each axis of the mesh divides one dimension, into random parts of which some are empty, has the value at
 * one coordinate, or has copies. */
strata_placement strata_test_random_placement(const strata_mesh *mesh, strata_shape shape, uint64_t *state,
                                              strata_test_lengths *lengths);

#endif
