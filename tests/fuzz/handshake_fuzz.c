/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes from an unknown peer, to the server and to the client of a handshake: refused within the messages there are, and
 * never believed, since the secret is not in them. */
#include <stdlib.h>
#include <string.h>

#include "cluster/wire/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void talk(const strata_hello *hello, const uint8_t *data, size_t size) {
    strata_handshake h;
    strata_error err = {0};
    unsigned char out[STRATA_HANDSHAKE_BYTES], in[STRATA_HANDSHAKE_BYTES];
    size_t n = 0;
    if (strata_handshake_begin(&h, hello, "secret", 6, out, &n, &err)) return;
    for (int step = 0;; step++) {
        if (h.wanted > STRATA_HANDSHAKE_BYTES || n > STRATA_HANDSHAKE_BYTES || step > 2) abort();
        if (size < h.wanted) return;
        memcpy(in, data, h.wanted);
        data += h.wanted;
        size -= h.wanted;
        strata_status status = strata_handshake_step(&h, in, out, &n, &err);
        if (status && !err.message[0]) abort();
        if (status) return;
        if (h.done) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const strata_hello hello = {STRATA_FOR_LINK, 1, 2, 3};
    talk(NULL, data, size);
    talk(&hello, data, size);
    return 0;
}
