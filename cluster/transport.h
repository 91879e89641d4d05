/* SPDX-License-Identifier: Apache-2.0
 *
 * What a transport is: messages between each two ranks of a communicator, in order. Algorithms are sequences of *exchanges*, in
 * each of which a rank gives and takes messages; both sides know from the collective's arguments which ones, so a message says
 * what it belongs to only for checking. A new transport is one file and one row (cluster/transport/transports.c). */
#ifndef STRATA_CLUSTER_TRANSPORT_H
#define STRATA_CLUSTER_TRANSPORT_H

#include "strata/cluster.h"

enum { STRATA_ALL_PEERS = -1, STRATA_ADDRESS_BYTES = 72 };

/* What both sides of a message must agree on. No padding: compared and sent as bytes (wire/frame.c). */
typedef struct strata_call {
    uint8_t kind, dtype, reducer, algorithm;
    int32_t root;
    /* Of the counts array; 0: none. */
    uint32_t counts_crc;
    uint32_t communicator;
    /* Collectives before it; 0 in send and recv. */
    uint64_t sequence;
    uint64_t count;
} strata_call;

/* At most the communicator's segment_bytes; 0 bytes are a message too. */
typedef struct strata_send {
    /* Or STRATA_ALL_PEERS: each other rank. */
    int peer;
    const void *data;
    size_t bytes;
} strata_send;

typedef struct strata_receive {
    int peer;
    /* Where it goes; NULL: memory of the transport, lent as `view` until the next exchange; one a peer. */
    void *data;
    size_t bytes;
    const void *view;
} strata_receive;

struct strata_operation;

typedef struct strata_transport {
    const char *name;
    /* Messages are copies in memory that the ranks share: all ranks are of one machine, and one copy serves many readers.
     * Without it a message to each peer costs its bytes again. */
    bool shares_memory;
    /* "auto" may choose this transport. Where it may choose several, it takes the one that comes first in transports.c. */
    bool automatic;
    /* Connects to all peers, comm->peers being known; sets comm->link and comm->segment_bytes. On failure nothing is left. */
    strata_status (*open)(strata_communicator *comm, strata_error *err);
    /* After all ranks have opened; NULL: nothing to do. */
    void (*opened)(strata_communicator *comm);
    void (*close)(strata_communicator *comm);
    /* Returns when every message was given (data may change again) and taken. Messages to, and from, one peer keep the order of
     * the arrays. Fails with the verdict, after telling what it saw itself: a call that differs, a peer gone, no progress for
     * stall_seconds. */
    strata_status (*exchange)(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                              strata_receive *receives, int n_receives, strata_error *err);
    /* Of an engine: whole collectives, instead of exchange. Arguments have been checked; agreeing on the call is the
     * engine's. (optional). */
    strata_status (*run)(const struct strata_operation *op, strata_collective_kind kind, strata_error *err);
} strata_transport;

extern const strata_transport strata_transport_inproc, strata_transport_shm, strata_transport_tcp, strata_transport_mpi;

/* NULL for a name that no row has. */
const strata_transport *strata_transport_find(const char *name);
/* The first automatic row behind `after` (NULL: of all rows) that can connect ranks of one machine, or of several hosts. NULL:
 * there is none. */
const strata_transport *strata_transport_next(const strata_transport *after, bool several_hosts);

#endif
