/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages through memory that all ranks see: what the in-process and the shared-memory transport have in common.
 *
 * Each rank has an *arena*, from which it cuts *blocks* in a circle: a message is copied into one once, however many ranks it
 * is for. Between each two ranks lies a *lane*, a short ring of the places of blocks. The reader copies a block out, or folds
 * straight from it, and counts its readers down; the writer takes blocks back, oldest first, when their readers are 0. A rank
 * that has to wait spins for a moment if there is a core for each rank, else yields its core a few times; then it sleeps on its
 * *doorbell*, which says how many rings it waits for, so that it isn't woken for less. */
#ifndef STRATA_CLUSTER_TRANSPORT_MEMORY_H
#define STRATA_CLUSTER_TRANSPORT_MEMORY_H

#include "cluster/communicator.h"

/* Bytes of the region for so many ranks, and of the largest message; the region begins zeroed, at a page. */
size_t strata_memory_region_bytes(int world);
size_t strata_memory_segment_bytes(int world);

typedef struct strata_memory strata_memory;

/* `region` is borrowed until destroy. ranks_here: how many ranks share this machine's cores. */
STRATA_MUST_USE strata_status strata_memory_create(void *region, int rank, int world, int ranks_here,
                                                   strata_memory **out_memory, strata_error *err);
/* The others see that the rank left: what it gave before they can still take. NULL is fine. */
void strata_memory_destroy(strata_memory *memory);

STRATA_MUST_USE strata_status strata_memory_exchange(strata_memory *memory, strata_communicator *comm, const strata_call *call,
                                                     const strata_send *sends, int n_sends, strata_receive *receives,
                                                     int n_receives, strata_error *err);

#endif
