/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that carries frames of the store, without blocking: what cannot be sent now is kept, what came in part too. */
#ifndef STRATA_CLUSTER_WIRE_CONNECTION_H
#define STRATA_CLUSTER_WIRE_CONNECTION_H

#include "cluster/wire/frame.h"
#include "cluster/wire/stream.h"

typedef struct strata_connection {
    /* The socket, which the connection owns. */
    strata_stream stream;
    uint32_t n_in, n_out;
    /* [out_first, out_end) is to be sent. */
    unsigned char *out;
    size_t out_first, out_end, out_room;
    /* How many bytes of the incoming header and payload have come. */
    size_t in_n;
    unsigned char *payload;
    /* Valid once the header is there. */
    strata_frame frame;
    unsigned char header[STRATA_FRAME_BYTES];
} strata_connection;

void strata_connection_init(strata_connection *c, strata_stream stream);
void strata_connection_finish(strata_connection *c);

/* Adds a frame and sends what can be sent. Fails: OUT_OF_MEMORY; UNAVAILABLE when the other side is gone. */
STRATA_MUST_USE strata_status strata_connection_send(strata_connection *c, strata_frame_type type, uint64_t sequence,
                                                     const void *payload, size_t n_bytes, strata_error *err);
STRATA_MUST_USE strata_status strata_connection_flush(strata_connection *c, strata_error *err);
static inline bool strata_connection_has_output(const strata_connection *c) {
    return c->out_first < c->out_end;
}

/* Reads what is there; takes each frame to `take`, which may stop it by failing. Fails: UNAVAILABLE when the other side closed,
 * DATA for what is no frame. */
typedef strata_status (*strata_take_frame)(void *user, const strata_frame *frame, const unsigned char *payload,
                                           strata_error *err);
STRATA_MUST_USE strata_status strata_connection_read(strata_connection *c, strata_take_frame take, void *user,
                                                     strata_error *err);

#endif
