/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring in memory that several processes map. One thread allocates *blocks* from it, and frees them in the same order, when
 * their readers have returned them; readers may return blocks in any order. */
#ifndef STRATA_CLUSTER_MEMORY_RING_H
#define STRATA_CLUSTER_MEMORY_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a cache line. */
enum { STRATA_LINE_BYTES = 64 };

/* A block begins with a line, of which the user may use what is behind this header. */
typedef struct strata_block {
    /* The bytes of the ring that the block takes, including this line. */
    uint32_t span;
    /* How many readers have not returned it yet. */
    atomic_uint readers;
} strata_block;

typedef struct strata_ring {
    unsigned char *memory;
    size_t bytes;
    /* When to allocate at the start of the ring again. 0: for a ring whose blocks are returned soon (ring.c explains it). Else
     * as soon as so many blocks of the present size fit before the blocks that are still unread: the start is still in the
     * cache. */
    size_t restart;
    /* Bytes allocated and freed so far, counted without wrapping. */
    uint64_t cut, back;
} strata_ring;

/* Allocates a block for `head` bytes and, after them at a multiple of STRATA_LINE_BYTES, `body` bytes. Returns the place of the
 * body; NULL: there is no room now. */
unsigned char *strata_ring_cut(strata_ring *ring, size_t head, size_t body, unsigned readers);
/* The block with this body, which was allocated with this `head`. */
strata_block *strata_block_of(unsigned char *body, size_t head);
/* Returns a block that has one reader. Threads: any. */
static inline void strata_block_return(unsigned char *body, size_t head) {
    atomic_store_explicit(&strata_block_of(body, head)->readers, 0, memory_order_release);
}

static inline size_t strata_lines(size_t bytes) {
    return (bytes + STRATA_LINE_BYTES - 1) / STRATA_LINE_BYTES * STRATA_LINE_BYTES;
}

#endif
