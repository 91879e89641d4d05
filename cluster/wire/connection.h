/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that sends and receives frames of the store without blocking. Bytes that the socket does not accept now are
 * stored, and so are the bytes of an incomplete received frame. */
#ifndef STRATA_CLUSTER_WIRE_CONNECTION_H
#define STRATA_CLUSTER_WIRE_CONNECTION_H

#include "cluster/wire/frame.h"
#include "cluster/wire/stream.h"

typedef struct strata_connection {
    /* The socket, which the connection owns. */
    strata_stream stream;
    uint32_t n_in, n_out;
    /* The bytes [out_first, out_end) of `out` wait to be sent; out_room: the size of `out`. */
    unsigned char *out;
    size_t out_first, out_end, out_room;
    /* How many bytes of the current frame, header and payload, were received. */
    size_t in_n;
    unsigned char *payload;
    /* Valid when the header was received. */
    strata_frame frame;
    unsigned char header[STRATA_FRAME_BYTES];
} strata_connection;

void strata_connection_init(strata_connection *c, strata_stream stream);
void strata_connection_finish(strata_connection *c);

/* Adds a frame to the output, and sends as much as the socket accepts. Fails: OUT_OF_MEMORY; UNAVAILABLE when the other side
 * has closed the connection. */
STRATA_MUST_USE strata_status strata_connection_send(strata_connection *c, strata_frame_type type, uint64_t sequence,
                                                     const void *payload, size_t n_bytes, strata_error *err);
STRATA_MUST_USE strata_status strata_connection_flush(strata_connection *c, strata_error *err);
static inline bool strata_connection_has_output(const strata_connection *c) {
    return c->out_first < c->out_end;
}

/* Reads what has arrived, and calls `take` for each frame. If `take` fails, reading stops and returns its failure. Fails:
 * UNAVAILABLE when the other side has closed the connection; DATA when the bytes are not a valid frame. */
typedef strata_status (*strata_take_frame)(void *user, const strata_frame *frame, const unsigned char *payload,
                                           strata_error *err);
STRATA_MUST_USE strata_status strata_connection_read(strata_connection *c, strata_take_frame take, void *user,
                                                     strata_error *err);

#endif
