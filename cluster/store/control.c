/* SPDX-License-Identifier: Apache-2.0
 *
 * A control connection: that of a rank to rank 0, and rank 0's to the rank. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/store/loop.h"
#include "cluster/store/payload.h"
#include "core/base/clock.h"
#include "core/base/locale.h"

static strata_status begin_packet(void *user, const strata_packet *packet, const struct iovec **out_parts, int *out_n_parts,
                                  strata_error *err) {
    strata_control *c = user;
    if (packet->head_bytes || packet->body_bytes > STRATA_MESSAGE_BYTES)
        return strata_fail(err, STRATA_DATA, "a message of %zu bytes came; at most %d are taken",
                           packet->head_bytes + packet->body_bytes, STRATA_MESSAGE_BYTES);
    free(c->payload.iov_base);
    c->payload = (struct iovec){malloc(packet->body_bytes + 1), packet->body_bytes};
    if (!c->payload.iov_base)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a message of %zu bytes", packet->body_bytes);
    *out_parts = &c->payload;
    *out_n_parts = 1;
    return STRATA_OK;
}

static strata_status end_packet(void *user, const strata_packet *packet, strata_error *err) {
    strata_control *c = user;
    unsigned char *payload = c->payload.iov_base;
    payload[packet->body_bytes] = 0;
    c->last_received = strata_clock_seconds();
    return c->take(c->loop, c, packet, payload, err);
}

strata_status strata_control_open(strata_loop *loop, strata_control *c, strata_stream stream, strata_error *err) {
    c->loop = loop;
    c->last_received = strata_clock_seconds();
    STRATA_TRY(strata_connection_init(&c->connection, stream, err));
    return strata_loop_watch(loop, stream.fd, &c->source, err);
}

static void free_sent(void *user, strata_outgoing *outgoing) {
    (void)user;
    free(outgoing);
}

void strata_control_close(strata_loop *loop, strata_control *c) {
    for (strata_outgoing *o = c->connection.queue, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    c->connection.queue = NULL;
    strata_loop_forget(loop, c->connection.stream.fd);
    strata_connection_finish(&c->connection);
    free(c->payload.iov_base);
    c->payload.iov_base = NULL;
}

static strata_status flush(strata_loop *loop, strata_control *c, strata_error *err) {
    STRATA_TRY(strata_connection_flush(&c->connection, NULL, err));
    strata_loop_want_output(loop, c->connection.stream.fd, &c->source, c->connection.queue != NULL);
    return STRATA_OK;
}

void strata_control_send(strata_loop *loop, strata_control *c, strata_frame_type type, strata_status status, uint64_t sequence,
                         const void *payload, size_t n) {
    if (c->connection.stream.fd < 0 || c->broken) return;
    strata_outgoing *o = malloc(sizeof *o + n);
    if (!o) {
        c->broken = true;
        return;
    }
    if (n) memcpy(o + 1, payload, n);
    *o = (strata_outgoing){.packet = {.type = type, .status = status, .sequence = sequence, .body_bytes = n},
                           .body = {o + 1, n},
                           .sent = free_sent};
    strata_connection_queue(&c->connection, o);
    c->broken = flush(loop, c, NULL) != STRATA_OK;
}

strata_status strata_control_ready(strata_loop *loop, strata_control *c, strata_error *err) {
    const strata_packet_receiver receiver = {begin_packet, end_packet, c};
    STRATA_TRY(strata_connection_receive(&c->connection, &receiver, INT_MAX, err));
    return c->broken ? STRATA_OK : flush(loop, c, err);
}

bool strata_control_is_silent(const strata_loop *loop, const strata_control *c, double now, char how[160]) {
    const double limit = strata_pulse_limit(loop->heartbeat, c->heartbeat);
    if (c->connection.stream.fd < 0 || !strata_pulse_is_lost(&loop->pulse, now, c->last_received, limit)) return false;
    strata_format(how, 160, "it gave no sign of life for %g s; it is stopped, or its link is cut", limit);
    return true;
}
