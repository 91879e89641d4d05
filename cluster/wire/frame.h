/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames: what connections carry once both sides are known. A header of fixed size, little-endian, with a CRC32C of its own, so
 * that a damaged length is never believed; then the payload, whose CRC32C the header holds (0, unchecked, under TLS, which
 * checks more).
 *
 *     0 magic  4 type  8 number  12 bytes  16 call (32 bytes)  48 CRC of the payload  52 CRC of bytes 0 to 51 */
#ifndef STRATA_CLUSTER_WIRE_FRAME_H
#define STRATA_CLUSTER_WIRE_FRAME_H

#include "cluster/store/board.h"
#include "cluster/transport.h"

enum { STRATA_FRAME_BYTES = 56 };

typedef enum strata_frame_type {
    STRATA_FRAME_DATA = 1, /* between ranks: a message of a collective */
    STRATA_FRAME_REQUEST,  /* to the store, and below from and to it */
    STRATA_FRAME_REPLY,
    STRATA_FRAME_REPORT,  /* a failure, as a status and a text */
    STRATA_FRAME_VERDICT, /* the same; call.sequence of both is the communicator */
    STRATA_FRAME_BEAT,    /* a sign of life: call.sequence is the newest collective; to rank 0 with a beat's payload */
    STRATA_FRAME_LEAVE,   /* an orderly end */
    STRATA_FRAME_LOST,    /* a rank of the job, call.sequence, was lost: a status and a text */
    STRATA_FRAME_LEFT,    /* it left in order; the same */
    STRATA_FRAME_MESSAGE, /* between ranks: a part of a message (message/link.h) */
    STRATA_FRAME_HELLO,   /* between tasks, and the two below: who the sides are (rpc/channel.h) */
    STRATA_FRAME_ASK,     /* a part of a request */
    STRATA_FRAME_ANSWER,  /* a part of its reply */
    STRATA_FRAME_TYPES
} strata_frame_type;

typedef struct strata_frame {
    /* number: of frames before it in this direction. */
    uint32_t type, number, bytes, payload_crc;
    strata_call call;
} strata_frame;

void strata_frame_encode(const strata_frame *frame, unsigned char out[STRATA_FRAME_BYTES]);
/* DATA, with the reason, for bytes that are no header, or one of more than most_bytes. */
STRATA_MUST_USE strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes,
                                                  strata_frame *out_frame, strata_error *err);

/* Of an encoded header. */
uint32_t strata_frame_payload_crc(const unsigned char in[STRATA_FRAME_BYTES]);

/* ---- payloads of the store ---- */

enum {
    STRATA_MESSAGE_BYTES = 64 + STRATA_STORE_KEY_BYTES + 2 * STRATA_STORE_VALUE_BYTES /* the largest */
};

/* Returns the bytes written to out, which has room for the largest. */
size_t strata_request_encode(const strata_store_request *request, double seconds, unsigned char *out);
/* Pointers of *out_request go into `in`, the key to *out_key. */
STRATA_MUST_USE strata_status strata_request_decode(const unsigned char *in, size_t n_bytes,
                                                    char out_key[STRATA_STORE_KEY_BYTES + 1], strata_store_request *out_request,
                                                    double *out_seconds, strata_error *err);
/* A heartbeat: the seconds between the sender's heartbeats, and whether the sender has a communicator without a verdict, so
 * that it needs the store. */
enum { STRATA_BEAT_BYTES = 5 };
void strata_beat_encode(double heartbeat, bool needs_store, unsigned char out[STRATA_BEAT_BYTES]);
STRATA_MUST_USE strata_status strata_beat_decode(const unsigned char *in, size_t n_bytes, double *out_heartbeat,
                                                 bool *out_needs_store, strata_error *err);
/* A status, its text, and of a reply (NULL: none) the number and the value. */
size_t strata_answer_encode(strata_status status, const char *text, const strata_store_reply *reply, unsigned char *out);
/* *out_error gets the status and the text; *out_reply (NULL: not wanted) a value that the caller frees. */
STRATA_MUST_USE strata_status strata_answer_decode(const unsigned char *in, size_t n_bytes, strata_error *out_error,
                                                   strata_store_reply *out_reply, strata_error *err);

#endif
