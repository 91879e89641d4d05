/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a client and a server on one machine both map, so that bodies of messages are copied once and not sent through a
 * socket: the pipes for the frames (pipe.h), and then a ring for each direction (ring.h). */
#ifndef STRATA_CLUSTER_MEMORY_AREA_H
#define STRATA_CLUSTER_MEMORY_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/memory/ring.h"
#include "cluster/memory/shared.h"

/* Bytes of the smallest and the largest ring. */
enum { STRATA_AREA_LEAST = 64 << 10, STRATA_AREA_MOST = 256 << 20 };

typedef struct strata_area {
    /* STRATA_PIPES_BYTES for the pipes, then the rings. */
    strata_shared shared;
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
strata_area *strata_area_hold(strata_area *area);
void strata_area_release(strata_area *area); /* NULL is fine */

/* The ring as its sender uses it. One thread at a time. */
strata_ring strata_ring_of(const strata_area *area, int index);
/* For the reader: the `bytes` bytes at `offset` of a ring, of which `head` bytes come before the body; NULL: no block contains
 * them. */
unsigned char *strata_area_at(const strata_area *area, int index, uint32_t offset, size_t head, size_t bytes);

#endif
