/* SPDX-License-Identifier: Apache-2.0
 *
 * A length that was received is used only after it was compared with the number of bytes that are there. */
#include "cluster/store/payload.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/wire/bytes.h"

static uint32_t milliseconds(double seconds) {
    const double ms = seconds * 1000;
    return ms < 0 ? 0 : ms > 4e9 ? 4000000000u : (uint32_t)ms;
}

void strata_beat_encode(double heartbeat, bool needs_store, unsigned char out[STRATA_BEAT_BYTES]) {
    strata_put(strata_put(out, milliseconds(heartbeat), 4), needs_store, 1);
}

strata_status strata_beat_decode(const unsigned char *in, size_t n_bytes, double *out_heartbeat, bool *out_needs_store,
                                 strata_error *err) {
    if (n_bytes != STRATA_BEAT_BYTES)
        return strata_fail(err, STRATA_DATA, "a sign of life of %zu bytes came, not of %d", n_bytes, STRATA_BEAT_BYTES);
    *out_heartbeat = (double)strata_get(&in, 4) / 1000;
    *out_needs_store = strata_get(&in, 1) != 0;
    return STRATA_OK;
}

/* ---- requests: op 1 byte, seconds in ms 4, amount 8, lengths of key 2, value 4, expected 4; then key, value, expected ---- */

enum { REQUEST_BYTES = 23, NUMBER_BYTES = 8 };

size_t strata_request_encode(const strata_store_request *r, double seconds, unsigned char *out) {
    const size_t n_key = strlen(r->key);
    unsigned char *at = strata_put(out, (uint64_t)r->op, 1);
    at = strata_put(at, milliseconds(seconds), 4);
    at = strata_put(at, (uint64_t)r->amount, 8);
    at = strata_put(at, n_key, 2);
    at = strata_put(at, r->n_value, 4);
    at = strata_put(at, r->n_expected, 4);
    memcpy(at, r->key, n_key);
    if (r->n_value) memcpy(at + n_key, r->value, r->n_value);
    if (r->n_expected) memcpy(at + n_key + r->n_value, r->expected, r->n_expected);
    return REQUEST_BYTES + n_key + r->n_value + r->n_expected;
}

strata_status strata_request_decode(const unsigned char *in, size_t n_bytes, char out_key[STRATA_STORE_KEY_BYTES + 1],
                                    strata_store_request *out_request, double *out_seconds, strata_error *err) {
    if (n_bytes < REQUEST_BYTES) return strata_fail(err, STRATA_DATA, "a request of %zu bytes is cut off", n_bytes);
    const unsigned char *at = in;
    strata_store_request r = {.op = (strata_store_op)strata_get(&at, 1)};
    *out_seconds = (double)strata_get(&at, 4) / 1000;
    r.amount = (int64_t)strata_get(&at, 8);
    const size_t n_key = strata_get(&at, 2);
    r.n_value = strata_get(&at, 4);
    r.n_expected = strata_get(&at, 4);
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

size_t strata_reply_encode(const strata_store_reply *reply, unsigned char *out) {
    unsigned char *at = strata_put(out, (uint64_t)reply->number, NUMBER_BYTES);
    if (!reply->value) return NUMBER_BYTES;
    memcpy(at, reply->value, reply->n_value);
    return NUMBER_BYTES + reply->n_value;
}

strata_status strata_reply_decode(const unsigned char *in, size_t n_bytes, strata_store_reply *out_reply, strata_error *err) {
    if (n_bytes < NUMBER_BYTES || n_bytes > NUMBER_BYTES + STRATA_STORE_VALUE_BYTES)
        return strata_fail(err, STRATA_DATA, "a reply of %zu bytes is too short or too long", n_bytes);
    const unsigned char *at = in;
    *out_reply = (strata_store_reply){.number = (int64_t)strata_get(&at, NUMBER_BYTES), .n_value = n_bytes - NUMBER_BYTES};
    char *value = malloc(out_reply->n_value + 1);
    if (!value) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes from the store", out_reply->n_value);
    memcpy(value, at, out_reply->n_value);
    value[out_reply->n_value] = 0;
    out_reply->value = value;
    return STRATA_OK;
}
