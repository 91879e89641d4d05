/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the dimension that ZeRO divides, and divides it (zero.h). */
#include "core/model/zero.h"

#include <inttypes.h>

#include "core/model/mesh_spec.h"

static int64_t n_pieces(const strata_mesh *mesh, const strata_dim_split *split) {
    return split->n_axes ? strata_dim_split_n_pieces(mesh, split) : 1;
}

/* The length of a piece of a dimension of `size` elements, which may be undivided. */
static int64_t length_of(const strata_dim_split *split, int64_t size, int64_t piece) {
    return split->n_axes ? split->lengths[piece] : size;
}

/* The longest piece of a dimension that is not empty after each was divided by n, relative to the longest before. */
static double share_left(const strata_mesh *mesh, const strata_dim_split *split, int64_t size, int64_t n) {
    int64_t longest = 0;
    for (int64_t p = 0; p < n_pieces(mesh, split); p++)
        if (length_of(split, size, p) > longest) longest = length_of(split, size, p);
    return (double)((longest + n - 1) / n) / (double)longest;
}

/* The dimension that is divided; -1: none becomes shorter. */
static int choose(const strata_mesh *mesh, strata_shape shape, const strata_placement *placement, int64_t n) {
    int best = -1;
    double least = 1;
    for (int d = 0; d < shape.rank; d++) {
        const double left = share_left(mesh, &placement->dims[d], shape.dims[d], n);
        const bool freer = best >= 0 && left == least && placement->dims[best].n_axes && !placement->dims[d].n_axes;
        if (left >= least && !freer) continue;
        best = d;
        least = left;
    }
    return best;
}

/* Divides each piece of a dimension by the size of the axis. */
static strata_status divide(const strata_mesh *mesh, int axis, int64_t size, strata_dim_split *split, strata_memory *memory,
                            strata_error *err) {
    const strata_dim_split before = *split;
    const int64_t n = mesh->axes[axis].size, n_before = n_pieces(mesh, &before);
    int64_t *lengths;
    STRATA_TRY(STRATA_TAKE(memory, lengths, n * n_before, err, "zero: no host memory for %" PRId64 " pieces", n * n_before));
    for (int64_t p = 0; p < n * n_before; p++) {
        const int64_t whole = length_of(&before, size, p / n);
        lengths[p] = whole / n + (p % n < whole % n);
    }
    split->axes[split->n_axes++] = axis;
    split->lengths = lengths;
    return STRATA_OK;
}

static bool divides(const strata_placement *placement, int rank, int axis) {
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < placement->dims[d].n_axes; i++)
            if (placement->dims[d].axes[i] == axis) return true;
    return false;
}

strata_status strata_zero_place(const strata_mesh *mesh, int level, strata_shape shape, const strata_placement *parameter,
                                strata_memory *memory, strata_zero_placements *out_placements, strata_error *err) {
    const int axis = strata_mesh_find(mesh, "data");
    *out_placements = (strata_zero_placements){*parameter, *parameter, *parameter};
    if (level < 0 || level > STRATA_ZERO_MOST_LEVEL)
        return strata_fail(err, STRATA_INVALID,
                           "zero is %d; it must be 1 (slots), 2 (slots and gradients), 3 (also parameters), or 0", level);
    if (level && strata_mesh_size(mesh, "data") == 1)
        return strata_fail(
            err, STRATA_INVALID,
            "zero is %d, which divides over the axis data, but the mesh is %s; give data a size above 1, or leave "
            "zero out",
            level, strata_mesh_text(mesh).text);
    if (!level || strata_shape_elements(shape) < STRATA_ZERO_LEAST_ELEMENTS || divides(parameter, shape.rank, axis))
        return STRATA_OK;
    strata_placement divided = *parameter;
    const int d = choose(mesh, shape, parameter, mesh->axes[axis].size);
    if (d < 0) return STRATA_OK;
    STRATA_TRY(divide(mesh, axis, shape.dims[d], &divided.dims[d], memory, err));
    out_placements->slot = divided;
    if (level > 1) out_placements->gradient = divided;
    if (level > 2) out_placements->parameter = divided;
    return STRATA_OK;
}
