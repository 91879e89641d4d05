/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that carries messages of remote calls: a head of at most STRATA_RPC_HEAD_BYTES, then a body of any size. A
 * message is one frame or several (wire/frame.h). Those that go through the socket have at most STRATA_RPC_SEGMENT bytes, so
 * that checksums are computed while the bytes are in the cache. Of a frame's call:
 *
 *     kind           status           dtype   1: the message's first frame       root   bytes of the head
 *     communicator   method           count   bytes of the body                  sequence
 *     counts_crc     how many sequence numbers before this one have no reply yet, so that the server drops older replies
 *     reducer        1: the frame's payload is not behind its header but in memory that both sides map (area.h), at the offset
 *                    that stands in place of its checksum
 *
 * Bytes go from and to the caller's memory without a copy, but for the first ones of a message, which are read together with
 * its header. One thread may send while another receives. */
#ifndef STRATA_CLUSTER_RPC_CHANNEL_H
#define STRATA_CLUSTER_RPC_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cluster/rpc/area.h"
#include "cluster/wire/frame.h"
#include "cluster/wire/stream.h"

enum { STRATA_RPC_SEGMENT = 256 << 10, STRATA_RPC_BUFFER = 32 << 10 };

typedef struct strata_rpc_message {
    strata_frame_type type;
    strata_status status;
    uint32_t method, n_unanswered;
    uint64_t sequence;
    size_t head_bytes, body_bytes;
    /* Where the body lies if all of the message is in memory that both sides map, at a multiple of STRATA_RPC_LINE with the
     * head before it; else NULL. Valid until `end` returns, or longer: see `kept`. */
    unsigned char *view;
} strata_rpc_message;

typedef struct strata_rpc_channel {
    /* Owned. */
    strata_stream stream;
    /* One thread at a time uses a TLS session. */
    pthread_mutex_t tls;
    /* When bytes came and went last (strata_clock_seconds). */
    _Atomic double received, sent;
    uint32_t n_in, n_out;

    /* Bytes that were read ahead: [first, end) of buffer. */
    unsigned char *buffer;
    size_t first, end;
    /* The frame that comes: valid while in_frame; `left` bytes of it are missing. */
    bool in_frame;
    strata_frame frame;
    size_t left;
    uint32_t crc;
    /* The message that comes: valid while in_message; `missing` bytes of head and body have not come. They go to parts[part]
     * from `offset` on; n_parts 0: they are dropped. */
    bool in_message;
    strata_rpc_message message;
    size_t missing;
    const struct iovec *parts;
    int n_parts, part;
    size_t offset;
    /* Set by `end` of a receiver: read returns. */
    bool stop;
    /* Set by a receiver's `end`: it keeps the message's view, and gives it back by strata_rpc_block_return. */
    bool kept;
    /* Memory that both sides map (owned, NULL: none), the ring that this side cuts from, and the index of the other. */
    strata_rpc_area *area;
    strata_rpc_ring ring;
    int incoming;
    /* A block that is reserved for the next message (strata_rpc_channel_reserve); NULL: none. */
    unsigned char *reserved;
} strata_rpc_channel;

/* Takes the stream. */
STRATA_MUST_USE strata_status strata_rpc_channel_init(strata_rpc_channel *c, strata_stream stream, strata_error *err);
void strata_rpc_channel_finish(strata_rpc_channel *c);
/* Both sides map the area, which is taken: bodies go through it from now on. */
void strata_rpc_channel_share(strata_rpc_channel *c, strata_rpc_area *area, bool is_client);
/* Memory for the body of the next message, which is then sent without a copy if its one part is that; its head has at most
 * STRATA_RPC_LINE bytes. NULL: there is none now. With the sender's role. */
void *strata_rpc_channel_reserve(strata_rpc_channel *c, size_t bytes);
void strata_rpc_channel_unreserve(strata_rpc_channel *c); /* where it was not sent */
/* Wakes whoever sends or receives: both fail. Threads: any, before finish. */
void strata_rpc_channel_shut(strata_rpc_channel *c);

/* What happens to messages that come. */
typedef struct strata_rpc_receiver {
    /* A message begins. *out_parts gets head_bytes + body_bytes bytes of room, or 0 parts: its bytes are dropped, or used
     * where they lie (view). */
    strata_status (*begin)(void *user, const strata_rpc_message *message, const struct iovec **out_parts, int *out_n_parts,
                           strata_error *err);
    /* It is whole. */
    strata_status (*end)(void *user, const strata_rpc_message *message, strata_error *err);
    void *user;
} strata_rpc_receiver;

/* Receives what is there, without waiting; returns where nothing more is, or after a message at whose end `stop` was set.
 * Fails: UNAVAILABLE when the connection ended, DATA for damage; what the receiver returned. */
STRATA_MUST_USE strata_status strata_rpc_channel_receive(strata_rpc_channel *c, const strata_rpc_receiver *receiver,
                                                         strata_error *err);
/* What to poll for to receive more. */
short strata_rpc_channel_events(strata_rpc_channel *c, short otherwise);

/* Sends a message whose head and body are the parts. `wait` is called when the socket is full, with what to poll for; it fails
 * to give up, after which the connection is of no use. Fails: UNAVAILABLE when the connection ended. */
typedef strata_status (*strata_rpc_wait_ready)(void *user, short events, strata_error *err);
STRATA_MUST_USE strata_status strata_rpc_channel_send(strata_rpc_channel *c, const strata_rpc_message *message,
                                                      const struct iovec *parts, int n_parts, strata_rpc_wait_ready wait,
                                                      void *user, strata_error *err);

/* ---- the first message of both sides ---- */

enum { STRATA_RPC_HELLO_BYTES = 8 + 4 + 64 + STRATA_RPC_AREA_NAME };
/* Returns the bytes written: incarnation, milliseconds between signs of life, the task's name, and behind a space the name of
 * an area (NULL: none): the client's says which one it made, the server's that it maps it, too. */
size_t strata_rpc_hello_encode(const char *task, uint64_t incarnation, double heartbeat, const char *area, unsigned char *out);
/* out_area: room for STRATA_RPC_AREA_NAME bytes; "": none. */
STRATA_MUST_USE strata_status strata_rpc_hello_decode(const unsigned char *in, size_t n_bytes, char *out_task,
                                                      size_t most_task_bytes, uint64_t *out_incarnation, double *out_heartbeat,
                                                      char *out_area, strata_error *err);
/* Why a task's name cannot be one; NULL: it can. */
const char *strata_rpc_task_problem(const char *task);

#endif
