/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers are little-endian, as those of every machine that Strata is compiled for. A length that was received is used only
 * after it was compared with the number of bytes that are there. */
#include "cluster/store/payload.h"

#include <stdlib.h>
#include <string.h>

uint32_t strata_milliseconds(double seconds) {
    const double ms = seconds * 1000;
    return ms < 0 ? 0 : ms > 4e9 ? 4000000000u : (uint32_t)ms;
}

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

size_t strata_reply_encode(const strata_store_reply *reply, unsigned char *out) {
    memcpy(out, &reply->number, sizeof reply->number);
    if (reply->n_value) memcpy(out + sizeof reply->number, reply->value, reply->n_value);
    return sizeof reply->number + reply->n_value;
}

strata_status strata_reply_decode(const unsigned char *in, size_t n_bytes, strata_store_reply *out_reply, strata_error *err) {
    const size_t n_number = sizeof out_reply->number, n = n_bytes - n_number;
    if (n_bytes < n_number || n > STRATA_STORE_VALUE_BYTES)
        return strata_fail(err, STRATA_DATA, "a reply of %zu bytes is too short or too long", n_bytes);
    char *value = malloc(n + 1);
    if (!value) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes from the store", n);
    memcpy(value, in + n_number, n);
    value[n] = 0;
    *out_reply = (strata_store_reply){.value = value, .n_value = n};
    memcpy(&out_reply->number, in, n_number);
    return STRATA_OK;
}
