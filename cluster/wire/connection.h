/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection between two processes, on which *packets* are sent and received: messages of a head of at most
 * STRATA_HEAD_BYTES and a body of any size. Requests and replies, messages with tags, the store's control messages, and the
 * messages of collectives are packets. A packet is one frame or several (wire/frame.h); one of a collective is one frame.
 * Frames that go through the socket have at most STRATA_SEGMENT_BYTES bytes, so that checksums are computed while the bytes are
 * in the cache.
 *
 * Where both sides map memory, frames go through pipes in it (memory/pipe.h), and the socket only shows whether the other side
 * still exists.
 *
 * Bytes go from and to the caller's memory without a copy, but for the first ones of a packet, which are read together with
 * its header. A packet is sent by a thread that waits until it is sent, or it is queued: then the functions of this file never
 * wait, and a loop sends the queue when the socket accepts bytes. One thread may send while another receives. */
#ifndef STRATA_CLUSTER_WIRE_CONNECTION_H
#define STRATA_CLUSTER_WIRE_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cluster/memory/area.h"
#include "cluster/memory/pipe.h"
#include "cluster/wire/frame.h"
#include "cluster/wire/stream.h"

/* The most bytes of a frame that goes through the socket, and the size of the buffer for bytes that are read ahead. */
enum { STRATA_SEGMENT_BYTES = 256 << 10, STRATA_BUFFER_BYTES = 32 << 10 };
/* The most bytes of a head, and the most parts of a segment that are sent or received in one call. */
enum { STRATA_HEAD_BYTES = 64 << 10, STRATA_SEGMENT_PARTS = 64 };

typedef struct strata_packet {
    strata_frame_type type;
    strata_status status;
    /* target, n_unanswered, sequence: see strata_part. */
    uint32_t target, n_unanswered;
    uint64_t sequence;
    /* For DATA, in place of the above and of a head; borrowed until the packet is sent, or until `begin` returns. */
    const strata_call *call;
    size_t head_bytes, body_bytes;
    /* The body, if the whole message is in memory that both sides map; else NULL. It is at a multiple of STRATA_LINE_BYTES,
     * with the head before it. Valid until `end` returns, or longer: see `kept`. */
    unsigned char *view;
} strata_packet;

/* A packet that is being sent. `packet` and `parts` (its head and body) are borrowed until it is sent. */
typedef struct strata_sending {
    strata_frame frame;
    const struct iovec *parts;
    int n_parts;
    /* The bytes of parts[0] that were sent, and those of all parts that were not. */
    size_t offset, missing;
    /* The bytes of the head, until the first frame is written. */
    size_t head;
    bool first;
    /* The packet goes through shared memory as far as there is room. */
    bool shares;
    /* The bytes of the current frame that are not sent yet are segment[at] to segment[end - 1]. */
    int at, end;
    struct iovec segment[STRATA_SEGMENT_PARTS + 1];
} strata_sending;

/* A packet in a connection's queue. */
typedef struct strata_outgoing {
    struct strata_outgoing *next;
    strata_packet packet;
    /* The body; there is no head. */
    struct iovec body;
    /* Called when it was sent; the function owns it then. */
    void (*sent)(void *user, struct strata_outgoing *outgoing);
} strata_outgoing;

typedef struct strata_connection {
    /* Owned. */
    strata_stream stream;
    /* One thread at a time uses a TLS session. */
    pthread_mutex_t tls;
    /* When bytes were last received and sent (strata_clock_seconds), and how many so far, for the threads that do so. */
    _Atomic double received, sent;
    uint64_t bytes_in, bytes_out;
    uint32_t n_in, n_out;

    /* Bytes that were read ahead: [first, end) of buffer. */
    unsigned char *buffer;
    size_t first, end;
    /* The frame that is being received: valid while in_frame; `left` bytes of it are missing. checks: it has a checksum. */
    bool in_frame, checks;
    strata_frame frame;
    size_t left;
    uint32_t crc;
    /* The message that is being received: valid while in_message; `missing` bytes of its head and body have not arrived. They
     * are written to parts[part] from `offset` on; n_parts 0: they are dropped. */
    bool in_message;
    strata_packet message;
    size_t missing;
    const struct iovec *parts;
    int n_parts, part;
    size_t offset;
    /* Set by `end` of a receiver: receiving returns. */
    bool stop;
    /* Set by a receiver's `end`: the receiver keeps the message's view, and returns it later by strata_block_return. */
    bool kept;
    /* Memory that both sides map (owned; NULL: none), the ring from which this side allocates, and the index of the other
     * ring. */
    strata_area *area;
    strata_ring ring;
    int incoming;
    /* If memory is shared, frames go through these pipes. shares: whether this is so, for threads that neither send nor
     * receive. */
    strata_pipes pipes;
    atomic_bool shares;
    /* A block that is reserved for the next message (strata_connection_reserve); NULL: none. */
    unsigned char *reserved;
    /* The queue; begun: some of its first packet may have been sent. */
    strata_outgoing *queue, *queue_last;
    bool begun;
    strata_sending sending;
} strata_connection;

/* Takes the stream, also on failure. Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_connection_init(strata_connection *c, strata_stream stream, strata_error *err);
/* Does nothing if the connection is finished or was never begun. The packets in the queue are the caller's. */
void strata_connection_finish(strata_connection *c);
/* Called when both sides have mapped the area, which the channel takes: from now on frames and bodies go through it. The caller
 * must have the sender's and the receiver's role. */
void strata_connection_share(strata_connection *c, strata_area *area, bool is_client);
/* Returns memory for the body of the next message. If the body is exactly this memory, the message is sent without a copy; its
 * head may have at most STRATA_LINE_BYTES bytes. NULL: there is no room now. The caller must have the sender's role. */
void *strata_connection_reserve(strata_connection *c, size_t bytes);
void strata_connection_unreserve(strata_connection *c); /* called if the reserved memory was not used */
/* Makes receiving and, unless `in_only`, sending fail, and wakes threads that wait for them. Threads: any, before finish. */
void strata_connection_shut(strata_connection *c, bool in_only);

/* The functions that are called for received messages. */
typedef struct strata_packet_receiver {
    /* A message begins. The function sets *out_parts to rooms for head_bytes + body_bytes bytes. With 0 parts the bytes are
     * dropped, or used in place (view). */
    strata_status (*begin)(void *user, const strata_packet *message, const struct iovec **out_parts, int *out_n_parts,
                           strata_error *err);
    /* Called when the message is complete. */
    strata_status (*end)(void *user, const strata_packet *message, strata_error *err);
    void *user;
} strata_packet_receiver;

/* Receives what has arrived, without waiting. Returns when there is nothing more, after most_reads reads, or after a packet at
 * whose end `stop` was set. All bytes that were read ahead are used before it returns, unless `stop` was set.
 * Fails: UNAVAILABLE when the connection ended, DATA for damage; what the receiver returned. */
STRATA_MUST_USE strata_status strata_connection_receive(strata_connection *c, const strata_packet_receiver *receiver,
                                                        int most_reads, strata_error *err);
/* Drops the rest of the packet that is being received. */
void strata_connection_drop_rest(strata_connection *c);
/* The events to poll for to receive more. */
short strata_connection_events(strata_connection *c, short otherwise);

/* Waits at most `ms` (-1: without a limit) until it can receive (POLLIN), send (POLLOUT) or either, or the connection ended.
 * events: of strata_connection_events, or what `wait` of strata_connection_send was called with. Returns what is possible
 * now; 0: neither. may_spin: see strata_pipes_wait. */
short strata_connection_wait(strata_connection *c, short events, int ms, bool may_spin);
/* Whether another thread must poll the socket, because a thread that waits for a pipe does not see that the socket was
 * closed. True if the channel shares memory and its end has not been noticed yet. Threads: any, before finish; this also
 * holds for the functions below. */
bool strata_connection_needs_poll(strata_connection *c);
/* Called when the other side has closed the socket. Wakes the waiting threads, which then receive what was sent before. */
void strata_connection_note_end(strata_connection *c);
/* The bytes that have arrived and were not received, and those that were sent and have not arrived. *out_full: there may be no
 * room for more of them. The second one must be called with the sender's role. */
size_t strata_connection_unread(strata_connection *c, bool *out_full);
size_t strata_connection_unsent(strata_connection *c);

/* Sends a message whose head and body are the parts. `wait` is called when the socket is full, with the events to poll for. If
 * it fails, sending is given up, and the connection cannot be used any more; NULL: it fails with TIMEOUT. Fails: UNAVAILABLE
 * when the connection ended. */
typedef strata_status (*strata_wait_ready)(void *user, short events, strata_error *err);
STRATA_MUST_USE strata_status strata_connection_send(strata_connection *c, const strata_packet *message,
                                                     const struct iovec *parts, int n_parts, strata_wait_ready wait, void *user,
                                                     strata_error *err);

/* Adds a packet to the queue; nothing is sent. */
void strata_connection_queue(strata_connection *c, strata_outgoing *outgoing);
/* Sends as much of the queue as the socket accepts, and calls `sent` of each packet that was sent, with `user`. Fails:
 * UNAVAILABLE when the connection ended; the packets stay in the queue. */
STRATA_MUST_USE strata_status strata_connection_flush(strata_connection *c, void *user, strata_error *err);
/* Removes a packet of the queue and returns true, unless some of it may have been sent. */
bool strata_connection_withdraw(strata_connection *c, strata_outgoing *outgoing);
/* Replaces the memory of a queued packet's body by a copy of it. */
void strata_connection_move_body(strata_connection *c, strata_outgoing *outgoing, void *copy);

#endif
