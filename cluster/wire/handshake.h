/* SPDX-License-Identifier: Apache-2.0
 *
 * The handshake: both sides of a connection prove that they know the secret, before either of them reads anything else.
 *
 *     client -> server   "STRATA3\n", nonce c (32 random bytes)
 *     server -> client   "STRATA3\n", nonce s
 *     client -> server   hello (16 bytes), HMAC-SHA256(secret, "client" c s hello)
 *     server -> client   HMAC-SHA256(secret, "server" c s hello)
 *
 * Both sides choose a new nonce for each connection, so a recorded proof cannot be used again. A proof includes the role of
 * its sender, so it cannot be sent back to its author. Without a secret the HMAC's key is empty, and the handshake proves
 * only that the other side is Strata. For an unknown peer the server stores only one struct of fixed size. */
#ifndef STRATA_CLUSTER_WIRE_HANDSHAKE_H
#define STRATA_CLUSTER_WIRE_HANDSHAKE_H

#include <stdbool.h>

#include "strata/status.h"

/* STRATA_HANDSHAKE_BYTES: the largest message of the handshake. */
enum { STRATA_HANDSHAKE_BYTES = 48, STRATA_NONCE_BYTES = 32, STRATA_PROOF_BYTES = 32 };

/* As it is sent, in little-endian numbers. */
typedef struct strata_hello {
    /* One of STRATA_FOR_STORE, LINK, MESSAGES, RPC. */
    uint32_t purpose;
    uint32_t communicator, rank, world;
} strata_hello;
enum { STRATA_FOR_STORE = 1, STRATA_FOR_LINK, STRATA_FOR_MESSAGES, STRATA_FOR_RPC };

typedef struct strata_handshake {
    bool server, done;
    /* Borrowed. */
    const void *secret;
    size_t secret_bytes;
    /* The client's, then the server's. */
    unsigned char nonces[2][STRATA_NONCE_BYTES];
    /* What the client wants; on the server valid when `done` is set. */
    strata_hello hello;
    /* How many bytes the other side's next message has. */
    size_t wanted;
    int step;
} strata_handshake;

/* Begins a handshake. For a client, `hello` is what it sends. For a server, `hello` is NULL and *out_n becomes 0. Fails:
 * INTERNAL when there are no random numbers. */
STRATA_MUST_USE strata_status strata_handshake_begin(strata_handshake *h, const strata_hello *hello, const void *secret,
                                                     size_t secret_bytes, unsigned char out[STRATA_HANDSHAKE_BYTES],
                                                     size_t *out_n, strata_error *err);
/* Takes exactly h->wanted bytes; the caller must then send out[0 .. *out_n). The last step sets `done`. Fails: DATA if the
 * other side does not speak Strata's protocol; UNAVAILABLE if its proof was not made with this secret. */
STRATA_MUST_USE strata_status strata_handshake_step(strata_handshake *h, const unsigned char *in,
                                                    unsigned char out[STRATA_HANDSHAKE_BYTES], size_t *out_n,
                                                    strata_error *err);

#endif
