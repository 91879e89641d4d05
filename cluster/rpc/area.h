/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that client and server of one machine both map, so that bodies of messages are copied once and not sent through a
 * socket. It has a *ring* for each direction, from which the sending side cuts *blocks*, oldest first taken back. A block's
 * header says how long it is and whether its reader has returned it; readers may return blocks in any order. */
#ifndef STRATA_CLUSTER_RPC_AREA_H
#define STRATA_CLUSTER_RPC_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "strata/cluster.h"

enum { STRATA_RPC_AREA_NAME = 48, STRATA_RPC_AREA_LEAST = 64 << 10, STRATA_RPC_AREA_MOST = 256 << 20, STRATA_RPC_LINE = 64 };

typedef struct strata_rpc_area {
    /* "": the file in /dev/shm has no name any more, and goes with its last mapping. */
    char name[STRATA_RPC_AREA_NAME];
    unsigned char *memory;
    /* Of a ring; the one of index 0 carries requests, the other replies. */
    size_t ring_bytes;
    atomic_int references;
} strata_rpc_area;

/* Whether the connection's other end is on this machine, as far as addresses tell. */
bool strata_rpc_area_is_near(int socket);
/* Makes a file with two rings, whose name nobody can guess. Where /dev/shm has too little memory for rings of so many bytes,
 * they have a half, a quarter and so on. NULL: there is not even memory for the smallest; bodies go through the socket. */
strata_rpc_area *strata_rpc_area_make(size_t ring_bytes);
/* Maps what another task made; NULL: it is not there, or no such file. */
strata_rpc_area *strata_rpc_area_open(const char *name);
/* Removes the name; who has mapped the file keeps it. */
void strata_rpc_area_hide(strata_rpc_area *area);
strata_rpc_area *strata_rpc_area_hold(strata_rpc_area *area);
void strata_rpc_area_release(strata_rpc_area *area); /* NULL is fine */

/* The side of a ring that cuts blocks. One thread at a time. */
typedef struct strata_rpc_ring {
    unsigned char *memory;
    size_t bytes;
    /* Bytes cut and taken back so far, without end. */
    uint64_t cut, back;
} strata_rpc_ring;

strata_rpc_ring strata_rpc_ring_of(const strata_rpc_area *area, int index);
/* A block with room for `head` bytes and, at a multiple of STRATA_RPC_LINE behind them, for `body` bytes: where the body goes.
 * NULL: no room now. */
unsigned char *strata_rpc_ring_cut(strata_rpc_ring *ring, size_t head, size_t body);

/* The reader's side: `bytes` bytes at `offset` of a ring, of which `head` come before the body; NULL: no block has them. */
unsigned char *strata_rpc_area_at(const strata_rpc_area *area, int index, uint32_t offset, size_t head, size_t bytes);
/* Gives the block with this body, cut for a head of so many bytes, back. Threads: any. */
void strata_rpc_block_return(unsigned char *body, size_t head);

#endif
