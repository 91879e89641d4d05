/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of arrays, and random placements (parts.h). */
#include "tests/support/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"

strata_array strata_test_part_of(const strata_mesh *mesh, const strata_placement *placement, const strata_array *whole,
                                 int device) {
    strata_array part;
    int64_t begin[STRATA_MAX_RANK];
    const size_t bytes = strata_dtype_bytes(whole->dtype);
    const strata_shape shape = strata_placement_part(mesh, placement, whole->shape, device, begin);
    if (strata_array_create(whole->dtype, shape, &part, NULL)) abort();
    for (int64_t e = 0; e < strata_shape_elements(shape); e++) {
        int64_t at = 0, rest = e, index[STRATA_MAX_RANK];
        for (int d = shape.rank - 1; d >= 0; rest /= shape.dims[d--]) index[d] = begin[d] + rest % shape.dims[d];
        for (int d = 0; d < shape.rank; d++) at = at * whole->shape.dims[d] + index[d];
        memcpy((char *)part.data + (size_t)e * bytes, (const char *)whole->data + (size_t)at * bytes, bytes);
    }
    return part;
}

void strata_test_lengths_finish(strata_test_lengths *lengths) {
    for (int i = 0; i < lengths->n; i++) free(lengths->blocks[i]);
    lengths->n = 0;
}

strata_mesh strata_test_random_mesh(int most, uint64_t *state) {
    static const char *const names[] = {"data", "tensor", "stage"};
    strata_mesh mesh = {0};
    const int n_axes = 1 + (int)(strata_test_next(state) % 3);
    for (int a = 0, n = 1; a < n_axes; a++) {
        const int size = 2 + (strata_test_next(state) % 4 == 0);
        if (n * size > most) break;
        n *= size;
        snprintf(mesh.axes[a].name, sizeof mesh.axes[a].name, "%s", names[a]);
        mesh.axes[mesh.n_axes++].size = size;
    }
    return mesh;
}

strata_placement strata_test_random_placement(const strata_mesh *mesh, strata_shape shape, uint64_t *state,
                                              strata_test_lengths *lengths) {
    strata_placement placement = {0};
    for (int k = 0; k < mesh->n_axes && shape.rank; k++) {
        strata_dim_split *split = &placement.dims[strata_test_next(state) % (uint64_t)shape.rank];
        if (strata_test_next(state) % 4) split->axes[split->n_axes++] = k;
    }
    for (int k = 0; k < mesh->n_axes; k++) {
        bool used = false;
        for (int d = 0; d < shape.rank; d++)
            for (int i = 0; i < placement.dims[d].n_axes; i++) used |= placement.dims[d].axes[i] == k;
        const uint64_t draw = strata_test_next(state);
        if (!used && draw % 3 == 0)
            placement = strata_placement_at(placement, k, (int)(draw / 3 % (uint64_t)mesh->axes[k].size));
    }
    for (int d = 0; d < shape.rank; d++) {
        strata_dim_split *split = &placement.dims[d];
        const int n = strata_dim_split_n_pieces(mesh, split);
        if (!split->n_axes) continue;
        int64_t *own = calloc((size_t)n, sizeof *own);
        if (!own || lengths->n == (int)(sizeof lengths->blocks / sizeof *lengths->blocks)) abort();
        lengths->blocks[lengths->n++] = own;
        if (strata_test_next(state) % 2)
            for (int64_t i = 0; i < shape.dims[d]; i++) own[strata_test_next(state) % (uint64_t)n]++;
        else
            for (int64_t i = 0; i < shape.dims[d]; i++) own[i * n / shape.dims[d]]++;
        split->lengths = own;
    }
    return placement;
}
