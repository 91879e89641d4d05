/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 through OpenSSL's EVP interface. */
#include "strata/sha256.h"

#include <openssl/evp.h>
#include <stdio.h>

static strata_status crypto_failed(strata_error *err) {
    return strata_fail(err, STRATA_INTERNAL, "the crypto library could not compute SHA-256");
}

strata_status strata_sha256_init(strata_sha256 *sha, strata_error *err) {
    sha->context = EVP_MD_CTX_new();
    if (!sha->context) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a SHA-256 context");
    if (EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL) == 1) return STRATA_OK;
    strata_sha256_finish(sha);
    return crypto_failed(err);
}

strata_status strata_sha256_update(strata_sha256 *sha, const void *bytes, size_t n_bytes, strata_error *err) {
    return EVP_DigestUpdate(sha->context, bytes, n_bytes) == 1 ? STRATA_OK : crypto_failed(err);
}

strata_status strata_sha256_final(strata_sha256 *sha, char out_text[STRATA_SHA256_TEXT_BYTES], strata_error *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n_bytes = 0;
    if (EVP_DigestFinal_ex(sha->context, digest, &n_bytes) != 1 || n_bytes != 32) return crypto_failed(err);
    for (unsigned i = 0; i < n_bytes; i++) snprintf(out_text + 2 * i, 3, "%02x", digest[i]);
    return STRATA_OK;
}

void strata_sha256_finish(strata_sha256 *sha) {
    if (!sha) return;
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
}

strata_status strata_sha256_of(const void *bytes, size_t n_bytes, char out_text[STRATA_SHA256_TEXT_BYTES], strata_error *err) {
    strata_sha256 sha;
    STRATA_TRY(strata_sha256_init(&sha, err));
    strata_status status = strata_sha256_update(&sha, bytes, n_bytes, err);
    if (!status) status = strata_sha256_final(&sha, out_text, err);
    strata_sha256_finish(&sha);
    return status;
}
