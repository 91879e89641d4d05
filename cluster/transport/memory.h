/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages through memory that all ranks share: the common part of the in-process and the shared-memory transport.
 *
 * Each rank has an *arena*, a ring from which it allocates *blocks*. A message is copied into a block once, whatever the number
 * of its receivers. From each rank to each other one there is a *lane*, a short queue of positions of blocks. A reader copies a
 * block, or adds directly from it, and decrements the block's count of readers. The writer frees blocks, oldest first, when
 * their count is 0. A rank that has to wait spins for a moment if there is a core for each rank, else it yields its core a few
 * times; then it sleeps on its *doorbell*, which counts rings. The sleeping rank states how many rings it waits for, so that it
 * is not woken before. */
#ifndef STRATA_CLUSTER_TRANSPORT_MEMORY_H
#define STRATA_CLUSTER_TRANSPORT_MEMORY_H

#include "cluster/communicator.h"

/* The size of the region for this number of ranks, and of the largest message. The region must be zeroed and begin at a
 * page. */
size_t strata_memory_region_bytes(int world);
size_t strata_memory_segment_bytes(int world);

/* Sets the communicator's link and segment_bytes. `region` and `owner` are borrowed until close. Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_memory_open(strata_communicator *comm, void *region, void *owner, strata_error *err);
void *strata_memory_owner(const strata_communicator *comm);
/* The other ranks see that this rank has left; they can still receive the messages that it sent before. Returns the owner. */
void *strata_memory_close(strata_communicator *comm);

STRATA_MUST_USE strata_status strata_memory_round(strata_communicator *comm, const strata_call *call, const strata_send *sends,
                                                  int n_sends, strata_receive *receives, int n_receives, strata_error *err);

#endif
