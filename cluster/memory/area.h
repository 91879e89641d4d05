/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a client and a server on one machine both map, so that bodies of messages are copied once and not sent through a
 * socket. It begins with the pipes for the frames (pipe.h). Then it has a *ring* for each direction. The sending side allocates
 * *blocks* from its ring and frees them in the same order. A block's header has its length, and whether its reader has returned
 * it; readers may return blocks in any order. */
#ifndef STRATA_CLUSTER_MEMORY_AREA_H
#define STRATA_CLUSTER_MEMORY_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "strata/cluster.h"

/* Bytes: of a file's name, of the smallest and the largest ring, and of a cache line. */
enum { STRATA_AREA_NAME = 48, STRATA_AREA_LEAST = 64 << 10, STRATA_AREA_MOST = 256 << 20, STRATA_LINE_BYTES = 64 };

typedef struct strata_area {
    /* "": the name of the file in /dev/shm was removed, and the file is deleted with its last mapping. */
    char name[STRATA_AREA_NAME];
    /* The mapping: STRATA_PIPES_BYTES for the pipes, then the rings. */
    unsigned char *memory;
    /* The size of a ring. Ring 0 is for requests, ring 1 for replies. */
    size_t ring_bytes;
    atomic_int references;
} strata_area;

/* Whether the connection's other end is on this machine, by its address. */
bool strata_area_is_near(int socket);
/* Creates a file with pipes and two rings, with a name that cannot be guessed. If /dev/shm has too little memory for rings of
 * this size, smaller ones are tried, each half as large as the one before. NULL: there is no memory even for the smallest
 * rings, so all messages go through the socket. */
strata_area *strata_area_make(size_t ring_bytes);
/* Maps the file that another task created; NULL: it does not exist, or is not a file of this kind. */
strata_area *strata_area_open(const char *name);
/* Removes the name of the file. Existing mappings stay valid. */
void strata_area_hide(strata_area *area);
strata_area *strata_area_hold(strata_area *area);
void strata_area_release(strata_area *area); /* NULL is fine */

/* The side of a ring that allocates blocks. One thread at a time. */
typedef struct strata_ring {
    unsigned char *memory;
    size_t bytes;
    /* Bytes allocated and freed so far, counted without wrapping. */
    uint64_t cut, back;
} strata_ring;

strata_ring strata_ring_of(const strata_area *area, int index);
/* Allocates a block for `head` bytes and, after them at a multiple of STRATA_LINE_BYTES, `body` bytes. Returns the place of the
 * body; NULL: there is no room now. */
unsigned char *strata_ring_cut(strata_ring *ring, size_t head, size_t body);

/* For the reader: the `bytes` bytes at `offset` of a ring, of which `head` bytes come before the body; NULL: no block contains
 * them. */
unsigned char *strata_area_at(const strata_area *area, int index, uint32_t offset, size_t head, size_t bytes);
/* Returns the block with this body, which was allocated with this `head`, to its sender. Threads: any. */
void strata_block_return(unsigned char *body, size_t head);

#endif
