/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between processes. Two processes have a connection for each direction, which is opened for the first message. The
 * loop's thread receives; it also sends what the socket does not accept at once. A message is a packet (wire/connection.h)
 * whose target is its communicator and whose sequence is its tag.
 *
 * A connection that breaks is not opened again, since it is not known which messages have arrived: the rank at its other end
 * counts as gone. Every function must be called with the loop's lock held, unless its comment says otherwise. */
#ifndef STRATA_CLUSTER_MESSAGE_LINK_H
#define STRATA_CLUSTER_MESSAGE_LINK_H

#include "cluster/store/loop.h"

/* Allocates the state of all connections. Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_links_create(strata_loop *loop, strata_error *err);
/* Waits, for at most `seconds`, until all messages in the queues are sent. */
void strata_links_flush(strata_loop *loop, double seconds);
void strata_links_destroy(strata_loop *loop);

/* Called when a rank has opened its connection for messages to this one; takes the stream. */
void strata_links_accept(strata_loop *loop, strata_stream stream, const strata_hello *hello);
/* Called when a rank was lost, or has left. For a lost rank, reads what it had sent before, and then closes both connections.
 * Messages that are being sent to the rank fail. */
void strata_links_rank_lost(strata_loop *loop, int job_rank, const char *text);
void strata_links_rank_left(strata_loop *loop, int job_rank, const char *text);
/* Cancels messages that are sent for communicators that have ended. */
void strata_links_drop_ended(strata_loop *loop);
/* Reads connections again that were paused because too many of their bytes were stored unreceived. */
void strata_links_resume(strata_loop *loop);

/* These implement the member's functions. They must be called without the lock. */
strata_status strata_links_send(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                strata_error *err);
bool strata_links_withdraw(strata_member *member, strata_transfer *transfer);

#endif
