/* SPDX-License-Identifier: Apache-2.0
 *
 * A control connection: that of a rank to rank 0, and rank 0's to the rank. */
#include <limits.h>

#include "cluster/store/loop.h"
#include "core/base/clock.h"
#include "core/base/locale.h"

uint32_t strata_milliseconds(double seconds) {
    const double ms = seconds * 1000;
    return ms < 0 ? 0 : ms > 4e9 ? 4000000000u : (uint32_t)ms;
}

/* ---- requests: a length that was received is used only after it was compared with the number of bytes that are there ---- */

/* The beginning of a request. The key, the value and the expected value follow. */
typedef struct request_head {
    int64_t amount;
    uint32_t op, ms, n_key, n_value, n_expected, zero;
} request_head;

size_t strata_request_encode(const strata_store_request *r, double seconds, unsigned char *out) {
    const request_head h = {.amount = r->amount,
                            .op = (uint32_t)r->op,
                            .ms = strata_milliseconds(seconds),
                            .n_key = (uint32_t)strlen(r->key),
                            .n_value = (uint32_t)r->n_value,
                            .n_expected = (uint32_t)r->n_expected};
    unsigned char *at = out + sizeof h;
    memcpy(out, &h, sizeof h);
    memcpy(at, r->key, h.n_key);
    if (h.n_value) memcpy(at + h.n_key, r->value, h.n_value);
    if (h.n_expected) memcpy(at + h.n_key + h.n_value, r->expected, h.n_expected);
    return sizeof h + h.n_key + h.n_value + h.n_expected;
}

strata_status strata_request_decode(const unsigned char *in, size_t n_bytes, char out_key[STRATA_STORE_KEY_BYTES + 1],
                                    strata_store_request *out_request, double *out_seconds, strata_error *err) {
    request_head h;
    if (n_bytes < sizeof h) return strata_fail(err, STRATA_DATA, "a request of %zu bytes is cut off", n_bytes);
    const unsigned char *at = in + sizeof h;
    memcpy(&h, in, sizeof h);
    if (h.n_key > STRATA_STORE_KEY_BYTES || h.n_value > STRATA_STORE_VALUE_BYTES || h.n_expected > STRATA_STORE_VALUE_BYTES ||
        sizeof h + h.n_key + h.n_value + h.n_expected != n_bytes || h.zero || memchr(at, 0, h.n_key))
        return strata_fail(err, STRATA_DATA, "a request of %zu bytes does not hold what it says", n_bytes);
    memcpy(out_key, at, h.n_key);
    out_key[h.n_key] = 0;
    *out_seconds = h.ms / 1000.0;
    *out_request = (strata_store_request){.op = (strata_store_op)h.op,
                                          .key = out_key,
                                          .value = at + h.n_key,
                                          .n_value = h.n_value,
                                          .expected = at + h.n_key + h.n_value,
                                          .n_expected = h.n_expected,
                                          .amount = h.amount};
    return STRATA_OK;
}

/* ---- the connection ---- */

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
    return c->take(c->loop, c, packet, payload, err);
}

strata_status strata_control_open(strata_loop *loop, strata_control *c, strata_stream stream, strata_error *err) {
    c->loop = loop;
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
    if (c->connection.stream.fd < 0 || !strata_pulse_is_lost(&loop->pulse, now, atomic_load(&c->connection.received), limit))
        return false;
    strata_format(how, 160, "it gave no sign of life for %g s; it is stopped, or its link is cut", limit);
    return true;
}
