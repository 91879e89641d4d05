/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a connection is bounded. For input it is at most the largest frame payload. For output, at most one reply and
 * a few heartbeats wait at a time. */
#include "cluster/wire/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/wire/crc32c.h"
#include "core/base/locale.h"

void strata_connection_init(strata_connection *c, strata_stream stream) {
    *c = (strata_connection){.stream = stream};
}

void strata_connection_finish(strata_connection *c) {
    strata_stream_close(&c->stream);
    free(c->out);
    free(c->payload);
    *c = (strata_connection){.stream.fd = -1};
}

strata_status strata_connection_flush(strata_connection *c, strata_error *err) {
    while (c->out_first < c->out_end) {
        const struct iovec rest = {c->out + c->out_first, c->out_end - c->out_first};
        const ssize_t n = strata_stream_send(&c->stream, &rest, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return STRATA_OK;
        if (n < 0) return strata_fail(err, STRATA_UNAVAILABLE, "cannot send: %s", strata_stream_problem(&c->stream, errno));
        c->out_first += (size_t)n;
    }
    c->out_first = c->out_end = 0;
    return STRATA_OK;
}

strata_status strata_connection_send(strata_connection *c, strata_frame_type type, uint64_t sequence, const void *payload,
                                     size_t n_bytes, strata_error *err) {
    const size_t needed = c->out_end + STRATA_FRAME_BYTES + n_bytes;
    if (needed > c->out_room) {
        unsigned char *grown = realloc(c->out, needed * 2);
        if (!grown) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes to send", needed);
        c->out = grown;
        c->out_room = needed * 2;
    }
    const strata_frame frame = {.type = type,
                                .number = c->n_out++,
                                .bytes = (uint32_t)n_bytes,
                                .payload_crc = c->stream.tls ? 0 : strata_crc32c(0, payload, n_bytes),
                                .call = {.sequence = sequence}};
    strata_frame_encode(&frame, c->out + c->out_end);
    if (n_bytes) memcpy(c->out + c->out_end + STRATA_FRAME_BYTES, payload, n_bytes);
    c->out_end = needed;
    return strata_connection_flush(c, err);
}

static strata_status take_header(strata_connection *c, strata_error *err) {
    STRATA_TRY(strata_frame_decode(c->header, STRATA_MESSAGE_BYTES, &c->frame, err));
    if (c->frame.number != c->n_in)
        return strata_fail(err, STRATA_DATA, "frame %u came where %u was due", c->frame.number, c->n_in);
    c->n_in++;
    c->payload = malloc((size_t)c->frame.bytes + 1);
    return c->payload ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a frame of %u bytes", c->frame.bytes);
}

static strata_status take_payload(strata_connection *c, strata_take_frame take, void *user, strata_error *err) {
    if (!c->stream.tls && strata_crc32c(0, c->payload, c->frame.bytes) != c->frame.payload_crc)
        return strata_fail(err, STRATA_DATA, "a frame was damaged on its way");
    unsigned char *payload = c->payload;
    c->payload = NULL;
    c->in_n = 0;
    strata_status status = take(user, &c->frame, payload, err);
    free(payload);
    return status;
}

strata_status strata_connection_read(strata_connection *c, strata_take_frame take, void *user, strata_error *err) {
    for (;;) {
        const bool in_header = c->in_n < STRATA_FRAME_BYTES;
        unsigned char *to = in_header ? c->header + c->in_n : c->payload + (c->in_n - STRATA_FRAME_BYTES);
        const size_t wanted = in_header ? STRATA_FRAME_BYTES - c->in_n : STRATA_FRAME_BYTES + c->frame.bytes - c->in_n;
        const struct iovec rest = {to, wanted};
        const ssize_t n = strata_stream_recv(&c->stream, &rest, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return STRATA_OK;
        if (n < 0 && errno == EPROTO) return strata_fail(err, STRATA_DATA, "%s", strata_stream_problem(&c->stream, errno));
        if (n <= 0) return strata_fail(err, STRATA_UNAVAILABLE, "%s", n ? strata_errno_text(errno) : "its connection closed");
        c->in_n += (size_t)n;
        if (in_header && c->in_n == STRATA_FRAME_BYTES) STRATA_TRY(take_header(c, err));
        if (c->in_n >= STRATA_FRAME_BYTES && c->in_n == STRATA_FRAME_BYTES + c->frame.bytes)
            STRATA_TRY(take_payload(c, take, user, err));
    }
}
