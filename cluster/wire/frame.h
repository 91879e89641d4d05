/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames are what connections transfer after the handshake. A frame begins with a header of fixed size, whose numbers are
 * little-endian, as those of every machine that Strata is compiled for. The header has a CRC32C of its own, so that a damaged
 * length is never used. The payload follows; its CRC32C is in the header. Under TLS that is 0 and not checked, since TLS checks
 * more. */
#ifndef STRATA_CLUSTER_WIRE_FRAME_H
#define STRATA_CLUSTER_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "strata/status.h"

enum { STRATA_FRAME_BYTES = 56 };

typedef enum strata_frame_type {
    STRATA_FRAME_DATA = 1, /* between ranks: a message of a collective */
    STRATA_FRAME_ASK,      /* a request, to a task's server (rpc/rpc.h) or to the store */
    STRATA_FRAME_ANSWER,   /* its reply */
    STRATA_FRAME_REPORT,   /* to the store: a communicator failed; status and text */
    STRATA_FRAME_VERDICT,  /* to ranks: the same; the sequence of both is the communicator's id */
    /* A heartbeat. To rank 0 it has a payload (strata_beat), and the sequence is the sender's latest collective. */
    STRATA_FRAME_BEAT,
    STRATA_FRAME_LEAVE,   /* the sender leaves regularly */
    STRATA_FRAME_LOST,    /* rank `sequence` of the job was lost; status and text */
    STRATA_FRAME_LEFT,    /* rank `sequence` of the job has left regularly; status and text */
    STRATA_FRAME_MESSAGE, /* between ranks: a message with a tag, the sequence (message/link.h) */
    STRATA_FRAME_HELLO,   /* between tasks: the names of the two sides (rpc/hello.h) */
    STRATA_FRAME_TYPES
} strata_frame_type;

/* The description of a call of a collective, which must be equal on both sides of a message. It has no padding, since it is
 * compared as bytes. */
typedef struct strata_call {
    uint8_t kind, dtype, reducer, algorithm;
    int32_t root;
    /* The checksum of the array `counts`; 0: there is no such array. */
    uint32_t counts_crc;
    uint32_t communicator;
    /* How many collectives were called before it; 0 for send and recv. */
    uint64_t sequence;
    uint64_t count;
} strata_call;

/* Flags of a part. */
enum {
    /* The message's first frame. */
    STRATA_PART_FIRST = 1,
    /* The payload is not behind the header but in memory that both sides map (memory/area.h), at the offset that stands in
     * place of its checksum. */
    STRATA_PART_SHARED = 2,
};

/* The message that a frame is a part of. All of its frames have the same values but for the flags. */
typedef struct strata_part {
    uint8_t flags;
    /* A strata_status. */
    uint8_t status;
    uint16_t zero;
    /* A message has a head and then a body. */
    uint32_t head_bytes;
    /* How many sequence numbers before this one have no reply yet, so that the receiver drops older replies. */
    uint32_t n_unanswered;
    /* The method of a request, or the communicator of a message. */
    uint32_t target;
    uint64_t sequence;
    uint64_t body_bytes;
} strata_part;

/* A header, as it is transferred. */
typedef struct strata_frame {
    /* number: how many frames were sent before this one in this direction. */
    uint32_t magic, type, number, bytes;
    union {
        /* DATA: both sides compare it. */
        strata_call call;
        /* All other types. */
        strata_part part;
    };
    uint32_t payload_crc, header_crc;
} strata_frame;
_Static_assert(sizeof(strata_frame) == STRATA_FRAME_BYTES && sizeof(strata_call) == sizeof(strata_part), "without padding");

/* Sets the magic number and the header's checksum. */
void strata_frame_seal(strata_frame *frame);
/* Fails with DATA, and the reason, if the bytes are not a header, or if the payload has more than most_bytes. */
STRATA_MUST_USE strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes,
                                                  strata_frame *out_frame, strata_error *err);

#endif
