/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection for messages of remote calls. A message has a head of at most STRATA_RPC_HEAD_BYTES and a body of any size. A
 * message is one frame or several (wire/frame.h). Frames that go through the socket have at most STRATA_RPC_SEGMENT bytes, so
 * that checksums are computed while the bytes are in the cache. Of a frame's call:
 *
 *     kind           status           dtype   1: the message's first frame       root   bytes of the head
 *     communicator   method           count   bytes of the body                  sequence
 *     counts_crc     how many sequence numbers before this one have no reply yet, so that the server drops older replies
 *     reducer        1: the frame's payload is not behind its header but in memory that both sides map (area.h), at the offset
 *                    that stands in place of its checksum
 *
 * Where both sides map memory, frames go through pipes in it (pipe.h), and the socket only shows whether the other side still
 * exists.
 *
 * Bytes go from and to the caller's memory without a copy, but for the first ones of a message, which are read together with
 * its header. One thread may send while another receives. */
#ifndef STRATA_CLUSTER_RPC_CHANNEL_H
#define STRATA_CLUSTER_RPC_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cluster/rpc/area.h"
#include "cluster/rpc/pipe.h"
#include "cluster/wire/frame.h"
#include "cluster/wire/stream.h"

/* The most bytes of a frame that goes through the socket, and the size of the buffer for bytes that are read ahead. */
enum { STRATA_RPC_SEGMENT = 256 << 10, STRATA_RPC_BUFFER = 32 << 10 };

typedef struct strata_rpc_message {
    strata_frame_type type;
    strata_status status;
    uint32_t method, n_unanswered;
    uint64_t sequence;
    size_t head_bytes, body_bytes;
    /* The body, if the whole message is in memory that both sides map; else NULL. It is at a multiple of STRATA_RPC_LINE, with
     * the head before it. Valid until `end` returns, or longer: see `kept`. */
    unsigned char *view;
} strata_rpc_message;

typedef struct strata_rpc_channel {
    /* Owned. */
    strata_stream stream;
    /* One thread at a time uses a TLS session. */
    pthread_mutex_t tls;
    /* When bytes were last received and sent (strata_clock_seconds). */
    _Atomic double received, sent;
    uint32_t n_in, n_out;

    /* Bytes that were read ahead: [first, end) of buffer. */
    unsigned char *buffer;
    size_t first, end;
    /* The frame that is being received: valid while in_frame; `left` bytes of it are missing. */
    bool in_frame;
    strata_frame frame;
    size_t left;
    uint32_t crc;
    /* The message that is being received: valid while in_message; `missing` bytes of its head and body have not arrived. They
     * are written to parts[part] from `offset` on; n_parts 0: they are dropped. */
    bool in_message;
    strata_rpc_message message;
    size_t missing;
    const struct iovec *parts;
    int n_parts, part;
    size_t offset;
    /* Set by `end` of a receiver: read returns. */
    bool stop;
    /* Set by a receiver's `end`: the receiver keeps the message's view, and returns it later by strata_rpc_block_return. */
    bool kept;
    /* Memory that both sides map (owned; NULL: none), the ring from which this side allocates, and the index of the other
     * ring. */
    strata_rpc_area *area;
    strata_rpc_ring ring;
    int incoming;
    /* If memory is shared, frames go through these pipes. shares: whether this is so, for threads that neither send nor
     * receive. */
    strata_rpc_pipes pipes;
    atomic_bool shares;
    /* A block that is reserved for the next message (strata_rpc_channel_reserve); NULL: none. */
    unsigned char *reserved;
} strata_rpc_channel;

/* Takes the stream. */
STRATA_MUST_USE strata_status strata_rpc_channel_init(strata_rpc_channel *c, strata_stream stream, strata_error *err);
void strata_rpc_channel_finish(strata_rpc_channel *c);
/* Called when both sides have mapped the area, which the channel takes: from now on frames and bodies go through it. The caller
 * must have the sender's and the receiver's role. */
void strata_rpc_channel_share(strata_rpc_channel *c, strata_rpc_area *area, bool is_client);
/* Returns memory for the body of the next message. If the body is exactly this memory, the message is sent without a copy; its
 * head may have at most STRATA_RPC_LINE bytes. NULL: there is no room now. The caller must have the sender's role. */
void *strata_rpc_channel_reserve(strata_rpc_channel *c, size_t bytes);
void strata_rpc_channel_unreserve(strata_rpc_channel *c); /* called if the reserved memory was not used */
/* Makes receiving and, unless `in_only`, sending fail, and wakes threads that wait for them. Threads: any, before finish. */
void strata_rpc_channel_shut(strata_rpc_channel *c, bool in_only);

/* The functions that are called for received messages. */
typedef struct strata_rpc_receiver {
    /* A message begins. The function sets *out_parts to rooms for head_bytes + body_bytes bytes. With 0 parts the bytes are
     * dropped, or used in place (view). */
    strata_status (*begin)(void *user, const strata_rpc_message *message, const struct iovec **out_parts, int *out_n_parts,
                           strata_error *err);
    /* Called when the message is complete. */
    strata_status (*end)(void *user, const strata_rpc_message *message, strata_error *err);
    void *user;
} strata_rpc_receiver;

/* Receives what has arrived, without waiting. Returns when there is nothing more, or after a message at whose end `stop` was
 * set.
 * Fails: UNAVAILABLE when the connection ended, DATA for damage; what the receiver returned. */
STRATA_MUST_USE strata_status strata_rpc_channel_receive(strata_rpc_channel *c, const strata_rpc_receiver *receiver,
                                                         strata_error *err);
/* The events to poll for to receive more. */
short strata_rpc_channel_events(strata_rpc_channel *c, short otherwise);

/* Waits at most `ms` (-1: without a limit) until it can receive (POLLIN), send (POLLOUT) or either, or the connection ended.
 * events: of strata_rpc_channel_events, or what `wait` of strata_rpc_channel_send was called with. Returns what is possible
 * now; 0: neither. may_spin: see strata_rpc_pipes_wait. */
short strata_rpc_channel_wait(strata_rpc_channel *c, short events, int ms, bool may_spin);
/* Whether another thread must poll the socket, because a thread that waits for a pipe does not see that the socket was
 * closed. True if the channel shares memory and its end has not been noticed yet. Threads: any, before finish; this also
 * holds for the functions below. */
bool strata_rpc_channel_needs_poll(strata_rpc_channel *c);
/* Called when the other side has closed the socket. Wakes the waiting threads, which then receive what was sent before. */
void strata_rpc_channel_note_end(strata_rpc_channel *c);
/* The bytes that have arrived and were not received, and those that were sent and have not arrived. *out_full: there may be no
 * room for more of them. The second one must be called with the sender's role. */
size_t strata_rpc_channel_unread(strata_rpc_channel *c, bool *out_full);
size_t strata_rpc_channel_unsent(strata_rpc_channel *c);

/* Sends a message whose head and body are the parts. `wait` is called when the socket is full, with the events to poll for. If
 * it fails, sending is given up, and the connection cannot be used any more. Fails: UNAVAILABLE when the connection ended. */
typedef strata_status (*strata_rpc_wait_ready)(void *user, short events, strata_error *err);
STRATA_MUST_USE strata_status strata_rpc_channel_send(strata_rpc_channel *c, const strata_rpc_message *message,
                                                      const struct iovec *parts, int n_parts, strata_rpc_wait_ready wait,
                                                      void *user, strata_error *err);

/* ---- the first message of both sides ---- */

enum { STRATA_RPC_HELLO_BYTES = 8 + 4 + 64 + STRATA_RPC_AREA_NAME };
/* Writes a hello and returns its bytes. It has the incarnation, the milliseconds between heartbeats, the task's name, and after
 * a space the name of an area (NULL: none). The client sends the name of the area that it created; the server repeats it if it
 * has mapped the area. The client's message has the sequence number of its next request. 0: it has sent no request yet, so the
 * server forgets those of an earlier client of the task. */
size_t strata_rpc_hello_encode(const char *task, uint64_t incarnation, double heartbeat, const char *area, unsigned char *out);
/* out_area: room for STRATA_RPC_AREA_NAME bytes; "": none. */
STRATA_MUST_USE strata_status strata_rpc_hello_decode(const unsigned char *in, size_t n_bytes, char *out_task,
                                                      size_t most_task_bytes, uint64_t *out_incarnation, double *out_heartbeat,
                                                      char *out_area, strata_error *err);
/* Why a task's name cannot be one; NULL: it can. */
const char *strata_rpc_task_problem(const char *task);

#endif
