/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .npy file: an array no larger than the input, or an error. */
#include <stdlib.h>

#include "core/data/format/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_array array;
    strata_error err = {0};
    strata_status status = strata_npy_parse("input", data, size, &array, &err);
    if (status && (status != err.status || !err.message[0] || array.data)) abort();
    if (status && status != STRATA_DATA && status != STRATA_UNSUPPORTED && status != STRATA_OUT_OF_MEMORY) abort();
    if (!status && strata_array_bytes(&array) > size) abort();
    strata_array_finish(&array);
    return 0;
}
