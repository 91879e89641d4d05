/* SPDX-License-Identifier: Apache-2.0
 *
 * Message matching at the receiver: which receive gets which message. Messages of one sender stay in order. A receive gets the
 * first arrived message that matches its peer and tag; otherwise it is queued. A message that arrives goes to the first queued
 * receive that matches, and its bytes are read directly into that receive's buffer. If no receive matches, the message is
 * stored in memory of its own until one does (an unexpected message).
 *
 * Every function must be called with the roster's lock held. */
#ifndef STRATA_CLUSTER_MESSAGE_MATCHING_H
#define STRATA_CLUSTER_MESSAGE_MATCHING_H

#include "cluster/store/roster.h"
#include "strata/cluster.h"

/* A send or a receive that has not ended. */
typedef struct strata_transfer {
    struct strata_transfer *next;
    strata_seat *seat;
    /* The other rank, in the communicator; for a receive also STRATA_ANY. */
    int peer;
    int64_t tag;
    /* The bytes to send, or the buffer of a receive; borrowed until `done`. */
    void *data;
    size_t bytes;
    /* Set while the lock is held; seat->changed is signalled afterwards. error.status is then the status of the transfer. */
    bool done;
    strata_error error;
    /* For a receive: sender, tag and size of the received message. */
    strata_message message;
} strata_transfer;

/* A message that is arriving, or that has arrived and was not received yet. */
typedef struct strata_arrival {
    struct strata_arrival *next;
    /* NULL: the communicator was destroyed, and the rest of the message is read and discarded. */
    strata_seat *seat;
    strata_message message;
    /* How many of its bytes have arrived. */
    size_t n_came;
    /* All bytes have arrived and are known to be right: set by strata_arrival_finish. Until then the thread that reads the
     * connection holds a pointer to the arrival, and only that thread frees it; a receive that was matched is not done. */
    bool finished;
    /* Where its bytes are written: the buffer of `receive` or, if that is NULL, allocated memory. NULL: they are discarded.
     * */
    char *data;
    /* The receive that was matched with the message. NULL: none yet. */
    strata_transfer *receive;
} strata_arrival;

/* Starts a receive: it gets a stored message, fails, or is added to the queue. */
void strata_seat_receive(strata_seat *seat, strata_transfer *transfer);
/* Cancels a receive that is not done. A message that was being read into its buffer goes to the next queued receive that
 * matches; if none does, it stays in allocated memory. Returns false if there is no memory for this; the receive then
 * continues. */
bool strata_seat_withdraw_receive(strata_transfer *transfer);
/* The first message that has begun to arrive and matches such a receive; NULL: none. */
strata_arrival *strata_seat_find_arrival(const strata_seat *seat, int peer, int64_t tag);
/* Why no further message can arrive from this peer (STRATA_ANY: from any rank): the communicator ended, or the peer was lost or
 * left. NULL: one can. */
const char *strata_seat_unreachable(const strata_seat *seat, int peer);

/* A message begins to arrive. The caller writes its bytes to `data`, counts them in n_came, and then calls finish or drop.
 * NULL: no memory. */
strata_arrival *strata_seat_begin_arrival(strata_seat *seat, int peer, int64_t tag, size_t bytes);
void strata_arrival_finish(strata_arrival *arrival);
/* A message of this process, from `rank` to the seat: it arrives at once, and the transfer ends. Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_seat_deliver(strata_seat *seat, int rank, strata_transfer *transfer, strata_error *err);
/* The rest of the message will not arrive. A receive that was matched with it gets another stored message, or is queued
 * again. */
void strata_arrival_drop(strata_arrival *arrival);

/* Ends a transfer and wakes the threads that wait for it. */
void strata_transfer_end(strata_transfer *transfer, strata_status status, const char *text);

/* Called by the roster: when the communicator has ended; when no message can arrive from a rank any more; when the seat is
 * destroyed. */
void strata_seat_end_messages(strata_seat *seat, const strata_error *why);
void strata_seat_rank_gone(strata_seat *seat, int rank);
void strata_seat_drop_messages(strata_seat *seat);

#endif
