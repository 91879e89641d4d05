/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring buffer in shared memory whose blocks contain the bodies of remote calls on one machine (cluster/memory/area.h),
 * tested without a connection. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/memory/area.h"

enum { SMALL = 1 << 10, BODY = 100 << 10, RING = 1 << 20, HEAD = 40, MOST = 32 };

static strata_ring ring_of(size_t bytes) {
    strata_ring ring = {.memory = aligned_alloc(STRATA_LINE_BYTES, bytes), .bytes = bytes};
    cr_assert(ring.memory);
    return ring;
}

Test(ring, an_empty_ring_takes_a_large_block_wherever_the_last_one_ended) {
    strata_ring ring = ring_of(RING);
    const size_t largest = RING - 2 * STRATA_LINE_BYTES; /* the rest is for the headers of the block and of its message */
    for (size_t before = 0; before <= largest; before += 37 << 10) {
        unsigned char *first = strata_ring_cut(&ring, HEAD, before, 1);
        cr_assert(first, "%zu bytes", before);
        strata_block_return(first, HEAD);
        unsigned char *second = strata_ring_cut(&ring, HEAD, largest, 1);
        cr_assert(second, "%zu bytes behind %zu", largest, before);
        cr_assert(second + largest <= ring.memory + RING);
        cr_assert_null(strata_ring_cut(&ring, HEAD, 1, 1));
        strata_block_return(second, HEAD);
    }
    free(ring.memory);
}

Test(ring, large_blocks_follow_each_other_and_small_ones_begin_at_the_start) {
    strata_ring ring = ring_of(16 * RING);
    unsigned char *last = NULL;
    int n_starts = 0;
    for (int i = 0; i < 1000; i++) {
        unsigned char *body = strata_ring_cut(&ring, 0, BODY, 1);
        cr_assert(body);
        cr_assert(body != last, "block %d", i);
        cr_assert_lt(body - ring.memory, 3 * RING);
        n_starts += body < ring.memory + BODY;
        strata_block_return(body, 0);
        last = body;
    }
    cr_assert(n_starts > 1000 * BODY / (3 * RING) && n_starts < 1000 * BODY / RING, "%d", n_starts);
    for (int i = 0; i < 3; i++) {
        unsigned char *body = strata_ring_cut(&ring, 0, SMALL, 1);
        cr_assert_eq(body - ring.memory, STRATA_LINE_BYTES);
        strata_block_return(body, 0);
    }
    free(ring.memory);
}

/* Returns blocks of random sizes in random order. No block may overlap one that has not been returned. */
Test(ring, no_block_overlaps_another_that_is_in_use) {
    strata_ring ring = ring_of(RING);
    struct {
        unsigned char *body;
        size_t bytes;
    } used[MOST];
    int n = 0, n_full = 0;
    unsigned random = 1;
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        const size_t bytes = random >> 8 & 1 ? random >> 13 : random >> 20;
        if (n < MOST && random >> 9 & 1) {
            unsigned char *body = strata_ring_cut(&ring, HEAD, bytes, 1);
            n_full += !body;
            if (!body) continue;
            for (int k = 0; k < n; k++)
                cr_assert(body - HEAD >= used[k].body + used[k].bytes || body + bytes <= used[k].body - HEAD);
            cr_assert(body - HEAD >= ring.memory && body + bytes <= ring.memory + RING);
            memset(body - HEAD, i, HEAD + bytes);
            used[n].body = body;
            used[n++].bytes = bytes;
        } else if (n) {
            const int k = (int)(random >> 10) % n;
            strata_block_return(used[k].body, HEAD);
            used[k] = used[--n];
        }
    }
    cr_assert_gt(n_full, 100);
    free(ring.memory);
}
