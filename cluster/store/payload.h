/* SPDX-License-Identifier: Apache-2.0
 *
 * The payloads of messages between a rank and the store. */
#ifndef STRATA_CLUSTER_STORE_PAYLOAD_H
#define STRATA_CLUSTER_STORE_PAYLOAD_H

#include "cluster/store/board.h"

enum {
    STRATA_MESSAGE_BYTES = 64 + STRATA_STORE_KEY_BYTES + 2 * STRATA_STORE_VALUE_BYTES /* the largest payload */
};

/* Encodes a request to `out`, which has room for STRATA_MESSAGE_BYTES. Returns the number of bytes. */
size_t strata_request_encode(const strata_store_request *request, double seconds, unsigned char *out);
/* Decodes a request. Pointers of *out_request point into `in`, except the key, which is copied to out_key. */
STRATA_MUST_USE strata_status strata_request_decode(const unsigned char *in, size_t n_bytes,
                                                    char out_key[STRATA_STORE_KEY_BYTES + 1], strata_store_request *out_request,
                                                    double *out_seconds, strata_error *err);
/* The payload of a heartbeat: the milliseconds between the sender's heartbeats, and whether the sender has a communicator
 * without a verdict, so that it still needs the store. */
typedef struct strata_beat {
    uint32_t ms, needs_store;
} strata_beat;
uint32_t strata_milliseconds(double seconds);
/* Encodes the reply to a request that succeeded; `out` has room for STRATA_MESSAGE_BYTES. The reply to one that failed is its
 * text, as those of events are; the status is the packet's. */
size_t strata_reply_encode(const strata_store_reply *reply, unsigned char *out);
/* *out_reply gets a value that the caller frees. */
STRATA_MUST_USE strata_status strata_reply_decode(const unsigned char *in, size_t n_bytes, strata_store_reply *out_reply,
                                                  strata_error *err);

#endif
