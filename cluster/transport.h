/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a transport. A transport sends messages between any two ranks of a communicator and keeps their order. An
 * algorithm is a sequence of *rounds*; in each round a rank sends and receives some messages. Both sides know from the
 * collective's arguments which messages these are. A message states to which call it belongs, but only so that this can be
 * checked. A new transport is one file and one row (cluster/transport/transports.def). */
#ifndef STRATA_CLUSTER_TRANSPORT_H
#define STRATA_CLUSTER_TRANSPORT_H

#include "cluster/wire/frame.h"
#include "strata/cluster.h"

enum { STRATA_ALL_PEERS = -1 };

/* A message to send. It has at most the communicator's segment_bytes; a message may have 0 bytes. */
typedef struct strata_send {
    /* The receiver, or STRATA_ALL_PEERS: each other rank. */
    int peer;
    const void *data;
    size_t bytes;
} strata_send;

typedef struct strata_receive {
    int peer;
    /* Where the message is written. NULL: the transport lends its own memory, to which `view` points until the next round.
     * Only one message of each peer can be received in this way. */
    void *data;
    size_t bytes;
    const void *view;
} strata_receive;

typedef struct strata_transport {
    const char *name;
    /* Messages are copied to memory that all ranks share. So all ranks must be on one machine, and one copy serves all
     * receivers. Without this, a message is sent separately to each receiver. */
    bool shares_memory;
    /* "auto" may choose this transport. If several transports are possible, it chooses the one that comes first in
     * transports.def. */
    bool automatic;
    /* Connects to all peers; comm->peers is already filled. Sets comm->link and comm->segment_bytes. On failure everything is
     * released. */
    strata_status (*open)(strata_communicator *comm, strata_error *err);
    /* Called after all ranks have opened the transport; NULL: nothing to do. */
    void (*opened)(strata_communicator *comm);
    void (*close)(strata_communicator *comm);
    /* Returns when every message was sent (its memory may change again) and received. Messages to one peer, and those from
     * one peer, are transferred in the order of the arrays. Fails with the verdict, after reporting what this rank has
     * detected: another call on the peer's side, a lost peer, or no progress for stall_seconds. */
    strata_status (*round)(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                           strata_receive *receives, int n_receives, strata_error *err);
} strata_transport;

#define TRANSPORT(name, chosen) extern const strata_transport strata_transport_##name;
#include "cluster/transport/transports.def"

/* Returns NULL if no row has this name. */
const strata_transport *strata_transport_find(const char *name);
/* The first automatic row after `after` (NULL: of all rows) that can connect ranks on one machine, or on several hosts. NULL:
 * there is none. */
const strata_transport *strata_transport_next(const strata_transport *after, bool several_hosts);

/* Finds and opens the MPI library for the engine mpi, once in a process. Fails: INVALID if no mpirun started this process;
 * UNSUPPORTED if the library of the launcher's MPI is not installed. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_find(strata_error *err);

#endif
