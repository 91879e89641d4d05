/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an .npz archive, asked for its array "x": an array, or an error. */
#include <stdlib.h>

#include "strata/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array array;
    strata_error err = {0};
    strata_status status = strata_npz_parse("input", data, size, "x", &array, &err);
    if (status && (status != err.status || !err.message[0] || array.data)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    if (!status && strata_array_bytes(&array) > size * 1032) abort();
    strata_array_finish(&array);
    return 0;
}
