/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames are what connections transfer after the handshake. A frame begins with a header of fixed size, with little-endian
 * numbers. The header has a CRC32C of its own, so that a damaged length is never used. The payload follows; its CRC32C is in
 * the header. Under TLS that is 0 and not checked, since TLS checks more. Offsets in the header:
 *
 *     0 magic  4 type  8 number  12 bytes  16 call (32 bytes)  48 CRC of the payload  52 CRC of bytes 0 to 51 */
#ifndef STRATA_CLUSTER_WIRE_FRAME_H
#define STRATA_CLUSTER_WIRE_FRAME_H

#include "cluster/store/board.h"
#include "cluster/transport.h"

enum { STRATA_FRAME_BYTES = 56 };

typedef enum strata_frame_type {
    STRATA_FRAME_DATA = 1, /* between ranks: a message of a collective */
    STRATA_FRAME_REQUEST,  /* to the store; the types up to LEFT are between a rank and the store */
    STRATA_FRAME_REPLY,
    STRATA_FRAME_REPORT,  /* to the store: a communicator failed; status and text */
    STRATA_FRAME_VERDICT, /* to ranks: the same; call.sequence of both is the communicator's id */
    /* A heartbeat. call.sequence: the latest collective of the sender. To rank 0 it has a payload (strata_beat_encode). */
    STRATA_FRAME_BEAT,
    STRATA_FRAME_LEAVE,   /* the sender leaves regularly */
    STRATA_FRAME_LOST,    /* rank call.sequence of the job was lost; status and text */
    STRATA_FRAME_LEFT,    /* rank call.sequence of the job has left regularly; status and text */
    STRATA_FRAME_MESSAGE, /* between ranks: a part of a message (message/link.h) */
    STRATA_FRAME_HELLO,   /* between tasks, as are the next two: the names of the two sides (rpc/channel.h) */
    STRATA_FRAME_ASK,     /* a part of a request */
    STRATA_FRAME_ANSWER,  /* a part of its reply */
    STRATA_FRAME_TYPES
} strata_frame_type;

typedef struct strata_frame {
    /* number: how many frames were sent before this one in this direction. */
    uint32_t type, number, bytes, payload_crc;
    strata_call call;
} strata_frame;

void strata_frame_encode(const strata_frame *frame, unsigned char out[STRATA_FRAME_BYTES]);
/* Fails with DATA, and the reason, if the bytes are not a header, or if the payload has more than most_bytes. */
STRATA_MUST_USE strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes,
                                                  strata_frame *out_frame, strata_error *err);

/* Reads payload_crc from an encoded header. */
uint32_t strata_frame_payload_crc(const unsigned char in[STRATA_FRAME_BYTES]);

/* ---- payloads of the store ---- */

enum {
    STRATA_MESSAGE_BYTES = 64 + STRATA_STORE_KEY_BYTES + 2 * STRATA_STORE_VALUE_BYTES /* the largest payload */
};

/* Encodes a request to `out`, which has room for STRATA_MESSAGE_BYTES. Returns the number of bytes. */
size_t strata_request_encode(const strata_store_request *request, double seconds, unsigned char *out);
/* Decodes a request. Pointers of *out_request point into `in`, except the key, which is copied to out_key. */
STRATA_MUST_USE strata_status strata_request_decode(const unsigned char *in, size_t n_bytes,
                                                    char out_key[STRATA_STORE_KEY_BYTES + 1], strata_store_request *out_request,
                                                    double *out_seconds, strata_error *err);
/* A heartbeat contains the interval between the sender's heartbeats in seconds, and whether the sender has a communicator
 * without a verdict, so that it still needs the store. */
enum { STRATA_BEAT_BYTES = 5 };
void strata_beat_encode(double heartbeat, bool needs_store, unsigned char out[STRATA_BEAT_BYTES]);
STRATA_MUST_USE strata_status strata_beat_decode(const unsigned char *in, size_t n_bytes, double *out_heartbeat,
                                                 bool *out_needs_store, strata_error *err);
/* Encodes a status, its text, and number and value of a reply (NULL: none). */
size_t strata_answer_encode(strata_status status, const char *text, const strata_store_reply *reply, unsigned char *out);
/* Decodes an answer. *out_error gets the status and the text. *out_reply (NULL: not needed) gets a value that the caller
 * frees. */
STRATA_MUST_USE strata_status strata_answer_decode(const unsigned char *in, size_t n_bytes, strata_error *out_error,
                                                   strata_store_reply *out_reply, strata_error *err);

#endif
