/* SPDX-License-Identifier: Apache-2.0
 *
 * The handshake's steps, for both sides. HMAC and random numbers come from OpenSSL. */
#include "cluster/wire/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

static const char greeting[8] = {'S', 'T', 'R', 'A', 'T', 'A', '3', '\n'};
enum { GREETING_BYTES = sizeof greeting + STRATA_NONCE_BYTES, HELLO_BYTES = sizeof(strata_hello) };

static strata_status prove(const strata_handshake *h, const char role[6], const void *hello,
                           unsigned char out[STRATA_PROOF_BYTES], strata_error *err) {
    unsigned char text[6 + 2 * STRATA_NONCE_BYTES + HELLO_BYTES];
    unsigned n = 0;
    memcpy(text, role, 6);
    memcpy(text + 6, h->nonces, 2 * STRATA_NONCE_BYTES);
    memcpy(text + 6 + 2 * STRATA_NONCE_BYTES, hello, HELLO_BYTES);
    const void *key = h->secret_bytes ? h->secret : "";
    if (!HMAC(EVP_sha256(), key, (int)h->secret_bytes, text, sizeof text, out, &n) || n != STRATA_PROOF_BYTES)
        return strata_fail(err, STRATA_INTERNAL, "OpenSSL computes no HMAC-SHA256");
    return STRATA_OK;
}

static strata_status check(const strata_handshake *h, const char role[6], const void *hello, const unsigned char *proof,
                           strata_error *err) {
    unsigned char ours[STRATA_PROOF_BYTES];
    STRATA_TRY(prove(h, role, hello, ours, err));
    if (CRYPTO_memcmp(ours, proof, sizeof ours) != 0)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "the other side does not know our secret: give all ranks the same one (STRATA_SECRET)");
    return STRATA_OK;
}

static void put_greeting(const strata_handshake *h, unsigned char *out, size_t *out_n) {
    memcpy(out, greeting, sizeof greeting);
    memcpy(out + sizeof greeting, h->nonces[h->server], STRATA_NONCE_BYTES);
    *out_n = GREETING_BYTES;
}

strata_status strata_handshake_begin(strata_handshake *h, const strata_hello *hello, const void *secret, size_t secret_bytes,
                                     unsigned char out[STRATA_HANDSHAKE_BYTES], size_t *out_n, strata_error *err) {
    *h = (strata_handshake){.server = !hello, .secret = secret, .secret_bytes = secret_bytes, .wanted = GREETING_BYTES};
    *out_n = 0;
    if (RAND_bytes(h->nonces[h->server], STRATA_NONCE_BYTES) != 1)
        return strata_fail(err, STRATA_INTERNAL, "OpenSSL has no random numbers");
    if (!hello) return STRATA_OK;
    h->hello = *hello;
    put_greeting(h, out, out_n);
    return STRATA_OK;
}

static strata_status take_greeting(strata_handshake *h, const unsigned char *in, strata_error *err) {
    if (memcmp(in, greeting, sizeof greeting) != 0)
        return strata_fail(err, STRATA_DATA, "the other side is no Strata of this version");
    memcpy(h->nonces[!h->server], in + sizeof greeting, STRATA_NONCE_BYTES);
    return STRATA_OK;
}

static strata_status step_server(strata_handshake *h, const unsigned char *in, unsigned char *out, size_t *out_n,
                                 strata_error *err) {
    if (h->step++ == 0) {
        STRATA_TRY(take_greeting(h, in, err));
        put_greeting(h, out, out_n);
        h->wanted = HELLO_BYTES + STRATA_PROOF_BYTES;
        return STRATA_OK;
    }
    STRATA_TRY(check(h, "client", in, in + HELLO_BYTES, err));
    STRATA_TRY(prove(h, "server", in, out, err));
    *out_n = STRATA_PROOF_BYTES;
    memcpy(&h->hello, in, HELLO_BYTES);
    h->wanted = 0;
    h->done = true;
    return STRATA_OK;
}

static strata_status step_client(strata_handshake *h, const unsigned char *in, unsigned char *out, size_t *out_n,
                                 strata_error *err) {
    if (h->step++ == 0) {
        STRATA_TRY(take_greeting(h, in, err));
        memcpy(out, &h->hello, HELLO_BYTES);
        STRATA_TRY(prove(h, "client", &h->hello, out + HELLO_BYTES, err));
        *out_n = HELLO_BYTES + STRATA_PROOF_BYTES;
        h->wanted = STRATA_PROOF_BYTES;
        return STRATA_OK;
    }
    STRATA_TRY(check(h, "server", &h->hello, in, err));
    h->wanted = 0;
    h->done = true;
    return STRATA_OK;
}

strata_status strata_handshake_step(strata_handshake *h, const unsigned char *in, unsigned char out[STRATA_HANDSHAKE_BYTES],
                                    size_t *out_n, strata_error *err) {
    *out_n = 0;
    return (h->server ? step_server : step_client)(h, in, out, out_n, err);
}
