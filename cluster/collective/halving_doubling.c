/* SPDX-License-Identifier: Apache-2.0
 *
 * Halving-doubling all_reduce, for many ranks and few bytes: 2 ceil(lg P) steps for any number of ranks. The usual recursive
 * halving adds pairs of ranks, so its bits depend on P and on an element's position. Here slices are transferred before they
 * are added (Bruck's all-to-all: step k moves the slices whose distance has bit k by 2^k ranks, S/2 bytes), their owner adds
 * them in rank order, and the sums are returned by doubling. */
#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"

/* Blocks of equal size, [world] each: block i of `blocks` is for the rank i further, and at the end from the rank i before. */
typedef struct halves {
    const strata_operation *op;
    size_t block_bytes;
    char *blocks, *packed, *taken;
} halves;

static void *block_of(char *blocks, const halves *h, int i) {
    return blocks + (size_t)i * h->block_bytes;
}

/* The bytes of slice `rank` of a whole; the last slices may be short or empty. */
static size_t slice_bytes(const halves *h, int rank, size_t *out_first) {
    const size_t whole = h->op->count * h->op->element_bytes, first = (size_t)rank * h->block_bytes;
    *out_first = first;
    return first >= whole ? 0 : whole - first < h->block_bytes ? whole - first : h->block_bytes;
}

static strata_status halve(const halves *h, strata_error *err) {
    const int rank = h->op->comm->rank, world = h->op->comm->world;
    for (int step = 1; step < world; step *= 2) {
        int n = 0;
        for (int i = 0; i < world; i++)
            if (i & step) memcpy(block_of(h->packed, h, n++), block_of(h->blocks, h, i), h->block_bytes);
        STRATA_TRY(strata_shift(h->op, (rank + step) % world, h->packed, (size_t)n * h->block_bytes,
                                (rank + world - step) % world, h->taken, (size_t)n * h->block_bytes, err));
        n = 0;
        for (int i = 0; i < world; i++)
            if (i & step) memcpy(block_of(h->blocks, h, i), block_of(h->taken, h, n++), h->block_bytes);
    }
    return STRATA_OK;
}

/* Before: block 0 has the own sum. After: block i has the sum of the rank that is i further. */
static strata_status double_back(const halves *h, strata_error *err) {
    const int rank = h->op->comm->rank, world = h->op->comm->world;
    for (int step = 1; step < world; step *= 2) {
        const int n = step < world - step ? step : world - step;
        STRATA_TRY(strata_shift(h->op, (rank + world - step) % world, h->blocks, (size_t)n * h->block_bytes,
                                (rank + step) % world, block_of(h->blocks, h, step), (size_t)n * h->block_bytes, err));
    }
    return STRATA_OK;
}

strata_status strata_halving_doubling(const strata_operation *op, strata_error *err) {
    strata_communicator *comm = op->comm;
    const int world = comm->world;
    const size_t block_elements = op->count / (size_t)world + (op->count % (size_t)world != 0);
    halves h = {.op = op, .block_bytes = block_elements * op->element_bytes};
    const size_t whole = (size_t)world * h.block_bytes, list = (size_t)world * sizeof(void *);
    const void **operands = strata_communicator_scratch(comm, list + 3 * whole, err);
    if (!operands) return STRATA_OUT_OF_MEMORY;
    h.blocks = (char *)operands + list;
    h.packed = h.blocks + whole;
    h.taken = h.packed + whole;
    size_t first;
    for (int i = 0; i < world; i++) {
        const size_t n = slice_bytes(&h, (comm->rank + i) % world, &first);
        if (n) memcpy(block_of(h.blocks, &h, i), (const char *)op->in + first, n);
        if (n < h.block_bytes) memset((char *)block_of(h.blocks, &h, i) + n, 0, h.block_bytes - n);
    }
    STRATA_TRY(halve(&h, err));
    for (int r = 0; r < world; r++) operands[r] = block_of(h.blocks, &h, (comm->rank - r + world) % world);
    strata_fold_ranks(op->dtype, op->reducer, operands, world, block_elements, h.blocks);
    STRATA_TRY(double_back(&h, err));
    for (int i = 0; i < world; i++) {
        const size_t n = slice_bytes(&h, (comm->rank + i) % world, &first);
        if (n) memcpy((char *)op->out + first, block_of(h.blocks, &h, i), n);
    }
    return STRATA_OK;
}
