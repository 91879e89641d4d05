/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256, as hexadecimal text, of bytes that are added in pieces. */
#ifndef STRATA_SHA256_H
#define STRATA_SHA256_H

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_SHA256_TEXT_BYTES = 65 }; /* 64 lower-case digits and the NUL */

/* init, update as often as needed, final once; finish always. Fails: OUT_OF_MEMORY; INTERNAL when the crypto library
 * fails. */
typedef struct strata_sha256 {
    void *context;
} strata_sha256;

STRATA_API STRATA_MUST_USE strata_status strata_sha256_init(strata_sha256 *sha, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_sha256_update(strata_sha256 *sha, const void *bytes, size_t n_bytes,
                                                              strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_sha256_final(strata_sha256 *sha, char out_text[STRATA_SHA256_TEXT_BYTES],
                                                             strata_error *err);
STRATA_API void strata_sha256_finish(strata_sha256 *sha); /* NULL and a zeroed struct are fine */

/* Does all of this for bytes in one piece. */
STRATA_API STRATA_MUST_USE strata_status strata_sha256_of(const void *bytes, size_t n_bytes,
                                                          char out_text[STRATA_SHA256_TEXT_BYTES], strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
