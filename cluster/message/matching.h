/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages at the receiver: which receive gets which message. Messages of one sender keep their order. A receive takes the
 * first message that has come and fits its peer and tag; a message goes to the first receive that waits for it. Its bytes then
 * come straight into the receiver's memory; a message that nobody waits for yet is kept in memory of its own.
 *
 * Every function is called with the roster's lock. */
#ifndef STRATA_CLUSTER_MESSAGE_MATCHING_H
#define STRATA_CLUSTER_MESSAGE_MATCHING_H

#include "cluster/store/roster.h"
#include "strata/cluster.h"

/* A send or a receive while it runs. */
typedef struct strata_transfer {
    struct strata_transfer *next;
    strata_seat *seat;
    /* A rank of the communicator; of a receive also STRATA_ANY. */
    int peer;
    int64_t tag;
    /* What is sent, or room for what is received; borrowed until it is done. */
    void *data;
    size_t bytes;
    /* Set with the lock, then seat->changed is signalled. error.status is its status. */
    bool done;
    strata_error error;
    /* Of a receive: what came. */
    strata_message message;
} strata_transfer;

/* A message that comes, or came. */
typedef struct strata_arrival {
    struct strata_arrival *next;
    /* NULL: the communicator was destroyed; the rest of the message is read and forgotten. */
    strata_seat *seat;
    strata_message message;
    /* How many of its bytes have come. */
    size_t n_came;
    /* All of them have come and are known to be right (strata_arrival_finish). Until then the reader of the connection holds a
     * pointer to this, and only the reader frees it; a receive that takes the message is not done. */
    bool finished;
    /* Where it lies: memory of the taker's, or its own. NULL: it is forgotten. */
    char *data;
    /* The receive that gets it. NULL: none yet. */
    strata_transfer *taker;
} strata_arrival;

/* A receive starts: it takes a message that is there, fails, or waits. */
void strata_seat_receive(strata_seat *seat, strata_transfer *transfer);
/* Stops a receive that is not done. A message that it had begun to take is kept for another one. Returns false when there is no
 * memory for that: it goes on. */
bool strata_seat_withdraw_receive(strata_transfer *transfer);
/* The first message for such a receive that has begun to come; NULL: none. */
const strata_arrival *strata_seat_find_arrival(const strata_seat *seat, int peer, int64_t tag);
/* Why a receive from this peer, which no message waits for, would wait in vain; NULL: it would not. */
const char *strata_seat_vain(const strata_seat *seat, int peer);

/* A message begins to come: put its bytes at data, count them in n_came, then finish or drop it. NULL: no memory. */
strata_arrival *strata_seat_begin_arrival(strata_seat *seat, int peer, int64_t tag, size_t bytes);
void strata_arrival_finish(strata_arrival *arrival);
/* The rest of it will not come. A receive that had begun to take it waits again. */
void strata_arrival_drop(strata_arrival *arrival);

/* Ends a transfer, and tells who waits for it. */
void strata_transfer_end(strata_transfer *transfer, strata_status status, const char *text);

/* For the roster: the communicator ended; a rank of it is gone; the seat is. */
void strata_seat_end_messages(strata_seat *seat, const strata_error *why);
void strata_seat_rank_gone(strata_seat *seat, int rank);
void strata_seat_drop_messages(strata_seat *seat);

#endif
