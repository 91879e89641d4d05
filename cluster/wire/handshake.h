/* SPDX-License-Identifier: Apache-2.0
 *
 * The handshake: both ends of a connection prove that they know the secret, before either reads anything else.
 *
 *     client -> server   "STRATA1\n", nonce c (32 random bytes)
 *     server -> client   "STRATA1\n", nonce s
 *     client -> server   hello (16 bytes), HMAC-SHA256(secret, "client" c s hello)
 *     server -> client   HMAC-SHA256(secret, "server" c s hello)
 *
 * Fresh nonces of both make a recorded proof worthless; the role in the proof makes one worthless to its own author. Without a
 * secret the key is empty, and the handshake proves only that the other side is Strata. An unknown peer can make us store one
 * struct of fixed size, and nothing else. */
#ifndef STRATA_CLUSTER_WIRE_HANDSHAKE_H
#define STRATA_CLUSTER_WIRE_HANDSHAKE_H

#include <stdbool.h>

#include "strata/status.h"

enum { STRATA_HANDSHAKE_BYTES = 48 /* the largest message */, STRATA_NONCE_BYTES = 32, STRATA_PROOF_BYTES = 32 };

typedef struct strata_hello {
    /* One of STRATA_FOR_... */
    uint32_t purpose;
    uint32_t communicator, rank, world;
} strata_hello;
enum { STRATA_FOR_STORE = 1, STRATA_FOR_LINK, STRATA_FOR_MESSAGES, STRATA_FOR_RPC };

typedef struct strata_handshake {
    bool server, done;
    /* Borrowed. */
    const void *secret;
    size_t secret_bytes;
    /* Client's, server's. */
    unsigned char nonces[2][STRATA_NONCE_BYTES];
    /* The server's is valid once done. */
    strata_hello hello;
    /* Bytes of the other side's next message. */
    size_t wanted;
    int step;
} strata_handshake;

/* client: hello is sent. server (hello NULL): out_n is 0. Fails: INTERNAL when there are no random numbers. */
STRATA_MUST_USE strata_status strata_handshake_begin(strata_handshake *h, const strata_hello *hello, const void *secret,
                                                     size_t secret_bytes, unsigned char out[STRATA_HANDSHAKE_BYTES],
                                                     size_t *out_n, strata_error *err);
/* Takes exactly h->wanted bytes; out[0 .. *out_n) is to be sent. `done` is set by the last step. Fails: DATA where it isn't
 * Strata that speaks, UNAVAILABLE where the proof is not by our secret. */
STRATA_MUST_USE strata_status strata_handshake_step(strata_handshake *h, const unsigned char *in,
                                                    unsigned char out[STRATA_HANDSHAKE_BYTES], size_t *out_n,
                                                    strata_error *err);

#endif
