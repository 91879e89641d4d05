/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts frames and the store's payloads to bytes and back. A length that was received is used only after it was compared
 * with the number of bytes that are there. */
#include "cluster/wire/frame.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/wire/crc32c.h"

static const uint32_t MAGIC = 0x31525453; /* "STR1" */

static unsigned char *put(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

static uint64_t get(const unsigned char **at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t) * (*at)++ << (8 * i);
    return value;
}

void strata_frame_encode(const strata_frame *frame, unsigned char out[STRATA_FRAME_BYTES]) {
    const strata_call *call = &frame->call;
    unsigned char *at = put(out, MAGIC, 4);
    at = put(at, frame->type, 4);
    at = put(at, frame->number, 4);
    at = put(at, frame->bytes, 4);
    at = put(at, call->kind, 1);
    at = put(at, call->dtype, 1);
    at = put(at, call->reducer, 1);
    at = put(at, call->algorithm, 1);
    at = put(at, (uint32_t)call->root, 4);
    at = put(at, call->counts_crc, 4);
    at = put(at, call->communicator, 4);
    at = put(at, call->sequence, 8);
    at = put(at, call->count, 8);
    at = put(at, frame->payload_crc, 4);
    put(at, strata_crc32c(0, out, STRATA_FRAME_BYTES - 4), 4);
}

strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes, strata_frame *out_frame,
                                  strata_error *err) {
    const unsigned char *at = in, *sum = in + STRATA_FRAME_BYTES - 4;
    const uint32_t magic = (uint32_t)get(&at, 4), crc = strata_crc32c(0, in, STRATA_FRAME_BYTES - 4),
                   told = (uint32_t)get(&sum, 4);
    if (magic != MAGIC) return strata_fail(err, STRATA_DATA, "a frame begins with %08x, not %08x", magic, MAGIC);
    if (crc != told)
        return strata_fail(err, STRATA_DATA, "a frame's header was damaged on its way: checksum %08x, not %08x", crc, told);
    strata_frame f = {0};
    f.type = (uint32_t)get(&at, 4);
    f.number = (uint32_t)get(&at, 4);
    f.bytes = (uint32_t)get(&at, 4);
    f.call.kind = (uint8_t)get(&at, 1);
    f.call.dtype = (uint8_t)get(&at, 1);
    f.call.reducer = (uint8_t)get(&at, 1);
    f.call.algorithm = (uint8_t)get(&at, 1);
    f.call.root = (int32_t)(uint32_t)get(&at, 4);
    f.call.counts_crc = (uint32_t)get(&at, 4);
    f.call.communicator = (uint32_t)get(&at, 4);
    f.call.sequence = get(&at, 8);
    f.call.count = get(&at, 8);
    f.payload_crc = (uint32_t)get(&at, 4);
    if (!f.type || f.type >= STRATA_FRAME_TYPES)
        return strata_fail(err, STRATA_DATA, "a frame has the unknown type %u", f.type);
    if (f.bytes > most_bytes)
        return strata_fail(err, STRATA_DATA, "a frame of %u bytes came; at most %u are taken", f.bytes, most_bytes);
    *out_frame = f;
    return STRATA_OK;
}

uint32_t strata_frame_payload_crc(const unsigned char in[STRATA_FRAME_BYTES]) {
    const unsigned char *at = in + STRATA_FRAME_BYTES - 8;
    return (uint32_t)get(&at, 4);
}

static uint32_t milliseconds(double seconds) {
    const double ms = seconds * 1000;
    return ms < 0 ? 0 : ms > 4e9 ? 4000000000u : (uint32_t)ms;
}

void strata_beat_encode(double heartbeat, bool needs_store, unsigned char out[STRATA_BEAT_BYTES]) {
    put(put(out, milliseconds(heartbeat), 4), needs_store, 1);
}

strata_status strata_beat_decode(const unsigned char *in, size_t n_bytes, double *out_heartbeat, bool *out_needs_store,
                                 strata_error *err) {
    if (n_bytes != STRATA_BEAT_BYTES)
        return strata_fail(err, STRATA_DATA, "a sign of life of %zu bytes came, not of %d", n_bytes, STRATA_BEAT_BYTES);
    *out_heartbeat = (double)get(&in, 4) / 1000;
    *out_needs_store = get(&in, 1) != 0;
    return STRATA_OK;
}

/* ---- requests: op 1 byte, seconds in ms 4, amount 8, lengths of key 2, value 4, expected 4; then key, value, expected ---- */

enum { REQUEST_BYTES = 23, ANSWER_BYTES = 15 };

size_t strata_request_encode(const strata_store_request *r, double seconds, unsigned char *out) {
    const size_t n_key = strlen(r->key);
    unsigned char *at = put(out, (uint64_t)r->op, 1);
    at = put(at, milliseconds(seconds), 4);
    at = put(at, (uint64_t)r->amount, 8);
    at = put(at, n_key, 2);
    at = put(at, r->n_value, 4);
    at = put(at, r->n_expected, 4);
    memcpy(at, r->key, n_key);
    if (r->n_value) memcpy(at + n_key, r->value, r->n_value);
    if (r->n_expected) memcpy(at + n_key + r->n_value, r->expected, r->n_expected);
    return REQUEST_BYTES + n_key + r->n_value + r->n_expected;
}

strata_status strata_request_decode(const unsigned char *in, size_t n_bytes, char out_key[STRATA_STORE_KEY_BYTES + 1],
                                    strata_store_request *out_request, double *out_seconds, strata_error *err) {
    if (n_bytes < REQUEST_BYTES) return strata_fail(err, STRATA_DATA, "a request of %zu bytes is cut off", n_bytes);
    const unsigned char *at = in;
    strata_store_request r = {.op = (strata_store_op)get(&at, 1)};
    *out_seconds = (double)get(&at, 4) / 1000;
    r.amount = (int64_t)get(&at, 8);
    const size_t n_key = get(&at, 2);
    r.n_value = get(&at, 4);
    r.n_expected = get(&at, 4);
    if (n_key > STRATA_STORE_KEY_BYTES || r.n_value > STRATA_STORE_VALUE_BYTES || r.n_expected > STRATA_STORE_VALUE_BYTES ||
        REQUEST_BYTES + n_key + r.n_value + r.n_expected != n_bytes || memchr(at, 0, n_key))
        return strata_fail(err, STRATA_DATA, "a request of %zu bytes does not hold what it says", n_bytes);
    memcpy(out_key, at, n_key);
    out_key[n_key] = 0;
    r.key = out_key;
    r.value = at + n_key;
    r.expected = at + n_key + r.n_value;
    *out_request = r;
    return STRATA_OK;
}

/* ---- answers: status 1 byte, number 8, lengths of text 2, value 4; then text, value ---- */

size_t strata_answer_encode(strata_status status, const char *text, const strata_store_reply *reply, unsigned char *out) {
    const size_t n_text = strnlen(text, STRATA_ERROR_MESSAGE_BYTES - 1), n_value = reply && reply->value ? reply->n_value : 0;
    unsigned char *at = put(out, (uint64_t)status, 1);
    at = put(at, reply ? (uint64_t)reply->number : 0, 8);
    at = put(at, n_text, 2);
    at = put(at, n_value, 4);
    memcpy(at, text, n_text);
    if (n_value) memcpy(at + n_text, reply->value, n_value);
    return ANSWER_BYTES + n_text + n_value;
}

strata_status strata_answer_decode(const unsigned char *in, size_t n_bytes, strata_error *out_error,
                                   strata_store_reply *out_reply, strata_error *err) {
    if (n_bytes < ANSWER_BYTES) return strata_fail(err, STRATA_DATA, "an answer of %zu bytes is cut off", n_bytes);
    const unsigned char *at = in;
    const strata_status status = (strata_status)get(&at, 1);
    const int64_t number = (int64_t)get(&at, 8);
    const size_t n_text = get(&at, 2), n_value = get(&at, 4);
    if (status > STRATA_INTERNAL || n_text >= STRATA_ERROR_MESSAGE_BYTES || n_value > STRATA_STORE_VALUE_BYTES ||
        ANSWER_BYTES + n_text + n_value != n_bytes)
        return strata_fail(err, STRATA_DATA, "an answer of %zu bytes does not hold what it says", n_bytes);
    strata_fail(out_error, status, "%.*s", (int)n_text, (const char *)at);
    if (!out_reply) return STRATA_OK;
    *out_reply = (strata_store_reply){.number = number, .n_value = n_value};
    char *value = malloc(n_value + 1);
    if (!value) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes from the store", n_value);
    memcpy(value, at + n_text, n_value);
    value[n_value] = 0;
    out_reply->value = value;
    return STRATA_OK;
}
