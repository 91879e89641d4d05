/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the head of a request to strata serve, and as a line between chunks: an error that says what is wrong, or a
 * request whose body has one length. */
#include <stdlib.h>
#include <string.h>

#include "samples/strata/http_head.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    http_request r = {.length = 0};
    int64_t chunk = 0;
    const int64_t n = http_find_head(bytes, size);
    if (n < -1 || n > (int64_t)size) abort();
    if (n > 0) http_read_head(bytes, (size_t)n, &r);
    if (r.code && (r.code < 400 || !r.why || r.keep_alive)) abort();
    if (n > 0 && !r.code && (r.length < 0 || (r.length && r.chunked) || !*r.method || !*r.path)) abort();
    if (http_read_chunk_size(bytes, size, &chunk) && chunk < 0) abort();
    (void)http_is_trailer(bytes, size);
    return 0;
}
