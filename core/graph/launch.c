/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the launches that an op's function `lower` describes for one node, in order (backends read the list), and the index
 * spaces over which they loop. */
#include "core/graph/launch.h"

strata_status strata_lowering_add(strata_lowering *lowering, const strata_launch *launch, strata_error *err) {
    if (!launch->global[0]) return STRATA_OK;
    if (!strata_grow(&lowering->launches, lowering->n, sizeof *lowering->launches))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no memory for %d launches", lowering->n + 1);
    lowering->launches[lowering->n++] = *launch;
    return STRATA_OK;
}

void strata_lowering_scratch(strata_lowering *lowering, int64_t bytes) {
    if (bytes > lowering->scratch_bytes) lowering->scratch_bytes = bytes;
}

void strata_lowering_finish(strata_lowering *lowering) {
    free(lowering->launches);
    lowering->launches = NULL;
    lowering->n = 0;
}

/* ---- index spaces: loops over several tensors that are broadcast, transposed or sliced, with as few axes as possible.
 * References execute the loops on the host, and `lower` functions turn the spaces into the words of a launch ---- */

void strata_broadcast_strides(strata_shape from, strata_shape shape, int64_t *out_strides) {
    int64_t stride = 1;
    for (int d = shape.rank - 1, f = from.rank - 1; d >= 0; d--, f--) {
        out_strides[d] = f >= 0 && from.dims[f] != 1 ? stride : 0;
        if (f >= 0) stride *= from.dims[f];
    }
}

/* Whether the two axes can be merged: in each tensor, one step along the outer axis is as far as all steps along the
 * inner axis. */
static bool continues(const strata_strided *space, int outer, int inner) {
    for (int t = 0; t < space->n_tensors; t++)
        if (space->strides[t][outer] != space->strides[t][inner] * space->sizes[inner]) return false;
    return true;
}

static void move_axis(strata_strided *space, int to, int from) {
    space->sizes[to] = space->sizes[from];
    for (int t = 0; t < space->n_tensors; t++) space->strides[t][to] = space->strides[t][from];
}

void strata_strided_merge(strata_strided *space) {
    int rank = 0;
    bool empty = false;
    for (int d = 0; d < space->rank; d++) {
        int64_t size = space->sizes[d];
        if (size == 0) empty = true;
        if (size == 1) continue;
        bool joins = rank > 0 && continues(space, rank - 1, d);
        int64_t before = joins ? space->sizes[rank - 1] : 1;
        if (!joins) rank++;
        move_axis(space, rank - 1, d);
        space->sizes[rank - 1] = before * size;
    }
    if (rank > 0 && !empty) {
        space->rank = rank;
        return;
    }
    /* A single element, or none. */
    space->rank = 1;
    space->sizes[0] = empty ? 0 : 1;
    for (int t = 0; t < space->n_tensors; t++) space->strides[t][0] = 0;
}

/* Sets the next position of the first n_axes axes, the last one fastest, and its offsets. False: there is none. */
static bool advance(const strata_strided *space, int n_axes, int64_t *position, int64_t *offsets) {
    for (int d = n_axes - 1; d >= 0; d--) {
        const int64_t wrap = ++position[d] < space->sizes[d] ? 0 : space->sizes[d];
        for (int t = 0; t < space->n_tensors; t++) offsets[t] += space->strides[t][d] * (1 - wrap);
        if (!wrap) return true;
        position[d] = 0;
    }
    return false;
}

void strata_strided_rows(const strata_strided *space,
                         void (*visit)(const strata_strided *space, const int64_t *offsets, void *user), void *user) {
    int64_t position[STRATA_MAX_RANK] = {0}, offsets[STRATA_STRIDED_TENSORS] = {0};
    for (int d = 0; d < space->rank; d++)
        if (space->sizes[d] == 0) return;
    do visit(space, offsets, user);
    while (advance(space, space->rank - 1, position, offsets));
}

strata_status strata_strided_split(const strata_strided *space,
                                   strata_status (*visit)(const strata_strided *inner, const int64_t *offsets, void *user,
                                                          strata_error *err),
                                   void *user, strata_error *err) {
    enum { INNER = STRATA_STRIDED_KERNEL_AXES };
    strata_strided inner = {.rank = INNER, .n_tensors = space->n_tensors};
    int n_outer = space->rank > INNER ? space->rank - INNER : 0;
    int n_missing = space->rank < INNER ? INNER - space->rank : 0;
    for (int d = 0; d < space->rank; d++)
        if (space->sizes[d] == 0) return STRATA_OK;
    for (int d = 0; d < INNER; d++) {
        inner.sizes[d] = d < n_missing ? 1 : space->sizes[n_outer + d - n_missing];
        for (int t = 0; t < space->n_tensors; t++)
            inner.strides[t][d] = d < n_missing ? 0 : space->strides[t][n_outer + d - n_missing];
    }
    int64_t position[STRATA_MAX_RANK] = {0};
    int64_t offsets[STRATA_STRIDED_TENSORS] = {0};
    for (;;) {
        STRATA_TRY(visit(&inner, offsets, user, err));
        if (!advance(space, n_outer, position, offsets)) return STRATA_OK;
    }
}
