/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a tar archive: files whose bytes can all be read, or an error. */
#include <stdlib.h>
#include <string.h>

#include "core/data/format/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool wants(const char *name, void *user) {
    (void)user;
    return strlen(name) % 2 == 0;
}

static strata_status take(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                          strata_error *err) {
    size_t *sum = user;
    (void)name, (void)place, (void)err;
    for (size_t i = 0; i < n_bytes; i++) *sum += bytes[i];
    if (bytes[n_bytes]) abort();
    free(bytes);
    return STRATA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t sum = 0;
    strata_error err = {0};
    const strata_tree_visitor visitor = {.wants = wants, .take = take, .user = &sum};
    strata_status status = strata_tree_visit_tar_bytes("input", data, size, &visitor, &err);
    if (status && (status != err.status || !err.message[0])) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    return 0;
}
