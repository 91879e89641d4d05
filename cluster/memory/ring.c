/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/memory/ring.h"

#include <stdbool.h>

/* In an empty ring, blocks of at least LEAST_LOOPED bytes are allocated one after the other, as long as they fit and end
 * within about MOST_LOOP bytes; other blocks are allocated at the start of the ring. If each block began at the start, its
 * cache lines would still be in the cache of the reader's core and would have to be invalidated before they are written: 1
 * MiB took 71 us in place of 25. Beyond MOST_LOOP the blocks would not stay in the cache that the cores share. */
enum { LEAST_LOOPED = 8 << 10, MOST_LOOP = 2 << 20 };

static strata_block *block_at(const strata_ring *ring, uint64_t place) {
    return (strata_block *)(void *)(ring->memory + place % ring->bytes);
}

static void open_block(strata_ring *ring, size_t span, unsigned readers) {
    strata_block *b = block_at(ring, ring->cut);
    b->span = (uint32_t)span;
    atomic_store_explicit(&b->readers, readers, memory_order_relaxed);
    ring->cut += span;
}

/* Frees the blocks that the readers have returned. False: a length is wrong, so another process has written outside of its
 * blocks. */
static bool take_back(strata_ring *ring) {
    while (ring->back < ring->cut) {
        strata_block *oldest = block_at(ring, ring->back);
        if (atomic_load_explicit(&oldest->readers, memory_order_acquire)) return true;
        const size_t span = oldest->span;
        if (!span || span % STRATA_LINE_BYTES || span > ring->cut - ring->back) return false;
        ring->back += span;
    }
    return true;
}

unsigned char *strata_ring_cut(strata_ring *ring, size_t head, size_t body, unsigned readers) {
    if (head > ring->bytes || body > ring->bytes || !take_back(ring)) return NULL;
    const size_t span = STRATA_LINE_BYTES + strata_lines(head) + strata_lines(body);
    const size_t at = (size_t)(ring->cut % ring->bytes), unread = (size_t)(ring->back % ring->bytes), left = ring->bytes - at;
    const bool empty = ring->back == ring->cut;
    const bool again =
        ring->restart ? unread <= at && unread >= ring->restart * span : empty && (span < LEAST_LOOPED || at >= MOST_LOOP);
    size_t skipped = again || span > left ? left : 0;
    if (skipped && empty) {
        ring->back = ring->cut += skipped;
        skipped = 0;
    }
    if (skipped + span > ring->bytes - (size_t)(ring->cut - ring->back)) return NULL;
    if (skipped) open_block(ring, skipped, 0);
    unsigned char *place = (unsigned char *)block_at(ring, ring->cut) + STRATA_LINE_BYTES + strata_lines(head);
    open_block(ring, span, readers);
    return place;
}

strata_block *strata_block_of(unsigned char *body, size_t head) {
    return (strata_block *)(void *)(body - strata_lines(head) - STRATA_LINE_BYTES);
}
