/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends one request or reply twice or not at all. It replaces the functions that write a message into a socket, or into the
 * shared memory of client and server. */
#include "tests/faults/wire.h"

#include <string.h>

#include "cluster/wire/connection.h"

#define WRAP(f) extern __typeof__(f) __real_##f, __wrap_##f
WRAP(strata_connection_send);
WRAP(strata_stream_send);
WRAP(strata_pipes_send);

/* Whether it is a request or a reply, and not a heartbeat. */
static bool is_message(const struct iovec *parts) {
    uint32_t type = 0;
    if (parts->iov_len < STRATA_FRAME_BYTES) return false;
    memcpy(&type, (const char *)parts->iov_base + 4, sizeof type);
    return type == STRATA_FRAME_ASK || type == STRATA_FRAME_ANSWER;
}

/* Sends through the stream, or through the shared memory if `s` is NULL. */
static ssize_t send_by(strata_stream *s, strata_pipes *p, const struct iovec *parts, int n_parts) {
    return s ? __real_strata_stream_send(s, parts, n_parts) : __real_strata_pipes_send(p, parts, n_parts);
}

static ssize_t send_with_fault(strata_stream *s, strata_pipes *p, const struct iovec *parts, int n_parts) {
    const int damage = is_message(parts) ? points_take_frame_fault() : FRAME_NONE;
    ssize_t n = 0;
    for (int i = 0; i < n_parts; i++) n += (ssize_t)parts[i].iov_len;
    if (damage == FRAME_DROP) return n;
    const ssize_t sent = send_by(s, p, parts, n_parts);
    if (damage == FRAME_REPEAT && sent == n) {
        const ssize_t again = send_by(s, p, parts, n_parts);
        (void)again; /* if only a part of it is sent, the receiver gets a damaged message, which is a fault as well */
    }
    return sent;
}

ssize_t __wrap_strata_stream_send(strata_stream *s, const struct iovec *parts, int n_parts) {
    return send_with_fault(s, NULL, parts, n_parts);
}

ssize_t __wrap_strata_pipes_send(strata_pipes *p, const struct iovec *parts, int n_parts) {
    return send_with_fault(NULL, p, parts, n_parts);
}

strata_status __wrap_strata_connection_send(strata_connection *c, const strata_packet *message, const struct iovec *parts,
                                            int n_parts, strata_wait_ready wait, void *user, strata_error *err) {
    if (message->type == STRATA_FRAME_ANSWER) points_answer();
    return __real_strata_connection_send(c, message, parts, n_parts, wait, user, err);
}
