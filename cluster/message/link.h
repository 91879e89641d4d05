/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between processes: a connection for each direction between two of them, made when the first message is sent. The
 * loop's thread reads, and sends what the socket does not take at once. Frames carry parts of a message, one message after
 * the other:
 *
 *     call.communicator   of the message        call.sequence   its tag        call.count   bytes of the whole message
 *
 * A connection that breaks is not made again, as nobody knows which messages came: its other side counts as gone. Every
 * function is called with the loop's lock unless it says otherwise. */
#ifndef STRATA_CLUSTER_MESSAGE_LINK_H
#define STRATA_CLUSTER_MESSAGE_LINK_H

#include "cluster/store/loop.h"

/* Both directions of every rank; NULL: no memory. */
STRATA_MUST_USE strata_status strata_links_create(strata_loop *loop, strata_error *err);
/* Waits, at most `seconds`, until what was begun is sent. */
void strata_links_flush(strata_loop *loop, double seconds);
void strata_links_destroy(strata_loop *loop);

/* A rank connected to send messages; takes the stream. */
void strata_links_accept(strata_loop *loop, strata_stream stream, const strata_hello *hello);
/* The rank was lost, or left: takes in what it had sent, and ends what is on its way to it. */
void strata_links_rank_lost(strata_loop *loop, int job_rank, const char *text);
void strata_links_rank_left(strata_loop *loop, int job_rank, const char *text);
/* Ends sends of communicators that ended. */
void strata_links_drop_ended(strata_loop *loop);
/* Watches connections again that were not read while too much lay unreceived. */
void strata_links_resume(strata_loop *loop);

/* The member's calls; without the lock. */
strata_status strata_links_send(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                strata_error *err);
bool strata_links_withdraw(strata_member *member, strata_transfer *transfer);

#endif
