/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes up to the first NUL as a tokenizer's JSON, the rest as text for it: ids that are in its range, or an error. */
#include <stdlib.h>
#include <string.h>

#include "strata/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LENGTH = 64 };
    strata_tokenizer *tokenizer = NULL;
    strata_error err = {0};
    const uint8_t *stop = size ? memchr(data, 0, size) : NULL;
    size_t n_json = stop ? (size_t)(stop - data) : size;
    strata_status status = strata_tokenizer_from_json((const char *)data, n_json, "input", &tokenizer, &err);
    if (status && (status != err.status || !err.message[0] || tokenizer)) abort();
    if (status && status != STRATA_DATA && status != STRATA_OUT_OF_MEMORY) abort();
    if (status) return 0;
    int32_t ids[LENGTH];
    int64_t n = 0;
    const char *text = stop ? (const char *)stop + 1 : "";
    status = strata_tokenizer_encode(tokenizer, text, stop ? size - n_json - 1 : 0, LENGTH, ids, &n, &err);
    for (int i = 0; !status && i < LENGTH; i++)
        if (ids[i] < 0 || ids[i] >= strata_tokenizer_size(tokenizer) || (i >= n && ids[i] != STRATA_TOKEN_PAD)) abort();
    strata_tokenizer_destroy(tokenizer);
    return 0;
}
